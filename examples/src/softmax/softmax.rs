//! `softmax(scale * x)` or its logarithm, for each row of a matrix.
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. A row of up to [`MAX_TILE`]
//! elements stays in registers from its load to its store; a longer one, of up to 2^31 - 1, is read a second time, from
//! the cache: once for its maximum and the sum of the exponentials (online softmax), once to write.
//!
//! **Rounding.** In `f32`, rounded to `T` once. With `d` the distance of an element's `scale * x` from the row's largest, a
//! probability is before that within `(32 + sqrt(n_cols) + 2 d) * 2^-24` of the exact one, relatively, and a logarithm
//! within `(8 + sqrt(n_cols) + 2 * (d + ln(n_cols))) * 2^-24` absolutely; `scale * x` is itself rounded, which adds
//! `|scale * x| * 2^-23` to either. A probability below the smallest normal `f32` may be 0 on a GPU.
//!
//! **Special rows.** A row of negative infinities gives probabilities of 0, not NaN, and logarithms of negative infinity. A
//! NaN or a positive infinity makes its row NaN.
//!
//! **Source.** Milakov, Gimelshein, *Online normalizer calculation for softmax*, 2018, arXiv:1805.02867, algorithm 3, for
//! long rows.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, SHORT_ROW, longest, row_stride, tile_width, use_cluster};

/// The longest row that the tile of a cluster holds; longer ones are read in pieces.
pub const MAX_TILE: usize = 262144;

/// The longest row that the tile of a block holds.
pub const BLOCK_TILE: usize = 32768;

/// The lanes of a program for a long row.
const LANES: usize = 512;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;
    use crate::norms::row_sums;

    /// The softmax of each row of `x`, `[N]` where `AXIS` is 0, `[M, N]` where it is 1. Past the end of a row `mask` is false.
    #[fuse_fn]
    fn softmax_of<const AXIS: usize>(x: Tile<f32>, mask: Tile<bool>, scale: f32, log: bool) -> Tile<f32> {
        let z = tl::select(mask, x * scale, f32::NEG_INFINITY);
        let row_max = if AXIS == 0 { tl::max(z, 0) } else { tl::max(z, 1).col() };
        let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
        let row_sum = row_sums::<AXIS>(tl::exp2((z - safe_max) * f32::consts::LOG2_E));
        let log2_denom = tl::select(row_sum == 0.0, 0.0, tl::log2(row_sum));
        // Both outputs share one log-probability: computed separately they would spill the widest rows.
        let log2_scale = tl::select(log, 1.0, f32::consts::LOG2_E);
        let log_denom = tl::select(log, log2_denom * f32::consts::LN_2, log2_denom);
        let log_prob = (z - safe_max) * log2_scale - log_denom;
        tl::select(log, log_prob, tl::exp2(log_prob))
    }

    /// The softmax of a program's row. After the sum an element is computed again from `x`, so that a row of a narrow type stays in
    /// registers of its own width.
    #[fuse_fn]
    fn softmax_row<T: Float, const BLOCK: usize>(
        x: &[T],
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        scale: f32,
        log: bool,
    ) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let mask = cols < n_cols;
        let x = tl::load(x + row * x_stride + cols, mask).to::<f32>();
        tl::store(out + row * out_stride + cols, softmax_of::<0>(x, mask, scale, log).to::<T>(), mask);
    }

    /// A program for several short rows, in the smallest tile declared whose rows cover them: four, or eight where the threads have whole
    /// vectors of no fewer.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols in [128, 256, 384, 512, 768], num_warps = 4)]
    pub fn softmax_short<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        out: &mut [T],
        n_rows: i32,
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        scale: f32,
        log: bool,
    ) {
        let first = tl::program_id(0) * (if COLS % 256 == 0 { 4 } else { 8 });
        let rows = (first + tl::arange(0, if COLS % 256 == 0 { 4 } else { 8 })).col();
        let cols = tl::arange(0, COLS).row();
        let mask = (rows < n_rows) & (cols < n_cols);
        let x = tl::load(x + rows * x_stride + cols, mask).to::<f32>();
        tl::store(out + rows * out_stride + cols, softmax_of::<1>(x, mask, scale, log).to::<T>(), mask);
    }

    /// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared; a cluster of blocks
    /// shares the longest, whose register limit lets several clusters share their SMs.
    #[fuse_kernel(
        T = [f32, f16, bf16],
        BLOCK = n_cols in [
            1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 40960, 65536, 98304, 131072, 262144
        ],
        num_ctas = (BLOCK / 32768 * 4).max(1).min(8),
        maxnreg = if size_of::<T>() == 4 || BLOCK < 65536 { 255 }
            else if BLOCK <= 98304 { 72 } else if BLOCK == 131072 { 80 } else { 128 },
    )]
    pub fn softmax<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        scale: f32,
        log: bool,
    ) {
        softmax_row::<T, BLOCK>(x, out, n_cols, x_stride, out_stride, scale, log);
    }

    /// As [`softmax()`], for so few rows that a cluster of blocks is faster for each than the block that could hold it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [32768], num_ctas = 8)]
    pub fn softmax_cluster<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        out: &mut [T],
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        scale: f32,
        log: bool,
    ) {
        softmax_row::<T, BLOCK>(x, out, n_cols, x_stride, out_stride, scale, log);
    }
}

pub use kernels::{softmax, softmax_cluster, softmax_short};

/// One program for each row, which it reads twice, `16 * LANES` elements at a time. Each lane has a running maximum and the sum
/// of exponentials relative to it.
#[fuse_kernel(T = [f32, f16, bf16], LANES = [512], num_warps = 16)]
pub fn softmax_long<T: LibraryFloat, const LANES: usize>(
    x: &[T],
    out: &mut [T],
    n_cols: i32,
    x_stride: i32,
    out_stride: i32,
    scale: f32,
    log: bool,
) {
    let row = tl::program_id(0);
    // Contiguous elements belong to one lane, so that its maximum needs no shuffle.
    let cols = tl::arange(0, LANES).col() * 8 + tl::arange(0, 8).row();
    let mut lane_max = tl::full([LANES], f32::NEG_INFINITY);
    let mut lane_sum = tl::zeros::<f32>([LANES]);
    for first in (0..n_cols).step_by(16 * LANES) {
        let (at_a, at_b) = (first + cols, first + 8 * LANES + cols);
        let a = tl::load(x + row * x_stride + at_a, at_a < n_cols).to::<f32>();
        let b = tl::load(x + row * x_stride + at_b, at_b < n_cols).to::<f32>();
        let a = tl::select(at_a < n_cols, a * scale, f32::NEG_INFINITY);
        let b = tl::select(at_b < n_cols, b * scale, f32::NEG_INFINITY);
        let new_max = tl::maximum(lane_max, tl::max(tl::maximum(a, b), 1));
        let safe_max = tl::select(new_max == f32::NEG_INFINITY, 0.0, new_max);
        let safe_max_col = safe_max.col();
        let a = tl::exp2((a - safe_max_col) * f32::consts::LOG2_E);
        let b = tl::exp2((b - safe_max_col) * f32::consts::LOG2_E);
        lane_sum = lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E) + tl::sum(a + b, 1);
        lane_max = new_max;
    }
    let row_max = tl::max(lane_max, 0);
    let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
    let row_sum = tl::sum(lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E), 0);
    let log2_denom = tl::select(row_sum == 0.0, 0.0, tl::log2(row_sum));
    let log2_scale = tl::select(log, 1.0, f32::consts::LOG2_E);
    let log_denom = tl::select(log, log2_denom * f32::consts::LN_2, log2_denom);
    for first in (0..n_cols).step_by(16 * LANES) {
        let (at_a, at_b) = (first + cols, first + 8 * LANES + cols);
        let a = tl::load(x + row * x_stride + at_a, at_a < n_cols).to::<f32>();
        let b = tl::load(x + row * x_stride + at_b, at_b < n_cols).to::<f32>();
        let (a, b) = (
            (a * scale - safe_max) * log2_scale - log_denom,
            (b * scale - safe_max) * log2_scale - log_denom,
        );
        let (a, b) = (tl::select(log, a, tl::exp2(a)), tl::select(log, b, tl::exp2(b)));
        tl::store(out + row * out_stride + at_a, a.to::<T>(), at_a < n_cols);
        tl::store(out + row * out_stride + at_b, b.to::<T>(), at_b < n_cols);
    }
}

/// The softmax of each row of a matrix. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Softmax<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    cols: usize,
    scale: f32,
    form: SoftmaxOutput,
}

/// The output for each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoftmaxOutput {
    /// Its probability.
    Probability,
    /// The natural logarithm of it.
    Logarithm,
}

impl<'a, T: LibraryFloat> Softmax<'a, T> {
    /// The rows of `x`, each of `cols` elements; a scale of 1, and probabilities.
    pub fn new(x: impl Into<Rows<'a, T>>, cols: usize) -> Self {
        Softmax { x: x.into(), cols, scale: 1.0, form: SoftmaxOutput::Probability }
    }

    /// The scale of elements.
    pub fn scale(self, scale: f32) -> Self {
        Softmax { scale, ..self }
    }

    /// The logarithms of the probabilities.
    pub fn log(self) -> Self {
        Softmax { form: SoftmaxOutput::Logarithm, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (&Softmax { x, cols, scale, form }, out, checks) = (self, out.into(), Checks("softmax"));
        let rows = checks.matrices(("x", x.layout()), [("out", out.layout())], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = [x.layout(), out.layout()].map(|layout| row_stride(layout, cols));
        let (x, out) = (x.memory(), out.into_memory());
        let (n_cols, log) = (cols as i32, form == SoftmaxOutput::Logarithm);
        if cols <= SHORT_ROW {
            let tile = tile_width([128, 256, 384, 512, SHORT_ROW], cols);
            let rows_per_program = if tile.is_multiple_of(256) { 4 } else { 8 };
            let call = softmax_short::<T>(x, out, rows as i32, n_cols, x_stride, out_stride, scale, log);
            return call.grid(rows.div_ceil(rows_per_program)).launch(on);
        }
        let kernel = if cols > longest(on, MAX_TILE, BLOCK_TILE) {
            softmax_long::<T, LANES>
        } else if cols <= BLOCK_TILE && use_cluster(on, rows, cols) {
            softmax_cluster::<T, BLOCK_TILE>
        } else {
            softmax::<T>
        };
        kernel(x, out, n_cols, x_stride, out_stride, scale, log).grid(rows).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], cols: usize, scale: f32, form: SoftmaxOutput) -> Vec<Expected> {
    let scaled = x.iter().map(|x| {
        let value = x.to_f64() * f64::from(scale);
        let within = if value.is_finite() { value.abs() * 2.0 * unit_roundoff(DType::F32) } else { 0.0 };
        Expected { value, within }
    });
    softmax_scores(&scaled.collect::<Vec<_>>(), cols, form, T::DTYPE)
}

/// The softmax of scores that are known within a bound.
pub(crate) fn softmax_scores(
    scores: &[Expected],
    cols: usize,
    form: SoftmaxOutput,
    dtype: DType,
) -> Vec<Expected> {
    let (single, terms) = (unit_roundoff(DType::F32), (cols as f64).sqrt());
    let mut expected = Vec::with_capacity(scores.len());
    for row in scores.chunks(cols.max(1)) {
        let row_max = row.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
        let safe_max = if row_max == f64::NEG_INFINITY { 0.0 } else { row_max };
        let row_sum: f64 = row.iter().map(|score| (score.value - safe_max).exp()).sum();
        let log_denom = if row_sum == 0.0 { 0.0 } else { row_sum.ln() };
        // The error of the largest score is an error of all exponentials.
        let max_error =
            row.iter().filter(|score| score.value == row_max).map(|score| score.within).fold(0.0, f64::max);
        expected.extend(row.iter().map(|score| {
            let distance = safe_max - score.value;
            let score_error = 2.0 * (score.within + max_error);
            let (value, within) = match form {
                SoftmaxOutput::Probability => {
                    let value = (score.value - safe_max - log_denom).exp();
                    let relative = (32.0 + terms + 2.0 * distance) * single + score_error;
                    (value, relative * value + f64::from(f32::MIN_POSITIVE))
                }
                SoftmaxOutput::Logarithm => {
                    let absolute =
                        (8.0 + terms + 2.0 * (distance + (cols as f64).ln())) * single + score_error;
                    (score.value - safe_max - log_denom, absolute)
                }
            };
            let within = if within.is_finite() { within } else { f64::from(f32::MIN_POSITIVE) };
            Expected { value, within }.rounded(dtype)
        }));
    }
    expected
}

/// The bytes that `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * rows * cols * size_of::<T>()
}
