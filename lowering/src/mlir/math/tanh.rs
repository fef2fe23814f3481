//! `tanh`.
//!
//! For `f32` below 0.85 `x + x^3 p(x^2)`, 6 coefficients, error 2^-26.9; above `1 - 2 / (1 + e^2x)`. The quotient is
//! at most 0.31 there, so that its own error counts by less than a third: 1.3 ulp on a host, 1.8 ulp on a GPU, where
//! `e^2x` is `ex2.approx` of a rounded product and the quotient `rcp.approx`. For `f64` the limit is 0.625, with
//! 11 coefficients, error 2^-56.4, and `e^2x` within 1 ulp: 2 ulp. The sign of `x` is put on at the end, so
//! that the function is odd to the bit.

use super::exp::{exp_f64, exp2_normal};
use super::{Builder, Val, at_most, copysign, gpu, gpu_approximation, less, polynomial};
use std::f64::consts::LOG2_E;

/// `(tanh(x) - x) / x^3` in `x^2`, up to 0.85.
const TANH_F32: &[f64] = &[
    -0.3333326578140259,
    0.13331478834152222,
    -0.0537964329123497,
    0.02112109772861004,
    -0.007142967078834772,
    0.0014403058448806405,
];

/// The same up to 0.625.
const TANH_F64: &[f64] = &[
    -0.33333333333332854,
    0.1333333333326193,
    -0.05396825393119192,
    0.021869487574359407,
    -0.008863220979960592,
    0.00359198899157606,
    -0.0014549579453352003,
    0.0005863134934967941,
    -0.00022855806054556248,
    7.713737766161146e-05,
    -1.606915142136402e-05,
];

pub fn tanh_f32(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let large = if gpu(b) { far_gpu(b, magnitude) } else { far_f32(b, magnitude) };
    joined(b, x, large, (0.85, TANH_F32))
}

pub fn tanh_f64(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let twice = b.fadd_strict(magnitude, magnitude);
    let twice = at_most(b, twice, 40.0);
    let power = exp_f64(b, twice);
    let large = far(b, power);
    joined(b, x, large, (0.625, TANH_F64))
}

/// The polynomial below the limit, `large` above it, and the sign.
fn joined(b: &mut Builder, x: Val, large: Val, (limit, power): (f64, &[f64])) -> Val {
    let magnitude = b.fabs(x);
    let square = b.fmul_strict(magnitude, magnitude);
    let p = polynomial(b, square, power);
    let cube = b.fmul_strict(square, magnitude);
    let small = b.fma(cube, p, magnitude);
    let near = less(b, magnitude, limit);
    let result = b.select(near, small, large);
    copysign(b, result, x)
}

fn far_gpu(b: &mut Builder, magnitude: Val) -> Val {
    let [one, rate] = [1.0, 2.0 * LOG2_E].map(|value| b.float(magnitude.ty, value));
    let exponent = b.fmul_strict(magnitude, rate);
    let power = gpu_approximation(b, "ex2", exponent);
    let sum = b.fadd_strict(power, one);
    let quotient = gpu_approximation(b, "rcp", sum);
    super::fma_by(b, quotient, -2.0, one)
}

fn far_f32(b: &mut Builder, magnitude: Val) -> Val {
    // Beyond 10 the result is 1 already.
    let magnitude = at_most(b, magnitude, 10.0);
    let rate = b.float(magnitude.ty, 2.0 * LOG2_E);
    let exponent = b.fmul_strict(magnitude, rate);
    let power = exp2_normal(b, exponent);
    far(b, power)
}

/// `1 - 2 / (1 + power)`.
fn far(b: &mut Builder, power: Val) -> Val {
    let [one, two] = [1.0, 2.0].map(|value| b.float(power.ty, value));
    let sum = b.fadd_strict(power, one);
    let quotient = b.fdiv(two, sum);
    b.fsub_strict(one, quotient)
}
