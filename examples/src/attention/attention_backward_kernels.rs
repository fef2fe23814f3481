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

    /// A scale for powers of two as one to base e. The smallest stands for 0: see [`crate::attention`].
    #[fuse_fn]
    fn natural(scale: f32) -> f32 {
        tl::select(scale > f32::MIN_POSITIVE, scale * f32::consts::LN_2, 0.0)
    }

    /// The logarithms of [`base_2`] and the `delta` of `M` queries from `row` on.
    #[fuse_fn]
    fn rows_of<const M: usize>(lse: &[f32], delta: &[f32], row: i32, queries: i32) -> (Tile<f32>, Tile<f32>) {
        let rows = row + tl::arange(0, M);
        (base_2::<M>(lse, row, queries), tl::load(delta + rows, rows < queries, 0.0))
    }

    /// Products of queries and keys as modified scores, for powers of two: with a `softcap`, `slope` times the `distance` from query to key, and where
    /// `is_biased` a bias to base e. Then by how much each changes with its product, but for the scale.
    #[fuse_fn]
    fn scores(
        qk: Tile<f32>,
        scale: f32,
        softcap: f32,
        slope: Tile<f32>,
        distance: Tile<i32>,
        is_biased: bool,
        bias: impl Fn() -> Tile<f32>,
    ) -> (Tile<f32>, Tile<f32>) {
        let capped = if softcap > 0.0 { soft_capped(qk, scale, softcap) } else { qk * scale };
        let share = if softcap > 0.0 { capped / softcap } else { tl::zeros_like(qk) };
        let sloped = tl::fma(distance.to::<f32>(), slope, capped);
        (if is_biased { tl::fma(bias(), f32::consts::LOG2_E, sloped) } else { sloped }, 1.0 - share * share)
    }

    /// What dropout multiplies probabilities by, which `offsets` number.
    #[fuse_fn]
    fn kept(dropout_p: f32, seed: u64, offsets: Tile<i64>) -> Tile<f32> {
        let n_dropped = tl::ceil(dropout_p * 8388608.0).to::<u32>();
        let keep_scale = tl::select(dropout_p < 1.0, 1.0 / (1.0 - dropout_p), 0.0);
        tl::select(tl::randint(seed, offsets) >> 9 < n_dropped, 0.0, keep_scale)
    }

    /// The keys of a program, and which queries attend to them.
    #[fuse_struct]
    struct KeyTile {
        mask: AttentionMask,
        /// The first key.
        first: i32,
        /// The key that has the position of query `i` is `i + shift`.
        shift: i32,
        left: i32,
        right: i32,
    }

    impl KeyTile {
        /// A multiple of `M` up to the first query that attends to any of the `N` keys, and how many blocks of `M` from there have such queries.
        fn readers<const M: usize, const N: usize>(&self, queries: i32) -> (Tile<i32>, Tile<i32>) {
            let (begin, end) = match self.mask {
                AttentionMask::None => (0, queries),
                AttentionMask::Causal => (tl::maximum(self.first - self.shift, 0) / M * M, queries),
                AttentionMask::Window => {
                    let begin = tl::maximum(self.first - self.shift - self.right, 0) / M * M;
                    let last = self.first + (N as i32 - 1) - self.shift + self.left;
                    (begin, tl::minimum(last + 1, queries))
                }
            };
            (begin, tl::maximum(tl::cdiv(end - begin, M), 0))
        }

        /// Probabilities `[N, M]` of the queries from `row` on, 0 where one does not attend to the key.
        fn masked<const M: usize, const N: usize>(&self, p_t: Tile<f32>, row: i32) -> Tile<f32> {
            let position = row + self.shift;
            let reach = match self.mask {
                AttentionMask::Window => self.right,
                _ => 0,
            };
            let is_cut_right = self.first + (N as i32 - 1) > position + reach;
            let is_cut_left = self.first < position + (M as i32 - 1) - self.left;
            let is_partial = match self.mask {
                AttentionMask::None => false,
                AttentionMask::Causal => is_cut_right,
                AttentionMask::Window => is_cut_right || is_cut_left,
            };
            if is_partial {
                let keys = (self.first + tl::arange(0, N)).col();
                let positions = (position + tl::arange(0, M)).row();
                let is_visible = match self.mask {
                    AttentionMask::Window => (keys <= positions + reach) & (keys >= positions - self.left),
                    _ => keys <= positions,
                };
                tl::select(is_visible, p_t, 0.0)
            } else {
                p_t
            }
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
    /// `[heads of all sequences, queries]`. `scale` is for powers of two. With `SCORE_MOD` scores are modified, and with `DROPOUT` probabilities dropped,
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
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 48 },
            { mask: AttentionMask::Causal, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 64, M: 128, N: 128 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 128, M: 128, N: 48 },
            { mask: AttentionMask::Window, SCORE_MOD: false, DROPOUT: false, D: 256, M: 128, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 128, M: 64, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: false, D: 256, M: 64, N: 32 },
            { mask: AttentionMask::Window, SCORE_MOD: true, DROPOUT: true, D: 128, M: 64, N: 32 },
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
        let row_offsets = (first.to::<i64>() + rows.to::<i64>()) * keys.to::<i64>();
        let mut acc = tl::zeros::<f32>([M, D]);
        for start in (kv_begin..kv_end).step_by(N) {
            let k = k.load::<N, D>(start, 0);
            let qk = tl::dot(q, tl::trans(k));
            let key_ids = (start + tl::arange(0, N)).row();
            let (p, share) = if SCORE_MOD {
                let slope = tl::max(slopes.load::<1>(batch_head), 0) * f32::consts::LOG2_E;
                let distance = key_ids - (rows + (keys - queries)).col();
                let bias_tile = || bias.at(batch_head).load::<M, N>(row, start).to::<f32>();
                let (scores, share) =
                    scores(qk, scale, softcap, slope, distance, bias.shape(2) > 0, bias_tile);
                (tl::exp2(tile.masked::<M, N>(scores, start) - row_lse.col()), share)
            } else {
                (tl::exp2(tl::fma(tile.masked::<M, N>(qk, start), scale, -row_lse.col())), 1.0)
            };
            let offsets = row_offsets.col() + key_ids.to::<i64>();
            let kept = if DROPOUT { kept(dropout_p, seed, offsets) } else { 1.0 };
            let dp = tl::dot(d_out, tl::trans(v.load::<N, D>(start, 0)));
            let dp = if DROPOUT { dp * kept } else { dp };
            let ds = p * (dp - row_delta.col());
            let ds = if SCORE_MOD { ds * share } else { ds };
            acc = tl::dot(ds.to::<T>(), k, acc);
        }
        dq.at(sequence).at(head).store((acc * natural(scale)).to::<T>(), row, 0);
    }

    /// `dv = p^T · d_out` and `dk = ds^T · q * scale`, with [`attention_dq()`]'s `p` and `ds`, summed over the heads that read a key head: program
    /// `(i, h)` handles `N` keys of head `h` of all sequences, `M` queries an iteration, in one
    /// loop over all heads.
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
        left: i32,
        right: i32,
        softcap: f32,
        dropout_p: f32,
        seed: u64,
    ) {
        let (heads, queries) = (q.shape::<i32>(1), q.shape::<i32>(2));
        let (key_heads, keys) = (k.shape::<i32>(1), k.shape::<i32>(2));
        let (sequence, key_head) = (tl::program_id(1) / key_heads, tl::program_id(1) % key_heads);
        let tile = KeyTile { mask, first: tl::program_id(0) * N, shift: keys - queries, left, right };
        let (q_begin, blocks) = tile.readers::<M, N>(queries);
        let (q, d_out) = (q.at(sequence), d_out.at(sequence));
        let k_tile = k.at(sequence).at(key_head).load::<N, D>(tile.first, 0);
        let v_tile = v.at(sequence).at(key_head).load::<N, D>(tile.first, 0);
        let (mut dk_acc, mut dv_acc) = (tl::zeros::<f32>([N, D]), tl::zeros::<f32>([N, D]));
        for iteration in 0..group * blocks {
            let head = key_head * group + iteration / blocks;
            let row = q_begin + iteration % blocks * M;
            let offset = (sequence * heads + head) * queries;
            let rows = row + tl::arange(0, M);
            let (row_lse, row_delta) = rows_of::<M>(lse + offset, delta + offset, row, queries);
            let q_tile = q.at(head).load::<M, D>(row, 0);
            let qk_t = tl::dot(k_tile, tl::trans(q_tile));
            let key_ids = (tile.first + tl::arange(0, N)).col();
            let (p_t, share_t) = if SCORE_MOD {
                let batch_head = sequence * heads + head;
                let slope = tl::max(slopes.load::<1>(batch_head), 0) * f32::consts::LOG2_E;
                let distance = key_ids - (rows + tile.shift).row();
                let bias_tile = || tl::trans(bias.at(batch_head).load::<M, N>(row, tile.first).to::<f32>());
                let (scores_t, share_t) =
                    scores(qk_t, scale, softcap, slope, distance, bias.shape(2) > 0, bias_tile);
                (tl::exp2(scores_t - row_lse.row()), share_t)
            } else {
                (tl::exp2(tl::fma(qk_t, scale, -row_lse.row())), 1.0)
            };
            let p_t = tile.masked::<M, N>(p_t, row);
            let d_out_tile = d_out.at(head).load::<M, D>(row, 0);
            let row_offsets = (offset.to::<i64>() + rows.to::<i64>()) * keys.to::<i64>();
            let offsets = row_offsets.row() + key_ids.to::<i64>();
            let kept_t = if DROPOUT { kept(dropout_p, seed, offsets) } else { 1.0 };
            // This dot comes first: both `p_t` and its rounded copy would live through the next one.
            dv_acc = tl::dot((p_t * kept_t).to::<T>(), d_out_tile, dv_acc);
            let dp_t = tl::dot(v_tile, tl::trans(d_out_tile)) * kept_t;
            let ds_t = p_t * (dp_t - row_delta.row()) * share_t;
            dk_acc = tl::dot(ds_t.to::<T>(), q_tile, dk_acc);
        }
        dk.at(sequence).at(key_head).store((dk_acc * natural(scale)).to::<T>(), tile.first, 0);
        dv.at(sequence).at(key_head).store(dv_acc.to::<T>(), tile.first, 0);
    }
}

pub use kernels::{attention_delta, attention_dkdv, attention_dq};
