//! A kernel that says what it computes.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(BLOCK = [64])]
pub fn log_of_sums<const BLOCK: usize>(x: &[f32], out: &mut [f32], n_cols: i32) {
    tl::static_assert(BLOCK >= 32, "a warp has 32 lanes");
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row * n_cols + cols, mask);
    tl::static_print(x);
    tl::device_assert(x >= 0.0, "the logarithm wants positive numbers", mask);
    let sum = tl::sum(x, 0);
    tl::device_print("sum", sum);
    tl::store(out + row, tl::log(sum));
}
// ANCHOR_END: kernel

// ANCHOR: overflow
/// `out[0]` is the factorial of `n`.
#[fuse_kernel]
pub fn factorial(out: &mut [i32], n: i32) {
    let mut product = 1;
    for i in 1..n + 1 {
        product *= i;
    }
    tl::store(out, product);
}
// ANCHOR_END: overflow

// ANCHOR: race
/// Makes each element the mean of itself and of its left neighbor, in place.
#[fuse_kernel(BLOCK = [64])]
pub fn smooth<const BLOCK: usize>(x: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let inside = (offsets > 0) & (offsets < n);
    let left = tl::load(x + (offsets - 1), inside);
    let own = tl::load(x + offsets, inside);
    tl::store(x + offsets, (left + own) * 0.5, inside);
}
// ANCHOR_END: race

// ANCHOR: configured
/// Doubles numbers; a debug build also counts the programs in `ran`.
#[fuse_kernel(BLOCK = [64])]
pub fn doubled<const BLOCK: usize>(
    x: &[f32],
    out: &mut [f32],
    n: i32,
    #[cfg(debug_assertions)] ran: &mut [i32],
) {
    let at = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + at, tl::load(x + at, at < n) * 2.0, at < n);
    #[cfg(debug_assertions)]
    tl::atomic_add(ran, 1).sem("relaxed");
}
// ANCHOR_END: configured
