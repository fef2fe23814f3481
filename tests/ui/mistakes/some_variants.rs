use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, f16, bf16], N = [64, 128])]
fn some_variants<T: Float, const N: usize>(x: &[T], out: &mut [T]) {
    let y = tl::load(x + tl::arange(0, N)) * tl::zeros::<f32>([N]);
    tl::static_assert(N < 128, "N is too large");
}

fn main() {}
