//! The threads of a program: how many warps it has where the user does not say, and in how many CTAs they are.

use tile_ir::ir::Func;

use super::access::Alignment;
use super::distributed::Distributed;
use super::tile_access::TileAccess;

/// What the target decides about threads, and what the user asks for.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    /// Warps of a CTA.
    pub num_warps: Option<u32>,
    pub num_ctas: u32,
    pub num_stages: Option<u32>,
    pub alignment: Alignment,
}

impl Distributed {
    /// Warps of a program that are in one CTA.
    pub fn warps_per_cta(&self) -> u32 {
        self.num_warps / self.num_ctas
    }

    /// The bits of the warp index.
    pub fn warp_bits(&self) -> u32 {
        self.num_warps.next_power_of_two() - 1
    }

    /// The bits of the warp index that are the CTA.
    pub fn cta_bits(&self) -> u32 {
        self.num_warps - self.warps_per_cta()
    }
}

/// Bytes that one thread reads from memory: enough loads in flight to cover the latency of memory, few enough registers
/// to keep several blocks on a multiprocessor (docs/decisions/0003).
const BYTES_PER_THREAD: u64 = 64;
/// The same in a cluster, whose CTAs wait for each other: the more clusters fit, the better. Unaligned rows take more
/// registers, so that no more of them would fit.
const BYTES_PER_THREAD_IN_CLUSTER: u64 = 128;
/// CTAs of more warps wait longer for their last one, and fewer of them fit.
const MAX_WARPS: u64 = 8;
/// Threads that would hold more bytes of one access have too few registers left: twice the warps share it then.
const MAX_BYTES_PER_THREAD: u64 = 256;
/// The bytes of the widest access of one thread.
const VECTOR_BYTES: u64 = 16;
/// From these bytes on, two warps finish sooner than one.
const MIN_BYTES_FOR_TWO_WARPS: u64 = 2048;
/// The fewest warps of a CTA of a cluster. The CTAs wait for each other, and with more warps their loads come back
/// sooner.
const MIN_WARPS_PER_CLUSTER_CTA: u64 = 4;

/// Warps of each of the `num_ctas` CTAs that share a program.
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
    let has_cached_operand =
        accesses.iter().any(|access| access.reads && !access.streams && share(access.bytes()) >= largest);
    let reads_unaligned = threads.alignment == Alignment::Element && has_cached_operand;
    let per_thread =
        if num_ctas > 1 && !reads_unaligned { BYTES_PER_THREAD_IN_CLUSTER } else { BYTES_PER_THREAD };
    if largest > MAX_BYTES_PER_THREAD * 32 * MAX_WARPS {
        return 2 * MAX_WARPS as u32;
    }
    let traffic = largest.max(read);
    let bytes = if traffic > 0 { traffic } else { share(largest_tile(func)) };
    let least = match bytes {
        MIN_BYTES_FOR_TWO_WARPS.. if num_ctas > 1 => MIN_WARPS_PER_CLUSTER_CTA,
        MIN_BYTES_FOR_TWO_WARPS.. => 2,
        _ => 1,
    };
    let warps = (bytes / (per_thread * 32)).clamp(least, MAX_WARPS).next_power_of_two();
    let fewer = (0..=warps.ilog2()).map(|halvings| warps >> halvings);
    fewer.take_while(|&warps| warps >= least).find(|&warps| whole_vectors(largest, warps)).unwrap_or(warps)
        as u32
}

/// Whether each of the threads that share so many bytes holds whole vectors. For a tile whose extent is no power of
/// two, some might not.
fn whole_vectors(bytes: u64, warps: u64) -> bool {
    let of_thread = bytes / (32 * warps);
    of_thread <= VECTOR_BYTES || of_thread.is_multiple_of(VECTOR_BYTES)
}

fn largest_tile(func: &Func) -> u64 {
    let tiles = (0..func.value_count()).map(|i| func.ty(func.value_at(i)));
    tiles.map(|ty| ty.shape.elements() * u64::from(ty.dtype.bytes())).max().unwrap_or(0)
}
