//! Activation functions: operations take an [`Activation`] at run time, and most kernels have a variant for each, by a parameter of that enum.
//!
//! | number | activation | function |
//! | --- | --- | --- |
//! | 0 | [`Activation::Identity`] | `x` |
//! | 1 | [`Activation::Relu`] | `max(x, 0)` |
//! | 2 | [`Activation::Gelu`] | `x * Phi(x)`, `Phi` the normal distribution: the exact form, through `erfc` |
//! | 3 | [`Activation::GeluTanh`] | `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` |
//! | 4 | [`Activation::Silu`] | `x / (1 + exp(-x))`, also called swish |
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

use std::fmt;

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    /// An activation function.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    #[non_exhaustive]
    pub enum Activation {
        /// `x`
        #[default]
        Identity = 0,
        /// `max(x, 0)`; NaN stays.
        Relu = 1,
        /// `x * Phi(x)`
        Gelu = 2,
        /// `x / 2 * (1 + tanh(..))`
        GeluTanh = 3,
        /// `x * sigmoid(x)`
        Silu = 4,
    }

    /// The activation, as exact as elements of `T` take it. One that programs of a launch share at run time, by its number, is a branch
    /// that all of them take; one that is known at build is none.
    #[fuse_fn]
    pub fn activate<T: Float>(x: Tile<f32>, activation: i32) -> Tile<f32> {
        match activation {
            Activation::Relu => tl::relu(x),
            Activation::Gelu => tl::gelu::<T>(x),
            Activation::GeluTanh => tl::gelu_tanh::<T>(x),
            Activation::Silu => tl::silu::<T>(x),
            _ => x,
        }
    }

    /// As `activate`, of those that the epilogues of products have: a product's accumulator leaves no registers for GELU-tanh.
    #[fuse_fn]
    pub fn activate_in_epilogue<T: Float>(x: Tile<f32>, activation: i32) -> Tile<f32> {
        match activation {
            Activation::Relu => tl::relu(x),
            Activation::Gelu => tl::gelu::<T>(x),
            Activation::Silu => tl::silu::<T>(x),
            _ => x,
        }
    }
}

pub use functions::{Activation, activate, activate_in_epilogue};

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activation::Identity => "identity",
            Activation::Relu => "ReLU",
            Activation::Gelu => "GELU",
            Activation::GeluTanh => "GELU-tanh",
            Activation::Silu => "SiLU",
        })
    }
}

impl Activation {
    /// Returns the function in `f64`, and by how much its value in a kernel for elements of `dtype` may differ before it is rounded.
    pub fn exact(self, x: f64, dtype: DType) -> Expected {
        let unit = unit_roundoff(DType::F32);
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        let (value, roundings) = match self {
            Activation::Identity => (x, 0.0),
            Activation::Relu => (if x.is_nan() { x } else { x.max(0.0) }, 0.0),
            Activation::Gelu | Activation::GeluTanh | Activation::Silu if x == f64::NEG_INFINITY => {
                (0.0, 0.0)
            }
            Activation::Gelu => {
                let digits = match dtype {
                    DType::BF16 => Some(if x < -5.7 { 10 } else { 11 }),
                    DType::F16 => Some(if x < -5.7 { 12 } else { 14 }),
                    _ => None,
                };
                (x * normal_below(x), digits.map_or(32.0, |digits| 2f64.powi(24 - digits)))
            }
            Activation::GeluTanh => {
                let roundings = if dtype.bytes() == 2 { 2f64.powi(9) } else { 16.0 + 8.0 * u.abs() };
                (x / (1.0 + (-2.0 * u).exp()), roundings)
            }
            Activation::Silu => {
                (x / (1.0 + (-x).exp()), if dtype.bytes() == 2 { 2f64.powi(9) } else { 10.0 })
            }
        };
        let underflow = if roundings == 0.0 { 0.0 } else { (1.0 + x.abs()) * f64::from(f32::MIN_POSITIVE) };
        let is_f16_tail = self == Activation::Gelu && dtype == DType::F16 && x < -9.0;
        let tail_error = if is_f16_tail { 2e-18 } else { 0.0 };
        Expected { value, within: roundings * unit * value.abs() + underflow + tail_error }
    }

    /// Returns the function of an argument that is only known within a bound, before it is rounded.
    pub fn propagated(self, argument: Expected, dtype: DType) -> Expected {
        let Expected { value, within } = self.exact(argument.value, dtype);
        Expected { value, within: within + MAX_SLOPE * argument.within }
    }

    /// Returns the function of an argument that is only known within a bound, rounded to `dtype`.
    pub(crate) fn propagated_rounded(self, argument: Expected, dtype: DType) -> Expected {
        self.propagated(argument, dtype).rounded(dtype)
    }

    /// Returns the function of an argument that is only known within a bound, plus an addend in `f32`, rounded to `dtype`.
    pub(crate) fn propagated_sum(self, argument: Expected, addend: f64, dtype: DType) -> Expected {
        let Expected { value, within } = self.propagated(argument, dtype);
        let sum = value + addend;
        let unit = if addend == 0.0 { 0.0 } else { unit_roundoff(DType::F32) };
        Expected { value: sum, within: within + unit * (sum.abs() + within) }.rounded(dtype)
    }

    /// An error where an operation has kernels for other activations only.
    pub(crate) fn check(self, checks: Checks, expected: &[Activation]) -> Result<()> {
        if expected.contains(&self) {
            return Ok(());
        }
        let expected: Vec<String> = expected.iter().map(|activation| activation.to_string()).collect();
        Err(checks.error(format!(
            "there is no kernel with the activation {self}, expected one of {}",
            expected.join(", ")
        )))
    }
}

/// The normal distribution function at `x`.
pub(crate) fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The largest slope of the function: how much it amplifies an error of its argument.
pub(crate) const MAX_SLOPE: f64 = 1.13;
