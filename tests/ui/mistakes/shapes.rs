use dsl_runtime::prelude::*;

#[fuse_kernel(M = [32], N = [64])]
fn shapes<const M: usize, const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let rows = tl::arange(0, M);
    let columns = tl::arange(0, N);
    let y = tl::load(x + columns) + tl::load(x + rows);
    let z = tl::load(x + columns, rows < n);
    let w = tl::load(x + columns, columns < n, tl::zeros::<f32>([M]));
    let v = tl::load(x + columns, columns, 0);
    tl::store(out + columns, tl::zeros::<f32>([M]), columns < n);
    let u = tl::sum(tl::zeros::<f32>([M, N]), 2);
    let t = tl::zeros::<f32>([M, 100]);
    let s = tl::zeros::<f32>([1024, 1024, 2]);
}

#[fuse_kernel(num_warps = 5)]
fn warps(x: &[f32]) {}

fn main() {}
