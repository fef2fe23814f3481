//! Many programs change the same elements of memory.

use dsl_runtime::prelude::*;

/// Adds 1 to the element that each index names and takes the old value: a ticket. Indices outside the slice
/// and those masked off take 0 and change nothing. The tile may be smaller than a warp or the block.
#[fuse_kernel(T = [i32, u32, i64, u64], BLOCK = [4, 32, 512], num_warps = 4, unreported)]
pub fn tickets<T: Integer, const BLOCK: usize>(
    index: &[i32],
    mask: &[bool],
    counts: &mut [T],
    taken: &mut [T],
) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let at = tl::load(index + i, true, -1);
    let old = tl::atomic_add(counts + at, 1, tl::load(mask + i)).sem("relaxed");
    tl::store(taken + i, old);
}

/// The same without asking for the tickets.
#[fuse_kernel(T = [i32, u32, i64, u64, f16, bf16, f32, f64], BLOCK = [4, 32, 512], num_warps = 4, unreported)]
pub fn counted<T: Number, const BLOCK: usize>(index: &[i32], mask: &[bool], counts: &mut [T]) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::atomic_add(counts + tl::load(index + i, true, -1), 1, tl::load(mask + i));
}

/// Sums of rows, replicated in every lane of a warp, added up over programs; and one scalar of the whole program.
#[fuse_kernel(configs = [{ WARPS: 1, num_warps: 1 }, { WARPS: 4, num_warps: 4 }])]
pub fn row_sums<const WARPS: usize>(x: &[i32], rows: &mut [i32], old: &mut [i32], total: &mut [i64]) {
    let row = tl::arange(0, 8);
    let program = tl::program_id(0);
    let x = tl::load(x + program * 256 + row.col() * 32 + tl::arange(0, 32).row());
    let sums = tl::sum(x, 1);
    tl::store(old + program * 8 + row, tl::atomic_add(rows + row, sums));
    tl::atomic_add(total, tl::sum(sums) as i64).sem("relaxed");
}

/// A queue slot for each program, in the order in which they arrive.
#[fuse_kernel(num_warps = 4)]
pub fn queue(next: &mut [u32], order: &mut [i32]) {
    let slot = tl::atomic_add(next, 1u32);
    tl::store(order + slot, tl::program_id(0));
}

/// The extremes of what all programs have, and what became of the last element.
#[fuse_kernel(T = [i32, u32, i64, u64, f32, f64], unreported)]
pub fn extremes<T: Number>(x: &[T], largest: &mut [T], smallest: &mut [T], n: i32) {
    let i = tl::program_id(0) * 128 + tl::arange(0, 128);
    let x = tl::load(x + i, i < n);
    tl::atomic_max(largest + i % 8, x, i < n);
    tl::atomic_min(smallest + i % 8, x, i < n).sem("relaxed");
    tl::atomic_max(largest + 8, tl::max(tl::select(i < n, x, T::MIN)));
}

#[fuse_kernel(T = [i32, u32, i64, u64])]
pub fn bits<T: Integer>(x: &[T], all: &mut [T], any: &mut [T], odd: &mut [T], n: i32) {
    let i = tl::program_id(0) * 128 + tl::arange(0, 128);
    let x = tl::load(x + i, i < n);
    tl::atomic_and(all + i % 4, x, i < n);
    tl::atomic_or(any + i % 4, x, i < n);
    tl::atomic_xor(odd + i % 4, x, i < n);
}

/// Every value is either taken out by another element or left in memory: none is lost, none comes twice.
#[fuse_kernel(T = [i32, u32, i64, u64, f32, f64])]
pub fn exchanged<T: Number>(x: &[T], slots: &mut [T], taken: &mut [T]) {
    let i = tl::program_id(0) * 64 + tl::arange(0, 64);
    tl::store(taken + i, tl::atomic_xchg(slots + i % 5, tl::load(x + i)));
}

/// The first element to come to a slot that is still free claims it.
#[fuse_kernel(T = [i32, u32, i64, u64, f32, f64], num_warps = 2)]
pub fn claimed<T: Number>(x: &[T], slots: &mut [T], taken: &mut [T], free: T, n: i32) {
    let i = tl::program_id(0) * 16 + tl::arange(0, 16);
    let value = tl::load(x + i, i < n);
    tl::store(taken + i, tl::atomic_cas(slots + i % 7, free, value, i < n), i < n);
}
