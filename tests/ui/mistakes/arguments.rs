use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn arguments<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let y = tl::load(x + tl::arange(0, N), true, 0.0, 1, 2);
    let z = tl::fma(y, y);
    let w = tl::zeros([N]);
    let v = tl::exp(n) + tl::sum(x);
    tl::store(out + y, "one");
}

fn main() {}
