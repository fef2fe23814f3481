//! The gradients of [`crate::rms_norm`]: from `dy` and the forward's inputs, with `x_hat = x / sqrt(mean(x^2) + eps)` and `g =
//! dy * gamma`,
//!
//! - `dx = (g - x_hat * mean(g * x_hat)) / sqrt(mean(x^2) + eps)` for each row,
//! - `dgamma = sum(dy * x_hat)` over the rows.
//!
//! **Traffic.** Reads `dy` and `x` and writes `dx` once: `3 * rows * cols * size_of::<T>()` bytes; the scale is computed again
//! from the row, which is in registers anyway. Each program accumulates `dgamma` in registers over its rows and writes
//! partial sums to `scratch`, which a second kernel reduces. Rows of more than [`partials::MAX_COLS`] elements, or
//! [`partials::BLOCK_COLS`] where there are no clusters, are read a second time from the cache
//! for `dx`, and once more from memory for `dgamma`.
//!
//! **Rounding.** In `f32`, rounded to `T` once. With `a = (8 + sqrt(n_cols)) * 2^-24`, before the last rounding `dx` is within
//! `4 * a / sqrt(mean(x^2) + eps) * (|g| + |x_hat| * mean(|g * x_hat|))` and `dgamma` within
//! `((8 + sqrt(rows)) * 2^-24 + a) * sum(|dy * x_hat|)`.
//!
//! **Source.** The derivative of arXiv:1910.07467, equation 4.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::layer_norm_backward::PIECE;
use crate::partials::{self, BLOCK_COLS, WIDE_COLS, column_partials};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// Each program takes rows `p`, `p + programs`, and so on; a cluster of blocks shares the longest.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 4096, 8192, 16384, 32768],
    num_ctas = if BLOCK == 32768 { 8 } else { (BLOCK / 8192).max(1) },
    num_warps = if BLOCK == 32768 { 4 } else { (BLOCK * size_of::<T>() / 1024).min(8) },
    num_stages = if BLOCK > 8192 { 3 } else { 2 },
)]
pub fn rms_norm_backward<T: LibraryFloat, const BLOCK: usize>(
    dy: &[T],
    x: &[T],
    gamma: &[T],
    dx: &mut [T],
    partials: &mut [f32],
    n_rows: i32,
    n_cols: i32,
    eps: f32,
) {
    let program = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let mut dgamma = tl::zeros::<f32>([BLOCK]);
    for row in (program..n_rows).step_by(tl::num_programs(0)) {
        let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
        let dy = tl::load(dy + row * n_cols + cols, mask, 0.0).to::<f32>();
        let g = dy * gamma;
        let square = tl::sum(x * x, 0) / n_cols as f32;
        let mean_g_x = tl::sum(g * x, 0) / n_cols as f32;
        let scale = tl::rsqrt(square + eps);
        let x_hat = x * scale;
        let y = (g - x_hat * (mean_g_x * scale)) * scale;
        tl::store(dx + row * n_cols + cols, y.to::<T>(), mask);
        dgamma += dy * x_hat;
    }
    tl::store(partials + program * n_cols + cols, dgamma, mask);
}

/// The gradient of `x` alone, for rows of any length: one program for each, which it reads twice, `BLOCK` elements at a time.
/// Leaves the row's scale in `stats`.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096])]
pub fn rms_norm_backward_long<T: LibraryFloat, const BLOCK: usize>(
    dy: &[T],
    x: &[T],
    gamma: &[T],
    dx: &mut [T],
    stats: &mut [f32],
    n_cols: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    let mut g_x = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let dy = tl::load(dy + row * n_cols + first + cols, mask).to::<f32>();
        squares += x * x;
        g_x += dy * tl::load(gamma + first + cols, mask).to::<f32>() * x;
    }
    let scale = tl::rsqrt(tl::sum(squares, 0) / n_cols as f32 + eps);
    let mean_g_x = tl::sum(g_x, 0) / n_cols as f32;
    tl::store(stats + row, scale);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let dy = tl::load(dy + row * n_cols + first + cols, mask).to::<f32>();
        let g = dy * tl::load(gamma + first + cols, mask).to::<f32>();
        let y = (g - x * scale * (mean_g_x * scale)) * scale;
        tl::store(dx + row * n_cols + first + cols, y.to::<T>(), mask);
    }
}

/// The gradients of an RMSNorm. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct RmsNormBackward<'a, T: LibraryFloat> {
    dy: Slice<'a, T>,
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    eps: f32,
}

/// The length of the workspace for a matrix of this shape.
pub fn scratch_len(rows: usize, cols: usize) -> usize {
    partials::max_programs(rows, cols) * cols + if cols > BLOCK_COLS { rows } else { 0 }
}

impl<'a, T: LibraryFloat> RmsNormBackward<'a, T> {
    /// The gradient of the norm's result, and the norm's inputs; `eps` is 1e-6.
    pub fn new(
        dy: impl Into<Slice<'a, T>>,
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
    ) -> Self {
        RmsNormBackward { dy: dy.into(), x: x.into(), gamma: gamma.into(), eps: 1e-6 }
    }

    /// What was added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        RmsNormBackward { eps, ..self }
    }

    /// Computes the gradient of `x` into `dx` and that of `gamma` into `dgamma`, with a workspace of [`scratch_len`]
    /// floats, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        dx: impl Into<SliceMut<'o, T>>,
        dgamma: impl Into<SliceMut<'o, T>>,
        scratch: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        let (dx, dgamma, mut scratch) = (dx.into(), dgamma.into(), scratch.into());
        let (checks, cols) = (Checks("rms_norm_backward"), self.gamma.len());
        checks.same(("x", self.x.len()), ("dy", self.dy.len()))?;
        checks.same(("x", self.x.len()), ("dx", dx.len()))?;
        checks.same(("gamma", cols), ("dgamma", dgamma.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        checks.same(("scratch", scratch.len()), ("what it should be", scratch_len(rows, cols)))?;
        if cols == 0 {
            return Ok(());
        }
        let programs = partials::programs(rows, cols, partials::max_register_cols(on));
        let (mut partials_out, mut stats) = scratch.split_at_mut(programs * cols);
        let (dy, x, gamma, eps) = (self.dy, self.x, self.gamma, self.eps);
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        if rows > 0 && cols <= partials::max_register_cols(on) {
            rms_norm_backward::<T>(dy, x, gamma, dx, &mut partials_out, n_rows, n_cols, eps)
                .grid(programs)
                .launch(on)?;
        } else if rows > 0 {
            rms_norm_backward_long::<T, PIECE>(dy, x, gamma, dx, &mut stats, n_cols, eps)
                .grid(rows)
                .launch(on)?;
            column_partials::<T, 1, WIDE_COLS>(dy, x, &stats, &mut partials_out, n_rows, n_cols)
                .grid((programs, cols.div_ceil(WIDE_COLS)))
                .launch(on)?;
        }
        partials::reduce(on, partials_out.slice(..), dgamma, None)
    }
}

/// What the kernels compute, in `f64`, and the bounds that the module's documentation states: `dx`, `dgamma`.
pub fn reference<T: Float>(dy: &[T], x: &[T], gamma: &[T], eps: f32) -> [Vec<Expected>; 2] {
    let cols = gamma.len();
    let rows = x.len().checked_div(cols).unwrap_or(0);
    let single = unit_roundoff(DType::F32);
    let (a, over_rows) = ((8.0 + (cols as f64).sqrt()) * single, (8.0 + (rows as f64).sqrt()) * single);
    let (mut all_dx, mut dgamma) =
        (Vec::with_capacity(x.len()), vec![Expected { value: 0.0, within: 0.0 }; cols]);
    for (dy, x) in dy.chunks(cols.max(1)).zip(x.chunks(cols.max(1))) {
        let square = x.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / cols as f64;
        let scale = 1.0 / (square + f64::from(eps)).sqrt();
        let x_hat: Vec<f64> = x.iter().map(|x| x.to_f64() * scale).collect();
        let g: Vec<f64> = dy.iter().zip(gamma).map(|(dy, gamma)| dy.to_f64() * gamma.to_f64()).collect();
        let g_x = || g.iter().zip(&x_hat).map(|(g, x_hat)| g * x_hat);
        let mean_g_x = g_x().sum::<f64>() / cols as f64;
        let magnitude = g_x().map(f64::abs).sum::<f64>() / cols as f64;
        for j in 0..cols {
            let value = (g[j] - x_hat[j] * mean_g_x) * scale;
            all_dx.push(Expected {
                value,
                within: 4.0 * a * scale * (g[j].abs() + x_hat[j].abs() * magnitude),
            });
            let part = dy[j].to_f64() * x_hat[j];
            dgamma[j].value += part;
            dgamma[j].within += (over_rows + a) * part.abs();
        }
    }
    [all_dx, dgamma].map(|values| values.into_iter().map(|expected| expected.rounded(T::DTYPE)).collect())
}

/// The bytes that a matrix of `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (3 * rows + 2) * cols * size_of::<T>()
}
