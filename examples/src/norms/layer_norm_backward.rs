//! The gradients of [`crate::layer_norm`]: from `dy` and the forward's inputs, with `x_hat = (x - mean) / sqrt(var + eps)`
//! and `g = dy * gamma`,
//!
//! - `dx = (g - mean(g) - x_hat * mean(g * x_hat)) / sqrt(var + eps)` for each row,
//! - `dgamma = sum(dy * x_hat)` and `dbeta = sum(dy)` over the rows.
//!
//! **Traffic.** Reads `dy` and `x` and writes `dx` once: `3 * rows * cols * size_of::<T>()` bytes; mean and variance are
//! computed again from the row, which is in registers anyway. Each program accumulates `dgamma` and `dbeta` in registers
//! over its rows and writes partial sums to `scratch`, which a second kernel reduces: a few percent more. Rows of more than [`partials::MAX_COLS`]
//! elements, or [`partials::BLOCK_COLS`] where there are no clusters, are read a second time from the cache for
//! `dx`, and once more from memory for `dgamma` and `dbeta`.
//!
//! **Rounding.** In `f32`, rounded to `T` once. With `a = (8 + sqrt(n_cols)) * 2^-24` and `e = a * (|x_hat| + mean(|x|) /
//! sqrt(var + eps))`, the error of `x_hat`, before the last rounding `dx` is within `2 / sqrt(var + eps)` times
//! `a * (|g| + mean(|g|) + 2 * |x_hat| * mean(|g * x_hat|)) + e * |mean(g * x_hat)| + |x_hat| * mean(|g| * e)`, `dgamma` within
//! `(8 + sqrt(rows)) * 2^-24 * sum(|dy * x_hat|) + sum(|dy| * e)` and `dbeta` within `(8 + sqrt(rows)) * 2^-24 * sum(|dy|)`.
//!
//! **Source.** The derivative of arXiv:1607.06450, equations 3 and 4; partial sums as in NVIDIA's Apex.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::partials::{self, BLOCK_COLS, WIDE_COLS, column_partials};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The elements of a piece of a long row.
pub const PIECE: usize = 4096;

/// Each program takes rows `p`, `p + programs`, and so on; a cluster of blocks shares the longest. All programs run
/// concurrently.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 4096, 8192, 16384, 32768],
    num_ctas = if size_of::<T>() == 4 && BLOCK == 32768 { 8 } else { (BLOCK / 8192).max(1) },
    num_warps = if size_of::<T>() == 4 && BLOCK == 32768 { 4 } else { (BLOCK / 512).min(8) },
    num_stages = if size_of::<T>() == 2 && BLOCK > 8192 { 3 } else { 2 },
)]
pub fn layer_norm_backward<T: LibraryFloat, const BLOCK: usize>(
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
    let mut dbeta = tl::zeros::<f32>([BLOCK]);
    for row in (program..n_rows).step_by(tl::num_programs(0)) {
        let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
        let dy = tl::load(dy + row * n_cols + cols, mask, 0.0).to::<f32>();
        let g = dy * gamma;
        let mean = tl::sum(x, 0) / n_cols as f32;
        let mean_g = tl::sum(g, 0) / n_cols as f32;
        let centered = tl::select(mask, x - mean, 0.0);
        let var = tl::sum(centered * centered, 0) / n_cols as f32;
        let mean_g_x = tl::sum(g * centered, 0) / n_cols as f32;
        let scale = tl::rsqrt(var + eps);
        let x_hat = centered * scale;
        let y = tl::fma(g, scale, tl::fma(x_hat, -mean_g_x * scale * scale, -mean_g * scale));
        tl::store(dx + row * n_cols + cols, y.to::<T>(), mask);
        dgamma += dy * x_hat;
        dbeta += dy;
    }
    tl::store(partials + 2 * program * n_cols + cols, dgamma, mask);
    tl::store(partials + (2 * program + 1) * n_cols + cols, dbeta, mask);
}

/// The gradient of `x` alone, for rows of any length: one program for each, which it reads twice, `BLOCK` elements at a time.
/// Leaves the row's scale in `stats`, and its mean behind all the scales.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096])]
pub fn layer_norm_backward_long<T: LibraryFloat, const BLOCK: usize>(
    dy: &[T],
    x: &[T],
    gamma: &[T],
    dx: &mut [T],
    stats: &mut [f32],
    n_rows: i32,
    n_cols: i32,
    eps: f32,
) {
    use crate::norms::{mean_and_variance, welford};

    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut means = tl::zeros::<f32>([BLOCK]);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    let mut g_sums = tl::zeros::<f32>([BLOCK]);
    let mut g_x = tl::zeros::<f32>([BLOCK]);
    let mut n_seen = 0.0;
    for first in (0..n_cols).step_by(BLOCK) {
        n_seen += 1.0;
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let dy = tl::load(dy + row * n_cols + first + cols, mask).to::<f32>();
        let g = dy * tl::load(gamma + first + cols, mask).to::<f32>();
        (means, squares) = welford(means, squares, x, mask, n_seen);
        g_sums += g;
        g_x += g * x;
    }
    let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
    let (mean, var) = mean_and_variance(means, squares, counts, n_cols);
    let mean_g = tl::sum(g_sums, 0) / n_cols as f32;
    // The mean is subtracted in each lane before lanes are added.
    let mean_g_x = tl::sum(g_x - mean * g_sums, 0) / n_cols as f32;
    let scale = tl::rsqrt(var + eps);
    tl::store(stats + row, scale);
    tl::store(stats + n_rows + row, mean);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let dy = tl::load(dy + row * n_cols + first + cols, mask).to::<f32>();
        let g = dy * tl::load(gamma + first + cols, mask).to::<f32>();
        let y = (g - mean_g - (x - mean) * scale * (mean_g_x * scale)) * scale;
        tl::store(dx + row * n_cols + first + cols, y.to::<T>(), mask);
    }
}

/// The gradients of a LayerNorm. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LayerNormBackward<'a, T: LibraryFloat> {
    dy: Slice<'a, T>,
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    eps: f32,
}

/// The outputs for the gradients of a norm's parameters.
pub struct Gradients<'o, T: LibraryFloat> {
    /// As long as a row.
    pub dgamma: SliceMut<'o, T>,
    /// As long as a row.
    pub dbeta: SliceMut<'o, T>,
    /// Workspace of [`scratch_len`] floats.
    pub scratch: SliceMut<'o, f32>,
}

/// The length of the workspace for a matrix of this shape.
pub fn scratch_len(rows: usize, cols: usize) -> usize {
    2 * partials::max_programs(rows, cols) * cols + if cols > BLOCK_COLS { 2 * rows } else { 0 }
}

impl<'a, T: LibraryFloat> LayerNormBackward<'a, T> {
    /// The gradient of the norm's result, and the norm's inputs; `eps` is 1e-5.
    pub fn new(
        dy: impl Into<Slice<'a, T>>,
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
    ) -> Self {
        LayerNormBackward { dy: dy.into(), x: x.into(), gamma: gamma.into(), eps: 1e-5 }
    }

    /// What was added to the variance.
    pub fn eps(self, eps: f32) -> Self {
        LayerNormBackward { eps, ..self }
    }

    /// Computes the gradient of `x` into `dx` and those of the parameters, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        dx: impl Into<SliceMut<'o, T>>,
        gradients: Gradients<'o, T>,
    ) -> Result<()> {
        let (dx, Gradients { dgamma, dbeta, mut scratch }) = (dx.into(), gradients);
        let (checks, cols) = (Checks("layer_norm_backward"), self.gamma.len());
        checks.same(("x", self.x.len()), ("dy", self.dy.len()))?;
        checks.same(("x", self.x.len()), ("dx", dx.len()))?;
        checks.same(("gamma", cols), ("dgamma", dgamma.len()))?;
        checks.same(("gamma", cols), ("dbeta", dbeta.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        checks.same(("scratch", scratch.len()), ("what it should be", scratch_len(rows, cols)))?;
        if cols == 0 {
            return Ok(());
        }
        let programs = partials::programs(rows, cols, partials::max_register_cols(on));
        let (mut partials_out, mut stats) = scratch.split_at_mut(2 * programs * cols);
        let (dy, x, gamma, eps) = (self.dy, self.x, self.gamma, self.eps);
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        if rows > 0 && cols <= partials::max_register_cols(on) {
            layer_norm_backward::<T>(dy, x, gamma, dx, &mut partials_out, n_rows, n_cols, eps)
                .grid(programs)
                .launch(on)?;
        } else if rows > 0 {
            layer_norm_backward_long::<T, PIECE>(dy, x, gamma, dx, &mut stats, n_rows, n_cols, eps)
                .grid(rows)
                .launch(on)?;
            column_partials::<T, 2, WIDE_COLS>(dy, x, &stats, &mut partials_out, n_rows, n_cols)
                .grid((programs, cols.div_ceil(WIDE_COLS)))
                .launch(on)?;
        }
        partials::reduce(on, partials_out.slice(..), dgamma, Some(dbeta))
    }
}

/// What the kernels compute, in `f64`, and the bounds that the module's documentation states: `dx`, `dgamma`, `dbeta`.
pub fn reference<T: Float>(dy: &[T], x: &[T], gamma: &[T], eps: f32) -> [Vec<Expected>; 3] {
    let cols = gamma.len();
    let rows = x.len().checked_div(cols).unwrap_or(0);
    let single = unit_roundoff(DType::F32);
    let (a, over_rows) = ((8.0 + (cols as f64).sqrt()) * single, (8.0 + (rows as f64).sqrt()) * single);
    let zero = Expected { value: 0.0, within: 0.0 };
    let (mut all_dx, mut dgamma, mut dbeta) =
        (Vec::with_capacity(x.len()), vec![zero; cols], vec![zero; cols]);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / cols as f64;
    for (dy, x) in dy.chunks(cols.max(1)).zip(x.chunks(cols.max(1))) {
        let widened = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
        let (dy, x) = (widened(dy), widened(x));
        let each = |value: &dyn Fn(usize) -> f64| (0..cols).map(value).collect::<Vec<f64>>();
        let (mean_x, magnitude) = (mean(&x), mean(&each(&|j| x[j].abs())));
        let scale = 1.0 / (mean(&each(&|j| (x[j] - mean_x).powi(2))) + f64::from(eps)).sqrt();
        let x_hat = each(&|j| (x[j] - mean_x) * scale);
        let e = each(&|j| a * (x_hat[j].abs() + magnitude * scale));
        let g = each(&|j| dy[j] * gamma[j].to_f64());
        let (mean_g, mean_g_x) = (mean(&g), mean(&each(&|j| g[j] * x_hat[j])));
        let (magnitude_g, magnitude_g_x) =
            (mean(&each(&|j| g[j].abs())), mean(&each(&|j| (g[j] * x_hat[j]).abs())));
        let mean_error = mean(&each(&|j| g[j].abs() * e[j]));
        for j in 0..cols {
            let value = (g[j] - mean_g - x_hat[j] * mean_g_x) * scale;
            let direct = a * (g[j].abs() + magnitude_g + 2.0 * x_hat[j].abs() * magnitude_g_x);
            let within = 2.0 * scale * (direct + e[j] * mean_g_x.abs() + x_hat[j].abs() * mean_error);
            all_dx.push(Expected { value, within });
            dgamma[j].value += dy[j] * x_hat[j];
            dgamma[j].within += over_rows * (dy[j] * x_hat[j]).abs() + dy[j].abs() * e[j];
            dbeta[j].value += dy[j];
            dbeta[j].within += over_rows * dy[j].abs();
        }
    }
    [all_dx, dgamma, dbeta]
        .map(|values| values.into_iter().map(|expected| expected.rounded(T::DTYPE)).collect())
}

/// The bytes that a matrix of `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    3 * (rows + 1) * cols * size_of::<T>()
}
