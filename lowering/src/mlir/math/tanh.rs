//! `tanh`.
//!
//! For `f32` below 0.85 `x + x^3 p(x^2)`, 6 coefficients, error 2^-26.9; above `1 - 2 / (1 + e^2x)`. The quotient is
//! at most 0.31 there, so that its own error counts by less than a third: 1.3 ulp on a host, 1.8 ulp on a GPU, where
//! `e^2x` is `ex2.approx` of a rounded product and the quotient `rcp.approx`. The sign of `x` is put on at the end, so
//! that the function is odd to the bit.

use super::exp::exp2_f32_normal;
use super::{Builder, Val, at_most, copysign, gpu, gpu_approximation, less, polynomial};

/// `(tanh(x) - x) / x^3` in `x^2`, up to 0.85.
const TANH_F32: &[f64] = &[
    -0.3333326578140259,
    0.13331478834152222,
    -0.0537964329123497,
    0.02112109772861004,
    -0.007142967078834772,
    0.0014403058448806405,
];

pub fn tanh_f32(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let square = b.fmul_strict(magnitude, magnitude);
    let p = polynomial(b, square, TANH_F32);
    let cube = b.fmul_strict(square, magnitude);
    let small = b.fma(cube, p, magnitude);
    let large = far_f32(b, magnitude);
    let near = less(b, magnitude, 0.85);
    let result = b.select(near, small, large);
    copysign(b, result, x)
}

/// `1 - 2 / (1 + e^2x)`.
fn far_f32(b: &mut Builder, magnitude: Val) -> Val {
    let one = b.float(magnitude.ty, 1.0);
    let rate = b.float(magnitude.ty, 2.0 * std::f64::consts::LOG2_E);
    if gpu(b) {
        let exponent = b.fmul_strict(magnitude, rate);
        let power = gpu_approximation(b, "ex2", exponent);
        let sum = b.fadd_strict(power, one);
        let quotient = gpu_approximation(b, "rcp", sum);
        return super::fma_by(b, quotient, -2.0, one);
    }
    // Beyond 10 the result is 1 already.
    let magnitude = at_most(b, magnitude, 10.0);
    let exponent = b.fmul_strict(magnitude, rate);
    let power = exp2_f32_normal(b, exponent);
    let sum = b.fadd_strict(power, one);
    let two = b.float(sum.ty, 2.0);
    let quotient = b.fdiv(two, sum);
    b.fsub_strict(one, quotient)
}
pub fn tanh_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
