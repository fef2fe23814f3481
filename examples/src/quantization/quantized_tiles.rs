//! The kernels of [`crate::quantized_matmul`]: tiles with an epilogue, and split-K, whose partial sums a second kernel reduces.

use dsl_runtime::prelude::*;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate_in_epilogue};
    use crate::epilogues::dequantize;
    use crate::float::{Accumulator, LibraryElement, QuantizedElement};
    use crate::matmul_block::{Block, TileShape};

    /// The accumulator of `M` rows of `a` and `N` of `b`, over K from `k_begin` to `k_end` in steps of `K`.
    #[fuse_fn]
    fn accumulate<A: Element, S: Element, I: Element, const M: usize, const N: usize, const K: usize>(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row: i32,
        col: i32,
        k_begin: I,
        k_end: I,
    ) -> Tile<S> {
        let mut acc = tl::zeros::<S>([M, N]);
        for start in (k_begin..k_end).step_by(K) {
            let b_tile = tl::trans(b.load::<N, K>(col, start));
            acc = tl::dot(a.load::<M, K>(row, start), b_tile, acc).max_num_imprecise_acc(128);
        }
        acc
    }

    /// The epilogue of an accumulator: scales, bias, an activation of [`crate::activation`], and the division and rounding for `i8`. The columns may share one scale.
    #[fuse_fn]
    fn epilogue<O: Element, const M: usize, const N: usize>(
        acc: Tile<f32>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        act: i32,
        row: i32,
        col: i32,
    ) -> Tile<O> {
        let v = dequantize::<M, N>(acc, row_scales, col_scales, bias, row, col);
        let y = activate_in_epilogue::<f16>(v, act);
        let is_integer = O::MAX as f32 == 127.0;
        let y = if is_integer { tl::round_ties_even(y / out_scales.load::<M, 1>(row, 0)) } else { y };
        y.to::<O>()
    }

    /// A program computes a tile of `M x N` elements in steps of `K`; the grid counts tiles. `b` is passed as its transpose. Scales of
    /// rows are a column, those of columns and the bias a row, which is read in vectors. The bias, and the scales of a result that is not `i8`, may be empty.
    #[fuse_kernel(
        M = [128], N = [128, 192], K = [128], num_warps = 8, when = block == Block::new(M, N, K),
        configs = [
            { A: i8, S: i32, O: f16, activation: Activation::Identity },
            { A: i8, S: i32, O: f16, activation: Activation::Relu },
            { A: i8, S: i32, O: f16, activation: Activation::Gelu },
            { A: i8, S: i32, O: f16, activation: Activation::Silu },
            { A: i8, S: i32, O: bf16, activation: Activation::Identity },
            { A: i8, S: i32, O: bf16, activation: Activation::Relu },
            { A: i8, S: i32, O: bf16, activation: Activation::Gelu },
            { A: i8, S: i32, O: bf16, activation: Activation::Silu },
            { A: i8, S: i32, O: f32, activation: Activation::Identity },
            { A: i8, S: i32, O: i8, activation: Activation::Identity },
            { A: i8, S: i32, O: i8, activation: Activation::Relu },
            { A: i8, S: i32, O: i8, activation: Activation::Gelu },
            { A: f8e4m3, S: f32, O: f16, activation: Activation::Identity },
            { A: f8e4m3, S: f32, O: f16, activation: Activation::Gelu },
            { A: f8e4m3, S: f32, O: f16, activation: Activation::Silu },
            { A: f8e4m3, S: f32, O: bf16, activation: Activation::Identity },
            { A: f8e4m3, S: f32, O: bf16, activation: Activation::Gelu },
            { A: f8e4m3, S: f32, O: bf16, activation: Activation::Silu },
        ],
    )]
    pub fn quantized_matmul<
        A: QuantizedElement,
        S: Accumulator,
        O: LibraryElement,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        activation: Activation,
        #[host] block: Block,
    ) {
        let grid_m = tl::cdiv(out.shape::<i32>(0), M);
        let grid_n = tl::cdiv(out.shape::<i32>(1), N);
        let (tile_row, tile_col) = tl::swizzle2d(0, tl::program_id(0), grid_m, grid_n, 8);
        let (row, col) = (tile_row * M, tile_col * N);
        let acc = accumulate::<A, S, i64, M, N, K>(a, b, row, col, 0, a.shape(1));
        let y = epilogue::<O, M, N>(
            acc.to::<f32>(),
            row_scales,
            col_scales,
            bias,
            out_scales,
            activation,
            row,
            col,
        );
        out.store(y, row, col);
    }

    /// A skinny matmul: as [`quantized_matmul()`], with tiles as [`crate::matmul_tiles::matmul_small()`] has.
    #[fuse_kernel(when = block == Block::new(M, N, K), configs = [
        { A: i8, S: i32, O: f16, M: 16, N: 32, K: 256, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: f16, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: bf16, M: 16, N: 32, K: 256, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: bf16, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: f32, M: 16, N: 32, K: 256, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: f32, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: i8, M: 16, N: 32, K: 256, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: i8, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
        { A: f8e4m3, S: f32, O: f16, M: 16, N: 32, K: 256, num_warps: 2, num_stages: 4 },
        { A: f8e4m3, S: f32, O: f16, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
        { A: f8e4m3, S: f32, O: bf16, M: 16, N: 32, K: 256, num_warps: 2, num_stages: 4 },
        { A: f8e4m3, S: f32, O: bf16, M: 64, N: 64, K: 256, num_warps: 4, num_stages: 6 },
    ])]
    pub fn quantized_skinny<
        A: QuantizedElement,
        S: Accumulator,
        O: LibraryElement,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
        #[host] block: Block,
    ) {
        let grid_n = tl::cdiv(out.shape::<i32>(1), N);
        let row = tl::program_id(0) / grid_n * M;
        let col = tl::program_id(0) % grid_n * N;
        let acc = accumulate::<A, S, i64, M, N, K>(a, b, row, col, 0, a.shape(1));
        let y = epilogue::<O, M, N>(acc.to::<f32>(), row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y, row, col);
    }

    /// As [`quantized_skinny()`], of fewer columns: the `WARPS` warps split K, each computes a whole tile from its slice, so that it
    /// reads, and of 8-bit floats converts, rows of operand A for all columns at once. The slices are the first axis of `a` and `b`.
    #[fuse_kernel(
        M = [16], N = [16], num_warps = WARPS, num_stages = 3,
        when = WARPS == slices && tile == TileShape::new(M, N),
        configs = [
            { A: i8, S: i32, O: f16, WARPS: 4, K: 256 },
            { A: i8, S: i32, O: bf16, WARPS: 4, K: 256 },
            { A: i8, S: i32, O: f32, WARPS: 4, K: 256 },
            { A: i8, S: i32, O: i8, WARPS: 4, K: 256 },
            { A: f8e4m3, S: f32, O: f16, WARPS: 8, K: 128 },
            { A: f8e4m3, S: f32, O: bf16, WARPS: 8, K: 128 },
        ],
    )]
    pub fn quantized_warp_split_k<
        A: QuantizedElement,
        S: Accumulator,
        O: LibraryElement,
        const WARPS: usize,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        a: &View<A, 3>,
        b: &View<A, 3>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
        #[host] tile: TileShape,
        #[host] slices: usize,
    ) {
        let grid_n = tl::cdiv(out.shape::<i32>(1), N);
        let row = tl::program_id(0) / grid_n * M;
        let col = tl::program_id(0) % grid_n * N;
        let mut warp_accs = tl::zeros::<S>([WARPS, M, N]);
        for start in (0..a.shape(2)).step_by(K) {
            let b_tile = tl::permute(b.load::<WARPS, N, K>(0, col, start), [0, 2, 1]);
            warp_accs =
                tl::dot(a.load::<WARPS, M, K>(0, row, start), b_tile, warp_accs).max_num_imprecise_acc(128);
        }
        let acc = tl::sum(warp_accs, 0).to::<f32>();
        let y = epilogue::<O, M, N>(acc, row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y, row, col);
    }

    /// As [`quantized_matmul()`], but a program stores the partial sums of a tile for split `tl::program_id(1)` of K: `k_steps` steps
    /// of `K`.
    #[fuse_kernel(
        M = [64], N = [128], K = [128], num_warps = 4, configs = [{ A: i8, S: i32 }, { A: f8e4m3, S: f32 }],
        when = block == Block::new(M, N, K),
    )]
    pub fn quantized_split_k<
        A: QuantizedElement,
        S: Accumulator,
        const M: usize,
        const N: usize,
        const K: usize,
    >(
        a: &View<A, 2>,
        b: &View<A, 2>,
        partials: &mut View<S, 3>,
        k_steps: i32,
        #[host] block: Block,
    ) {
        let grid_n = tl::cdiv(partials.shape::<i32>(2), N);
        let row = tl::program_id(0) / grid_n * M;
        let col = tl::program_id(0) % grid_n * N;
        let split = tl::program_id(1);
        let k_begin = split * k_steps * K;
        let k_end = tl::minimum(k_begin + k_steps * K, a.shape::<i32>(1));
        let acc = accumulate::<A, S, i32, M, N, K>(a, b, row, col, k_begin, k_end);
        partials.at(split).store(acc, row, col);
    }

    /// Reduces the partial sums, and runs the epilogue.
    #[fuse_kernel(
        M = [4], N = [256], num_warps = 4, when = tile == TileShape::new(M, N),
        configs = [
            { S: i32, O: f16 },
            { S: i32, O: bf16 },
            { S: i32, O: f32 },
            { S: i32, O: i8 },
            { S: f32, O: f16 },
            { S: f32, O: bf16 },
        ],
    )]
    pub fn reduce_quantized_split_k<S: Accumulator, O: LibraryElement, const M: usize, const N: usize>(
        partials: &View<S, 3>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
        #[host] tile: TileShape,
    ) {
        let grid_n = tl::cdiv(out.shape::<i32>(1), N);
        let row = tl::program_id(0) / grid_n * M;
        let col = tl::program_id(0) % grid_n * N;
        let mut acc = tl::zeros::<S>([M, N]);
        for split in 0..partials.shape(0) {
            acc += partials.at(split).load::<M, N>(row, col);
        }
        let y = epilogue::<O, M, N>(acc.to::<f32>(), row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y, row, col);
    }
}

pub use kernels::{
    quantized_matmul, quantized_skinny, quantized_split_k, quantized_warp_split_k, reduce_quantized_split_k,
};
