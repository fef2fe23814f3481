use dsl_runtime::prelude::*;

// ANCHOR: kernel
fn squared(x: Tile<f32>) -> Tile<f32> {
    x * x
}

#[fuse_kernel(BLOCK = [1024])]
fn squares<const BLOCK: usize>(x: &[f32], out: &mut [f32], n_cols: i32) {
    let cols = tl::arange(0, BLOCK);
    let x = tl::load(x + cols, cols < n_cols);
    let mean = tl::sum(x, 0) / n_cols;
    tl::store(out + cols, squared(x - mean), cols < n_cols);
}
// ANCHOR_END: kernel

fn main() {}
