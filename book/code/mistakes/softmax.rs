use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(T = [f32, bf16], BLOCK = [1024])]
fn softmax<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n_cols: i32) {
    let cols = tl::program_id(0) * n_cols + tl::arange(0, BLOCK);
    let x = tl::load(x + cols, cols < n_cols, -f32::INFINITY);
    let p = tl::exp(x - tl::max(x, 1));
    tl::store(out + cols, p / tl::sum(p, 0), cols < n_cols);
}
// ANCHOR_END: kernel

fn main() {}
