//! Remainders of division by `pi/2` of arguments so large that a few parts of it do not do (Payne and Hanek).
//!
//! `x = m * 2^k` with an integer `m`. Of the product `m * 2^k * 2/pi` only the two low bits of the integer part and the
//! fraction matter, and they come from `m` and a window of the bits of `2/pi`: those above it give multiples of 4, those
//! below it less than the last place. The product is integer arithmetic and exact; the window leaves 70 bits of fraction
//! for `f32`, whose arguments come no nearer to a multiple of `pi/2` than 2^-31.
//!
//! It is code for one number at a time, under a branch that is taken when any lane needs it.

use super::trig::Reduced;
use super::{Builder, Val};
use crate::mlir::{Elem, IntPredicate, Ty};

/// `2/pi` in words of 32 bits, after a word of zeros.
const TWO_OVER_PI: [i64; 8] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// Replaces what was found for the lanes that are not `within` the reach of the ordinary way.
pub(super) fn far(b: &mut Builder, magnitude: Val, within: Val, near: Reduced) -> Reduced {
    let known = [near.remainder, near.quadrant];
    let types = known.map(|value| value.ty);
    let beyond = b.not(within);
    let any = if beyond.ty.is_vector() { b.call("llvm.vector.reduce.or", &[beyond], Ty::I1) } else { beyond };
    let found = b.if_else(
        any,
        &types,
        |b| {
            if !magnitude.ty.is_vector() {
                let found = remainder_f32(b, magnitude);
                return vec![found.remainder, found.quadrant];
            }
            b.for_lanes(magnitude.ty.lanes, &known, |b, lane, known| {
                replace(b, [magnitude, beyond, lane], known)
            })
        },
        |_| known.to_vec(),
    );
    Reduced { remainder: found[0], quadrant: found[1] }
}

/// One lane of the remainders and quadrants replaced where it is beyond reach.
fn replace(b: &mut Builder, [magnitude, beyond, lane]: [Val; 3], known: &[Val]) -> Vec<Val> {
    let one = b.extract_at(magnitude, lane);
    let here = b.extract_at(beyond, lane);
    let found = remainder_f32(b, one);
    [found.remainder, found.quadrant]
        .into_iter()
        .zip(known)
        .map(|(new, &old)| {
            let before = b.extract_at(old, lane);
            let after = b.select(here, new, before);
            b.insert_at(old, after, lane)
        })
        .collect()
}

/// The words `index..index + count` of the table, `index` up to `last`.
fn words(b: &mut Builder, index: Val, last: usize, count: usize) -> Vec<Val> {
    let mut words: Vec<Val> = (0..count).map(|j| b.int(Ty::I64, TWO_OVER_PI[j])).collect();
    for i in 1..=last {
        let position = b.int(index.ty, i as i64);
        let here = b.icmp(IntPredicate::Eq, index, position);
        for (j, word) in words.iter_mut().enumerate() {
            let other = b.int(Ty::I64, TWO_OVER_PI[i + j]);
            *word = b.select(here, other, *word);
        }
    }
    words
}

fn remainder_f32(b: &mut Builder, x: Val) -> Reduced {
    let bits = b.bitcast(x, Ty::I32);
    let wide = b.zext(bits, Elem::I64);
    let [mask, implied, width] = [0x7f_ffff, 0x80_0000, 23].map(|value| b.int(Ty::I64, value));
    let mantissa = b.and(wide, mask);
    let mantissa = b.or(mantissa, implied);
    let exponent = b.lshr(wide, width);
    // The window starts at the bit of 2/pi that the lowest bit of the mantissa lifts to 2.
    let bias = b.int(Ty::I64, 120);
    let start = b.sub(exponent, bias);
    let [five, low] = [5, 31].map(|value| b.int(Ty::I64, value));
    let index = b.lshr(start, five);
    let offset = b.and(start, low);
    let table = words(b, index, 4, 4);
    let [half, mask] = [32, 0xffff_ffff].map(|value| b.int(Ty::I64, value));
    let down = b.sub(half, offset);
    let window: Vec<Val> = table
        .windows(2)
        .map(|pair| {
            let high = b.shl(pair[0], half);
            let both = b.or(high, pair[1]);
            let word = b.lshr(both, down);
            b.and(word, mask)
        })
        .collect();
    let products: Vec<Val> = window.into_iter().map(|word| b.mul(word, mantissa)).collect();
    let first = b.shl(products[0], half);
    let third = b.lshr(products[2], half);
    let sum = b.add(first, products[1]);
    let turns = b.add(sum, third);
    split_f32(b, x, turns)
}

/// A number of quarter turns modulo 4, in units of 2^-62, as the nearest integer and the angle that remains.
fn split_f32(b: &mut Builder, x: Val, turns: Val) -> Reduced {
    let [half, width] = [1 << 61, 62].map(|value| b.int(Ty::I64, value));
    let above = b.add(turns, half);
    let quadrant = b.lshr(above, width);
    let whole = b.shl(quadrant, width);
    let fraction = b.sub(turns, whole);
    let fraction = b.convert("llvm.sitofp", fraction, Elem::F64);
    let unit = b.float(Ty::F64, std::f64::consts::FRAC_PI_2 * 2.0f64.powi(-62));
    let remainder = b.fmul_strict(fraction, unit);
    let remainder = b.convert("llvm.fptrunc", remainder, Elem::F32);
    // Infinity and NaN have none.
    let zero_or_nan = b.fsub_strict(x, x);
    let remainder = b.fadd_strict(remainder, zero_or_nan);
    Reduced { remainder, quadrant: b.trunc(quadrant, Elem::I32) }
}
