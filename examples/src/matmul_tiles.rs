//! The kernels of [`crate::matmul`] and [`crate::split_matmul`]: tiles of a product with what follows it, and parts of sums, which
//! a second kernel adds up.

use dsl_runtime::prelude::*;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    /// The sums of the products from `first` to `end`, in steps of `K`, of `M` rows of `a` and `N` columns of `b`, which are the rows of
    /// what is handed over with `TB`; `b` has one matrix, or as many as `a`.
    #[fuse_fn]
    fn product<T: Float, I: Element, const TB: bool, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        batch: i32,
        row: i32,
        col: i32,
        first: I,
        end: I,
    ) -> Tile<f32> {
        let right_batch = tl::minimum(batch, b.shape(0).to::<i32>() - 1);
        let mut sum = tl::zeros::<f32>([M, N]);
        for start in (first..end).step_by(K) {
            let left = tl::reshape(a.load::<1, M, K>(batch, row, start), [M, K]);
            let right = if TB {
                tl::trans(tl::reshape(b.load::<1, N, K>(right_batch, col, start), [N, K]))
            } else {
                tl::reshape(b.load::<1, K, N>(right_batch, start, col), [K, N])
            };
            sum = tl::dot(left, right, sum);
        }
        sum
    }

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

    /// A program makes a tile of `M x N` elements in steps of `K`; the grid counts the tiles of one matrix after the other.
    /// With `TB` the columns of `b` are the rows of what is handed over. `b` has one matrix, or as many as `a`. Where there
    /// is no bias or no residual, they have no elements; with `ADD` there may be a residual: the largest tiles have no
    /// registers for it.
    #[fuse_kernel(
        ACT = [0, 1, 2, 4], TB = [false, true],
        configs = [
            { T: f16, M: 128, N: 256, K: 64, ADD: false }, { T: bf16, M: 128, N: 256, K: 64, ADD: false },
            { T: f16, M: 128, N: 128, K: 64, ADD: true }, { T: bf16, M: 128, N: 128, K: 64, ADD: true },
            { T: f16, M: 64, N: 128, K: 64, ADD: false }, { T: bf16, M: 64, N: 128, K: 64, ADD: false },
            { T: f32, M: 128, N: 128, K: 32, ADD: true }, { T: f32, M: 64, N: 128, K: 32, ADD: true },
        ],
    )]
    pub fn matmul<
        T: Float,
        const ACT: usize,
        const TB: bool,
        const M: usize,
        const N: usize,
        const K: usize,
        const ADD: bool,
    >(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
    ) {
        let down = tl::cdiv(out.shape(1).to::<i32>(), M);
        let across = tl::cdiv(out.shape(2).to::<i32>(), N);
        let batch = tl::program_id(0) / (down * across);
        let tile = tl::program_id(0) % (down * across);
        let (tile_row, tile_col) = tl::swizzle2d(0, tile, down, across, 16);
        let (row, col) = (tile_row * M, tile_col * N);
        let sum = product::<T, i64, TB, M, N, K>(a, b, batch, row, col, 0, a.shape(2));
        // A branch, because 128 x 256 elements leave no registers for multiplications with the additions.
        let sum = if alpha == 1.0 { sum } else { sum * alpha };
        // Most products have no bias; there is no branch where it takes registers that a second block needs.
        let always = N < 256 && (M > 64 || ACT > 1);
        let v = if always || bias.shape(1) > 0 { sum + bias.load::<1, N>(0, col).to::<f32>() } else { sum };
        let y = if ACT == 1 {
            tl::relu(v)
        } else if ACT == 2 {
            tl::gelu::<T>(v)
        } else if ACT == 4 {
            tl::silu::<T>(v)
        } else {
            v
        };
        let y = if ADD {
            if residual.shape(1) > 0 {
                y + tl::reshape(residual.load::<1, M, N>(batch, row, col), [M, N]).to::<f32>()
            } else {
                y
            }
        } else {
            y
        };
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// A product of few rows: a program makes a tile of `M x N` elements in steps of `K`; the grid counts the tiles of one matrix after
    /// the other. The columns of the right factor are the rows of `b`.
    #[fuse_kernel(configs = [
        { T: f16, M: 16, N: 32, K: 128, num_warps: 4, num_stages: 4 },
        { T: f16, M: 64, N: 64, K: 128, num_warps: 4, num_stages: 6 },
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
        let sum = product::<T, i64, true, M, N, K>(a, b, batch, row, col, 0, a.shape(2));
        let y = finish::<T, M, N>(sum, bias, residual, alpha, act, batch, row, col);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// As [`matmul_few()`], of fewer columns: each of `P` warps makes all of a tile from a slice of the terms, so that it reads rows of
    /// the left factor for all columns at once. The slices are the second axis of `a` and `b`.
    #[fuse_kernel(T = [f16, bf16], P = [4], M = [16], N = [16], K = [128], num_warps = P, num_stages = 3)]
    pub fn matmul_narrow<T: Float, const P: usize, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 4>,
        b: &View<T, 4>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) = place::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let right_batch = tl::minimum(batch, b.shape(0).to::<i32>() - 1);
        let mut sums = tl::zeros::<f32>([P, M, N]);
        for start in (0..a.shape(3)).step_by(K) {
            let left = tl::reshape(a.load::<1, P, M, K>(batch, 0, row, start), [P, M, K]);
            let right = tl::reshape(b.load::<1, P, N, K>(right_batch, 0, col, start), [P, N, K]);
            sums = tl::dot(left, tl::permute(right, [0, 2, 1]), sums);
        }
        let y = finish::<T, M, N>(tl::sum(sums, 0), bias, residual, alpha, act, batch, row, col);
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
        let part = tl::program_id(1);
        let first = part * share * K;
        let end = tl::minimum(first + share * K, a.shape(2).to::<i32>());
        let sum = product::<T, i32, TB, M, N, K>(a, b, batch, row, col, first, end);
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

pub use kernels::{matmul, matmul_few, matmul_narrow, matmul_parts, sum_parts};
