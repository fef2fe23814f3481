//! `residual += x`, then `out = (residual - mean) / sqrt(var + eps) * gamma + beta` for each row of a matrix, mean and variance
//! those of the row of sums.
//!
//! **Traffic.** Reads `x` and `residual` and writes `residual` and `out` once, `4 * rows * cols * size_of::<T>()` bytes, where an
//! addition and a norm on their own move five rows for every four. `gamma` and `beta` are read from memory once and then
//! found in the cache. A row of up to [`BLOCK_TILE`] elements stays in registers from its load to its
//! store; of a longer one the sums are read a second time, from the cache.
//!
//! **Rounding.** The sum is rounded to `T` first and what is stored is normalized, with the bound of [`crate::layer_norm`].
//!
//! **Source.** The sub-layers of a transformer: Vaswani and others, 2017, arXiv:1706.03762, section 3.1; updated in place as vLLM's
//! `fused_add_rms_norm` does for RMSNorm.
//!
//! [`BLOCK_TILE`]: crate::norm_kernels::BLOCK_TILE

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::layer_norm::LayerNorm;
use crate::norm_kernels::RowNorm;
use crate::shape::Checks;

/// Adds a matrix to a residual stream and normalizes each row of the sum. `T` is `f32`, `f16` or `bf16`. Its results are
/// [`crate::rms_norm::sum`] and, of that, [`crate::layer_norm::reference`].
#[derive(Clone, Copy)]
pub struct AddLayerNorm<'a, T: LibraryFloat> {
    norm: RowNorm<'a, T>,
}

impl<'a, T: LibraryFloat> AddLayerNorm<'a, T> {
    /// The rows of `x`, each as long as `gamma` and `beta`; `eps` is 1e-5.
    pub fn new(
        x: impl Into<Rows<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        AddLayerNorm { norm: LayerNorm::new(x, gamma, beta).norm }
    }

    /// What is added to the variance, so that a constant row does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        AddLayerNorm { norm: RowNorm { eps, ..self.norm } }
    }

    /// Adds `x` to `residual` and computes the norm of the sum into `out`, whose rows are as far apart, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        residual: impl Into<RowsMut<'o, T>>,
        out: impl Into<RowsMut<'o, T>>,
    ) -> Result<()> {
        self.norm.launch_add(Checks("add_layer_norm"), on, residual.into(), out.into())
    }
}

/// The bytes that adding and normalizing `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (4 * rows + 2) * cols * size_of::<T>()
}
