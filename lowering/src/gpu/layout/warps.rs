//! The threads of a program: how many warps run it where the user does not say, and in which blocks they are.

use super::access::Alignment;
use super::assign::{Distributed, TileAccess};
use crate::ir::Func;

/// What the target decides about threads, and what the user asks for.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    /// Of a block.
    pub num_warps: Option<u32>,
    pub num_ctas: u32,
    pub num_stages: Option<u32>,
    pub alignment: Alignment,
}

impl Distributed {
    /// Warps of a program that are in one block.
    pub fn warps_per_cta(&self) -> u32 {
        self.num_warps / self.num_ctas
    }

    /// The bits of a warp's number.
    pub fn warp_bits(&self) -> u32 {
        self.num_warps.next_power_of_two() - 1
    }

    /// The bits of a warp's number that tell its block.
    pub fn cta_bits(&self) -> u32 {
        self.num_warps - self.warps_per_cta()
    }
}

/// Bytes that one thread reads from memory: enough loads in flight to cover the latency of memory, few enough registers
/// to keep several blocks on a multiprocessor (docs/performance.md).
const BYTES_PER_THREAD: u64 = 64;
/// The same in a cluster, whose blocks wait for each other: the more clusters fit, the better. What is read around beside rows that begin
/// anywhere takes registers, so that no more of them would.
const BYTES_PER_THREAD_OF_CLUSTER: u64 = 128;
/// Blocks of more warps wait longer for their last one, and fewer of them fit.
const MAX_WARPS: u64 = 8;
/// Threads that would hold more bytes of one access than these have too few registers left to work with: as many again
/// share it then.
const MAX_BYTES_PER_THREAD: u64 = 256;
/// The bytes of the widest access of one thread.
const VECTOR: u64 = 16;
/// From these bytes on, two warps read sooner than one.
const TWO_WARPS: u64 = 2048;
/// A block of a cluster has at least so many warps. The blocks wait for each other, and with more warps their loads come back sooner.
const WARPS_OF_CLUSTER: u64 = 4;

/// Warps of each of `num_ctas` blocks that share a program.
pub(super) fn choose_warps(func: &Func, accesses: &[TileAccess], threads: ThreadConfig) -> u32 {
    let num_ctas = threads.num_ctas;
    if let Some(warps) = super::dot::preferred_warps(func, threads.alignment) {
        return warps;
    }
    let share = |bytes: u64| bytes / u64::from(num_ctas);
    let streamed = || accesses.iter().filter(|access| access.streams);
    let read: u64 = streamed().filter(|access| access.reads).map(TileAccess::bytes).sum();
    let read = share(read);
    let largest = share(streamed().map(TileAccess::bytes).max().unwrap_or(0));
    let beside =
        accesses.iter().any(|access| access.reads && !access.streams && share(access.bytes()) >= largest);
    let reads_around = threads.alignment == Alignment::Element && beside;
    let per_thread =
        if num_ctas > 1 && !reads_around { BYTES_PER_THREAD_OF_CLUSTER } else { BYTES_PER_THREAD };
    if largest > MAX_BYTES_PER_THREAD * 32 * MAX_WARPS {
        return 2 * MAX_WARPS as u32;
    }
    let moved = largest.max(read);
    let bytes = if moved > 0 { moved } else { share(largest_tile(func)) };
    let least = match bytes {
        TWO_WARPS.. if num_ctas > 1 => WARPS_OF_CLUSTER,
        TWO_WARPS.. => 2,
        _ => 1,
    };
    let warps = (bytes / (per_thread * 32)).clamp(least, MAX_WARPS).next_power_of_two();
    let fewer = (0..=warps.ilog2()).map(|halvings| warps >> halvings);
    fewer.take_while(|&warps| warps >= least).find(|&warps| whole_vectors(largest, warps)).unwrap_or(warps)
        as u32
}

/// Whether threads that share so many bytes hold no part of a vector beside whole ones: of a tile whose extent is no power of
/// two they might.
fn whole_vectors(bytes: u64, warps: u64) -> bool {
    let of_thread = bytes / (32 * warps);
    of_thread <= VECTOR || of_thread.is_multiple_of(VECTOR)
}

fn largest_tile(func: &Func) -> u64 {
    let tiles = (0..func.value_count()).map(|i| func.ty(func.value_at(i)));
    tiles.map(|ty| ty.shape.elements() * u64::from(ty.dtype.bytes())).max().unwrap_or(0)
}
