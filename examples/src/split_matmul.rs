//! Products with few tiles: tiles of few rows for those of up to 64, and steps along `k` that programs share, which leave parts of
//! the sums in working memory, for a second kernel that adds the parts and does what follows a product.
//!
//! **Work.** That of the product: of few rows, the time is that of reading the right factor, so that tiles are small, for all
//! processors to read, and their steps long. Shared steps take `8 * m * n` bytes of working memory for each part, written and read
//! once. The number of parts follows from the extents and the number of processors alone, and they are added in one order: the same
//! result to the bit, run after run.
//!
//! **Rounding.** That of a product in one part: parts have fewer terms each, and there are fewer parts than terms of one.
//!
//! **Source.** Parts of sums in parallel: Osama and others, *Stream-K*, 2023, arXiv:2301.03598, section 3.

use dsl_runtime::prelude::*;

use crate::matmul::Tile;

/// What a program makes of up to 16 rows where the other tiles are too few for the processors, of more columns, and of up to 64 rows.
pub(crate) const NARROW: Tile = Tile { rows: 16, cols: 16 };
pub(crate) const FLAT: Tile = Tile { rows: 16, cols: 32 };
pub(crate) const LOW: Tile = Tile { rows: 64, cols: 64 };
/// Bytes along `k` that one program is sooner done with than several and the second kernel (docs/performance.md).
const ALONE_BYTES: usize = 8192;
/// What a program makes of which others make more parts.
pub(crate) const TILE: Tile = Tile { rows: 64, cols: 128 };
/// What a program adds up.
pub(crate) const SUMMED: Tile = Tile { rows: 4, cols: 256 };
/// The same where rows are at most [`THIN_COLS`] long.
pub(crate) const THIN: Tile = Tile { rows: 16, cols: 32 };
/// The longest rows that thin tiles take: wide ones would be a quarter full.
pub(crate) const THIN_COLS: usize = 64;
/// The fewest terms of a part.
const TERMS: usize = 256;
/// Bytes that are read at once.
pub(crate) const VECTOR: usize = 16;
/// The most slices that the warps of a program of narrow tiles share.
const MAX_SLICES: usize = 8;
/// The most parts.
pub(crate) const MAX_PARTS: usize = 32;
/// How far behind the end of `k` a part may end: each is a whole number of steps of at most 128.
pub(crate) const BEHIND: usize = (MAX_PARTS + 1) * 128;

/// Among how many programs the steps of a tile are shared: as many as there are processors for, and terms.
pub fn parts(out: [usize; 3], k: usize, processors: usize) -> usize {
    let room = processors / TILE.count(out).max(1);
    room.min(k / TERMS).clamp(1, MAX_PARTS)
}

/// The tile of few rows, of some that there are, for a product on a GPU whose rows have so many bytes along `k`.
pub(crate) fn few_rows(on: impl LaunchOn, out: [usize; 3], bytes: usize, of: &[Tile]) -> Option<Tile> {
    on.shared_bytes()?;
    [NARROW, FLAT, LOW].into_iter().find(|tile| {
        let suits = match *tile {
            NARROW => FLAT.count(out) <= on.processors() && bytes.is_multiple_of(VECTOR * MAX_SLICES),
            LOW => on.has_clusters(),
            _ => true,
        };
        suits && out[1] <= tile.rows && of.contains(tile)
    })
}

/// The length of the working memory for all parts: 0 where nothing is shared, as where a tile of few rows is sooner done.
pub(crate) fn scratch_len(
    on: impl LaunchOn,
    out: [usize; 3],
    k: usize,
    few: Option<Tile>,
    bytes: usize,
) -> usize {
    let alone = |tile: Tile| 4 * tile.count(out) >= 3 * on.processors() || k * bytes <= ALONE_BYTES;
    match parts(out, k, on.processors()) {
        parts if parts > 1 && !few.is_some_and(alone) => parts * out.iter().product::<usize>(),
        _ => 0,
    }
}

/// Whether rows of elements of so many bytes are read as vectors.
pub(crate) fn in_vectors([row, col]: [usize; 2], bytes: usize) -> bool {
    col == 1 && (row * bytes).is_multiple_of(VECTOR)
}
