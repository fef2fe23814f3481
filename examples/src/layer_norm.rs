//! `out = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta` for each row of a matrix, the variance over all of the row
//! (biased).
//!
//! **Traffic.** Reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes; `gamma` and `beta` are read
//! from memory once and then found in the cache. A row stays in registers from its load to its store, so that both
//! reductions and the normalisation cost no second read.
//!
//! **Rounding.** All arithmetic is in `f32`, the variance from the centred row (never `E[x^2] - E[x]^2`, which cancels),
//! and the result is rounded to `T` once. A sum of `n` numbers in an unspecified order errs by about `sqrt(n)` roundings
//! of their mean magnitude, and the few operations after it by one each: before the last rounding a result is within
//! `(8 + sqrt(n_cols)) * 2^-24 * ((|x_hat| + mean(|x|) / deviation) * |gamma| + |beta|)` of the exact one.
//!
//! **Source.** Ba, Kiros, Hinton, *Layer Normalization*, 2016, arXiv:1607.06450, equations 3 and 4 over one layer;
//! `eps` inside the root as PyTorch's `torch.nn.LayerNorm` has it.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Error, Result};

use crate::reference::{Expected, smallest_subnormal, unit_roundoff};

/// The longest row that the kernel was built for.
pub const MAX_COLS: usize = 16384;

/// One program for each row of `n_cols` elements, in a block that covers the row: the smallest declared.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = n_cols in [1024, 2048, 4096, 8192, 16384])]
pub fn layer_norm<T: Float, const BLOCK: usize>(
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
    let x = tl::load(x + row * n_cols + cols, mask, 0.0).to::<f32>();
    let mean = tl::sum(x, 0) / n_cols as f32;
    let centred = tl::select(mask, x - mean, 0.0);
    let var = tl::sum(centred * centred, 0) / n_cols as f32;
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let beta = tl::load(beta + cols, mask).to::<f32>();
    let y = centred * tl::rsqrt(var + eps) * gamma + beta;
    tl::store(out + row * n_cols + cols, y.to::<T>(), mask);
}

/// Normalises each row of a matrix in row-major order. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LayerNorm<'a, T: Float> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: Float> LayerNorm<'a, T> {
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
    /// If the lengths do not fit each other, or rows are longer than [`MAX_COLS`]; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()>
    where
        layer_norm::Choice<T>: layer_norm::Declared,
    {
        let out = out.into();
        let (rows, cols) = self.shape(out.len())?;
        if rows == 0 {
            return Ok(());
        }
        layer_norm::<T>(self.x, self.gamma, self.beta, out, cols as i32, self.eps).grid(rows).launch(on)
    }

    /// Rows and columns, if all lengths fit.
    fn shape(&self, out: usize) -> Result<(usize, usize)> {
        let (x, cols, beta) = (self.x.len(), self.gamma.len(), self.beta.len());
        let reason = if out != x {
            format!("x has {x} elements and out has {out}")
        } else if beta != cols {
            format!("gamma has {cols} elements and beta has {beta}")
        } else if cols > MAX_COLS {
            format!("rows have {cols} columns, the most is {MAX_COLS}")
        } else if x.checked_rem(cols).unwrap_or(x) != 0 {
            format!("x has {x} elements, which are no whole rows of {cols}")
        } else {
            return Ok((x.checked_div(cols).unwrap_or(0), cols));
        };
        Err(Error::Shape { operation: "layer_norm", reason })
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], gamma: &[T], beta: &[T], eps: f32) -> Vec<Expected> {
    let cols = gamma.len();
    let Some(rows) = x.len().checked_div(cols) else { return Vec::new() };
    let (unit, subnormal) = (unit_roundoff(T::DTYPE), smallest_subnormal(T::DTYPE));
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
            let inner = arithmetic * ((normal.abs() + magnitude * scale) * gamma.abs() + beta.abs());
            expected.push(Expected { value, within: inner + unit * (value.abs() + inner) + subnormal });
        }
    }
    expected
}

/// The bytes that normalising `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    2 * (rows + 1) * cols * size_of::<T>()
}
