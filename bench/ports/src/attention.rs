//! Attention in blocks of keys with a running softmax.

use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    /// Adds the keys `first..end` to what a program has so far: sums, sums of exponentials, maxima.
    #[fuse_fn]
    fn attend<const D: usize, const M: usize, const N: usize, const DIAGONAL: bool>(
        q: Tile<bf16>,
        k: &[bf16],
        v: &[bf16],
        state: (Tile<f32>, Tile<f32>, Tile<f32>),
        first: i32,
        end: i32,
        offs_m: Tile<i32>,
        stride_n: i32,
        n_ctx: i32,
        qk_scale: f32,
    ) -> (Tile<f32>, Tile<f32>, Tile<f32>) {
        let (mut acc, mut l_i, mut m_i) = state;
        let offs_d = tl::arange(0, D);
        for start_n in (first..end).step_by(N) {
            let offs_n = start_n + tl::arange(0, N);
            let keys = tl::load(k + (offs_n.row() * stride_n + offs_d.col()), (offs_n < n_ctx).row(), 0.0);
            let qk = tl::dot(q, keys) * qk_scale;
            let in_mask = if DIAGONAL {
                (offs_m.col() >= offs_n.row()) & (offs_n < n_ctx).row()
            } else {
                (offs_n < n_ctx).row()
            };
            let qk = tl::select(in_mask, qk, f32::NEG_INFINITY);
            let m_ij = tl::maximum(m_i, tl::max(qk, 1));
            let p = tl::exp2(qk - m_ij.col());
            let alpha = tl::exp2(m_i - m_ij);
            l_i = l_i * alpha + tl::sum(p, 1);
            let values = tl::load(v + (offs_n.col() * stride_n + offs_d.row()), (offs_n < n_ctx).col(), 0.0);
            acc = tl::dot(p.to::<bf16>(), values, acc * alpha.col());
            m_i = m_ij;
        }
        (acc, l_i, m_i)
    }

    /// `out = softmax(q · kᵀ * sm_scale) · v` for each head, all of `[batch, heads, n_ctx, D]` with strides for batches, heads and rows.
    /// Program `(i, z * heads + h)` makes `M` rows; where `CAUSAL`, keys before its first row come in a loop without a mask on pairs.
    /// **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 1, as Triton's tutorial 06 has it.
    #[fuse_kernel(CAUSAL = [false, true], D = [128], M = [128], N = [64], num_warps = 8, num_stages = 3)]
    pub fn flash_attention<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
        q: &[bf16],
        k: &[bf16],
        v: &[bf16],
        out: &mut [bf16],
        lse: &mut [f32],
        sm_scale: f32,
        stride_z: i32,
        stride_h: i32,
        stride_n: i32,
        heads: i32,
        n_ctx: i32,
    ) {
        let start_m = tl::program_id(0);
        let off_hz = tl::program_id(1);
        let base = (off_hz / heads) * stride_z + (off_hz % heads) * stride_h;
        let offs_m = start_m * M + tl::arange(0, M);
        let offs_d = tl::arange(0, D);
        let rows = base + (offs_m.col() * stride_n + offs_d.row());
        let q = tl::load(q + rows, (offs_m < n_ctx).col(), 0.0);
        let qk_scale = sm_scale * f32::consts::LOG2_E;
        let state = (tl::zeros::<f32>([M, D]), tl::zeros::<f32>([M]), tl::full([M], f32::NEG_INFINITY));
        let (acc, l_i, m_i) = if CAUSAL {
            let lo = start_m * M;
            let hi = tl::minimum(lo + M, n_ctx);
            let before = attend::<D, M, N, false>(
                q,
                k + base,
                v + base,
                state,
                0,
                lo,
                offs_m,
                stride_n,
                n_ctx,
                qk_scale,
            );
            attend::<D, M, N, true>(q, k + base, v + base, before, lo, hi, offs_m, stride_n, n_ctx, qk_scale)
        } else {
            attend::<D, M, N, false>(
                q,
                k + base,
                v + base,
                state,
                0,
                n_ctx,
                offs_m,
                stride_n,
                n_ctx,
                qk_scale,
            )
        };
        tl::store(lse + off_hz * n_ctx + offs_m, m_i + tl::log2(l_i), offs_m < n_ctx);
        tl::store(out + rows, (acc / l_i.col()).to::<bf16>(), (offs_m < n_ctx).col());
    }
}

pub use kernels::flash_attention;

/// `out = softmax(f(q · kᵀ * scale)) · v` for each head of `[heads, length, D]`, with blocks of views for what Triton has tensor
/// descriptors for, and every formula as the paper has it: `exp`, a mask for each score, a scale. `FORM` is 0 where every query sees
/// every key, 1 where it sees those up to its own position, and 2 where scores are also capped: `f(s)` is `cap * tanh(s / cap)`, and `s`
/// otherwise. Program `(i, h)` makes `M` rows. **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 1; the cap is
/// Gemma 2's, arXiv:2408.00118.
#[fuse_kernel(FORM = [0, 1, 2], D = [128], M = [128], N = [128], num_warps = 8)]
pub fn attention_by_views<const FORM: usize, const D: usize, const M: usize, const N: usize>(
    q: &View<bf16, 3>,
    k: &View<bf16, 3>,
    v: &View<bf16, 3>,
    out: &mut View<bf16, 3>,
    scale: f32,
    cap: f32,
) {
    let (head, first) = (tl::program_id(1), tl::program_id(0) * M);
    let keys = k.shape::<i32>(1);
    let rows = first + tl::arange(0, M);
    let q = q.at(head).load::<M, D>(first, 0);
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut l = tl::zeros::<f32>([M]);
    let mut m = tl::full([M], f32::NEG_INFINITY);
    let end = if FORM == 0 { keys } else { tl::minimum(first + M, keys) };
    for start in (0..end).step_by(N) {
        let cols = start + tl::arange(0, N);
        let k = k.at(head).load::<N, D>(start, 0);
        let s = tl::dot(q, tl::trans(k)) * scale;
        let s = if FORM == 2 { cap * tl::tanh(s / cap) } else { s };
        let in_mask = (cols < keys).row();
        let in_mask = if FORM == 0 { in_mask } else { in_mask & (cols.row() <= rows.col()) };
        let s = tl::select(in_mask, s, f32::NEG_INFINITY);
        let m_new = tl::maximum(m, tl::max(s, 1));
        let p = tl::exp(s - m_new.col());
        let alpha = tl::exp(m - m_new);
        l = l * alpha + tl::sum(p, 1);
        let v = v.at(head).load::<N, D>(start, 0);
        acc = tl::dot(p.to::<bf16>(), v, acc * alpha.col());
        m = m_new;
    }
    out.at(head).store((acc / l.col()).to::<bf16>(), first, 0);
}

/// One query of each head over the keys of a paged cache: `q` and `out` are `[sequences, heads, D]`, the caches `[pages, 16, heads, D]`,
/// `table` names the pages of each sequence, `[sequences, max_pages]`, and `lengths` how many keys it has. Program `(s, h)` takes one page a
/// turn. **Source.** Kwon and others, *PagedAttention*, 2023, arXiv:2309.06180, section 4.1.
#[fuse_kernel(D = [128], num_warps = 4)]
pub fn paged_decode<const D: usize>(
    q: &[bf16],
    k_cache: &[bf16],
    v_cache: &[bf16],
    table: &[i32],
    lengths: &[i32],
    out: &mut [bf16],
    scale: f32,
    heads: i32,
    max_pages: i32,
) {
    let sequence = tl::program_id(0);
    let head = tl::program_id(1);
    let offs_d = tl::arange(0, D);
    let slots = tl::arange(0, 16);
    let length = tl::load(lengths + sequence);
    let q = tl::load(q + (sequence * heads + head) * D + offs_d).to::<f32>() * scale;
    let mut m = f32::NEG_INFINITY;
    let mut l = 0.0;
    let mut acc = tl::zeros::<f32>([D]);
    for page in 0..tl::cdiv(length, 16) {
        let block = tl::load(table + sequence * max_pages + page);
        let rows = (block * 16 + slots) * heads + head;
        let offsets = rows.col() * D + offs_d.row();
        let in_mask = page * 16 + slots < length;
        let k = tl::load(k_cache + offsets, in_mask.col(), 0.0).to::<f32>();
        let qk = tl::select(in_mask, tl::sum(q.row() * k, 1), f32::NEG_INFINITY);
        let m_new = tl::maximum(m, tl::max(qk, 0));
        let alpha = tl::exp(m - m_new);
        let p = tl::exp(qk - m_new);
        let v = tl::load(v_cache + offsets, in_mask.col(), 0.0).to::<f32>();
        acc = acc * alpha + tl::sum(p.col() * v, 0);
        l = l * alpha + tl::sum(p, 0);
        m = m_new;
    }
    tl::store(out + (sequence * heads + head) * D + offs_d, (acc / l).to::<bf16>());
}
