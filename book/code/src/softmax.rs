//! Softmax of rows: one program for each row, which it reads once.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(T = [f32, bf16], BLOCK = n_cols in [256, 1024])]
pub fn softmax<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n_cols: i32) {
    let row = tl::program_id(0) * n_cols;
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;

    let x = tl::load(x + row + cols, mask, T::NEG_INFINITY).to::<f32>();
    let p = tl::exp(x - tl::max(x, 0));
    let y = p / tl::sum(p, 0);

    tl::store(out + row + cols, y.to::<T>(), mask);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// The softmax of each row of a matrix with rows of `n_cols` elements, at most 1024.
pub fn softmax_rows(device: &Device, x: &[f32], n_cols: usize) -> dsl_runtime::Result<Vec<f32>> {
    let rows = x.len() / n_cols;
    let x = device.upload(x)?;
    let mut out = device.zeros::<f32>(rows * n_cols)?;
    softmax::<f32>(&x, &mut out, n_cols as i32).grid(rows).launch(device)?;
    out.download()
}
// ANCHOR_END: launch
