use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(M = [64], N = [128], K = [32])]
fn matmul<const M: usize, const N: usize, const K: usize>(
    a: &View<bf16, 2>,
    b: &View<bf16, 2>,
    c: &mut View<bf16, 2>,
) {
    let (row, col) = (tl::program_id(0) * M, tl::program_id(1) * N);
    let mut acc = tl::zeros::<bf16>([M, N]);
    for k in (0..a.shape(1)).step_by(K) {
        acc = tl::dot(a.load::<M, K>(row, k), b.load::<K, N>(k, col)) + acc;
    }
    c.store(acc, row, col);
}

#[fuse_kernel(M = [64], N = [128], K = [32])]
fn matmul_of_rows<const M: usize, const N: usize, const K: usize>(
    a: &View<bf16, 2>,
    b: &View<bf16, 2>,
    c: &mut View<bf16, 2>,
) {
    let product = tl::dot(a.load::<M, K>(0, 0), b.load::<N, K>(0, 0));
    c.store(product.to::<bf16>(), 0, 0);
}
// ANCHOR_END: kernel

fn main() {}
