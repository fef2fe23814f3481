//! Kernels that check and say what they compute.

use dsl_runtime::prelude::*;

/// `out = x`, where all of `x` is to be below `limit`.
#[fuse_kernel(T = [f32, bf16, i64, u8], BLOCK = [64])]
pub fn below<T: Number, const BLOCK: usize>(x: &[T], out: &mut [T], limit: T, n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let value = tl::load(x + i, i < n);
    tl::device_assert(value < limit, "a value is too large", i < n);
    tl::store(out + i, value, i < n);
}

/// `out = x` for tiles of 16 rows, where no element is to be `bad`.
#[fuse_kernel(COLS = [2, 8, 48])]
pub fn without<const COLS: usize>(x: &[i32], out: &mut [i32], bad: i32) {
    let at = tl::arange(0, 16).col() * COLS + tl::arange(0, COLS).row();
    let value = tl::load(x + at);
    tl::device_assert(value != bad);
    tl::store(out + at, value);
}

/// `out[i] = x[i] * 2` for `i < n`, which is to be positive, a scalar at a time.
#[fuse_kernel(unreported)]
pub fn scalars(x: &[i32], out: &mut [i32], n: i32) {
    tl::device_assert(n > 0 && n < 1000);
    for i in 0..n {
        let value = tl::load(x + i);
        if value > 10 {
            tl::device_assert(value % 2 == 0, "odd");
        }
        tl::store(out + i, value * 2);
    }
}

/// Asserts where nothing else is checked.
#[fuse_kernel(unchecked)]
pub fn trusting(out: &mut [i32], n: i32) {
    tl::device_assert(n <= 4);
    tl::store(out + tl::arange(0, 4), n, tl::arange(0, 4) < n);
}

pub use sums::total;

#[fuse_module]
mod sums {
    use dsl_runtime::prelude::*;

    #[fuse_fn]
    fn finite<T: Float>(x: Tile<T>) -> Tile<T> {
        tl::device_assert(tl::is_finite(x), "overflow");
        x
    }

    /// `out[0]` is the sum of `x`.
    #[fuse_kernel(N = [64])]
    pub fn total<const N: usize>(x: &[f32], out: &mut [f32]) {
        let x = tl::load(x + tl::arange(0, N));
        tl::store(out, finite(tl::sum(finite(x))));
    }
}

/// `out[row, col] = x[row, col] + bias[col % period]`; the period is a multiple of 8 up to 4096 and goes into the columns.
#[fuse_kernel(BLOCK = [256])]
pub fn periodic<const BLOCK: usize>(x: &[f32], bias: &[f32], out: &mut [f32], period: i32) {
    tl::assume(period > 0 && period % 8 == 0 && period <= 4096);
    let col = tl::arange(0, BLOCK);
    let at = tl::program_id(0) * BLOCK + col;
    tl::store(out + at, tl::load(x + at) + tl::load(bias + col % period));
}

/// Prints four elements, a scalar and no value.
#[fuse_kernel(T = [bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64])]
pub fn shown<T: Element>(x: &[T], n: i32) {
    let at = tl::arange(0, 2).col() * 2 + tl::arange(0, 2).row();
    tl::device_print("100% x", (tl::load(x + at, at < n), at), at < n);
    tl::device_print("n", n);
    tl::device_print("here");
}

/// `out = x * x - 1` of the first `n` elements; offsets and masks go far beyond 32 bits.
#[fuse_kernel(T = [i32, u8, i64, u64])]
pub fn squares<T: Integer>(x: &[T], out: &mut [T], n: i32, far: i32) {
    let i = tl::arange(0, 16);
    let value = tl::load(x + i + i * far * far * 0);
    let less = value * value - 1;
    tl::store(out + i, less, (i < n) & (i + far * far > far));
}

/// A sum, a loop and a branch on scalars.
#[fuse_kernel]
pub fn used(x: &[i32], out: &mut [i32], kind: i32) {
    let value = tl::load(x + tl::arange(0, 16));
    if kind == 0 {
        tl::store(out + 0, tl::sum(value));
    }
    let mut acc = kind;
    if kind == 1 {
        for i in 0..3 {
            acc = acc * tl::max(value) + i;
        }
    }
    if kind == 2 {
        tl::store(out + tl::arange(0, 16), tl::select(value > 0, tl::wrapping_mul(value, value), -value));
    }
    tl::store(out + 1, acc);
}
