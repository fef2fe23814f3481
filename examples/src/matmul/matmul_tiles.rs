//! The kernels of [`crate::matmul`]: tiles with an epilogue; split-K with a second kernel that reduces partial sums; copies of
//! unaligned operands. [`crate::matmul_heuristic`] chooses among them.

use dsl_runtime::prelude::*;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate_in_epilogue};
    use crate::epilogues::{add_residual, bias_activation};
    use crate::float::{LibraryElement, LibraryFloat};
    use crate::mainloop::matmul_mainloop;
    use crate::matmul_block::{Block, TileShape};

    /// The accumulator of `M` rows of `a` and `N` columns of `b`, over K from `k_begin` to `k_end` in steps of `K`; `b` has one matrix,
    /// or as many as `a`.
    #[fuse_fn]
    fn accumulate<T: Float, I: Element, const M: usize, const N: usize, const K: usize, const TF32: bool>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        batch: i32,
        row: i32,
        col: i32,
        k_begin: I,
        k_end: I,
    ) -> Tile<f32> {
        let b_batch = tl::minimum(batch, b.shape::<i32>(0) - 1);
        matmul_mainloop::<T, I, M, N, K, TF32>(a.at(batch), b.at(b_batch), row, col, k_begin, k_end)
    }

    /// The epilogue of an accumulator, before its conversion: scale, bias, activation, residual. Without a bias or a residual, they have no
    /// elements.
    #[fuse_fn]
    fn epilogue<T: Float, const M: usize, const N: usize>(
        acc: Tile<f32>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        alpha: f32,
        act: i32,
        batch: i32,
        row: i32,
        col: i32,
    ) -> Tile<f32> {
        let y = bias_activation::<T, N>(acc, bias, alpha, act, col);
        add_residual::<T, M, N>(y, residual.at(batch), row, col)
    }

    /// The matrix of a batch, and the first row and column, of the tile with this index, in row-major order of tiles within a matrix.
    #[fuse_fn]
    fn tile_offsets<const M: usize, const N: usize>(index: i32, rows: i32, cols: i32) -> (i32, i32, i32) {
        let grid_n = tl::cdiv(cols, N);
        let tiles = tl::cdiv(rows, M) * grid_n;
        let tile = index % tiles;
        (index / tiles, tile / grid_n * M, tile % grid_n * N)
    }

    /// The same with tiles swizzled in groups of sixteen rows of them: concurrent tiles share reads in the cache.
    #[fuse_fn]
    fn swizzled_tile_offsets<const M: usize, const N: usize>(rows: i32, cols: i32) -> (i32, i32, i32) {
        let (grid_m, grid_n) = (tl::cdiv(rows, M), tl::cdiv(cols, N));
        let tile = tl::program_id(0) % (grid_m * grid_n);
        let (tile_row, tile_col) = tl::swizzle2d(0, tile, grid_m, grid_n, 16);
        (tl::program_id(0) / (grid_m * grid_n), tile_row * M, tile_col * N)
    }

    /// A program computes a tile of `M x N` elements in steps of `K`; the grid counts the tiles of one matrix after the other. `b` has
    /// one matrix, or as many as `a`. Without a bias, it has no elements. Threads have no registers for a residual, and an activation
    /// chosen at launch would take a tenth of the time of a matmul of few terms.
    #[fuse_kernel(
        T = [f16, bf16],
        activation = [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu],
        M = [128], N = [192, 256], K = [64],
        when = block == Block::new(M, N, K),
    )]
    pub fn matmul<T: LibraryFloat, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        out: &mut View<T, 3>,
        activation: Activation,
        alpha: f32,
        #[host] block: Block,
    ) {
        let (batch, row, col) = swizzled_tile_offsets::<M, N>(out.shape::<i32>(1), out.shape::<i32>(2));
        let acc = accumulate::<T, i64, M, N, K, false>(a, b, batch, row, col, 0, a.shape(2));
        // A branch, because 128 x 256 elements leave no registers for multiplications with the additions.
        let acc = if alpha == 1.0 { acc } else { acc * alpha };
        // Most matmuls have no bias; there is no branch where it takes registers that a second block needs.
        let v = if N < 256 || bias.shape(1) > 0 { acc + bias.load::<1, N>(0, col).to::<f32>() } else { acc };
        let y = activate_in_epilogue::<T>(v, activation);
        out.at(batch).store(y.to::<T>(), row, col);
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
        when = block == Block::new(M, N, K),
    )]
    pub fn matmul_small<T: LibraryFloat, const M: usize, const N: usize, const K: usize>(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
        #[host] block: Block,
    ) {
        let (batch, row, col) = swizzled_tile_offsets::<M, N>(out.shape::<i32>(1), out.shape::<i32>(2));
        let acc = accumulate::<T, i64, M, N, K, false>(a, b, batch, row, col, 0, a.shape(2));
        let y = epilogue::<T, M, N>(acc, bias, residual, alpha, act, batch, row, col);
        out.at(batch).store(y.to::<T>(), row, col);
    }

    /// As [`matmul_small()`], of a single row (GEMV): a program computes `N` elements in steps of `K`, with `weight` as `[n, k]`, K-major. The time is
    /// that of reading it. Products are added element by element and reduced once behind the loop; `mma` tiles would be empty but for a row.
    /// All programs read `a`, which the first-level cache serves.
    #[fuse_kernel(
        T = [f16, bf16], configs = [{ N: 8, K: 512 }, { N: 2, K: 1024 }], num_warps = 4,
        when = block == Block::new(1, N, K),
    )]
    pub fn gemv<T: LibraryFloat, const N: usize, const K: usize>(
        a: &View<T, 2>,
        weight: &View<T, 2>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
        #[host] block: Block,
    ) {
        let col = tl::program_id(0) * N;
        let mut acc = tl::zeros::<f32>([N, K]);
        for start in (0..a.shape(1)).step_by(K) {
            acc += weight.load::<N, K>(col, start).to::<f32>() * a.load::<1, K>(0, start).to::<f32>();
        }
        let y = epilogue::<T, 1, N>(tl::sum(acc, 1).row(), bias, residual, alpha, act, 0, 0, col);
        out.at(0).store(y.to::<T>(), 0, col);
    }

    /// As [`matmul_small()`], of few rows and columns: the `WARPS` warps split K, each computes a whole tile from its slice, so that it
    /// reads rows of operand A for all columns at once. The slices are the second axis of `a` and `b`.
    #[fuse_kernel(
        T = [f16, bf16], WARPS = [4], M = [16], N = [16], K = [128], num_warps = WARPS, num_stages = 3,
        when = WARPS == slices && block == Block::new(M, N, K),
    )]
    pub fn matmul_warp_split_k<
        T: LibraryFloat,
        const WARPS: usize,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        a: &View<T, 4>,
        b: &View<T, 4>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
        #[host] block: Block,
        #[host] slices: usize,
    ) {
        let (batch, row, col) =
            tile_offsets::<M, N>(tl::program_id(0), out.shape::<i32>(1), out.shape::<i32>(2));
        let b_batch = tl::minimum(batch, b.shape::<i32>(0) - 1);
        let mut warp_accs = tl::zeros::<f32>([WARPS, M, N]);
        for start in (0..a.shape(3)).step_by(K) {
            let a_tile = a.at(batch).load::<WARPS, M, K>(0, row, start);
            let b_tile = b.at(b_batch).load::<WARPS, N, K>(0, col, start);
            warp_accs = tl::dot(a_tile, tl::permute(b_tile, [0, 2, 1]), warp_accs);
        }
        let y = epilogue::<T, M, N>(tl::sum(warp_accs, 0), bias, residual, alpha, act, batch, row, col);
        out.at(batch).store(y.to::<T>(), row, col);
    }

    /// A program stores the partial sums of a tile for split `tl::program_id(1)` of K: `k_steps` steps of `K`. `f32` operands are rounded
    /// to TF32 with `TF32`.
    #[fuse_kernel(
        configs = [
            { T: f16, M: 128, N: 192, K: 64, TF32: false }, { T: bf16, M: 128, N: 192, K: 64, TF32: false },
            { T: f16, M: 128, N: 128, K: 64, TF32: false }, { T: bf16, M: 128, N: 128, K: 64, TF32: false },
            { T: f16, M: 64, N: 128, K: 64, TF32: false }, { T: bf16, M: 64, N: 128, K: 64, TF32: false },
            { T: f16, M: 64, N: 64, K: 128, TF32: false }, { T: bf16, M: 64, N: 64, K: 128, TF32: false },
            { T: f32, M: 64, N: 64, K: 16, TF32: false, num_warps: 4 },
            { T: f32, M: 32, N: 32, K: 16, TF32: false, num_warps: 2 },
            { T: f32, M: 64, N: 128, K: 32, TF32: true }, { T: f32, M: 64, N: 64, K: 64, TF32: true },
        ],
        when = TF32 == tf32 && block == Block::new(M, N, K),
    )]
    pub fn matmul_split_k<
        T: LibraryFloat,
        const M: usize,
        const N: usize,
        const K: usize,
        const TF32: bool,
    >(
        a: &View<T, 3>,
        b: &View<T, 3>,
        partials: &mut View<f32, 4>,
        k_steps: i32,
        #[host] block: Block,
        #[host] tf32: bool,
    ) {
        let (batch, row, col) =
            tile_offsets::<M, N>(tl::program_id(0), partials.shape::<i32>(2), partials.shape::<i32>(3));
        let split = tl::program_id(1);
        let k_begin = split * k_steps * K;
        let k_end = tl::minimum(k_begin + k_steps * K, a.shape::<i32>(2));
        let acc = accumulate::<T, i32, M, N, K, TF32>(a, b, batch, row, col, k_begin, k_end);
        partials.at(split).at(batch).store(acc, row, col);
    }

    /// As [`matmul_small()`], of `f32`: each product of elements is rounded once, of operands that are rounded to TF32 with `TF32`. The
    /// largest tiles have no registers for an activation and a residual.
    #[fuse_kernel(
        T = [f32],
        configs = [
            { M: 128, N: 128, K: 16, TF32: false, HAS_EPILOGUE: false },
            { M: 64, N: 128, K: 16, TF32: false, HAS_EPILOGUE: true, num_warps: 4 },
            { M: 64, N: 64, K: 16, TF32: false, HAS_EPILOGUE: true, num_warps: 4 },
            { M: 32, N: 32, K: 16, TF32: false, HAS_EPILOGUE: true, num_warps: 2 },
            { M: 128, N: 256, K: 32, TF32: true, HAS_EPILOGUE: false },
            { M: 128, N: 128, K: 32, TF32: true, HAS_EPILOGUE: true },
            { M: 64, N: 128, K: 32, TF32: true, HAS_EPILOGUE: true },
            { M: 64, N: 64, K: 64, TF32: true, HAS_EPILOGUE: true },
            { M: 64, N: 64, K: 32, TF32: true, HAS_EPILOGUE: true },
        ],
        when = TF32 == tf32 && block == Block::new(M, N, K)
            && (HAS_EPILOGUE || act == 0 && residual.shape()[1] == 0),
    )]
    pub fn matmul_f32<
        T: LibraryFloat,
        const M: usize,
        const N: usize,
        const K: usize,
        const TF32: bool,
        const HAS_EPILOGUE: bool,
    >(
        a: &View<T, 3>,
        b: &View<T, 3>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
        #[host] block: Block,
        #[host] tf32: bool,
    ) {
        let (batch, row, col) = swizzled_tile_offsets::<M, N>(out.shape::<i32>(1), out.shape::<i32>(2));
        let acc = accumulate::<T, i64, M, N, K, TF32>(a, b, batch, row, col, 0, a.shape(2));
        let y = if HAS_EPILOGUE {
            epilogue::<T, M, N>(acc, bias, residual, alpha, act, batch, row, col)
        } else {
            // A branch, because so many elements leave no registers for multiplications with the additions; none for the bias, which
            // would take registers that a second block needs.
            let scaled = if alpha == 1.0 { acc } else { acc * alpha };
            scaled + bias.load::<1, N>(0, col).to::<f32>()
        };
        out.at(batch).store(y.to::<T>(), row, col);
    }

    /// Reduces the partial sums, and runs the epilogue.
    #[fuse_kernel(
        T = [f16, bf16, f32], configs = [{ M: 1, N: 256 }, { M: 4, N: 256 }, { M: 16, N: 32 }], num_warps = 4,
        when = tile == TileShape::new(M, N),
    )]
    pub fn reduce_split_k<T: LibraryFloat, const M: usize, const N: usize>(
        partials: &View<f32, 4>,
        bias: &View<T, 2>,
        residual: &View<T, 3>,
        out: &mut View<T, 3>,
        alpha: f32,
        act: i32,
        #[host] tile: TileShape,
    ) {
        let (batch, row, col) =
            tile_offsets::<M, N>(tl::program_id(0), out.shape::<i32>(1), out.shape::<i32>(2));
        let mut acc = tl::zeros::<f32>([M, N]);
        for split in 0..partials.shape(0) {
            acc += partials.at(split).at(batch).load::<M, N>(row, col);
        }
        let y = epilogue::<T, M, N>(acc, bias, residual, alpha, act, batch, row, col);
        out.at(batch).store(y.to::<T>(), row, col);
    }

    /// Copies `M x N` elements of each matrix to where rows begin at cache lines.
    #[fuse_kernel(
        T = [f16, bf16, f32, i8, f8e4m3], configs = [{ M: 8, N: 256 }, { M: 8, N: 1024 }, { M: 64, N: 32 }],
        num_warps = 4, when = tile == TileShape::new(M, N),
    )]
    pub fn align_rows<T: LibraryElement, const M: usize, const N: usize>(
        x: &View<T, 3>,
        out: &mut View<T, 3>,
        #[host] tile: TileShape,
    ) {
        let (batch, row, col) =
            tile_offsets::<M, N>(tl::program_id(0), out.shape::<i32>(1), out.shape::<i32>(2));
        out.store(x.load::<1, M, N>(batch, row, col), batch, row, col);
    }

    /// Copies `M x N` elements of each matrix to its transpose, whose rows begin at cache lines.
    #[fuse_kernel(T = [f32, i8, f8e4m3], M = [64], N = [64], num_warps = 4, when = tile == TileShape::new(M, N))]
    pub fn transpose_rows<T: LibraryElement, const M: usize, const N: usize>(
        x: &View<T, 3>,
        out: &mut View<T, 3>,
        #[host] tile: TileShape,
    ) {
        let (batch, row, col) = tile_offsets::<M, N>(tl::program_id(0), x.shape::<i32>(1), x.shape::<i32>(2));
        out.store(tl::permute(x.load::<1, M, N>(batch, row, col), [0, 2, 1]), batch, col, row);
    }

    /// The same as [`align_rows()`] of two, those of `x` by the first programs.
    #[fuse_kernel(
        T = [f16, bf16, f32, i8, f8e4m3], configs = [{ M: 8, N: 256 }, { M: 8, N: 1024 }, { M: 64, N: 32 }],
        num_warps = 4, when = tile == TileShape::new(M, N),
    )]
    pub fn align_both<T: LibraryElement, const M: usize, const N: usize>(
        x: &View<T, 3>,
        x_out: &mut View<T, 3>,
        y: &View<T, 3>,
        y_out: &mut View<T, 3>,
        #[host] tile: TileShape,
    ) {
        let (batches, rows, cols) = (x.shape::<i32>(0), x.shape::<i32>(1), x.shape::<i32>(2));
        let x_tiles = batches * tl::cdiv(rows, M) * tl::cdiv(cols, N);
        if tl::program_id(0) < x_tiles {
            let (batch, row, col) = tile_offsets::<M, N>(tl::program_id(0), rows, cols);
            x_out.store(x.load::<1, M, N>(batch, row, col), batch, row, col);
        } else {
            let index = tl::program_id(0) - x_tiles;
            let (batch, row, col) = tile_offsets::<M, N>(index, y.shape::<i32>(1), y.shape::<i32>(2));
            y_out.store(y.load::<1, M, N>(batch, row, col), batch, row, col);
        }
    }
}

pub use kernels::{
    align_both, align_rows, gemv, matmul, matmul_f32, matmul_small, matmul_split_k, matmul_warp_split_k,
    reduce_split_k, transpose_rows,
};
