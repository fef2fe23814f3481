//! The code of the repository's README.

use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, bf16], BLOCK = n_cols in [1024, 4096])]
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
    let centered = tl::select(mask, x - mean, 0.0);
    let var = tl::sum(centered * centered, 0) / n_cols as f32;
    let gamma = tl::load(gamma + cols, mask).to::<f32>();
    let beta = tl::load(beta + cols, mask).to::<f32>();
    let y = centered * tl::rsqrt(var + eps) * gamma + beta;
    tl::store(out + row * n_cols + cols, y.to::<T>(), mask);
}

/// Normalizes rows as long as gamma.
pub fn normalized(host_x: &[f32], host_gamma: &[f32], host_beta: &[f32]) -> dsl_runtime::Result<Vec<f32>> {
    let n_cols = host_gamma.len();
    let device = Device::best()?; // a CUDA GPU if there is one, else this CPU
    let x = device.upload(host_x)?;
    let (gamma, beta) = (device.upload(host_gamma)?, device.upload(host_beta)?);
    let mut out = device.zeros::<f32>(host_x.len())?;
    layer_norm(&x, &gamma, &beta, &mut out, n_cols as i32, 1e-5)
        .grid(host_x.len() / n_cols)
        .launch(&device)?;
    out.download()
}
