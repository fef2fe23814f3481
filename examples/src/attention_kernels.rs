//! The kernel of [`mod@crate::attention`] and the functions that it is made of: the order of programs, masks, modifications of scores, dropout.

use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::HalfFloat;
    use crate::mainloop::attention_mainloop;
    use crate::online_softmax::modified_scores;

    /// Which keys a query attends to. Positions count so that the last query has that of the last key.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AttentionMask {
        /// All.
        None,
        /// Those up to its own position.
        Causal,
        /// Those from `left` before its position to `right` behind it.
        Window,
    }

    /// The sequence and head of a program and its tile of queries. Longest processing time first: of concurrent heads the programs with the
    /// most keys begin, where they differ.
    #[fuse_fn]
    fn program_tile<const MASK: u32>() -> (Tile<i32>, Tile<i32>) {
        match MASK {
            AttentionMask::None => (tl::program_id(2), tl::program_id(1)),
            _ => {
                let batch_head = tl::program_id(2) * tl::num_programs(0) + tl::program_id(0);
                (batch_head, tl::num_programs(1) - 1 - tl::program_id(1))
            }
        }
    }

    /// Of `M` queries, the first of which has this limit and window: the first key that any of them attends to, and the end of these.
    #[fuse_fn]
    fn visible_keys<const MASK: u32, const M: usize>(
        keys: i32,
        causal_limit: i32,
        window_start: i32,
    ) -> (Tile<i32>, Tile<i32>) {
        match MASK {
            AttentionMask::None => (0, keys),
            AttentionMask::Causal => (0, tl::minimum(keys, causal_limit + M)),
            _ => (tl::maximum(window_start, 0) / 16 * 16, tl::minimum(keys, causal_limit + M)),
        }
    }

    /// Scores `[M, N]` of keys from `start` on, -infinity where a query does not attend to the key.
    #[fuse_fn]
    fn masked<const MASK: u32, const M: usize, const N: usize>(
        scores: Tile<f32>,
        start: i32,
        keys: i32,
        causal_limit: i32,
        window_start: i32,
    ) -> Tile<f32> {
        let last = start + (N as i32 - 1);
        // A causal limit is within bounds.
        let is_partial = match MASK {
            AttentionMask::None => last >= keys,
            AttentionMask::Causal => last > causal_limit,
            _ => last >= keys || last > causal_limit || start < window_start + (M as i32 - 1),
        };
        if is_partial {
            let k_positions = start + tl::arange(0, N);
            let is_in_bounds = (k_positions < keys).row();
            let is_within_limit = k_positions.row() <= causal_limit + tl::arange(0, M).col();
            let is_visible = match MASK {
                AttentionMask::None => is_in_bounds,
                AttentionMask::Causal => is_within_limit,
                _ => {
                    is_in_bounds
                        & is_within_limit
                        & (k_positions.row() >= window_start + tl::arange(0, M).col())
                }
            };
            tl::select(is_visible, scores, f32::NEG_INFINITY)
        } else {
            scores
        }
    }

    /// Probabilities with those that `dropout_p` drops 0; `offsets` number them.
    #[fuse_fn]
    fn dropped(p: Tile<f32>, dropout_p: f32, seed: u64, offsets: Tile<i64>) -> Tile<f32> {
        // `tl::rand(seed, offset) < dropout_p`, compared as bits: so many of its 2^23 values are below `dropout_p`.
        let n_dropped = tl::ceil(dropout_p * 8388608.0).to::<u32>();
        tl::select(tl::randint(seed, offsets) >> 9 < n_dropped, 0.0, p)
    }

    /// A program handles `M` queries of a head, `N` keys an iteration. The grid's first axis counts heads, of all sequences, that run
    /// concurrently, one without a mask; its second axis tiles of their queries; its third one such sets of heads.
    ///
    /// - `MASK` is an [`AttentionMask`]. `SCORE_MOD`: `softcap`, `slopes` and `bias` modify scores. `DROPOUT`: `dropout_p` drops probabilities.
    /// - `q`, `out`: `[sequences, heads, queries, D]`; `k`, `v`: `[sequences, heads / group, keys, D]`.
    /// - `bias`: `[heads of all sequences, queries, keys]`, or no elements. `slopes`: one a head, 0 for none.
    /// - `lse`: `[heads of all sequences, queries, 1]`, logarithms to base e.
    /// - `scale`, above 0, and `softcap` are for powers of two; a `softcap` of 0 is none. `left` and `right` are at most 2^30.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 192, N: 128 },
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 192, N: 128 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { MASK: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { MASK: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { MASK: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 64, M: 128, N: 128 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 128, N: 128 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 192, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 256, M: 128, N: 48 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 128, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 256, M: 128, N: 32 },
            { MASK: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { MASK: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { MASK: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 128, N: 64 },
        ],
    )]
    pub fn attention<
        T: HalfFloat,
        const MASK: u32,
        const SCORE_MOD: bool,
        const DROPOUT: bool,
        const D: usize,
        const M: usize,
        const N: usize,
    >(
        q: &View<T, 4>,
        k: &View<T, 4>,
        v: &View<T, 4>,
        bias: &View<T, 3>,
        slopes: &View<f32, 1>,
        out: &mut View<T, 4>,
        lse: &mut View<f32, 3>,
        group: i32,
        scale: f32,
        left: i32,
        right: i32,
        softcap: f32,
        dropout_p: f32,
        seed: u64,
    ) {
        let (heads, queries, keys) = (q.shape::<i32>(1), q.shape::<i32>(2), k.shape::<i32>(2));
        let (batch_head, tile) = program_tile::<MASK>();
        let (sequence, head, row) = (batch_head / heads, batch_head % heads, tile * M);
        // The last key that the first of these queries attends to, and the first one.
        let causal_limit = row + (keys - queries) + if MASK == AttentionMask::Window { right } else { 0 };
        let window_start = causal_limit - right - left;
        let (kv_begin, kv_end) = visible_keys::<MASK, M>(keys, causal_limit, window_start);
        let slope =
            if SCORE_MOD { tl::max(slopes.load::<1>(batch_head), 0) * f32::consts::LOG2_E } else { 0.0 };
        let is_biased = if SCORE_MOD { bias.shape(2) > 0 } else { false };
        // Modified scores are logarithms to base 2 already.
        let score_scale = if SCORE_MOD { 1.0 } else { scale };
        let score = |qk, start| {
            let qk = if SCORE_MOD {
                let (k_positions, q_positions) =
                    (start + tl::arange(0, N), row + (keys - queries) + tl::arange(0, M));
                let qk = modified_scores(qk, scale, softcap, slope != 0.0, slope, k_positions, q_positions);
                if is_biased {
                    let bias = bias.at(batch_head).load::<M, N>(row, start).to::<f32>();
                    tl::fma(bias, f32::consts::LOG2_E, qk)
                } else {
                    qk
                }
            } else {
                qk
            };
            masked::<MASK, M, N>(qk, start, keys, causal_limit, window_start)
        };
        let weight = |p, start| {
            if DROPOUT {
                let first_row = batch_head.to::<i64>() * queries.to::<i64>() + row.to::<i64>();
                let rows = (first_row + tl::arange(0, M).to::<i64>()) * keys.to::<i64>();
                dropped(p, dropout_p, seed, rows.col() + (start + tl::arange(0, N)).to::<i64>().row())
            } else {
                p
            }
        };
        let q = q.at(sequence).at(head).load::<M, D>(row, 0);
        let (k, v) = (k.at(sequence).at(head / group), v.at(sequence).at(head / group));
        let (acc, softmax) =
            attention_mainloop::<T, D, M, N>(q, k, v, kv_begin, kv_end, score_scale, score, weight);
        let (l_safe, lse_row) = softmax.sum_and_logarithm();
        let keep_scale =
            if DROPOUT { tl::select(dropout_p < 1.0, 1.0 / (1.0 - dropout_p), 0.0) } else { 1.0 };
        let normalized = acc * (keep_scale / l_safe).col();
        out.at(sequence).at(head).store(normalized.to::<T>(), row, 0);
        lse.store(tl::reshape(lse_row, [1, M, 1]), batch_head, row, 0);
    }
}

pub use kernels::{AttentionMask, attention};
