//! Conversion between `f32` and the floats of 16 bits.
//!
//! On the GPU 16-bit floats are values of their own. On the CPU they are represented by their bits: LLVM would call
//! library functions to convert them, which kernels do not have, so conversion is integer arithmetic here, or F16C
//! instructions.

use tile_ir::support::dtype::DType;

use super::builder::{Builder, FloatPredicate, IntPredicate, Val};
use super::machine::{Machine, Vectors, elem};
use super::types::Elem;

/// `f16` or `bf16` to `f32`, exactly.
pub fn widen(b: &mut Builder, value: Val, from: DType) -> Val {
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
pub fn narrow(b: &mut Builder, value: Val, to: DType) -> Val {
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
