//! `recurrence`, `topk_gating` and `embedding`.

use dsl_runtime::prelude::*;
use fused_kernels::embedding::{self, Embedding};
use fused_kernels::float::LibraryFloat;
use fused_kernels::gating::{self, TopkGating, Weights};
use fused_kernels::recurrence::{self, HostSteps, Recurrence};
use fused_kernels::reference::{Expected, compare};

use crate::data::{Guarded, check, devices, normal, shifted};

fn check_recurrence<T: LibraryFloat>() {
    // Channels of the last one are enough for wide programs on a large GPU, those of the one before are not on two cores.
    let shapes = [
        [0, 3, 2],
        [1, 0, 3],
        [1, 1, 1],
        [2, 31, 7],
        [2, 65, 64],
        [1, 200, 130],
        [1, 150, 30],
        [3, 70, 4360],
    ];
    for [sequences, steps, channels] in shapes {
        let n = sequences * steps * channels;
        // Decays between 0 and 1, and some that flip the sign.
        let a: Vec<T> = normal::<f64>(n, 1).iter().map(|v| T::from_f64((v * 0.7).tanh())).collect();
        let (b, gate) = (normal::<T>(n, 2), normal::<T>(n, 3));
        for first in [vec![0.0f32; sequences * channels], normal::<f32>(sequences * channels, 4)] {
            let [expected, states] =
                recurrence::reference(HostSteps { a: &a, b: &b, gate: &gate, first: &first }, channels);
            let what = format!("{sequences} sequences of {steps} steps of {channels} channels");
            check(&what, &[&a, &b, &gate], &[expected], |on, inputs, outs| {
                let mut last = Guarded::<f32>::new(*on, first.len(), 1);
                let begin = on.upload(&first)?;
                let op = Recurrence::new(inputs[0], inputs[1], inputs[2], channels);
                let op = if first.iter().any(|state| *state != 0.0) { op.from(&begin) } else { op };
                op.launch(on, &mut outs[0], last.output())?;
                compare(&last.content(), &states).unwrap_or_else(|found| panic!("{what}, states: {found}"));
                Ok(())
            });
        }
    }
}

#[test]
fn recurrences_are_as_exact_as_stated() {
    check_recurrence::<f32>();
    check_recurrence::<f16>();
    check_recurrence::<bf16>();
}

#[test]
fn a_nan_stays_in_its_channel_from_its_step_on() {
    let (steps, channels) = (100, 3);
    let (mut b, ones) = (vec![1.0f32; steps * channels], vec![1.0f32; steps * channels]);
    b[70 * channels + 1] = f32::NAN;
    for device in devices() {
        let [a, b, gate] = [&ones, &b, &ones].map(|values| device.upload(values).unwrap());
        let (mut out, mut last) = (device.zeros::<f32>(300).unwrap(), device.zeros::<f32>(3).unwrap());
        Recurrence::new(&a, &b, &gate, channels).launch(&device, &mut out, &mut last).unwrap();
        let is_nan = |i: usize| i % channels == 1 && i / channels >= 70;
        let out = out.download().unwrap();
        assert!(out.iter().enumerate().all(|(i, y)| y.is_nan() == is_nan(i)), "{device}");
        let last = last.download().unwrap();
        assert!(last[1].is_nan() && last[0] == 100.0 && last[2] == 100.0, "{device}: {last:?}");
    }
}

fn check_gating<T: LibraryFloat>(top_k: usize) {
    for (tokens, experts) in
        [(0, 16), (1, top_k), (5, 13), (100, 16), (33, 60), (40, 64), (9, 200), (17, 256)]
    {
        if experts < top_k {
            continue;
        }
        let mut logits = normal::<T>(tokens * experts, 1);
        if tokens > 4 {
            logits[..experts].fill(T::from_f64(f64::NEG_INFINITY));
            logits[experts + 2] = T::from_f64(f64::NAN);
            logits[2 * experts..3 * experts].fill(T::from_f64(1.5)); // All alike.
            logits[3 * experts..4 * experts - 1].fill(T::from_f64(f64::NEG_INFINITY));
        }
        for weights in [Weights::Renormalized, Weights::Softmax] {
            let (mut order, mut exact) = (vec![], vec![] as Vec<Expected>);
            for row in logits.chunks(experts) {
                let (of_row, shares) = gating::reference(row, top_k, weights);
                order.extend(of_row);
                exact.extend(shares);
            }
            for device in devices() {
                let x = shifted(device, &logits, 1);
                let mut shares = Guarded::<f32>::new(device, tokens * top_k, 1);
                let mut chosen = device.zeros::<i32>(tokens * top_k).unwrap();
                let op = TopkGating::new(x.slice(1..), experts, top_k).weights(weights);
                op.launch(&device, shares.output(), &mut chosen).unwrap();
                let what = format!("{top_k} of {experts} for {tokens} tokens of {} on {device}", T::DTYPE);
                assert_eq!(chosen.download().unwrap(), order, "{what}");
                compare(&shares.content(), &exact).unwrap_or_else(|found| panic!("{what}: {found}"));
            }
        }
    }
}

#[test]
fn gating_is_as_exact_as_stated() {
    check_gating::<f32>(2);
    check_gating::<f32>(8);
    check_gating::<f16>(1);
    check_gating::<bf16>(2);
    check_gating::<bf16>(4);
    check_gating::<bf16>(8);
}

fn check_embedding<T: LibraryFloat>() {
    for (rows, dim) in [(1, 1), (10, 7), (50, 2048), (9, 5001)] {
        let table = normal::<T>(rows * dim, 1);
        let ids: Vec<i64> = vec![0, rows as i64 - 1, rows as i64, -1, 1 << 40, 0, (rows / 2) as i64];
        let expected = embedding::reference(&table, &ids, dim);
        for device in devices() {
            for shift in [0, 1] {
                let (bt, bi) = (shifted(device, &table, shift), device.upload(&ids).unwrap());
                let mut out = Guarded::<T>::new(device, ids.len() * dim, shift);
                Embedding::new(bt.slice(shift..), &bi, dim).launch(&device, out.output()).unwrap();
                assert_eq!(out.content(), expected, "{rows} x {dim} of {} on {device}", T::DTYPE);
            }
        }
    }
}

#[test]
fn embeddings_are_rows_of_the_table_or_zeros() {
    check_embedding::<f32>();
    check_embedding::<f16>();
    check_embedding::<bf16>();
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let say = |result: dsl_runtime::Result<()>| result.map_err(|error| error.to_string());
    let (x, mut out) = ([1.0f32; 12], [0.0f32; 12]);
    let mut last = [0.0f32; 4];
    let op = Recurrence::new(&x, &x, &x, 4);
    assert_eq!(say(op.launch(&device, &mut out, &mut last)), Ok(()));
    assert_eq!(
        say(op.launch(&device, &mut out, &mut last[..3])),
        Err("recurrence: last has 3 elements, which are no whole rows of 4".into())
    );
    assert_eq!(
        say(op.launch(&device, &mut out[..8], &mut last)),
        Err("recurrence: a has 12 elements and out has 8".into())
    );
    let mut experts = [0i32; 4];
    let gating = |n: usize| TopkGating::new(&x, n, 2);
    assert_eq!(say(gating(6).launch(&device, &mut last, &mut experts)), Ok(()));
    assert_eq!(
        say(gating(1).launch(&device, &mut last, &mut experts)),
        Err("topk_gating: there are 1 experts, from 2 to 256 will do".into())
    );
    assert_eq!(
        say(gating(4).launch(&device, &mut last, &mut experts)),
        Err("topk_gating: all choices has 6 elements and weights has 4".into())
    );
    assert_eq!(
        say(TopkGating::new(&x, 6, 3).launch(&device, &mut last, &mut experts)),
        Err("topk_gating: top_k is 3, expected 1, 2, 4 or 8".into())
    );
    let ids = [0i64, 1];
    assert_eq!(
        say(Embedding::new(&x, &ids, 5).launch(&device, &mut out)),
        Err("embedding: the table has 12 elements, which are no whole rows of 5".into())
    );
    assert_eq!(
        say(Embedding::new(&x, &ids, 4).launch(&device, &mut out)),
        Err("embedding: out has 12 elements and all rows has 8".into())
    );
}
