//! Layer norm of rows: statistics, parameters of columns, and a function that two kernels share.

// ANCHOR: kernel
use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    /// The row less its mean, divided by its standard deviation; 0 where the mask is false.
    #[fuse_fn]
    fn normalize(x: Tile<f32>, mask: Tile<bool>, n_cols: i32, eps: f32) -> Tile<f32> {
        let mean = tl::sum(tl::select(mask, x, 0.0), 0) / n_cols as f32;
        let centered = tl::select(mask, x - mean, 0.0);
        let var = tl::sum(centered * centered, 0) / n_cols as f32;
        centered * tl::rsqrt(var + eps)
    }

    #[fuse_kernel(BLOCK = n_cols in [256, 1024])]
    pub fn layer_norm<const BLOCK: usize>(
        x: &[bf16],
        gamma: &[f32],
        beta: &[f32],
        out: &mut [bf16],
        n_cols: i32,
        eps: f32,
    ) {
        let row = tl::program_id(0) * n_cols;
        let cols = tl::arange(0, BLOCK);
        let mask = cols < n_cols;
        let x = tl::load(x + row + cols, mask).to::<f32>();
        let y = normalize(x, mask, n_cols, eps) * tl::load(gamma + cols, mask) + tl::load(beta + cols, mask);
        tl::store(out + row + cols, y.to::<bf16>(), mask);
    }
}

pub use kernels::layer_norm;
// ANCHOR_END: kernel

// ANCHOR: launch
/// Scale and shift of each column, and what is added to the variance.
#[derive(Clone, Copy)]
pub struct LayerNorm<'a> {
    pub gamma: &'a Buffer<f32>,
    pub beta: &'a Buffer<f32>,
    pub eps: f32,
}

impl LayerNorm<'_> {
    /// Normalizes each row of `x` into `out`.
    pub fn launch(
        &self,
        on: impl LaunchOn,
        x: &Buffer<bf16>,
        out: &mut Buffer<bf16>,
    ) -> dsl_runtime::Result<()> {
        let n_cols = self.gamma.len();
        layer_norm(x, self.gamma, self.beta, out, n_cols as i32, self.eps).grid(x.len() / n_cols).launch(on)
    }
}
// ANCHOR_END: launch
