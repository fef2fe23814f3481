//! `out = x - mean(x)` for each row of a matrix.
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. A row of up to [`MAX_TILE`]
//! elements stays in registers; a longer one is read a second time, from the cache.
//!
//! **Rounding.** In `f32`, rounded to `T` once: before that a result is within `(4 + sqrt(n_cols)) * 2^-24 *
//! (mean(|x|) + |x - mean(x)|)` of the exact one.
//!
//! **Source.** The first half of layer normalization; centering of features as in principal component analysis.

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
pub fn center<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row * x_stride + cols, mask, 0.0).to::<f32>();
    let mean = tl::sum(x, 0) / n_cols as f32;
    tl::store(out + row * out_stride + cols, (x - mean).to::<T>(), mask);
}

/// One program for each row, which it reads twice, `BLOCK` elements at a time.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [8192], num_stages = 1)]
pub fn center_long<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut lane_sums = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        lane_sums += tl::load(x + row * x_stride + first + cols, first + cols < n_cols, 0.0).to::<f32>();
    }
    let mean = tl::sum(lane_sums, 0) / n_cols as f32;
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let x = tl::load(x + row * x_stride + first + cols, mask).to::<f32>();
        tl::store(out + row * out_stride + first + cols, (x - mean).to::<T>(), mask);
    }
}

/// Subtracts its mean from each row of a matrix. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Center<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    cols: usize,
}

impl<'a, T: LibraryFloat> Center<'a, T> {
    /// The rows of `x`, each of `cols` elements.
    pub fn new(x: impl Into<Rows<'a, T>>, cols: usize) -> Self {
        Center { x: x.into(), cols }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("center"), self.cols);
        let layouts = [self.x.layout(), out.layout()];
        let rows = checks.matrices(("x", layouts[0]), [("out", layouts[1])], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = layouts.map(|layout| row_stride(layout, cols));
        let is_long = cols > longest(on, MAX_TILE, BLOCK_TILE);
        let kernel = if is_long { center_long::<T, PIECE> } else { center::<T> };
        let call = kernel(self.x.memory(), out.into_memory(), cols as i32, x_stride, out_stride);
        call.grid(rows).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], cols: usize) -> Vec<Expected> {
    let arithmetic = (4.0 + (cols as f64).sqrt()) * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(x.len());
    for row in x.chunks(cols.max(1)) {
        let mean = row.iter().map(|x| x.to_f64()).sum::<f64>() / cols as f64;
        let magnitude = row.iter().map(|x| x.to_f64().abs()).sum::<f64>() / cols as f64;
        expected.extend(row.iter().map(|x| {
            let value = x.to_f64() - mean;
            let within = arithmetic * (magnitude + value.abs());
            Expected { value, within }.rounded(T::DTYPE)
        }));
    }
    expected
}

/// The bytes that `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * rows * cols * size_of::<T>()
}
