//! Lanewise arithmetic on machine values: what the rows of the operation table mean, for a scalar or a vector alike.
//!
//! Element types say how the bits are read (signed, unsigned, float); the machine type of a `bool` is `i1`. 16-bit
//! floats reach these functions only on the GPU, which computes with them; elsewhere they were widened before.

use super::builder::{Builder, FloatPredicate, IntPredicate, Machine, Val};
use crate::dtype::DType;

pub fn add(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() { b.fadd(args[0], args[1]) } else { b.add(args[0], args[1]) }
}

pub fn sub(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() { b.fsub(args[0], args[1]) } else { b.sub(args[0], args[1]) }
}

pub fn mul(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() { b.fmul(args[0], args[1]) } else { b.mul(args[0], args[1]) }
}

pub fn div(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype == DType::F32 && b.machine == Machine::Nvptx {
        return b.call("llvm.nvvm.div.full", args, args[0].ty);
    }
    if dtype.is_float() {
        return b.fdiv(args[0], args[1]);
    }
    let (quotient, _) = guarded_division(b, args, dtype);
    quotient
}

pub fn rem(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let (quotient, divisor) = guarded_division(b, args, dtype);
    // With a zero divisor the quotient is 0 and the remainder is the dividend.
    let product = b.mul(quotient, divisor);
    b.sub(args[0], product)
}

/// The truncating quotient and the divisor it belongs to: `x / 0` is 0 and `MIN / -1` is `MIN`, and neither traps.
fn guarded_division(b: &mut Builder, args: &[Val], dtype: DType) -> (Val, Val) {
    let (dividend, divisor) = (args[0], args[1]);
    let zero = b.int(divisor.ty, 0);
    let one = b.int(divisor.ty, 1);
    let by_zero = b.icmp(IntPredicate::Eq, divisor, zero);
    if !dtype.is_signed() {
        let safe = b.select(by_zero, one, divisor);
        let quotient = b.udiv(dividend, safe);
        return (b.select(by_zero, zero, quotient), divisor);
    }
    let minus_one = b.int(divisor.ty, -1);
    let negates = b.icmp(IntPredicate::Eq, divisor, minus_one);
    let special = b.or(by_zero, negates);
    let safe = b.select(special, one, divisor);
    let quotient = b.sdiv(dividend, safe);
    let negative = b.sub(zero, dividend);
    let quotient = b.select(negates, negative, quotient);
    (b.select(by_zero, zero, quotient), divisor)
}

pub fn cdiv(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let (quotient, divisor) = guarded_division(b, args, dtype);
    let product = b.mul(quotient, divisor);
    let remainder = b.sub(args[0], product);
    let zero = b.int(divisor.ty, 0);
    let one = b.int(divisor.ty, 1);
    let inexact = b.icmp(IntPredicate::Ne, remainder, zero);
    let nonzero = b.icmp(IntPredicate::Ne, divisor, zero);
    let mut up = b.and(inexact, nonzero);
    if dtype.is_signed() {
        // Truncation already rounded a negative quotient up.
        let signs = b.xor(args[0], divisor);
        let positive = b.icmp(IntPredicate::Sge, signs, zero);
        up = b.and(up, positive);
    }
    let above = b.add(quotient, one);
    b.select(up, above, quotient)
}

/// The shift amount with only the bits that count.
fn shift_amount(b: &mut Builder, amount: Val) -> Val {
    let mask = b.int(amount.ty, i64::from(amount.ty.elem.bits() - 1));
    b.and(amount, mask)
}

pub fn shl(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let amount = shift_amount(b, args[1]);
    b.shl(args[0], amount)
}

pub fn shr(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let amount = shift_amount(b, args[1]);
    if dtype.is_signed() { b.ashr(args[0], amount) } else { b.lshr(args[0], amount) }
}

pub fn neg(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() {
        return b.fneg(args[0]);
    }
    let zero = b.int(args[0].ty, 0);
    b.sub(zero, args[0])
}

pub fn abs(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() {
        return b.fabs(args[0]);
    }
    if !dtype.is_signed() {
        return args[0];
    }
    let zero = b.int(args[0].ty, 0);
    let negative = b.icmp(IntPredicate::Slt, args[0], zero);
    let negated = b.sub(zero, args[0]);
    b.select(negative, negated, args[0])
}

pub fn maximum(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let name = match (dtype.is_float(), dtype.is_signed()) {
        (true, _) => "llvm.intr.maximum",
        (false, true) => "llvm.intr.smax",
        (false, false) => "llvm.intr.umax",
    };
    b.op(name, args, args[0].ty)
}

pub fn minimum(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let name = match (dtype.is_float(), dtype.is_signed()) {
        (true, _) => "llvm.intr.minimum",
        (false, true) => "llvm.intr.smin",
        (false, false) => "llvm.intr.umin",
    };
    b.op(name, args, args[0].ty)
}

pub fn max_num(b: &mut Builder, args: &[Val], _: DType) -> Val {
    b.call("llvm.maximumnum", args, args[0].ty)
}

pub fn min_num(b: &mut Builder, args: &[Val], _: DType) -> Val {
    b.call("llvm.minimumnum", args, args[0].ty)
}

pub fn clamp(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    let raised = maximum(b, &args[..2], dtype);
    minimum(b, &[raised, args[2]], dtype)
}

fn compare(b: &mut Builder, args: &[Val], float: FloatPredicate, int: IntPredicate, dtype: DType) -> Val {
    if dtype.is_float() { b.fcmp(float, args[0], args[1]) } else { b.icmp(int, args[0], args[1]) }
}

fn ordered(
    b: &mut Builder,
    args: &[Val],
    float: FloatPredicate,
    ints: [IntPredicate; 2],
    dtype: DType,
) -> Val {
    let int = if dtype.is_signed() { ints[0] } else { ints[1] };
    compare(b, args, float, int, dtype)
}

pub fn eq(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    compare(b, args, FloatPredicate::Oeq, IntPredicate::Eq, dtype)
}

pub fn ne(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    compare(b, args, FloatPredicate::Une, IntPredicate::Ne, dtype)
}

pub fn lt(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    ordered(b, args, FloatPredicate::Olt, [IntPredicate::Slt, IntPredicate::Ult], dtype)
}

pub fn le(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    ordered(b, args, FloatPredicate::Ole, [IntPredicate::Sle, IntPredicate::Ule], dtype)
}

pub fn gt(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    ordered(b, args, FloatPredicate::Ogt, [IntPredicate::Sgt, IntPredicate::Ugt], dtype)
}

pub fn ge(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    ordered(b, args, FloatPredicate::Oge, [IntPredicate::Sge, IntPredicate::Uge], dtype)
}
