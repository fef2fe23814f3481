//! Rounding to integers, and the fused multiply-add: an instruction where the CPU has one, and
//! arithmetic where LLVM would call a library that kernels do not have (x86-64 before SSE4.1 and FMA).

use tile_ir::support::dtype::DType;

use super::builder::{Builder, FloatPredicate, IntPredicate, Rounding, Val};
use super::machine::{Machine, Vectors};
use super::types::Elem;

/// A CPU of which nothing is known but its family.
pub const BASELINE: Machine = Machine::Host(Vectors::Baseline);

/// Digits of an `f32` that TF32 does not have.
const BEYOND_TF32: u32 = 13;

/// The nearest number of eleven digits, halves to even; NaN stays NaN.
pub fn tf32(b: &mut Builder, a: Val) -> Val {
    let ty = a.ty.with(Elem::I32);
    let bits = b.bitcast(a, ty);
    // What is below a half, and one more where the last digit that stays is odd.
    let [below, digits, one, mask] =
        [(1 << (BEYOND_TF32 - 1)) - 1, BEYOND_TF32.into(), 1, -(1 << BEYOND_TF32)]
            .map(|value| b.int(ty, value));
    let last = b.lshr(bits, digits);
    let odd = b.and(last, one);
    let bits = b.add(bits, below);
    let bits = b.add(bits, odd);
    let bits = b.and(bits, mask);
    let rounded = b.bitcast(bits, a.ty);
    let is_nan = b.fcmp(FloatPredicate::Uno, a, a);
    b.select(is_nan, a, rounded)
}

impl Builder<'_> {
    /// The largest integer not above `a`.
    pub fn floor(&mut self, a: Val) -> Val {
        if self.machine != BASELINE {
            let result = self.op("llvm.intr.floor", &[a], a.ty);
            self.record_rounding(result, a, Rounding::Down);
            return result;
        }
        let nearest = self.nearest_integer(a);
        let one = self.float(a.ty, 1.0);
        let below = self.fsub_strict(nearest, one);
        let above = self.fcmp(FloatPredicate::Ogt, nearest, a);
        let result = self.select(above, below, nearest);
        self.copysign(result, a)
    }

    /// The smallest integer not below `a`.
    pub fn ceil(&mut self, a: Val) -> Val {
        if self.machine != BASELINE {
            let result = self.op("llvm.intr.ceil", &[a], a.ty);
            self.record_rounding(result, a, Rounding::Up);
            return result;
        }
        let nearest = self.nearest_integer(a);
        let one = self.float(a.ty, 1.0);
        let above = self.fadd_strict(nearest, one);
        let below = self.fcmp(FloatPredicate::Olt, nearest, a);
        let result = self.select(below, above, nearest);
        self.copysign(result, a)
    }

    /// The nearest integer, halves to the even one.
    pub fn round_ties_even(&mut self, a: Val) -> Val {
        if self.machine != BASELINE {
            let result = self.op("llvm.intr.roundeven", &[a], a.ty);
            self.record_rounding(result, a, Rounding::Nearest);
            return result;
        }
        let nearest = self.nearest_integer(a);
        self.copysign(nearest, a)
    }

    /// The nearest integer toward zero.
    pub fn truncate(&mut self, a: Val) -> Val {
        if self.machine != BASELINE {
            let result = self.op("llvm.intr.trunc", &[a], a.ty);
            self.record_rounding(result, a, Rounding::Zero);
            return result;
        }
        let nearest = self.nearest_integer(a);
        let one = self.float(a.ty, 1.0);
        let (far, magnitude) = (self.fabs(nearest), self.fabs(a));
        let nearer = self.fsub_strict(far, one);
        let away = self.fcmp(FloatPredicate::Ogt, far, magnitude);
        let result = self.select(away, nearer, far);
        // NaN is not away from itself and stays.
        self.copysign(result, a)
    }

    /// The nearest integer, halves away from zero.
    pub fn round(&mut self, a: Val) -> Val {
        // With the number just below a half, a sum of less than an integer stays below it when it is rounded.
        let below_half =
            if a.ty.elem == Elem::F64 { 0.5f64.next_down() } else { f64::from(0.5f32.next_down()) };
        let below_half = self.float(a.ty, below_half);
        let signed = self.copysign(below_half, a);
        let sum = self.fadd_strict(a, signed);
        let result = self.truncate(sum);
        self.copysign(result, a)
    }

    /// The magnitude of `a` with the sign of `b`.
    fn copysign(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.intr.copysign", &[a, b], a.ty)
    }

    /// The nearest integer, except for the sign of zero: adding a number whose last place is 1 rounds. From there on
    /// every number is an integer, or is not a number.
    fn nearest_integer(&mut self, a: Val) -> Val {
        let first_whole = if a.ty.elem == Elem::F64 { (1u64 << 52) as f64 } else { (1u64 << 23) as f64 };
        let limit = self.float(a.ty, first_whole);
        let magic = self.copysign(limit, a);
        let sum = self.fadd_strict(a, magic);
        let rounded = self.fsub_strict(sum, magic);
        let magnitude = self.fabs(a);
        let fraction = self.fcmp(FloatPredicate::Olt, magnitude, limit);
        self.select(fraction, rounded, a)
    }
}

/// `x * y + z`, of floats as [`fma`] rounds it.
pub fn multiply_add(b: &mut Builder, args: [Val; 3], dtype: DType) -> Val {
    if dtype.is_float() {
        return fma(b, &args, dtype);
    }
    let [x, y, z] = args;
    let product = b.mul(x, y);
    b.add(product, z)
}

/// `x * y + z` with one rounding. `f64` on a processor without the instruction rounds twice.
pub fn fma(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let (x, y, z) = (args[0], args[1], args[2]);
    if b.machine != BASELINE || dtype == DType::F64 {
        return b.fma(x, y, z);
    }
    // In `f64` the product is exact; the sum is rounded to odd, so that rounding it again is rounding once.
    let wide = [x, y, z].map(|value| b.convert("llvm.fpext", value, Elem::F64));
    let product = b.fmul_strict(wide[0], wide[1]);
    let sum = b.fadd_strict(product, wide[2]);
    let error = sum_error(b, [product, wide[2]], sum);
    let bits = b.bitcast(sum, sum.ty.with(Elem::I64));
    let (zero, one) = (b.float(sum.ty, 0.0), b.int(bits.ty, 1));
    let inexact = b.fcmp(FloatPredicate::One, error, zero);
    let last = b.and(bits, one);
    let even = b.icmp(IntPredicate::Ne, last, one);
    let adjust = b.and(inexact, even);
    // Toward the exact sum: away from zero when the error has the sum's sign.
    let signs = b.fmul_strict(error, sum);
    let outward = b.fcmp(FloatPredicate::Ogt, signs, zero);
    let (up, down) = (b.add(bits, one), b.sub(bits, one));
    let moved = b.select(outward, up, down);
    let odd = b.select(adjust, moved, bits);
    let odd = b.bitcast(odd, sum.ty);
    b.convert("llvm.fptrunc", odd, x.ty.elem)
}

/// What rounding dropped from a sum of two numbers (Knuth's two-sum); NaN where the sum is not finite.
fn sum_error(b: &mut Builder, terms: [Val; 2], sum: Val) -> Val {
    let second = b.fsub_strict(sum, terms[0]);
    let first = b.fsub_strict(sum, second);
    let lost_first = b.fsub_strict(terms[0], first);
    let lost_second = b.fsub_strict(terms[1], second);
    b.fadd_strict(lost_first, lost_second)
}
