//! `attention_decode`.

use dsl_runtime::prelude::*;
use fused_kernels::attention::{Attention, AttentionExtents};
use fused_kernels::attention_decode::reference;
use fused_kernels::attention_reference::Rules;
use fused_kernels::float::HalfFloat;
use fused_kernels::reference::compare;

use crate::attention::{Order, extents};
use crate::data::{Guarded, devices, normal};

/// On every device, with its own number of splits.
fn check<T: HalfFloat>(extents: AttentionExtents, order: Order, rules: Rules<'_, T>) {
    check_splits(extents, order, rules, None);
}

/// With a workspace of NaNs.
fn check_splits<T: HalfFloat>(
    extents: AttentionExtents,
    order: Order,
    rules: Rules<'_, T>,
    splits: Option<usize>,
) {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let q = normal::<T>(heads * queries * elements, 1);
    let [k, v] = [2, 3].map(|seed| normal::<T>(key_heads * keys * elements, seed));
    let [rows, lses] = reference([&q, &k, &v], extents, rules);
    let [of_q, of_k] = [[heads, queries, elements], [key_heads, keys, elements]];
    for device in devices() {
        let [bq, bk, bv] =
            [(&q, of_q), (&k, of_k), (&v, of_k)].map(|(of, shape)| order.upload(device, of, shape, 0));
        let [q, k, v] = [(&bq, of_q), (&bk, of_k), (&bv, of_k)]
            .map(|(buffer, shape)| buffer.view_strided(shape, order.strides(shape)).unwrap());
        let slopes = rules.slopes.map(|slopes| device.upload(slopes).unwrap());
        let [left, right] = rules.window;
        let mut attention = Attention::new(q, k, v).scale(rules.scale).window(left, right);
        if let Some(softcap) = rules.softcap {
            attention = attention.softcap(softcap);
        }
        if let Some(slopes) = &slopes {
            attention = attention.alibi(slopes);
        }
        if let Some(splits) = splits {
            attention = attention.splits(splits);
        }
        let mut out = Guarded::<T>::new(device, rows.len(), 0);
        let mut lse = Guarded::<f32>::new(device, lses.len(), 0);
        let mut workspace = Guarded::<f32>::new(device, attention.workspace_len(&device), 0);
        let mut memory = out.output();
        let result = memory.view_mut(of_q).unwrap();
        attention.launch_split_with_lse(&device, result, lse.output(), workspace.output()).unwrap();
        let what = format!(
            "{extents:?} of {}, {order:?}, {:?}, {splits:?} parts, on {device}",
            T::DTYPE,
            rules.window
        );
        compare(&out.content(), &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
        compare(&lse.content(), &lses).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
        workspace.content();
    }
}

/// One query for each head and several, heads of their own and shared ones, more rows than a tile has, short and long keys.
const SEQUENCES: [[usize; 4]; 11] = [
    [4, 4, 1, 300],
    [8, 2, 1, 1000],
    [1, 1, 1, 5000],
    [6, 1, 3, 700],
    [8, 2, 4, 515],
    [40, 1, 2, 300],
    [2, 2, 20, 64],
    [2, 1, 1, 1],
    [2, 1, 3, 1],
    [2, 1, 1, 0],
    [0, 0, 1, 7],
];

#[test]
fn split_keys_are_as_exact_as_stated() {
    for sequences in SEQUENCES {
        for order in [Order::Heads, Order::Rows] {
            check(extents(sequences, 64), order, Rules::<bf16>::scaled(0.2));
            check(extents(sequences, 64), order, Rules::<f16>::scaled(0.2).causal());
        }
    }
    for elements in [1, 80, 128, 192, 256] {
        let rules = Rules::scaled(0.1).causal();
        check(extents([4, 2, 2, 600], elements), Order::RowsPadded(8), Rules::<f16> { ..rules });
        check(extents([4, 2, 1, 333], elements), Order::RowsPadded(3), Rules::<bf16>::scaled(0.1));
    }
}

/// Few splits and many, more than there are keys for, and fully masked ones.
#[test]
fn keys_have_any_number_of_splits() {
    for splits in [0, 1, 2, 15, 16, 17, 40, 128, 1000] {
        for sequences in [[4, 1, 1, 5000], [2, 2, 3, 1100], [2, 1, 2, 10], [2, 1, 1, 0]] {
            check_splits(
                extents(sequences, 64),
                Order::Heads,
                Rules::<bf16>::scaled(0.2).causal(),
                Some(splits),
            );
        }
        let rules = Rules::<f16> { window: [Some(700), Some(0)], ..Rules::scaled(0.1) };
        check_splits(extents([4, 2, 2, 9000], 16), Order::Rows, rules, Some(splits));
    }
}

/// Heads of a group whose rows are packed in `q` and not in the results, and the reverse; with one split, which writes the
/// results, and with several.
#[test]
fn results_have_any_layout() {
    let extents = extents([6, 2, 3, 700], 80);
    let [of_q, of_k] = [[6, 3, 80], [2, 700, 80]];
    let q = normal::<bf16>(of_q.iter().product(), 1);
    let [k, v] = [2, 3].map(|seed| normal::<bf16>(of_k.iter().product(), seed));
    let [rows, lses] = reference([&q, &k, &v], extents, Rules::scaled(0.1));
    for device in devices() {
        for [order, other] in [[Order::Heads, Order::Rows], [Order::Rows, Order::Heads], [Order::Rows; 2]] {
            for splits in [1, 3] {
                let queries = order.upload(device, &q, of_q, 0);
                let queries = queries.view_strided(of_q, order.strides(of_q)).unwrap();
                let [k, v] = [&k, &v].map(|elements| device.upload(elements).unwrap());
                let attention = Attention::new(queries, k.view(of_k).unwrap(), v.view(of_k).unwrap());
                let attention = attention.scale(0.1).splits(splits);
                let mut out = Guarded::<bf16>::new(device, rows.len(), 0);
                let mut lse = Guarded::<f32>::new(device, lses.len(), 0);
                let mut workspace = Guarded::<f32>::new(device, attention.workspace_len(&device), 0);
                let mut memory = out.output();
                let result = memory.view_strided_mut(of_q, other.strides(of_q)).unwrap();
                attention.launch_split_with_lse(&device, result, lse.output(), workspace.output()).unwrap();
                let found = out.content();
                let [head, row, _] = other.strides(of_q);
                let starts = (0..6).flat_map(|i| (0..3).map(move |j| i * head + j * row));
                let found: Vec<bf16> = starts.flat_map(|start| found[start..start + 80].to_vec()).collect();
                let what = format!("{order:?} to {other:?}, {splits} parts, on {device}");
                compare(&found, &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
                compare(&lse.content(), &lses).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
                workspace.content();
            }
        }
    }
}

#[test]
fn split_keys_have_windows_caps_and_slopes() {
    let slopes = [0.5, 0.0, 0.0625, -0.25, 0.1, 0.2];
    for window in [[Some(0), Some(0)], [Some(100), Some(0)], [Some(3), Some(2)], [Some(500), None]] {
        for sequences in [[6, 2, 1, 900], [6, 2, 5, 411], [6, 6, 3, 2], [6, 1, 30, 20]] {
            for order in [Order::Heads, Order::Rows] {
                let plain = Rules::<bf16> { window, ..Rules::scaled(0.2) };
                check(extents(sequences, 64), order, plain);
                check(extents(sequences, 64), order, Rules { softcap: Some(2.0), ..plain });
                let all = Rules { softcap: Some(3.0), slopes: Some(&slopes), ..plain };
                check(extents(sequences, 160), order, all);
            }
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let device = Device::cpu();
    let memory = device.zeros::<f16>(64).unwrap();
    let (mut out, mut lse) = (device.zeros::<f16>(64).unwrap(), device.zeros::<f32>(1).unwrap());
    let x = memory.slice(..64).view([1, 1, 64]).unwrap();
    let plain = Attention::new(x, x, x);
    let mut message = |attention: Attention<f16>, len: usize| {
        let mut workspace = device.zeros::<f32>(len).unwrap();
        let out = out.view_mut([1, 1, 64]).unwrap();
        attention.launch_split_with_lse(&device, out, &mut lse, &mut workspace).unwrap_err().to_string()
    };
    let found = message(plain, 3);
    assert_eq!(found, "attention: workspace has 3 elements and what it should be has 66");
    let found = message(plain.dropout(0.5, 1), 66);
    assert_eq!(found, "attention: shared keys have neither bias nor dropout, expected `launch`");
    let found = message(plain.bias(memory.view([1, 1, 1]).unwrap()), 66);
    assert_eq!(found, "attention: shared keys have neither bias nor dropout, expected `launch`");
    let found = message(plain.scale(-1.0), 66);
    assert_eq!(found, "attention: scale is -1, expected 0 to 1.7e38");
    // Two sequences of two heads, whose rows are interleaved.
    let x = memory.view([2, 2, 2, 8]).unwrap();
    let rows = x.permute([0, 2, 1, 3]);
    let mut message = |attention: Attention<f16>| {
        let mut workspace = device.zeros::<f32>(attention.workspace_len(&device)).unwrap();
        let mut lse = device.zeros::<f32>(8).unwrap();
        let out = out.view_mut([2, 2, 2, 8]).unwrap();
        attention
            .launch_split_with_lse(&device, out, &mut lse, &mut workspace)
            .map_err(|error| error.to_string())
    };
    assert_eq!(message(Attention::new(x, x, x).splits(1)), Ok(()));
    let found = message(Attention::new(x, rows, rows).splits(1)).unwrap_err();
    assert_eq!(found, "attention: the sequences of k are not as far apart as its heads times their number");
}
