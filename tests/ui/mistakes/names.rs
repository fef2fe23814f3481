use dsl_runtime::prelude::*;

#[fuse_kernel(N = [64])]
fn names<const N: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::arrange(0, N);
    let mask = offset < n;
    let y = tl::load(x + tl::arange(0, N));
    let z = y.sqrt() + foo(y) + f32::HUGE;
    tl::store(out + tl::arange(0, N), tl::frobnicate(z));
    names(x, out, n);
}

fn main() {}
