//! Elementary functions of `f32` and `f64`, built from arithmetic alone: no library function is ever called, because
//! kernels have none to call.
//!
//! Every function takes a scalar or a vector and gives one of the same type. There are no branches on single lanes:
//! both sides of a choice are computed and selected from, and the one rare case that is worth a branch (the sine of a
//! huge number) is taken when any lane needs it. Three machines compute `f32` in their own way: a GPU has fast
//! approximations of 2^x, 1/x and 1/sqrt(x) with stated errors; a host with fused multiplication uses it for exact
//! remainders; a host without it gets constants short enough that products are exact. Hosts never use an approximating
//! instruction, whose result differs between makes of CPU. `f64` is computed alike everywhere.
//!
//! Polynomials are minimax fits, found by `fit.py` beside this file; the error that a module states for a polynomial is
//! that of the one with rounded coefficients. In error bounds an ulp is one unit in the last place of the result, and
//! `eps` half of that, relative: 2^-24 or 2^-53.

mod erf;
mod exp;
mod log;
mod reduce;
mod root;
mod tanh;
mod trig;

use tile_ir::support::dtype::DType;

use super::builder::{Builder, Val};
use super::machine::Machine;
use super::types::Ty;

pub use tanh::{NEAR_TANH, near_tanh_f32};

/// The functions of the operation table, each the one of `f32` or `f64` that the element type asks for.
macro_rules! functions {
    ($($name:ident: $f32:path, $f64:path;)*) => {
        $(pub fn $name(b: &mut Builder, args: &[Val], dtype: DType) -> Val {
            // The tricks below rest on the order of operations, also inside of a reduction.
            let accumulating = std::mem::replace(&mut b.accumulating, false);
            let result = if dtype == DType::F64 { $f64(b, args[0]) } else { $f32(b, args[0]) };
            b.accumulating = accumulating;
            result
        })*
    };
}

functions! {
    exp: exp::exp_f32, exp::exp_f64;
    exp2: exp::exp2_f32, exp::exp2_f64;
    sigmoid: exp::sigmoid_f32, exp::sigmoid_f64;
    log: log::log_f32, log::log_f64;
    log2: log::log2_f32, log::log2_f64;
    sin: trig::sin_f32, trig::sin_f64;
    cos: trig::cos_f32, trig::cos_f64;
    tanh: tanh::tanh_f32, tanh::tanh_f64;
    erf: erf::erf_f32, erf::erf_f64;
    rsqrt: root::rsqrt_f32, root::rsqrt_f64;
}

/// 1.5 * 2^23 and 1.5 * 2^52: added to a number of small magnitude, they leave it rounded to an integer in the low
/// bits. Only where that sum cannot be contracted or reassociated wrongly: a fused product is as good a multiple.
const ROUND_F32: f64 = 12_582_912.0;
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

fn gpu(b: &Builder) -> bool {
    b.machine == Machine::Nvptx
}

/// Whether `Builder::fma` rounds once.
fn fused(b: &Builder) -> bool {
    b.machine != super::rounding::BASELINE
}

/// `a * b + c` with a constant addend.
fn fma_to(b: &mut Builder, x: Val, y: Val, addend: f64) -> Val {
    let addend = b.float(x.ty, addend);
    b.fma(x, y, addend)
}

/// `a * c + b` with a constant factor.
fn fma_by(b: &mut Builder, x: Val, factor: f64, addend: Val) -> Val {
    let factor = b.float(x.ty, factor);
    b.fma(x, factor, addend)
}

/// The polynomial with these coefficients, the constant first, by Horner's rule.
fn polynomial(b: &mut Builder, x: Val, coefficients: &[f64]) -> Val {
    let (last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
    let mut sum = b.float(x.ty, *last);
    for &coefficient in rest.iter().rev() {
        sum = fma_to(b, sum, x, coefficient);
    }
    sum
}

/// `x` rounded to an integer, times `factor`: the integer in the low bits of the first result, and as a float.
fn round_scaled(b: &mut Builder, x: Val, factor: f64) -> (Val, Val) {
    let round = if x.ty.elem.bits() == 32 { ROUND_F32 } else { ROUND_F64 };
    let round = b.float(x.ty, round);
    let shifted = if factor == 1.0 { b.fadd_strict(x, round) } else { fma_by(b, x, factor, round) };
    let number = b.fsub_strict(shifted, round);
    let bits = b.bitcast(shifted, x.ty.with(x.ty.elem.as_int()));
    (bits, number)
}

/// `x` no smaller than `low`; NaN stays.
fn at_least(b: &mut Builder, x: Val, low: f64) -> Val {
    let low = b.float(x.ty, low);
    let below = b.fcmp(super::FloatPredicate::Olt, x, low);
    b.select(below, low, x)
}

/// `x` no larger than `high`; NaN stays.
fn at_most(b: &mut Builder, x: Val, high: f64) -> Val {
    let high = b.float(x.ty, high);
    let above = b.fcmp(super::FloatPredicate::Ogt, x, high);
    b.select(above, high, x)
}

fn less(b: &mut Builder, x: Val, limit: f64) -> Val {
    let limit = b.float(x.ty, limit);
    b.fcmp(super::FloatPredicate::Olt, x, limit)
}

fn copysign(b: &mut Builder, magnitude: Val, sign: Val) -> Val {
    b.op("llvm.intr.copysign", &[magnitude, sign], magnitude.ty)
}

/// An instruction of the GPU, which works on scalars.
fn gpu_each(b: &mut Builder, x: Val, mut one: impl FnMut(&mut Builder, Val) -> Val) -> Val {
    if !x.ty.is_vector() {
        return one(b, x);
    }
    let lanes: Vec<Val> = b.unpack(x).into_iter().map(|lane| one(b, lane)).collect();
    b.pack(&lanes)
}

/// An approximation that the GPU has: `ex2`, `lg2`, `rcp` or `rsqrt`. A subnormal argument counts as zero, and a
/// subnormal result is zero.
fn gpu_approximation(b: &mut Builder, name: &str, x: Val) -> Val {
    let name = format!("llvm.nvvm.{name}.approx.ftz.f");
    gpu_each(b, x, |b, lane| b.call(&name, &[lane], Ty::F32))
}
