//! Quotients of `f32` on a GPU.
//!
//! With `r` the reciprocal of `y` to 1 ulp and `q = x * r`, the remainder `x - q * y` is exact or nearly so, and
//! `q + remainder * r` is within 2^-45 of `x / y` before it is rounded. So a quotient that is an `f32` comes out as that
//! number, and any other one is correctly rounded but where it lies within 2^-45 of the middle of two. That holds where the
//! dividend is at least 2^-100: below, the remainder loses digits, and the quotient is within 2 ulp.
//!
//! A divisor whose reciprocal is no normal number is scaled by a power of two first, as its dividend is. Where `q` is
//! infinite, NaN or zero it is the quotient already.

use super::formula::gpu_approximation;
use crate::mlir::builder::{Builder, FloatPredicate, Val};
use crate::mlir::types::Ty;

/// Divisors above this one have a subnormal reciprocal.
const LARGEST: f64 = 8.507_059_173_023_462e37; // 2^126
/// Brings the largest `f32` to `LARGEST`.
const DOWN: f64 = 0.25;
/// Makes every subnormal number normal.
const UP: f64 = 16_777_216.0;

/// Returns `x / y` on a GPU.
pub fn gpu_quotient(b: &mut Builder, x: Val, y: Val) -> Val {
    let magnitude = b.fabs(y);
    let [largest, least] = [LARGEST, f64::from(f32::MIN_POSITIVE)].map(|bound| b.float(y.ty, bound));
    let [one, down, up] = [1.0, DOWN, UP].map(|power| b.float(y.ty, power));
    let is_large = b.fcmp(FloatPredicate::Ogt, magnitude, largest);
    let is_small = b.fcmp(FloatPredicate::Olt, magnitude, least);
    let power = b.select(is_small, up, one);
    let power = b.select(is_large, down, power);
    let (x, y) = (b.fmul_strict(x, power), b.fmul_strict(y, power));
    let Refined { quotient, rounded } = refined(b, x, y);
    let zero = b.float(x.ty, 0.0);
    let magnitude = b.fabs(rounded);
    let is_number = b.fcmp(FloatPredicate::Ogt, magnitude, zero);
    b.select(is_number, rounded, quotient)
}

/// A quotient of numbers, and one that is within 1 ULP and means nothing where the first is infinite or NaN.
pub(super) struct Refined {
    quotient: Val,
    pub rounded: Val,
}

/// Returns `x / y` of a divisor whose reciprocal is a normal number.
pub(super) fn refined(b: &mut Builder, x: Val, y: Val) -> Refined {
    let reciprocal = gpu_approximation(b, "rcp", y);
    let quotient = b.fmul_strict(x, reciprocal);
    let negative = b.fneg(y);
    let remainder = b.fma(negative, quotient, x);
    Refined { quotient, rounded: b.fma(remainder, reciprocal, quotient) }
}

/// Returns `x / y`, correctly rounded, by the GPU's own instruction.
pub fn gpu_correctly_rounded(b: &mut Builder, x: Val, y: Val) -> Val {
    let one = |b: &mut Builder, x, y| b.call("llvm.nvvm.div.rn.f", &[x, y], Ty::F32);
    if !x.ty.is_vector() {
        return one(b, x, y);
    }
    let pairs = b.unpack(x).into_iter().zip(b.unpack(y)).collect::<Vec<_>>();
    let lanes: Vec<Val> = pairs.into_iter().map(|(x, y)| one(b, x, y)).collect();
    b.pack(&lanes)
}
