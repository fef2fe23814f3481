//! How many warps run a program where the user does not say.

use super::assign::Access;
use crate::tile::Func;

/// Bytes that one thread reads from memory: enough loads in flight to cover the latency of memory, few enough registers
/// to keep several blocks on a multiprocessor (docs/performance.md).
const BYTES_PER_THREAD: u64 = 64;
/// Blocks of more warps wait longer for their last one, and fewer of them fit.
const MAX_WARPS: u64 = 8;
/// Threads that would hold more bytes of one access than these have too few registers left to work with: as many again
/// share it then.
const MAX_BYTES_PER_THREAD: u64 = 256;
/// From these bytes on, two warps read sooner than one.
const TWO_WARPS: u64 = 2048;

pub(super) fn choose_warps(func: &Func, accesses: &[Access]) -> u32 {
    let streamed = || accesses.iter().filter(|access| access.streams);
    let read: u64 = streamed().filter(|access| access.reads).map(Access::bytes).sum();
    let largest = streamed().map(Access::bytes).max().unwrap_or(0);
    if largest > MAX_BYTES_PER_THREAD * 32 * MAX_WARPS {
        return 2 * MAX_WARPS as u32;
    }
    let moved = largest.max(read);
    let bytes = if moved > 0 { moved } else { largest_tile(func) };
    let least = if bytes >= TWO_WARPS { 2 } else { 1 };
    (bytes / (BYTES_PER_THREAD * 32)).clamp(least, MAX_WARPS).next_power_of_two() as u32
}

fn largest_tile(func: &Func) -> u64 {
    let tiles = (0..func.value_count()).map(|i| func.ty(func.value_at(i)));
    tiles.map(|ty| ty.shape.elements() * u64::from(ty.dtype.bytes())).max().unwrap_or(0)
}
