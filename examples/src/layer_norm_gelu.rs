//! `out = gelu((x - mean(x)) / sqrt(var(x) + eps) * gamma + beta)` for each row of a matrix: LayerNorm with its bias, and
//! the exact GELU, in one pass.
//!
//! **Traffic.** That of LayerNorm alone: reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. A row
//! stays in registers.
//!
//! **Rounding.** The bound of [`crate::layer_norm`], carried on by GELU (at most 1.13 times), and GELU's own (see
//! [`crate::activation`]); rounded to `T` once.
//!
//! **Source.** ConvNeXt's and wav2vec 2.0's blocks: Baevski and others, 2020, arXiv:2006.11477, section 2.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::activation::{self, GELU};
use crate::layer_norm;
use crate::reference::Expected;
use crate::shape::Checks;

/// The longest row that the kernels were built for.
pub const MAX_COLS: usize = 32768;

/// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared; of the longest of `f32` a
/// cluster of blocks. It is bound by instructions: a thread has at least 32 elements for those that a reduction takes, and no more
/// registers than leave room for the rows that hide each other's waiting.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
    num_ctas = if size_of::<T>() == 4 && BLOCK == 32768 { 4 } else { 1 },
    num_warps = if BLOCK == 32768 { 8 }
        else if size_of::<T>() == 4 { (BLOCK / 512).next_power_of_two().min(if BLOCK > 8192 { 16 } else { 8 }) }
        else { (BLOCK / 1024).next_power_of_two().min(if BLOCK == 16384 { 8 } else { 4 }) },
    maxnreg = if size_of::<T>() == 4 || BLOCK < 4096 { 255 }
        else if BLOCK == 4096 { 56 } else if BLOCK == 5120 { 72 } else if BLOCK == 12288 { 128 } else if BLOCK == 32768 { 160 } else { 80 },
)]
pub fn layer_norm_gelu<T: Float, const BLOCK: usize>(
    x: &[T],
    gamma: &[T],
    beta: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
    let mean = tl::sum(x, 0) / n_cols as f32;
    let centred = tl::select(mask, x - mean, 0.0);
    let scale = tl::rsqrt(tl::sum(centred * centred, 0) / n_cols as f32 + eps);
    // A longer row is widened anew, and shifted in the same step as scaled.
    let x_hat = if BLOCK > 4096 { tl::fma(x, scale, -mean * scale) } else { centred * scale };
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let y = x_hat * gamma + tl::load(beta + cols, mask).to::<f32>();
    tl::store(out + row * n_cols + cols, tl::gelu::<T>(y).to::<T>(), mask);
}

/// Normalises each row of a matrix and applies GELU. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LayerNormGelu<'a, T: Float> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: Float> LayerNormGelu<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        LayerNormGelu { x: x.into(), gamma: gamma.into(), beta: beta.into(), eps: 1e-5 }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        LayerNormGelu { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other, or rows are longer than [`MAX_COLS`]; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()>
    where
        layer_norm_gelu::Choice<T>: layer_norm_gelu::Declared,
    {
        let (out, checks, cols) = (out.into(), Checks("layer_norm_gelu"), self.gamma.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        checks.same(("gamma", cols), ("beta", self.beta.len()))?;
        let rows = checks.rows_up_to(("x", self.x.len()), cols, MAX_COLS)?;
        if rows == 0 {
            return Ok(());
        }
        layer_norm_gelu::<T>(self.x, self.gamma, self.beta, out, cols as i32, self.eps).grid(rows).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], gamma: &[T], beta: &[T], eps: f32) -> Vec<Expected> {
    let normed = layer_norm::unrounded(x, gamma, beta, eps);
    normed.into_iter().map(|argument| activation::rounded::<GELU>(argument, T::DTYPE)).collect()
}
