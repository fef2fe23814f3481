//! What formulas of elementary functions are made of: polynomials, integers in the low bits, limits, and the GPU's own
//! approximations.

use crate::mlir::builder::{Builder, FloatPredicate, Val};
use crate::mlir::machine::Machine;
use crate::mlir::rounding;
use crate::mlir::types::Ty;

/// 1.5 * 2^23 and 1.5 * 2^52: added to a number of small magnitude, they leave it rounded to an integer in the low
/// bits. Only where that sum cannot be contracted or reassociated wrongly: a fused product is as good a multiple.
pub(super) const ROUND_F32: f64 = 12_582_912.0;
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

pub(super) fn gpu(b: &Builder) -> bool {
    b.machine == Machine::Nvptx
}

/// Whether `Builder::fma` rounds once.
pub(super) fn fused(b: &Builder) -> bool {
    b.machine != rounding::BASELINE
}

/// `a * b + c` with a constant addend.
pub(super) fn fma_to(b: &mut Builder, x: Val, y: Val, addend: f64) -> Val {
    let addend = b.float(x.ty, addend);
    b.fma(x, y, addend)
}

/// `a * c + b` with a constant factor.
pub(super) fn fma_by(b: &mut Builder, x: Val, factor: f64, addend: Val) -> Val {
    let factor = b.float(x.ty, factor);
    b.fma(x, factor, addend)
}

/// The polynomial with these coefficients, the constant first, by Horner's rule.
pub(super) fn polynomial(b: &mut Builder, x: Val, coefficients: &[f64]) -> Val {
    let (last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
    let mut sum = b.float(x.ty, *last);
    for &coefficient in rest.iter().rev() {
        sum = fma_to(b, sum, x, coefficient);
    }
    sum
}

/// The polynomial that approximates a function near zero.
pub(super) struct NearZero {
    /// Of magnitudes below this.
    pub limit: f64,
    /// The constant first.
    pub coefficients: &'static [f64],
}

/// `x` rounded to an integer, times `factor`: the integer in the low bits of the first result, and as a float.
pub(super) fn round_scaled(b: &mut Builder, x: Val, factor: f64) -> (Val, Val) {
    let round = if x.ty.elem.bits() == 32 { ROUND_F32 } else { ROUND_F64 };
    let round = b.float(x.ty, round);
    let shifted = if factor == 1.0 { b.fadd_strict(x, round) } else { fma_by(b, x, factor, round) };
    let number = b.fsub_strict(shifted, round);
    let bits = b.bitcast(shifted, x.ty.with(x.ty.elem.as_int()));
    (bits, number)
}

/// `x` no smaller than `low`; NaN stays.
pub(super) fn at_least(b: &mut Builder, x: Val, low: f64) -> Val {
    let low = b.float(x.ty, low);
    let below = b.fcmp(FloatPredicate::Olt, x, low);
    b.select(below, low, x)
}

/// `x` no larger than `high`; NaN stays.
pub(super) fn at_most(b: &mut Builder, x: Val, high: f64) -> Val {
    let high = b.float(x.ty, high);
    let above = b.fcmp(FloatPredicate::Ogt, x, high);
    b.select(above, high, x)
}

pub(super) fn less(b: &mut Builder, x: Val, limit: f64) -> Val {
    let limit = b.float(x.ty, limit);
    b.fcmp(FloatPredicate::Olt, x, limit)
}

pub(super) fn copysign(b: &mut Builder, magnitude: Val, sign: Val) -> Val {
    b.op("llvm.intr.copysign", &[magnitude, sign], magnitude.ty)
}

/// An instruction of the GPU, which works on scalars.
pub(super) fn gpu_each(b: &mut Builder, x: Val, mut one: impl FnMut(&mut Builder, Val) -> Val) -> Val {
    if !x.ty.is_vector() {
        return one(b, x);
    }
    let lanes: Vec<Val> = b.unpack(x).into_iter().map(|lane| one(b, lane)).collect();
    b.pack(&lanes)
}

/// An approximation that the GPU has: `ex2`, `lg2`, `rcp` or `rsqrt`. A subnormal argument counts as zero, and a
/// subnormal result is zero.
pub(super) fn gpu_approximation(b: &mut Builder, name: &str, x: Val) -> Val {
    let name = format!("llvm.nvvm.{name}.approx.ftz.f");
    gpu_each(b, x, |b, lane| b.call(&name, &[lane], Ty::F32))
}
