//! `sin`, `cos` and `tan`.
//!
//! `|x| = n * pi/2 + r` with `|r|` at most a little above `pi/4`; the low bits of `n` say which of the two polynomials
//! stands for the result, and with which sign.
//!
//! In `f32`, `sin r = r + r^3 s(r^2)`, 3 coefficients, error 2^-27.8; `cos r = 1 - r^2/2 + r^4 c(r^2)`, 3 coefficients,
//! 2^-32.9. The remainder of arguments below 65536 takes `pi/2` in three parts by fused multiplication: the first step
//! is exact (a multiple of 2^-24 below 1), the others round to `eps` of the remainder each. A host without fused
//! multiplication takes the remainder in `f64`, with a first part of 30 bits. 1.7 ulp.
//!
//! In `f64` there are 6 coefficients each, errors 2^-57.9 and 2^-63.9. The remainder of arguments below 2^20 takes `pi/2`
//! in four parts. Three of 33 bits have exact products with `n`, and what the differences round off is kept as a tail,
//! so that the remainder is right to 2^-100. 1.2 ulp.
//!
//! `tan` is their quotient: the errors of both and half an ulp, or a GPU's quotient of `f32` (`quotient`).
//!
//! Larger arguments are the business of [`super::reduce`].

use super::formula::{fma_by, fma_to, fused, gpu, less, polynomial, round_scaled};
use super::quotient::refined;
use super::reduce;
use crate::mlir::{Builder, Elem, IntPredicate, Val};
use std::f64::consts::FRAC_2_PI;

/// `pi/2` as a sum of three `f32`.
const HALF_PI_F32: [f64; 3] = [1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15];
/// `pi/2` as 30 bits and the rest.
const HALF_PI_SHORT: [f64; 2] = [1.570796325802803, 9.920935796805404e-10];
/// `pi/2` as three times 33 bits and the rest.
const HALF_PI_F64: [f64; 4] =
    [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.478427660368898e-32];

/// `(sin(r) - r) / r^3` and `(cos(r) - 1 + r^2/2) / r^4`, in `r^2`.
struct Series {
    sin: &'static [f64],
    cos: &'static [f64],
}

const F32: Series = Series {
    sin: &[-0.16666653752326965, 0.008332106284797192, -0.0001950783480424434],
    cos: &[0.04166664555668831, -0.0013887305976822972, 2.443164339638315e-05],
};
const F64: Series = Series {
    sin: &[
        -0.1666666666666663,
        0.008333333333321842,
        -0.00019841269829361228,
        2.7557313539892988e-06,
        -2.505073466097607e-08,
        1.58954513162086e-10,
    ],
    cos: &[
        0.041666666666666595,
        -0.0013888888888873342,
        2.4801587289002052e-05,
        -2.7557314217002486e-07,
        2.0875705382172632e-09,
        -1.1358747807286073e-11,
    ],
};

pub fn sin_f32(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = sine_f32(b, x, 0);
    signed(b, value, quadrant, Some(x))
}

pub fn cos_f32(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = sine_f32(b, x, 1);
    signed(b, value, quadrant, None)
}

pub fn sin_f64(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = sine_f64(b, x, 0);
    signed(b, value, quadrant, Some(x))
}

pub fn cos_f64(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = sine_f64(b, x, 1);
    signed(b, value, quadrant, None)
}

pub fn tan_f32(b: &mut Builder, x: Val) -> Val {
    let both = both_f32(b, x);
    tangent(b, x, both)
}

pub fn tan_f64(b: &mut Builder, x: Val) -> Val {
    let both = both_f64(b, x);
    tangent(b, x, both)
}

/// The sine and the cosine of what is left of `|x|`, and its quadrant.
type Both = ([Val; 2], Val);

/// The sine by the cosine; in odd quadrants the cosine by the sine, negated.
fn tangent(b: &mut Builder, x: Val, (both, quadrant): Both) -> Val {
    let (numerator, _) = choose(b, quadrant, 0, both);
    let (denominator, _) = choose(b, quadrant, 1, both);
    let value = if gpu(b) && x.ty.elem == Elem::F32 {
        refined(b, numerator, denominator).rounded
    } else {
        b.fdiv(numerator, denominator)
    };
    let twice = b.add(quadrant, quadrant);
    signed(b, value, twice, Some(x))
}

/// The magnitude of `sin(|x| + quadrants * pi/2)` but for the sign that the quadrant tells.
fn sine_f32(b: &mut Builder, x: Val, quadrants: i64) -> (Val, Val) {
    let (both, quadrant) = both_f32(b, x);
    choose(b, quadrant, quadrants, both)
}

fn both_f32(b: &mut Builder, x: Val) -> Both {
    let magnitude = b.fabs(x);
    let near = remainder_f32(b, magnitude);
    let within = less(b, magnitude, 65536.0);
    let [r, quadrant] = reduce::far(b, [magnitude, within], near, reduce::remainder_f32);
    let square = b.fmul_strict(r, r);
    let s = polynomial(b, square, F32.sin);
    let cube = b.fmul_strict(square, r);
    let sine = b.fma(cube, s, r);
    let c = polynomial(b, square, F32.cos);
    let c = fma_to(b, square, c, -0.5);
    let cosine = fma_to(b, square, c, 1.0);
    ([sine, cosine], quadrant)
}

/// The remainder, and the multiple of `pi/2` taken off, of which the two low bits count.
fn remainder_f32(b: &mut Builder, magnitude: Val) -> [Val; 2] {
    if fused(b) {
        let (quadrant, n) = round_scaled(b, magnitude, FRAC_2_PI);
        let remainder = HALF_PI_F32.iter().fold(magnitude, |r, part| fma_by(b, n, -part, r));
        return [remainder, quadrant];
    }
    let wide = b.convert("llvm.fpext", magnitude, Elem::F64);
    let (bits, n) = round_scaled(b, wide, FRAC_2_PI);
    let remainder = HALF_PI_SHORT.iter().fold(wide, |r, part| fma_by(b, n, -part, r));
    let remainder = b.convert("llvm.fptrunc", remainder, Elem::F32);
    [remainder, b.trunc(bits, Elem::I32)]
}

/// As [`sine_f32`].
fn sine_f64(b: &mut Builder, x: Val, quadrants: i64) -> (Val, Val) {
    let (both, quadrant) = both_f64(b, x);
    choose(b, quadrant, quadrants, both)
}

fn both_f64(b: &mut Builder, x: Val) -> Both {
    let magnitude = b.fabs(x);
    let near = remainder_f64(b, magnitude);
    let within = less(b, magnitude, 1_048_576.0);
    let [r, tail, quadrant] = reduce::far(b, [magnitude, within], near, reduce::remainder_f64);
    let [one, half] = [1.0, 0.5].map(|value| b.float(x.ty, value));
    let square = b.fmul_strict(r, r);
    let halved = b.fmul_strict(square, half);
    let cap = b.fsub_strict(one, halved);
    // sin(r + tail) = r + (tail (1 - r^2/2) + r^3 s(r^2)).
    let s = polynomial(b, square, F64.sin);
    let cube = b.fmul_strict(square, r);
    let slope = b.fmul_strict(tail, cap);
    let small = b.fma(cube, s, slope);
    let sine = b.fadd_strict(r, small);
    // cos(r + tail) = (1 - r^2/2) + (what that rounded off + r^4 c(r^2) - r tail).
    let c = polynomial(b, square, F64.cos);
    let fourth = b.fmul_strict(square, square);
    let off = b.fsub_strict(one, cap);
    let off = b.fsub_strict(off, halved);
    let slope = b.fmul_strict(r, tail);
    let off = b.fsub_strict(off, slope);
    let small = b.fma(fourth, c, off);
    let cosine = b.fadd_strict(cap, small);
    ([sine, cosine], quadrant)
}

/// The remainder, what it rounded off, and the multiple of `pi/2`.
fn remainder_f64(b: &mut Builder, magnitude: Val) -> [Val; 3] {
    let (quadrant, n) = round_scaled(b, magnitude, FRAC_2_PI);
    let parts = HALF_PI_F64.map(|part| b.float(magnitude.ty, part));
    let first = b.fmul_strict(n, parts[0]);
    let mut remainder = b.fsub_strict(magnitude, first);
    let mut tail = None;
    for part in &parts[1..3] {
        let product = b.fmul_strict(n, *part);
        let next = b.fsub_strict(remainder, product);
        let taken = b.fsub_strict(remainder, next);
        let off = b.fsub_strict(taken, product);
        tail = Some(tail.map_or(off, |tail| b.fadd_strict(tail, off)));
        remainder = next;
    }
    let last = b.fmul_strict(n, parts[3]);
    let tail = tail.expect("two parts went before");
    [remainder, b.fsub_strict(tail, last), quadrant]
}

/// The cosine in odd quadrants, the sine in even ones, after `quadrants` more of them.
fn choose(b: &mut Builder, quadrant: Val, quadrants: i64, [sine, cosine]: [Val; 2]) -> (Val, Val) {
    let [quadrants, one, zero] = [quadrants, 1, 0].map(|value| b.int(quadrant.ty, value));
    let quadrant = b.add(quadrant, quadrants);
    let low = b.and(quadrant, one);
    let even = b.icmp(IntPredicate::Eq, low, zero);
    (b.select(even, sine, cosine), quadrant)
}

/// `value` negated in the quadrants 2 and 3, and where `flip`, if given, is negative.
fn signed(b: &mut Builder, value: Val, quadrant: Val, flip: Option<Val>) -> Val {
    let bits = value.ty.elem.bits();
    let second = b.int(quadrant.ty, i64::from(bits - 2));
    let mut sign = b.shl(quadrant, second);
    if let Some(flip) = flip {
        let flip = b.bitcast(flip, quadrant.ty);
        sign = b.xor(sign, flip);
    }
    let top = b.int(quadrant.ty, 1 << (bits - 1));
    let sign = b.and(sign, top);
    let magnitude = b.bitcast(value, quadrant.ty);
    let result = b.xor(magnitude, sign);
    b.bitcast(result, value.ty)
}
