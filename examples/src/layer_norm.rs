//! `out = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta` for each row of a matrix, the variance over all of the row
//! (biased).
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes; `gamma` and `beta` are read
//! from memory once and then found in the cache. A row of up to [`MAX_TILE`] elements, and of up to [`SHARED_TILE`] where there are
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

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::partials::LARGEST_CLUSTERS;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, SHORT_ROW, longest, short_programs, use_cluster};

/// The longest row that the tile of a block holds.
pub const MAX_TILE: usize = 32768;

/// The longest row that a cluster of blocks shares; longer ones are read in pieces.
pub const SHARED_TILE: usize = 65536;

/// Longer rows of `f32`, and longer ones of 16-bit elements, are in one tile, of [`layer_norm_wide`], where they divide evenly.
const NARROW: usize = 16384;
const NARROW_16_BIT: usize = 20480;

/// Longer rows of 16-bit elements are in that tile even where they do not divide evenly: on an H100 5380 rows of 29989 take 334 us so,
/// and 368 shared by clusters.
const WIDE: usize = 24576;

/// The elements of a piece of a long row.
pub const PIECE: usize = 8192;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;

    /// A row; the same minus its mean, 0 past its end; its mean, and its `rstd`.
    #[fuse_fn]
    fn center_row<T: Float>(
        x: &[T],
        cols: Tile<i32>,
        n_cols: i32,
        eps: f32,
    ) -> (Tile<f32>, Tile<f32>, f32, f32) {
        let mask = cols < n_cols;
        let x = tl::load(x + cols, mask, 0.0).to::<f32>();
        let mean = tl::sum(x, 0) / n_cols as f32;
        let centered = tl::select(mask, x - mean, 0.0);
        let var = tl::sum(centered * centered, 0) / n_cols as f32;
        (x, centered, mean, tl::rsqrt(var + eps))
    }

    /// Normalizes a program's row.
    #[fuse_fn]
    fn normalize_row<T: Float>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        cols: Tile<i32>,
        n_cols: i32,
        eps: f32,
    ) {
        let row = tl::program_id(0);
        let (_, centered, _, scale) = center_row::<T>(x + row * n_cols, cols, n_cols, eps);
        let gamma = tl::load(gamma + cols, cols < n_cols).to::<f32>();
        let beta = tl::load(beta + cols, cols < n_cols).to::<f32>();
        let y = centered * scale * gamma + beta;
        tl::store(out + row * n_cols + cols, y.to::<T>(), cols < n_cols);
    }

    /// Normalizes one row after the other, and prefetches the next one, with `gamma` and `beta` in registers.
    #[fuse_fn]
    fn normalize_rows<T: Float>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        cols: Tile<i32>,
        n_rows: i32,
        n_cols: i32,
        eps: f32,
    ) {
        let gamma = tl::load(gamma + cols, cols < n_cols).to::<f32>();
        let beta = tl::load(beta + cols, cols < n_cols).to::<f32>();
        for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
            let (_, centered, _, scale) = center_row::<T>(x + row * n_cols, cols, n_cols, eps);
            let y = centered * scale * gamma + beta;
            tl::store(out + row * n_cols + cols, y.to::<T>(), cols < n_cols);
        }
    }

    /// A program for eight short rows, or four of more than 512 elements, in the smallest tile declared whose rows cover them.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols in [128, 256, 384, 512, 768], num_warps = 4)]
    pub fn layer_norm_short<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_rows: i32,
        n_cols: i32,
        eps: f32,
    ) {
        let first = tl::program_id(0) * (if COLS <= 512 { 8 } else { 4 });
        let (rows, cols) = (first + tl::arange(0, if COLS <= 512 { 8 } else { 4 }), tl::arange(0, COLS));
        let mask = (rows < n_rows).col() & (cols < n_cols).row();
        let offsets = (rows * n_cols).col() + cols.row();
        let x = tl::load(x + offsets, mask, 0.0).to::<f32>();
        let mean = tl::sum(x, 1) / n_cols as f32;
        let centered = tl::select(mask, x - mean.col(), 0.0);
        let var = tl::sum(centered * centered, 1) / n_cols as f32;
        let gamma = tl::load(gamma + cols, cols < n_cols).to::<f32>();
        let beta = tl::load(beta + cols, cols < n_cols).to::<f32>();
        let y = centered * tl::rsqrt(var + eps).col() * gamma.row() + beta.row();
        tl::store(out + offsets, y.to::<T>(), mask);
    }

    /// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared. Three 16-bit rows of 16384
    /// fit on an SM, and two of 20480; longer ones are shared by a cluster of blocks.
    #[fuse_kernel(
        T = [f32, f16, bf16],
        BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 20480, 24576, 32768, 40960, 65536],
        num_ctas = if BLOCK > 20480 || BLOCK == 20480 && size_of::<T>() == 4 { 8 } else { 1 },
        maxnreg = if size_of::<T>() == 2 && BLOCK == 16384 { 80 } else { 255 },
    )]
    pub fn layer_norm<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_cols: i32,
        eps: f32,
    ) {
        normalize_row::<T>(x, gamma, beta, out, tl::arange(0, BLOCK), n_cols, eps);
    }

    /// As [`layer_norm()`], for so few rows that a cluster of blocks is faster for each than the block that could hold it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [32768], num_ctas = 8)]
    pub fn layer_norm_cluster<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_cols: i32,
        eps: f32,
    ) {
        normalize_row::<T>(x, gamma, beta, out, tl::arange(0, BLOCK), n_cols, eps);
    }

    /// As [`layer_norm()`], for rows that take half of the registers of an SM; or all of them, as those of `f32` do: then
    /// a persistent cluster of blocks takes one row after the other.
    #[fuse_kernel(configs = [
        { T: f32, BLOCK: 32768, num_ctas: 4, num_warps: 4, num_stages: 2 },
        { T: f16, BLOCK: 32768, num_warps: 8 },
        { T: bf16, BLOCK: 32768, num_warps: 8 },
    ])]
    pub fn layer_norm_wide<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [T],
        n_rows: i32,
        n_cols: i32,
        eps: f32,
    ) {
        let cols = tl::arange(0, BLOCK);
        if T::EPSILON < 1e-6 {
            normalize_rows::<T>(x, gamma, beta, out, cols, n_rows, n_cols, eps);
        } else {
            normalize_row::<T>(x, gamma, beta, out, cols, n_cols, eps);
        }
    }

    /// As [`layer_norm()`], and applies GELU; a cluster of blocks takes the longest rows of `f32`. It is bound by instructions: a
    /// thread has at least 32 elements for each reduction, and the register limit leaves an SM several rows, which hide each
    /// other's latency.
    #[fuse_kernel(
        T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
        num_ctas = if size_of::<T>() == 4 && BLOCK == 32768 { 4 } else { 1 },
        num_warps = if BLOCK == 32768 { 8 }
            else if size_of::<T>() == 4 { (BLOCK / 512).next_power_of_two().min(if BLOCK > 8192 { 16 } else { 8 }) }
            else { (BLOCK / 1024).next_power_of_two().min(if BLOCK == 16384 { 8 } else { 4 }) },
        maxnreg = if size_of::<T>() == 4 || BLOCK < 4096 { 255 }
            else if BLOCK == 4096 { 56 } else if BLOCK == 5120 { 72 } else if BLOCK == 12288 { 128 } else if BLOCK == 32768 { 160 } else { 80 },
    )]
    pub fn layer_norm_gelu<T: LibraryFloat, const BLOCK: usize>(
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
        let (x, centered, mean, scale) = center_row::<T>(x + row * n_cols, cols, n_cols, eps);
        // A longer row is converted again, and one fma shifts and scales it.
        let x_hat = if BLOCK > 4096 { tl::fma(x, scale, -mean * scale) } else { centered * scale };
        let gamma = tl::load(gamma + cols, mask).to::<f32>();
        let y = x_hat * gamma + tl::load(beta + cols, mask).to::<f32>();
        tl::store(out + row * n_cols + cols, tl::gelu::<T>(y).to::<T>(), mask);
    }
}

pub use kernels::{layer_norm, layer_norm_cluster, layer_norm_short, layer_norm_wide};

/// One program for each row, which it reads twice, `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the mean of its
/// elements and the sum of their squared deviations from it.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
pub fn layer_norm_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
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
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        (means, squares) = welford(means, squares, x, mask, n_seen);
    }
    let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
    let (mean, var) = mean_and_variance(means, squares, counts, n_cols);
    let scale = tl::rsqrt(var + eps);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
        let beta = tl::load(beta + first + cols, mask).to::<f32>();
        let y = (x - mean) * scale * gamma + beta;
        tl::store(out + row * n_cols + first + cols, y.to::<T>(), mask);
    }
}

/// Normalizes each row of a matrix in row-major order. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LayerNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat> LayerNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        LayerNorm { x: x.into(), gamma: gamma.into(), beta: beta.into(), eps: 1e-5 }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        LayerNorm { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("layer_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        checks.same(("gamma", cols), ("beta", self.beta.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let (n_rows, n_cols, eps) = (rows as i32, cols as i32, self.eps);
        if cols <= SHORT_ROW {
            let call = layer_norm_short::<T>(self.x, self.gamma, self.beta, out, n_rows, n_cols, eps);
            return call.grid(short_programs(rows, cols)).launch(on);
        }
        if cols <= MAX_TILE && use_cluster(on, rows, cols) {
            let call = layer_norm_cluster::<T, MAX_TILE>(self.x, self.gamma, self.beta, out, n_cols, eps);
            return call.grid(rows).launch(on);
        }
        let is_unaligned = !cols.is_multiple_of(8) && (size_of::<T>() == 4 || cols <= WIDE);
        // Clusters of blocks share rows that are longer than the widest tile of a block, and most of those of which no vector is aligned.
        let in_cluster = cols <= longest(on, SHARED_TILE, NARROW) && (is_unaligned || cols > MAX_TILE);
        let narrow = if size_of::<T>() == 4 { NARROW } else { NARROW_16_BIT };
        if cols <= narrow || in_cluster {
            return layer_norm::<T>(self.x, self.gamma, self.beta, out, n_cols, eps).grid(rows).launch(on);
        }
        // Rows that do not divide evenly, but for those, are faster in pieces than in the widest tile.
        // So are rows of `f32` where no cluster of blocks shares them.
        let widest = if size_of::<T>() == 4 { longest(on, MAX_TILE, NARROW) } else { MAX_TILE };
        if cols > widest || is_unaligned {
            let call = layer_norm_long::<T, PIECE>(self.x, self.gamma, self.beta, out, n_cols, eps);
            return call.grid(rows).launch(on);
        }
        let call = layer_norm_wide::<T, MAX_TILE>(self.x, self.gamma, self.beta, out, n_rows, n_cols, eps);
        // Clusters of `f32` are persistent, and two have blocks on an SM.
        let concurrent = if size_of::<T>() == 4 { 2 * LARGEST_CLUSTERS } else { rows };
        call.grid(rows.min(concurrent)).launch(on)
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
