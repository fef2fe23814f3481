//! The 8-bit floats, represented by their bits: conversion to and from `f32`.
//!
//! `f8e4m3` has no infinity and one NaN of each sign, all other patterns being values up to 448; `f8e5m2` is the upper
//! half of an `f16`. Rounding is to nearest even, and saturates. GPUs from capability 8.9 on have instructions,
//! for two values at a time; elsewhere it is integer arithmetic on whole vectors.

use tile_ir::support::dtype::{DType, F8_NAN, Float8Format};

use super::builder::{Asm, Builder, IntPredicate, Val};
use super::half;
use super::machine::Machine;
use super::machine::elem;
use super::types::{Elem, Ty};

/// The first capability with conversions of 8-bit floats.
const CAPABILITY: u32 = 89;

/// Whether the GPU converts two of them at a time, by [`narrow_pair`] and [`widen_pair`].
pub fn in_pairs(b: &Builder) -> bool {
    b.machine == Machine::Nvptx && b.capability >= CAPABILITY
}

/// Two `f32` as two 8-bit floats in an `i16`, the first in the low half.
pub fn narrow_pair(b: &mut Builder, pair: [Val; 2], to: DType) -> Val {
    let text = format!("cvt.rn.satfinite.{}.f32 $0, $1, $2;", format(to));
    b.asm(&text, "=h,f,f", &[pair[1], pair[0]], &[Ty::I16], Asm::Pure)[0]
}

/// The two 8-bit floats of an `i16` as two `f16`, exactly.
pub fn widen_pair(b: &mut Builder, pair: Val, from: DType) -> Vec<Val> {
    let halves = widen_halves(b, pair, from);
    let halves = b.bitcast(halves, Ty::vector(Elem::F16, 2));
    b.unpack(halves)
}

/// The same, in an `i32`.
fn widen_halves(b: &mut Builder, pair: Val, from: DType) -> Val {
    let text = format!("cvt.rn.f16x2.{} $0, $1;", format(from));
    b.asm(&text, "=r,h", &[pair], &[Ty::I32], Asm::Pure)[0]
}

/// The four 8-bit floats of an `i32` as two pairs of `f16`, exactly, the lower ones first.
pub fn widen_word(b: &mut Builder, word: Val, from: DType) -> [Val; 2] {
    if in_pairs(b) {
        let sixteen = b.int(Ty::I32, 16);
        let upper = b.lshr(word, sixteen);
        return [word, upper].map(|pair| {
            let pair = b.trunc(pair, Elem::I16);
            widen_halves(b, pair, from)
        });
    }
    // Each byte above a byte of zeros.
    [0x1404, 0x3424].map(|order| {
        let pair = byte_perm(b, word, 0, order);
        if from == DType::F8E5M2 { pair } else { widen_e4m3_pair(b, pair) }
    })
}

/// A word of bytes of `word`, the first four, and of a constant, by four digits of `order`.
pub fn byte_perm(b: &mut Builder, word: Val, others: i64, order: i64) -> Val {
    let [others, order] = [others, order].map(|bits| b.int(Ty::I32, bits));
    b.asm("prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", &[word, others, order], &[Ty::I32], Asm::Pure)[0]
}

/// Two `f8e4m3`, the upper bytes of two halves of an `i32`, as `f16`.
fn widen_e4m3_pair(b: &mut Builder, pair: Val) -> Val {
    let both = |b: &mut Builder, half: i64| b.int(Ty::I32, half << 16 | half);
    let (magnitude_mask, sign_mask) = (both(b, 0x7f00), both(b, 0x8000));
    let sign = b.and(pair, sign_mask);
    let magnitude = b.and(pair, magnitude_mask);
    let one = b.int(Ty::I32, 1);
    let magnitude = b.lshr(magnitude, one);
    // The exponent counts from 7 instead of 15.
    let scale = both(b, 0x5c00);
    let wide = b.asm("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", &[magnitude, scale], &[Ty::I32], Asm::Pure)[0];
    // The one pattern that is no number is the largest one: a step more reaches the next bit, which fills those below.
    let (step, reached) = (both(b, 0x0080), both(b, 0x4000));
    let beyond = b.add(magnitude, step);
    let beyond = b.and(beyond, reached);
    let fourteen = b.int(Ty::I32, 14);
    let low = b.lshr(beyond, fourteen);
    let below = b.sub(beyond, low);
    let nan = b.or(beyond, below);
    let wide = b.or(wide, nan);
    b.or(wide, sign)
}

fn format(of: DType) -> &'static str {
    if of == DType::F8E5M2 { "e5m2x2" } else { "e4m3x2" }
}

/// `f32` to an 8-bit float.
pub fn narrow(b: &mut Builder, value: Val, to: DType) -> Val {
    if in_pairs(b) && !value.ty.is_vector() {
        let zero = b.float(Ty::F32, 0.0);
        let pair = narrow_pair(b, [value, zero], to);
        return b.trunc(pair, Elem::I8);
    }
    let Float8Format { fraction, bias, max } = Float8Format::of(to);
    let bits = b.bitcast(value, value.ty.with(Elem::I32));
    let int = |b: &mut Builder, constant: i64| b.int(bits.ty, constant);
    let magnitude_mask = int(b, 0x7fff_ffff);
    let magnitude = b.and(bits, magnitude_mask);
    let infinity = int(b, 0xff << 23);
    let is_nan = b.icmp(IntPredicate::Ugt, magnitude, infinity);
    let largest = int(b, i64::from((max as f32).to_bits()));
    let magnitude = b.op("llvm.intr.umin", &[magnitude, largest], bits.ty);

    // Below the smallest normal number: adding a number whose last place is that of the subnormal ones rounds.
    let step = f64::from(f32::from_bits(((127 + 1 - bias + 23 - fraction as i32) as u32) << 23));
    let step_float = b.float(value.ty, step);
    let as_float = b.bitcast(magnitude, value.ty);
    let sum = b.fadd_strict(as_float, step_float);
    let sum = b.bitcast(sum, bits.ty);
    let step_bits = int(b, i64::from((step as f32).to_bits()));
    let subnormal = b.sub(sum, step_bits);

    // Otherwise just below half of the last place that stays, and one more where that place is odd.
    let shift = int(b, i64::from(23 - fraction));
    let one = int(b, 1);
    let odd = b.lshr(magnitude, shift);
    let odd = b.and(odd, one);
    let rebias = int(b, (i64::from(bias - 127) << 23) + (1 << (22 - fraction)) - 1);
    let normal = b.add(magnitude, rebias);
    let normal = b.add(normal, odd);
    let normal = b.lshr(normal, shift);

    let smallest_normal = int(b, i64::from(127 + 1 - bias) << 23);
    let is_small = b.icmp(IntPredicate::Ult, magnitude, smallest_normal);
    let result = b.select(is_small, subnormal, normal);
    let (twenty_four, sign_mask) = (int(b, 24), int(b, 0x80));
    let sign = b.lshr(bits, twenty_four);
    let sign = b.and(sign, sign_mask);
    let result = b.or(result, sign);
    let nan = int(b, i64::from(F8_NAN));
    let result = b.select(is_nan, nan, result);
    b.trunc(result, Elem::I8)
}

/// An 8-bit float to `f32`, exactly.
pub fn widen(b: &mut Builder, value: Val, from: DType) -> Val {
    if in_pairs(b) && !value.ty.is_vector() {
        let pair = b.zext(value, Elem::I16);
        let halves = widen_pair(b, pair, from);
        return half::widen(b, halves[0], DType::F16);
    }
    if from == DType::F8E5M2 {
        let wide = b.zext(value, Elem::I16);
        let eight = b.int(wide.ty, 8);
        let half = b.shl(wide, eight);
        let half = b.bitcast(half, half.ty.with(elem(DType::F16, b.machine)));
        return half::widen(b, half, DType::F16);
    }
    let bits = b.zext(value, Elem::I32);
    let int = |b: &mut Builder, constant: i64| b.int(bits.ty, constant);
    let (magnitude_mask, sign_mask) = (int(b, 0x7f), int(b, 0x80));
    let magnitude = b.and(bits, magnitude_mask);
    let twenty = int(b, 20);
    let shifted = b.shl(magnitude, twenty);
    // The exponent counts from 7 instead of 127; a subnormal number becomes a normal one.
    let as_float = b.bitcast(shifted, bits.ty.with(Elem::F32));
    let scale = b.float(as_float.ty, f64::from(f32::from_bits((127 + 127 - 7) << 23)));
    let scaled = b.fmul_strict(as_float, scale);
    let scaled = b.bitcast(scaled, bits.ty);
    let (nan, quiet) = (int(b, i64::from(F8_NAN)), int(b, 0x7fc0_0000));
    let is_nan = b.icmp(IntPredicate::Eq, magnitude, nan);
    let result = b.select(is_nan, quiet, scaled);
    let twenty_four = int(b, 24);
    let sign = b.and(bits, sign_mask);
    let sign = b.shl(sign, twenty_four);
    let result = b.or(result, sign);
    b.bitcast(result, as_float.ty)
}
