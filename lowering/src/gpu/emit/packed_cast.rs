//! Conversions of the elements of one thread, as many at a time as an instruction takes.

use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::{Asm, Builder, Ty};
use crate::gpu::layout::Distributed;
use crate::mlir::builder::Val;
use crate::mlir::types::Elem;
use crate::mlir::{cast, f8};
use crate::ops::{Cast, Kind};
use crate::support::dtype::DType;

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
        let group = if values.len().is_multiple_of(4) { 4 } else { 2 };
        return by(b, values, group, |b, group| bytes(b, group, from, to));
    }
    values.iter().map(|&value| cast::cast(b, value, from, to)).collect()
}

/// Registers from which on it matters where conversions of `bf16` are computed.
const MANY: usize = 16;

/// `bf16` to `f32`. The lower half of a word is moved up by a multiplication: shifts and masks share the half of a
/// multiprocessor's units that rows of `bf16` have too few of, and multiplications have their own.
pub(super) fn widen(b: &mut Builder, values: &[Val], upwards: Val) -> Vec<Val> {
    let widened = values.iter().map(|&value| match b.words.get(&value.id()) {
        Some(&word) if values.len() >= MANY => {
            let bits = b.mul(word, upwards);
            b.bitcast(bits, Ty::F32)
        }
        _ => cast::cast(b, value, DType::BF16, DType::F32),
    });
    widened.collect()
}

/// `2^16`, which ptxas would make a shift of if it knew: no slice has `2^63` elements.
pub(super) fn bf16_multiplier(b: &mut Builder, length: Val) -> Val {
    let last = b.int(length.ty, 63);
    let nothing = b.lshr(length, last);
    let nothing = b.trunc(nothing, Elem::I32);
    let shift = b.int(Ty::I32, 1 << 16);
    b.add(nothing, shift)
}

/// Whether a kernel widens so many `bf16`, and has room for more multiplications: random numbers are products of integers. What
/// stands around products of matrices waits for those, and has no register to give.
pub(super) fn widens_many(distributed: &Distributed) -> bool {
    let func = &distributed.func;
    let (mut widens, mut multiplies) = (false, false);
    func.body.walk(&mut |op| {
        multiplies |=
            matches!(op.kind, Kind::Philox(_) | Kind::Random(_) | Kind::Dot(_) | Kind::WarpGroupDot(_));
        if let Kind::Cast(Cast { value }) = op.kind {
            let layout = distributed.layouts.get(&value);
            let many = layout.is_some_and(|layout| layout.register_count() >= MANY);
            let [from, to] = [value, op.results[0]].map(|value| func.ty(value).dtype);
            widens |= many && is_bf16_to_f32(from, to);
        }
    });
    widens && !multiplies
}

pub(super) fn is_bf16_to_f32(from: DType, to: DType) -> bool {
    from == DType::BF16 && to == DType::F32
}

/// Groups of values, each converted together.
fn by(
    b: &mut Builder,
    values: &[Val],
    group: usize,
    mut convert: impl FnMut(&mut Builder, &[Val]) -> Vec<Val>,
) -> Vec<Val> {
    values.chunks(group).flat_map(|group| convert(b, group)).collect()
}

/// Two or four floats as saturated bytes: an instruction takes two integers and puts them below what it has.
fn bytes(b: &mut Builder, values: &[Val], from: DType, to: DType) -> Vec<Val> {
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
