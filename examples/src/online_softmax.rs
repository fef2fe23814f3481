//! The softmax of rows that come in blocks, as attention has it: functions for kernels of any crate.
//!
//! A row keeps its maximum `m_i` and the sum `l_i` of its exponentials so far, [`online_softmax`] takes one block more. Scores are logarithms to
//! base 2 once they are multiplied by `scale`: a softmax to base e has `scale` times log2(e).
//!
//! **Source.** Milakov, Gimelshein, *Online normalizer calculation for softmax*, 2018, arXiv:1805.02867, algorithm 3; the accumulator as in Dao,
//! *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 1.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    /// The larger one of a row's maximum so far, `[M]`, and that of its `scores`, `[M, N]`, times `scale`, which is above 0.
    #[fuse_fn]
    pub fn next_maximum(m_i: Tile<f32>, scores: Tile<f32>, scale: f32) -> Tile<f32> {
        tl::maximum(m_i, tl::max(scores, 1) * scale)
    }

    /// A block of `scores`, `[M, N]`, which are -infinity where masked, beside the maxima `m_i` and sums `l_i` of the blocks before it, `[M]`, at first
    /// -infinity and 0. Gives the next maxima and sums, the block's exponentials `p`, `[M, N]`, and the factors `alpha`, `[M]`, of what
    /// was accumulated before.
    #[fuse_fn]
    pub fn online_softmax(
        m_i: Tile<f32>,
        l_i: Tile<f32>,
        scores: Tile<f32>,
        scale: f32,
    ) -> (Tile<f32>, Tile<f32>, Tile<f32>, Tile<f32>) {
        let m_next = next_maximum(m_i, scores, scale);
        let (l_next, p, alpha) = online_softmax_at(m_next, m_i, l_i, scores, scale);
        (m_next, l_next, p, alpha)
    }

    /// As [`online_softmax`], with the next maxima given: any that no exponential overflows with.
    #[fuse_fn]
    pub fn online_softmax_at(
        m_next: Tile<f32>,
        m_i: Tile<f32>,
        l_i: Tile<f32>,
        scores: Tile<f32>,
        scale: f32,
    ) -> (Tile<f32>, Tile<f32>, Tile<f32>) {
        // A row whose scores are all masked so far has no maximum to subtract.
        let m_safe = tl::select(m_next == f32::NEG_INFINITY, 0.0, m_next);
        let p = tl::exp2(tl::fma(scores, scale, -m_safe.col()));
        let alpha = tl::exp2(m_i - m_safe);
        (l_i * alpha + tl::sum(p, 1), p, alpha)
    }

    /// The divisor of each row, 1 where all of it was masked, and the logarithm to base e of its sum, there -infinity; both `[M]`.
    #[fuse_fn]
    pub fn sum_and_logarithm(m_i: Tile<f32>, l_i: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
        let l_safe = tl::select(m_i == f32::NEG_INFINITY, 1.0, l_i);
        (l_safe, (m_i + tl::log2(l_safe)) * f32::consts::LN_2)
    }

    /// `softcap * tanh(scores * scale / softcap)` but for the base: `scale` and `softcap` are for powers of two, as is the result.
    #[fuse_fn]
    pub fn soft_capped(scores: Tile<f32>, scale: f32, softcap: f32) -> Tile<f32> {
        softcap - 2.0 * softcap / (1.0 + tl::exp2(scores * (2.0 * f32::consts::LOG2_E * scale / softcap)))
    }
}

pub use functions::{next_maximum, online_softmax, online_softmax_at, soft_capped, sum_and_logarithm};
