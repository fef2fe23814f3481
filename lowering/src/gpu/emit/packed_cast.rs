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
        let chunk = if values.len().is_multiple_of(4) { 4 } else { 2 };
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
