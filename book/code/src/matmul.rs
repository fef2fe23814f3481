//! Matrix product: views, `tl::dot` and a loop along K.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(M = [64], N = [64], K = [64], num_warps = 4, num_stages = 3)]
pub fn matmul<const M: usize, const N: usize, const K: usize>(
    a: &View<bf16, 2>,
    b: &View<bf16, 2>,
    c: &mut View<bf16, 2>,
) {
    let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
    let mut acc = tl::zeros::<f32>([M, N]);
    for k in (0..a.shape(1)).step_by(K) {
        acc = tl::dot(a.load::<M, K>(row, k), b.load::<K, N>(k, col), acc);
    }
    c.store(acc.to::<bf16>(), row, col);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// `a · b` of an `m x k` and a `k x n` matrix in row-major order; `[m, k, n]` are the extents.
pub fn product(
    device: &Device,
    a: &[bf16],
    b: &[bf16],
    [m, k, n]: [usize; 3],
) -> dsl_runtime::Result<Vec<bf16>> {
    let (a, b) = (device.upload(a)?, device.upload(b)?);
    let mut c = device.zeros::<bf16>(m * n)?;
    matmul::<64, 64, 64>(a.view([m, k])?, b.view([k, n])?, c.view_mut([m, n])?)
        .grid((m.div_ceil(64), n.div_ceil(64)))
        .launch(device)?;
    c.download()
}
// ANCHOR_END: launch

// ANCHOR: transposed
/// `a · bᵀ` by the same kernel: `b` is `n x k`, and its view swaps the axes.
pub fn product_transposed(
    device: &Device,
    a: &[bf16],
    b: &[bf16],
    [m, k, n]: [usize; 3],
) -> dsl_runtime::Result<Vec<bf16>> {
    let (a, b) = (device.upload(a)?, device.upload(b)?);
    let mut c = device.zeros::<bf16>(m * n)?;
    matmul::<64, 64, 64>(a.view([m, k])?, b.view([n, k])?.permute([1, 0]), c.view_mut([m, n])?)
        .grid((m.div_ceil(64), n.div_ceil(64)))
        .launch(device)?;
    c.download()
}
// ANCHOR_END: transposed
