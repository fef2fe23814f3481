use dsl_runtime::prelude::*;

#[fuse_kernel]
fn returns(x: &[f32]) -> f32 {
    1.0
}

#[fuse_kernel(T = [f32])]
fn parameters<'a, T: Copy>(x: &'a [T], y: Vec<T>, z: &T, n: usize, (a, b): (i32, i32)) {
    tl::store(y, tl::load(x + n));
}

#[fuse_kernel]
struct NotAFunction;

// Nothing is said about the calls of kernels that have mistakes.
fn call(x: Slice<f32>, y: Vec<f32>) {
    let _ = returns(x);
    let _ = parameters::<f32>(x, y, &1.0, 4, (1, 2));
}

fn main() {}
