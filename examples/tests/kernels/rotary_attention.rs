//! `rotary_attention`: both forms, on the CPU and the GPU there is.

use dsl_runtime::prelude::*;
use fused_kernels::attention::AttentionExtents;
use fused_kernels::float::HalfFloat;
use fused_kernels::form::Form;
use fused_kernels::reference::compare;
use fused_kernels::rotary_attention::{RotaryAttention, Rotation, reference};

use crate::attention::{Order, extents};
use crate::data::{Guarded, devices, normal, shifted};

/// Heads, heads of keys, queries and keys: tiles that are full, and cut by one and by more; one query, and none; groups of heads.
const SEQUENCES: [[usize; 4]; 11] = [
    [2, 2, 128, 128],
    [1, 1, 129, 191],
    [3, 3, 1, 100],
    [1, 1, 1, 1],
    [2, 2, 0, 5],
    [1, 1, 64, 320],
    [2, 2, 127, 257],
    [6, 2, 33, 130],
    [3, 1, 7, 129],
    [6, 2, 1, 70],
    [17, 1, 1, 65],
];

/// Cosines and sines of more positions than there are keys.
fn table<T: Float>(positions: usize, elements: usize) -> Vec<T> {
    let half = elements / 2;
    let angle = |i: usize, j: usize| i as f64 * 100f64.powf(-(j as f64) / half as f64);
    let row = |i: usize| {
        let [cos, sin] = [f64::cos, f64::sin].map(|of| (0..half).map(move |j| T::from_f64(of(angle(i, j)))));
        cos.chain(sin).collect::<Vec<T>>()
    };
    (0..positions).flat_map(row).collect()
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    causal: bool,
    interleaved: bool,
    order: Order,
}

#[track_caller]
fn check<T: HalfFloat>(extents: AttentionExtents, rules: Rules) {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let Rules { causal, interleaved, order } = rules;
    let q = normal::<T>(heads * queries * elements, 1);
    let [k, v] = [2, 3].map(|seed| normal::<T>(key_heads * keys * elements, seed));
    let cos_sin = table::<T>(keys + 3, elements);
    let rotation = Rotation { cos_sin: &cos_sin, interleaved, scale: 0.1, causal };
    let [rows, lses] = reference([&q, &k, &v], extents, rotation);
    let shapes = [[heads, queries, elements], [key_heads, keys, elements], [key_heads, keys, elements]];
    for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
        let memory = [&q, &k, &v].into_iter().zip(shapes);
        let memory: Vec<_> =
            memory.map(|(values, shape)| order.upload(device, values, shape, shift)).collect();
        let [q, k, v] = [0, 1, 2]
            .map(|i| memory[i].slice(shift..).view_strided(shapes[i], order.strides(shapes[i])).unwrap());
        let cos_sin = shifted(device, &cos_sin, shift);
        for form in [Form::Fused, Form::Separate] {
            let mut out = Guarded::<T>::new(device, rows.len(), shift);
            let mut lse = Guarded::<f32>::new(device, lses.len(), shift);
            let attention = RotaryAttention::new(q, k, v, cos_sin.slice(shift..)).scale(0.1);
            let attention = if causal { attention.causal() } else { attention };
            let attention = if interleaved { attention.interleaved() } else { attention };
            let mut result = out.output();
            attention
                .launch_as(&device, result.view_mut(shapes[0]).unwrap(), Some(lse.output()), form)
                .unwrap();
            let what =
                format!("{form:?} of {extents:?}, {rules:?}, {} on {device}, shifted by {shift}", T::DTYPE);
            compare(&out.content(), &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
            compare(&lse.content(), &lses).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
        }
    }
}

#[track_caller]
fn check_all<T: HalfFloat>(causal: bool) {
    let rules = Rules { causal, interleaved: false, order: Order::Heads };
    for (sequences, elements) in SEQUENCES.into_iter().flat_map(|of| [(of, 64), (of, 128)]) {
        check::<T>(extents(sequences, elements), rules);
    }
    for elements in [2, 34, 80, 126] {
        check::<T>(extents([2, 1, 70, 131], elements), rules);
    }
    for order in [Order::Rows, Order::RowsPadded(8), Order::RowsPadded(3)] {
        check::<T>(extents([3, 3, 131, 140], 64), Rules { order, ..rules });
    }
    for elements in [64, 96, 128] {
        check::<T>(extents([2, 1, 66, 130], elements), Rules { interleaved: true, ..rules });
    }
}

#[test]
fn rotated_attention_is_as_exact_as_stated() {
    check_all::<f16>(false);
    check_all::<bf16>(false);
}

#[test]
fn rotated_causal_attention_is_as_exact_as_stated() {
    check_all::<f16>(true);
    check_all::<bf16>(true);
}

/// A tile of queries reads the table beside its keys; more tiles, or heads that share keys, rotate them too often. Heads of one query
/// are rows of a tile.
#[test]
fn rotation_is_fused_where_it_moves_fewer_bytes() {
    let (memory, table) = ([f16::ZERO; 64], [f16::ZERO; 64]);
    let rows = |heads: usize, rows: usize| View::strided(&memory, [heads, rows, 64], [0, 0, 1]).unwrap();
    let form = |heads: usize, queries: usize, key_heads: usize| {
        let k = rows(key_heads, 300);
        RotaryAttention::new(rows(heads, queries), k, k, &table).form(&Device::cpu())
    };
    assert_eq!([form(64, 1, 64), form(512, 1, 64), form(64, 32, 64), form(128, 16, 64)], [Form::Fused; 4]);
    assert_eq!([form(64, 33, 64), form(192, 2, 64), form(128, 17, 64)], [Form::Separate; 3]);
}

#[test]
fn rotated_shapes_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let memory = vec![f16::ONE; 4096];
    let say = |[queries, keys, elements]: [usize; 3], table: usize, scale: f32| {
        let (mut out, mut lse) = (vec![f16::ZERO; 4096], vec![0.0f32; queries]);
        let q = View::new(&memory, [1, queries, elements]).unwrap();
        let k = View::new(&memory, [1, keys, elements]).unwrap();
        let attention = RotaryAttention::new(q, k, k, &memory[..table]).scale(scale);
        let out = ViewMut::new(&mut out, [1, queries, elements]).unwrap();
        attention.launch_with_lse(&device, out, &mut lse).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("rotary_attention: {reason}"));
    assert_eq!(say([2, 3, 8], 24, 1.0), Ok(()));
    assert_eq!(say([2, 3, 8], 16, 1.0), error("cos_sin has 2 positions and there are 3 keys"));
    assert_eq!(say([2, 3, 8], 25, 1.0), error("cos_sin has 25 elements, which are no whole rows of 8"));
    let reason = "there are 4 queries and 3 keys: the first query has no position";
    assert_eq!(say([4, 3, 8], 24, 1.0), error(reason));
    assert_eq!(say([2, 3, 7], 24, 1.0), error("rows have 7 elements, expected an even number up to 128"));
    assert_eq!(
        say([2, 3, 130], 390, 1.0),
        error("rows have 130 elements, expected an even number up to 128")
    );
    assert_eq!(say([2, 3, 8], 24, 0.0), error("scale is 0, expected above 0 to 1.7e38"));
}
