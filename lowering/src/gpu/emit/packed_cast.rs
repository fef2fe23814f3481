//! Packed conversions of one thread's elements: as many at a time as an instruction takes.

use tile_ir::ops::{Cast, Kind};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::{Asm, Builder, Ty};
use crate::gpu::layout::Distributed;
use crate::mlir::builder::Val;
use crate::mlir::types::Elem;
use crate::mlir::{cast, f8};

/// The elements as another type.
pub(super) fn cast(b: &mut Builder, values: &[Val], from: DType, to: DType) -> Vec<Val> {
    let pairs = values.len().is_multiple_of(2);
    let chunk = if values.len().is_multiple_of(4) { 4 } else { 2 };
    if matches!(from, DType::I8 | DType::U8) && (to.is_half() || to == DType::F32) && pairs {
        return by(b, values, chunk, |b, chunk| widened_bytes(b, chunk, from, to));
    }
    if to.is_half() && pairs {
        // One instruction rounds two values to 16 bits.
        return by(b, values, 2, |b, pair| {
            let pair = b.pack(pair);
            let result = cast::cast(b, pair, from, to);
            b.unpack(result)
        });
    }
    if to.is_f8() && pairs && f8::in_pairs(b) {
        return by(b, values, 2, |b, pair| {
            let pair = [0, 1].map(|i| cast::single(b, pair[i], from));
            let word = f8::narrow_pair(b, pair, to);
            unpack(b, &[word], to, 2)
        });
    }
    if from.is_f8() && pairs && f8::in_pairs(b) {
        return by(b, values, 2, |b, pair| {
            let word = pack(b, pair, from)[0];
            let halves = f8::widen_pair(b, word, from);
            cast(b, &halves, DType::F16, to)
        });
    }
    let from_f32 = from.is_half() || from == DType::F32;
    if matches!(to, DType::I8 | DType::U8) && from_f32 && pairs {
        return by(b, values, chunk, |b, chunk| saturated_bytes(b, chunk, from, to));
    }
    values.iter().map(|&value| cast::cast(b, value, from, to)).collect()
}

/// Registers from which on the choice of unit for conversions of `bf16` matters.
const MIN_MULTIPLIED: usize = 16;

/// `bf16` to `f32`. A multiplication moves the low half of a word up: shifts and masks share half of an SM's units, which
/// rows of `bf16` saturate, and multiplications have units of their own.
pub(super) fn widen(b: &mut Builder, values: &[Val], multiplier: Val) -> Vec<Val> {
    let widened = values.iter().map(|&value| match b.words.get(&value.id()) {
        Some(&word) if values.len() >= MIN_MULTIPLIED => {
            let bits = b.mul(word, multiplier);
            b.bitcast(bits, Ty::F32)
        }
        _ => cast::cast(b, value, DType::BF16, DType::F32),
    });
    widened.collect()
}

/// `2^16`, opaque to ptxas, which would emit a shift for the constant: no slice has `2^63` elements.
pub(super) fn bf16_multiplier(b: &mut Builder, length: Val) -> Val {
    let last = b.int(length.ty, 63);
    let zero = b.lshr(length, last);
    let zero = b.trunc(zero, Elem::I32);
    let shift = b.int(Ty::I32, 1 << 16);
    b.add(zero, shift)
}

/// Whether a kernel widens so many `bf16`, and has multiplication units to spare: Philox multiplies integers. Code around
/// dots waits for those, and has no registers to spare.
pub(super) fn widens_many(distributed: &Distributed) -> bool {
    let func = &distributed.func;
    let (mut widens, mut multiplies) = (false, false);
    func.body.walk(&mut |op| {
        multiplies |= matches!(
            op.kind,
            Kind::Philox(_) | Kind::Random(_) | Kind::Dot(_) | Kind::WarpGroupDot(_) | Kind::Wgmma(_)
        );
        if let Kind::Cast(Cast { value, .. }) = op.kind {
            let layout = distributed.layouts.get(&value);
            let is_many = layout.is_some_and(|layout| layout.register_count() >= MIN_MULTIPLIED);
            let [from, to] = [value, op.results[0]].map(|value| func.ty(value).dtype);
            widens |= is_many && is_bf16_to_f32(from, to);
        }
    });
    widens && !multiplies
}

pub(super) fn is_bf16_to_f32(from: DType, to: DType) -> bool {
    from == DType::BF16 && to == DType::F32
}

/// Chunks of values, each converted together.
fn by(
    b: &mut Builder,
    values: &[Val],
    chunk: usize,
    mut convert: impl FnMut(&mut Builder, &[Val]) -> Vec<Val>,
) -> Vec<Val> {
    values.chunks(chunk).flat_map(|chunk| convert(b, chunk)).collect()
}

/// Two or four floats as saturated bytes: an instruction packs two integers below the bytes it is given.
fn saturated_bytes(b: &mut Builder, values: &[Val], from: DType, to: DType) -> Vec<Val> {
    let wide: Vec<Val> = values
        .iter()
        .map(|&value| {
            let single = cast::cast(b, value, from, DType::F32);
            cast::saturated(b, single, DType::I32)
        })
        .collect();
    let text = if to == DType::I8 {
        "cvt.pack.sat.s8.s32.b32 $0, $1, $2, $3;"
    } else {
        "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;"
    };
    let zero = b.int(Ty::I32, 0);
    let word = wide.chunks(2).rev().fold(zero, |above, pair| {
        b.asm(text, "=r,r,r,r", &[pair[1], pair[0], above], &[Ty::I32], Asm::Pure)[0]
    });
    let word = if values.len() == 2 { b.trunc(word, Elem::I16) } else { word };
    unpack(b, &[word], to, values.len())
}

/// Two or four bytes as floats, exactly: they are the low bits of floats whose unit in the last place is 1, from which the rest is
/// subtracted. The conversion of an integer takes its unit as long as eight such instructions.
fn widened_bytes(b: &mut Builder, values: &[Val], from: DType, to: DType) -> Vec<Val> {
    let word = pack(b, values, from)[0];
    let mut word = b.zext(word, Elem::I32);
    let is_signed = from == DType::I8;
    if is_signed && to != DType::BF16 {
        // The byte is then 128 more than the element.
        let signs = b.int(Ty::I32, 0x8080_8080);
        word = b.xor(word, signs);
    }
    let above = if is_signed { 128.0 } else { 0.0 };
    if to == DType::F32 {
        return (0..values.len() as i64)
            .map(|i| {
                let bits = f8::byte_perm(b, word, 0x4b00_0000, 0x7650 + i);
                let float = b.bitcast(bits, Ty::F32);
                let rest = b.float(Ty::F32, f64::from(1 << 23) + above);
                b.fsub_strict(float, rest)
            })
            .collect();
    }
    let pairs = (0..values.len() as i64).step_by(2).flat_map(|i| {
        let order = 0x4040 + (i + 1) * 0x100 + i;
        if to == DType::F16 {
            let bits = f8::byte_perm(b, word, 0x6464_6464, order);
            let ty = Ty::vector(Elem::F16, 2);
            let floats = b.bitcast(bits, ty);
            let rest = b.float(ty, 1024.0 + above);
            let pair = b.fsub_strict(floats, rest);
            return b.unpack(pair);
        }
        // A `bf16` has room for seven bits: 128 and these, less 128 or twice as much.
        let bits = f8::byte_perm(b, word, 0x4343_4343, order);
        let [low_bits, rest_bits, minus_one] =
            [0xff7f_ff7f, 0xff80_ff80, 0xbf80_bf80].map(|bits| b.int(Ty::I32, bits));
        let low = b.and(bits, low_bits);
        let mut rest = b.and(bits, rest_bits);
        if !is_signed {
            let flipped = b.int(Ty::I32, 0x0080_0080);
            rest = b.xor(rest, flipped);
        }
        let mut pair = fma_bf16(b, rest, minus_one, low);
        if !is_signed {
            let [one, most] = [0x3f80_3f80, 0x4300_4300].map(|bits| b.int(Ty::I32, bits));
            pair = fma_bf16(b, pair, one, most);
        }
        unpack(b, &[pair], to, 2)
    });
    pairs.collect()
}

/// A pair of `bf16`s times another one and a third: every GPU has the instruction, unlike that of a difference.
fn fma_bf16(b: &mut Builder, x: Val, y: Val, z: Val) -> Val {
    b.asm("fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", &[x, y, z], &[Ty::I32], Asm::Pure)[0]
}
