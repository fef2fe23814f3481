//! Conversion between element types on machine values.

use tile_ir::support::dtype::DType;

use super::builder::{Builder, FloatPredicate, IntPredicate, Rounding, Val};
use super::machine::{Machine, elem};
use super::types::{Elem, Ty};
use super::{f8, half};

/// The conversion that `as` and `.to::<T>()` mean.
pub fn cast(b: &mut Builder, value: Val, from: DType, to: DType) -> Val {
    if from == to {
        return value;
    }
    if from.is_half() {
        let wide = half::widen(b, value, from);
        return cast(b, wide, DType::F32, to);
    }
    if from.is_f8() {
        let wide = f8::widen(b, value, from);
        return cast(b, wide, DType::F32, to);
    }
    if to.is_half() || to.is_f8() {
        let single = single(b, value, from);
        return if to.is_f8() { f8::narrow(b, single, to) } else { half::narrow(b, single, to) };
    }
    let target = elem(to, b.machine);
    match (from.is_float(), to.is_float()) {
        (true, true) if to == DType::F64 => b.convert("llvm.fpext", value, target),
        (true, true) => b.convert("llvm.fptrunc", value, target),
        (true, false) if to == DType::Bool => {
            let zero = b.float(value.ty, 0.0);
            b.fcmp(FloatPredicate::Une, value, zero)
        }
        (true, false) if b.machine == Machine::Nvptx && from == DType::F32 && to.bytes() <= 4 => {
            let whole = saturated(b, value, to);
            let (low, high) = to.range();
            let mut clamped = whole;
            if to.bytes() < 4 && to.is_signed() {
                let low = b.int(whole.ty, low as i64);
                clamped = b.op("llvm.intr.smax", &[clamped, low], whole.ty);
            }
            if to.bytes() < 4 {
                let name = if to.is_signed() { "llvm.intr.smin" } else { "llvm.intr.umin" };
                let high = b.int(whole.ty, high as i64);
                clamped = b.op(name, &[clamped, high], whole.ty);
            }
            b.trunc(clamped, target)
        }
        (true, false) => {
            let name = if to.is_signed() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
            b.call(name, &[value], value.ty.with(target))
        }
        (false, true) => {
            let name = if from.is_signed() { "llvm.sitofp" } else { "llvm.uitofp" };
            b.convert(name, value, target)
        }
        (false, false) if to == DType::Bool => {
            let zero = b.int(value.ty, 0);
            b.icmp(IntPredicate::Ne, value, zero)
        }
        (false, false) => {
            let (have, want) = (value.ty.elem.bits(), target.bits());
            if want < have {
                b.trunc(value, target)
            } else if from.is_signed() {
                b.sext(value, target)
            } else {
                b.zext(value, target)
            }
        }
    }
}

/// An `f32` that, rounded to 16 or 8 bits, is what rounding the value itself once would give.
pub fn single(b: &mut Builder, value: Val, from: DType) -> Val {
    match from {
        DType::F64 => round_to_odd(b, value),
        _ => cast(b, value, from, DType::F32),
    }
}

/// `f32` to a 32-bit integer on a GPU, whose instruction saturates, takes NaN to 0, and rounds as `floor` and its like
/// do when the operand is the result of such: signed or unsigned as `to` is.
pub fn saturated(b: &mut Builder, value: Val, to: DType) -> Val {
    let (value, rounding) = b.before_rounding(value);
    let kind = if to.is_signed() { "f2i" } else { "f2ui" };
    let mode = match rounding {
        Rounding::Nearest => "rn",
        Rounding::Zero => "rz",
        Rounding::Down => "rm",
        Rounding::Up => "rp",
    };
    let name = format!("llvm.nvvm.{kind}.{mode}");
    let lanes: Vec<Val> = b.unpack(value).into_iter().map(|lane| b.call(&name, &[lane], Ty::I32)).collect();
    if value.ty.is_vector() { b.pack(&lanes) } else { lanes[0] }
}

/// The same bits as another element type of the same size.
pub fn bitcast(b: &mut Builder, value: Val, to: DType) -> Val {
    let target = elem(to, b.machine);
    b.bitcast(value, value.ty.with(target))
}

/// `f64` to `f32`, rounded toward zero with the last bit set when anything was lost: rounding that once more to half
/// precision gives what rounding the `f64` once would.
fn round_to_odd(b: &mut Builder, value: Val) -> Val {
    let nearest = b.convert("llvm.fptrunc", value, Elem::F32);
    let back = b.convert("llvm.fpext", nearest, Elem::F64);
    let exact = b.fcmp(FloatPredicate::Oeq, back, value);
    let is_nan = b.fcmp(FloatPredicate::Uno, value, value);
    let keep = b.or(exact, is_nan);
    let bits = b.bitcast(nearest, nearest.ty.with(Elem::I32));
    // Where rounding went away from zero, step back one place; then set the last bit.
    let (near_abs, abs) = (b.fabs(back), b.fabs(value));
    let away = b.fcmp(FloatPredicate::Ogt, near_abs, abs);
    let one = b.int(bits.ty, 1);
    let back_one = b.sub(bits, one);
    let toward_zero = b.select(away, back_one, bits);
    let odd = b.or(toward_zero, one);
    let result = b.select(keep, bits, odd);
    b.bitcast(result, nearest.ty)
}
