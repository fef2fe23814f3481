use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f16, bf16], N = [64])]
fn types<T: Float, const N: usize>(x: &[T], scale: &[f32], out: &mut [T], n: i32) {
    let c = tl::arange(0, N);
    let y = tl::load(x + c);
    let z = y * tl::load(scale + c);
    let w = tl::load(scale + c) * n;
    let v: f32 = n;
    tl::store(out + c, tl::load(scale + c));
    tl::store(x + c, y);
}

fn main() {}
