//! Products with few tiles. [`Matmul::launch`](crate::matmul::Matmul::launch) has tiles of few rows for those of up to 64, and
//! [`Matmul::launch_split`](crate::matmul::Matmul::launch_split) shares the steps along `k` among programs, which leave parts of the
//! sums in working memory, and a second kernel adds the parts and does what follows a product. See [`crate::matmul`] for what is
//! computed.
//!
//! **Work.** That of the product: of few rows, the time is that of reading the right factor, so that tiles are small, for all
//! processors to read, and their steps long. Shared steps take `8 * m * n` bytes of working memory for each part, written and read
//! once. The number of parts follows from the extents and the number of processors alone, and they are added in one order: the same
//! result to the bit, run after run.
//!
//! **Rounding.** That of [`crate::matmul`]: parts have fewer terms each, and there are fewer parts than terms of one.
//!
//! **Source.** Parts of sums in parallel: Osama and others, *Stream-K*, 2023, arXiv:2301.03598, section 3.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::matmul::{Factors, Tile};
use crate::matmul_tiles::{matmul_few, matmul_narrow, matmul_parts, sum_parts};

/// What a program of [`matmul_narrow`] makes of up to 16 rows where the other tiles are too few for the processors, and programs of
/// [`matmul_few`] of more columns, and of up to 64 rows.
pub(crate) const NARROW: Tile = Tile { rows: 16, cols: 16 };
pub(crate) const FLAT: Tile = Tile { rows: 16, cols: 32 };
pub(crate) const LOW: Tile = Tile { rows: 64, cols: 64 };
/// Bytes along `k` that one program is sooner done with than several and the second kernel (docs/performance.md).
const ALONE_BYTES: usize = 8192;
/// What a program of [`matmul_parts`] makes.
pub(crate) const TILE: Tile = Tile { rows: 64, cols: 128 };
/// What a program of [`sum_parts`] adds up.
pub(crate) const SUMMED: Tile = Tile { rows: 4, cols: 256 };
/// The fewest terms of a part.
const TERMS: usize = 256;
/// Bytes that are read at once.
const VECTOR: usize = 16;
/// The most slices that the warps of a program of narrow tiles share.
const MAX_SLICES: usize = 8;
/// The most parts.
pub(crate) const MAX_PARTS: usize = 32;
/// How far behind the end of `k` a part may end: each is a whole number of steps of at most 64.
pub(crate) const BEHIND: usize = (MAX_PARTS + 1) * 64;

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

/// Rows cut into slices of their elements, which are the second axis.
fn sliced<T: Element>(rows: View<'_, T, 3>, slices: usize) -> Result<View<'_, T, 4>> {
    let [batches, count, k] = rows.shape();
    Ok(rows.reshape([batches, count, slices, k / slices])?.permute([0, 2, 1, 3]))
}

/// The element types of products with few tiles.
pub trait Split: Float {
    /// The tiles of few rows.
    #[doc(hidden)]
    const FEW: &'static [Tile] = &[];

    /// Launches the kernel of few rows with one of its tiles.
    #[doc(hidden)]
    fn few(
        _: impl LaunchOn,
        _: Factors<'_, Self>,
        _: usize,
        tile: Tile,
        _: ViewMut<'_, Self, 3>,
    ) -> Result<()> {
        unreachable!("no tile of {} rows for {}", tile.rows, Self::DTYPE)
    }

    /// Launches the kernels, with working memory for as many parts as it holds.
    #[doc(hidden)]
    fn split(
        on: impl LaunchOn,
        of: Factors<'_, Self>,
        act: usize,
        out: ViewMut<'_, Self, 3>,
        scratch: SliceMut<'_, f32>,
    ) -> Result<()>;
}

/// The steps of a turn for each element type, the slices and steps of narrow tiles, and the steps of each other tile of few rows.
macro_rules! steps {
    ($($T:ty: $K:literal $(, NARROW: $slices:literal x $narrow:literal, $($tile:ident: $steps:literal),*)?;)*) => {$(
        impl Split for $T {
            $(
                const FEW: &'static [Tile] = &[NARROW, $($tile),*];

                fn few(
                    on: impl LaunchOn,
                    of: Factors<'_, $T>,
                    act: usize,
                    tile: Tile,
                    out: ViewMut<'_, $T, 3>,
                ) -> Result<()> {
                    let (b, programs) = (of.b.permute([0, 2, 1]), tile.count(out.shape()));
                    match tile {
                        NARROW => {
                            matmul_narrow::<$T, $slices, { NARROW.rows }, { NARROW.cols }, $narrow>(
                                sliced(of.a, $slices)?, sliced(b, $slices)?, of.bias, of.residual, out, of.alpha, act as i32,
                            )
                            .grid(programs)
                            .launch(on)
                        }
                        $(
                            $tile => matmul_few::<$T, { $tile.rows }, { $tile.cols }, $steps>(
                                of.a, b, of.bias, of.residual, out, of.alpha, act as i32,
                            )
                            .grid(programs)
                            .launch(on),
                        )*
                        _ => unreachable!("a tile is one of those"),
                    }
                }
            )?

            fn split(
                on: impl LaunchOn,
                of: Factors<'_, $T>,
                act: usize,
                out: ViewMut<'_, $T, 3>,
                mut scratch: SliceMut<'_, f32>,
            ) -> Result<()> {
                let ((b, transposed), Factors { a, bias, residual, alpha, .. }) = (of.right(), of);
                let [batches, m, n] = out.shape();
                let count = scratch.len() / (batches * m * n);
                let share = a.shape()[2].div_ceil(count).div_ceil($K) as i32;
                let shape = [count, batches, m, n];
                let (grid, parts) = ((TILE.count(out.shape()), count), scratch.view_mut(shape)?);
                if transposed {
                    matmul_parts::<$T, true, { TILE.rows }, { TILE.cols }, $K>(a, b, parts, share)
                        .grid(grid)
                        .launch(on)?;
                } else {
                    matmul_parts::<$T, false, { TILE.rows }, { TILE.cols }, $K>(a, b, parts, share)
                        .grid(grid)
                        .launch(on)?;
                }
                let (parts, programs) = (scratch.slice(..).view(shape)?, SUMMED.count(out.shape()));
                sum_parts::<$T, { SUMMED.rows }, { SUMMED.cols }>(parts, bias, residual, out, alpha, act as i32)
                    .grid(programs)
                    .launch(on)
            }
        }
    )*};
}

steps! {
    f16: 64, NARROW: 4 x 128, FLAT: 128, LOW: 128;
    bf16: 64, NARROW: 4 x 128, FLAT: 128, LOW: 128;
    f32: 32;
}
