//! `softmax(scale * x + mask)` or its logarithm, for each row of a matrix: the mask is added where it is made of numbers,
//! and where it is made of bools, elements that are `false` take no part.
//!
//! **Traffic.** Reads `x`, the mask and writes `out` once. A mask may have fewer rows than `x`: row `r` takes row `r %
//! mask_rows`, so that one mask serves every head and batch, and is then found in the cache.
//!
//! **Rounding**, **special rows.** As [`crate::softmax`]; adding the mask rounds once more, by at most `2^-24 * |scale * x +
//! mask|`. A row without any element that takes part gives probabilities of 0 and logarithms of negative infinity.
//!
//! **Source.** Vaswani and others, 2017, arXiv:1706.03762, section 3.2.3; masks as `scaled_dot_product_attention` of PyTorch
//! has them.

use std::ops::Range;

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, MAX_SECOND};
use crate::softmax::{Form, of_scores};

/// The longest row that one tile holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 16384;

/// The longest row whose programs follow each other along a matrix; programs of longer ones follow each other along the
/// rows that share a row of the mask, which is then still in the cache.
const MAX_ALONG: usize = 1024;

/// The elements of a piece of a long row.
const PIECE: usize = 4096;

/// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared. One axis of the grid
/// counts the rows of the mask, so that a program knows its own without a division, the other those that share it: the
/// second and the first, or the first and the second for blocks of 1024. `ADD` says what the mask does.
///
/// The exponentials wait for their sum, so that a probability is one product more; for a logarithm the scores are made
/// again, from the cache.
#[fuse_kernel(
    configs = [
        { T: f32, M: f32, ADD: true }, { T: f32, M: bool, ADD: false }, { T: f16, M: f16, ADD: true },
        { T: f16, M: bool, ADD: false }, { T: bf16, M: bf16, ADD: true }, { T: bf16, M: bool, ADD: false },
    ],
    BLOCK = n_cols in [1024, 2048, 4096, 8192, 16384], num_warps = BLOCK * size_of::<T>() / 2048,
)]
pub fn masked_softmax<T: Float, M: Element, const ADD: bool, const BLOCK: usize>(
    x: &[T],
    allowed: &[M],
    out: &mut [T],
    n_cols: i32,
    scale: f32,
    log: bool,
) {
    let (mask_row, row) = if BLOCK > 1024 {
        (tl::program_id(1), tl::program_id(0) * tl::num_programs(1) + tl::program_id(1))
    } else {
        (tl::program_id(0), tl::program_id(1) * tl::num_programs(0) + tl::program_id(0))
    };
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let (x, allowed) = (x + row * n_cols + cols, allowed + mask_row * n_cols + cols);
    let scores = |x, allowed| {
        let (z, allowed) = (x.to::<f32>() * scale, allowed.to::<f32>());
        // Nothing is allowed beyond the mask.
        let present = if ADD { mask } else { allowed != 0.0 };
        tl::select(present, if ADD { z + allowed } else { z }, f32::NEG_INFINITY)
    };
    let z = scores(tl::load(x, mask), tl::load(allowed, mask).evict_last());
    let peak = tl::max(z, 0);
    let base = tl::select(peak == f32::NEG_INFINITY, 0.0, peak);
    let power = tl::exp2((z - base) * f32::consts::LOG2_E);
    let total = tl::sum(power, 0);
    let y = if log {
        let z = scores(tl::load(x, mask).evict_first(), tl::load(allowed, mask));
        z - base - tl::select(total == 0.0, 0.0, tl::log2(total)) * f32::consts::LN_2
    } else {
        power * tl::select(total == 0.0, 0.0, 1.0 / total)
    };
    tl::store(out + row * n_cols + cols, y.to::<T>(), mask);
}

/// One program for each row, which it reads twice, `BLOCK` elements at a time. Each of `BLOCK` lanes keeps the largest of
/// its elements and the sum of their exponentials relative to it.
#[fuse_kernel(
    configs = [
        { T: f32, M: f32, ADD: true }, { T: f32, M: bool, ADD: false }, { T: f16, M: f16, ADD: true },
        { T: f16, M: bool, ADD: false }, { T: bf16, M: bf16, ADD: true }, { T: bf16, M: bool, ADD: false },
    ],
    BLOCK = [4096],
    num_warps = 16,
)]
pub fn masked_softmax_long<T: Float, M: Element, const ADD: bool, const BLOCK: usize>(
    x: &[T],
    allowed: &[M],
    out: &mut [T],
    mask_rows: i32,
    n_cols: i32,
    scale: f32,
    log: bool,
) {
    let row = tl::program_id(0);
    let mask_row = row % mask_rows;
    let cols = tl::arange(0, BLOCK);
    let mut peaks = tl::full([BLOCK], f32::NEG_INFINITY);
    let mut totals = tl::zeros::<f32>([BLOCK]);
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let z = tl::load(x + row * n_cols + first + cols, mask).to::<f32>() * scale;
        let part = tl::load(allowed + mask_row * n_cols + first + cols, mask).to::<f32>();
        let present = if ADD { mask } else { part != 0.0 };
        let z = tl::select(present, if ADD { z + part } else { z }, f32::NEG_INFINITY);
        let higher = tl::maximum(peaks, z);
        let base = tl::select(higher == f32::NEG_INFINITY, 0.0, higher);
        let kept = totals * tl::exp2((peaks - base) * f32::consts::LOG2_E);
        totals = kept + tl::exp2((z - base) * f32::consts::LOG2_E);
        peaks = higher;
    }
    let peak = tl::max(peaks, 0);
    let base = tl::select(peak == f32::NEG_INFINITY, 0.0, peak);
    let total = tl::sum(totals * tl::exp2((peaks - base) * f32::consts::LOG2_E), 0);
    let bits = tl::select(total == 0.0, 0.0, tl::log2(total));
    let nats = bits * f32::consts::LN_2;
    for first in (0..n_cols).step_by(BLOCK) {
        let mask = first + cols < n_cols;
        let z = tl::load(x + row * n_cols + first + cols, mask).to::<f32>() * scale;
        let part = tl::load(allowed + mask_row * n_cols + first + cols, mask).to::<f32>();
        let z = if ADD { z + part } else { tl::select(part != 0.0, z, f32::NEG_INFINITY) };
        let y = tl::select(log, z - base - nats, tl::exp2((z - base) * f32::consts::LOG2_E - bits));
        tl::store(out + row * n_cols + first + cols, y.to::<T>(), mask);
    }
}

/// A matrix of as many columns as the scores, and as many rows or a divisor of them.
#[derive(Clone, Copy)]
pub enum Mask<'a, T: Float> {
    /// Is added to the scaled scores.
    Add(Slice<'a, T>),
    /// Says which elements take part.
    Keep(Slice<'a, bool>),
}

/// The softmax of each row of a matrix under a mask. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct MaskedSoftmax<'a, T: Float> {
    x: Slice<'a, T>,
    mask: Mask<'a, T>,
    cols: usize,
    scale: f32,
    form: Form,
}

impl<'a, T: Float> MaskedSoftmax<'a, T> {
    /// The rows of `x`, each of `cols` elements; a scale of 1, and probabilities.
    pub fn new(x: impl Into<Slice<'a, T>>, mask: Mask<'a, T>, cols: usize) -> Self {
        MaskedSoftmax { x: x.into(), mask, cols, scale: 1.0, form: Form::Probability }
    }

    /// What elements are multiplied by first.
    pub fn scale(self, scale: f32) -> Self {
        MaskedSoftmax { scale, ..self }
    }

    /// The logarithms of the probabilities.
    pub fn log(self) -> Self {
        MaskedSoftmax { form: Form::Logarithm, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()>
    where
        masked_softmax::Choice<T, T, true>: masked_softmax::Declared,
        masked_softmax::Choice<T, bool, false>: masked_softmax::Declared,
        masked_softmax_long::Choice<T, T, true, PIECE>: masked_softmax_long::Declared,
        masked_softmax_long::Choice<T, bool, false, PIECE>: masked_softmax_long::Declared,
    {
        let (mut out, cols) = (out.into(), self.cols as i32);
        let (rows, mask_rows) = self.rows(out.len())?;
        if rows == 0 {
            return Ok(());
        }
        let (scale, log) = (self.scale, self.form == Form::Logarithm);
        if self.cols > MAX_TILE {
            let rows_of_mask = mask_rows as i32;
            return match self.mask {
                Mask::Add(mask) => {
                    let call = masked_softmax_long::<T, T, true, PIECE>;
                    call(self.x, mask, out, rows_of_mask, cols, scale, log).grid(rows).launch(on)
                }
                Mask::Keep(mask) => {
                    let call = masked_softmax_long::<T, bool, false, PIECE>;
                    call(self.x, mask, out, rows_of_mask, cols, scale, log).grid(rows).launch(on)
                }
            };
        }
        for part in parts(rows, mask_rows, self.cols <= MAX_ALONG) {
            let [place, of_mask] =
                [part.rows, part.mask_rows].map(|r| r.start * self.cols..r.end * self.cols);
            let (x, out) = (self.x.slice(place.clone()), out.slice_mut(place));
            match self.mask {
                Mask::Add(mask) => {
                    let call = masked_softmax::<T, T, true>;
                    call(x, mask.slice(of_mask), out, cols, scale, log).grid(part.grid).launch(on)?;
                }
                Mask::Keep(mask) => {
                    let call = masked_softmax::<T, bool, false>;
                    call(x, mask.slice(of_mask), out, cols, scale, log).grid(part.grid).launch(on)?;
                }
            }
        }
        Ok(())
    }

    /// The rows of the scores and of the mask, if all lengths fit.
    fn rows(&self, out: usize) -> Result<(usize, usize)> {
        let checks = Checks("masked_softmax");
        checks.same(("x", self.x.len()), ("out", out))?;
        let rows = checks.rows_up_to(("x", self.x.len()), self.cols, i32::MAX as usize)?;
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

/// What one launch does.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Part {
    pub rows: Range<usize>,
    pub mask_rows: Range<usize>,
    pub grid: (usize, usize),
}

/// The launches for `rows` rows of scores: each takes as many matrices, and as many rows of each, as its grid has place for.
/// `along` says that the mask's rows lie along the first axis.
#[doc(hidden)]
pub fn parts(rows: usize, mask_rows: usize, along: bool) -> Vec<Part> {
    let matrices = rows / mask_rows;
    let (count, height) = match (along, mask_rows <= MAX_SECOND) {
        (true, _) => (MAX_SECOND, mask_rows),
        (false, true) => (matrices, mask_rows),
        (false, false) => (1, MAX_SECOND),
    };
    let mut parts = vec![];
    for first in (0..matrices).step_by(count) {
        for top in (0..mask_rows).step_by(height) {
            let (count, height) = (count.min(matrices - first), height.min(mask_rows - top));
            let start = first * mask_rows + top;
            let grid = if along { (height, count) } else { (count, height) };
            parts.push(Part { rows: start..start + count * height, mask_rows: top..top + height, grid });
        }
    }
    parts
}

/// What the mask makes of each score, for [`reference()`].
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
    (cols, form): (usize, Form),
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
    of_scores(&scores, cols, form, T::DTYPE)
}
