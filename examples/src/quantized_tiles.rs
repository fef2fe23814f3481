//! The kernels of [`crate::quantized_matmul`]: tiles of a product with what follows it, and parts of sums, which a second kernel
//! adds up.

use dsl_runtime::prelude::*;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    /// The sums of the products from `first` to `end`, in steps of `K`, of `M` rows of `a` and `N` of `b`.
    #[fuse_fn]
    fn product<A: Element, S: Element, I: Element, const M: usize, const N: usize, const K: usize>(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row: i32,
        col: i32,
        first: I,
        end: I,
    ) -> Tile<S> {
        let mut sum = tl::zeros::<S>([M, N]);
        for start in (first..end).step_by(K) {
            let right = tl::trans(b.load::<N, K>(col, start));
            sum = tl::dot(a.load::<M, K>(row, start), right, sum).max_num_imprecise_acc(128);
        }
        sum
    }

    /// What becomes of a tile of sums, before it is converted: scaled, a bias added, activated as one of [`crate::activation`], and
    /// divided and rounded for `i8`. One scale of columns serves all of them.
    #[fuse_fn]
    fn finish<const M: usize, const N: usize, const ROUND: bool>(
        sum: Tile<f32>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        act: i32,
        row: i32,
        col: i32,
    ) -> Tile<f32> {
        let scaled = sum * row_scales.load::<M, 1>(row, 0);
        let of_all = col_scales.load::<1, 1>(0, 0);
        let factors = tl::select(col_scales.shape(1) == 1, of_all, col_scales.load::<1, N>(0, col));
        let v = tl::fma(scaled, factors, bias.load::<1, N>(0, col));
        let y = if act == 1 {
            tl::relu(v)
        } else if act == 2 {
            tl::gelu::<f16>(v)
        } else if act == 4 {
            tl::silu::<f16>(v)
        } else {
            v
        };
        if ROUND { tl::round_ties_even(y / out_scales.load::<M, 1>(row, 0)) } else { y }
    }

    /// A program makes a tile of `M x N` elements in steps of `K`; the grid counts tiles. The columns of `b` are the rows
    /// of what is handed over. Scales of rows are a column of numbers, those of columns and the bias a row, which is read in
    /// vectors. The bias, and the scales of a result that is not `i8`, may be empty.
    #[fuse_kernel(
        M = [128], N = [128, 192], K = [128], num_warps = 8,
        configs = [
            { A: i8, S: i32, O: f16, ACT: 0, ROUND: false },
            { A: i8, S: i32, O: f16, ACT: 1, ROUND: false },
            { A: i8, S: i32, O: f16, ACT: 2, ROUND: false },
            { A: i8, S: i32, O: f16, ACT: 4, ROUND: false },
            { A: i8, S: i32, O: bf16, ACT: 0, ROUND: false },
            { A: i8, S: i32, O: bf16, ACT: 1, ROUND: false },
            { A: i8, S: i32, O: bf16, ACT: 2, ROUND: false },
            { A: i8, S: i32, O: bf16, ACT: 4, ROUND: false },
            { A: i8, S: i32, O: f32, ACT: 0, ROUND: false },
            { A: i8, S: i32, O: i8, ACT: 0, ROUND: true },
            { A: i8, S: i32, O: i8, ACT: 1, ROUND: true },
            { A: i8, S: i32, O: i8, ACT: 2, ROUND: true },
            { A: f8e4m3, S: f32, O: f16, ACT: 0, ROUND: false },
            { A: f8e4m3, S: f32, O: f16, ACT: 2, ROUND: false },
            { A: f8e4m3, S: f32, O: f16, ACT: 4, ROUND: false },
            { A: f8e4m3, S: f32, O: bf16, ACT: 0, ROUND: false },
            { A: f8e4m3, S: f32, O: bf16, ACT: 2, ROUND: false },
            { A: f8e4m3, S: f32, O: bf16, ACT: 4, ROUND: false },
        ],
    )]
    pub fn quantized_matmul<
        A: Element,
        S: Element,
        O: Element,
        const ACT: usize,
        const M: usize,
        const N: usize,
        const K: usize,
        const ROUND: bool,
    >(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
    ) {
        let down = tl::cdiv(out.shape(0).to::<i32>(), M);
        let across = tl::cdiv(out.shape(1).to::<i32>(), N);
        let (tile_row, tile_col) = tl::swizzle2d(0, tl::program_id(0), down, across, 8);
        let (row, col) = (tile_row * M, tile_col * N);
        let sum = product::<A, S, i64, M, N, K>(a, b, row, col, 0, a.shape(1));
        let y = finish::<M, N, ROUND>(
            sum.to::<f32>(),
            row_scales,
            col_scales,
            bias,
            out_scales,
            ACT as i32,
            row,
            col,
        );
        out.store(y.to::<O>(), row, col);
    }

    /// A product of few rows: as [`quantized_matmul()`], with tiles as [`crate::matmul_tiles::matmul_small()`] has.
    #[fuse_kernel(configs = [
        { A: i8, S: i32, O: f16, M: 16, N: 32, K: 256, ROUND: false, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: f16, M: 64, N: 64, K: 256, ROUND: false, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: bf16, M: 16, N: 32, K: 256, ROUND: false, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: bf16, M: 64, N: 64, K: 256, ROUND: false, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: f32, M: 16, N: 32, K: 256, ROUND: false, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: f32, M: 64, N: 64, K: 256, ROUND: false, num_warps: 4, num_stages: 6 },
        { A: i8, S: i32, O: i8, M: 16, N: 32, K: 256, ROUND: true, num_warps: 4, num_stages: 4 },
        { A: i8, S: i32, O: i8, M: 64, N: 64, K: 256, ROUND: true, num_warps: 4, num_stages: 6 },
        { A: f8e4m3, S: f32, O: f16, M: 16, N: 32, K: 256, ROUND: false, num_warps: 2, num_stages: 4 },
        { A: f8e4m3, S: f32, O: f16, M: 64, N: 64, K: 256, ROUND: false, num_warps: 4, num_stages: 6 },
        { A: f8e4m3, S: f32, O: bf16, M: 16, N: 32, K: 256, ROUND: false, num_warps: 2, num_stages: 4 },
        { A: f8e4m3, S: f32, O: bf16, M: 64, N: 64, K: 256, ROUND: false, num_warps: 4, num_stages: 6 },
    ])]
    pub fn quantized_few<
        A: Element,
        S: Element,
        O: Element,
        const M: usize,
        const N: usize,
        const K: usize,
        const ROUND: bool,
    >(
        a: &View<A, 2>,
        b: &View<A, 2>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
    ) {
        let across = tl::cdiv(out.shape(1).to::<i32>(), N);
        let row = tl::program_id(0) / across * M;
        let col = tl::program_id(0) % across * N;
        let sum = product::<A, S, i64, M, N, K>(a, b, row, col, 0, a.shape(1));
        let y =
            finish::<M, N, ROUND>(sum.to::<f32>(), row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y.to::<O>(), row, col);
    }

    /// As [`quantized_few()`], of fewer columns: each of `P` warps makes all of a tile from a slice of the terms, so that it reads, and
    /// of 8-bit floats converts, rows of the left factor for all columns at once. The slices are the first axis of `a` and `b`.
    #[fuse_kernel(
        M = [16], N = [16], num_warps = P, num_stages = 3,
        configs = [
            { A: i8, S: i32, O: f16, P: 4, K: 256, ROUND: false },
            { A: i8, S: i32, O: bf16, P: 4, K: 256, ROUND: false },
            { A: i8, S: i32, O: f32, P: 4, K: 256, ROUND: false },
            { A: i8, S: i32, O: i8, P: 4, K: 256, ROUND: true },
            { A: f8e4m3, S: f32, O: f16, P: 8, K: 128, ROUND: false },
            { A: f8e4m3, S: f32, O: bf16, P: 8, K: 128, ROUND: false },
        ],
    )]
    pub fn quantized_narrow<
        A: Element,
        S: Element,
        O: Element,
        const P: usize,
        const M: usize,
        const N: usize,
        const K: usize,
        const ROUND: bool,
    >(
        a: &View<A, 3>,
        b: &View<A, 3>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
    ) {
        let across = tl::cdiv(out.shape(1).to::<i32>(), N);
        let row = tl::program_id(0) / across * M;
        let col = tl::program_id(0) % across * N;
        let mut sums = tl::zeros::<S>([P, M, N]);
        for start in (0..a.shape(2)).step_by(K) {
            let right = tl::permute(b.load::<P, N, K>(0, col, start), [0, 2, 1]);
            sums = tl::dot(a.load::<P, M, K>(0, row, start), right, sums).max_num_imprecise_acc(128);
        }
        let sum = tl::sum(sums, 0).to::<f32>();
        let y = finish::<M, N, ROUND>(sum, row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y.to::<O>(), row, col);
    }

    /// As [`quantized_matmul()`], but a program leaves a tile of part `tl::program_id(1)` of the sums: that of `share` steps of `K`,
    /// which follow those of the part before.
    #[fuse_kernel(M = [64], N = [128], K = [128], num_warps = 4, configs = [{ A: i8, S: i32 }, { A: f8e4m3, S: f32 }])]
    pub fn quantized_parts<A: Element, S: Element, const M: usize, const N: usize, const K: usize>(
        a: &View<A, 2>,
        b: &View<A, 2>,
        parts: &mut View<S, 3>,
        share: i32,
    ) {
        let across = tl::cdiv(parts.shape(2).to::<i32>(), N);
        let row = tl::program_id(0) / across * M;
        let col = tl::program_id(0) % across * N;
        let part = tl::program_id(1);
        let first = part * share * K;
        let end = tl::minimum(first + share * K, a.shape(1).to::<i32>());
        let sum = product::<A, S, i32, M, N, K>(a, b, row, col, first, end);
        parts.store(tl::reshape(sum, [1, M, N]), part, row, col);
    }

    /// Adds the parts, and does what follows a product.
    #[fuse_kernel(
        M = [4], N = [256], num_warps = 4,
        configs = [
            { S: i32, O: f16, ROUND: false },
            { S: i32, O: bf16, ROUND: false },
            { S: i32, O: f32, ROUND: false },
            { S: i32, O: i8, ROUND: true },
            { S: f32, O: f16, ROUND: false },
            { S: f32, O: bf16, ROUND: false },
        ],
    )]
    pub fn sum_quantized_parts<S: Element, O: Element, const M: usize, const N: usize, const ROUND: bool>(
        parts: &View<S, 3>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        out_scales: &View<f32, 2>,
        out: &mut View<O, 2>,
        act: i32,
    ) {
        let across = tl::cdiv(out.shape(1).to::<i32>(), N);
        let row = tl::program_id(0) / across * M;
        let col = tl::program_id(0) % across * N;
        let mut sum = tl::zeros::<S>([M, N]);
        for part in 0..parts.shape(0) {
            sum += tl::reshape(parts.load::<1, M, N>(part, row, col), [M, N]);
        }
        let y =
            finish::<M, N, ROUND>(sum.to::<f32>(), row_scales, col_scales, bias, out_scales, act, row, col);
        out.store(y.to::<O>(), row, col);
    }
}

pub use kernels::{quantized_few, quantized_matmul, quantized_narrow, quantized_parts, sum_quantized_parts};
