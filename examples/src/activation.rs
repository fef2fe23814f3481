//! Activation functions that kernels of this library are generic over: a constant names one at build time.
//!
//! | constant | function |
//! | --- | --- |
//! | [`IDENTITY`] | `x` |
//! | [`RELU`] | `max(x, 0)` |
//! | [`GELU`] | `x * Phi(x)`, `Phi` the normal distribution: the exact form, through `erfc` |
//! | [`GELU_TANH`] | `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` |
//! | [`SILU`] | `x / (1 + exp(-x))`, also called swish |
//!
//! **How.** As `tl::relu`, `tl::gelu`, `tl::gelu_tanh` and `tl::silu`: the negative tail keeps its digits, where `x / 2 * (1 + erf(x / sqrt
//! 2))` has none left below -5, and negative infinity gives 0.
//!
//! **Rounding.** In `f32`, relative to the exact function: GELU within `32 * 2^-24`, for `bf16` within `2^-11` above -5.7 and
//! `2^-10` below, for `f16` within `2^-14` and `2^-12`, and from -9 down within `2e-18`; GELU-tanh within `(16 + 8 |z|) * 2^-24` with `z` the argument of `tanh`; SiLU within `10 * 2^-24`, both
//! for 16-bit types within `2^-15`. Below the smallest normal `f32` a GPU may give 0 instead.
//!
//! **Source.** Hendrycks, Gimpel, *Gaussian Error Linear Units*, 2016, arXiv:1606.08415; Elfwing, Uchibe, Doya, 2017,
//! arXiv:1702.03118, for SiLU.

use dsl_runtime::DType;

use crate::reference::{Expected, unit_roundoff};

/// `x`
pub const IDENTITY: usize = 0;
/// `max(x, 0)`; NaN stays.
pub const RELU: usize = 1;
/// `x * Phi(x)`
pub const GELU: usize = 2;
/// `x / 2 * (1 + tanh(..))`
pub const GELU_TANH: usize = 3;
/// `x * sigmoid(x)`
pub const SILU: usize = 4;

/// The function in `f64`, and by how much its value in a kernel for elements of `dtype` may differ before it is rounded.
///
/// # Panics
/// If `ACT` is none of this module's constants.
pub fn exact<const ACT: usize>(x: f64, dtype: DType) -> Expected {
    let unit = unit_roundoff(DType::F32);
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    let (value, roundings) = match ACT {
        IDENTITY => (x, 0.0),
        RELU => (if x.is_nan() { x } else { x.max(0.0) }, 0.0),
        GELU | GELU_TANH | SILU if x == f64::NEG_INFINITY => (0.0, 0.0),
        GELU => {
            let digits = match dtype {
                DType::BF16 => Some(if x < -5.7 { 10 } else { 11 }),
                DType::F16 => Some(if x < -5.7 { 12 } else { 14 }),
                _ => None,
            };
            (x * normal_below(x), digits.map_or(32.0, |digits| 2f64.powi(24 - digits)))
        }
        GELU_TANH => {
            let roundings = if dtype.bytes() == 2 { 2f64.powi(9) } else { 16.0 + 8.0 * u.abs() };
            (x / (1.0 + (-2.0 * u).exp()), roundings)
        }
        SILU => (x / (1.0 + (-x).exp()), if dtype.bytes() == 2 { 2f64.powi(9) } else { 10.0 }),
        _ => panic!("there is no activation {ACT}"),
    };
    let underflow = if roundings == 0.0 { 0.0 } else { (1.0 + x.abs()) * f64::from(f32::MIN_POSITIVE) };
    let tail_error = if ACT == GELU && dtype == DType::F16 && x < -9.0 { 2e-18 } else { 0.0 };
    Expected { value, within: roundings * unit * value.abs() + underflow + tail_error }
}

/// The normal distribution function at `x`.
pub(crate) fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The largest slope of the function: how much it amplifies an error of its argument.
pub(crate) const MAX_SLOPE: f64 = 1.13;

/// The function of an argument that is itself only known within a bound, rounded to `T` at the end.
pub(crate) fn propagated_rounded<const ACT: usize>(argument: Expected, dtype: DType) -> Expected {
    propagated::<ACT>(argument, dtype).rounded(dtype)
}

/// The same with an addend in `f32` before it is rounded.
pub(crate) fn propagated_sum<const ACT: usize>(argument: Expected, addend: f64, dtype: DType) -> Expected {
    let Expected { value, within } = propagated::<ACT>(argument, dtype);
    let sum = value + addend;
    let unit = if addend == 0.0 { 0.0 } else { unit_roundoff(DType::F32) };
    Expected { value: sum, within: within + unit * (sum.abs() + within) }.rounded(dtype)
}

/// The same before it is rounded.
pub fn propagated<const ACT: usize>(argument: Expected, dtype: DType) -> Expected {
    let Expected { value, within } = exact::<ACT>(argument.value, dtype);
    Expected { value, within: within + MAX_SLOPE * argument.within }
}
