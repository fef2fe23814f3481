//! Reading and writing memory: masks, bounds, offsets of every kind. Kernels that leave their slices to test what bounds
//! do then are `unreported`.

use dsl_runtime::prelude::*;

/// Copies `n` elements.
#[fuse_kernel(T = [bool, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64], BLOCK = [64, 256], unreported)]
pub fn copy<T: Element, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    tl::store(out + offsets, tl::load(x + offsets, mask), mask);
}

/// Copies as many elements as both slices have: nothing but the slices' lengths ends it.
#[fuse_kernel(T = [u8, u32, f64], unreported)]
pub fn copy_all<T: Element>(x: &[T], out: &mut [T]) {
    let offsets = tl::program_id(0) * 256 + tl::arange(0, 256);
    tl::store(out + offsets, tl::load(x + offsets));
}

/// Elements by index, read without a mask, with one, and with one and a value for those masked off.
#[fuse_kernel(T = [bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64], I = [i32, i64], unreported)]
pub fn gather<T: Element, I: Integer>(
    x: &[T],
    index: &[I],
    mask: &[bool],
    other: T,
    plain: &mut [T],
    masked: &mut [T],
    replaced: &mut [T],
) {
    let offsets = tl::program_id(0) * 128 + tl::arange(0, 128);
    let index = tl::load(index + offsets);
    let mask = tl::load(mask + offsets);
    tl::store(plain + offsets, tl::load(x + index));
    tl::store(masked + offsets, tl::load(x + index, mask));
    tl::store(replaced + offsets, tl::load(x + index, mask, other));
}

/// Elements to an index, except where the mask is false.
#[fuse_kernel(T = [bool, u8, u16, u32, u64, f16], I = [i32, i64], unreported)]
pub fn scatter<T: Element, I: Integer>(x: &[T], index: &[I], mask: &[bool], out: &mut [T]) {
    let offsets = tl::program_id(0) * 128 + tl::arange(0, 128);
    let index = tl::load(index + offsets, true, -1);
    let mask = tl::load(mask + offsets);
    tl::store(out + index, tl::load(x + offsets), mask);
}

/// `out[i] = x[start + i * stride]`, in 32-bit arguments whose product may leave 32 bits.
#[fuse_kernel(T = [u8, u16, u32, u64], unreported)]
pub fn strided<T: Element>(x: &[T], out: &mut [T], start: i32, stride: i32) {
    let i = tl::program_id(0) * 64 + tl::arange(0, 64);
    tl::store(out + i, tl::load(x + start + i * stride));
}

/// `out[start + i * stride] = x[i]`
#[fuse_kernel(T = [u8, u16, u32, u64], unreported)]
pub fn strided_store<T: Element>(x: &[T], out: &mut [T], start: i32, stride: i32) {
    let i = tl::program_id(0) * 64 + tl::arange(0, 64);
    tl::store(out + start + i * stride, tl::load(x + i), i < x.len() as i32);
}

/// Rows of `n_cols` elements at a distance of `stride`, packed.
#[fuse_kernel(T = [u8, f16, f32, f64])]
pub fn rows<T: Element>(x: &[T], out: &mut [T], n_rows: i32, n_cols: i32, stride: i32) {
    let row = tl::program_id(0) * 8 + tl::arange(0, 8);
    let col = tl::program_id(1) * 32 + tl::arange(0, 32);
    let mask = (row < n_rows).col() & (col < n_cols).row();
    let tile = tl::load(x + row.col() * stride + col.row(), mask);
    tl::store(out + row.col() * n_cols + col.row(), tile, mask);
}

/// Elements that a mask in memory lets through, from `back` elements before their index, `other` elsewhere; written where the next
/// element of the mask says so.
#[fuse_kernel(T = [bool, i8, u16, f16, bf16, f32, f64])]
pub fn masked<T: Element>(x: &[T], take: &[bool], out: &mut [T], n: i32, back: i32, other: T) {
    let i = tl::program_id(0) * 512 + tl::arange(0, 512);
    let mask = tl::load(take + i, i < n) & (i >= back);
    let value = tl::load(x + (i - back), mask, other);
    tl::store(out + i, value, tl::load(take + 1 + i, i < n));
}

/// Rows of a matrix that begin anywhere, each a tile: less a scalar for each column, and the sum with that and another one.
#[fuse_kernel(T = [i8, u16, f16, f32], COLS = n_cols in [256, 1024, 8192])]
pub fn whole_rows<T: Number, const COLS: usize>(
    x: &[T],
    w: &[T],
    v: &[T],
    out: &mut [T],
    sums: &mut [f32],
    n_cols: i32,
) {
    let (row, col) = (tl::program_id(0), tl::arange(0, COLS));
    let mask = col < n_cols;
    let x = tl::load(x + row * n_cols + col, mask).to::<f32>();
    let w = tl::load(w + col, mask).to::<f32>();
    let v = tl::load(v + col, mask).to::<f32>();
    tl::store(out + row * n_cols + col, (x - w).to::<T>(), mask);
    tl::store(sums + row, tl::sum(tl::select(mask, x + w + v, 0.0), 0));
}

/// Rows of a matrix that begin anywhere, eight in a tile: the sum of each with `other` beyond its end, and the sum from `skip` on.
#[fuse_kernel(T = [i8, u16, f16, f32], COLS = n_cols in [64, 512])]
pub fn short_rows<T: Number, const COLS: usize>(
    x: &[T],
    sums: &mut [f32],
    rests: &mut [f32],
    n_rows: i32,
    n_cols: i32,
    skip: i32,
    other: T,
) {
    let (row, col) = (tl::program_id(0) * 8 + tl::arange(0, 8), tl::arange(0, COLS));
    let (indices, mask) = ((row * n_cols).col() + col.row(), (row < n_rows).col() & (col < n_cols).row());
    let all = tl::load(x + indices, mask, other).to::<f32>();
    let rest = tl::load(x + indices, mask & (col >= skip).row()).to::<f32>();
    tl::store(sums + row, tl::sum(all, 1), row < n_rows);
    tl::store(rests + row, tl::sum(rest, 1), row < n_rows);
}

/// The same as [`whole_rows()`] in chunks of 256 elements, of which none is before the first `skip`.
#[fuse_kernel(T = [i8, u16, f16, f32])]
pub fn rows_in_pieces<T: Number>(x: &[T], w: &[T], out: &mut [T], sums: &mut [f32], n_cols: i32, skip: i32) {
    let (row, col) = (tl::program_id(0), tl::arange(0, 256));
    let mut all = tl::zeros::<f32>([256]);
    for first in (0..n_cols).step_by(256) {
        let at = first + col;
        let mask = (at < n_cols) & (at >= skip);
        let x = tl::load(x + row * n_cols + at, mask).to::<f32>();
        let w = tl::load(w + at, mask).to::<f32>();
        tl::store(out + row * n_cols + at, (x - w).to::<T>(), mask);
        all += x + w;
    }
    tl::store(sums + row, tl::sum(all, 0));
}

/// Elements at a distance of `step`, a program each; and the product as a scalar, which wraps.
#[fuse_kernel(unreported)]
pub fn far(x: &[u32], out: &mut [u32], products: &mut [i32], step: i32) {
    let program = tl::program_id(0);
    let offsets = program * step + tl::arange(0, 32);
    tl::store(out + program * 32 + tl::arange(0, 32), tl::load(x + offsets));
    tl::store(products + program, program * step);
}

/// Index arithmetic with division, remainder and shifts of values that may be negative.
#[fuse_kernel(unreported)]
pub fn divided(x: &[i32], out: &mut [i32], start: i32, by: i32) {
    let i = tl::program_id(0) * 64 + tl::arange(0, 64);
    let n = tl::num_programs(0) * 64;
    tl::store(out + i, tl::load(x + (start + i) / by));
    tl::store(out + n + i, tl::load(x + (start + i) % by));
    tl::store(out + 2 * n + i, tl::load(x + (start + i) / 8 * 8 + i % 8));
    tl::store(out + 3 * n + i, tl::load(x + ((start + i) >> 2)));
    tl::store(out + 4 * n + i, tl::load(x + ((start + i) & 15)));
    tl::store(out + 5 * n + i, tl::load(x + tl::cdiv(start + i, by)));
}

/// Changes a slice in place.
#[fuse_kernel(T = [i32, f16])]
pub fn increment<T: Number>(data: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * 128 + tl::arange(0, 128);
    let mask = offsets < n;
    let before = tl::load(data + offsets, mask);
    tl::store(data + offsets, before + 1, mask);
    let after = tl::load(data + offsets, mask);
    tl::store(data + offsets, after + after - before, mask);
}

/// One element at a time: scalars read and written.
#[fuse_kernel(T = [bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f16, bf16, f32, f64], unreported)]
pub fn scalars<T: Element>(x: &[T], value: T, out: &mut [T]) {
    let program = tl::program_id(0);
    tl::store(out + 2 * program, tl::load(x + program));
    tl::store(out + 2 * program + 1, value, program % 3 != 1);
}

/// The program's position in the grid and the grid, by the program's linear id.
#[fuse_kernel]
pub fn places(out: &mut [i32]) {
    let (x, y, z) = (tl::program_id(0), tl::program_id(1), tl::program_id(2));
    let (nx, ny, nz) = (tl::num_programs(0), tl::num_programs(1), tl::num_programs(2));
    let at = ((z * ny + y) * nx + x) * 6;
    tl::store(out + at, x);
    tl::store(out + at + 1, y);
    tl::store(out + at + 2, z);
    tl::store(out + at + 3, nx);
    tl::store(out + at + 4, ny);
    tl::store(out + at + 5, nz);
}

/// Slices' lengths.
#[fuse_kernel]
pub fn lengths(x: &[u8], y: &[f64], out: &mut [i64]) {
    tl::store(out + 0, x.len());
    tl::store(out + 1, y.len());
    tl::store(out + 2, out.len());
}
