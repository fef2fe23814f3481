//! `residual += x`, then `out = (residual - mean) / sqrt(var + eps) * gamma + beta` for each row of a matrix, mean and variance
//! those of the row of sums.
//!
//! **Traffic.** Reads `x` and `residual` and writes `residual` and `out` once, `4 * rows * cols * size_of::<T>()` bytes, where an
//! addition and a norm on their own move five rows for every four. `gamma` and `beta` are read from memory once and then
//! found in the cache. A row of up to [`MAX_TILE`] elements stays in registers from its load to its store; of a longer one the sums
//! are read a second time, from the cache.
//!
//! **Rounding.** The sum is rounded to `T` first and what is stored is normalized, with the bound of [`crate::layer_norm`].
//!
//! **Source.** The sub-layers of a transformer: Vaswani and others, 2017, arXiv:1706.03762, section 3.1; updated in place as vLLM's
//! `fused_add_rms_norm` does for RMSNorm.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::shape::Checks;

/// The longest row that a tile holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 32768;

/// The elements of a piece of a long row.
pub const PIECE: usize = 8192;

/// One program for each row of `n_cols` elements, in the smallest block declared that covers it; a cluster of blocks shares the
/// longest.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [256, 1024, 2048, 4096, 8192, 16384, 32768],
    num_ctas = (BLOCK / 16384 * 4).max(1),
)]
pub fn add_layer_norm<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    residual: &mut [T],
    gamma: &[T],
    beta: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
    let mask = cols < n_cols;
    let x = tl::load(x + row * n_cols + cols, mask, 0.0);
    let residual_in = tl::load(residual + row * n_cols + cols, mask, 0.0);
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let beta = tl::load(beta + cols, mask).to::<f32>();
    let sum = x + residual_in;
    tl::store(residual + row * n_cols + cols, sum, mask);
    let sum = sum.to::<f32>();
    let mean = tl::sum(sum, 0) / n_cols as f32;
    let centered = tl::select(mask, sum - mean, 0.0);
    let var = tl::sum(centered * centered, 0) / n_cols as f32;
    let y = centered * tl::rsqrt(var + eps) * gamma + beta;
    tl::store(out + row * n_cols + cols, y.to::<T>(), mask);
}

/// The same of rows longer than any tile: one program reads a row twice, `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the
/// mean of its sums and the sum of their squared deviations from it.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
pub fn add_layer_norm_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    residual: &mut [T],
    gamma: &[T],
    beta: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    use crate::welford::{mean_and_variance, welford};

    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut means = tl::zeros::<f32>([BLOCK]);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    let mut n_seen = 0.0;
    for first in (0..n_cols).step_by(BLOCK) {
        n_seen += 1.0;
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask, 0.0);
        let sum = x + tl::load(residual + row * n_cols + first + cols, mask, 0.0);
        tl::store(residual + row * n_cols + first + cols, sum, mask);
        let sum = sum.to::<f32>();
        (means, squares) = welford(means, squares, sum, mask, n_seen);
    }
    let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
    let (mean, var) = mean_and_variance(means, squares, counts, n_cols);
    let scale = tl::rsqrt(var + eps);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let sum = tl::load(residual + row * n_cols + first + cols, mask).to::<f32>();
        let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
        let beta = tl::load(beta + first + cols, mask).to::<f32>();
        let y = (sum - mean) * scale * gamma + beta;
        tl::store(out + row * n_cols + first + cols, y.to::<T>(), mask);
    }
}

/// Adds a matrix to a residual stream and normalizes each row of the sum. `T` is `f32`, `f16` or `bf16`. Its results are
/// [`crate::rms_norm::sum`] and, of that, [`crate::layer_norm::reference`].
#[derive(Clone, Copy)]
pub struct AddLayerNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat> AddLayerNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        AddLayerNorm { x: x.into(), gamma: gamma.into(), beta: beta.into(), eps: 1e-5 }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        AddLayerNorm { eps, ..self }
    }

    /// Adds `x` to `residual` and computes the norm of the sum into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        residual: impl Into<SliceMut<'o, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (residual, out) = (residual.into(), out.into());
        let (checks, cols) = (Checks("add_layer_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("residual", residual.len()))?;
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        checks.same(("gamma", cols), ("beta", self.beta.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let (gamma, beta, n_cols, eps) = (self.gamma, self.beta, cols as i32, self.eps);
        if cols > MAX_TILE {
            let call = add_layer_norm_long::<T, PIECE>(self.x, residual, gamma, beta, out, n_cols, eps);
            return call.grid(rows).launch(on);
        }
        add_layer_norm::<T>(self.x, residual, gamma, beta, out, n_cols, eps).grid(rows).launch(on)
    }
}

/// The bytes that adding and normalizing `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (4 * rows + 2) * cols * size_of::<T>()
}
