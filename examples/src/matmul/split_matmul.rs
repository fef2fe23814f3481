//! Matmuls with few tiles: skinny tiles for up to 64 rows, and split-K, whose programs write partial sums to a workspace, for a
//! second kernel that reduces them and runs the epilogue.
//!
//! **Work.** That of the matmul. A skinny one takes the time of reading operand B, so its tiles are small, to occupy all SMs, and
//! their `BLOCK_K` is long. Split-K takes `8 * m * n` bytes of workspace traffic for each split, written and read once. The number
//! of splits follows from the extents and the number of SMs alone, and they are added in one order: the same result to the bit, run
//! after run.
//!
//! A single row is a matrix-vector product, whose programs have the blocks of `gemv_block`.
//!
//! **Rounding.** That of a matmul without a split: a split has fewer terms, and there are fewer splits than terms of one.
//!
//! **Source.** Partial sums in parallel: Osama and others, *Stream-K*, 2023, arXiv:2301.03598, section 3.

use dsl_runtime::prelude::*;

use crate::matmul_block::{Block, TileShape};

/// The skinny tiles: of up to 16 rows where the other tiles are too few for the SMs, of more columns, and of up to 64 rows.
pub(crate) const SKINNY_N16: TileShape = TileShape { rows: 16, cols: 16 };
pub(crate) const SKINNY_N32: TileShape = TileShape { rows: 16, cols: 32 };
pub(crate) const SKINNY_M64: TileShape = TileShape { rows: 64, cols: 64 };
/// Bytes along `k` up to which one program is faster than a split and its reduction (docs/decisions/0063).
const NO_SPLIT_BYTES: usize = 8192;
/// The tile of split-K.
pub(crate) const SPLIT_K_TILE: TileShape = TileShape { rows: 64, cols: 128 };
/// The tile of the reduction.
pub(crate) const REDUCE: TileShape = TileShape { rows: 4, cols: 256 };
/// The same where rows are at most [`SMALL_N`] long.
pub(crate) const REDUCE_SMALL_N: TileShape = TileShape { rows: 16, cols: 32 };
/// The longest rows of that tile: a wide one would be a quarter full.
pub(crate) const SMALL_N: usize = 64;
/// The fewest terms of a split.
const MIN_SPLIT_TERMS: usize = 256;
/// Bytes of a vector load.
pub(crate) const VECTOR_BYTES: usize = 16;
/// The most K slices of a program whose warps split K.
const MAX_K_SLICES: usize = 8;
/// The most splits.
pub(crate) const MAX_SPLIT_K: usize = 32;
/// How far past the end of `k` a split may end: each is a whole number of iterations of at most 128.
pub(crate) const MAX_OVERSHOOT: usize = (MAX_SPLIT_K + 1) * 128;

/// The split of K: as many programs for a tile as there are SMs for, and terms.
pub fn split_k(out: [usize; 3], k: usize, sm_count: usize) -> usize {
    let idle_sms = sm_count / SPLIT_K_TILE.count(out).max(1);
    idle_sms.min(k / MIN_SPLIT_TERMS).clamp(1, MAX_SPLIT_K)
}

/// The block of a single row: rows of up to 2048 elements take more columns in shorter steps, so that several steps are left to pipeline.
pub(crate) fn gemv_block(k: usize) -> Block {
    let (cols, k) = if k <= 2048 { (8, 512) } else { (2, 1024) };
    Block { tile: TileShape { rows: 1, cols }, k }
}

/// The skinny tile, of those that exist, for a matmul on a GPU whose rows have so many bytes along `k`.
pub(crate) fn skinny_tile(
    on: impl LaunchOn,
    out: [usize; 3],
    bytes: usize,
    of: &[TileShape],
) -> Option<TileShape> {
    on.shared_bytes()?;
    [SKINNY_N16, SKINNY_N32, SKINNY_M64].into_iter().find(|tile| {
        let is_suitable = match *tile {
            SKINNY_N16 => {
                SKINNY_N32.count(out) <= on.parallelism() && bytes.is_multiple_of(VECTOR_BYTES * MAX_K_SLICES)
            }
            SKINNY_M64 => on.has_wgmma(),
            _ => true,
        };
        is_suitable && out[1] <= tile.rows && of.contains(tile)
    })
}

/// The length of the workspace of split-K: 0 without a split, as where a skinny tile is faster.
pub(crate) fn workspace_len(
    on: impl LaunchOn,
    out: [usize; 3],
    k: usize,
    skinny: Option<TileShape>,
    bytes: usize,
) -> usize {
    let skips_split =
        |tile: TileShape| 4 * tile.count(out) >= 3 * on.parallelism() || k * bytes <= NO_SPLIT_BYTES;
    match split_k(out, k, on.parallelism()) {
        split_k if split_k > 1 && !skinny.is_some_and(skips_split) => split_k * out.iter().product::<usize>(),
        _ => 0,
    }
}

/// Whether rows of elements of so many bytes are read as vectors.
pub(crate) fn in_vectors([row, col]: [usize; 2], bytes: usize) -> bool {
    col == 1 && (row * bytes).is_multiple_of(VECTOR_BYTES)
}
