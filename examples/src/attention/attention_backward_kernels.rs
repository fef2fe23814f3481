//! The kernels of [`mod@crate::attention_backward`].

use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::HalfFloat;
    use crate::online_softmax::soft_capped;
    use crate::query_tile::{AttentionMask, QueryTile};

    /// Logarithms to base 2 of the sums of the `M` queries from `row` on, of those of a head at `lse`, which are to base e; infinity for a query
    /// that attends to no key, and behind the last query: its probabilities are 0.
    #[fuse_fn]
    fn base_2<const M: usize>(lse: &[f32], row: i32, queries: i32) -> Tile<f32> {
        let rows = row + tl::arange(0, M);
        let lse = tl::load(lse + rows, rows < queries, f32::NEG_INFINITY);
        tl::select(lse == f32::NEG_INFINITY, f32::INFINITY, lse * f32::consts::LOG2_E)
    }

    /// The logarithms of [`base_2`] and the `delta` of `M` queries from `row` on.
    #[fuse_fn]
    fn rows_of<const M: usize>(lse: &[f32], delta: &[f32], row: i32, queries: i32) -> (Tile<f32>, Tile<f32>) {
        let rows = row + tl::arange(0, M);
        (base_2::<M>(lse, row, queries), tl::load(delta + rows, rows < queries, 0.0))
    }

    /// How scores are modified and probabilities dropped.
    #[fuse_struct]
    struct ScoreMod {
        /// For powers of two, as is `softcap`; 0 for none.
        scale: f32,
        softcap: f32,
        slope: f32,
        dropout_p: f32,
        seed: u64,
    }

    impl ScoreMod {
        /// Products of queries and keys as scores, capped and with the slope's part of each `distance` from query to key; and by how much a score
        /// changes with its product, but for the scale.
        fn scores(&self, qk: Tile<f32>, distance: Tile<i32>) -> (Tile<f32>, Tile<f32>) {
            let capped =
                if self.softcap > 0.0 { soft_capped(qk, self.scale, self.softcap) } else { qk * self.scale };
            let share = if self.softcap > 0.0 { capped / self.softcap } else { tl::zeros_like(qk) };
            (tl::fma(distance.to::<f32>(), self.slope, capped), 1.0 - share * share)
        }

        /// What dropout multiplies probabilities by, which `offsets` number.
        fn kept(&self, offsets: Tile<i64>) -> Tile<f32> {
            let n_dropped = tl::ceil(self.dropout_p * 8388608.0).to::<u32>();
            let keep_scale = tl::select(self.dropout_p < 1.0, 1.0 / (1.0 - self.dropout_p), 0.0);
            tl::select(tl::randint(self.seed, offsets) >> 9 < n_dropped, 0.0, keep_scale)
        }
    }

    /// `delta = sum(out * d_out)` of each query, in `f32`: program `(i, h)` has `M` queries of head `h` of all sequences.
    #[fuse_kernel(T = [f16, bf16], D = out.shape()[3] in [64, 128, 256], M = [16], num_warps = 4)]
    pub fn attention_delta<T: HalfFloat, const D: usize, const M: usize>(
        out: &View<T, 4>,
        d_out: &View<T, 4>,
        delta: &mut [f32],
    ) {
        let (heads, queries) = (out.shape::<i32>(1), out.shape::<i32>(2));
        let (row, batch_head) = (tl::program_id(0) * M, tl::program_id(1));
        let (sequence, head) = (batch_head / heads, batch_head % heads);
        let out = out.at(sequence).at(head).load::<M, D>(row, 0).to::<f32>();
        let d_out = d_out.at(sequence).at(head).load::<M, D>(row, 0).to::<f32>();
        let rows = row + tl::arange(0, M);
        tl::store(delta + batch_head * queries + rows, tl::sum(out * d_out, 1), rows < queries);
    }

    /// `dq = ds · k * scale`, with `p = softmax(q · k^T * scale)` and `ds = p * (d_out · v^T - delta)`: a program handles `M` queries of a head,
    /// `N` keys an iteration, on the grid that [`QueryTile`] reads. Shapes are those of [`crate::attention::attention()`]; `lse` and `delta` are
    /// `[heads of all sequences, queries]`. `scale` is for powers of two, and `d_scale` the same to base e. With `SCORE_MOD` scores are modified, and with `DROPOUT` probabilities dropped,
    /// as there.
    #[fuse_kernel(
        T = [f16, bf16],
        when = q.shape()[3] <= D
            && DROPOUT == (dropout_p > 0.0)
            && SCORE_MOD == (softcap > 0.0 || slopes.shape()[0] + bias.shape()[2] > 0 || dropout_p > 0.0),
        configs = [
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 32 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 256, M: 64, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 128, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 256, M: 64, N: 32 },
        ],
    )]
    pub fn attention_dq<
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
        d_out: &View<T, 4>,
        bias: &View<T, 3>,
        slopes: &View<f32, 1>,
        lse: &[f32],
        delta: &[f32],
        dq: &mut View<T, 4>,
        mask: AttentionMask,
        group: i32,
        scale: f32,
        d_scale: f32,
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
        let (k, v) = (k.at(sequence).at(head / group), v.at(sequence).at(head / group));
        let q = q.at(sequence).at(head).load::<M, D>(row, 0);
        let d_out = d_out.at(sequence).at(head).load::<M, D>(row, 0);
        let first = batch_head * queries;
        let rows = row + tl::arange(0, M);
        let (row_lse, row_delta) = rows_of::<M>(lse + first, delta + first, row, queries);
        let slope =
            if SCORE_MOD { tl::max(slopes.load::<1>(batch_head), 0) * f32::consts::LOG2_E } else { 0.0 };
        let score_mod = ScoreMod { scale, softcap, slope, dropout_p, seed };
        let row_offsets = (first.to::<i64>() + rows.to::<i64>()) * keys.to::<i64>();
        let mut acc = tl::zeros::<f32>([M, D]);
        for start in (kv_begin..kv_end).step_by(N) {
            let k = k.load::<N, D>(start, 0);
            let qk = tl::dot(q, tl::trans(k));
            let dp = tl::dot(d_out, tl::trans(v.load::<N, D>(start, 0)));
            let ds = if SCORE_MOD {
                let key_ids = (start + tl::arange(0, N)).row();
                let (scores, share) = score_mod.scores(qk, key_ids - (rows + (keys - queries)).col());
                let scores = if bias.shape(2) > 0 {
                    let bias = bias.at(batch_head).load::<M, N>(row, start).to::<f32>();
                    tl::fma(bias, f32::consts::LOG2_E, scores)
                } else {
                    scores
                };
                let p = tl::exp2(tile.masked::<M, N>(scores, start) - row_lse.col());
                let dp =
                    if DROPOUT { dp * score_mod.kept(row_offsets.col() + key_ids.to::<i64>()) } else { dp };
                p * (dp - row_delta.col()) * share
            } else {
                let p = tl::exp2(tl::fma(tile.masked::<M, N>(qk, start), scale, -row_lse.col()));
                p * (dp - row_delta.col())
            };
            acc = tl::dot(ds.to::<T>(), k, acc);
        }
        dq.at(sequence).at(head).store((acc * d_scale).to::<T>(), row, 0);
    }

    /// `dv = p^T · d_out` and `dk = ds^T · q * scale`, with [`attention_dq()`]'s `p` and `ds`, summed over the heads that read a key head: program
    /// `(i, h)` handles `N` keys of head `h` of all sequences, `M` queries an iteration.
    #[fuse_kernel(
        T = [f16, bf16],
        when = q.shape()[3] <= D
            && DROPOUT == (dropout_p > 0.0)
            && SCORE_MOD == (softcap > 0.0 || slopes.shape()[0] + bias.shape()[2] > 0 || dropout_p > 0.0),
        configs = [
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 64, M: 64, N: 64 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 128, M: 64, N: 128 },
            { mask: AttentionMask::None, SCORE_MOD: false, DROPOUT: false, D: 256, M: 64, N: 64, num_warps: 8 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 64, M: 64, N: 64 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 64, N: 128 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 256, M: 64, N: 64, num_warps: 8 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 64, M: 64, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 64, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 256, M: 64, N: 64, num_warps: 8 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 32, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 256, M: 32, N: 64, num_warps: 8 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 128, M: 32, N: 64 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 256, M: 32, N: 64, num_warps: 8 },
        ],
    )]
    pub fn attention_dkdv<
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
        d_out: &View<T, 4>,
        bias: &View<T, 3>,
        slopes: &View<f32, 1>,
        lse: &[f32],
        delta: &[f32],
        dk: &mut View<T, 4>,
        dv: &mut View<T, 4>,
        mask: AttentionMask,
        group: i32,
        scale: f32,
        d_scale: f32,
        left: i32,
        right: i32,
        softcap: f32,
        dropout_p: f32,
        seed: u64,
    ) {
        let (heads, queries) = (q.shape::<i32>(1), q.shape::<i32>(2));
        let (key_heads, keys) = (k.shape::<i32>(1), k.shape::<i32>(2));
        let (sequence, key_head) = (tl::program_id(1) / key_heads, tl::program_id(1) % key_heads);
        let first = tl::program_id(0) * N;
        // The key that query `i` has the position of is `i + shift`.
        let shift = keys - queries;
        let (q_begin, q_end) = match mask {
            AttentionMask::None => (0, queries),
            AttentionMask::Causal => (tl::maximum(first - shift, 0) / M * M, queries),
            AttentionMask::Window => {
                let last_reader = first + (N as i32 - 1) - shift + left;
                (tl::maximum(first - shift - right, 0) / M * M, tl::minimum(last_reader + 1, queries))
            }
        };
        let blocks = tl::maximum(tl::cdiv(q_end - q_begin, M), 0);
        let (q, d_out) = (q.at(sequence), d_out.at(sequence));
        let k_tile = k.at(sequence).at(key_head).load::<N, D>(first, 0);
        let v_tile = v.at(sequence).at(key_head).load::<N, D>(first, 0);
        let (mut dk_acc, mut dv_acc) = (tl::zeros::<f32>([N, D]), tl::zeros::<f32>([N, D]));
        let first_head = key_head * group;
        let first_offset = (sequence * heads + first_head) * queries;
        let (mut next_lse, mut next_delta) =
            rows_of::<M>(lse + first_offset, delta + first_offset, q_begin, queries);
        // One loop over the queries of all heads: loads are prefetched across heads.
        for iteration in 0..group * blocks {
            let (head, row) = (first_head + iteration / blocks, q_begin + iteration % blocks * M);
            let offset = (sequence * heads + head) * queries;
            let rows = row + tl::arange(0, M);
            let (row_lse, row_delta) = (next_lse, next_delta);
            // Those of the next iteration are under way while this one multiplies; behind the last one they are those of its head again.
            let next = tl::minimum(iteration + 1, group * blocks - 1);
            let next_offset = (sequence * heads + first_head + next / blocks) * queries;
            let next_row = q_begin + next % blocks * M;
            (next_lse, next_delta) = rows_of::<M>(lse + next_offset, delta + next_offset, next_row, queries);
            let q_tile = q.at(head).load::<M, D>(row, 0);
            let qk_t = tl::dot(k_tile, tl::trans(q_tile));
            let (key_ids, positions) = ((first + tl::arange(0, N)).col(), (rows + shift).row());
            let slope = if SCORE_MOD {
                tl::max(slopes.load::<1>(sequence * heads + head), 0) * f32::consts::LOG2_E
            } else {
                0.0
            };
            let score_mod = ScoreMod { scale, softcap, slope, dropout_p, seed };
            let (p_t, share_t) = if SCORE_MOD {
                let (scores_t, share_t) = score_mod.scores(qk_t, key_ids - positions);
                let scores_t = if bias.shape(2) > 0 {
                    let bias = bias.at(sequence * heads + head).load::<M, N>(row, first).to::<f32>();
                    tl::fma(tl::trans(bias), f32::consts::LOG2_E, scores_t)
                } else {
                    scores_t
                };
                (tl::exp2(scores_t - row_lse.row()), share_t)
            } else {
                (tl::exp2(tl::fma(qk_t, scale, -row_lse.row())), 1.0)
            };
            let p_t = match mask {
                AttentionMask::None => p_t,
                _ => {
                    let reach = if mask == AttentionMask::Causal { 0 } else { right };
                    let is_cut = first + (N as i32 - 1) > row + shift + reach;
                    let is_cut_left =
                        mask == AttentionMask::Window && first < row + (M as i32 - 1) + shift - left;
                    if is_cut || is_cut_left {
                        let is_visible = key_ids <= positions + reach;
                        let is_visible = match mask {
                            AttentionMask::Window => is_visible & (key_ids >= positions - left),
                            _ => is_visible,
                        };
                        tl::select(is_visible, p_t, 0.0)
                    } else {
                        p_t
                    }
                }
            };
            let d_out_tile = d_out.at(head).load::<M, D>(row, 0);
            let kept = if DROPOUT {
                let row_offsets = (offset.to::<i64>() + rows.to::<i64>()) * keys.to::<i64>();
                score_mod.kept(row_offsets.row() + key_ids.to::<i64>())
            } else {
                1.0
            };
            let dropped_t = if DROPOUT { p_t * kept } else { p_t };
            dv_acc = tl::dot(dropped_t.to::<T>(), d_out_tile, dv_acc);
            let dp_t = tl::dot(v_tile, tl::trans(d_out_tile));
            let dp_t = if DROPOUT { dp_t * kept } else { dp_t };
            let ds_t = p_t * (dp_t - row_delta.row());
            let ds_t = if SCORE_MOD { ds_t * share_t } else { ds_t };
            dk_acc = tl::dot(ds_t.to::<T>(), q_tile, dk_acc);
        }
        dk.at(sequence).at(key_head).store((dk_acc * d_scale).to::<T>(), first, 0);
        dv.at(sequence).at(key_head).store(dv_acc.to::<T>(), first, 0);
    }
}

pub use kernels::{attention_delta, attention_dkdv, attention_dq};
