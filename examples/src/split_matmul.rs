//! Products with few tiles and many steps: the steps along `k` are shared among programs, which leave parts of the sums
//! in working memory, and a second kernel adds the parts and does what follows a product. See [`crate::matmul`] for
//! what is computed, and [`Matmul::launch_split`](crate::matmul::Matmul::launch_split) for the call.
//!
//! **Work.** That of the product, and `8 * m * n` bytes of working memory for each part, written and read once. The
//! number of parts follows from the extents and the number of processors alone, and they are added in one order: the
//! same result to the bit, run after run.
//!
//! **Rounding.** That of [`crate::matmul`]: parts have fewer terms each, and there are fewer parts than terms of one.
//!
//! **Source.** Parts of sums in parallel: Osama and others, *Stream-K*, 2023, arXiv:2301.03598, section 3.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::matmul::{Factors, Tile};

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
    let across = tl::cdiv(parts.shape(3).to::<i32>(), N);
    let tiles = tl::cdiv(parts.shape(2).to::<i32>(), M) * across;
    let batch = tl::program_id(0) / tiles;
    let right_batch = tl::minimum(batch, b.shape(0).to::<i32>() - 1);
    let row = tl::program_id(0) % tiles / across * M;
    let col = tl::program_id(0) % tiles % across * N;
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
#[fuse_kernel(T = [f16, bf16, f32], ACT = [0, 1, 2, 4], M = [4], N = [256], num_warps = 4)]
pub fn sum_parts<T: Float, const ACT: usize, const M: usize, const N: usize>(
    parts: &View<f32, 4>,
    bias: &View<T, 2>,
    residual: &View<T, 3>,
    out: &mut View<T, 3>,
    alpha: f32,
) {
    let across = tl::cdiv(out.shape(2).to::<i32>(), N);
    let tiles = tl::cdiv(out.shape(1).to::<i32>(), M) * across;
    let batch = tl::program_id(0) / tiles;
    let row = tl::program_id(0) % tiles / across * M;
    let col = tl::program_id(0) % tiles % across * N;
    let mut sum = tl::zeros::<f32>([M, N]);
    for part in 0..parts.shape(0) {
        sum += tl::reshape(parts.load::<1, 1, M, N>(part, batch, row, col), [M, N]);
    }
    let v = tl::fma(sum, alpha, bias.load::<1, N>(0, col).to::<f32>());
    let y = if ACT == 1 {
        tl::relu(v)
    } else if ACT == 2 {
        tl::gelu::<T>(v)
    } else if ACT == 4 {
        tl::silu::<T>(v)
    } else {
        v
    };
    let y = if residual.shape(1) > 0 {
        y + tl::reshape(residual.load::<1, M, N>(batch, row, col), [M, N]).to::<f32>()
    } else {
        y
    };
    out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
}

/// Among how many programs the steps of a tile are shared: as many as there are processors for, and terms.
pub fn parts(out: [usize; 3], k: usize, processors: usize) -> usize {
    let room = processors / TILE.count(out).max(1);
    room.min(k / TERMS).clamp(1, MAX_PARTS)
}

/// The length of the working memory for all parts: 0 where nothing is shared.
pub(crate) fn scratch_len(out: [usize; 3], k: usize, processors: usize) -> usize {
    match parts(out, k, processors) {
        1 => 0,
        parts => parts * out.iter().product::<usize>(),
    }
}

/// The element types of products whose steps can be shared, with the activation `ACT`.
pub trait Split<const ACT: usize>: Float {
    /// Launches the kernels, with working memory for as many parts as it holds.
    #[doc(hidden)]
    fn split(
        on: impl LaunchOn,
        of: Factors<'_, Self>,
        out: ViewMut<'_, Self, 3>,
        scratch: SliceMut<'_, f32>,
    ) -> Result<()>;
}

/// The steps of a turn for each element type.
macro_rules! steps {
    ($($T:ty: $K:literal;)*) => {$(
        impl<const ACT: usize> Split<ACT> for $T
        where
            sum_parts::Choice<$T, ACT, { SUMMED.rows }, { SUMMED.cols }>: sum_parts::Declared,
        {
            fn split(
                on: impl LaunchOn,
                of: Factors<'_, $T>,
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
                sum_parts::<$T, ACT, { SUMMED.rows }, { SUMMED.cols }>(parts, bias, residual, out, alpha)
                    .grid(programs)
                    .launch(on)
            }
        }
    )*};
}

steps! {
    f16: 64;
    bf16: 64;
    f32: 32;
}
