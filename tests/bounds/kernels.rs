//! Kernels that leave their slices when their arguments say so.

use dsl_runtime::prelude::*;

/// `out[i] = x[index[i]]`, 0 for an index that `x` does not have.
#[fuse_kernel(T = [f32, bf16, u8], BLOCK = [64])]
pub fn gather<T: Element, const BLOCK: usize>(x: &[T], index: &[i32], out: &mut [T], n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let at = tl::load(index + i, i < n);
    let found = tl::load(x + at, i < n);
    tl::store(out + i, found, i < n);
}

/// `out[index[i]] = x[i]`; an index that `out` does not have is dropped.
#[fuse_kernel(BLOCK = [64])]
pub fn scatter<const BLOCK: usize>(x: &[f64], index: &[i64], out: &mut [f64], n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let at = tl::load(index + i, i < n);
    tl::store(out + at, tl::load(x + i, i < n), i < n);
}

/// `out[i] = x[i + shift]` for `i < n`.
#[fuse_kernel(BLOCK = [64, 1024])]
pub fn shifted<const BLOCK: usize>(x: &[f32], out: &mut [f32], shift: i32, n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = i < n;
    tl::store(out + i, tl::load(x + shift + i, mask, -1.0), mask);
}

/// `out[row] = x[row, 0] + .. + x[row, cols - 1]`, for the row of each program.
#[fuse_kernel(BLOCK = [32])]
pub fn row_sums<const BLOCK: usize>(x: &[f32], out: &mut [f32], cols: i32) {
    let row = tl::program_id(1) * tl::num_programs(0) + tl::program_id(0);
    let mut sum = 0.0;
    for start in (0..cols).step_by(BLOCK) {
        let col = start + tl::arange(0, BLOCK);
        sum += tl::sum(tl::load(x + row * cols + col, col < cols), 0);
    }
    tl::store(out + row, sum);
}

/// [`gather`] for which an index outside means 0.
#[fuse_kernel(BLOCK = [64], unreported)]
pub fn gather_or_zero<const BLOCK: usize>(x: &[f32], index: &[i32], out: &mut [f32], n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + i, tl::load(x + tl::load(index + i, i < n), i < n), i < n);
}
