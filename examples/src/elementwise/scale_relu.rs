//! `out = max(x, 0) * scale + bias`, element by element, the bias a scalar, or one for each column of a matrix.
//!
//! **Traffic.** Reads `x` and writes `out` once: `2 * n * size_of::<T>()` bytes; the biases of columns are read from memory once and then found
//! in the cache.
//!
//! **Rounding.** In `f32`, with one or two roundings, then to `T`: within `2 * 2^-24 * (|x * scale| + |bias|)` of the exact
//! result before the last rounding. NaN stays NaN.
//!
//! **Source.** The activation with a learned scale and shift, three operations and one pass.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, along_rows, tile_width};

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// The elements that one program handles where columns have a bias each: of one row, or of several short ones.
const TILE: usize = 4096;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

/// `out[i] = max(x[i], 0) * scale + bias` for `i < n`; a program handles `BLOCK` elements.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [2048], num_warps = 8)]
pub fn scale_relu<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    out: &mut [T],
    n: i32,
    scale: f32,
    bias: f32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask).to::<f32>();
    tl::store(out + offsets, (tl::maximum(x, 0.0) * scale + bias).to::<T>(), mask);
}

/// The same with a bias for each column. A program handles a tile of `COLS` columns and `4096 / COLS` rows; the grid's first axis
/// counts tiles across, its second and third those down.
#[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols.min(4096) in [128, 1024, 4096])]
pub fn scale_relu_columns<T: LibraryFloat, const COLS: usize>(
    x: &[T],
    bias: &[T],
    out: &mut [T],
    n_rows: i32,
    n_cols: i32,
    scale: f32,
) {
    let down = tl::program_id(2) * tl::num_programs(1) + tl::program_id(1);
    let rows = down * (4096 / COLS) + tl::arange(0, 4096 / COLS);
    let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
    let mask = (rows < n_rows).col() & (cols < n_cols).row();
    let offsets = (rows * n_cols).col() + cols.row();
    let x = tl::load(x + offsets, mask).to::<f32>();
    let bias = tl::load(bias + cols, cols < n_cols).to::<f32>();
    tl::store(out + offsets, (tl::maximum(x, 0.0) * scale + bias.row()).to::<T>(), mask);
}

/// `max(x, 0) * scale + bias` of a slice. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct ScaleRelu<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    scale: f32,
    bias: f32,
}

impl<'a, T: LibraryFloat> ScaleRelu<'a, T> {
    /// The input; a scale of 1, a bias of 0.
    pub fn new(x: impl Into<Slice<'a, T>>) -> Self {
        ScaleRelu { x: x.into(), scale: 1.0, bias: 0.0 }
    }

    /// What the activation is multiplied by.
    pub fn scale(self, scale: f32) -> Self {
        ScaleRelu { scale, ..self }
    }

    /// What is added after that.
    pub fn bias(self, bias: f32) -> Self {
        ScaleRelu { bias, ..self }
    }

    /// A bias for each column instead: the input is then a matrix, whose rows are as long as `bias`.
    pub fn column_bias(self, bias: impl Into<Slice<'a, T>>) -> ScaleReluColumns<'a, T> {
        ScaleReluColumns { x: self.x, bias: bias.into(), scale: self.scale }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let mut out = out.into();
        Checks("scale_relu").same(("x", self.x.len()), ("out", out.len()))?;
        for first in (0..out.len()).step_by(LAUNCH) {
            let part = first..out.len().min(first + LAUNCH);
            let (programs, n) = (part.len().div_ceil(BLOCK), part.len() as i32);
            let (x, out) = (self.x.slice(part.clone()), out.slice_mut(part));
            scale_relu::<T, BLOCK>(x, out, n, self.scale, self.bias).grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// `max(x, 0) * scale + bias` of a matrix, with a bias for each column. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct ScaleReluColumns<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    bias: Slice<'a, T>,
    scale: f32,
}

impl<'a, T: LibraryFloat> ScaleReluColumns<'a, T> {
    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("scale_relu"), self.bias.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let width = tile_width([128, 1024, TILE], cols);
        let grid = along_rows(cols.div_ceil(width), rows.div_ceil(TILE / width));
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        scale_relu_columns::<T>(self.x, self.bias, out, n_rows, n_cols, self.scale).grid(grid).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], scale: f32, bias: f32) -> Vec<Expected> {
    x.iter().map(|x| exact(*x, scale, f64::from(bias))).collect()
}

/// The same with a bias for each column.
pub fn column_reference<T: Float>(x: &[T], scale: f32, bias: &[T]) -> Vec<Expected> {
    x.iter().zip(bias.iter().cycle()).map(|(x, bias)| exact(*x, scale, bias.to_f64())).collect()
}

fn exact<T: Float>(x: T, scale: f32, bias: f64) -> Expected {
    let x = x.to_f64();
    let product = if x.is_nan() { x } else { x.max(0.0) } * f64::from(scale);
    let within = 2.0 * unit_roundoff(DType::F32) * (product.abs() + bias.abs());
    Expected { value: product + bias, within }.rounded(T::DTYPE)
}

/// The bytes that computing `n` elements of `T` must move.
pub const fn traffic<T>(n: usize) -> usize {
    2 * n * size_of::<T>()
}
