use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(N = [64])]
fn habits<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let lane = tl::arange(0, N);
    let y = tl::load(x + lane, mask = lane < n);
    let zeros = tl::zeros([N], tl::float32);
    let y = tl::r#where(lane < n, y, 0.0);
    tl::store(out + lane, tl::max(y, 0.0));
}
// ANCHOR_END: kernel

fn main() {}
