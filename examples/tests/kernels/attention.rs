//! `attention`.

use dsl_runtime::prelude::*;
use fused_kernels::attention::{Attention, AttentionExtents};
use fused_kernels::attention_reference::{Rules, reference};
use fused_kernels::dropout::Dropout;
use fused_kernels::float::HalfFloat;
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Heads, heads of keys, queries and keys: blocks that are full, cut on either side by one and by more, and almost
/// empty; fewer keys than queries, and none; groups of heads, and one head of keys for all.
const SEQUENCES: [[usize; 4]; 12] = [
    [2, 2, 128, 128],
    [1, 1, 129, 191],
    [3, 3, 1, 100],
    [2, 2, 70, 1],
    [1, 1, 200, 65],
    [1, 1, 5, 0],
    [0, 0, 5, 5],
    [1, 1, 64, 320],
    [2, 2, 127, 257],
    [1, 1, 257, 255],
    [6, 2, 33, 130],
    [3, 1, 7, 129],
];

pub fn extents([heads, key_heads, queries, keys]: [usize; 4], elements: usize) -> AttentionExtents {
    AttentionExtents { heads, key_heads, queries, keys, elements }
}

/// The layout of the rows of heads in memory.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Head after head.
    Heads,
    /// The first rows of all heads, then the second ones.
    Rows,
    /// Head after head, with so many elements of padding after each row.
    RowsPadded(usize),
}

impl Order {
    pub fn strides(self, [heads, rows, elements]: [usize; 3]) -> [usize; 3] {
        match self {
            Order::Heads => [rows * elements, elements, 1],
            Order::Rows => [elements, heads * elements, 1],
            Order::RowsPadded(by) => [rows * (elements + by), elements + by, 1],
        }
    }

    /// On `device`, `shift` elements after a boundary.
    pub fn upload<T: Float>(
        self,
        device: Device,
        elements: &[T],
        shape: [usize; 3],
        shift: usize,
    ) -> Buffer<T> {
        let [head, row, _] = self.strides(shape);
        let len =
            if shape.contains(&0) { 0 } else { (shape[0] - 1) * head + (shape[1] - 1) * row + shape[2] };
        let mut memory = vec![T::from_f64(f64::NAN); len];
        for (i, own) in elements.chunks(shape[2]).enumerate() {
            let start = i / shape[1] * head + i % shape[1] * row;
            memory[start..start + shape[2]].copy_from_slice(own);
        }
        shifted(device, &memory, shift)
    }
}

/// With the rules, on every device, with everything on a boundary and one element off it.
fn check<T: HalfFloat>(extents: AttentionExtents, order: Order, rules: Rules<'_, T>) {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let q = normal::<T>(heads * queries * elements, 1);
    let [k, v] = [2, 3].map(|seed| normal::<T>(key_heads * keys * elements, seed));
    let [rows, lses] = reference([&q, &k, &v], extents, rules);
    let shapes = [[heads, queries, elements], [key_heads, keys, elements], [key_heads, keys, elements]];
    for device in devices() {
        for shift in [0, 1] {
            let mut inputs = [&q, &k, &v].into_iter().zip(shapes);
            let inputs = [(); 3].map(|()| {
                let (values, shape) = inputs.next().unwrap();
                (order.upload(device, values, shape, shift), shape)
            });
            let [q, k, v] = [0, 1, 2].map(|i| {
                let (buffer, shape) = &inputs[i];
                buffer.slice(shift..).view_strided(*shape, order.strides(*shape)).unwrap()
            });
            let mut out = Guarded::<T>::new(device, rows.len(), shift);
            let mut lse = Guarded::<f32>::new(device, lses.len(), shift);
            let mut memory = out.output();
            let result = memory.view_mut(shapes[0]).unwrap();
            let slopes = rules.slopes.map(|slopes| device.upload(slopes).unwrap());
            let bias = rules.bias.map(|bias| shifted(device, bias, shift));
            let [left, right] = rules.window;
            let mut attention = Attention::new(q, k, v).scale(rules.scale).window(left, right);
            if let Some(softcap) = rules.softcap {
                attention = attention.softcap(softcap);
            }
            if let Some(slopes) = &slopes {
                attention = attention.alibi(slopes);
            }
            if let Some(bias) = &bias {
                attention = attention.bias(bias.slice(shift..).view([heads, queries, keys]).unwrap());
            }
            if let Some(Dropout { p, seed }) = rules.dropout {
                attention = attention.dropout(p, seed);
            }
            attention.launch_with_lse(&device, result, lse.output()).unwrap();
            let what = format!("{extents:?} of {}, {order:?}, on {device}, shifted by {shift}", T::DTYPE);
            compare(&out.content(), &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
            compare(&lse.content(), &lses).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
        }
    }
}

fn check_all<T: HalfFloat>(elements: usize, rules: Rules<'_, T>) {
    for sequences in SEQUENCES {
        check::<T>(extents(sequences, elements), Order::Heads, rules);
    }
    for order in [Order::Rows, Order::RowsPadded(8), Order::RowsPadded(3)] {
        check::<T>(extents([3, 3, 131, 140], elements), order, rules);
    }
}

/// Queries, keys and values of three sequences as a linear layer writes them, each with contiguous heads, and results in
/// every second row.
#[test]
fn sequences_are_an_axis() {
    let ([sequences, heads, key_heads, length, elements], scale) = ([3, 4, 2, 70, 64], 0.2);
    let columns = (heads + 2 * key_heads) * elements;
    let packed = normal::<bf16>(sequences * length * columns, 1);
    // The same in head-major order.
    let head_major = |first: usize, count: usize| -> Vec<bf16> {
        let of = |at: usize| {
            let [sequence, head] = [at / count, first + at % count];
            (0..length).flat_map(move |row| {
                let start = (sequence * length + row) * columns + head * elements;
                start..start + elements
            })
        };
        (0..sequences * count).flat_map(of).map(|i| packed[i]).collect()
    };
    let (q, k, v) =
        (head_major(0, heads), head_major(heads, key_heads), head_major(heads + key_heads, key_heads));
    let all = extents([sequences * heads, sequences * key_heads, length, length], elements);
    let [rows, lses] = reference([&q, &k, &v], all, Rules::scaled(scale).causal());
    for device in devices() {
        let memory = device.upload(&packed).unwrap();
        let of_heads = memory.view([sequences, length, columns / elements, elements]).unwrap();
        let of_heads = of_heads.permute([0, 2, 1, 3]);
        let of = |first: usize, count: usize| of_heads.slice(1, first..first + count);
        let attention = Attention::new(of(0, heads), of(heads, key_heads), of(heads + key_heads, key_heads));
        let attention = attention.scale(scale).causal();
        let mut out = Guarded::<bf16>::new(device, 2 * rows.len(), 0);
        let mut lse = Guarded::<f32>::new(device, lses.len(), 0);
        let mut slice = out.output();
        let written = slice.view_mut([sequences, length, 2 * heads, elements]).unwrap();
        let mut written = written.permute([0, 2, 1, 3]);
        attention.launch_with_lse(&device, written.slice_mut(1, ..heads), lse.output()).unwrap();
        let content = out.content();
        let (mut found, mut others) = (vec![], vec![]);
        for at in 0..sequences * heads {
            for row in 0..length {
                let start = ((at / heads * length + row) * 2 * heads + at % heads) * elements;
                found.extend_from_slice(&content[start..start + elements]);
                others.extend_from_slice(&content[start + heads * elements..][..elements]);
            }
        }
        compare(&found, &rows).unwrap_or_else(|found| panic!("on {device}: {found}"));
        compare(&lse.content(), &lses).unwrap_or_else(|found| panic!("on {device}, lse: {found}"));
        assert!(others.iter().all(|other| other.is_nan()), "on {device}: other rows were written");
        // One sequence less of the keys is named.
        let too_few = of_heads.slice(0, ..2).slice(1, ..key_heads);
        let attention = Attention::new(of(0, heads), too_few, too_few);
        let mut lse = device.zeros::<f32>(lses.len()).unwrap();
        let mut out = device.zeros::<bf16>(rows.len()).unwrap();
        let written = out.view_mut([sequences, heads, length, elements]).unwrap();
        let error = attention.launch_with_lse(&device, written, &mut lse).unwrap_err().to_string();
        assert_eq!(error, "attention: k has 2 sequences and q has 3");
    }
}

#[test]
fn attention_is_as_exact_as_stated() {
    check_all::<f16>(64, Rules::scaled(0.2));
    check_all::<bf16>(64, Rules::scaled(0.2));
    check_all::<bf16>(32, Rules::scaled(0.2));
    check_all::<bf16>(128, Rules::scaled(0.2));
}

#[test]
fn causal_attention_is_as_exact_as_stated() {
    check_all::<f16>(64, Rules::scaled(0.2).causal());
    check_all::<bf16>(64, Rules::scaled(0.2).causal());
    check_all::<f16>(128, Rules::scaled(0.2).causal());
}

/// Sequences that are long enough for the largest tiles.
#[test]
fn long_sequences_are_as_exact_as_stated() {
    for rules in [Rules::<bf16>::scaled(0.2), Rules::scaled(0.2).causal()] {
        check(extents([1, 1, 3201, 600], 64), Order::Heads, rules);
    }
}

/// Rows that fill a tile, and those that leave some of one.
#[test]
fn rows_have_any_length() {
    for elements in [1, 17, 80, 96, 192, 200, 256] {
        let of = |sequences| extents(sequences, elements);
        for rules in [Rules::<bf16>::scaled(0.1), Rules::scaled(0.1).causal()] {
            check(of([2, 2, 130, 193]), Order::Heads, rules);
        }
        check(of([4, 2, 40, 230]), Order::Rows, Rules::<f16>::scaled(0.1).causal());
        check(of([1, 1, 129, 64]), Order::RowsPadded(8), Rules::<f16>::scaled(0.1));
    }
}

/// Windows narrower and wider than blocks, on one side and on both; some that mask everything.
#[test]
fn a_window_is_as_exact_as_stated() {
    let windows: [[Option<usize>; 2]; 8] = [
        [Some(0), Some(0)],
        [Some(70), Some(0)],
        [Some(3), Some(200)],
        [None, Some(5)],
        [Some(130), None],
        [Some(usize::MAX), Some(usize::MAX)],
        [Some(1), Some(1)],
        [Some(127), Some(129)],
    ];
    for window in windows {
        let rules = Rules::<bf16> { window, ..Rules::scaled(0.2) };
        for sequences in [[1, 1, 300, 300], [2, 1, 140, 420], [1, 1, 420, 140], [1, 1, 1, 500], [1, 1, 3, 0]]
        {
            check(extents(sequences, 64), Order::Heads, rules);
        }
    }
    for elements in [128, 160, 256] {
        let rules = Rules::<f16> { window: [Some(90), Some(30)], ..Rules::scaled(0.1) };
        check(extents([2, 1, 200, 333], elements), Order::Rows, rules);
    }
}

/// Modifications of scores, alone and together.
#[test]
fn modified_scores_are_as_exact_as_stated() {
    let slopes = [0.5, 0.0, 0.0625, -0.25];
    for sequences in [[4, 2, 150, 210], [4, 4, 130, 60], [4, 1, 1, 96], [4, 4, 3, 0]] {
        let [heads, _, queries, keys] = sequences;
        let mut bias = normal::<bf16>(heads * queries * keys, 4);
        // Masked: every seventh key, all of the first row, and of a row in the middle all keys of a block.
        bias.iter_mut().step_by(7).for_each(|x| *x = bf16::NEG_INFINITY);
        bias.iter_mut().take(keys).for_each(|x| *x = bf16::NEG_INFINITY);
        bias.iter_mut().skip(queries / 2 * keys).take(keys.min(96)).for_each(|x| *x = bf16::NEG_INFINITY);
        let plain = Rules::scaled(0.2);
        let (bias, slopes) = (Some(&bias[..]), Some(&slopes[..]));
        let dropout = Some(Dropout { p: 0.3, seed: 7 });
        let window = [Some(100), Some(20)];
        for rules in [
            Rules { softcap: Some(2.0), ..plain },
            Rules { softcap: Some(1e30), ..plain.causal() },
            Rules { softcap: Some(1e-30), ..plain },
            Rules { slopes, ..plain },
            Rules { slopes, ..plain.causal() },
            Rules { bias, ..plain },
            Rules { bias, ..plain.causal() },
            Rules { dropout, ..plain.causal() },
            Rules { dropout: Some(Dropout { p: 1.0, seed: 7 }), ..plain },
            // The largest number below 1, which drops everything too.
            Rules { dropout: Some(Dropout { p: 1.0 - f32::EPSILON / 2.0, seed: 7 }), ..plain },
            Rules { dropout: Some(Dropout { p: 0.0, seed: 7 }), ..plain },
            Rules { softcap: Some(3.0), slopes, bias, dropout, window, ..plain },
        ] {
            check(extents(sequences, 64), Order::Heads, rules);
        }
        let all = Rules { softcap: Some(3.0), slopes, bias, dropout, window, ..plain };
        for elements in [128, 192, 256] {
            check(extents(sequences, elements), Order::Heads, all);
        }
    }
}

/// One bias for all heads, and one for all queries, as a broadcast view.
#[test]
fn a_bias_is_repeated() {
    let (heads, queries, keys) = (3, 40, 130);
    let q = normal::<f16>(heads * queries * 64, 1);
    let [k, v] = [2, 3].map(|seed| normal::<f16>(heads * keys * 64, seed));
    let device = Device::cpu();
    let [bq, bk, bv] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
    let [shape_q, shape_k] = [[heads, queries, 64], [heads, keys, 64]];
    let views = || (bq.view(shape_q).unwrap(), bk.view(shape_k).unwrap(), bv.view(shape_k).unwrap());
    for [first, second] in [[1, 1], [heads, 1], [1, queries]] {
        let bias = normal::<f16>(first * second * keys, 4);
        let whole: Vec<f16> = (0..heads * queries * keys)
            .map(|i| {
                let (head, query) = (i / keys / queries % first, i / keys % queries % second);
                bias[(head * second + query) * keys + i % keys]
            })
            .collect();
        let extents = extents([heads, heads, queries, keys], 64);
        let rules = Rules { bias: Some(&whole), ..Rules::scaled(0.125) };
        let [rows, _] = reference([&q, &k, &v], extents, rules);
        let (mut out, mut lse) =
            (device.zeros::<f16>(q.len()).unwrap(), device.zeros::<f32>(heads * queries).unwrap());
        let bias = device.upload(&bias).unwrap();
        let (q, k, v) = views();
        let attention = Attention::new(q, k, v).bias(bias.view([first, second, keys]).unwrap());
        attention.launch_with_lse(&device, out.view_mut(shape_q).unwrap(), &mut lse).unwrap();
        compare(&out.download().unwrap(), &rows).unwrap();
    }
}

/// Queries, keys and values of 64 elements; what comes of one head of them.
fn attended(device: Device, [q, k, v]: [&[f16]; 3], scale: f32) -> dsl_runtime::Result<[Vec<f32>; 2]> {
    let rows = |of: &[f16]| [1, of.len() / 64, 64];
    let [bq, bk, bv] = [q, k, v].map(|values| device.upload(values).unwrap());
    let (mut out, mut lse) = (device.zeros::<f16>(q.len())?, device.zeros::<f32>(q.len() / 64)?);
    let [vq, vk, vv] = [(&bq, q), (&bk, k), (&bv, v)].map(|(buffer, of)| buffer.view(rows(of)).unwrap());
    let attention = Attention::new(vq, vk, vv).scale(scale);
    attention.launch_with_lse(&device, out.view_mut(rows(q))?, &mut lse)?;
    Ok([out.download()?.into_iter().map(f32::from).collect(), lse.download()?])
}

/// The logarithms of sums may be left out, by every tile and where programs share keys.
#[test]
fn results_are_the_same_without_lse() {
    let shape = [3, 37, 64];
    let [q, k, v] = [1, 2, 3].map(|seed| normal::<bf16>(shape.iter().product(), seed));
    for device in devices() {
        let [bq, bk, bv] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
        let [vq, vk, vv] = [&bq, &bk, &bv].map(|buffer| buffer.view(shape).unwrap());
        let attention = Attention::new(vq, vk, vv).causal();
        let [mut with, mut without, mut split] = [0; 3].map(|_| device.zeros::<bf16>(q.len()).unwrap());
        let mut lse = device.zeros::<f32>(3 * 37).unwrap();
        attention.launch_with_lse(&device, with.view_mut(shape).unwrap(), &mut lse).unwrap();
        attention.launch(&device, without.view_mut(shape).unwrap()).unwrap();
        assert_eq!(with.download().unwrap(), without.download().unwrap(), "{device}");
        for splits in [1, 2] {
            let shared = attention.splits(splits);
            let mut workspace = device.zeros::<f32>(shared.workspace_len(&device)).unwrap();
            shared
                .launch_split_with_lse(&device, with.view_mut(shape).unwrap(), &mut lse, &mut workspace)
                .unwrap();
            shared.launch_split(&device, split.view_mut(shape).unwrap(), &mut workspace).unwrap();
            assert_eq!(with.download().unwrap(), split.download().unwrap(), "{splits} splits on {device}");
        }
    }
}

/// A NaN among a query's elements is one in its row and its `lse`, and in no other.
#[test]
fn nan_stays_in_its_row() {
    let mut q = normal::<f16>(3 * 64, 1);
    q[64 + 5] = f16::NAN;
    let [k, v] = [2, 3].map(|seed| normal::<f16>(2 * 64, seed));
    for device in devices() {
        let [out, lse] = attended(device, [&q, &k, &v], 0.125).unwrap();
        for row in 0..3 {
            let nan = row == 1;
            assert!(
                out[row * 64..][..64].iter().all(|x| x.is_nan() == nan),
                "row {row} on {device}: {out:?}"
            );
            assert_eq!(lse[row].is_nan(), nan, "row {row} on {device}: {lse:?}");
        }
    }
}

/// Scores that are all scaled to 0, or next to it, have equal probabilities.
#[test]
fn the_scale_may_be_zero() {
    let q = normal::<f16>(3 * 64, 1);
    let [k, v] = [2, 3].map(|seed| normal::<f16>(5 * 64, seed));
    let [rows, lses] = reference([&q, &k, &v], extents([1, 1, 3, 5], 64), Rules::scaled(0.0));
    for device in devices() {
        for scale in [0.0, -0.0, 1e-40] {
            let [out, lse] = attended(device, [&q, &k, &v], scale).unwrap();
            let out: Vec<f16> = out.into_iter().map(f16::from_f32).collect();
            compare(&out, &rows).unwrap_or_else(|found| panic!("{scale} on {device}: {found}"));
            compare(&lse, &lses).unwrap_or_else(|found| panic!("{scale} on {device}, lse: {found}"));
        }
    }
}

#[test]
fn the_scale_is_not_negative() {
    let values = normal::<f16>(64, 1);
    let message =
        |scale: f32| attended(Device::cpu(), [&values, &values, &values], scale).unwrap_err().to_string();
    assert_eq!(message(-1.0), "attention: scale is -1, expected 0 to 1.7e38");
    assert_eq!(message(f32::NAN), "attention: scale is NaN, expected 0 to 1.7e38");
    assert_eq!(message(f32::INFINITY), "attention: scale is inf, expected 0 to 1.7e38");
}

#[test]
fn wrong_shapes_are_errors() {
    let device = Device::cpu();
    let memory = device.zeros::<f16>(4096).unwrap();
    let slopes = device.zeros::<f32>(3).unwrap();
    let (mut out, mut lse) = (device.zeros::<f16>(4096).unwrap(), device.zeros::<f32>(64).unwrap());
    let view = |shape: [usize; 3]| memory.view(shape).unwrap();
    let mut message = |attention: Attention<f16>, shape: [usize; 3], lses: usize| {
        let out = out.view_mut(shape).unwrap();
        let lse = lse.slice_mut(..lses);
        attention.launch_with_lse(&device, out, lse).unwrap_err().to_string()
    };
    let (q, k) = (view([1, 1, 64]), view([1, 2, 64]));
    let found = message(Attention::new(q, k, q), [1, 1, 64], 1);
    assert_eq!(found, "attention: v has the shape [1, 1, 64], expected [1, 2, 64]");
    let found = message(Attention::new(q.permute([0, 2, 1]), k, k), [1, 64, 1], 64);
    assert_eq!(found, "attention: k has the shape [1, 2, 64], expected [1, 2, 1]");
    let found = message(Attention::new(q, k, k), [1, 2, 64], 1);
    assert_eq!(found, "attention: out has the shape [1, 2, 64], expected [1, 1, 64]");
    let found = message(Attention::new(q, k, k), [1, 1, 64], 2);
    assert_eq!(found, "attention: lse has 2 elements and heads * queries has 1");
    let (q, k) = (view([6, 1, 16]), view([4, 1, 16]));
    let found = message(Attention::new(q, k, k), [6, 1, 16], 6);
    assert_eq!(found, "attention: q has 6 heads and k has 4, which does not divide them");
    let k = view([0, 1, 16]);
    let found = message(Attention::new(q, k, k), [6, 1, 16], 6);
    assert_eq!(found, "attention: q has 6 heads and k has 0, which does not divide them");
    let long = view([1, 1, 257]);
    let found = message(Attention::new(long, long, long), [1, 1, 257], 1);
    assert_eq!(found, "attention: rows have 257 elements, expected 1 to 256");
    let none = view([1, 1, 0]);
    let found = message(Attention::new(none, none, none), [1, 1, 0], 1);
    assert_eq!(found, "attention: rows have 0 elements, expected 1 to 256");
    let q = view([2, 3, 16]);
    let plain = Attention::new(q, q, q);
    let found = message(plain.bias(view([3, 1, 3])), [2, 3, 16], 6);
    assert_eq!(found, "attention: bias has the shape [3, 1, 3], expected [2, 1, 3]");
    let found = message(plain.bias(view([1, 3, 1])), [2, 3, 16], 6);
    assert_eq!(found, "attention: bias has the shape [1, 3, 1], expected [1, 3, 3]");
    let found = message(plain.alibi(&slopes), [2, 3, 16], 6);
    assert_eq!(found, "attention: slopes has 3 elements and q's heads has 2");
    let found = message(plain.softcap(0.0), [2, 3, 16], 6);
    assert_eq!(found, "attention: softcap is 0, expected 1e-30 to 1e30");
    let found = message(plain.softcap(f32::NAN), [2, 3, 16], 6);
    assert_eq!(found, "attention: softcap is NaN, expected 1e-30 to 1e30");
    let found = message(plain.scale(2e30).softcap(1.0), [2, 3, 16], 6);
    assert_eq!(found, "attention: softcap is 1, expected 2e0 to 1e30");
    let found = message(plain.dropout(1.5, 0), [2, 3, 16], 6);
    assert_eq!(found, "attention: 1.5 is not a probability");
}
