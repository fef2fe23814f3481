//! `bias_gelu_dropout`, forward and backward.

use dsl_runtime::prelude::*;
use fused_kernels::activation::Activation;
use fused_kernels::dropout::{
    self, BiasGeluDropout, Dropout, DropoutGradients, backward_reference, rand, reference, scratch_len,
};
use fused_kernels::float::LibraryFloat;

use crate::data::{check, devices, normal};

const SHAPES: [(usize, usize); 8] =
    [(0, 3), (1, 1), (100, 7), (33, 128), (5, 129), (3, 1025), (2, 4096), (3, 9001)];
const DROPOUT: Dropout = Dropout { p: 0.3, seed: 0x1234_5678_9abc_def0 };

fn check_both<T: LibraryFloat>(activation: Activation) {
    for (rows, cols) in SHAPES {
        let what = format!("{activation} of {rows} x {cols}");
        let (x, residual, dy) =
            (normal::<T>(rows * cols, 1), normal::<T>(rows * cols, 2), normal::<T>(rows * cols, 3));
        let bias = normal::<T>(cols, 4);
        for added in [None, Some(&residual[..])] {
            let expected = [reference::<T>([&x, &bias], added, activation, DROPOUT)];
            check(&what, &[&x, &bias, &residual], &expected, |on, inputs, outs| {
                let op = BiasGeluDropout::new(inputs[0], inputs[1])
                    .activation(activation)
                    .dropout(DROPOUT.p, DROPOUT.seed);
                let op = if added.is_some() { op.residual(inputs[2]) } else { op };
                op.launch(on, &mut outs[0])
            });
        }
        let expected = backward_reference::<T>([&dy, &x, &bias], activation, DROPOUT);
        check(&what, &[&x, &bias, &dy], &expected, |on, inputs, outs| {
            let [dx, dbias] = outs else { panic!("two gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; scratch_len(rows, cols)])?;
            let gradients =
                DropoutGradients { dx: dx.into(), dbias: dbias.into(), scratch: (&mut scratch).into() };
            let op = BiasGeluDropout::new(inputs[0], inputs[1])
                .activation(activation)
                .dropout(DROPOUT.p, DROPOUT.seed);
            op.backward(on, inputs[2], gradients)
        });
    }
}

#[test]
fn f32_is_as_exact_as_stated() {
    check_both::<f32>(Activation::Gelu);
    check_both::<f32>(Activation::GeluTanh);
}

#[test]
fn f16_is_as_exact_as_stated() {
    check_both::<f16>(Activation::Gelu);
    check_both::<f16>(Activation::GeluTanh);
}

#[test]
fn bf16_is_as_exact_as_stated() {
    check_both::<bf16>(Activation::Gelu);
    check_both::<bf16>(Activation::GeluTanh);
}

/// Random123's known answer for a counter and a key of zeros.
#[test]
fn the_numbers_of_the_reference_are_those_of_philox() {
    let words = [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    for (i, word) in words.into_iter().enumerate() {
        assert_eq!(rand(0, i as u64), (word >> 9) as f32 / 2f32.powi(23));
    }
}

#[test]
fn the_share_that_is_dropped_is_the_one_asked_for() {
    let (rows, cols) = (100, 1000);
    let (x, bias) = (vec![1.0f32; rows * cols], vec![0.0f32; cols]);
    for device in devices() {
        let (bx, bb) = (device.upload(&x).unwrap(), device.upload(&bias).unwrap());
        let zeros = |p: f32, seed: u64| {
            let mut out = device.zeros::<f32>(rows * cols).unwrap();
            BiasGeluDropout::new(&bx, &bb).dropout(p, seed).launch(&device, &mut out).unwrap();
            let out = out.download().unwrap();
            assert!(out.iter().all(|y| y.is_finite()), "{device}");
            out.iter().map(|y| *y == 0.0).collect::<Vec<bool>>()
        };
        let count = |zeros: &[bool]| zeros.iter().filter(|zero| **zero).count();
        assert_eq!((count(&zeros(0.0, 1)), count(&zeros(1.0, 1))), (0, rows * cols), "{device}");
        // Five deviations of a binomial distribution.
        let (once, other) = (zeros(0.25, u64::MAX), zeros(0.25, 1 << 40));
        assert!((24_300..25_700).contains(&count(&once)), "{device}: {}", count(&once));
        assert_eq!(once, zeros(0.25, u64::MAX), "{device}: the same seed drops the same");
        let both = once.iter().zip(&other).filter(|(a, b)| **a && **b).count();
        assert!((5_900..6_600).contains(&both), "{device}: another seed drops others, {both} alike");
    }
}

/// Probabilities at the ends, and beside a number that `tl::rand` gives.
pub const ENDS: [f32; 8] = [
    0.0,
    // Less than the distance of two random numbers: 0 is dropped.
    1.0 / (1 << 24) as f32,
    1.0 / (1 << 23) as f32,
    0.5,
    // The numbers below 1: all but the largest random number are dropped, then that one too.
    1.0 - 2.0 / (1 << 23) as f32,
    1.0 - 1.0 / (1 << 23) as f32,
    1.0 - 1.0 / (1 << 24) as f32,
    1.0,
];

/// Inputs for a probability: where it drops all of them, some are infinite or NaN.
pub fn inputs_at(p: f32, len: usize, seed: u64) -> Vec<f32> {
    let mut values = normal::<f32>(len, seed);
    if p > 0.9 {
        for (i, special) in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN].into_iter().enumerate() {
            values[i * 7 + 3] = special;
        }
    }
    values
}

#[test]
fn every_probability_drops_what_is_documented() {
    let (rows, cols, seed) = (40, 1025, 99);
    let (residual, bias) = (normal::<f32>(rows * cols, 1), normal::<f32>(cols, 2));
    for p in ENDS {
        let [x, dy] = [3, 4].map(|seed| inputs_at(p, rows * cols, seed));
        let (what, dropout) = (format!("p = {p:e}"), Dropout { p, seed });
        let expected = [reference::<f32>([&x, &bias], Some(&residual), Activation::Gelu, dropout)];
        check(&what, &[&x, &bias, &residual], &expected, |on, inputs, outs| {
            let op = BiasGeluDropout::new(inputs[0], inputs[1]).dropout(p, seed);
            op.residual(inputs[2]).launch(on, &mut outs[0])
        });
        let expected = backward_reference::<f32>([&dy, &x, &bias], Activation::Gelu, dropout);
        check(&what, &[&x, &bias, &dy], &expected, |on, inputs, outs| {
            let [dx, dbias] = outs else { panic!("two gradients") };
            let mut scratch = on.upload(&vec![f32::NAN; scratch_len(rows, cols)])?;
            let gradients =
                DropoutGradients { dx: dx.into(), dbias: dbias.into(), scratch: (&mut scratch).into() };
            let op = BiasGeluDropout::new(inputs[0], inputs[1]).dropout(p, seed);
            op.backward(on, inputs[2], gradients)
        });
    }
}

/// The reference itself: a gradient is what the function's values differ by.
#[test]
fn the_gradients_are_the_slopes() {
    fn check_slopes(activation: Activation) {
        let (rows, cols) = (4, 10);
        let (x, dy, bias) =
            (normal::<f64>(rows * cols, 1), normal::<f64>(rows * cols, 2), normal::<f64>(cols, 3));
        let value = |x: &[f64], bias: &[f64]| -> f64 {
            let out = reference::<f64>([x, bias], None, activation, DROPOUT);
            out.iter().zip(&dy).map(|(y, dy)| y.value * dy).sum()
        };
        let [dx, dbias] = backward_reference::<f64>([&dy, &x, &bias], activation, DROPOUT);
        let moved = |values: &[f64], i: usize, by: f64| {
            let mut values = values.to_vec();
            values[i] += by;
            values
        };
        for (i, dx) in dx.iter().enumerate() {
            let slope = (value(&moved(&x, i, 1e-6), &bias) - value(&moved(&x, i, -1e-6), &bias)) / 2e-6;
            assert!((slope - dx.value).abs() < 1e-7, "{i}: {slope} and {dx:?}");
        }
        for (i, dbias) in dbias.iter().enumerate() {
            let slope = (value(&x, &moved(&bias, i, 1e-6)) - value(&x, &moved(&bias, i, -1e-6))) / 2e-6;
            assert!((slope - dbias.value).abs() < 1e-7, "{i}: {slope} and {dbias:?}");
        }
    }
    check_slopes(Activation::Gelu);
    check_slopes(Activation::GeluTanh);
}

#[test]
fn what_does_not_fit_is_an_error_in_words() {
    let device = Device::cpu();
    let (x, bias, mut out) = ([1.0f32; 8], [1.0f32; 4], [0.0f32; 8]);
    let op = BiasGeluDropout::new(&x, &bias);
    let mut say = |op: BiasGeluDropout<f32>| op.launch(&device, &mut out).map_err(|error| error.to_string());
    assert_eq!(say(op), Ok(()));
    let error = |reason: &str| Err(format!("bias_gelu_dropout: {reason}"));
    assert_eq!(say(op.dropout(1.5, 0)), error("1.5 is not a probability"));
    assert_eq!(say(op.dropout(f32::NAN, 0)), error("NaN is not a probability"));
    assert_eq!(say(op.residual(&bias)), error("x has 8 elements and residual has 4"));
    let found = say(op.activation(Activation::Relu));
    assert_eq!(found, error("there is no kernel with the activation ReLU, expected one of GELU, GELU-tanh"));
    assert_eq!(dropout::traffic::<f32>(2, 4), 80);
}
