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
mod fmod;
mod formula;
mod log;
mod quotient;
mod reduce;
mod root;
mod tanh;
mod trig;

use tile_ir::support::dtype::DType;

use super::builder::{Builder, Val};

pub use fmod::fmod;
pub use quotient::{gpu_correctly_rounded, gpu_quotient};
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
    log1p: log::log1p, log::log1p;
    sin: trig::sin_f32, trig::sin_f64;
    cos: trig::cos_f32, trig::cos_f64;
    tan: trig::tan_f32, trig::tan_f64;
    tanh: tanh::tanh_f32, tanh::tanh_f64;
    erf: erf::erf_f32, erf::erf_f64;
    rsqrt: root::rsqrt_f32, root::rsqrt_f64;
}
