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

/// What a program of [`matmul_few`] makes of up to 16 rows where the other tiles are too few for the processors, of more columns, and
/// of up to 64 rows.
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
/// The most parts.
pub(crate) const MAX_PARTS: usize = 32;
/// How far behind the end of `k` a part may end: each is a whole number of steps of at most 64.
pub(crate) const BEHIND: usize = (MAX_PARTS + 1) * 64;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    /// What becomes of a tile of sums, before it is converted: scaled, a bias added, activated as one of [`crate::activation`], a matrix
    /// added. Where there is no bias or no matrix, they have no elements.
    #[fuse_fn]
    fn finish<T: Float, const M: usize, const N: usize>(
        sum: Tile<f32>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        alpha: f32,
        act: i32,
        batch: i32,
        row: i32,
        col: i32,
    ) -> Tile<f32> {
        let v = tl::fma(sum, alpha, bias.load::<1, N>(0, col).to::<f32>());
        let y = if act == 1 {
            tl::relu(v)
        } else if act == 2 {
            tl::gelu::<T>(v)
        } else if act == 4 {
            tl::silu::<T>(v)
        } else {
            v
        };
        if residual.shape(1) > 0 {
            y + tl::reshape(residual.load::<1, M, N>(batch, row, col), [M, N]).to::<f32>()
        } else {
            y
        }
    }

    /// The matrix of a batch, and the first row and column, of this program's tile, where the grid counts the tiles of one matrix after
    /// the other.
    #[fuse_fn]
    fn place<const M: usize, const N: usize>(rows: i32, cols: i32) -> (i32, i32, i32) {
        let across = tl::cdiv(cols, N);
        let tiles = tl::cdiv(rows, M) * across;
        let tile = tl::program_id(0) % tiles;
        (tl::program_id(0) / tiles, tile / across * M, tile % across * N)
    }

    /// A product of few rows: a program makes a tile of `M x N` elements in steps of `K`; the grid counts the tiles of one matrix after
    /// the other. The columns of the right factor are the rows of `b`, which has one matrix, or as many as `a`.
    #[fuse_kernel(configs = [
        { T: f16, M: 16, N: 16, K: 256, num_warps: 2, num_stages: 4 },
        { T: f16, M: 16, N: 32, K: 128, num_warps: 4, num_stages: 4 },
        { T: f16, M: 64, N: 64, K: 128, num_warps: 4, num_stages: 6 },
        { T: bf16, M: 16, N: 16, K: 256, num_warps: 2, num_stages: 4 },
        { T: bf16, M: 16, N: 32, K: 128, num_warps: 4, num_stages: 4 },
        { T: bf16, M: 64, N: 64, K: 128, num_warps: 4, num_stages: 6 },
    ])]
    pub fn matmul_few<T: Float, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) = place::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let right_batch = tl::minimum(batch, b.shape(0).to::<i32>() - 1);
        let mut sum = tl::zeros::<f32>([M, N]);
        for start in (0..a.shape(2)).step_by(K) {
            let left = tl::reshape(a.load::<1, M, K>(batch, row, start), [M, K]);
            let right = tl::reshape(b.load::<1, N, K>(right_batch, col, start), [N, K]);
            sum = tl::dot(left, tl::trans(right), sum);
        }
        let y = finish::<T, M, N>(sum, bias, residual, alpha, act, batch, row, col);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// A program leaves a tile of part `tl::program_id(1)` of the sums: that of `share` steps of `K`, which follow those of
    /// the part before.
    #[fuse_kernel(
        TB = [false, true], M = [64], N = [128], num_warps = 4,
        configs = [{ T: f16, K: 64 }, { T: bf16, K: 64 }, { T: f32, K: 32 }],
    )]
    pub fn matmul_parts<T: Float, const TB: bool, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        parts: &mut View<f32, 4>,
        share: i32,
    ) {
        let (batch, row, col) = place::<M, N>(parts.shape(2).to::<i32>(), parts.shape(3).to::<i32>());
        let right_batch = tl::minimum(batch, b.shape(0).to::<i32>() - 1);
        let part = tl::program_id(1);
        let first = part * share * K;
        let mut sum = tl::zeros::<f32>([M, N]);
        for start in (first..tl::minimum(first + share * K, a.shape(2).to::<i32>())).step_by(K) {
            let left = tl::reshape(a.load::<1, M, K>(batch, row, start), [M, K]);
            let right = if TB {
                tl::trans(tl::reshape(b.load::<1, N, K>(right_batch, col, start), [N, K]))
            } else {
                tl::reshape(b.load::<1, K, N>(right_batch, start, col), [K, N])
            };
            sum = tl::dot(left, right, sum);
        }
        parts.store(tl::reshape(sum, [1, 1, M, N]), part, batch, row, col);
    }

    /// Adds the parts, and does what follows a product.
    #[fuse_kernel(T = [f16, bf16, f32], M = [4], N = [256], num_warps = 4)]
    pub fn sum_parts<T: Float, const M: usize, const N: usize>(
        parts: &View<f32, 4>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) = place::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let mut sum = tl::zeros::<f32>([M, N]);
        for part in 0..parts.shape(0) {
            sum += tl::reshape(parts.load::<1, 1, M, N>(part, batch, row, col), [M, N]);
        }
        let y = finish::<T, M, N>(sum, bias, residual, alpha, act, batch, row, col);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }
}

pub use kernels::{matmul_few, matmul_parts, sum_parts};

/// Among how many programs the steps of a tile are shared: as many as there are processors for, and terms.
pub fn parts(out: [usize; 3], k: usize, processors: usize) -> usize {
    let room = processors / TILE.count(out).max(1);
    room.min(k / TERMS).clamp(1, MAX_PARTS)
}

/// The tile of few rows, of some that there are, for a product on a GPU.
pub(crate) fn few_rows(on: impl LaunchOn, out: [usize; 3], of: &[Tile]) -> Option<Tile> {
    on.shared_bytes()?;
    [NARROW, FLAT, LOW].into_iter().find(|tile| {
        let suits = match *tile {
            NARROW => FLAT.count(out) <= on.processors(),
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
    col == 1 && (row * bytes).is_multiple_of(16)
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

/// The steps of a turn for each element type, and of each tile of few rows.
macro_rules! steps {
    ($($T:ty: $K:literal $(, $($tile:ident: $steps:literal),*)?;)*) => {$(
        impl Split for $T {
            $(
                const FEW: &'static [Tile] = &[$($tile),*];

                fn few(
                    on: impl LaunchOn,
                    of: Factors<'_, $T>,
                    act: usize,
                    tile: Tile,
                    out: ViewMut<'_, $T, 3>,
                ) -> Result<()> {
                    let (b, programs) = (of.b.permute([0, 2, 1]), tile.count(out.shape()));
                    match tile {
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
    f16: 64, NARROW: 256, FLAT: 128, LOW: 128;
    bf16: 64, NARROW: 256, FLAT: 128, LOW: 128;
    f32: 32;
}
