//! `packed_qkv`: norm and rotation in place, and the write of keys and values to a cache.

use dsl_runtime::prelude::*;
use fused_kernels::attention::Attention;
use fused_kernels::float::LibraryFloat;
use fused_kernels::packed_qkv::{CacheLayout, HostQkv, KvCache, PackedQkv, RotaryTable, reference};
use fused_kernels::reference::{Expected, compare};
use fused_kernels::rope::Heads;

use crate::data::{Guarded, devices, normal, shifted};

/// Positions of a table.
const POSITIONS: usize = 50;

#[derive(Clone, Copy, Debug)]
struct Case {
    tokens: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    rotary_dim: usize,
    /// Elements between rows.
    gap: usize,
}

/// Heads that are rotated whole, partly and not at all; of a tile's length, shorter ones and odd ones; rows that begin on
/// boundaries and elsewhere; heads that fill a program and that do not.
const CASES: [Case; 13] = [
    Case { tokens: 0, queries: 2, keys: 1, dim: 64, rotary_dim: 64, gap: 0 },
    Case { tokens: 1, queries: 1, keys: 1, dim: 2, rotary_dim: 2, gap: 0 },
    Case { tokens: 5, queries: 8, keys: 2, dim: 128, rotary_dim: 128, gap: 0 },
    Case { tokens: 6, queries: 4, keys: 2, dim: 128, rotary_dim: 64, gap: 16 },
    Case { tokens: 7, queries: 3, keys: 1, dim: 66, rotary_dim: 66, gap: 5 },
    Case { tokens: 5, queries: 4, keys: 4, dim: 256, rotary_dim: 256, gap: 8 },
    Case { tokens: 6, queries: 5, keys: 2, dim: 80, rotary_dim: 32, gap: 0 },
    Case { tokens: 9, queries: 2, keys: 1, dim: 100, rotary_dim: 0, gap: 3 },
    Case { tokens: 5, queries: 3, keys: 2, dim: 200, rotary_dim: 24, gap: 16 },
    Case { tokens: 5, queries: 1, keys: 1, dim: 33, rotary_dim: 20, gap: 1 },
    Case { tokens: 5, queries: 3, keys: 0, dim: 64, rotary_dim: 32, gap: 0 },
    Case { tokens: 5, queries: 9, keys: 9, dim: 64, rotary_dim: 62, gap: 0 },
    Case { tokens: 5, queries: 1, keys: 1, dim: 1, rotary_dim: 0, gap: 0 },
];

impl Case {
    fn heads(self) -> Heads {
        Heads { queries: self.queries, keys: self.keys }
    }

    fn width(self) -> usize {
        (self.queries + 2 * self.keys) * self.dim
    }

    fn stride(self) -> usize {
        self.width() + self.gap
    }

    /// Positions to and fro, of which two are outside of the table.
    fn positions(self) -> Vec<i32> {
        let positions = (0..self.tokens).map(|token| match token {
            3 => POSITIONS as i32,
            4 => -1,
            _ => (token * 17 % POSITIONS) as i32,
        });
        positions.collect()
    }

    /// Rows with gaps between them; the second row is zeros.
    fn matrix<T: Float>(self) -> Vec<T> {
        let mut matrix = normal::<T>(self.tokens * self.stride(), 1);
        matrix.iter_mut().skip(self.stride()).take(self.width()).for_each(|x| *x = T::default());
        matrix
    }

    /// Cosines and sines of each position.
    fn table<T: Float>(self) -> Vec<T> {
        let half = self.rotary_dim / 2;
        let angle = |i: usize, j: usize| i as f64 * 10_000f64.powf(-(j as f64) / half as f64);
        let row = |i: usize| {
            let [cos, sin] =
                [f64::cos, f64::sin].map(|of| (0..half).map(move |j| T::from_f64(of(angle(i, j)))));
            cos.chain(sin).collect::<Vec<T>>()
        };
        (0..POSITIONS).flat_map(row).collect()
    }

    /// What becomes of a matrix with gaps.
    fn expected<T: Float>(self, matrix: &[T], of: HostQkv<'_, T>) -> Vec<Expected> {
        let packed: Vec<T> =
            matrix.chunks(self.stride()).flat_map(|row| &row[..self.width()]).copied().collect();
        let expected = reference(&packed, of);
        let rows = matrix.chunks(self.stride()).zip(expected.chunks(self.width().max(1)));
        rows.flat_map(|(row, own)| own.iter().copied().chain(row[self.width()..].iter().map(exact))).collect()
    }
}

fn exact<T: Float>(x: &T) -> Expected {
    Expected { value: x.to_f64(), within: 0.0 }
}

/// Parameters of queries and of keys.
fn gammas<T: Float>(dim: usize) -> [Vec<T>; 2] {
    [2, 3].map(|seed| normal::<T>(dim, seed))
}

#[track_caller]
fn check<T: LibraryFloat>(interleaved: bool) {
    for (case, is_normed) in CASES.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let (matrix, table, positions) = (case.matrix::<T>(), case.table::<T>(), case.positions());
        let [query, key] = gammas::<T>(case.dim);
        let of = HostQkv {
            positions: &positions,
            cos_sin: &table,
            rotary_dim: case.rotary_dim,
            interleaved,
            heads: case.heads(),
            dim: case.dim,
            norm: is_normed.then_some(([&query[..], &key[..]], 1e-5)),
        };
        let expected = case.expected(&matrix, of);
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let mut packed = Guarded::of(device, &matrix, shift);
            let [query, key, table] = [&query, &key, &table].map(|of| shifted(device, of, shift));
            let positions = device.upload(&positions).unwrap();
            let table = RotaryTable {
                positions: positions.slice(..),
                cos_sin: table.slice(shift..),
                rotary_dim: case.rotary_dim,
            };
            let op = PackedQkv::new(table, case.heads(), case.dim).row_stride(case.stride());
            let op = if interleaved { op.interleaved() } else { op };
            let op = if is_normed { op.norm(query.slice(shift..), key.slice(shift..)).eps(1e-5) } else { op };
            op.launch(&device, packed.output()).unwrap();
            if let Err(found) = compare(&packed.content(), &expected) {
                panic!(
                    "{case:?} of {}, interleaved {interleaved}, normalized {is_normed}, on {device}, shifted by {shift}: {found}",
                    T::DTYPE
                );
            }
        }
    }
}

#[test]
fn packed_heads_are_normalized_and_rotated_as_exactly_as_stated() {
    check::<f32>(false);
    check::<f32>(true);
    check::<f16>(false);
    check::<f16>(true);
    check::<bf16>(false);
    check::<bf16>(true);
}

/// Where an element of a slot is, of pages, heads, slots and elements, in either order.
fn cache_offset(case: Case, by_heads: bool, page: usize, slot: usize, head: usize) -> usize {
    let (first, second) = (slot / page, slot % page);
    let row = if by_heads {
        (first * case.keys + head) * page + second
    } else {
        (first * page + second) * case.keys + head
    };
    row * case.dim
}

#[track_caller]
fn check_cached<T: LibraryFloat>(interleaved: bool) {
    let (pages, page) = (3, 5);
    for (case, by_heads) in CASES.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let (matrix, table, positions) = (case.matrix::<T>(), case.table::<T>(), case.positions());
        let [query, key] = gammas::<T>(case.dim);
        let is_normed = case.gap % 2 == 0;
        let of = HostQkv {
            positions: &positions,
            cos_sin: &table,
            rotary_dim: case.rotary_dim,
            interleaved,
            heads: case.heads(),
            dim: case.dim,
            norm: is_normed.then_some(([&query[..], &key[..]], 1e-6)),
        };
        let expected = case.expected(&matrix, of);
        // One token has no slot, one has the first behind the last; the others have slots in no order.
        let slots: Vec<i32> =
            (0..case.tokens as i32).map(|i| [7, -1, 15, 14, 0, 3, 12, 1, 9][i as usize]).collect();
        let of_layout = [pages, case.keys, page, case.dim];
        let layout = if by_heads {
            CacheLayout::by_heads(of_layout)
        } else {
            CacheLayout::by_slots([pages, page, case.keys, case.dim])
        };
        let before = normal::<T>(of_layout.iter().product(), 4);
        let cached = [case.queries, case.queries + case.keys].map(|first| {
            let mut cached: Vec<Expected> = before.iter().map(exact).collect();
            let written = slots.iter().enumerate().filter(|&(_, slot)| (0..15).contains(slot));
            for (token, &slot) in written {
                for head in 0..case.keys {
                    let target = cache_offset(case, by_heads, page, slot as usize, head);
                    let from = token * case.stride() + (first + head) * case.dim;
                    cached[target..target + case.dim].copy_from_slice(&expected[from..from + case.dim]);
                }
            }
            cached
        });
        for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
            let mut packed = Guarded::of(device, &matrix, shift);
            let [mut keys, mut values] = [(); 2].map(|()| Guarded::of(device, &before, shift));
            let [query, key, table] = [&query, &key, &table].map(|of| shifted(device, of, shift));
            let [positions, slots] = [&positions, &slots].map(|of| device.upload(of).unwrap());
            let table = RotaryTable {
                positions: positions.slice(..),
                cos_sin: table.slice(shift..),
                rotary_dim: case.rotary_dim,
            };
            let op = PackedQkv::new(table, case.heads(), case.dim).row_stride(case.stride());
            let op = if interleaved { op.interleaved() } else { op };
            let op = if is_normed { op.norm(query.slice(shift..), key.slice(shift..)) } else { op };
            let cache =
                KvCache { keys: keys.output(), values: values.output(), slots: slots.slice(..), layout };
            op.launch_cached(&device, packed.output(), cache).unwrap();
            let [of_keys, of_values] = &cached;
            let results =
                [(packed.content(), &expected), (keys.content(), of_keys), (values.content(), of_values)];
            for (i, (content, expected)) in results.into_iter().enumerate() {
                if let Err(found) = compare(&content, expected) {
                    let what = ["the matrix", "keys", "values"][i];
                    panic!(
                        "{what}, {case:?} of {}, interleaved {interleaved}, by heads {by_heads}, on {device}, shifted by {shift}: {found}",
                        T::DTYPE
                    );
                }
            }
        }
    }
}

#[test]
fn packed_keys_and_values_are_where_the_cache_has_them() {
    check_cached::<f32>(false);
    check_cached::<f32>(true);
    check_cached::<f16>(false);
    check_cached::<bf16>(false);
    check_cached::<bf16>(true);
}

/// Attention of the next token reads a cache by heads: the same result as from the packed rows.
#[test]
fn packed_keys_in_a_cache_are_read_by_attention() {
    let (tokens, capacity, dim) = (70, 90, 64);
    let heads = Heads { queries: 4, keys: 2 };
    let case = Case { tokens, queries: heads.queries, keys: heads.keys, dim, rotary_dim: dim, gap: 0 };
    let (matrix, table) = (normal::<bf16>(tokens * case.width(), 1), case.table::<bf16>());
    let positions: Vec<i32> = (0..tokens).map(|token| (token % POSITIONS) as i32).collect();
    let slots: Vec<i32> = (0..tokens as i32).collect();
    for device in devices() {
        let mut packed = device.upload(&matrix).unwrap();
        let [mut keys, mut values] =
            [(); 2].map(|()| device.zeros::<bf16>(heads.keys * capacity * dim).unwrap());
        let [positions, slots] = [&positions, &slots].map(|of| device.upload(of).unwrap());
        let cos_sin = device.upload(&table).unwrap();
        let table =
            RotaryTable { positions: positions.slice(..), cos_sin: cos_sin.slice(..), rotary_dim: dim };
        let cache = KvCache {
            keys: (&mut keys).into(),
            values: (&mut values).into(),
            slots: slots.slice(..),
            layout: CacheLayout::by_heads([1, heads.keys, capacity, dim]),
        };
        PackedQkv::new(table, heads, dim).launch_cached(&device, &mut packed, cache).unwrap();
        let rows = packed.view([tokens, 8, dim]).unwrap().permute([1, 0, 2]);
        let q = rows.slice(0, ..4).slice(1, tokens - 1..);
        let attended = |k: View<'_, bf16, 3>, v: View<'_, bf16, 3>| {
            let attention = Attention::new(q, k, v);
            let mut workspace = device.zeros::<f32>(attention.workspace_len(&device)).unwrap();
            let (mut out, mut lse) =
                (device.zeros::<bf16>(4 * dim).unwrap(), device.zeros::<f32>(4).unwrap());
            let result = out.view_mut([4, 1, dim]).unwrap();
            attention.launch_split_with_lse(&device, result, &mut lse, &mut workspace).unwrap();
            out.download().unwrap()
        };
        let cached = [&keys, &values].map(|of| of.view([2, capacity, dim]).unwrap().slice(1, ..tokens));
        let [of_cache, of_rows] =
            [attended(cached[0], cached[1]), attended(rows.slice(0, 4..6), rows.slice(0, 6..))];
        assert_eq!(of_cache, of_rows, "on {device}");
    }
}

/// The reference itself: pairs are where they should be, and what is behind them is not rotated.
#[test]
fn packed_pairs_trade_their_elements_by_a_quarter_of_a_rotation() {
    let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let rotated = |interleaved: bool| -> Vec<f64> {
        let of = HostQkv {
            positions: &[0],
            cos_sin: &[0.0, 0.0, 1.0, 1.0],
            rotary_dim: 4,
            interleaved,
            heads: Heads { queries: 1, keys: 0 },
            dim: 6,
            norm: None,
        };
        reference(&x, of).iter().map(|y| y.value).collect()
    };
    assert_eq!(rotated(false), [-3.0, -4.0, 1.0, 2.0, 5.0, 6.0]);
    assert_eq!(rotated(true), [-2.0, 1.0, -4.0, 3.0, 5.0, 6.0]);
}

#[test]
fn packed_lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let (positions, table, gamma) = ([0i32, 1], [1.0f32; 16], [1.0f32; 8]);
    let op = |rotary_dim: usize, dim: usize| {
        let table = RotaryTable { positions: (&positions).into(), cos_sin: (&table).into(), rotary_dim };
        PackedQkv::new(table, Heads { queries: 1, keys: 1 }, dim)
    };
    let say = |op: PackedQkv<'_, f32>, len: usize| {
        let mut qkv = vec![1.0f32; len];
        op.launch(&device, &mut qkv).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("packed_qkv: {reason}"));
    assert_eq!(say(op(4, 8).norm(&gamma, &gamma), 48), Ok(()));
    assert_eq!(say(op(4, 8).row_stride(30), 54), Ok(()));
    assert_eq!(say(op(4, 8), 47), error("qkv has 47 elements, expected 48 to 48 for 2 rows"));
    assert_eq!(say(op(4, 8).row_stride(30), 61), error("qkv has 61 elements, expected 54 to 60 for 2 rows"));
    assert_eq!(
        say(op(4, 8).row_stride(23), 48),
        error("row_stride is 23, less than the 24 elements of a row")
    );
    assert_eq!(say(op(3, 8), 48), error("rotary_dim is 3, expected an even number up to the head's 8"));
    assert_eq!(say(op(10, 8), 48), error("rotary_dim is 10, expected an even number up to the head's 8"));
    assert_eq!(say(op(0, 257), 1542), error("heads have 257 elements, expected 1 to 256"));
    assert_eq!(say(op(6, 8), 48), error("cos_sin has 16 elements, which are no whole rows of 6"));
    assert_eq!(say(op(4, 6).norm(&gamma, &gamma), 36), error("query_gamma has 8 elements and a head has 6"));
    let cached = |slots: &[i32], len: usize| {
        let (mut qkv, mut keys, mut values) = ([1.0f32; 48], vec![0.0f32; len], [0.0f32; 24]);
        let layout = CacheLayout::by_heads([1, 1, 3, 8]);
        let cache =
            KvCache { keys: (&mut keys).into(), values: (&mut values).into(), slots: slots.into(), layout };
        op(4, 8).launch_cached(&device, &mut qkv, cache).map_err(|error| error.to_string())
    };
    assert_eq!(cached(&[0, 2], 24), Ok(()));
    assert_eq!(cached(&[0], 24), error("slots has 1 elements and positions has 2"));
    assert!(cached(&[0, 2], 23).is_err());
}
