//! `attention_backward`.

use dsl_runtime::prelude::*;
use fused_kernels::attention::{Attention, AttentionExtents};
use fused_kernels::attention_backward::{AttentionBackward, reference};
use fused_kernels::attention_reference::Rules;
use fused_kernels::dropout::Dropout;
use fused_kernels::float::HalfFloat;
use fused_kernels::reference::compare;

use crate::attention::{Order, extents};
use crate::data::{Guarded, devices, normal};

/// Heads, heads of keys, queries and keys: whole blocks, blocks that are cut, fewer keys than queries and none, and groups of heads.
const SEQUENCES: [[usize; 4]; 8] = [
    [2, 2, 128, 128],
    [1, 1, 129, 191],
    [3, 3, 1, 100],
    [2, 2, 70, 1],
    [1, 1, 200, 65],
    [1, 1, 5, 0],
    [6, 2, 33, 130],
    [3, 1, 7, 129],
];

/// On every device: the forward pass, and the gradients from what it leaves.
fn check<T: HalfFloat>(extents: AttentionExtents, order: Order, rules: Rules<'_, T>) {
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let [of_queries, of_keys] = [[heads, queries, elements], [key_heads, keys, elements]];
    let shapes = [of_queries, of_keys, of_keys, of_queries];
    let mut seed = 0;
    let host = shapes.map(|shape| {
        seed += 1;
        normal::<T>(shape.iter().product(), seed)
    });
    let expected = reference([&host[0], &host[1], &host[2], &host[3]], extents, rules);
    for device in devices() {
        let inputs = [0, 1, 2, 3].map(|i| order.upload(device, &host[i], shapes[i], 0));
        let view = |i: usize| inputs[i].view_strided(shapes[i], order.strides(shapes[i])).unwrap();
        let [left, right] = rules.window;
        let slopes = rules.slopes.map(|slopes| device.upload(slopes).unwrap());
        let bias = rules.bias.map(|bias| device.upload(bias).unwrap());
        let mut attention = Attention::new(view(0), view(1), view(2)).scale(rules.scale).window(left, right);
        if let Some(softcap) = rules.softcap {
            attention = attention.softcap(softcap);
        }
        if let Some(slopes) = &slopes {
            attention = attention.alibi(slopes);
        }
        if let Some(bias) = &bias {
            attention = attention.bias(bias.view([heads, queries, keys]).unwrap());
        }
        if let Some(Dropout { p, seed }) = rules.dropout {
            attention = attention.dropout(p, seed);
        }
        let mut out = device.zeros::<T>(heads * queries * elements).unwrap();
        let mut lse = device.zeros::<f32>(heads * queries).unwrap();
        attention.launch_with_lse(&device, out.view_mut(of_queries).unwrap(), &mut lse).unwrap();
        let mut found =
            [of_queries, of_keys, of_keys].map(|shape| Guarded::<T>::new(device, shape.iter().product(), 0));
        let [dq, dk, dv] = &mut found;
        let (mut dq, mut dk, mut dv) = (dq.output(), dk.output(), dv.output());
        AttentionBackward::new(attention, out.view(of_queries).unwrap(), &lse)
            .launch(
                &device,
                view(3),
                dq.view_mut(of_queries).unwrap(),
                dk.view_mut(of_keys).unwrap(),
                dv.view_mut(of_keys).unwrap(),
            )
            .unwrap();
        for ((name, found), expected) in ["dq", "dk", "dv"].into_iter().zip(&found).zip(&expected) {
            compare(&found.content(), expected).unwrap_or_else(|error| {
                panic!("{name} of {extents:?} of {}, {order:?}, on {device}: {error}", T::DTYPE)
            });
        }
    }
}

fn check_all<T: HalfFloat>(elements: usize, rules: Rules<'_, T>) {
    for sequences in SEQUENCES {
        check::<T>(extents(sequences, elements), Order::Heads, rules);
    }
}

#[test]
fn gradients_are_as_exact_as_stated() {
    check_all::<bf16>(64, Rules::scaled(0.125));
    check_all::<f16>(128, Rules::scaled(0.1));
    check_all::<bf16>(40, Rules::scaled(0.0));
    check::<bf16>(extents([1, 1, 70, 90], 256), Order::Heads, Rules::scaled(0.05));
}

#[test]
fn causal_gradients_are_as_exact_as_stated() {
    check_all::<f16>(64, Rules::scaled(0.125).causal());
    check_all::<bf16>(128, Rules::scaled(0.1).causal());
}

#[test]
fn gradients_of_windows_are_as_exact_as_stated() {
    for window in [[Some(3), Some(2)], [Some(40), Some(0)], [None, Some(70)], [Some(0), None]] {
        check_all::<bf16>(64, Rules { window, ..Rules::scaled(0.125) });
    }
}

#[test]
fn gradients_behind_a_cap_slopes_a_bias_and_dropout_are_as_exact_as_stated() {
    for sequences in [[2, 2, 70, 100], [4, 1, 33, 130], [1, 1, 129, 65]] {
        let [heads, _, queries, keys] = sequences;
        let slopes: Vec<f32> = (0..heads).map(|head| 0.25f32.powi(head as i32 + 1)).collect();
        let bias = normal::<bf16>(heads * queries * keys, 9);
        let extents = |elements| extents(sequences, elements);
        let scaled = Rules::scaled(0.1);
        check::<bf16>(extents(64), Order::Heads, Rules { softcap: Some(1.5), ..scaled.causal() });
        check::<bf16>(extents(128), Order::Heads, Rules { slopes: Some(&slopes), ..scaled });
        check::<bf16>(extents(40), Order::Heads, Rules { bias: Some(&bias), ..scaled });
        let dropout = Some(Dropout { p: 0.3, seed: 7 });
        check::<bf16>(extents(64), Order::Heads, Rules { dropout, ..scaled.causal() });
        let softcap = Some(2.0);
        let all = Rules { dropout, softcap, slopes: Some(&slopes), bias: Some(&bias), ..scaled.causal() };
        check::<bf16>(extents(160), Order::Heads, all);
    }
}

#[test]
fn rows_of_packed_heads_have_gradients() {
    for order in [Order::Rows, Order::RowsPadded(3)] {
        check::<bf16>(extents([4, 2, 100, 150], 64), order, Rules::scaled(0.125).causal());
    }
}

/// A step along the gradient changes the sum of the weighted result by as much as the gradient says.
#[test]
fn gradients_are_those_of_finite_differences() {
    let extents = extents([2, 1, 9, 12], 8);
    let AttentionExtents { heads, key_heads, queries, keys, elements } = extents;
    let lengths =
        [heads * queries, key_heads * keys, key_heads * keys, heads * queries].map(|rows| rows * elements);
    let mut seed = 10;
    let inputs = lengths.map(|length| {
        seed += 1;
        normal::<f32>(length, seed)
    });
    let bias = normal::<f32>(heads * queries * keys, 20);
    let rules = Rules {
        softcap: Some(1.5),
        slopes: Some(&[0.5, 0.1]),
        bias: Some(&bias),
        dropout: Some(Dropout { p: 0.2, seed: 3 }),
        ..Rules::scaled(0.3).causal()
    };
    let weighted = |inputs: &[Vec<f32>; 4]| -> f64 {
        let [rows, _] = fused_kernels::attention_reference::reference(
            [&inputs[0], &inputs[1], &inputs[2]],
            extents,
            rules,
        );
        rows.iter().zip(&inputs[3]).map(|(row, weight)| row.value * f64::from(*weight)).sum()
    };
    let gradients = reference([&inputs[0], &inputs[1], &inputs[2], &inputs[3]], extents, rules);
    for (which, gradient) in gradients.iter().enumerate() {
        for i in (0..gradient.len()).step_by(7) {
            let moved = [-1.0f32, 1.0].map(|sign| {
                let mut moved = inputs.clone();
                moved[which][i] += sign * 0.0078125;
                (f64::from(moved[which][i]), weighted(&moved))
            });
            let slope = (moved[1].1 - moved[0].1) / (moved[1].0 - moved[0].0);
            let wanted = gradient[i].value;
            assert!(
                (slope - wanted).abs() < 1e-3 * (1.0 + wanted.abs()),
                "{which} {i}: {slope}, not {wanted}"
            );
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let x = [bf16::ONE; 48];
    let mut gradients = [[bf16::ZERO; 48]; 3];
    let of = |heads: usize| Slice::from(&x[..24]).view([heads, 24 / heads / 4, 4]).unwrap();
    let attention = Attention::new(of(2), of(2), of(2));
    let lse = [0.0f32; 6];
    let mut say = |attention: Attention<'_, bf16>, heads: usize| {
        let [dq, dk, dv] = &mut gradients;
        let [dq, dk, dv] = [dq, dk, dv].map(|of| SliceMut::from(&mut of[..24]));
        let shape = [heads, 24 / heads / 4, 4];
        AttentionBackward::new(attention, of(2), &lse)
            .launch(
                &device,
                of(2),
                ViewMut::new(dq, [2, 3, 4]).unwrap(),
                ViewMut::new(dk, shape).unwrap(),
                ViewMut::new(dv, [2, 3, 4]).unwrap(),
            )
            .map_err(|error| error.to_string())
    };
    assert_eq!(say(attention, 2), Ok(()));
    let found = say(attention, 3).unwrap_err();
    assert_eq!(found, "attention_backward: dk has the shape [1, 3, 2, 4], expected [1, 2, 3, 4]");
    let found = say(attention.softcap(-3.0), 2).unwrap_err();
    assert_eq!(found, "attention: softcap is -3, expected 1e-30 to 1e30");
}
