//! Views: blocks inside, across edges and outside, of every rank; kernels that read and write them.

use dsl_runtime::prelude::*;

/// Blocks of one view to the blocks of another, each some way off.
#[fuse_kernel(T = [bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64])]
pub fn copy<T: Element>(
    x: &View<T, 2>,
    out: &mut View<T, 2>,
    from_row: i32,
    from_col: i32,
    to_row: i32,
    to_col: i32,
) {
    let (row, col) = (tl::program_id(0) * 8, tl::program_id(1) * 32);
    let block = x.load::<8, 32>(row + from_row, col + from_col);
    out.store(block, row + to_row, col + to_col);
}

/// The same of lists.
#[fuse_kernel(T = [u8, f32])]
pub fn copy_1<T: Element>(x: &View<T, 1>, out: &mut View<T, 1>, from: i32, to: i32) {
    let start = tl::program_id(0) * 64;
    out.store(x.load::<64>(start + from), start + to);
}

/// The same with three axes.
#[fuse_kernel(T = [u8, f32])]
pub fn copy_3<T: Element>(x: &View<T, 3>, out: &mut View<T, 3>, from: i32, to: i32) {
    let (i, j, k) = (tl::program_id(0) * 2, tl::program_id(1) * 4, tl::program_id(2) * 16);
    out.store(x.load::<2, 4, 16>(i + from, j + from, k + from), i + to, j + to, k + to);
}

/// The same with four, of which a block has one element along the first.
#[fuse_kernel(T = [u8, f32])]
pub fn copy_4<T: Element>(x: &View<T, 4>, out: &mut View<T, 4>, from: i32, to: i32) {
    let (i, j, k) = (tl::program_id(0), tl::program_id(1) * 2, tl::program_id(2) * 4);
    let block = x.load::<1, 2, 4, 16>(i + from, j + from, k + from, from);
    out.store(block, i + to, j + to, k + to, to);
}

/// The same with five, whose last one has one element in a block.
#[fuse_kernel(T = [u8, f32])]
pub fn copy_5<T: Element>(x: &View<T, 5>, out: &mut View<T, 5>, from: i32, to: i32) {
    let (i, j, k) = (tl::program_id(0) * 2, tl::program_id(1), tl::program_id(2) * 2);
    let block = x.load::<2, 1, 2, 8, 1>(i + from, j + from, k + from, from, from);
    out.store(block, i + to, j + to, k + to, to, to);
}

/// Blocks at offsets of 64 bits, signed and not.
#[fuse_kernel]
pub fn far(x: &View<u16, 2>, out: &mut View<u16, 2>, row: i64, col: u64) {
    out.store(x.load::<4, 8>(row, col), 0, 0);
    out.store(x.load::<4, 8>(0, 0), row, col);
}

/// The transpose, block by block.
#[fuse_kernel(T = [u8, f32])]
pub fn transpose<T: Element>(x: &View<T, 2>, out: &mut View<T, 2>) {
    let (row, col) = (tl::program_id(0) * 16, tl::program_id(1) * 32);
    out.store(tl::trans(x.load::<16, 32>(row, col)), col, row);
}

/// The sums of rows, and how many elements that differ from 0 each has: a loop over blocks whose end the view knows.
#[fuse_kernel(T = [f16, f32, f64])]
pub fn row_sums<T: Float>(x: &View<T, 2>, out: &mut View<T, 1>, counts: &mut [i32]) {
    let row = tl::program_id(0) * 4;
    let mut sums = tl::zeros::<f32>([4, 64]);
    let mut found = tl::zeros::<i32>([4, 64]);
    for col in (0..x.shape(1)).step_by(64) {
        let block = x.load::<4, 64>(row, col).to::<f32>();
        sums += block;
        found += (block != 0.0).to::<i32>();
    }
    out.store(tl::sum(sums, 1).to::<T>(), row);
    let rows = row + tl::arange(0, 4);
    tl::store(counts + rows, tl::sum(found, 1), rows.to::<i64>() < out.shape(0));
}

/// Changes a view in place, twice.
#[fuse_kernel(T = [i32, f16])]
pub fn increment<T: Number>(data: &mut View<T, 2>) {
    let (row, col) = (tl::program_id(0) * 4, tl::program_id(1) * 16);
    let before = data.load::<4, 16>(row, col);
    data.store(before + 1, row, col);
    let after = data.load::<4, 16>(row, col);
    data.store(after + after - before, row, col).evict_first();
}

/// Adds every program's block to one and the same, and writes down what was there.
#[fuse_kernel(T = [i32, u64, f32, f16])]
pub fn add<T: Number>(x: &View<T, 2>, total: &mut View<T, 2>, before: &mut View<T, 2>, at: i32) {
    let program = tl::program_id(0);
    let block = x.load::<4, 16>(program * 4, 0);
    let was = total.atomic_add(block, at, at).sem("relaxed");
    before.store(was, program * 4, 0);
}

/// What a view knows of itself.
#[fuse_kernel]
pub fn numbers(x: &View<u8, 3>, out: &mut [i64]) {
    tl::store(out + 0, x.shape(0));
    tl::store(out + 1, x.shape(1));
    tl::store(out + 2, x.shape(2));
    tl::store(out + 3, x.stride(0));
    tl::store(out + 4, x.stride(1));
    tl::store(out + 5, x.stride(2));
}

/// A view through a function, its columns by its own extents.
#[fuse_kernel]
pub fn last_column(x: &View<i32, 2>, out: &mut View<i32, 2>) {
    fn block(x: &View<i32, 2>, row: i32) -> Tile<i32> {
        x.load::<8, 1>(row, x.shape(1) - 1)
    }
    let row = tl::program_id(0) * 8;
    out.store(block(x, row), row, 0);
}
