//! `exp`, `exp2` and `sigmoid`.
//!
//! `e^x = 2^n * e^r` with `n` the integer nearest to `x / ln 2`, and `2^x = 2^n * 2^f` with `n` that nearest to `x`. The
//! remainder `r = x - n * ln 2` takes `ln 2` in two parts, the first so short that its product with `n` is exact. The
//! power of two is multiplied on as two factors, so that results reach from the smallest subnormal to infinity with
//! one rounding more.
//!
//! | function | polynomial | its error | bound |
//! | --- | --- | --- | --- |
//! | `exp` of `f32` | `1 + r + r^2 q(r)`, 5 coefficients | 2^-28.2 | 1.1 ulp |
//! | `exp2` of `f32` | `1 + f p(f)`, 6 coefficients | 2^-26.3 | 1.2 ulp |
//! | `exp` of `f64` | the same with 10 | 2^-57.9 | 1 ulp |
//! | `exp2` of `f64` | the same with 11 | 2^-57.1 | 1.1 ulp |
//!
//! A GPU raises 2 to an `f32` itself, `ex2.approx.ftz`, with a relative error of 2^-22.5 at most, 3 ulp (2.05 on an H200), a
//! subnormal result being 0: that is `exp2`. For `exp` the exponent has to be exact where it is large: `n = floor(x *
//! log2 e)` is taken off with one rounding of the remainder in `[0, 1)`, an error of 2^-25, which `ex2` turns into 0.35
//! ulp beside its own error; the multiplication with `2^n` rounds only subnormal results, which an argument below -87.3
//! has as it should.

use super::formula::{
    ROUND_F32, at_least, at_most, fma_by, fma_to, gpu, gpu_approximation, gpu_each, less, polynomial,
    round_scaled,
};
use crate::mlir::{Asm, Builder, Elem, Ty, Val};

const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// The constants of `exp` in one float type.
struct Exp {
    /// Arguments beyond these give the same results as these: 0 and infinity.
    limits: [f64; 2],
    /// The first part ends in enough zeros for an exact product with every `n`.
    ln_2: [f64; 2],
    /// `(e^r - 1 - r) / r^2` for `|r| <= ln(2) / 2`.
    power: &'static [f64],
}

const EXP_F32: Exp = Exp {
    limits: [-104.0, 89.0],
    ln_2: [0.693145751953125, 1.428606765330187e-06],
    power: &[
        0.4999999403953552,
        0.16666513681411743,
        0.041668061167001724,
        0.008369550108909607,
        0.0013843763154000044,
    ],
};

const EXP_F64: Exp = Exp {
    limits: [-746.0, 710.0],
    ln_2: [0.6931471803691238, 1.9082149292705877e-10],
    power: &[
        0.5000000000000011,
        0.1666666666666643,
        0.041666666666525645,
        0.008333333333479664,
        0.001388888894493255,
        0.00019841269546408912,
        2.4801491644129222e-05,
        2.7557544000280467e-06,
        2.763080077015068e-07,
        2.501558327259183e-08,
    ],
};

/// `(2^f - 1) / f` for `|f| <= 1/2`, in `f32`.
const EXP2_F32: &[f64] = &[
    0.6931471824645996,
    0.24022594094276428,
    0.055503662675619125,
    0.009625435806810856,
    0.0013387915678322315,
    0.00013337653945200145,
];

/// The same in `f64`.
const EXP2_F64: &[f64] = &[
    std::f64::consts::LN_2,
    0.24022650695910172,
    0.055504108664824574,
    0.009618129107577067,
    0.0013333558145568049,
    0.00015403530478865377,
    1.525273473699449e-05,
    1.3215424475619019e-06,
    1.0177656651956078e-07,
    7.075618266387443e-09,
    4.5192089393464176e-10,
];

/// `y * 2^n` for `n` in the low bits of `bits`, in two steps.
fn scaled(b: &mut Builder, y: Val, bits: Val) -> Val {
    let (round, bias, mantissa) =
        if y.ty.elem == Elem::F32 { (0x4b40_0000, 127, 23) } else { (0x4338_0000_0000_0000, 1023, 52) };
    // Both halves of n + 2 * bias are exponents with their bias.
    let start = b.int(bits.ty, round - 2 * bias);
    let sum = b.sub(bits, start);
    let one = b.int(bits.ty, 1);
    let half = b.lshr(sum, one);
    let rest = b.sub(sum, half);
    let mut result = y;
    for exponent in [half, rest] {
        let mantissa = b.int(bits.ty, mantissa);
        let power = b.shl(exponent, mantissa);
        let power = b.bitcast(power, y.ty);
        result = b.fmul_strict(result, power);
    }
    result
}

/// `y * 2^n` where both `2^n` and the result are normal numbers.
fn scaled_once(b: &mut Builder, y: Val, bits: Val) -> Val {
    let (one, mantissa) =
        if y.ty.elem == Elem::F32 { (1.0f32.to_bits().into(), 23) } else { (1.0f64.to_bits() as i64, 52) };
    // The shift drops what the rounding constant left above n.
    let mantissa = b.int(bits.ty, mantissa);
    let power = b.shl(bits, mantissa);
    let one = b.int(bits.ty, one);
    let power = b.add(power, one);
    let power = b.bitcast(power, y.ty);
    b.fmul_strict(y, power)
}

fn exp(b: &mut Builder, x: Val, constants: &Exp) -> Val {
    let x = at_least(b, x, constants.limits[0]);
    let x = at_most(b, x, constants.limits[1]);
    let (bits, n) = round_scaled(b, x, LOG2_E);
    let r = fma_by(b, n, -constants.ln_2[0], x);
    let r = fma_by(b, n, -constants.ln_2[1], r);
    let q = polynomial(b, r, constants.power);
    let square = b.fmul_strict(r, r);
    let y = b.fma(square, q, r);
    let one = b.float(x.ty, 1.0);
    let y = b.fadd_strict(y, one);
    scaled(b, y, bits)
}

/// 2 to the fractional part, and the integer part in the low bits.
fn exp2_parts(b: &mut Builder, x: Val, power: &[f64]) -> (Val, Val) {
    let (bits, n) = round_scaled(b, x, 1.0);
    let f = b.fsub_strict(x, n);
    let p = polynomial(b, f, power);
    (fma_to(b, f, p, 1.0), bits)
}

/// `2^x` where that is a normal number: for use inside of other functions.
pub(super) fn exp2_normal(b: &mut Builder, x: Val) -> Val {
    let power = if x.ty.elem == Elem::F32 { EXP2_F32 } else { EXP2_F64 };
    let (y, bits) = exp2_parts(b, x, power);
    scaled_once(b, y, bits)
}

pub fn exp_f64(b: &mut Builder, x: Val) -> Val {
    exp(b, x, &EXP_F64)
}

pub fn exp_f32(b: &mut Builder, x: Val) -> Val {
    if gpu(b) { gpu_exp(b, x) } else { exp(b, x, &EXP_F32) }
}

/// Eight instructions. The saturating product puts `n + 126` into `[0, 252]` for any argument at all, and the remainder
/// takes the rest: infinities and NaN pass through it.
fn gpu_exp(b: &mut Builder, x: Val) -> Val {
    let [scale, half] = [LOG2_E / 252.0, 0.5].map(|value| b.float(Ty::F32, value));
    let unit = gpu_each(b, x, |b, x| {
        b.asm("fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", &[x, scale, half], &[Ty::F32], Asm::Pure)[0]
    });
    // Rounded down to n + 126, with 1 more in the low bits: the exponent of 2^n with its bias.
    let [range, round] = [252.0, ROUND_F32 + 1.0].map(|value| b.float(Ty::F32, value));
    let shifted = gpu_each(b, unit, |b, unit| b.call("llvm.nvvm.fma.rm.f", &[unit, range, round], Ty::F32));
    let start = b.float(x.ty, ROUND_F32 + 127.0);
    let n = b.fsub_strict(shifted, start);
    let negative = b.fneg(n);
    let f = fma_by(b, x, 1.4426950216293335, negative);
    let f = fma_by(b, x, 1.925963033500011e-08, f);
    let y = gpu_approximation(b, "ex2", f);
    let bits = b.bitcast(shifted, x.ty.with(Elem::I32));
    let mantissa = b.int(bits.ty, 23);
    let power = b.shl(bits, mantissa);
    let power = b.bitcast(power, x.ty);
    b.fmul_strict(y, power)
}

pub fn exp2_f32(b: &mut Builder, x: Val) -> Val {
    if gpu(b) { gpu_approximation(b, "ex2", x) } else { exp2(b, x, [-151.0, 129.0], EXP2_F32) }
}

pub fn exp2_f64(b: &mut Builder, x: Val) -> Val {
    exp2(b, x, [-1076.0, 1025.0], EXP2_F64)
}

/// Arguments beyond the limits give the same results as those: 0 and infinity.
fn exp2(b: &mut Builder, x: Val, limits: [f64; 2], power: &[f64]) -> Val {
    let x = at_least(b, x, limits[0]);
    let x = at_most(b, x, limits[1]);
    let (y, bits) = exp2_parts(b, x, power);
    scaled(b, y, bits)
}

/// On a GPU `1 / (1 + e^-x)`: the errors of the exponential, of the sum (half an ulp) and of `rcp.approx.ftz` (1 ulp), the
/// first up to twice as many ulps of the result where the mantissas differ most: 4 ulp with an exponential within 1.2. A
/// subnormal result is 0. Elsewhere see [`sigmoid`].
pub fn sigmoid_f32(b: &mut Builder, x: Val) -> Val {
    if !gpu(b) {
        return sigmoid(b, x, &EXP_F32);
    }
    let negative = b.fneg(x);
    let z = gpu_exp(b, negative);
    let one = b.float(x.ty, 1.0);
    let sum = b.fadd_strict(z, one);
    gpu_approximation(b, "rcp", sum)
}

/// `z / (1 + z)` below zero and `1 / (1 + z)` above, with `z = e^-|x|`, which cannot overflow: at most 1 ulp of `z`,
/// half an ulp of the sum and half an ulp of the quotient, 2.2 ulp where their mantissas differ most.
fn sigmoid(b: &mut Builder, x: Val, constants: &Exp) -> Val {
    let magnitude = b.fabs(x);
    let negative = b.fneg(magnitude);
    let z = exp(b, negative, constants);
    let one = b.float(x.ty, 1.0);
    let below = less(b, x, 0.0);
    let numerator = b.select(below, z, one);
    let sum = b.fadd_strict(z, one);
    b.fdiv(numerator, sum)
}

pub fn sigmoid_f64(b: &mut Builder, x: Val) -> Val {
    sigmoid(b, x, &EXP_F64)
}
