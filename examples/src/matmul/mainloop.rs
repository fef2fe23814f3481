//! The loops of matmul and attention over tiles, for kernels of any crate: what a kernel does with the scores, the weights or the result is a
//! function that it hands over, or what follows the call.
//!
//! **Source.** The split of a kernel into mainloop and epilogue is CUTLASS's; functions of scores are FlexAttention's, 2024, arXiv:2412.05496.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    use crate::online_softmax::OnlineSoftmax;

    /// The sum of products over K from `k_begin` to `k_end`, in steps of `K`, of the `M` rows of `a` from `row` and the `N` columns of `b` from `col`:
    /// `[M, N]` in `f32`. `a` is `[m, k]` and `b` is `[k, n]`, with any strides. `f32` operands are rounded to TF32 with `TF32`.
    #[fuse_fn]
    pub fn matmul_mainloop<
        T: Float,
        I: Element,
        const M: usize,
        const N: usize,
        const K: usize,
        const TF32: bool,
    >(
        a: &View<T, 2>,
        b: &View<T, 2>,
        row: i32,
        col: i32,
        k_begin: I,
        k_end: I,
    ) -> Tile<f32> {
        let mut acc = tl::zeros::<f32>([M, N]);
        for start in (k_begin..k_end).step_by(K) {
            let a_tile = a.load::<M, K>(row, start);
            let b_tile = b.load::<K, N>(start, col);
            acc = if TF32 {
                tl::dot(a_tile, b_tile, acc).input_precision("tf32")
            } else {
                tl::dot(a_tile, b_tile, acc)
            };
        }
        acc
    }

    /// Attention of `M` queries to the keys from `begin` to `end`, in steps of `N`: the sum of their values by weights that are not yet divided,
    /// `[M, D]`, and the softmax with its divisors. `v` is `[keys, D]`.
    ///
    /// - `score(start)` gives the scores, `[M, N]`, of the keys from `start` on: products of queries and keys, modified and masked. Times `scale`,
    ///   above 0, they are logarithms to base 2; -infinity masks a key.
    /// - `weight(p, start)` gives the weights, `[M, N]`, by which values are summed, from the exponentials of the scores.
    #[fuse_fn]
    pub fn attention_mainloop<T: Float, const D: usize, const M: usize, const N: usize>(
        v: &View<T, 2>,
        begin: i32,
        end: i32,
        scale: f32,
        score: impl Fn(Tile<i32>) -> Tile<f32>,
        weight: impl Fn(Tile<f32>, Tile<i32>) -> Tile<f32>,
    ) -> (Tile<f32>, OnlineSoftmax) {
        let mut acc = tl::zeros::<f32>([M, D]);
        let mut softmax = OnlineSoftmax::new::<M>();
        for start in (begin..end).step_by(N) {
            let qk = score(start);
            let m_next = softmax.next_maximum(qk, scale);
            // Exponentials of up to 2^8 are as exact, so `m_i` may lag the maximum by 8, and the accumulator is seldom rescaled.
            // Where D is 128 an iteration does not wait for that (docs/decisions/0054).
            let m_next =
                if D == 128 { m_next } else { tl::select(m_next - softmax.m_i <= 8.0, softmax.m_i, m_next) };
            let (p, alpha) = softmax.step_to(m_next, qk, scale);
            acc = tl::dot(weight(p, start).to::<T>(), v.load::<N, D>(start, 0), acc * alpha.col());
        }
        (acc, softmax)
    }
}

pub use functions::{attention_mainloop, matmul_mainloop};
