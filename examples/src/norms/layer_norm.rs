//! `out = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta` for each row of a matrix, the variance over all of the row
//! (biased).
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes; `gamma` and `beta` are read
//! from memory once and then found in the cache. A row of up to [`BLOCK_TILE`] elements, and of up to [`CLUSTER_TILE`] where there are
//! clusters of blocks, stays in registers from its load to its store, so that both reductions and the normalization cost no second
//! read; a longer one is read a second time, from the cache.
//!
//! **Rounding.** All arithmetic is in `f32`, the variance from the centered row (never `E[x^2] - E[x]^2`, which cancels; a
//! long row's by Welford's method), and the result is rounded to `T` once. A sum of `n` terms in an unspecified order errs by about `sqrt(n)` roundings
//! of their mean magnitude, and the few operations after it by one each: before the last rounding a result is within
//! `(8 + sqrt(n_cols)) * 2^-24 * ((|x_hat| + mean(|x|) / deviation) * |gamma| + |beta|)` of the exact one.
//!
//! **Source.** Ba, Kiros, Hinton, *Layer Normalization*, 2016, arXiv:1607.06450, equations 3 and 4 over one layer;
//! `eps` inside the root as PyTorch's `torch.nn.LayerNorm` has it.
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
pub struct LayerNorm<'a, T: LibraryFloat> {
    pub(crate) norm: RowNorm<'a, T>,
}

impl<'a, T: LibraryFloat> LayerNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        let (x, gamma, beta) = (x.into(), gamma.into(), Some(beta.into()));
        LayerNorm { norm: RowNorm { x, gamma, beta, eps: 1e-5 } }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        LayerNorm { norm: RowNorm { eps, ..self.norm } }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        self.norm.launch(Checks("layer_norm"), on, out.into())
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], gamma: &[T], beta: &[T], eps: f32) -> Vec<Expected> {
    let exact = unrounded(x, gamma, beta, eps).into_iter();
    exact.map(|expected| expected.rounded(T::DTYPE)).collect()
}

/// The same before the last rounding.
pub(crate) fn unrounded<T: Float>(x: &[T], gamma: &[T], beta: &[T], eps: f32) -> Vec<Expected> {
    let cols = gamma.len();
    let Some(rows) = x.len().checked_div(cols) else { return Vec::new() };
    let arithmetic = (8.0 + (cols as f64).sqrt()) * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(rows * cols);
    for row in x.chunks(cols) {
        let mean = row.iter().map(|x| x.to_f64()).sum::<f64>() / cols as f64;
        let magnitude = row.iter().map(|x| x.to_f64().abs()).sum::<f64>() / cols as f64;
        let variance = row.iter().map(|x| (x.to_f64() - mean).powi(2)).sum::<f64>() / cols as f64;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for ((x, gamma), beta) in row.iter().zip(gamma).zip(beta) {
            let (gamma, beta) = (gamma.to_f64(), beta.to_f64());
            let normal = (x.to_f64() - mean) * scale;
            let value = normal * gamma + beta;
            let within = arithmetic * ((normal.abs() + magnitude * scale) * gamma.abs() + beta.abs());
            expected.push(Expected { value, within });
        }
    }
    expected
}

/// The bytes that normalizing `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * (rows + 1) * cols * size_of::<T>()
}
