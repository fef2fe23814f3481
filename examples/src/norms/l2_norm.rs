//! `out = x / max(sqrt(sum(x^2)), eps)` for each row of a matrix: rows of length 1.
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. A row of up to [`MAX_TILE`]
//! elements stays in registers; a longer one is read a second time, from the cache.
//!
//! **Rounding.** Squares are added in `f32`, so those of `f16` do not overflow; an `f32` beyond 1.8e19 has an infinite
//! square, which makes its row 0. The result is rounded to `T` once: before that it is within
//! `(8 + sqrt(n_cols)) * 2^-24` of the exact one, relatively.
//!
//! **Source.** `torch.nn.functional.normalize` with `p = 2`, as for embeddings that are compared by their cosine.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, longest, row_stride};

/// The longest row that the tile of a cluster holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 32768;

/// The longest row that the tile of a block holds.
pub const BLOCK_TILE: usize = 16384;

/// The elements of a piece of a long row.
const PIECE: usize = 8192;

/// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared; a cluster of blocks
/// shares the longest.
#[fuse_kernel(
    T = [f32, f16, bf16], BLOCK = n_cols in [1024, 4096, 16384, 32768], num_ctas = (BLOCK / 32768 * 4).max(1),
)]
pub fn l2_norm<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row * x_stride + cols, mask, 0.0).to::<f32>();
    let scale = 1.0 / tl::maximum(tl::sqrt(tl::sum(x * x, 0)), eps);
    tl::store(out + row * out_stride + cols, (x * scale).to::<T>(), mask);
}

/// One program for each row, which it reads twice, `BLOCK` elements at a time.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192], num_stages = 1)]
pub fn l2_norm_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let x = tl::load(x + row * x_stride + first + cols, first + cols < n_cols, 0.0).to::<f32>();
        squares += x * x;
    }
    let scale = 1.0 / tl::maximum(tl::sqrt(tl::sum(squares, 0)), eps);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * x_stride + first + cols, mask).to::<f32>();
        tl::store(out + row * out_stride + first + cols, (x * scale).to::<T>(), mask);
    }
}

/// Scales each row of a matrix to length 1. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct L2Norm<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    cols: usize,
    eps: f32,
}

impl<'a, T: LibraryFloat> L2Norm<'a, T> {
    /// The rows of `x`, each of `cols` elements; `eps` is 1e-12.
    pub fn new(x: impl Into<Rows<'a, T>>, cols: usize) -> Self {
        L2Norm { x: x.into(), cols, eps: 1e-12 }
    }

    /// The least that a row is divided by.
    pub fn eps(self, eps: f32) -> Self {
        L2Norm { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("l2_norm"), self.cols);
        let layouts = [self.x.layout(), out.layout()];
        let rows = checks.matrices(("x", layouts[0]), [("out", layouts[1])], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = layouts.map(|layout| row_stride(layout, cols));
        let is_long = cols > longest(on, MAX_TILE, BLOCK_TILE);
        let kernel = if is_long { l2_norm_long::<T, PIECE> } else { l2_norm::<T> };
        let call = kernel(self.x.memory(), out.into_memory(), cols as i32, x_stride, out_stride, self.eps);
        call.grid(rows).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], cols: usize, eps: f32) -> Vec<Expected> {
    let arithmetic = (8.0 + (cols as f64).sqrt()) * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(x.len());
    for row in x.chunks(cols.max(1)) {
        let length = row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt();
        let divisor = if length < f64::from(eps) { f64::from(eps) } else { length };
        expected.extend(row.iter().map(|x| {
            let value = x.to_f64() / divisor;
            let within = arithmetic * value.abs();
            Expected { value, within }.rounded(T::DTYPE)
        }));
    }
    expected
}

/// The bytes that `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * rows * cols * size_of::<T>()
}
