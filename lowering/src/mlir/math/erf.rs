//! The error function.
//!
//! For `f32` below 0.85 `x + x p(x^2)`, 6 coefficients, error 2^-27.1; above `1 - 2^(t q(t))` with `t = |x|`, where `t
//! q(t)` stands for `log2 erfc(t)`, 7 coefficients fitted so that the error of the result is 2^-29.7. The power is at
//! most 0.23 there, and falls, so that its error counts by less than a quarter: 1.5 ulp with a power within 2 ulp. The
//! last coefficient is negative and the polynomial falls for all `t`, so that nothing has to be clamped: the result is 1
//! from 3.92 to infinity. The sign of `x` is carried by both sides, so that the function is odd to the bit.
//!
//! A GPU takes 19 instructions, one of them `ex2.approx.ftz`.

use super::exp::exp2_f32_normal;
use super::{Builder, Val, at_least, copysign, gpu, gpu_approximation, less, polynomial};

/// `erf(x) / x - 1` in `x^2`, up to 0.85.
const NEAR_F32: &[f64] = &[
    0.12837916612625122,
    -0.37612590193748474,
    0.11282864958047867,
    -0.02680729143321514,
    0.005057717673480511,
    -0.0006348636816255748,
];

/// `log2(erfc(t)) / t` from 0.85 to 3.95.
const FAR_F32: &[f64] = &[
    -1.6282448768615723,
    -0.9165390729904175,
    -0.15291562676429749,
    0.033974017947912216,
    -0.0051076989620924,
    0.0004290550423320383,
    -1.250164132216014e-05,
];

pub fn erf_f32(b: &mut Builder, x: Val) -> Val {
    let square = b.fmul_strict(x, x);
    let p = polynomial(b, square, NEAR_F32);
    let small = b.fma(x, p, x);
    let magnitude = b.fabs(x);
    let q = polynomial(b, magnitude, FAR_F32);
    let exponent = b.fmul_strict(magnitude, q);
    let power = if gpu(b) {
        gpu_approximation(b, "ex2", exponent)
    } else {
        let exponent = at_least(b, exponent, -126.0);
        exp2_f32_normal(b, exponent)
    };
    let one = b.float(x.ty, 1.0);
    let large = b.fsub_strict(one, power);
    let large = copysign(b, large, x);
    let near = less(b, magnitude, 0.85);
    b.select(near, small, large)
}
pub fn erf_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
