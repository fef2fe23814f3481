//! `softmax(scale * x + mask)` or its logarithm, for each row of a matrix: a mask of floats is added,
//! and a mask of bools excludes elements that are `false`.
//!
//! **Traffic.** Reads `x`, the mask and writes `out` once. A mask may have fewer rows than `x`: row `r` takes row `r %
//! mask_rows`, so that every head and batch shares one mask, which stays in the cache.
//!
//! **Rounding**, **special rows.** As [`crate::softmax`]; adding the mask rounds once more, by at most `2^-24 * |scale * x +
//! mask|`. A fully masked row gives probabilities of 0 and logarithms of negative infinity.
//!
//! **Source.** Vaswani and others, 2017, arXiv:1706.03762, section 3.2.3; masks as `scaled_dot_product_attention` of PyTorch
//! has them.

use std::ops::Range;

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, RowLayout};

use crate::float::{LibraryElement, LibraryFloat};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, MAX_GRID_YZ, row_stride};
use crate::softmax::{SoftmaxOutput, softmax_scores};

/// The longest row that one tile holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 16384;

/// The longest row whose programs are ordered along a matrix; programs of longer ones are ordered along the rows that
/// share a row of the mask, which is then still in the cache.
const MAX_ROW_MAJOR: usize = 1024;

/// The elements of a piece of a long row.
const PIECE: usize = 4096;

/// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared. One axis of the grid
/// counts the rows of the mask, so that a program needs no division, the other the rows that share it: the
/// second and the first, or the first and the second for blocks of 1024. With `ADDITIVE` the mask is added.
///
/// The exponentials stay in registers until their sum is known; for a logarithm the scores are recomputed from the cache.
#[fuse_kernel(
    configs = [
        { T: f32, M: f32, ADDITIVE: true }, { T: f32, M: bool, ADDITIVE: false }, { T: f16, M: f16, ADDITIVE: true },
        { T: f16, M: bool, ADDITIVE: false }, { T: bf16, M: bf16, ADDITIVE: true }, { T: bf16, M: bool, ADDITIVE: false },
    ],
    BLOCK = n_cols in [1024, 2048, 4096, 8192, 16384], num_warps = BLOCK * size_of::<T>() / 2048,
)]
pub fn masked_softmax<T: LibraryFloat, M: LibraryElement, const ADDITIVE: bool, const BLOCK: usize>(
    x: &[T],
    mask_values: &[M],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
    scale: f32,
    log: bool,
) {
    let (mask_row, row) = if BLOCK > 1024 {
        (tl::program_id(1), tl::program_id(0) * tl::num_programs(1) + tl::program_id(1))
    } else {
        (tl::program_id(0), tl::program_id(1) * tl::num_programs(0) + tl::program_id(0))
    };
    let cols = tl::arange(0, BLOCK);
    let in_bounds = cols < n_cols;
    let (x, mask_values) = (x + row * x_stride + cols, mask_values + mask_row * n_cols + cols);
    let scores = |x, mask_values| {
        let (z, mask_values) = (x.to::<f32>() * scale, mask_values.to::<f32>());
        // Out of bounds the loads give `false`.
        let is_kept = if ADDITIVE { in_bounds } else { mask_values != 0.0 };
        tl::select(is_kept, if ADDITIVE { z + mask_values } else { z }, f32::NEG_INFINITY)
    };
    let z = scores(tl::load(x, in_bounds), tl::load(mask_values, in_bounds).evict_last());
    let row_max = tl::max(z, 0);
    let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
    let exps = tl::exp2((z - safe_max) * f32::consts::LOG2_E);
    let row_sum = tl::sum(exps, 0);
    let y = if log {
        let z = scores(tl::load(x, in_bounds).evict_first(), tl::load(mask_values, in_bounds));
        z - safe_max - tl::select(row_sum == 0.0, 0.0, tl::log2(row_sum)) * f32::consts::LN_2
    } else {
        exps * tl::select(row_sum == 0.0, 0.0, 1.0 / row_sum)
    };
    tl::store(out + row * out_stride + cols, y.to::<T>(), in_bounds);
}

/// One program for each row, which it reads twice, `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the largest of
/// its elements and the sum of their exponentials relative to it.
#[fuse_kernel(
    configs = [
        { T: f32, M: f32, ADDITIVE: true }, { T: f32, M: bool, ADDITIVE: false }, { T: f16, M: f16, ADDITIVE: true },
        { T: f16, M: bool, ADDITIVE: false }, { T: bf16, M: bf16, ADDITIVE: true }, { T: bf16, M: bool, ADDITIVE: false },
    ],
    BLOCK = [4096],
    num_warps = 16,
)]
pub fn masked_softmax_long<T: LibraryFloat, M: LibraryElement, const ADDITIVE: bool, const BLOCK: usize>(
    x: &[T],
    mask_values: &[M],
    out: &mut [T],
    mask_rows: i32,
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
    scale: f32,
    log: bool,
) {
    let row = tl::program_id(0);
    let mask_row = row % mask_rows;
    let cols = tl::arange(0, BLOCK);
    let mut lane_max = tl::full([BLOCK], f32::NEG_INFINITY);
    let mut lane_sum = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let in_bounds = first + cols < n_cols;
        let z = tl::load(x + row * x_stride + first + cols, in_bounds).to::<f32>() * scale;
        let mask_piece = tl::load(mask_values + mask_row * n_cols + first + cols, in_bounds).to::<f32>();
        let is_kept = if ADDITIVE { in_bounds } else { mask_piece != 0.0 };
        let z = tl::select(is_kept, if ADDITIVE { z + mask_piece } else { z }, f32::NEG_INFINITY);
        let new_max = tl::maximum(lane_max, z);
        let safe_max = tl::select(new_max == f32::NEG_INFINITY, 0.0, new_max);
        let rescaled = lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E);
        lane_sum = rescaled + tl::exp2((z - safe_max) * f32::consts::LOG2_E);
        lane_max = new_max;
    }
    let row_max = tl::max(lane_max, 0);
    let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
    let row_sum = tl::sum(lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E), 0);
    let log2_denom = tl::select(row_sum == 0.0, 0.0, tl::log2(row_sum));
    let log_denom = log2_denom * f32::consts::LN_2;
    for first in (0..n_cols).step_by(BLOCK) {
        let in_bounds = first + cols < n_cols;
        let z = tl::load(x + row * x_stride + first + cols, in_bounds).to::<f32>() * scale;
        let mask_piece = tl::load(mask_values + mask_row * n_cols + first + cols, in_bounds).to::<f32>();
        let z = if ADDITIVE { z + mask_piece } else { tl::select(mask_piece != 0.0, z, f32::NEG_INFINITY) };
        let y = tl::select(
            log,
            z - safe_max - log_denom,
            tl::exp2((z - safe_max) * f32::consts::LOG2_E - log2_denom),
        );
        tl::store(out + row * out_stride + first + cols, y.to::<T>(), in_bounds);
    }
}

/// A matrix of as many columns as the scores, and as many rows or a divisor of them.
#[derive(Clone, Copy)]
pub enum Mask<'a, T: LibraryFloat> {
    /// Added to the scaled scores.
    Add(Slice<'a, T>),
    /// `false` excludes an element.
    Keep(Slice<'a, bool>),
}

/// The softmax of each row of a matrix under a mask. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct MaskedSoftmax<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    mask: Mask<'a, T>,
    cols: usize,
    scale: f32,
    form: SoftmaxOutput,
}

impl<'a, T: LibraryFloat> MaskedSoftmax<'a, T> {
    /// The rows of `x`, each of `cols` elements; a scale of 1, and probabilities.
    pub fn new(x: impl Into<Rows<'a, T>>, mask: Mask<'a, T>, cols: usize) -> Self {
        MaskedSoftmax { x: x.into(), mask, cols, scale: 1.0, form: SoftmaxOutput::Probability }
    }

    /// The scale of elements.
    pub fn scale(self, scale: f32) -> Self {
        MaskedSoftmax { scale, ..self }
    }

    /// The logarithms of the probabilities.
    pub fn log(self) -> Self {
        MaskedSoftmax { form: SoftmaxOutput::Logarithm, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (&MaskedSoftmax { x, mask, cols, scale, form }, out) = (self, out.into());
        let (rows, mask_rows) = self.rows(out.layout())?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = [x.layout(), out.layout()].map(|layout| row_stride(layout, cols));
        let (x, mut out) = (x.memory(), out.into_memory());
        let (n_cols, log) = (cols as i32, form == SoftmaxOutput::Logarithm);
        if cols > MAX_TILE {
            let rows_of_mask = mask_rows as i32;
            return match mask {
                Mask::Add(mask) => {
                    let call = masked_softmax_long::<T, T, true, PIECE>;
                    let call = call(x, mask, out, rows_of_mask, n_cols, x_stride, out_stride, scale, log);
                    call.grid(rows).launch(on)
                }
                Mask::Keep(mask) => {
                    let call = masked_softmax_long::<T, bool, false, PIECE>;
                    let call = call(x, mask, out, rows_of_mask, n_cols, x_stride, out_stride, scale, log);
                    call.grid(rows).launch(on)
                }
            };
        }
        // From the first element of the first row to the last of the last.
        let elements = |rows: &Range<usize>, stride: i32| {
            let stride = stride as usize;
            rows.start * stride..(rows.end - 1) * stride + cols
        };
        for RowLaunch { rows, mask_rows, grid } in row_launches(rows, mask_rows, cols <= MAX_ROW_MAJOR) {
            let (x, of_mask) = (x.slice(elements(&rows, x_stride)), elements(&mask_rows, n_cols));
            let out = out.slice_mut(elements(&rows, out_stride));
            match mask {
                Mask::Add(mask) => {
                    let call = masked_softmax::<T, T, true>;
                    let call = call(x, mask.slice(of_mask), out, n_cols, x_stride, out_stride, scale, log);
                    call.grid(grid).launch(on)?;
                }
                Mask::Keep(mask) => {
                    let call = masked_softmax::<T, bool, false>;
                    let call = call(x, mask.slice(of_mask), out, n_cols, x_stride, out_stride, scale, log);
                    call.grid(grid).launch(on)?;
                }
            }
        }
        Ok(())
    }

    /// The rows of the scores and of the mask, if all shapes fit.
    fn rows(&self, out: RowLayout) -> Result<(usize, usize)> {
        let checks = Checks("masked_softmax");
        let rows = checks.matrices(("x", self.x.layout()), [("out", out)], self.cols)?;
        let len = match self.mask {
            Mask::Add(mask) => mask.len(),
            Mask::Keep(mask) => mask.len(),
        };
        let mask_rows = checks.rows(("the mask", len), self.cols)?;
        if rows > 0 && rows.checked_rem(mask_rows) != Some(0) {
            return Err(checks.error(format!("{rows} rows do not share a mask of {mask_rows} evenly")));
        }
        Ok((rows, mask_rows))
    }
}

/// The rows and the grid of one launch.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct RowLaunch {
    pub rows: Range<usize>,
    pub mask_rows: Range<usize>,
    pub grid: (usize, usize),
}

/// The launches for `rows` rows of scores: each takes as many matrices, and as many rows of each, as fit its grid.
/// With `along` the grid's first axis counts the mask's rows.
#[doc(hidden)]
pub fn row_launches(rows: usize, mask_rows: usize, along: bool) -> Vec<RowLaunch> {
    let matrices = rows / mask_rows;
    let (count, height) = match (along, mask_rows <= MAX_GRID_YZ) {
        (true, _) => (MAX_GRID_YZ, mask_rows),
        (false, true) => (matrices, mask_rows),
        (false, false) => (1, MAX_GRID_YZ),
    };
    let mut row_launches = vec![];
    for first in (0..matrices).step_by(count) {
        for top in (0..mask_rows).step_by(height) {
            let (count, height) = (count.min(matrices - first), height.min(mask_rows - top));
            let start = first * mask_rows + top;
            let grid = if along { (height, count) } else { (count, height) };
            row_launches.push(RowLaunch {
                rows: start..start + count * height,
                mask_rows: top..top + height,
                grid,
            });
        }
    }
    row_launches
}

/// The mask of [`reference()`].
#[derive(Clone, Copy, Debug)]
pub enum HostMask<'a, T> {
    /// As [`Mask::Add`].
    Add(&'a [T]),
    /// As [`Mask::Keep`].
    Keep(&'a [bool]),
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    x: &[T],
    mask: HostMask<T>,
    (cols, form): (usize, SoftmaxOutput),
    scale: f32,
) -> Vec<Expected> {
    let unit = unit_roundoff(DType::F32);
    let score = |(i, x): (usize, &T)| {
        let scaled = x.to_f64() * f64::from(scale);
        let value = match mask {
            HostMask::Add(mask) => scaled + mask[i % mask.len()].to_f64(),
            HostMask::Keep(mask) if mask[i % mask.len()] => scaled,
            HostMask::Keep(_) => f64::NEG_INFINITY,
        };
        let within = if value.is_finite() { (value.abs() + scaled.abs() * 2.0) * unit } else { 0.0 };
        Expected { value, within }
    };
    let scores: Vec<Expected> = x.iter().enumerate().map(score).collect();
    softmax_scores(&scores, cols, form, T::DTYPE)
}
