//! The error function.
//!
//! For `f32` below 0.85 `x + x p(x^2)`, 6 coefficients, error 2^-27.1; above `1 - 2^(t q(t))` with `t = |x|`, where `t
//! q(t)` stands for `log2 erfc(t)`, 7 coefficients fitted so that the error of the result is 2^-29.7. The power is at
//! most 0.23 there, and falls, so that its error counts by less than a quarter: 1.5 ulp with a power within 2 ulp. The
//! last coefficient is negative and the polynomial falls for all `t`, so that nothing has to be clamped: the result is 1
//! from 3.92 to infinity. The sign of `x` is carried by both sides, so that the function is odd to the bit.
//!
//! For `f64` the limit is 1, with 12 coefficients, error 2^-56.0, and 17 up to 5.95, error 2^-55.2; beyond 6 the result is
//! 1. 2 ulp.
//!
//! A GPU takes 19 instructions, one of them `ex2.approx.ftz`.

use super::exp::exp2_normal;
use super::formula::{NearZero, at_least, at_most, copysign, gpu, gpu_approximation, less, polynomial};
use crate::mlir::{Builder, Val};

/// `erf(x) / x - 1` in `x^2`, up to 0.85.
const NEAR_F32: NearZero = NearZero {
    limit: 0.85,
    coefficients: &[
        0.12837916612625122,
        -0.37612590193748474,
        0.11282864958047867,
        -0.02680729143321514,
        0.005057716742157936,
        -0.0006348623428493738,
    ],
};

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

/// The same for `f64`, up to 1.
const NEAR_F64: NearZero = NearZero {
    limit: 1.0,
    coefficients: &[
        0.12837916709551256,
        -0.37612638903183343,
        0.11283791670936942,
        -0.02686617064195619,
        0.0052239775966971365,
        -0.0008548325482404171,
        0.00012055280396162395,
        -1.4924463264230239e-05,
        1.6444115712392839e-06,
        -1.618368185731791e-07,
        1.3615180238018676e-08,
        -7.604645141521867e-10,
    ],
};

/// The same for `f64`, from 1 to 5.95.
const FAR_F64: &[f64] = &[
    -1.62790658068386,
    -0.9184523292729839,
    -0.14825191693342543,
    0.02755101889214063,
    0.00038105303903109277,
    -0.0025441084957802313,
    0.0009344255153763588,
    -8.272363755879727e-05,
    -8.510382174780731e-05,
    5.486985827511852e-05,
    -1.925974807360356e-05,
    4.6911473752145715e-06,
    -8.293519117666003e-07,
    1.0541206143766828e-07,
    -9.18001820980675e-09,
    4.9173100462428e-10,
    -1.2230492898179357e-11,
];

pub fn erf_f32(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let exponent = exponent(b, magnitude, FAR_F32);
    let power = if gpu(b) {
        gpu_approximation(b, "ex2", exponent)
    } else {
        let exponent = at_least(b, exponent, -126.0);
        exp2_normal(b, exponent)
    };
    joined(b, x, power, &NEAR_F32)
}

pub fn erf_f64(b: &mut Builder, x: Val) -> Val {
    let magnitude = b.fabs(x);
    let magnitude = at_most(b, magnitude, 6.0);
    let exponent = exponent(b, magnitude, FAR_F64);
    let power = exp2_normal(b, exponent);
    joined(b, x, power, &NEAR_F64)
}

/// `log2 erfc(t)`.
fn exponent(b: &mut Builder, magnitude: Val, power: &[f64]) -> Val {
    let q = polynomial(b, magnitude, power);
    b.fmul_strict(magnitude, q)
}

/// The polynomial below its limit, one less `erfc` above it.
fn joined(b: &mut Builder, x: Val, erfc: Val, near_zero: &NearZero) -> Val {
    let square = b.fmul_strict(x, x);
    let p = polynomial(b, square, near_zero.coefficients);
    let small = b.fma(x, p, x);
    let one = b.float(x.ty, 1.0);
    let large = b.fsub_strict(one, erfc);
    let large = copysign(b, large, x);
    let magnitude = b.fabs(x);
    let near = less(b, magnitude, near_zero.limit);
    b.select(near, small, large)
}
