//! Remainders of division by `pi/2` of arguments so large that a few parts of it do not do (Payne and Hanek).
//!
//! `x = m * 2^k` with an integer `m`. Of the product `m * 2^k * 2/pi` only the two low bits of the integer part and the
//! fraction matter, and they come from `m` and a window of the bits of `2/pi`: those above it give multiples of 4, those
//! below it less than the last place. The product is integer arithmetic and exact; what the window cuts off is below
//! 2^-70 for `f32` and 2^-126 for `f64`, whose arguments come no nearer to a multiple of `pi/2` than 2^-31 and 2^-62.
//!
//! It is code for one lane at a time, under a branch that is taken when any lane needs it. The window is picked by
//! selecting, so that no memory is needed.

use crate::mlir::{Builder, Elem, IntPredicate, Ty, Val};

/// `2/pi` in words of 32 bits, after a word of zeros.
const TWO_OVER_PI_32: [i64; 8] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// `2/pi` in words of 64 bits, after a word of zeros.
const TWO_OVER_PI_64: [u64; 20] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// `pi/2` as 26 bits and the rest.
const HALF_PI: [f64; 2] = [1.5707963109016418, 1.5893254773528196e-08];

/// Replaces the remainders of the lanes of `magnitude` that are not `within` the range of the ordinary reduction by those
/// of `remainder`, a lane at a time.
pub(super) fn far<const N: usize>(
    b: &mut Builder,
    [magnitude, within]: [Val; 2],
    near: [Val; N],
    remainder: fn(&mut Builder, Val) -> [Val; N],
) -> [Val; N] {
    let types = near.map(|value| value.ty);
    let beyond = b.not(within);
    let any = if beyond.ty.is_vector() { b.call("llvm.vector.reduce.or", &[beyond], Ty::I1) } else { beyond };
    let found = b.if_else(
        any,
        &types,
        |b| {
            if !magnitude.ty.is_vector() {
                return remainder(b, magnitude).to_vec();
            }
            b.for_lanes(magnitude.ty.lanes, &near, |b, lane, known| {
                let one = b.extract_at(magnitude, lane);
                let here = b.extract_at(beyond, lane);
                let found = remainder(b, one);
                known.iter().zip(found).map(|(&old, new)| replace(b, old, [lane, here, new])).collect()
            })
        },
        |_| near.to_vec(),
    );
    std::array::from_fn(|i| found[i])
}

/// `vector` with `new` in a lane, if `here`.
fn replace(b: &mut Builder, vector: Val, [lane, here, new]: [Val; 3]) -> Val {
    let before = b.extract_at(vector, lane);
    let after = b.select(here, new, before);
    b.insert_at(vector, after, lane)
}

/// `table[index..index + count]`: moved by the powers of two that `index` has, from the largest.
fn words(b: &mut Builder, table: &[i64], index: Val, count: usize) -> Vec<Val> {
    let mut words: Vec<Val> = table.iter().map(|&word| b.int(Ty::I64, word)).collect();
    let mut step = (table.len() - count).next_power_of_two();
    while step > 0 {
        let bit = b.int(index.ty, step as i64);
        let bit = b.and(index, bit);
        let zero = b.int(index.ty, 0);
        let moved = b.icmp(IntPredicate::Ne, bit, zero);
        let left = words.len().min(step - 1 + count);
        words = (0..left)
            .map(|i| match words.get(i + step) {
                Some(&further) => b.select(moved, further, words[i]),
                None => words[i],
            })
            .collect();
        step /= 2;
    }
    words
}

/// The mantissa as an integer, and the exponent with its bias less `bias`: where the window starts.
fn taken_apart(b: &mut Builder, x: Val, bias: i64) -> (Val, Val) {
    let width = if x.ty == Ty::F32 { 23 } else { 52 };
    let bits = b.bitcast(x, Ty::scalar(x.ty.elem.as_int()));
    let bits = b.zext(bits, Elem::I64);
    let [mask, implied, width, bias] =
        [(1 << width) - 1, 1 << width, width, bias].map(|value| b.int(Ty::I64, value));
    let mantissa = b.and(bits, mask);
    let mantissa = b.or(mantissa, implied);
    let exponent = b.lshr(bits, width);
    (mantissa, b.sub(exponent, bias))
}

/// The remainder and the multiple of `pi/2` modulo 4. The product holds quarter quarters modulo 4 in units of 2^-62.
pub(super) fn remainder_f32(b: &mut Builder, x: Val) -> [Val; 2] {
    let (mantissa, start) = taken_apart(b, x, 120);
    let [five, low, half, mask] = [5, 31, 32, 0xffff_ffff].map(|value| b.int(Ty::I64, value));
    let index = b.lshr(start, five);
    let offset = b.and(start, low);
    let down = b.sub(half, offset);
    let table = words(b, &TWO_OVER_PI_32, index, 4);
    let mut products = vec![];
    for pair in table.windows(2) {
        let high = b.shl(pair[0], half);
        let both = b.or(high, pair[1]);
        let word = b.lshr(both, down);
        let word = b.and(word, mask);
        products.push(b.mul(word, mantissa));
    }
    let first = b.shl(products[0], half);
    let third = b.lshr(products[2], half);
    let sum = b.add(first, products[1]);
    let quarters = b.add(sum, third);
    let (quadrant, fraction) = nearest(b, quarters);
    let fraction = b.convert("llvm.sitofp", fraction, Elem::F64);
    let unit = b.float(Ty::F64, std::f64::consts::FRAC_PI_2 * 2.0f64.powi(-62));
    let remainder = b.fmul_strict(fraction, unit);
    let remainder = b.convert("llvm.fptrunc", remainder, Elem::F32);
    [finite(b, x, remainder), b.trunc(quadrant, Elem::I32)]
}

/// A number in units of 2^-62 as the nearest integer modulo 4, and the rest.
fn nearest(b: &mut Builder, quarters: Val) -> (Val, Val) {
    let [half, width] = [1 << 61, 62].map(|value| b.int(Ty::I64, value));
    let above = b.add(quarters, half);
    let quadrant = b.lshr(above, width);
    let whole = b.shl(quadrant, width);
    (quadrant, b.sub(quarters, whole))
}

/// NaN where `x` is not finite.
fn finite(b: &mut Builder, x: Val, remainder: Val) -> Val {
    let zero_or_nan = b.fsub_strict(x, x);
    b.fadd_strict(remainder, zero_or_nan)
}

/// The remainder, what it rounded off, and the multiple of `pi/2` modulo 4.
pub(super) fn remainder_f64(b: &mut Builder, x: Val) -> [Val; 3] {
    let (mantissa, start) = taken_apart(b, x, 1013);
    let [six, low] = [6, 63].map(|value| b.int(Ty::I64, value));
    let index = b.lshr(start, six);
    let offset = b.and(start, low);
    let table = words(b, &TWO_OVER_PI_64.map(|word| word as i64), index, 4);
    let mut limbs = vec![];
    for pair in table.windows(2) {
        let word = b.op("llvm.intr.fshl", &[pair[0], pair[1], offset], Ty::I64);
        limbs.extend(halves(b, word));
    }
    let digits = product(b, mantissa, &limbs);
    let half = b.int(Ty::I64, 32);
    let high = b.shl(digits[0], half);
    let quarters = b.or(high, digits[1]);
    let (quadrant, fraction) = nearest(b, quarters);
    let [remainder, tail] = angle(b, fraction, [digits[2], digits[3]]);
    [finite(b, x, remainder), tail, quadrant]
}

/// The high and the low 32 bits.
fn halves(b: &mut Builder, word: Val) -> [Val; 2] {
    let [half, mask] = [32, 0xffff_ffff].map(|value| b.int(Ty::I64, value));
    [b.lshr(word, half), b.and(word, mask)]
}

/// The digits of 32 bits of `mantissa * limbs`, as many as there are limbs, the highest first.
fn product(b: &mut Builder, mantissa: Val, limbs: &[Val]) -> Vec<Val> {
    let [upper, lower] = halves(b, mantissa);
    let zero = b.int(Ty::I64, 0);
    let mut carry = zero;
    let mut digits = vec![];
    for (k, &limb) in limbs.iter().enumerate().rev() {
        let here = b.mul(lower, limb);
        let beyond = limbs.get(k + 1).map_or(zero, |&next| b.mul(upper, next));
        let [here_high, here_low] = halves(b, here);
        let [beyond_high, beyond_low] = halves(b, beyond);
        let sum = b.add(here_low, beyond_low);
        let sum = b.add(sum, carry);
        let [sum_high, digit] = halves(b, sum);
        carry = b.add(here_high, beyond_high);
        carry = b.add(carry, sum_high);
        digits.push(digit);
    }
    digits.reverse();
    digits
}

/// A fraction of a quarter turn, in units of 2^-62 with 64 bits more, as an angle and what it rounded off.
fn angle(b: &mut Builder, fraction: Val, more: [Val; 2]) -> [Val; 2] {
    let half = b.int(Ty::I64, 32);
    let top = b.ashr(fraction, half);
    let [_, second] = halves(b, fraction);
    let mut parts = vec![];
    for (digit, exponent) in [top, second, more[0], more[1]].into_iter().zip([-30, -62, -94, -126]) {
        let number = b.convert("llvm.sitofp", digit, Elem::F64);
        let unit = b.float(Ty::F64, 2.0f64.powi(exponent));
        parts.push(b.fmul_strict(number, unit));
    }
    let [high, low] = two_sum(b, parts[0], parts[1]);
    let low = b.fadd_strict(low, parts[2]);
    let low = b.fadd_strict(low, parts[3]);
    let [high, low] = two_sum(b, high, low);
    // 26 bits times 26 bits is exact.
    let bits = b.bitcast(high, Ty::I64);
    let mask = b.int(Ty::I64, -1 << 27);
    let first = b.and(bits, mask);
    let first = b.bitcast(first, Ty::F64);
    let second = b.fsub_strict(high, first);
    let second = b.fadd_strict(second, low);
    let [short, rest, whole] =
        [HALF_PI[0], HALF_PI[1], std::f64::consts::FRAC_PI_2].map(|value| b.float(Ty::F64, value));
    let exact = b.fmul_strict(first, short);
    let small = b.fmul_strict(first, rest);
    let small = b.fma(second, whole, small);
    two_sum(b, exact, small)
}

/// A sum and what it rounded off, of a larger and a smaller number.
fn two_sum(b: &mut Builder, large: Val, small: Val) -> [Val; 2] {
    let sum = b.fadd_strict(large, small);
    let taken = b.fsub_strict(sum, large);
    [sum, b.fsub_strict(small, taken)]
}
