//! The kernels of [`mod@crate::attention_backward`].

use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::HalfFloat;
    use crate::query_tile::{AttentionMask, QueryTile};

    /// Logarithms to base 2 of the sums of the `M` queries from `row` on, of those of a head at `lse`, which are to base e; infinity for a query
    /// that attends to no key, and behind the last query: its probabilities are 0.
    #[fuse_fn]
    fn base_2<const M: usize>(lse: &[f32], row: i32, queries: i32) -> Tile<f32> {
        let rows = row + tl::arange(0, M);
        let lse = tl::load(lse + rows, rows < queries, f32::NEG_INFINITY);
        tl::select(lse == f32::NEG_INFINITY, f32::INFINITY, lse * f32::consts::LOG2_E)
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
    /// `[heads of all sequences, queries]`. `scale` is for powers of two, and `d_scale` the same to base e.
    #[fuse_kernel(
        T = [f16, bf16],
        when = q.shape()[3] <= D,
        configs = [{ D: 64, M: 128, N: 128 }, { D: 128, M: 128, N: 64 }, { D: 256, M: 64, N: 32 }],
    )]
    pub fn attention_dq<T: HalfFloat, const D: usize, const M: usize, const N: usize>(
        q: &View<T, 4>,
        k: &View<T, 4>,
        v: &View<T, 4>,
        d_out: &View<T, 4>,
        lse: &[f32],
        delta: &[f32],
        dq: &mut View<T, 4>,
        mask: AttentionMask,
        group: i32,
        scale: f32,
        d_scale: f32,
        left: i32,
        right: i32,
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
        let row_lse = base_2::<M>(lse + first, row, queries);
        let rows = row + tl::arange(0, M);
        let row_delta = tl::load(delta + first + rows, rows < queries, 0.0);
        let mut acc = tl::zeros::<f32>([M, D]);
        for start in (kv_begin..kv_end).step_by(N) {
            let k = k.load::<N, D>(start, 0);
            let qk = tile.masked::<M, N>(tl::dot(q, tl::trans(k)), start);
            let p = tl::exp2(tl::fma(qk, scale, -row_lse.col()));
            let dp = tl::dot(d_out, tl::trans(v.load::<N, D>(start, 0)));
            let ds = p * (dp - row_delta.col());
            acc = tl::dot(ds.to::<T>(), k, acc);
        }
        dq.at(sequence).at(head).store((acc * d_scale).to::<T>(), row, 0);
    }

    /// `dv = p^T · d_out` and `dk = ds^T · q * scale`, with [`attention_dq()`]'s `p` and `ds`, summed over the heads that read a key head: program
    /// `(i, h)` handles `N` keys of head `h` of all sequences, `M` queries an iteration.
    #[fuse_kernel(
        T = [f16, bf16],
        when = q.shape()[3] <= D,
        configs = [{ D: 64, M: 64, N: 128 }, { D: 128, M: 64, N: 128 }, { D: 256, M: 32, N: 64 }],
    )]
    pub fn attention_dkdv<T: HalfFloat, const D: usize, const M: usize, const N: usize>(
        q: &View<T, 4>,
        k: &View<T, 4>,
        v: &View<T, 4>,
        d_out: &View<T, 4>,
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
        // One loop over the queries of all heads: loads are prefetched across heads.
        for iteration in 0..group * blocks {
            let (head, row) = (key_head * group + iteration / blocks, q_begin + iteration % blocks * M);
            let offset = (sequence * heads + head) * queries;
            let rows = row + tl::arange(0, M);
            let q_tile = q.at(head).load::<M, D>(row, 0);
            let row_lse = base_2::<M>(lse + offset, row, queries);
            let qk_t = tl::dot(k_tile, tl::trans(q_tile));
            let p_t = tl::exp2(tl::fma(qk_t, scale, -row_lse.row()));
            let p_t = match mask {
                AttentionMask::None => p_t,
                _ => {
                    let reach = if mask == AttentionMask::Causal { 0 } else { right };
                    let is_cut = first + (N as i32 - 1) > row + shift + reach;
                    let is_cut_left =
                        mask == AttentionMask::Window && first < row + (M as i32 - 1) + shift - left;
                    if is_cut || is_cut_left {
                        let (keys, positions) = ((first + tl::arange(0, N)).col(), (rows + shift).row());
                        let is_visible = keys <= positions + reach;
                        let is_visible = match mask {
                            AttentionMask::Window => is_visible & (keys >= positions - left),
                            _ => is_visible,
                        };
                        tl::select(is_visible, p_t, 0.0)
                    } else {
                        p_t
                    }
                }
            };
            let d_out_tile = d_out.at(head).load::<M, D>(row, 0);
            dv_acc = tl::dot(p_t.to::<T>(), d_out_tile, dv_acc);
            let row_delta = tl::load(delta + offset + rows, rows < queries, 0.0);
            let ds_t = p_t * (tl::dot(v_tile, tl::trans(d_out_tile)) - row_delta.row());
            dk_acc = tl::dot(ds_t.to::<T>(), q_tile, dk_acc);
        }
        dk.at(sequence).at(key_head).store((dk_acc * d_scale).to::<T>(), first, 0);
        dv.at(sequence).at(key_head).store(dv_acc.to::<T>(), first, 0);
    }
}

pub use kernels::{attention_delta, attention_dkdv, attention_dq};
