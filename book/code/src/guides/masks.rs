//! What a mask leaves out, and what the length of a slice does.

use dsl_runtime::prelude::*;

// ANCHOR: gather
/// `out[i] = table[index[i]]`, and -1 where the index is negative.
#[fuse_kernel(BLOCK = [256])]
pub fn gather<const BLOCK: usize>(table: &[f32], index: &[i32], out: &mut [f32], n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let at = tl::load(index + i, i < n);
    let value = tl::load(table + at, (i < n) & (at >= 0), -1.0);
    tl::store(out + i, value, i < n);
}
// ANCHOR_END: gather

// ANCHOR: unreported
/// `out[i] = x[i + by]`, and 0 where `x` has no such element, on purpose.
#[fuse_kernel(BLOCK = [256], unreported)]
pub fn shift<const BLOCK: usize>(x: &[f32], out: &mut [f32], by: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + i, tl::load(x + i + by));
}
// ANCHOR_END: unreported
