//! Conversion between element types on machine values, and the machine type of each.
//!
//! On the GPU 16-bit floats are values of their own. On the CPU they are represented by their bits: LLVM would call
//! library functions to convert them, which kernels do not have, so conversion is integer arithmetic here, or F16C
//! instructions.

use tile_ir::support::dtype::DType;

use super::builder::{Builder, FloatPredicate, IntPredicate, Rounding, Val};
use super::f8;
use super::machine::{Machine, Vectors};
use super::types::{Elem, Ty};

/// The register type of an element of `dtype`.
pub fn elem(dtype: DType, machine: Machine) -> Elem {
    match (dtype, machine) {
        (DType::Bool, _) => Elem::I1,
        (DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2, _) => Elem::I8,
        (DType::I16 | DType::U16, _) => Elem::I16,
        (DType::I32 | DType::U32, _) => Elem::I32,
        (DType::I64 | DType::U64, _) => Elem::I64,
        (DType::F16, Machine::Nvptx) => Elem::F16,
        (DType::BF16, Machine::Nvptx) => Elem::BF16,
        (DType::F16 | DType::BF16, Machine::Host(_)) => Elem::I16,
        (DType::F32, _) => Elem::F32,
        (DType::F64, _) => Elem::F64,
    }
}

/// The conversion that `as` and `.to::<T>()` mean.
pub fn cast(b: &mut Builder, value: Val, from: DType, to: DType) -> Val {
    if from == to {
        return value;
    }
    if from.is_half() {
        let wide = widen_half(b, value, from);
        return cast(b, wide, DType::F32, to);
    }
    if from.is_f8() {
        let wide = f8::widen(b, value, from);
        return cast(b, wide, DType::F32, to);
    }
    if to.is_half() || to.is_f8() {
        let single = single(b, value, from);
        return if to.is_f8() { f8::narrow(b, single, to) } else { narrow_half(b, single, to) };
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

/// `f16` or `bf16` to `f32`, exactly.
pub fn widen_half(b: &mut Builder, value: Val, from: DType) -> Val {
    match (b.machine, from) {
        // The upper half of the result: with what took the value out of a word one instruction, a shift or a mask.
        (_, DType::BF16) => {
            let bits = b.bitcast(value, value.ty.with(Elem::I16));
            let bits = b.zext(bits, Elem::I32);
            let sixteen = b.int(bits.ty, 16);
            let bits = b.shl(bits, sixteen);
            b.bitcast(bits, bits.ty.with(Elem::F32))
        }
        (Machine::Nvptx, _) => b.convert("llvm.fpext", value, Elem::F32),
        (Machine::Host(Vectors::Fused | Vectors::Wide), _) => {
            let half = b.bitcast(value, value.ty.with(Elem::F16));
            b.convert("llvm.fpext", half, Elem::F32)
        }
        (Machine::Host(Vectors::Baseline), _) => widen_f16_in_software(b, value),
    }
}

/// `f32` to `f16` or `bf16`, to nearest even.
pub fn narrow_half(b: &mut Builder, value: Val, to: DType) -> Val {
    match (b.machine, to) {
        (Machine::Nvptx, _) => b.convert("llvm.fptrunc", value, elem(to, Machine::Nvptx)),
        (Machine::Host(_), DType::BF16) => narrow_bf16(b, value),
        (Machine::Host(Vectors::Fused | Vectors::Wide), _) => {
            let half = b.convert("llvm.fptrunc", value, Elem::F16);
            b.bitcast(half, half.ty.with(Elem::I16))
        }
        (Machine::Host(Vectors::Baseline), _) => narrow_f16_in_software(b, value),
    }
}

/// Adds half of the last place that stays, less one when that place is even, and drops the rest; NaN stays NaN.
fn narrow_bf16(b: &mut Builder, value: Val) -> Val {
    let bits = b.bitcast(value, value.ty.with(Elem::I32));
    let sixteen = b.int(bits.ty, 16);
    let high = b.lshr(bits, sixteen);
    let one = b.int(bits.ty, 1);
    let even = b.and(high, one);
    let below_half = b.int(bits.ty, 0x7fff);
    let bias = b.add(even, below_half);
    let rounded = b.add(bits, bias);
    let rounded = b.lshr(rounded, sixteen);
    let quiet = b.int(bits.ty, 0x40);
    let nan = b.or(high, quiet);
    let is_nan = b.fcmp(FloatPredicate::Uno, value, value);
    let result = b.select(is_nan, nan, rounded);
    b.trunc(result, Elem::I16)
}

/// Scales by a power of two in `f32`, where a subnormal half is a normal number.
fn widen_f16_in_software(b: &mut Builder, value: Val) -> Val {
    let bits = b.zext(value, Elem::I32);
    let int = |b: &mut Builder, constant: i64| b.int(bits.ty, constant);
    let (magnitude_mask, sign_mask) = (int(b, 0x7fff), int(b, 0x8000));
    let magnitude = b.and(bits, magnitude_mask);
    let (thirteen, sixteen) = (int(b, 13), int(b, 16));
    let shifted = b.shl(magnitude, thirteen);
    let as_float = b.bitcast(shifted, bits.ty.with(Elem::F32));
    let scale = b.float(as_float.ty, f64::from(f32::from_bits((254 - 15) << 23)));
    let scaled = b.fmul_strict(as_float, scale);
    let scaled = b.bitcast(scaled, bits.ty);
    // Exponent 31 of a half is infinity or NaN, exponent 255 here.
    let (infinity, exponent) = (int(b, 0x7c00), int(b, 0xff << 23));
    let special = b.icmp(IntPredicate::Uge, magnitude, infinity);
    let kept = b.or(shifted, exponent);
    let result = b.select(special, kept, scaled);
    let sign = b.and(bits, sign_mask);
    let sign = b.shl(sign, sixteen);
    let result = b.or(result, sign);
    b.bitcast(result, bits.ty.with(Elem::F32))
}

/// Normal results round by adding to the bits, subnormal ones by adding a float whose last place is theirs.
fn narrow_f16_in_software(b: &mut Builder, value: Val) -> Val {
    let bits = b.bitcast(value, value.ty.with(Elem::I32));
    let int = |b: &mut Builder, constant: i64| b.int(bits.ty, constant);
    let (sign_mask, magnitude_mask) = (int(b, 0x8000_0000), int(b, 0x7fff_ffff));
    let sign = b.and(bits, sign_mask);
    let magnitude = b.and(bits, magnitude_mask);

    // Below 2^-14: the sum with 0.5 puts the result's bits at the bottom of the significand, rounded to even.
    let half = b.float(value.ty, 0.5);
    let as_float = b.bitcast(magnitude, value.ty);
    let sum = b.fadd_strict(as_float, half);
    let sum = b.bitcast(sum, bits.ty);
    let half_bits = int(b, i64::from(0.5f32.to_bits()));
    let subnormal = b.sub(sum, half_bits);

    let (thirteen, one) = (int(b, 13), int(b, 1));
    let odd = b.lshr(magnitude, thirteen);
    let odd = b.and(odd, one);
    // (15 - 127) << 23 moves the exponent; 0xfff is just below half of the last place that stays.
    let rebias = int(b, ((15i64 - 127) << 23) + 0xfff);
    let normal = b.add(magnitude, rebias);
    let normal = b.add(normal, odd);
    let normal = b.lshr(normal, thirteen);

    let (smallest_normal, overflow, nan) = (int(b, 113 << 23), int(b, (127 + 16) << 23), int(b, 0xff << 23));
    let is_small = b.icmp(IntPredicate::Ult, magnitude, smallest_normal);
    let finite = b.select(is_small, subnormal, normal);
    let is_large = b.icmp(IntPredicate::Uge, magnitude, overflow);
    let is_nan = b.icmp(IntPredicate::Ugt, magnitude, nan);
    let (infinity, quiet) = (int(b, 0x7c00), int(b, 0x7e00));
    let special = b.select(is_nan, quiet, infinity);
    let result = b.select(is_large, special, finite);
    let sixteen = int(b, 16);
    let sign = b.lshr(sign, sixteen);
    let result = b.or(result, sign);
    b.trunc(result, Elem::I16)
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

/// The machine type of scalars of `dtype`.
pub fn scalar(dtype: DType, machine: Machine) -> Ty {
    Ty::scalar(elem(dtype, machine))
}
