//! `out = x / sqrt(mean(x^2) + eps) * gamma` for each row of a matrix; and the same after `residual += x`.
//!
//! **Traffic.** [`RmsNorm`] reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. [`AddRmsNorm`] reads
//! `x` and `residual` and writes `residual` and `out`: twice that, where an addition and a norm on their own move five
//! rows for every four. `gamma` is read from memory once and then found in the cache. A row of up to [`BLOCK_TILE`] elements, and for
//! [`RmsNorm`] of up to [`MAX_TILE`] where there are clusters of blocks, stays in registers from its load to its store; a longer one is
//! read a second time, from the cache.
//!
//! **Rounding.** Squares are added in `f32`, so those of `f16` do not overflow; an `f32` beyond 1.8e19 has an infinite
//! square, which makes its row 0. The result is rounded to `T` once: before that it is within
//! `(8 + sqrt(n_cols)) * 2^-24` of the exact one, relatively. [`AddRmsNorm`] rounds the sum to `T` first and normalizes
//! what it stores.
//!
//! **Source.** Zhang, Sennrich, *Root Mean Square Layer Normalization*, 2019, arXiv:1910.07467, equation 4; `eps` inside
//! the root as `torch.nn.RMSNorm` has it. The residual as vLLM's `fused_add_rms_norm`.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, SHORT_ROW, longest, short_programs, use_cluster};

/// The longest row that the tile of a cluster holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 131072;

/// The longest row that the tile of a block holds, and any tile of [`AddRmsNorm`].
pub const BLOCK_TILE: usize = 32768;

/// The elements of a piece of a long row.
const PIECE: usize = 8192;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;

    /// Normalizes a program's row.
    #[fuse_fn]
    fn normalize_row<T: Float>(x: &[T], gamma: &[T], out: &mut [T], cols: Tile<i32>, n_cols: i32, eps: f32) {
        let row = tl::program_id(0);
        let mask = cols < n_cols;
        let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
        let gamma = tl::load(gamma + cols, mask).to::<f32>();
        let scale = tl::rsqrt(tl::sum(x * x, 0) / n_cols as f32 + eps);
        tl::store(out + row * n_cols + cols, (x * scale * gamma).to::<T>(), mask);
    }

    /// A program for eight short rows, or four of more than 512 elements, in the smallest tile declared whose rows cover them.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols in [128, 256, 384, 512, 768], num_warps = 4)]
    pub fn rms_norm_short<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        gamma: &[T],
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
        let gamma = tl::load(gamma + cols, cols < n_cols).to::<f32>();
        let scale = tl::rsqrt(tl::sum(x * x, 1) / n_cols as f32 + eps);
        tl::store(out + offsets, (x * scale.col() * gamma.row()).to::<T>(), mask);
    }

    /// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared; a cluster of blocks
    /// shares the longest.
    #[fuse_kernel(
        T = [f32, f16, bf16],
        BLOCK = n_cols in [
            1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 20480, 24576, 32768, 40960, 49152, 65536, 131072
        ],
        num_ctas = if BLOCK > 24576 { 8 }
            else if BLOCK == 24576 || BLOCK == 20480 && size_of::<T>() == 4 { 2 }
            else { 1 },
    )]
    pub fn rms_norm<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        out: &mut [T],
        n_cols: i32,
        eps: f32,
    ) {
        normalize_row::<T>(x, gamma, out, tl::arange(0, BLOCK), n_cols, eps);
    }

    /// As [`rms_norm()`], for so few rows that a cluster of blocks is faster for each than the block that could hold it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [32768], num_ctas = 8)]
    pub fn rms_norm_cluster<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        out: &mut [T],
        n_cols: i32,
        eps: f32,
    ) {
        normalize_row::<T>(x, gamma, out, tl::arange(0, BLOCK), n_cols, eps);
    }
}

pub use kernels::{rms_norm, rms_norm_cluster, rms_norm_short};

/// One program for each row, which it reads twice, `BLOCK` elements at a time.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
pub fn rms_norm_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    gamma: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let x = tl::load(x + row * n_cols + first + cols, first + cols < n_cols, 0.0).to::<f32>();
        squares += x * x;
    }
    let scale = tl::rsqrt(tl::sum(squares, 0) / n_cols as f32 + eps);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask).to::<f32>();
        let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
        tl::store(out + row * n_cols + first + cols, (x * scale * gamma).to::<T>(), mask);
    }
}

/// As [`rms_norm()`], of `x + residual`, which is written to `residual`.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
    num_ctas = (BLOCK / 16384 * 4).max(1),
)]
pub fn add_rms_norm<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    residual: &mut [T],
    gamma: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
    let mask = cols < n_cols;
    let x = tl::load(x + row * n_cols + cols, mask, 0.0);
    let residual_in = tl::load(residual + row * n_cols + cols, mask, 0.0);
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let sum = x + residual_in;
    tl::store(residual + row * n_cols + cols, sum, mask);
    let sum = sum.to::<f32>();
    let scale = tl::rsqrt(tl::sum(sum * sum, 0) / n_cols as f32 + eps);
    tl::store(out + row * n_cols + cols, (sum * scale * gamma).to::<T>(), mask);
}

/// As [`rms_norm_long()`], of `x + residual`, which is written to `residual`.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192])]
pub fn add_rms_norm_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    residual: &mut [T],
    gamma: &[T],
    out: &mut [T],
    n_cols: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * n_cols + first + cols, mask, 0.0);
        let sum = x + tl::load(residual + row * n_cols + first + cols, mask, 0.0);
        tl::store(residual + row * n_cols + first + cols, sum, mask);
        squares += sum.to::<f32>() * sum.to::<f32>();
    }
    let scale = tl::rsqrt(tl::sum(squares, 0) / n_cols as f32 + eps);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let sum = tl::load(residual + row * n_cols + first + cols, mask).to::<f32>();
        let gamma = tl::load(gamma + first + cols, mask).to::<f32>();
        tl::store(out + row * n_cols + first + cols, (sum * scale * gamma).to::<T>(), mask);
    }
}

/// Normalizes each row of a matrix in row-major order. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct RmsNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat> RmsNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn new(x: impl Into<Slice<'a, T>>, gamma: impl Into<Slice<'a, T>>) -> Self {
        RmsNorm { x: x.into(), gamma: gamma.into(), eps: 1e-6 }
    }

    /// What is added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        RmsNorm { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("rms_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let n_cols = cols as i32;
        if cols > longest(on, MAX_TILE, BLOCK_TILE) {
            let call = rms_norm_long::<T, PIECE>(self.x, self.gamma, out, n_cols, self.eps);
            return call.grid(rows).launch(on);
        }
        if cols <= SHORT_ROW {
            let call = rms_norm_short::<T>(self.x, self.gamma, out, rows as i32, n_cols, self.eps);
            return call.grid(short_programs(rows, cols)).launch(on);
        }
        if cols <= BLOCK_TILE && use_cluster(on, rows, cols) {
            let call = rms_norm_cluster::<T, BLOCK_TILE>(self.x, self.gamma, out, n_cols, self.eps);
            return call.grid(rows).launch(on);
        }
        rms_norm::<T>(self.x, self.gamma, out, n_cols, self.eps).grid(rows).launch(on)
    }
}

/// Adds a matrix to a residual stream and normalizes each row of the sum. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct AddRmsNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat> AddRmsNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn new(x: impl Into<Slice<'a, T>>, gamma: impl Into<Slice<'a, T>>) -> Self {
        AddRmsNorm { x: x.into(), gamma: gamma.into(), eps: 1e-6 }
    }

    /// What is added to the mean of the squares.
    pub fn eps(self, eps: f32) -> Self {
        AddRmsNorm { eps, ..self }
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
        let (checks, cols) = (Checks("add_rms_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("residual", residual.len()))?;
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let n_cols = cols as i32;
        if cols > BLOCK_TILE {
            let call = add_rms_norm_long::<T, PIECE>(self.x, residual, self.gamma, out, n_cols, self.eps);
            return call.grid(rows).launch(on);
        }
        add_rms_norm::<T>(self.x, residual, self.gamma, out, n_cols, self.eps).grid(rows).launch(on)
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
