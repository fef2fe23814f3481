use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(BLOCK = [1024])]
fn add<const BLOCK: usize>(x: &[f32], y: &[bf16], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x_tile = tl::load(x + offsets, offsets < n);
    let y_tile = tl::load(y + offsets, offsets < n);
    tl::store(out + offsets, x_tile + y_tile, offsets < n);
    tl::store(x + offsets, 0.0, offsets < n);
}

#[fuse_kernel(BLOCK = [1000])]
fn zero<const BLOCK: usize>(out: &mut [f32]) {
    tl::store(out + tl::arange(0, BLOCK), 0.0);
}
// ANCHOR_END: kernel

fn main() {}
