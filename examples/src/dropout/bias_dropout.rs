//! `out = dropout(x + bias) + residual`, with or without a residual; and its gradients: the epilogue of the last matmul of a
//! sub-layer without an activation. With one, it is [`crate::dropout`].
//!
//! The mask is that of [`crate::dropout`]: element `(r, c)` is dropped where `tl::rand(seed, r * cols + c) < p`, and is divided by `1 - p`
//! otherwise. At `p = 0` nothing is dropped, beyond `1 - 2^-23` everything, whatever it is.
//!
//! **Traffic.** Forward reads `x` (and the residual) and writes `out` once, `2` or `3` times `rows * cols * size_of::<T>()` bytes, where a
//! sum, dropout that saves a mask and another sum move seven elements and a byte for every three; backward reads `dy` and writes `dx` once,
//! and partial sums of `dbias` to `scratch`, which a second kernel reduces. `bias` is found in the cache.
//!
//! **Rounding.** In `f32`, rounded to `T` once: before that forward is within `5 * 2^-24` of what `x + bias` adds to a result, and `2^-24`
//! of the residual; `dx` within `3 * 2^-24`, relatively; `dbias` within those and `(8 + sqrt(rows)) * 2^-24 * sum(|dx|)`.
//!
//! **Source.** Megatron-LM's `bias_dropout_add`; the random numbers as [`crate::dropout`] has them.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::dropout::{COLS, Dropout, DropoutGradients, backward_programs, launches, rows_of};
use crate::float::LibraryFloat;
use crate::partials;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// Program `(i, j)` handles `COLS` columns from `i * COLS` on of the 4 rows from `first_row + 4 * j` on, for which it reads
/// the bias once. `residual` is read and added where `add_residual` is not 0.
#[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols.min(1024) in [128, 1024], num_warps = 4)]
pub fn bias_dropout<T: LibraryFloat, const COLS: usize>(
    x: &[T],
    bias: &[T],
    residual: &[T],
    out: &mut [T],
    add_residual: i32,
    first_row: i32,
    n_rows: i32,
    n_cols: i32,
    p: f32,
    seed: u64,
) {
    let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
    let bias = tl::load(bias + cols, cols < n_cols).to::<f32>();
    // `tl::rand(seed, offset) < p`, compared as bits: so many of its 2^23 values are below `p`.
    let n_dropped = tl::ceil(p * 8388608.0).to::<u32>();
    let scale = 1.0 / (1.0 - p);
    for r in tl::static_range(0, 4) {
        let row = first_row + tl::program_id(1) * 4 + r;
        let mask = (cols < n_cols) & (row < n_rows);
        let offsets = row * n_cols + cols;
        let residual_values = tl::load(residual + offsets, mask & (add_residual != 0), 0.0).to::<f32>();
        let v = tl::load(x + offsets, mask).to::<f32>() + bias;
        let rng_offsets = row.to::<i64>() * n_cols.to::<i64>() + cols.to::<i64>();
        let is_dropped = tl::randint(seed, rng_offsets) >> 9 < n_dropped;
        let y = tl::select(is_dropped, 0.0, v * scale) + residual_values;
        tl::store(out + offsets, y.to::<T>(), mask);
    }
}

/// The gradient of `x`, 4 rows at a time: program `(i, j)` takes fours `i`, `i + programs`, and so on of its columns, and
/// writes its partial sums of the gradient of `bias`.
#[fuse_kernel(T = [f32, f16, bf16], COLS = [1024], num_warps = 4)]
pub fn bias_dropout_backward<T: LibraryFloat, const COLS: usize>(
    dy: &[T],
    dx: &mut [T],
    partials: &mut [f32],
    n_rows: i32,
    n_cols: i32,
    p: f32,
    seed: u64,
) {
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let n_dropped = tl::ceil(p * 8388608.0).to::<u32>();
    let scale = 1.0 / (1.0 - p);
    let mut dbias = tl::zeros::<f32>([COLS]);
    for first in (tl::program_id(0) * 4..n_rows).step_by(tl::num_programs(0) * 4) {
        for r in tl::static_range(0, 4) {
            let row = first + r;
            let mask = (cols < n_cols) & (row < n_rows);
            let offsets = row * n_cols + cols;
            let dy = tl::load(dy + offsets, mask).to::<f32>();
            let rng_offsets = row.to::<i64>() * n_cols.to::<i64>() + cols.to::<i64>();
            let is_dropped = tl::randint(seed, rng_offsets) >> 9 < n_dropped;
            let y = tl::select(is_dropped | !mask, 0.0, dy * scale);
            tl::store(dx + offsets, y.to::<T>(), mask);
            dbias += y;
        }
    }
    tl::store(partials + tl::program_id(0) * n_cols + cols, dbias, cols < n_cols);
}

/// Bias and dropout of each row of a matrix. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct BiasDropout<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    bias: Slice<'a, T>,
    residual: Option<Slice<'a, T>>,
    dropout: Dropout,
}

impl<'a, T: LibraryFloat> BiasDropout<'a, T> {
    /// The rows of `x`, each as long as `bias`; no residual, a probability of 0.1, the seed 0.
    pub fn new(x: impl Into<Slice<'a, T>>, bias: impl Into<Slice<'a, T>>) -> Self {
        let dropout = Dropout { p: 0.1, seed: 0 };
        BiasDropout { x: x.into(), bias: bias.into(), residual: None, dropout }
    }

    /// What is added at the end.
    pub fn residual(self, residual: impl Into<Slice<'a, T>>) -> Self {
        BiasDropout { residual: Some(residual.into()), ..self }
    }

    /// The fraction of elements that are dropped, and the seed of the random numbers that choose them.
    pub fn dropout(self, p: f32, seed: u64) -> Self {
        BiasDropout { dropout: Dropout { p, seed }, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other or the probability is not one; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (mut out, checks) = (out.into(), Checks("bias_dropout"));
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        if let Some(residual) = self.residual {
            checks.same(("x", self.x.len()), ("residual", residual.len()))?;
        }
        let cols = self.bias.len();
        let rows = rows_of(checks, [self.x.len(), cols], self.dropout.p)?;
        let (n_rows, n_cols) = (rows as i32, cols as i32);
        let (x, bias, Dropout { p, seed }) = (self.x, self.bias, self.dropout);
        let (residual, add_residual) = (self.residual.unwrap_or(x), i32::from(self.residual.is_some()));
        for (first, grid) in launches(rows, cols) {
            let out = out.slice_mut(..);
            let call =
                bias_dropout::<T>(x, bias, residual, out, add_residual, first, n_rows, n_cols, p, seed);
            call.grid(grid).launch(on)?;
        }
        Ok(())
    }

    /// Computes the gradients of `x` and `bias` from that of the result, `dy`, which is also the residual's.
    ///
    /// # Errors
    /// If the lengths do not fit each other or the probability is not one; those of a launch.
    pub fn backward<'o>(
        &self,
        on: impl LaunchOn,
        dy: impl Into<Slice<'a, T>>,
        gradients: DropoutGradients<'o, T>,
    ) -> Result<()> {
        let (dy, cols) = (dy.into(), self.bias.len());
        let rows = gradients.rows(Checks("bias_dropout"), [self.x.len(), cols, dy.len()], self.dropout.p)?;
        let DropoutGradients { dx, dbias, mut scratch } = gradients;
        if cols == 0 {
            return Ok(());
        }
        if rows > 0 {
            let (n_rows, n_cols, Dropout { p, seed }) = (rows as i32, cols as i32, self.dropout);
            let call = bias_dropout_backward::<T, COLS>(dy, dx, &mut scratch, n_rows, n_cols, p, seed);
            call.grid((backward_programs(rows, cols), cols.div_ceil(COLS))).launch(on)?;
        }
        partials::reduce(on, scratch.slice(..), dbias, None)
    }
}

/// What forward computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], bias: &[T], residual: Option<&[T]>, dropout: Dropout) -> Vec<Expected> {
    let single = unit_roundoff(DType::F32);
    let exact = |(i, (x, bias)): (usize, (&T, &T))| {
        let dropout_scale = dropout.scale_of(i);
        let dropped = if dropout_scale == 0.0 { 0.0 } else { (x.to_f64() + bias.to_f64()) * dropout_scale };
        let added = residual.map_or(0.0, |residual| residual[i].to_f64());
        let within = single * (5.0 * dropped.abs() + added.abs());
        Expected { value: dropped + added, within }.rounded(T::DTYPE)
    };
    x.iter().zip(bias.iter().cycle()).enumerate().map(exact).collect()
}

/// What backward computes for rows of `cols` elements, in `f64`, and the bounds that the module's documentation states: `dx`, `dbias`.
pub fn backward_reference<T: Float>(dy: &[T], cols: usize, dropout: Dropout) -> [Vec<Expected>; 2] {
    let single = unit_roundoff(DType::F32);
    let over_rows = (8.0 + (dy.len() as f64 / cols.max(1) as f64).sqrt()) * single;
    let mut dbias = vec![Expected { value: 0.0, within: 0.0 }; cols];
    let mut all_dx = Vec::with_capacity(dy.len());
    for (i, dy) in dy.iter().enumerate() {
        let dropout_scale = dropout.scale_of(i);
        let value = if dropout_scale == 0.0 { 0.0 } else { dy.to_f64() * dropout_scale };
        let within = 3.0 * single * value.abs();
        all_dx.push(Expected { value, within }.rounded(T::DTYPE));
        dbias[i % cols].value += value;
        dbias[i % cols].within += within + over_rows * value.abs();
    }
    [all_dx, dbias.into_iter().map(|sum| sum.rounded(T::DTYPE)).collect()]
}

/// The bytes that forward must move without a residual.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (2 * rows + 1) * cols * size_of::<T>()
}
