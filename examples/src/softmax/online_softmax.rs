//! The softmax of rows that come in blocks, as attention has it: a struct and functions for kernels of any crate.
//!
//! Scores are logarithms to base 2 once they are multiplied by `scale`: a softmax to base e has `scale` times log2(e).
//!
//! **Source.** Milakov, Gimelshein, *Online normalizer calculation for softmax*, 2018, arXiv:1805.02867, algorithm 3; the accumulator as in Dao,
//! *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 1.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    /// The maximum `m_i` and the sum `l_i` of exponentials of each row so far, `[M]`.
    #[fuse_struct]
    pub struct OnlineSoftmax {
        pub m_i: Tile<f32>,
        pub l_i: Tile<f32>,
    }

    impl OnlineSoftmax {
        /// `M` rows of which no block has come.
        pub fn new<const M: usize>() -> Self {
            OnlineSoftmax { m_i: tl::full([M], f32::NEG_INFINITY), l_i: tl::zeros::<f32>([M]) }
        }

        /// The maxima with those of a block of `scores`, `[M, N]`, times `scale`, which is above 0.
        pub fn next_maximum(&self, scores: Tile<f32>, scale: f32) -> Tile<f32> {
            tl::maximum(self.m_i, tl::max(scores, 1) * scale)
        }

        /// Takes a block of `scores`, `[M, N]`, which are -infinity where masked. Gives its exponentials `p`, `[M, N]`, and the factors
        /// `alpha`, `[M]`, of what was accumulated before.
        pub fn step(&mut self, scores: Tile<f32>, scale: f32) -> (Tile<f32>, Tile<f32>) {
            self.step_to(self.next_maximum(scores, scale), scores, scale)
        }

        /// As `step`, with the next maxima given: any that no exponential overflows with.
        pub fn step_to(
            &mut self,
            m_next: Tile<f32>,
            scores: Tile<f32>,
            scale: f32,
        ) -> (Tile<f32>, Tile<f32>) {
            // A row whose scores are all masked so far has no maximum to subtract.
            let m_safe = tl::select(m_next == f32::NEG_INFINITY, 0.0, m_next);
            let p = tl::exp2(tl::fma(scores, scale, -m_safe.col()));
            let alpha = tl::exp2(self.m_i - m_safe);
            self.l_i = self.l_i * alpha + tl::sum(p, 1);
            self.m_i = m_next;
            (p, alpha)
        }

        /// The divisor of each row, 1 where all of it was masked, and the logarithm to base e of its sum, there -infinity; both `[M]`.
        pub fn sum_and_logarithm(&self) -> (Tile<f32>, Tile<f32>) {
            let l_safe = tl::select(self.m_i == f32::NEG_INFINITY, 1.0, self.l_i);
            (l_safe, (self.m_i + tl::log2(l_safe)) * f32::consts::LN_2)
        }
    }

    /// `softcap * tanh(scores * scale / softcap)` but for the base: `scale` and `softcap` are for powers of two, as is the result.
    #[fuse_fn]
    pub fn soft_capped(scores: Tile<f32>, scale: f32, softcap: f32) -> Tile<f32> {
        softcap - 2.0 * softcap / (1.0 + tl::exp2(scores * (2.0 * f32::consts::LOG2_E * scale / softcap)))
    }

    /// `scores * scale`, `[M, N]`, capped where `softcap` is not 0, and where `is_sloped` with `slope`, a scalar or `[M, 1]`, for each position from
    /// query to key. Positions are `[N]` and `[M]`.
    #[fuse_fn]
    pub fn modified_scores(
        scores: Tile<f32>,
        scale: f32,
        softcap: f32,
        is_sloped: bool,
        slope: Tile<f32>,
        k_positions: Tile<i32>,
        q_positions: Tile<i32>,
    ) -> Tile<f32> {
        let scores = if softcap > 0.0 { soft_capped(scores, scale, softcap) } else { scores * scale };
        if is_sloped { scores + slope * (k_positions.row() - q_positions.col()).to::<f32>() } else { scores }
    }
}

pub use functions::{OnlineSoftmax, modified_scores, soft_capped};
