//! Kernels that compile and are wrong, for the pages that show what becomes of them.

use dsl_runtime::prelude::*;

// ANCHOR: unmasked
#[fuse_kernel(BLOCK = [1024])]
pub fn add_without_mask<const BLOCK: usize>(x: &[f32], y: &[f32], out: &mut [f32]) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + offsets, tl::load(x + offsets) + tl::load(y + offsets));
}
// ANCHOR_END: unmasked

#[allow(deprecated)]
// ANCHOR: zeros_in_softmax
#[fuse_kernel(BLOCK = n_cols in [256, 1024])]
pub fn softmax_with_zeros<const BLOCK: usize>(x: &[f32], out: &mut [f32], n_cols: i32) {
    let row = tl::program_id(0) * n_cols;
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row + cols, mask); // 0 where the mask is false
    let p = tl::exp(x - tl::max(x, 0));
    tl::store(out + row + cols, p / tl::sum(p, 0), mask);
}
// ANCHOR_END: zeros_in_softmax

// ANCHOR: uncorrected
#[fuse_kernel(BLOCK = [64])]
pub fn sum_of_exponentials<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let mut m_i = f32::NEG_INFINITY;
    let mut l_i = 0.0;
    for start in (0..n).step_by(BLOCK) {
        let cols = start + tl::arange(0, BLOCK);
        let x = tl::load(x + cols, cols < n, f32::NEG_INFINITY);
        let m_new = tl::maximum(m_i, tl::max(x, 0));
        l_i = l_i + tl::sum(tl::exp(x - m_new), 0); // l_i is still relative to the old maximum
        m_i = m_new;
    }
    tl::store(out, l_i * tl::exp(m_i));
}
// ANCHOR_END: uncorrected
