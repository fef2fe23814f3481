use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, f16, bf16], N = [64, 128])]
fn some_variants<T: Float, const N: usize>(x: &[T], out: &mut [T]) {
    let y = tl::load(x + tl::arange(0, N)) * tl::zeros::<f32>([N]);
    tl::static_assert(N < 128, "N is too large");
}

// Nothing is said of calls on top of the mistakes.
fn calls<T: Float>(x: &Buffer<T>, out: &mut Buffer<T>)
where
    some_variants::Choice<T, 64>: some_variants::Declared,
{
    let _ = some_variants::<T, 64>(x, out);
}

fn call(x: &Buffer<f32>, out: &mut Buffer<f32>) {
    calls::<f32>(x, out);
}

fn main() {}
