//! Epilogues of products, for kernels of any crate: what becomes of the tile of a result before it is stored. Each takes the accumulator of
//! [`crate::mainloop::matmul_mainloop`] and gives the next one, so that a kernel chains those it wants; [`crate::norms::normalize`] is
//! another, for tiles that hold whole rows.
//!
//! **Source.** Epilogues as a chain of functions of the accumulator are CUTLASS's epilogue visitors; the rotation is Su and others', *RoFormer*,
//! 2021, arXiv:2104.09864, equation 34.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    use crate::activation::activate_in_epilogue;

    /// `act(alpha * acc + bias)` of `M` rows and the `N` columns from `col`, in `f32`. `bias` is `[1, n]`, or has no elements. `act` is the number
    /// of an activation of [`crate::activation`].
    #[fuse_fn]
    pub fn bias_activation<T: Float, const N: usize>(
        acc: Tile<f32>,
        bias: &View<T, 2>,
        alpha: f32,
        act: i32,
        col: i32,
    ) -> Tile<f32> {
        // Most matmuls have no bias.
        let v = if bias.shape(1) > 0 {
            tl::fma(acc, alpha, bias.load::<1, N>(0, col).to::<f32>())
        } else {
            acc * alpha
        };
        activate_in_epilogue::<T>(v, act)
    }

    /// `acc + residual` of the `M` rows from `row` and the `N` columns from `col` of a matrix, `[m, n]`, or `acc` where it has no elements.
    #[fuse_fn]
    pub fn add_residual<T: Float, const M: usize, const N: usize>(
        acc: Tile<f32>,
        residual: &View<T, 2>,
        row: i32,
        col: i32,
    ) -> Tile<f32> {
        if residual.shape(0) > 0 { acc + residual.load::<M, N>(row, col).to::<f32>() } else { acc }
    }

    /// `acc * row_scales * col_scales + bias` of the `M` rows from `row` and the `N` columns from `col`: what a product of quantized operands
    /// stands for. `row_scales` is `[m, 1]`; `col_scales` is `[1, n]`, or `[1, 1]` for all columns; `bias` is `[1, n]`, or has no elements.
    #[fuse_fn]
    pub fn dequantize<const M: usize, const N: usize>(
        acc: Tile<f32>,
        row_scales: &View<f32, 2>,
        col_scales: &View<f32, 2>,
        bias: &View<f32, 2>,
        row: i32,
        col: i32,
    ) -> Tile<f32> {
        let scaled = acc * row_scales.load::<M, 1>(row, 0);
        let shared_scale = col_scales.load::<1, 1>(0, 0);
        let scales = tl::select(col_scales.shape(1) == 1, shared_scale, col_scales.load::<1, N>(0, col));
        tl::fma(scaled, scales, bias.load::<1, N>(0, col))
    }

    /// `acc` of the `M` rows from `row` and the `N` columns from `col`, with the pairs `2 j` and `2 j + 1` of the first `rotated` columns turned by
    /// `(a, b) -> (a * cos - b * sin, b * cos + a * sin)`. Row `i` has position `positions[i]`, whose `half` cosines and sines, row by row in
    /// `cos` and `sin`, are those of each head of `2 * half` columns.
    #[fuse_fn]
    pub fn rotate_columns<const M: usize, const N: usize>(
        acc: Tile<f32>,
        positions: &[i32],
        cos: &[f32],
        sin: &[f32],
        rows: i32,
        row: i32,
        col: i32,
        rotated: i32,
        half: i32,
    ) -> Tile<f32> {
        if col < rotated {
            let tokens = row + tl::arange(0, M);
            let pairs = col / 2 + tl::arange(0, N / 2);
            let position = tl::load(positions + tokens, tokens < rows, 0);
            let offsets = (position * half).col() + (pairs % half).row();
            let is_rotated = (tokens < rows).col() & (2 * pairs < rotated).row();
            let cos = tl::select(is_rotated, tl::load(cos + offsets, is_rotated, 0.0), 1.0);
            let sin = tl::load(sin + offsets, is_rotated, 0.0);
            let (a, b) = tl::split(tl::reshape(acc, [M, N / 2, 2]));
            tl::interleave(a * cos - b * sin, b * cos + a * sin)
        } else {
            acc
        }
    }
}

pub use functions::{add_residual, bias_activation, dequantize, rotate_columns};
