//! `log` and `log2`.
//!
//! `x = 2^e * m` with `m` in `[1/sqrt 2, sqrt 2)`, by integer arithmetic on the bits; a subnormal is multiplied by a power of two
//! before. For `f32`, with `f = m - 1`, which is exact:
//!
//! `log x = e ln 2 + (f + f^2 q(f))`, 9 coefficients, error 2^-27.0; the rounded `ln 2` is within 2^-28. 1.2 ulp.
//! `log2 x = e + (f + f p(f))`, 10 coefficients, error 2^-26.4. 1.5 ulp.
//!
//! Near 1, where `e` is 0, only the last addition to `f` rounds in full. GPUs use the same polynomials: their
//! `lg2.approx` has an absolute error near 1, and here answers for 0, negative numbers, infinity and NaN alone.

use super::{Builder, Val, fma_by, gpu, gpu_approximation, polynomial};
use crate::mlir::{Elem, FloatPredicate, IntPredicate};

/// `(log(1 + f) - f) / f^2`.
const LOG_F32: &[f64] = &[
    -0.49999988079071045,
    0.3333333730697632,
    -0.25001639127731323,
    0.20002754032611847,
    -0.16607359051704407,
    0.14149123430252075,
    -0.1322384476661682,
    0.1317325234413147,
    -0.08038656413555145,
];

/// `log2(1 + f) / f - 1`.
const LOG2_F32: &[f64] = &[
    0.4426950514316559,
    -0.7213472127914429,
    0.48089438676834106,
    -0.36070716381073,
    0.2887870669364929,
    -0.2395469695329666,
    0.20056498050689697,
    -0.18761655688285828,
    0.20950530469417572,
    -0.14625926315784454,
];

/// `x` taken apart.
struct Parts {
    /// `x` with a subnormal made normal.
    normal: Val,
    exponent: Val,
    /// The mantissa less one.
    fraction: Val,
}

fn parts_f32(b: &mut Builder, x: Val) -> Parts {
    let subnormal = super::less(b, x, f64::from(f32::MIN_POSITIVE));
    let factor = b.float(x.ty, 8_388_608.0);
    let larger = b.fmul_strict(x, factor);
    let normal = b.select(subnormal, larger, x);
    let [shift, none] = [-23.0, 0.0].map(|value| b.float(x.ty, value));
    let shift = b.select(subnormal, shift, none);
    let bits = b.bitcast(normal, x.ty.with(Elem::I32));
    let low = b.int(bits.ty, i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits()));
    let above = b.sub(bits, low);
    let mask = b.int(bits.ty, 0xff80_0000);
    let scaled = b.and(above, mask);
    let mantissa = b.sub(bits, scaled);
    let mantissa = b.bitcast(mantissa, x.ty);
    let one = b.float(x.ty, 1.0);
    let fraction = b.fsub_strict(mantissa, one);
    let exponent = b.convert("llvm.sitofp", scaled, Elem::F32);
    let exponent = fma_by(b, exponent, 1.0 / 8_388_608.0, shift);
    Parts { normal, exponent, fraction }
}

/// The result for a positive, finite `x`, or what the others have: infinity, negative infinity, NaN.
fn with_special(b: &mut Builder, x: Val, normal: Val, result: Val) -> Val {
    if gpu(b) && x.ty.elem == Elem::F32 {
        let special = gpu_approximation(b, "lg2", normal);
        let bits = b.bitcast(normal, x.ty.with(Elem::I32));
        let one = b.int(bits.ty, 1);
        let below = b.sub(bits, one);
        let last = b.int(bits.ty, i64::from(f32::MAX.to_bits()));
        let ordinary = b.icmp(IntPredicate::Ult, below, last);
        return b.select(ordinary, result, special);
    }
    let infinity = b.float(x.ty, f64::INFINITY);
    let finite = b.fcmp(FloatPredicate::Olt, x, infinity);
    let result = b.select(finite, result, x);
    let zero = b.float(x.ty, 0.0);
    let [at_zero, below] = [f64::NEG_INFINITY, f64::NAN].map(|value| b.float(x.ty, value));
    let is_zero = b.fcmp(FloatPredicate::Oeq, x, zero);
    let special = b.select(is_zero, at_zero, below);
    let not_positive = b.fcmp(FloatPredicate::Ole, x, zero);
    b.select(not_positive, special, result)
}

pub fn log_f32(b: &mut Builder, x: Val) -> Val {
    let Parts { normal, exponent, fraction } = parts_f32(b, x);
    let q = polynomial(b, fraction, LOG_F32);
    let square = b.fmul_strict(fraction, fraction);
    let near = b.fma(square, q, fraction);
    let result = fma_by(b, exponent, std::f64::consts::LN_2, near);
    with_special(b, x, normal, result)
}

pub fn log2_f32(b: &mut Builder, x: Val) -> Val {
    let Parts { normal, exponent, fraction } = parts_f32(b, x);
    let p = polynomial(b, fraction, LOG2_F32);
    let near = b.fma(fraction, p, fraction);
    let result = b.fadd_strict(exponent, near);
    with_special(b, x, normal, result)
}
pub fn log_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
pub fn log2_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
