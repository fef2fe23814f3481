//! `sin` and `cos`.
//!
//! `|x| = n * pi/2 + r` with `|r|` at most a little above `pi/4`; the low bits of `n` say which of the two polynomials
//! stands for the result, and with which sign. In `f32`:
//!
//! `sin r = r + r^3 s(r^2)`, 3 coefficients, error 2^-27.8; `cos r = 1 - r^2/2 + r^4 c(r^2)`, 3 coefficients, 2^-32.9.
//!
//! The remainder of arguments below 65536 takes `pi/2` in three parts by fused multiplication: the first step is exact
//! (a multiple of 2^-24 below 1), the others round to `eps` of the remainder each. A host without fused multiplication
//! takes the remainder in `f64`, with a first part of 30 bits. Larger arguments are the business of [`super::reduce`].
//! 1.6 ulp.

use super::{Builder, Val, fma_by, fma_to, fused, less, polynomial, reduce, round_scaled};
use crate::mlir::{Elem, IntPredicate};
use std::f64::consts::FRAC_2_PI;

/// `pi/2` as a sum of three `f32`.
const HALF_PI_F32: [f64; 3] = [1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15];
/// `pi/2` as 30 bits and the rest.
const HALF_PI_SHORT: [f64; 2] = [1.570796325802803, 9.920935796805404e-10];
/// `(sin(r) / r - 1) / r^2` in `r^2`.
const SIN_F32: &[f64] = &[-0.16666653752326965, 0.008332106284797192, -0.0001950783480424434];
/// `cos(r)` in `r^2`.
const COS_F32: &[f64] = &[1.0, -0.5, 0.04166664555668831, -0.0013887305976822972, 2.443164339638315e-05];

/// The remainder, and the multiple of `pi/2` taken off, of which the two low bits count.
pub(super) struct Reduced {
    pub(super) remainder: Val,
    pub(super) quadrant: Val,
}

fn reduce_f32(b: &mut Builder, magnitude: Val) -> Reduced {
    let near = if fused(b) {
        let (quadrant, n) = round_scaled(b, magnitude, FRAC_2_PI);
        let remainder = HALF_PI_F32.iter().fold(magnitude, |r, part| fma_by(b, n, -part, r));
        Reduced { remainder, quadrant }
    } else {
        let wide = b.convert("llvm.fpext", magnitude, Elem::F64);
        let (bits, n) = round_scaled(b, wide, FRAC_2_PI);
        let remainder = HALF_PI_SHORT.iter().fold(wide, |r, part| fma_by(b, n, -part, r));
        let remainder = b.convert("llvm.fptrunc", remainder, Elem::F32);
        Reduced { remainder, quadrant: b.trunc(bits, Elem::I32) }
    };
    let within = less(b, magnitude, 65536.0);
    reduce::far(b, magnitude, within, near)
}

/// `sin(|x| + turns * pi/2)`.
fn turned_f32(b: &mut Builder, x: Val, turns: i64) -> (Val, Val) {
    let magnitude = b.fabs(x);
    let Reduced { remainder, quadrant } = reduce_f32(b, magnitude);
    let turns = b.int(quadrant.ty, turns);
    let quadrant = b.add(quadrant, turns);
    let square = b.fmul_strict(remainder, remainder);
    let s = polynomial(b, square, SIN_F32);
    let cube = b.fmul_strict(square, remainder);
    let sine = b.fma(cube, s, remainder);
    let c = polynomial(b, square, &COS_F32[1..]);
    let cosine = fma_to(b, square, c, COS_F32[0]);
    (choose(b, quadrant, sine, cosine), quadrant)
}

/// The cosine in odd quadrants, the sine in even ones.
fn choose(b: &mut Builder, quadrant: Val, sine: Val, cosine: Val) -> Val {
    let one = b.int(quadrant.ty, 1);
    let low = b.and(quadrant, one);
    let zero = b.int(quadrant.ty, 0);
    let even = b.icmp(IntPredicate::Eq, low, zero);
    b.select(even, sine, cosine)
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

pub fn sin_f32(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = turned_f32(b, x, 0);
    signed(b, value, quadrant, Some(x))
}

pub fn cos_f32(b: &mut Builder, x: Val) -> Val {
    let (value, quadrant) = turned_f32(b, x, 1);
    signed(b, value, quadrant, None)
}
pub fn sin_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
pub fn cos_f64(b: &mut Builder, x: Val) -> Val {
    b.fabs(x)
}
