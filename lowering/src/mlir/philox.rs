//! Philox-4x32-10 on machine values, scalars or vectors alike.

use tile_ir::ops::RandomForm;

use super::builder::{Asm, Builder, Val};
use super::machine::Machine;
use super::types::{Elem, Ty};

const ROUNDS: usize = 10;
const MULTIPLIERS: [i64; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// The increment of the key from round to round: the golden ratio and the square root of 3 less 1.
const WEYL: [i64; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The four words of a counter's block; `key` are two `i32` scalars.
pub fn block(b: &mut Builder, key: [Val; 2], counter: [Val; 4]) -> [Val; 4] {
    let mut words = counter;
    for round in 0..ROUNDS {
        let keys = [0, 1].map(|i| round_key(b, key[i], WEYL[i], round, words[0].ty.lanes));
        let (high0, low0) = mul_wide(b, words[0], MULTIPLIERS[0]);
        let (high1, low1) = mul_wide(b, words[2], MULTIPLIERS[1]);
        let first = xor_words(b, [high1, words[1], keys[0]]);
        let third = xor_words(b, [high0, words[3], keys[1]]);
        words = [first, low1, third, low0];
    }
    words
}

/// The key of a round: a scalar addition, the same for all elements.
fn round_key(b: &mut Builder, key: Val, weyl: i64, round: usize, lanes: u16) -> Val {
    let step = (weyl as u32).wrapping_mul(round as u32);
    let step = b.int(key.ty, i64::from(step as i32));
    let key = b.add(key, step);
    if lanes == 0 { key } else { b.splat(key, lanes) }
}

/// The exclusive or of three words, less those that are zero at build: the upper words of most counters.
fn xor_words(b: &mut Builder, words: [Val; 3]) -> Val {
    let zero = b.int(words[0].ty, 0);
    let rest = words.into_iter().filter(|word| word.id() != zero.id());
    rest.reduce(|one, other| b.xor(one, other)).unwrap_or(zero)
}

/// The upper and lower half of a 64-bit product.
fn mul_wide(b: &mut Builder, word: Val, multiplier: i64) -> (Val, Val) {
    let zero = b.int(word.ty, 0);
    if word.id() == zero.id() {
        return (zero, zero);
    }
    if b.machine == Machine::Nvptx {
        // LLVM would keep the halves together and mix 64 bits where 32 do.
        let text = format!("{{ .reg .b64 t; mul.wide.u32 t, $2, {multiplier:#x}; mov.b64 {{$0, $1}}, t; }}");
        let halves = b.asm(&text, "=r,=r,r", &[word], &[Ty::I32; 2], Asm::Pure);
        return (halves[1], halves[0]);
    }
    let wide = b.zext(word, Elem::I64);
    let multiplier = b.int(wide.ty, multiplier);
    let product = b.mul(wide, multiplier);
    (high_word(b, product), b.trunc(product, Elem::I32))
}

fn high_word(b: &mut Builder, wide: Val) -> Val {
    let shift = b.int(wide.ty, 32);
    let high = b.lshr(wide, shift);
    b.trunc(high, Elem::I32)
}

/// A seed as the two words of the key.
pub fn key(b: &mut Builder, seed: Val) -> [Val; 2] {
    [b.trunc(seed, Elem::I32), high_word(b, seed)]
}

/// The counter of an offset's block, and the word of the offset in it. A 32-bit offset that is never
/// negative needs no upper word.
pub fn counter_of(b: &mut Builder, offset: Val, signed: bool, is_negative: bool) -> ([Val; 4], Val) {
    let two = |b: &mut Builder, ty: Ty| b.int(ty, 2);
    let (low, high, own) = if offset.ty.elem.bits() <= 32 && !(signed && is_negative) {
        let offset = b.zext(offset, Elem::I32);
        let shift = two(b, offset.ty);
        (b.lshr(offset, shift), b.int(offset.ty, 0), offset)
    } else {
        let wide = if signed { b.sext(offset, Elem::I64) } else { b.zext(offset, Elem::I64) };
        let shift = two(b, wide.ty);
        let index = b.lshr(wide, shift);
        (b.trunc(index, Elem::I32), high_word(b, index), b.trunc(wide, Elem::I32))
    };
    let (zero, three) = (b.int(low.ty, 0), b.int(low.ty, 3));
    ([low, high, zero, zero], b.and(own, three))
}

/// The counter advanced by `distance`.
pub fn advance(b: &mut Builder, counter: [Val; 4], distance: i64) -> [Val; 4] {
    if distance == 0 {
        return counter;
    }
    let [low, high, ..] = counter;
    let by = b.int(low.ty, distance);
    let next = b.add(low, by);
    // A sum below what was added has wrapped.
    let wrapped = b.icmp(super::IntPredicate::Ult, next, by);
    let carry = b.zext(wrapped, Elem::I32);
    [next, b.add(high, carry), counter[2], counter[3]]
}

/// The counter advanced by `distance`, where the counter is a multiple of a power of two above it. The first rounds of
/// the upper words are then computed once for all of them.
pub fn advance_aligned(b: &mut Builder, counter: [Val; 4], distance: i64) -> [Val; 4] {
    if distance == 0 {
        return counter;
    }
    let by = b.int(counter[0].ty, distance);
    [b.or(counter[0], by), counter[1], counter[2], counter[3]]
}

/// Converts a word to the requested form.
pub fn convert(b: &mut Builder, word: Val, form: RandomForm) -> Val {
    match form {
        RandomForm::Bits => word,
        RandomForm::Uniform => {
            // The bits of a float in [1, 2), less 1: exact, and no conversion, which is slow on a GPU.
            let (shift, one) = (b.int(word.ty, 9), b.int(word.ty, 0x3f80_0000));
            let fraction = b.lshr(word, shift);
            let bits = b.or(fraction, one);
            let float = b.bitcast(bits, word.ty.with(Elem::F32));
            let one = b.float(float.ty, 1.0);
            b.fsub_strict(float, one)
        }
    }
}
