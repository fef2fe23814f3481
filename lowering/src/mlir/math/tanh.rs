//! `tanh`.
//!
//! For `f32` below 1 `x + x^3 p(x^2)`, 7 coefficients, error 2^-27.7; above `1 - 2 / (1 + e^2x)`. The quotient is at most
//! 0.24 there, so that its own error counts by less than a quarter: 1.4 ulp on a host. On a GPU `e^2x` is `ex2.approx` of
//! a rounded product (1.8 `eps` and 2 ulp) and the quotient `rcp.approx` (1 ulp) of a rounded sum: 1.8 ulp at 1 and 2.1
//! ulp at 1.04, where the power's mantissa is least, if all of them erred the most they may at once. For `f64` the limit
//! is 0.625, with 11 coefficients, error 2^-56.4, and `e^2x` within 1 ulp: 1.5 ulp. The sign of `x` is put on at the
//! end, so that the function is odd to the bit.

use super::exp::{exp_f64, exp2_normal};
use super::formula::{NearZero, at_most, copysign, fma_by, gpu, gpu_approximation, less, polynomial};
use crate::mlir::{Builder, Val};
use std::f64::consts::LOG2_E;

/// Where the polynomial of `f32` ends.
pub const NEAR_TANH: f64 = 1.0;

/// `(tanh(x) - x) / x^3` in `x^2`, up to 1.
const TANH_F32: NearZero = NearZero {
    limit: NEAR_TANH,
    coefficients: &[
        -0.33333295583724976,
        0.13332346081733704,
        -0.05387984588742256,
        0.0214866753667593,
        -0.007946012541651726,
        0.002301229164004326,
        -0.0003583985671866685,
    ],
};

/// The same up to 0.625.
const TANH_F64: NearZero = NearZero {
    limit: 0.625,
    coefficients: &[
        -0.33333333333332854,
        0.1333333333326193,
        -0.05396825393119192,
        0.021869487574364934,
        -0.008863220980175252,
        0.003591988994940046,
        -0.001454957973148098,
        0.0005863136254056081,
        -0.00022855842132403053,
        7.713790678994347e-05,
        -1.6069473555113093e-05,
    ],
};

pub fn tanh_f32(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let large = if gpu(b) { far_gpu(b, magnitude) } else { far_f32(b, magnitude) };
    joined(b, x, large, &TANH_F32)
}

/// Of magnitudes below the limit: `x * (1 + x^2 p(x^2))`, 1.3 ulp, with the sign of `x` also where that is a zero.
pub fn near_tanh_f32(b: &mut Builder, x: Val) -> Val {
    let one = b.float(x.ty, 1.0);
    let square = b.fmul_strict(x, x);
    let p = polynomial(b, square, TANH_F32.coefficients);
    let factor = b.fma(square, p, one);
    b.fmul_strict(x, factor)
}

pub fn tanh_f64(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let twice = b.fadd_strict(magnitude, magnitude);
    let twice = at_most(b, twice, 40.0);
    let power = exp_f64(b, twice);
    let large = far(b, power);
    joined(b, x, large, &TANH_F64)
}

/// The polynomial below its limit, `large` above it, and the sign.
fn joined(b: &mut Builder, x: Val, large: Val, near_zero: &NearZero) -> Val {
    let magnitude = b.fabs(x);
    let square = b.fmul_strict(magnitude, magnitude);
    let p = polynomial(b, square, near_zero.coefficients);
    let cube = b.fmul_strict(square, magnitude);
    let small = b.fma(cube, p, magnitude);
    let near = less(b, magnitude, near_zero.limit);
    let result = b.select(near, small, large);
    copysign(b, result, x)
}

fn far_gpu(b: &mut Builder, magnitude: Val) -> Val {
    let [one, rate] = [1.0, 2.0 * LOG2_E].map(|value| b.float(magnitude.ty, value));
    let exponent = b.fmul_strict(magnitude, rate);
    let power = gpu_approximation(b, "ex2", exponent);
    let sum = b.fadd_strict(power, one);
    let quotient = gpu_approximation(b, "rcp", sum);
    fma_by(b, quotient, -2.0, one)
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
