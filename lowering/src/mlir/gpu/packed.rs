//! Conversions of the elements of one thread, as many at a time as an instruction takes.

use super::memory::{pack, unpack};
use super::{Asm, Builder, Ty};
use crate::dtype::DType;
use crate::mlir::builder::Val;
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
        let group = if values.len().is_multiple_of(4) { 4 } else { 2 };
        return by(b, values, group, |b, group| bytes(b, group, from, to));
    }
    values.iter().map(|&value| cast::cast(b, value, from, to)).collect()
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
    let word = if values.len() == 2 { b.trunc(word, super::Elem::I16) } else { word };
    unpack(b, &[word], to, values.len())
}
