use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, bf16], N = [64, 128])]
fn lists<T: Float, const N: usize>(x: &[T], out: &mut [T]) {
    tl::store(out + tl::arange(0, N), tl::load(x + tl::arange(0, N)));
}

#[fuse_kernel(configs = [{ M: 16, N: 64 }, { M: 32, N: 32 }])]
fn configs<const M: usize, const N: usize>(x: &[f32]) {}

fn call(x: Slice<f32>, h: Slice<f16>, mut out: SliceMut<f32>, mut half: SliceMut<f16>) {
    let _ = lists::<f32, 256>(x, &mut out);
    let _ = lists::<f16, 64>(h, &mut half);
    let _ = configs::<16, 32>(x);
}

fn open(x: Slice<f32>, out: SliceMut<f32>) {
    lists(x, out);
}

fn generic<'a, T: Float>(x: Slice<'a, T>, out: SliceMut<'a, T>) {
    let _ = lists::<T, 64>(x, out);
}

fn main() {}
