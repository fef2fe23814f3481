//! `log`, `log1p` and `log2`.
//!
//! `x = 2^e * m` with `m` in `[1/sqrt 2, sqrt 2)`, by integer arithmetic on the bits; a subnormal is multiplied by a power of two
//! before. For `f32`, with `f = m - 1`, which is exact:
//!
//! `log x = e ln 2 + (f + f^2 q(f))`, 9 coefficients, error 2^-27.7; the rounded `ln 2` is within 2^-28. 1.2 ulp.
//! `log2 x = e + (f + f p(f))`, 10 coefficients, error 2^-26.4. 1.5 ulp.
//!
//! `log1p` is `log` of the rounded `1 + x`, but for `f`, which is computed from `x` and rounds once: half an ulp more.
//!
//! For `f64`, `log(1 + f) = f - s (f - s^2 p(s^2))` with `s = f / (2 + f)`, 7 coefficients, error 2^-59.4: what is taken off
//! `f` is at most a fifth of it, and rounds accordingly. `ln 2` is taken in two parts, the first exact times `e`: 1.6
//! ulp. For `log2` the logarithm is split into 21 bits and the rest, so that its product with the first 21 bits of `log2
//! e` is exact: 1.2 ulp.
//!
//! Near 1, where `e` is 0, only the last addition to `f` rounds in full. GPUs use the same polynomials: their
//! `lg2.approx` has an absolute error near 1, and here answers for 0, negative numbers, infinity and NaN alone.

use super::formula::{copysign, fma_by, gpu, gpu_approximation, less, polynomial};
use crate::mlir::{Builder, Elem, FloatPredicate, IntPredicate, Val};

/// `(log(1 + f) - f) / f^2`.
const LOG_F32: &[f64] = &[
    -0.49999988079071045,
    0.3333333730697632,
    -0.25001639127731323,
    0.20001207292079926,
    -0.1660670042037964,
    0.14196166396141052,
    -0.13280440866947174,
    0.12823443114757538,
    -0.07421156018972397,
];

/// `log2(1 + f) / f - 1`.
const LOG2_F32: &[f64] = &[
    0.4426950514316559,
    -0.7213472127914429,
    0.48089438676834106,
    -0.36070716381073,
    0.28878700733184814,
    -0.23954656720161438,
    0.20056705176830292,
    -0.1876245141029358,
    0.2094860076904297,
    -0.14620380103588104,
];

/// `x` taken apart.
struct LogParts {
    /// `x` with a subnormal made normal.
    normal: Val,
    exponent: Val,
    /// The mantissa less one.
    fraction: Val,
}

fn parts_f32(b: &mut Builder, x: Val) -> LogParts {
    let subnormal = less(b, x, f64::from(f32::MIN_POSITIVE));
    let factor = b.float(x.ty, 8_388_608.0);
    let larger = b.fmul_strict(x, factor);
    let normal = b.select(subnormal, larger, x);
    let [shift, none] = [-23.0, 0.0].map(|value| b.float(x.ty, value));
    let shift = b.select(subnormal, shift, none);
    let bits = b.bitcast(normal, x.ty.with(Elem::I32));
    let scaled = scaled_f32(b, bits);
    let mantissa = b.sub(bits, scaled);
    let mantissa = b.bitcast(mantissa, x.ty);
    let one = b.float(x.ty, 1.0);
    let fraction = b.fsub_strict(mantissa, one);
    let exponent = b.convert("llvm.sitofp", scaled, Elem::F32);
    let exponent = fma_by(b, exponent, 1.0 / 8_388_608.0, shift);
    LogParts { normal, exponent, fraction }
}

/// The exponent in its place, of a mantissa in `[1/sqrt 2, sqrt 2)`.
fn scaled_f32(b: &mut Builder, bits: Val) -> Val {
    let low = b.int(bits.ty, i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits()));
    let above = b.sub(bits, low);
    let mask = b.int(bits.ty, 0xff80_0000);
    b.and(above, mask)
}

/// `1 + x` taken apart. The mantissa less one is `x * 2^-e + (2^-e - 1)`, which has all digits of a small `x`.
fn parts_of_sum(b: &mut Builder, x: Val) -> LogParts {
    let one = b.float(x.ty, 1.0);
    let normal = b.fadd_strict(x, one);
    let bits = b.bitcast(normal, x.ty.with(x.ty.elem.as_int()));
    let (exponent, scaled, four) = if x.ty.elem == Elem::F32 {
        let scaled = scaled_f32(b, bits);
        let exponent = b.convert("llvm.sitofp", scaled, Elem::F32);
        let unit = b.float(x.ty, 1.0 / 8_388_608.0);
        (b.fmul_strict(exponent, unit), scaled, i64::from(4.0f32.to_bits()))
    } else {
        let (biased, scaled) = scaled_f64(b, bits);
        let bias = b.float(x.ty, BIAS_F64);
        (b.fsub_strict(biased, bias), scaled, 4.0f64.to_bits() as i64)
    };
    let own = b.bitcast(x, bits.ty);
    let moved = b.sub(own, scaled);
    let moved = b.bitcast(moved, x.ty);
    // 2^-e itself may be subnormal.
    let four = b.int(bits.ty, four);
    let power = b.sub(four, scaled);
    let power = b.bitcast(power, x.ty);
    let [quarter, minus_one] = [0.25, -1.0].map(|value| b.float(x.ty, value));
    let less_one = b.fma(power, quarter, minus_one);
    LogParts { normal, exponent, fraction: b.fadd_strict(moved, less_one) }
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
    let parts = parts_f32(b, x);
    let result = natural_f32(b, &parts);
    with_special(b, x, parts.normal, result)
}

/// The logarithm of `1 + x`, of `f32` or `f64`, which has the sign of `x`.
pub fn log1p(b: &mut Builder, x: Val) -> Val {
    let parts = parts_of_sum(b, x);
    let natural = if x.ty.elem == Elem::F32 { natural_f32 } else { natural_f64 };
    let result = natural(b, &parts);
    let result = with_special(b, parts.normal, parts.normal, result);
    copysign(b, result, x)
}

/// The natural logarithm of a positive, finite number.
fn natural_f32(b: &mut Builder, &LogParts { exponent, fraction, .. }: &LogParts) -> Val {
    let q = polynomial(b, fraction, LOG_F32);
    let square = b.fmul_strict(fraction, fraction);
    let near = b.fma(square, q, fraction);
    fma_by(b, exponent, std::f64::consts::LN_2, near)
}

pub fn log2_f32(b: &mut Builder, x: Val) -> Val {
    let LogParts { normal, exponent, fraction } = parts_f32(b, x);
    let p = polynomial(b, fraction, LOG2_F32);
    let near = b.fma(fraction, p, fraction);
    let result = b.fadd_strict(exponent, near);
    with_special(b, x, normal, result)
}

/// `(log(1 + f) - 2 s) / s^3` with `s = f / (2 + f)`, in `s^2`.
const LOG_F64: &[f64] = &[
    0.6666666666666735,
    0.39999999999408786,
    0.2857142874389777,
    0.22222198400500642,
    0.18183574136475472,
    0.15313779500637315,
    0.14798853565910916,
];
/// The first 32 bits of `ln 2`, and the rest.
const LN_2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];
/// The first 21 bits of `log2 e`, and the rest.
const LOG2_E: [f64; 2] = [1.4426946640014648, 3.768874985636099e-07];

/// What [`scaled_f64`] adds to an exponent: 2^52, and the bias.
const BIAS_F64: f64 = 4_503_599_627_370_496.0 + 1023.0;

/// The exponent as a number, with `BIAS_F64`, and in its place, of a mantissa in `[1/sqrt 2, sqrt 2)`.
fn scaled_f64(b: &mut Builder, bits: Val) -> (Val, Val) {
    let low = b.int(bits.ty, std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64 - (1023 << 52));
    let above = b.sub(bits, low);
    let width = b.int(bits.ty, 52);
    let exponent = b.lshr(above, width);
    // Joined to the bits of 2^52, the exponent with its bias is a number: processors convert no 64-bit integers.
    let number = b.int(bits.ty, 2.0f64.powi(52).to_bits() as i64);
    let exponent = b.or(exponent, number);
    let exponent = b.bitcast(exponent, bits.ty.with(Elem::F64));
    let mask = b.int(bits.ty, 0xfff << 52);
    let scaled = b.and(above, mask);
    let one = b.int(bits.ty, 1.0f64.to_bits() as i64);
    (exponent, b.sub(scaled, one))
}

fn parts_f64(b: &mut Builder, x: Val) -> LogParts {
    let subnormal = less(b, x, f64::MIN_POSITIVE);
    let factor = b.float(x.ty, 2.0f64.powi(54));
    let larger = b.fmul_strict(x, factor);
    let normal = b.select(subnormal, larger, x);
    let [shifted, unshifted] = [54.0, 0.0].map(|shift| b.float(x.ty, BIAS_F64 + shift));
    let bias = b.select(subnormal, shifted, unshifted);
    let bits = b.bitcast(normal, x.ty.with(Elem::I64));
    let (biased, scaled) = scaled_f64(b, bits);
    let exponent = b.fsub_strict(biased, bias);
    let mantissa = b.sub(bits, scaled);
    let mantissa = b.bitcast(mantissa, x.ty);
    let one = b.float(x.ty, 1.0);
    let fraction = b.fsub_strict(mantissa, one);
    LogParts { normal, exponent, fraction }
}

/// `f - log(1 + f)`.
fn correction(b: &mut Builder, fraction: Val) -> Val {
    let two = b.float(fraction.ty, 2.0);
    let sum = b.fadd_strict(fraction, two);
    let s = b.fdiv(fraction, sum);
    let square = b.fmul_strict(s, s);
    let p = polynomial(b, square, LOG_F64);
    let r = b.fmul_strict(square, p);
    let difference = b.fsub_strict(fraction, r);
    b.fmul_strict(s, difference)
}

pub fn log_f64(b: &mut Builder, x: Val) -> Val {
    let parts = parts_f64(b, x);
    let result = natural_f64(b, &parts);
    with_special(b, x, parts.normal, result)
}

/// The natural logarithm of a positive, finite number.
fn natural_f64(b: &mut Builder, &LogParts { exponent, fraction, .. }: &LogParts) -> Val {
    let correction = correction(b, fraction);
    let correction = fma_by(b, exponent, -LN_2[1], correction);
    let near = b.fsub_strict(fraction, correction);
    fma_by(b, exponent, LN_2[0], near)
}

pub fn log2_f64(b: &mut Builder, x: Val) -> Val {
    let LogParts { normal, exponent, fraction } = parts_f64(b, x);
    let correction = correction(b, fraction);
    let near = b.fsub_strict(fraction, correction);
    let bits = b.bitcast(near, x.ty.with(Elem::I64));
    let mask = b.int(bits.ty, -1 << 32);
    let high = b.and(bits, mask);
    let high = b.bitcast(high, x.ty);
    let low = b.fsub_strict(fraction, high);
    let low = b.fsub_strict(low, correction);
    let [first, second, whole] =
        [LOG2_E[0], LOG2_E[1], std::f64::consts::LOG2_E].map(|value| b.float(x.ty, value));
    let product = b.fmul_strict(high, first);
    let rest = b.fmul_strict(low, whole);
    let rest = b.fma(high, second, rest);
    // The exponent is 0 or larger than the product: what the sum rounds off is exact.
    let sum = b.fadd_strict(exponent, product);
    let error = b.fsub_strict(exponent, sum);
    let error = b.fadd_strict(error, product);
    let rest = b.fadd_strict(rest, error);
    let result = b.fadd_strict(sum, rest);
    with_special(b, x, normal, result)
}
