//! The kernel of [`mod@crate::attention`], and which of its tiles a GPU is given.

use dsl_runtime::prelude::*;

use crate::query_tile::AttentionMask;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::HalfFloat;
    use crate::mainloop::attention_mainloop;
    use crate::online_softmax::modified_scores;
    use crate::query_tile::{AttentionMask, QueryTile};

    /// Probabilities with those that `dropout_p` drops 0; `offsets` number them.
    #[fuse_fn]
    fn dropped(p: Tile<f32>, dropout_p: f32, seed: u64, offsets: Tile<i64>) -> Tile<f32> {
        // `tl::rand(seed, offset) < dropout_p`, compared as bits: so many of its 2^23 values are below `dropout_p`.
        let n_dropped = tl::ceil(dropout_p * 8388608.0).to::<u32>();
        tl::select(tl::randint(seed, offsets) >> 9 < n_dropped, 0.0, p)
    }

    /// A program handles `M` queries of a head, `N` keys an iteration, on the grid that [`QueryTile`] reads.
    ///
    /// - `SCORE_MOD`: `softcap`, `slopes` and `bias` modify scores. `DROPOUT`: `dropout_p` drops probabilities. Both have `mask` as a window.
    /// - `q`, `out`: `[sequences, heads, queries, D]`; `k`, `v`: `[sequences, heads / group, keys, D]`.
    /// - `bias`: `[heads of all sequences, queries, keys]`, or no elements. `slopes`: one a head, 0 for none, or no elements.
    /// - `lse`: `[heads of all sequences, queries, 1]`, logarithms to base e.
    /// - `scale`, above 0, and `softcap` are for powers of two; a `softcap` of 0 is none. `left` and `right` are at most 2^30.
    #[fuse_kernel(
        T = [f16, bf16],
        when = q.shape()[3] <= D
            && DROPOUT == (dropout_p > 0.0)
            && SCORE_MOD == (softcap > 0.0 || slopes.shape()[0] + bias.shape()[2] > 0 || dropout_p > 0.0),
        configs = [
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 192, N: 128, when: super::prefers_large_tiles(device, mask, q.shape()) },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64, when: super::has_little_shared_memory(device) },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 192, N: 128, when: super::prefers_large_tiles(device, mask, q.shape()) },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64, when: super::has_little_shared_memory(device) },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64, when: super::has_little_shared_memory(device) },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 192, M: 128, N: 96 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 128, N: 64, when: super::has_little_shared_memory(device) },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 192, M: 128, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 256, M: 128, N: 48 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 128, M: 128, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 256, M: 128, N: 32 },
        ],
    )]
    pub fn attention<
        T: HalfFloat,
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
        mask: AttentionMask,
        group: i32,
        scale: f32,
        left: i32,
        right: i32,
        softcap: f32,
        dropout_p: f32,
        seed: u64,
    ) {
        let (heads, queries, keys) = (q.shape::<i32>(1), q.shape::<i32>(2), k.shape::<i32>(2));
        let tile = QueryTile::of_program::<M>(mask, queries, keys, left, right);
        let (batch_head, row) = (tile.batch_head, tile.row);
        let (sequence, head) = (batch_head / heads, batch_head % heads);
        let (kv_begin, kv_end) = tile.visible_keys::<M>();
        let slope =
            if SCORE_MOD { tl::max(slopes.load::<1>(batch_head), 0) * f32::consts::LOG2_E } else { 0.0 };
        let is_biased = if SCORE_MOD { bias.shape(2) > 0 } else { false };
        // Modified scores are logarithms to base 2 already.
        let score_scale = if SCORE_MOD { 1.0 } else { scale };
        let (k, v) = (k.at(sequence).at(head / group), v.at(sequence).at(head / group));
        let q = q.at(sequence).at(head).load::<M, D>(row, 0);
        let score = |start| {
            let qk = tl::dot(q, tl::trans(k.load::<N, D>(start, 0)));
            let qk = if SCORE_MOD {
                let (k_positions, q_positions) = (start + tl::arange(0, N), tile.position + tl::arange(0, M));
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
            tile.masked::<M, N>(qk, start)
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
        let (acc, softmax) =
            attention_mainloop::<T, D, M, N>(v, kv_begin, kv_end, score_scale, score, weight);
        let (l_safe, lse_row) = softmax.sum_and_logarithm();
        let keep_scale =
            if DROPOUT { tl::select(dropout_p < 1.0, 1.0 / (1.0 - dropout_p), 0.0) } else { 1.0 };
        let normalized = acc * (keep_scale / l_safe).col();
        out.at(sequence).at(head).store(normalized.to::<T>(), row, 0);
        lse.store(tl::reshape(lse_row, [1, M, 1]), batch_head, row, 0);
    }
}

pub use kernels::attention;

/// Queries of the tiles of rows of 64 elements.
const LARGE: usize = 192;
const SMALL: usize = 128;
/// The time of a small tile that has an SM for itself, of that of a large one.
const SMALL_TIME: f64 = 0.84;
/// The queries from which on larger tiles are worth the larger blocks that the diagonal cuts.
const LONG_QUERIES: usize = 3072;
/// Large tiles for each SM up to which small ones balance better below a diagonal, and up to which the longest tile decides.
const BALANCED: f64 = 2.2;
const ONE_WAVE: f64 = 1.1;

/// Whether large tiles take less time than small ones: on GPUs with warpgroup mma. Each SM runs one after the other, a large one a quarter
/// faster for each query. Without a mask, the number of waves decides. Below a diagonal the longest tile decides, as long as small ones have an SM
/// each; a few more would share the SM of the longest; two for each SM balance better, and of many large ones are faster.
fn prefers_large_tiles(
    device: impl LaunchOn,
    mask: AttentionMask,
    [sequences, heads, queries, _]: [usize; 4],
) -> bool {
    if !device.has_wgmma() {
        return false;
    }
    let sm_count = device.parallelism();
    let tiles = |rows: usize| sequences * heads * queries.div_ceil(rows);
    if mask == AttentionMask::None {
        let waves = |rows: usize| tiles(rows).div_ceil(sm_count) as f64;
        return waves(LARGE) <= SMALL_TIME * waves(SMALL);
    }
    let per_sm = tiles(LARGE) as f64 / sm_count as f64;
    queries >= LONG_QUERIES && tiles(SMALL) > sm_count && !(ONE_WAVE..=BALANCED).contains(&per_sm)
}

/// Whether the blocks of a GPU cannot have two stages of 128 keys and values of 128 elements, and the queries, in shared memory.
fn has_little_shared_memory(device: impl LaunchOn) -> bool {
    device.shared_bytes().is_some_and(|bytes| bytes < 163 * 1024)
}
