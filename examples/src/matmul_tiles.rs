//! The kernels of [`crate::matmul`]: tiles of a product with what follows it; parts of sums, and a second kernel that adds them up;
//! copies of factors whose rows begin anywhere. [`crate::matmul_heuristic`] says which of them a product takes.

use dsl_runtime::prelude::*;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    /// The sums of the products from `first` to `end`, in steps of `K`, of `M` rows of `a` and `N` columns of `b`, which has one matrix,
    /// or as many as `a`.
    #[fuse_fn]
    fn product<T: Float, I: Element, const M: usize, const N: usize, const K: usize, const TF32: bool>(
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
            let right = tl::reshape(b.load::<1, K, N>(right_batch, start, col), [K, N]);
            sum = if TF32 {
                tl::dot(left, right, sum).input_precision("tf32")
            } else {
                tl::dot(left, right, sum)
            };
        }
        sum
    }

    /// Leaves a tile of part `tl::program_id(1)` of the sums: that of `share` steps of `K`, which follow those of the part before.
    #[fuse_fn]
    fn leave_part<T: Float, const M: usize, const N: usize, const K: usize, const TF32: bool>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        parts: &mut View<f32, 4>,
        share: i32,
    ) {
        let (batch, row, col) =
            place::<M, N>(tl::program_id(0), parts.shape(2).to::<i32>(), parts.shape(3).to::<i32>());
        let part = tl::program_id(1);
        let first = part * share * K;
        let end = tl::minimum(first + share * K, a.shape(2).to::<i32>());
        let sum = product::<T, i32, M, N, K, TF32>(a, b, batch, row, col, first, end);
        parts.store(tl::reshape(sum, [1, 1, M, N]), part, batch, row, col);
    }

    /// The activation of [`crate::activation`] with this number, or none.
    #[fuse_fn]
    fn activated<T: Float>(v: Tile<f32>, act: i32) -> Tile<f32> {
        if act == 1 {
            tl::relu(v)
        } else if act == 2 {
            tl::gelu::<T>(v)
        } else if act == 4 {
            tl::silu::<T>(v)
        } else {
            v
        }
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
        // Most products have no bias.
        let v = if bias.shape(1) > 0 {
            tl::fma(sum, alpha, bias.load::<1, N>(0, col).to::<f32>())
        } else {
            sum * alpha
        };
        let y = activated::<T>(v, act);
        if residual.shape(1) > 0 {
            y + tl::reshape(residual.load::<1, M, N>(batch, row, col), [M, N]).to::<f32>()
        } else {
            y
        }
    }

    /// The matrix of a batch, and the first row and column, of the tile with this number, where the tiles of one matrix follow those of
    /// the one before.
    #[fuse_fn]
    fn place<const M: usize, const N: usize>(number: i32, rows: i32, cols: i32) -> (i32, i32, i32) {
        let across = tl::cdiv(cols, N);
        let tiles = tl::cdiv(rows, M) * across;
        let tile = number % tiles;
        (number / tiles, tile / across * M, tile % across * N)
    }

    /// The same, where tiles follow each other in bands of sixteen rows of them: those that are made at once share what they read.
    #[fuse_fn]
    fn place_in_bands<const M: usize, const N: usize>(rows: i32, cols: i32) -> (i32, i32, i32) {
        let (down, across) = (tl::cdiv(rows, M), tl::cdiv(cols, N));
        let tile = tl::program_id(0) % (down * across);
        let (tile_row, tile_col) = tl::swizzle2d(0, tile, down, across, 16);
        (tl::program_id(0) / (down * across), tile_row * M, tile_col * N)
    }

    /// A program makes a tile of `M x N` elements in steps of `K`; the grid counts the tiles of one matrix after the other. `b` has one
    /// matrix, or as many as `a`. Where there is no bias, it has no elements. Threads have no registers for a residual, and an activation
    /// that is chosen at launch would take a tenth of the time of a product of few terms.
    #[fuse_kernel(T = [f16, bf16], ACT = [0, 1, 2, 4], M = [128], N = [192, 256], K = [64])]
    pub fn matmul<T: Float, const ACT: usize, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        out: &mut View<T, 3>,
        alpha: f32,
    ) {
        let (batch, row, col) = place_in_bands::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let sum = product::<T, i64, M, N, K, false>(a, b, batch, row, col, 0, a.shape(2));
        // A branch, because 128 x 256 elements leave no registers for multiplications with the additions.
        let sum = if alpha == 1.0 { sum } else { sum * alpha };
        // Most products have no bias; there is no branch where it takes registers that a second block needs.
        let v = if N < 256 || bias.shape(1) > 0 { sum + bias.load::<1, N>(0, col).to::<f32>() } else { sum };
        let y = activated::<T>(v, ACT as i32);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// As [`matmul()`], by smaller tiles, whose threads have registers for any activation and a residual, which may have no elements.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { M: 128, N: 128, K: 64 },
            { M: 64, N: 128, K: 64 },
            { M: 64, N: 64, K: 128 },
            { M: 64, N: 64, K: 64 },
            { M: 64, N: 32, K: 128 },
            { M: 16, N: 32, K: 128, num_warps: 4, num_stages: 4 },
        ],
    )]
    pub fn matmul_small<T: Float, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) = place_in_bands::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let sum = product::<T, i64, M, N, K, false>(a, b, batch, row, col, 0, a.shape(2));
        let y = finish::<T, M, N>(sum, bias, residual, alpha, act, batch, row, col);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// As [`matmul_small()`], of few rows and columns: each of `P` warps makes all of a tile from a slice of the terms, so that it reads rows of
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
        let (batch, row, col) =
            place::<M, N>(tl::program_id(0), out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
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
    #[fuse_kernel(configs = [
        { T: f16, M: 128, N: 192, K: 64 }, { T: bf16, M: 128, N: 192, K: 64 },
        { T: f16, M: 128, N: 128, K: 64 }, { T: bf16, M: 128, N: 128, K: 64 },
        { T: f16, M: 64, N: 128, K: 64 }, { T: bf16, M: 64, N: 128, K: 64 },
        { T: f16, M: 64, N: 64, K: 128 }, { T: bf16, M: 64, N: 64, K: 128 },
        { T: f32, M: 64, N: 64, K: 16, num_warps: 4 }, { T: f32, M: 32, N: 32, K: 16, num_warps: 2 },
    ])]
    pub fn matmul_parts<T: Float, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        parts: &mut View<f32, 4>,
        share: i32,
    ) {
        leave_part::<T, M, N, K, false>(a, b, parts, share);
    }

    /// A tile of a product of `f32`, as [`matmul_small()`] makes it. The largest have no registers for an activation and a residual.
    #[fuse_fn]
    fn product_of_f32<
        const M: usize,
        const N: usize,
        const K: usize,
        const TF32: bool,
        const FINISHES: bool,
    >(
        a: &View<f32, 3>,
        b: &View<f32, 3>,
        bias: &View<f32, 2>,
        residual: &View<f32, 3>,
        out: &mut View<f32, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) = place_in_bands::<M, N>(out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let sum = product::<f32, i64, M, N, K, TF32>(a, b, batch, row, col, 0, a.shape(2));
        let y = if FINISHES {
            finish::<f32, M, N>(sum, bias, residual, alpha, act, batch, row, col)
        } else {
            // Branches, because so many elements leave no registers for multiplications with the additions; none where a branch
            // takes registers that a second block needs.
            let scaled = if alpha == 1.0 { sum } else { sum * alpha };
            if !TF32 || bias.shape(1) > 0 { scaled + bias.load::<1, N>(0, col) } else { scaled }
        };
        out.store(tl::reshape(y, [1, M, N]), batch, row, col);
    }

    /// As [`matmul_small()`], of `f32`: each product is rounded once.
    #[fuse_kernel(configs = [
        { M: 128, N: 128, K: 16, FINISHES: false },
        { M: 64, N: 128, K: 16, FINISHES: true, num_warps: 4 },
        { M: 64, N: 64, K: 16, FINISHES: true, num_warps: 4 },
        { M: 32, N: 32, K: 16, FINISHES: true, num_warps: 2 },
    ])]
    pub fn matmul_f32<const M: usize, const N: usize, const K: usize, const FINISHES: bool>(
        a: &View<f32, 3>,
        b: &View<f32, 3>,
        bias: &View<f32, 2>,
        residual: &View<f32, 3>,
        out: &mut View<f32, 3>,
        alpha: f32,
        act: i32,
    ) {
        product_of_f32::<M, N, K, false, FINISHES>(a, b, bias, residual, out, alpha, act);
    }

    /// The same of factors that are rounded to TF32.
    #[fuse_kernel(configs = [
        { M: 128, N: 256, K: 32, FINISHES: false },
        { M: 128, N: 128, K: 32, FINISHES: true },
        { M: 64, N: 128, K: 32, FINISHES: true },
        { M: 64, N: 64, K: 64, FINISHES: true },
        { M: 64, N: 64, K: 32, FINISHES: true },
    ])]
    pub fn matmul_tf32<const M: usize, const N: usize, const K: usize, const FINISHES: bool>(
        a: &View<f32, 3>,
        b: &View<f32, 3>,
        bias: &View<f32, 2>,
        residual: &View<f32, 3>,
        out: &mut View<f32, 3>,
        alpha: f32,
        act: i32,
    ) {
        product_of_f32::<M, N, K, true, FINISHES>(a, b, bias, residual, out, alpha, act);
    }

    /// As [`matmul_parts()`], of `f32` in TF32.
    #[fuse_kernel(configs = [{ M: 64, N: 128, K: 32 }, { M: 64, N: 64, K: 64 }])]
    pub fn matmul_tf32_parts<const M: usize, const N: usize, const K: usize>(
        a: &View<f32, 3>,
        b: &View<f32, 3>,
        parts: &mut View<f32, 4>,
        share: i32,
    ) {
        leave_part::<f32, M, N, K, true>(a, b, parts, share);
    }

    /// Adds the parts, and does what follows a product.
    #[fuse_kernel(T = [f16, bf16, f32], configs = [{ M: 1, N: 256 }, { M: 4, N: 256 }, { M: 16, N: 32 }], num_warps = 4)]
    pub fn sum_parts<T: Float, const M: usize, const N: usize>(
        parts: &View<f32, 4>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
    ) {
        let (batch, row, col) =
            place::<M, N>(tl::program_id(0), out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        let mut sum = tl::zeros::<f32>([M, N]);
        for part in 0..parts.shape(0) {
            sum += tl::reshape(parts.load::<1, 1, M, N>(part, batch, row, col), [M, N]);
        }
        let y = finish::<T, M, N>(sum, bias, residual, alpha, act, batch, row, col);
        out.store(tl::reshape(y.to::<T>(), [1, M, N]), batch, row, col);
    }

    /// Copies `M x N` elements of each matrix to where rows begin at cache lines.
    #[fuse_kernel(
        T = [f16, bf16, f32, i8, f8e4m3], configs = [{ M: 8, N: 256 }, { M: 8, N: 1024 }, { M: 64, N: 32 }],
        num_warps = 4,
    )]
    pub fn align_rows<T: Element, const M: usize, const N: usize>(x: &View<T, 3>, out: &mut View<T, 3>) {
        let (batch, row, col) =
            place::<M, N>(tl::program_id(0), out.shape(1).to::<i32>(), out.shape(2).to::<i32>());
        out.store(x.load::<1, M, N>(batch, row, col), batch, row, col);
    }

    /// Copies `M x N` elements of each matrix to its transpose, whose rows begin at cache lines.
    #[fuse_kernel(T = [f32, i8, f8e4m3], M = [64], N = [64], num_warps = 4)]
    pub fn transpose_rows<T: Element, const M: usize, const N: usize>(x: &View<T, 3>, out: &mut View<T, 3>) {
        let (batch, row, col) =
            place::<M, N>(tl::program_id(0), x.shape(1).to::<i32>(), x.shape(2).to::<i32>());
        out.store(tl::permute(x.load::<1, M, N>(batch, row, col), [0, 2, 1]), batch, col, row);
    }

    /// The same as [`align_rows()`] of two, those of `x` by the first programs.
    #[fuse_kernel(
        T = [f16, bf16, f32, i8, f8e4m3], configs = [{ M: 8, N: 256 }, { M: 8, N: 1024 }, { M: 64, N: 32 }],
        num_warps = 4,
    )]
    pub fn align_both<T: Element, const M: usize, const N: usize>(
        x: &View<T, 3>,
        x_out: &mut View<T, 3>,
        y: &View<T, 3>,
        y_out: &mut View<T, 3>,
    ) {
        let (batches, rows, cols) = (x.shape(0).to::<i32>(), x.shape(1).to::<i32>(), x.shape(2).to::<i32>());
        let first = batches * tl::cdiv(rows, M) * tl::cdiv(cols, N);
        if tl::program_id(0) < first {
            let (batch, row, col) = place::<M, N>(tl::program_id(0), rows, cols);
            x_out.store(x.load::<1, M, N>(batch, row, col), batch, row, col);
        } else {
            let number = tl::program_id(0) - first;
            let (batch, row, col) = place::<M, N>(number, y.shape(1).to::<i32>(), y.shape(2).to::<i32>());
            y_out.store(y.load::<1, M, N>(batch, row, col), batch, row, col);
        }
    }
}

pub use kernels::{
    align_both, align_rows, matmul, matmul_f32, matmul_narrow, matmul_parts, matmul_small, matmul_tf32,
    matmul_tf32_parts, sum_parts, transpose_rows,
};
