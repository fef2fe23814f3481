//! `out = gelu((x - mean(x)) / sqrt(var(x) + eps) * gamma + beta)` for each row of a matrix: LayerNorm with its bias, and
//! the exact GELU, in one pass.
//!
//! **Traffic.** That of LayerNorm alone: reads `x` and writes `out` once, `2 * rows * cols * size_of::<T>()` bytes. A row
//! stays in registers.
//!
//! **Rounding.** The bound of [`crate::layer_norm`], propagated through GELU (at most 1.13 times), and GELU's own (see
//! [`crate::activation`]); rounded to `T` once.
//!
//! **Source.** ConvNeXt's and wav2vec 2.0's blocks: Baevski and others, 2020, arXiv:2006.11477, section 2.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::layer_norm;
use crate::norm_kernels::layer_norm_gelu;
use crate::reference::Expected;
use crate::shape::{Checks, row_stride};

/// The longest row that the kernel was built for.
pub const MAX_COLS: usize = 32768;

/// Normalizes each row of a matrix and applies GELU. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LayerNormGelu<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    eps: f32,
}

impl<'a, T: LibraryFloat> LayerNormGelu<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        LayerNormGelu { x: x.into(), gamma: gamma.into(), beta: beta.into(), eps: 1e-5 }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        LayerNormGelu { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, rows are not contiguous or longer than [`MAX_COLS`]; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (x, out, checks, cols) = (self.x, out.into(), Checks("layer_norm_gelu"), self.gamma.len());
        checks.same(("gamma", cols), ("beta", self.beta.len()))?;
        checks.most_columns(cols, MAX_COLS)?;
        let rows = checks.matrices(("x", x.layout()), [("out", out.layout())], cols)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = [x.layout(), out.layout()].map(|layout| row_stride(layout, cols));
        let (x, out) = (x.memory(), out.into_memory());
        let call = layer_norm_gelu::<T>;
        let call = call(x, self.gamma, self.beta, out, cols as i32, x_stride, out_stride, self.eps);
        call.grid(rows).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], gamma: &[T], beta: &[T], eps: f32) -> Vec<Expected> {
    let normed = layer_norm::unrounded(x, gamma, beta, eps);
    normed.into_iter().map(|argument| Activation::Gelu.propagated_rounded(argument, T::DTYPE)).collect()
}
