//! The remainder of the truncating quotient of floats, which is exact.
//!
//! Mantissas are integers here: `x = m * 2^e` and `y = n * 2^f`. Where `e` is at least `f`, `m * 2^(e - f)` modulo `n` is found by as many
//! binary digits at a time as an integer has above a mantissa, 8 of `f32` and 11 of `f64`, while any lane has digits left: one step
//! more than the first where the quotient is below 2^8, at most 35, and 191 of `f64`.

use super::formula::copysign;
use crate::mlir::{Builder, Elem, FloatPredicate, IntPredicate, LoopPart, Ty, Val};
use tile_ir::support::dtype::DType;

/// The mantissa and the exponent, with its bias, of a number that is not negative.
fn taken_apart(b: &mut Builder, magnitude: Val) -> (Val, Val) {
    let bits = b.bitcast(magnitude, magnitude.ty.with(magnitude.ty.elem.as_int()));
    let width = mantissa_width(magnitude);
    let [width, mask, implied, zero, one] =
        [width, (1 << width) - 1, 1 << width, 0, 1].map(|value| b.int(bits.ty, value));
    let exponent = b.lshr(bits, width);
    let mantissa = b.and(bits, mask);
    let normal = b.or(mantissa, implied);
    let is_subnormal = b.icmp(IntPredicate::Eq, exponent, zero);
    (b.select(is_subnormal, mantissa, normal), b.select(is_subnormal, one, exponent))
}

fn mantissa_width(x: Val) -> i64 {
    if x.ty.elem == Elem::F32 { 23 } else { 52 }
}

/// `x` modulo `y`, with the sign of `x`.
pub fn fmod(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let (x, y) = (args[0], args[1]);
    let (dividend, divisor) = (b.fabs(x), b.fabs(y));
    let ((m, e), (n, f)) = (taken_apart(b, dividend), taken_apart(b, divisor));
    let [zero, one] = [0, 1].map(|value| b.int(m.ty, value));
    let is_zero = b.icmp(IntPredicate::Eq, n, zero);
    let n = b.select(is_zero, one, n);
    let apart = b.sub(e, f);
    let is_below = b.icmp(IntPredicate::Slt, apart, zero);
    let apart = b.select(is_below, zero, apart);
    let first = b.urem(m, n);
    let rest = b.while_loop(&[first, apart], |b, part, carried| match part {
        LoopPart::Test => {
            let more = b.icmp(IntPredicate::Sgt, carried[1], zero);
            vec![if more.ty.is_vector() { b.call("llvm.vector.reduce.or", &[more], Ty::I1) } else { more }]
        }
        LoopPart::Body => {
            let most = b.int(zero.ty, if x.ty.elem == Elem::F32 { 8 } else { 11 });
            let is_last = b.icmp(IntPredicate::Slt, carried[1], most);
            let step = b.select(is_last, carried[1], most);
            let shifted = b.shl(carried[0], step);
            vec![b.urem(shifted, n), b.sub(carried[1], step)]
        }
    })[0];
    // The last place is below the smallest normal number: its power of two is multiplied on in two steps.
    let rest = b.convert("llvm.sitofp", rest, x.ty.elem);
    let width = mantissa_width(x);
    let down = b.float(x.ty, 2.0f64.powi(-width as i32));
    let rest = b.fmul_strict(rest, down);
    let width = b.int(f.ty, width);
    let power = b.shl(f, width);
    let power = b.bitcast(power, x.ty);
    let value = b.fmul_strict(rest, power);
    let value = copysign(b, value, x);
    let is_less = b.fcmp(FloatPredicate::Olt, dividend, divisor);
    let value = b.select(is_less, x, value);
    let [infinity, none, nan] = [f64::INFINITY, 0.0, f64::NAN].map(|value| b.float(x.ty, value));
    let is_finite = b.fcmp(FloatPredicate::Olt, dividend, infinity);
    let divides = b.fcmp(FloatPredicate::Ogt, divisor, none);
    let is_defined = b.and(is_finite, divides);
    b.select(is_defined, value, nan)
}
