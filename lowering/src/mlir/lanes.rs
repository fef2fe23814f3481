//! Lanewise arithmetic on machine values: what the rows of the operation table mean, for a scalar or a vector alike.
//!
//! Element types say how the bits are read (signed, unsigned, float); the machine type of a `bool` is `i1`. 16-bit
//! floats reach these functions only on the GPU, which computes in them; elsewhere they were widened before.

use tile_ir::ops::scalar::ArithKind;
use tile_ir::support::dtype::DType;

use super::builder::{Builder, FloatPredicate, IntPredicate, Val};
use super::division::{self, Division, RangedValue};
use super::machine::Machine;
use super::types::Ty;
use super::{math, wide_product};

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
        return math::gpu_quotient(b, args[0], args[1]);
    }
    if dtype.is_float() {
        return b.fdiv(args[0], args[1]);
    }
    divided(b, args, dtype).result(b, ArithKind::Div)
}

pub fn div_rn(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype == DType::F32 && b.machine == Machine::Nvptx {
        return math::gpu_correctly_rounded(b, args[0], args[1]);
    }
    b.fdiv(args[0], args[1])
}

pub fn rem(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    if dtype.is_float() {
        return math::fmod(b, args, dtype);
    }
    divided(b, args, dtype).result(b, ArithKind::Rem)
}

pub fn cdiv(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    divided(b, args, dtype).result(b, ArithKind::CeilDiv)
}

fn divided(b: &mut Builder, args: &[Val], dtype: DType) -> Division {
    let [dividend, divisor] = [0, 1].map(|i| RangedValue { value: args[i], range: dtype.range() });
    division::divide(b, dividend, divisor)
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

/// The bits of a float for the larger (or smaller) of two by comparison of integers, and whether they are negative:
/// positive floats are ordered as signed integers, and the more negative of two is the larger one as unsigned. NaN gets
/// the sign that makes it win.
pub fn extreme_bits(b: &mut Builder, value: Val, largest: bool) -> (Val, Val) {
    let int = value.ty.with(value.ty.elem.as_int());
    let bits = b.bitcast(value, int);
    let quiet = b.float(value.ty, f64::NAN);
    let quiet = b.bitcast(quiet, int);
    let top = b.int(int, 1i64.wrapping_shl(int.elem.bits() - 1));
    let quiet = if largest {
        let rest = b.not(top);
        b.and(quiet, rest)
    } else {
        b.or(quiet, top)
    };
    let nan = b.fcmp(FloatPredicate::Uno, value, value);
    let bits = b.select(nan, quiet, bits);
    let zero = b.int(int, 0);
    let negative = b.icmp(IntPredicate::Slt, bits, zero);
    (bits, negative)
}

pub fn is_nan(b: &mut Builder, args: &[Val], _: DType) -> Val {
    b.fcmp(FloatPredicate::Uno, args[0], args[0])
}

pub fn is_finite(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let (magnitude, infinity) = (b.fabs(args[0]), b.float(args[0].ty, f64::INFINITY));
    b.fcmp(FloatPredicate::Olt, magnitude, infinity)
}

pub fn is_infinite(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let (magnitude, infinity) = (b.fabs(args[0]), b.float(args[0].ty, f64::INFINITY));
    b.fcmp(FloatPredicate::Oeq, magnitude, infinity)
}

pub fn clz(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let zero_is_poison = b.int(Ty::I1, 0);
    b.call("llvm.ctlz", &[args[0], zero_is_poison], args[0].ty)
}

pub fn ffs(b: &mut Builder, args: &[Val], _: DType) -> Val {
    let [zero, one] = [0, 1].map(|number| b.int(args[0].ty, number));
    let zero_is_poison = b.int(Ty::I1, 0);
    let below = b.call("llvm.cttz", &[args[0], zero_is_poison], args[0].ty);
    let place = b.add(below, one);
    let is_zero = b.icmp(IntPredicate::Eq, args[0], zero);
    b.select(is_zero, zero, place)
}

pub fn umulhi(b: &mut Builder, args: &[Val], _: DType) -> Val {
    wide_product::high_half(b, args, false)
}

pub fn mulhi(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
    wide_product::high_half(b, args, dtype.is_signed())
}
