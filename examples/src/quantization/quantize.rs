//! Rows to 8 bits with a scale for each row: `scale = max(|y|) / quant_max`, `q = y / scale` rounded to the nearest, where `y` is the
//! row itself, its RMSNorm or its LayerNorm, and `quant_max` is 127 for `i8` and 448 for `f8e4m3`. And back: `out = q * scale +
//! residual`.
//!
//! **Shapes.** `x` and `out` are `[rows, cols]`, and either may be a view whose rows lie further apart; `scales` has `rows` elements,
//! `gamma` and `beta` have `cols`.
//!
//! **Traffic.** Reads a row once and writes a quarter or half of it, `rows * cols * (size_of::<T>() + 1)` bytes: the norm, the
//! largest element and the rounding cost no second read. Rows of `f32`, rows of views and rows beyond [`MAX_COLS`] are read twice, those
//! of a norm three times. [`DequantizeAdd`] reads `q` and the residual and writes `out` once.
//!
//! **Rounding.** The norm is computed in `f32` and not rounded to `T` before it is quantized. A scale is the correctly rounded quotient of
//! `max(|y|)` and `quant_max`. With `e` the error of the norm (see [`crate::rms_norm`], [`crate::layer_norm`]), `q * scale` is within `e`
//! and half a step of `y`: `scale / 2` for `i8`, the larger of `|y| / 16` and `scale / 1024` for `f8e4m3`, with
//! `8 * 2^-24 * max(|y|)` for the arithmetic. Of a row of 16-bit floats itself `q` is `y * quant_max / max(|y|)`, rounded to the nearest,
//! halves to even.
//! [`DequantizeAdd`] rounds to `T` once, from within `2^-23 * (|q * scale| + |residual|)`.
//!
//! **Special rows.** A row of zeros has the scale 0 and elements 0. A row with a NaN or an infinity has a scale that is NaN or
//! infinite, and its elements mean nothing. The largest element of a row may be the largest or the smallest number of `T`; a scale
//! below the normal numbers of `f32` is a multiple of `2^-149`.
//!
//! **Source.** Dettmers and others, *LLM.int8()*, 2022, arXiv:2208.07339, section 2; Micikevicius and others, *FP8 Formats for Deep
//! Learning*, 2022, arXiv:2209.05433; per-token scales and fused norms as in vLLM.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, RowLayout};

use crate::float::{HalfFloat, LibraryFloat, QuantizedElement};
use crate::reference::{Expected, smallest_subnormal, unit_roundoff};
use crate::shape::{Checks, row_stride, short_programs};

/// The longest row that stays in registers.
pub const MAX_COLS: usize = 32768;

/// The longest row that one block takes without a prefetch of the next one; of longer ones see [`Quantize::in_cta_pairs`].
const NARROW: usize = 16384;

/// The longest row of which a program handles several.
const SHORT_COLS: usize = 512;
/// Rows for each SM up to which pairs of blocks are faster for any norm.
const FEW_ROWS: usize = 3;

/// The elements of a row that a program of [`dequantize_add`] handles.
const BLOCK: usize = 4096;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::{LibraryFloat, QuantizedElement};
    use crate::norms::{center, mean_and_variance, row_sums, welford};

    /// What is quantized of a row.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum QuantizedNorm {
        /// The row itself.
        Plain,
        /// `x / sqrt(mean(x^2) + eps) * gamma`
        Rms,
        /// `(x - mean(x)) / sqrt(var(x) + eps) * gamma + beta`
        Layer,
    }

    /// Returns `y * quant_max / abs_max` as `Q`, for any `abs_max`. Of 16-bit floats without a norm a quotient that is halfway between two
    /// results is exact: it is corrected by its remainder.
    #[fuse_fn]
    fn quantized<Q: Element>(y: Tile<f32>, abs_max: Tile<f32>, norm: QuantizedNorm) -> Tile<Q> {
        let quant_max = Q::MAX as f32;
        // Powers of two keep the reciprocal and products within range.
        let balance =
            tl::select(abs_max < 1e-18, 1.2676506e30, tl::select(abs_max > 1e18, 7.888609e-31, 1.0));
        let divisor = abs_max * balance;
        let inverse = tl::select(abs_max == 0.0, 0.0, 1.0 / divisor);
        let dividend = y * (quant_max * balance);
        let q = dividend * inverse;
        let q = match norm {
            QuantizedNorm::Plain => tl::fma(tl::fma(-q, divisor, dividend), inverse, q),
            _ => q,
        };
        let is_integer = quant_max == 127.0;
        if is_integer { tl::round_ties_even(q).to::<Q>() } else { q.to::<Q>() }
    }

    /// Returns `abs_max / quant_max`, correctly rounded: the quotient in `f64` is rounded once more without an error.
    #[fuse_fn]
    fn scale_of<Q: Element>(abs_max: Tile<f32>) -> Tile<f32> {
        (abs_max.to::<f64>() / (Q::MAX as f64)).to::<f32>()
    }

    /// What is quantized of the rows of `x`, `[N]` where `AXIS` is 0, `[M, N]` where it is 1. `cols` is the index of
    /// each column. Past the end of a row `x` is 0.
    #[fuse_fn]
    fn norm_of<T: Float, const AXIS: usize, const BLOCK: usize>(
        x: Tile<f32>,
        gamma: &[T],
        beta: &[T],
        norm: QuantizedNorm,
        cols: Tile<i32>,
        n_cols: i32,
        eps: f32,
    ) -> Tile<f32> {
        let mask = cols < n_cols;
        match norm {
            QuantizedNorm::Plain => x,
            QuantizedNorm::Rms => {
                let scale = tl::rsqrt(row_sums::<AXIS>(x * x) / n_cols as f32 + eps);
                x * scale * tl::load(gamma + cols, mask).to::<f32>()
            }
            QuantizedNorm::Layer => {
                let (_, mean, var) = center::<AXIS>(x, mask, n_cols);
                let scale = tl::rsqrt(var + eps);
                // With many elements to a thread, one fma to shift and scale takes fewer registers.
                let x_hat =
                    if BLOCK >= 12288 { tl::fma(x, scale, -mean * scale) } else { (x - mean) * scale };
                let gamma = tl::load(gamma + cols, mask).to::<f32>();
                x_hat * gamma + tl::load(beta + cols, mask).to::<f32>()
            }
        }
    }

    /// Quantizes a row, or its norm, and gives its scale.
    #[fuse_fn]
    fn quantize_row<T: Float, Q: Element, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [Q],
        norm: QuantizedNorm,
        n_cols: i32,
        eps: f32,
    ) -> f32 {
        let cols = tl::arange(0, BLOCK);
        let x = tl::load(x + cols, cols < n_cols, 0.0).to::<f32>();
        let y = norm_of::<T, 0, BLOCK>(x, gamma, beta, norm, cols, n_cols, eps);
        let abs_max = tl::max(tl::abs(y), 0);
        tl::store(out + cols, quantized::<Q>(y, abs_max, norm), cols < n_cols);
        scale_of::<Q>(abs_max)
    }

    /// As [`quantize()`], a program for eight short rows in the smallest tile declared whose rows cover them.
    #[fuse_kernel(T = [f16, bf16], Q = [i8, f8e4m3], COLS = n_cols in [256, 512], num_warps = 4)]
    pub fn quantize_short<T: LibraryFloat, Q: QuantizedElement, const COLS: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [Q],
        scales: &mut [f32],
        norm: QuantizedNorm,
        n_rows: i32,
        n_cols: i32,
        eps: f32,
    ) {
        let (rows, cols) = (tl::program_id(0) * 8 + tl::arange(0, 8), tl::arange(0, COLS));
        let mask = (rows < n_rows).col() & (cols < n_cols).row();
        let offsets = (rows * n_cols).col() + cols.row();
        let x = tl::load(x + offsets, mask, 0.0).to::<f32>();
        let y = norm_of::<T, 1, COLS>(x, gamma, beta, norm, cols.row(), n_cols, eps);
        let abs_max = tl::max(tl::abs(y), 1);
        tl::store(out + offsets, quantized::<Q>(y, abs_max.col(), norm), mask);
        tl::store(scales + rows, scale_of::<Q>(abs_max), rows < n_rows);
    }

    /// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared. `gamma` and `beta` may be empty where the norm has none. The register
    /// limit for long rows leaves an SM several rows, which hide each other's latency, and the longest rows have two blocks.
    #[fuse_kernel(
        T = [f16, bf16],
        Q = [i8, f8e4m3],
        BLOCK = n_cols in [1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 32768],
        num_ctas = if BLOCK == 32768 { 2 } else { 1 },
        num_warps = if norm == QuantizedNorm::Layer { if BLOCK <= 4096 { (BLOCK / 1024).min(2).max(1) } else { 4 } }
            else if BLOCK <= 8192 { (BLOCK / 1024).next_power_of_two().min(4) } else { 8 },
        maxnreg = if norm != QuantizedNorm::Layer { if BLOCK == 16384 { 80 } else { 255 } }
            else if BLOCK < 4096 { 255 } else if BLOCK == 4096 { 96 } else if BLOCK <= 6144 { 72 }
            else if BLOCK == 8192 { 80 } else if BLOCK == 12288 { 128 } else { 168 },
    )]
    pub fn quantize<T: LibraryFloat, Q: QuantizedElement, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [Q],
        scales: &mut [f32],
        norm: QuantizedNorm,
        n_cols: i32,
        eps: f32,
    ) {
        let row = tl::program_id(0);
        let (x, out) = (x + row * n_cols, out + row * n_cols);
        tl::store(scales + row, quantize_row::<T, Q, BLOCK>(x, gamma, beta, out, norm, n_cols, eps));
    }

    /// As [`quantize()`], for rows that occupy an SM each: a persistent program takes one row after the other, and prefetches the
    /// next one.
    #[fuse_kernel(T = [f16, bf16], Q = [i8, f8e4m3], BLOCK = n_cols in [32768], num_warps = 32, num_stages = 2)]
    pub fn quantize_wide<T: LibraryFloat, Q: QuantizedElement, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [Q],
        scales: &mut [f32],
        norm: QuantizedNorm,
        n_rows: i32,
        n_cols: i32,
        eps: f32,
    ) {
        for row in (tl::program_id(0)..n_rows).step_by(tl::num_programs(0)) {
            let (x, out) = (x + row * n_cols, out + row * n_cols);
            tl::store(scales + row, quantize_row::<T, Q, BLOCK>(x, gamma, beta, out, norm, n_cols, eps));
        }
    }

    /// As [`quantize()`], for rows of any length and any distance: a program reads a row once for its norm, once for its largest element and once
    /// to quantize it, `BLOCK` elements at a time.
    #[fuse_kernel(T = [f32, f16, bf16], Q = [i8, f8e4m3], BLOCK = [2048], num_warps = 4)]
    pub fn quantize_long<T: LibraryFloat, Q: QuantizedElement, const BLOCK: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        out: &mut [Q],
        scales: &mut [f32],
        norm: QuantizedNorm,
        n_cols: i32,
        x_stride: i32,
        out_stride: i32,
        eps: f32,
    ) {
        let row = tl::program_id(0);
        let cols = tl::arange(0, BLOCK);
        let (x, out) = (x + row * x_stride, out + row * out_stride);
        let (mut means, mut squares) = (tl::zeros::<f32>([BLOCK]), tl::zeros::<f32>([BLOCK]));
        if norm != QuantizedNorm::Plain {
            let mut n_seen = 0.0;
            for first in (0..n_cols).step_by(BLOCK) {
                n_seen += 1.0;
                let mask = first + cols < n_cols;
                let x = tl::load(x + first + cols, mask, 0.0).to::<f32>();
                match norm {
                    QuantizedNorm::Layer => (means, squares) = welford(means, squares, x, mask, n_seen),
                    _ => squares += x * x,
                }
            }
        }
        let counts = tl::cdiv(n_cols - cols, BLOCK).to::<f32>();
        let (mean, var) = match norm {
            QuantizedNorm::Plain => (0.0, 0.0),
            QuantizedNorm::Rms => (0.0, tl::sum(squares, 0) / n_cols as f32),
            QuantizedNorm::Layer => mean_and_variance(means, squares, counts, n_cols),
        };
        let scale = tl::rsqrt(var + eps);
        let normed = |first| {
            let mask = first + cols < n_cols;
            let x = tl::load(x + first + cols, mask, 0.0).to::<f32>();
            match norm {
                QuantizedNorm::Plain => x,
                QuantizedNorm::Rms => x * scale * tl::load(gamma + first + cols, mask).to::<f32>(),
                QuantizedNorm::Layer => {
                    (x - mean) * scale * tl::load(gamma + first + cols, mask).to::<f32>()
                        + tl::load(beta + first + cols, mask).to::<f32>()
                }
            }
        };
        let mut abs_max = 0.0;
        for first in (0..n_cols).step_by(BLOCK) {
            let magnitudes = tl::select(first + cols < n_cols, tl::abs(normed(first)), 0.0);
            abs_max = tl::maximum(abs_max, tl::max(magnitudes, 0));
        }
        for first in (0..n_cols).step_by(BLOCK) {
            tl::store(
                out + first + cols,
                quantized::<Q>(normed(first), abs_max, norm),
                first + cols < n_cols,
            );
        }
        tl::store(scales + row, scale_of::<Q>(abs_max));
    }
}

pub use kernels::{QuantizedNorm, quantize, quantize_long, quantize_short, quantize_wide};

/// `out[r, c] = q[r, c] * scales[r] + residual[r, c]`.
#[fuse_kernel(T = [f16, bf16], Q = [i8, f8e4m3], BLOCK = [4096])]
pub fn dequantize_add<T: HalfFloat, Q: QuantizedElement, const BLOCK: usize>(
    q: &[Q],
    scales: &[f32],
    residual: Option<&[T]>,
    out: &mut [T],
    n_cols: i32,
    q_stride: i32,
    residual_stride: i32,
    out_stride: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let y = tl::load(q + row * q_stride + cols, mask).to::<f32>() * tl::load(scales + row);
    let y = if let Some(residual) = residual {
        y + tl::load(residual + row * residual_stride + cols, mask).to::<f32>()
    } else {
        y
    };
    tl::store(out + row * out_stride + cols, y.to::<T>(), mask);
}

/// The elements of a row that an iteration of [`quantize_long`] handles.
const PIECE: usize = 2048;

/// Quantizes the rows of a matrix, each with a scale of its own: `Quantize::new(&x, cols)`, `Quantize::rms_norm(&x, &gamma)` or
/// `Quantize::layer_norm(&x, &gamma, &beta)`. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Quantize<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    norm: QuantizedNorm,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    cols: usize,
    eps: f32,
}

impl<'a, T: LibraryFloat> Quantize<'a, T> {
    /// The rows of `x`, each of `cols` elements, as they are.
    pub fn new(x: impl Into<Rows<'a, T>>, cols: usize) -> Self {
        let (x, norm) = (x.into(), QuantizedNorm::Plain);
        Quantize { x, norm, gamma: Slice::default(), beta: Slice::default(), cols, eps: 0.0 }
    }

    /// The RMSNorm of the rows of `x`, each as long as `gamma`; `eps` is 1e-6.
    pub fn rms_norm(x: impl Into<Rows<'a, T>>, gamma: impl Into<Slice<'a, T>>) -> Self {
        let (x, gamma, norm) = (x.into(), gamma.into(), QuantizedNorm::Rms);
        Quantize { x, norm, gamma, beta: Slice::default(), cols: gamma.len(), eps: 1e-6 }
    }

    /// The LayerNorm of the rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn layer_norm(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        let (x, gamma, beta, norm) = (x.into(), gamma.into(), beta.into(), QuantizedNorm::Layer);
        Quantize { x, norm, gamma, beta, cols: gamma.len(), eps: 1e-5 }
    }

    /// What the norm adds inside its root.
    pub fn eps(self, eps: f32) -> Self {
        Quantize { eps, ..self }
    }

    /// Computes `i8` into `out` and a scale for each row, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn to_i8<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<RowsMut<'o, i8>>,
        scales: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch(on, out.into(), scales.into())
    }

    /// Computes `f8e4m3` into `out` and a scale for each row, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn to_f8<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<RowsMut<'o, f8e4m3>>,
        scales: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        self.launch(on, out.into(), scales.into())
    }

    fn launch<Q: QuantizedElement>(
        &self,
        on: impl LaunchOn,
        out: RowsMut<'_, Q>,
        scales: SliceMut<'_, f32>,
    ) -> Result<()> {
        let (&Quantize { x, norm, gamma, beta, cols, eps }, checks) = (self, Checks("quantize"));
        if norm == QuantizedNorm::Layer {
            checks.same(("gamma", gamma.len()), ("beta", beta.len()))?;
        }
        let layouts = [x.layout(), out.layout()];
        let rows = checks.matrices(("x", layouts[0]), [("out", layouts[1])], cols)?;
        checks.same(("a column of x", rows), ("scales", scales.len()))?;
        if rows == 0 {
            return Ok(());
        }
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        let [x_stride, out_stride] = layouts.map(|layout| row_stride(layout, cols));
        let (x, out) = (x.memory(), out.into_memory());
        let is_contiguous = [x_stride, out_stride] == [n_cols; 2];
        if T::DTYPE == DType::F32 || cols > MAX_COLS || !is_contiguous {
            quantize_long::<T, Q, PIECE>(x, gamma, beta, out, scales, norm, n_cols, x_stride, out_stride, eps)
                .grid(rows)
                .launch(on)
        } else if cols > NARROW && !self.in_cta_pairs(on, rows) {
            quantize_wide(x, gamma, beta, out, scales, norm, n_rows, n_cols, eps)
                .grid_by(|chosen| rows.min(chosen.parallelism()))
                .launch(on)
        } else if cols <= SHORT_COLS {
            quantize_short(x, gamma, beta, out, scales, norm, n_rows, n_cols, eps)
                .grid(short_programs(rows, cols))
                .launch(on)
        } else {
            quantize(x, gamma, beta, out, scales, norm, n_cols, eps).grid(rows).launch(on)
        }
    }

    /// Whether two blocks of a cluster take a long row, or one program takes row after row. Norms of many rows are slower in pairs, RMSNorm and
    /// what is not read in vectors (docs/decisions/0008).
    fn in_cta_pairs(&self, on: impl LaunchOn, rows: usize) -> bool {
        let few = rows <= FEW_ROWS * on.parallelism();
        on.has_clusters()
            && match self.norm {
                QuantizedNorm::Plain => true,
                QuantizedNorm::Rms => few,
                QuantizedNorm::Layer => few || self.cols.is_multiple_of(16),
            }
    }
}

/// Dequantizes the output of [`Quantize`], and adds a residual if there is one.
#[derive(Clone, Copy)]
pub struct DequantizeAdd<'a, T: HalfFloat, Q: QuantizedElement> {
    q: Rows<'a, Q>,
    scales: Slice<'a, f32>,
    residual: Option<Rows<'a, T>>,
}

impl<'a, T: HalfFloat, Q: QuantizedElement> DequantizeAdd<'a, T, Q> {
    /// As many rows of `q` as there are scales.
    pub fn new(q: impl Into<Rows<'a, Q>>, scales: impl Into<Slice<'a, f32>>) -> Self {
        DequantizeAdd { q: q.into(), scales: scales.into(), residual: None }
    }

    /// What is added.
    pub fn residual(self, residual: impl Into<Rows<'a, T>>) -> Self {
        DequantizeAdd { residual: Some(residual.into()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (&DequantizeAdd { q, scales, residual }, out) = (self, out.into());
        let (checks, rows) = (Checks("dequantize_add"), scales.len());
        let cols = match q.layout() {
            RowLayout::Strided(shape, _) => shape[1],
            RowLayout::Contiguous(len) if len.checked_rem(rows).unwrap_or(len) != 0 => {
                return Err(checks.error(format!("q has {len} elements, which are no {rows} rows")));
            }
            RowLayout::Contiguous(len) => len.checked_div(rows).unwrap_or(0),
        };
        let layouts = [q.layout(), residual.map_or(q.layout(), |residual| residual.layout()), out.layout()];
        let found =
            checks.matrices(("q", layouts[0]), [("residual", layouts[1]), ("out", layouts[2])], cols)?;
        checks.same(("a column of q", found), ("scales", rows))?;
        if rows == 0 {
            return Ok(());
        }
        let [q_stride, residual_stride, out_stride] = layouts.map(|layout| row_stride(layout, cols));
        let (q, residual, out) = (q.memory(), residual.map(|residual| residual.memory()), out.into_memory());
        let call = dequantize_add::<T, Q, BLOCK>;
        let call = call(q, scales, residual, out, cols as i32, q_stride, residual_stride, out_stride);
        call.grid((rows, cols.div_ceil(BLOCK))).launch(on)
    }
}

/// The expected scale of a row, and the values that its elements times the scale are within half a step of.
///
/// `normed` is the row or its norm in `f64` with its error, and `integers` whether it becomes `i8`.
pub fn reference(normed: &[Expected], integers: bool) -> (Expected, Vec<Expected>) {
    let (single, quant_max) = (unit_roundoff(DType::F32), if integers { 127.0 } else { 448.0 });
    let abs_max = normed.iter().map(|y| y.value.abs()).fold(0.0, f64::max);
    let error = normed.iter().map(|y| y.within).fold(0.0, f64::max);
    let scale = abs_max / quant_max;
    let smallest = if error == 0.0 { smallest_subnormal(DType::F32) } else { f64::from(f32::MIN_POSITIVE) };
    let elements = normed.iter().map(|y| {
        let half = if integers { scale / 2.0 } else { (y.value.abs() / 16.0).max(scale / 1024.0) };
        let moved = y.within + error + 8.0 * single * abs_max;
        let within = half * (1.0 + 8.0 * single) + 1.0625 * moved + quant_max * smallest;
        Expected { value: y.value, within }
    });
    let within = error / quant_max;
    (Expected { value: scale, within: within + single * (scale + within) + smallest }, elements.collect())
}

/// What [`DequantizeAdd`] computes for elements `q` times their scales, in `f64`, and the bound that the module's documentation
/// states.
pub fn dequantized<T: Float>(products: &[f64], residual: Option<&[T]>) -> Vec<Expected> {
    let exact = |(i, product): (usize, &f64)| {
        let added = residual.map_or(0.0, |residual| residual[i].to_f64());
        let value = product + added;
        let inner = 2.0 * unit_roundoff(DType::F32) * (product.abs() + added.abs());
        Expected { value, within: inner }.rounded(T::DTYPE)
    };
    products.iter().enumerate().map(exact).collect()
}

/// The bytes that quantizing `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    rows * (cols * (size_of::<T>() + 1) + size_of::<f32>())
}
