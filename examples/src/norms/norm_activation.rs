//! `out = act(norm(x)) + residual` for each row of a matrix: the norm is LayerNorm or RMSNorm, the activation any of
//! [`crate::activation`], the residual optional.
//!
//! **Traffic.** Reads `x`, and the residual, and writes `out` once: `2 * rows * cols * size_of::<T>()` bytes, with a residual `3`, where
//! a norm, an activation and an addition on their own move seven rows for every three. The parameters are read from memory
//! once and then found in the cache. A row of up to [`MAX_TILE`] elements stays in registers; a longer one is read a second time,
//! from the cache.
//!
//! **Rounding.** In `f32`, rounded to `T` once: before that a result is within 1.13 times the bound of [`crate::layer_norm`] or
//! [`crate::rms_norm`], the activation's own bound (see [`crate::activation`]), and one rounding of the sum.
//!
//! **Source.** Norms and activations as those modules have them; a norm, an activation and a shortcut are consecutive in the
//! blocks of residual networks: He, Zhang, Ren, Sun, 2016, arXiv:1603.05027, figure 4.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::reference::Expected;
use crate::shape::{Checks, row_stride};
use crate::{layer_norm, rms_norm};

/// The longest row that a tile holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 32768;

/// The elements of a piece of a long row.
pub const PIECE: usize = 8192;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate};
    use crate::float::LibraryFloat;
    use crate::norms::mean_and_variance;

    /// What follows the norm: `gamma` and `beta`, the activation, and the residual behind it.
    #[fuse_fn]
    fn epilogue<T: Float>(
        normalized: Tile<f32>,
        gamma: Tile<f32>,
        beta: Tile<f32>,
        residual: Tile<T>,
        activation: Activation,
    ) -> Tile<f32> {
        activate::<T>(normalized * gamma + beta, activation) + residual.to::<f32>()
    }

    /// One program for each row of `n_cols` elements, in the smallest block declared that covers it; a cluster of blocks, of 4096 elements
    /// each, shares longer ones. It is RMSNorm where `subtract_mean` is 0. `beta` and `residual` may be empty, and are then not added.
    #[fuse_kernel(
        T = [f32, f16, bf16], BLOCK = n_cols in [256, 1024, 2048, 4096, 8192, 16384, 32768],
        num_warps = if BLOCK == 256 { 2 } else { (BLOCK / 512).min(8) },
        num_ctas = (BLOCK / 4096).max(1),
    )]
    pub fn norm_activation<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        residual: &[T],
        out: &mut [T],
        activation: Activation,
        n_cols: i32,
        x_stride: i32,
        residual_stride: i32,
        out_stride: i32,
        eps: f32,
        subtract_mean: i32,
        add_residual: i32,
    ) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let mask = cols < n_cols;
        let x = tl::load(x + row * x_stride + cols, mask, 0.0).to::<f32>();
        let mut mean = 0.0;
        if subtract_mean != 0 {
            mean = tl::sum(x, 0) / n_cols as f32;
        }
        let centered = tl::select(mask, x - mean, 0.0);
        let scale = tl::rsqrt(tl::sum(centered * centered, 0) / n_cols as f32 + eps);
        let gamma = tl::load(gamma + cols, mask).to::<f32>();
        let beta = tl::load(beta + cols, mask & (subtract_mean != 0), 0.0).to::<f32>();
        let residual = tl::load(residual + row * residual_stride + cols, mask & (add_residual != 0), 0.0);
        let y = epilogue::<T>(centered * scale, gamma, beta, residual, activation);
        tl::store(out + row * out_stride + cols, y.to::<T>(), mask);
    }

    /// The same of rows longer than any tile: one program reads a row twice, `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the
    /// mean of its elements, which stays 0 for RMSNorm, and the sum of their squared deviations from it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
    pub fn norm_activation_long<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        residual: &[T],
        out: &mut [T],
        activation: Activation,
        n_cols: i32,
        x_stride: i32,
        residual_stride: i32,
        out_stride: i32,
        eps: f32,
        subtract_mean: i32,
        add_residual: i32,
    ) {
        let row = tl::program_id(0);
        let cols = tl::arange(0, BLOCK);
        let mut means = tl::zeros::<f32>([BLOCK]);
        let mut squares = tl::zeros::<f32>([BLOCK]);
        let mut n_seen = 0.0;
        for first in (0..n_cols).step_by(BLOCK) {
            n_seen += 1.0;
            let mask = first + cols < n_cols;
            let x = tl::load(x + row * x_stride + first + cols, mask).to::<f32>();
            let delta = tl::select(mask, x - means, 0.0);
            means += tl::select(subtract_mean != 0, delta * (1.0 / n_seen), 0.0);
            squares += delta * (x - means);
        }
        let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
        let (mean, var) = mean_and_variance(means, squares, counts, n_cols);
        let scale = tl::rsqrt(var + eps);
        for first in (0..n_cols).step_by(BLOCK) {
            let mask = first + cols < n_cols;
            let x = tl::load(x + row * x_stride + first + cols, mask).to::<f32>();
            let residual =
                tl::load(residual + row * residual_stride + first + cols, mask & (add_residual != 0), 0.0);
            let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
            let beta = tl::load(beta + first + cols, mask & (subtract_mean != 0), 0.0).to::<f32>();
            let y = epilogue::<T>((x - mean) * scale, gamma, beta, residual, activation);
            tl::store(out + row * out_stride + first + cols, y.to::<T>(), mask);
        }
    }
}

pub use kernels::{norm_activation, norm_activation_long};

/// The activation of the norm of each row: `NormActivation::rms_norm(&x, &gamma, Activation::Silu)`.
#[derive(Clone, Copy)]
pub struct NormActivation<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    gamma: Slice<'a, T>,
    /// Where it is none, the norm is RMSNorm.
    beta: Option<Slice<'a, T>>,
    residual: Option<Rows<'a, T>>,
    activation: Activation,
    eps: f32,
}

impl<'a, T: LibraryFloat> NormActivation<'a, T> {
    /// LayerNorm of the rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn layer_norm(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
        activation: Activation,
    ) -> Self {
        let (x, gamma, beta) = (x.into(), gamma.into(), Some(beta.into()));
        NormActivation { x, gamma, beta, residual: None, activation, eps: 1e-5 }
    }

    /// RMSNorm of the rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn rms_norm(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        activation: Activation,
    ) -> Self {
        let (x, gamma) = (x.into(), gamma.into());
        NormActivation { x, gamma, beta: None, residual: None, activation, eps: 1e-6 }
    }

    /// What is added at the end, as long as `x`.
    pub fn residual(self, residual: impl Into<Rows<'a, T>>) -> Self {
        NormActivation { residual: Some(residual.into()), ..self }
    }

    /// What is added to the variance, or the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        NormActivation { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let &NormActivation { x, gamma, eps, .. } = self;
        let (out, checks, cols) = (out.into(), Checks("norm_activation"), gamma.len());
        // Absent arguments are not read: others of the same length stand for them, so that the guards are the same.
        let (beta, residual) = (self.beta.unwrap_or(gamma), self.residual.unwrap_or(x));
        checks.same(("gamma", cols), ("beta", beta.len()))?;
        let layouts = [x.layout(), residual.layout(), out.layout()];
        let rows =
            checks.matrices(("x", layouts[0]), [("residual", layouts[1]), ("out", layouts[2])], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [subtract_mean, add_residual] = [self.beta.is_some(), self.residual.is_some()].map(i32::from);
        let [x_stride, residual_stride, out_stride] = layouts.map(|layout| row_stride(layout, cols));
        let (x, residual, out) = (x.memory(), residual.memory(), out.into_memory());
        let kernel = if cols > MAX_TILE { norm_activation_long::<T, PIECE> } else { norm_activation::<T> };
        let call = kernel(
            x,
            gamma,
            beta,
            residual,
            out,
            self.activation,
            cols as i32,
            x_stride,
            residual_stride,
            out_stride,
            eps,
            subtract_mean,
            add_residual,
        );
        call.grid(rows).launch(on)
    }
}

/// A norm's parameters on the host: those of RMSNorm where there is no `beta`.
#[derive(Clone, Copy, Debug)]
pub struct HostNorm<'a, T> {
    /// The scale of each column.
    pub gamma: &'a [T],
    /// What LayerNorm adds to each column.
    pub beta: Option<&'a [T]>,
    /// What is added to the variance, or the mean of the squares.
    pub eps: f32,
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    x: &[T],
    HostNorm { gamma, beta, eps }: HostNorm<'_, T>,
    activation: Activation,
    residual: Option<&[T]>,
) -> Vec<Expected> {
    let wide = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
    let normed = match beta {
        Some(beta) => layer_norm::unrounded(x, gamma, beta, eps),
        None => rms_norm::reference(&wide(x), &wide(gamma), eps),
    };
    let added = |(i, normed): (usize, Expected)| {
        let residual_values = residual.map_or(0.0, |residual| residual[i].to_f64());
        activation.propagated_sum(normed, residual_values, T::DTYPE)
    };
    normed.into_iter().enumerate().map(added).collect()
}

/// The bytes that `rows` rows of `cols` elements must move without a residual.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * (rows + 1) * cols * size_of::<T>()
}
