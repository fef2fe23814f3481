use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, bf16], N = [64])]
fn scale<T: Float, const N: usize>(x: &[T], out: &mut [T], n: i32, by: f32) {
    let c = tl::arange(0, N);
    let y = tl::load(x + c, c < n).to::<f32>() * by;
    tl::store(out + c, y.to::<T>(), c < n);
}

#[fuse_kernel(configs = [{ N: 64, when: m <= 64 }, { N: 128, when: n }, { N: 256 }])]
fn chosen<const N: usize>(x: &mut [f32], n: i32) {
    tl::store(x + tl::arange(0, N), tl::zeros::<f32>([N]), tl::arange(0, N) < n);
}

#[fuse_kernel(unchecked)]
fn trusted(x: &[f32]) {}

fn types(x: &Buffer<f32>, b: &Buffer<bf16>, out: &mut Buffer<f32>) {
    let _ = scale::<f32, 64>(x, &mut *out, 1.5, 2.0);
    let _ = scale::<f32, 64>(x, &mut *out, 1i64, 2.0);
    let _ = scale::<f32, 64>(b, &mut *out, 1, 2.0);
    let _ = scale::<f32, 64>(x, x, 1, 2.0);
    let _ = scale::<f32, 64>(x, 1, 2.0);
    let _ = scale::<i32, 64>(x, &mut *out, 1, 2.0);
    let _ = trusted(x);
    let _ = chosen::<64>(&mut *out, 1);
}

fn main() {}
