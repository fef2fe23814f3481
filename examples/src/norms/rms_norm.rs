//! `out = x / sqrt(mean(x^2) + eps) * gamma` for each row of a matrix; and the same after `residual += x`.
//!
//! **Traffic.** [`RmsNorm`] reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. [`AddRmsNorm`] reads
//! `x` and `residual` and writes `residual` and `out`: twice that, where an addition and a norm on their own move five
//! rows for every four. `gamma` is read from memory once and then found in the cache. A row of up to [`BLOCK_TILE`] elements, and for
//! [`RmsNorm`] of up to [`CLUSTER_TILE`] where there are clusters of blocks, stays in registers from its load to its store; a longer one is
//! read a second time, from the cache.
//!
//! **Rounding.** Squares are added in `f32`, so those of `f16` do not overflow; an `f32` beyond 1.8e19 has an infinite
//! square, which makes its row 0. The result is rounded to `T` once: before that it is within
//! `(8 + sqrt(n_cols)) * 2^-24` of the exact one, relatively. [`AddRmsNorm`] rounds the sum to `T` first and normalizes
//! what it stores.
//!
//! **Source.** Zhang, Sennrich, *Root Mean Square Layer Normalization*, 2019, arXiv:1910.07467, equation 4; `eps` inside
//! the root as `torch.nn.RMSNorm` has it. The residual as vLLM's `fused_add_rms_norm`.
//!
//! [`BLOCK_TILE`]: crate::norm_kernels::BLOCK_TILE
//! [`CLUSTER_TILE`]: crate::norm_kernels::CLUSTER_TILE

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::norm_kernels::RowNorm;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// Normalizes each row of a matrix. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct RmsNorm<'a, T: LibraryFloat> {
    norm: RowNorm<'a, T>,
}

impl<'a, T: LibraryFloat> RmsNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn new(x: impl Into<Rows<'a, T>>, gamma: impl Into<Slice<'a, T>>) -> Self {
        RmsNorm { norm: RowNorm { x: x.into(), gamma: gamma.into(), beta: None, eps: 1e-6 } }
    }

    /// What is added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        RmsNorm { norm: RowNorm { eps, ..self.norm } }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        self.norm.launch(Checks("rms_norm"), on, out.into())
    }
}

/// Adds a matrix to a residual stream and normalizes each row of the sum. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct AddRmsNorm<'a, T: LibraryFloat> {
    norm: RowNorm<'a, T>,
}

impl<'a, T: LibraryFloat> AddRmsNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn new(x: impl Into<Rows<'a, T>>, gamma: impl Into<Slice<'a, T>>) -> Self {
        AddRmsNorm { norm: RmsNorm::new(x, gamma).norm }
    }

    /// What is added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        AddRmsNorm { norm: RowNorm { eps, ..self.norm } }
    }

    /// Adds `x` to `residual` and computes the norm of the sum into `out`, whose rows are as far apart, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        residual: impl Into<RowsMut<'o, T>>,
        out: impl Into<RowsMut<'o, T>>,
    ) -> Result<()> {
        self.norm.launch_add(Checks("add_rms_norm"), on, residual.into(), out.into())
    }
}

/// What [`RmsNorm`] computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], gamma: &[T], eps: f32) -> Vec<Expected> {
    let cols = gamma.len();
    let arithmetic = (8.0 + (cols as f64).sqrt()) * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(x.len());
    for row in x.chunks(cols.max(1)) {
        let mean = row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / cols as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for (x, gamma) in row.iter().zip(gamma) {
            let value = x.to_f64() * scale * gamma.to_f64();
            let within = arithmetic * value.abs();
            expected.push(Expected { value, within }.rounded(T::DTYPE));
        }
    }
    expected
}

/// What [`AddRmsNorm`] writes to `residual`: the sum, rounded once.
pub fn sum<T: Float>(x: &[T], residual: &[T]) -> Vec<T> {
    x.iter().zip(residual).map(|(x, residual_in)| T::from_f64(x.to_f64() + residual_in.to_f64())).collect()
}

/// The bytes that normalizing `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (2 * rows + 1) * cols * size_of::<T>()
}
