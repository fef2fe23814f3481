use dsl_runtime::prelude::*;

// What constants make certain, in one variant or in all of them.
#[fuse_kernel(N = [0, 64])]
fn certain<const N: usize>(out: &mut [f32], n: i32) {
    let a = n / 0;
    let b = n << 32;
    let c = i32::MAX + 1;
    tl::store(out, 1e39);
    for i in (0..n).step_by(-1) {
        tl::store(out + i, 1.0);
    }
    let d = n % N;
    if N > 0 {
        tl::store(out, (n / N) as f32);
    }
}

fn main() {}
