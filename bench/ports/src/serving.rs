//! Attention as servers run it: sequences of different lengths in one tensor, 8-bit elements, sinks.

use dsl_runtime::prelude::*;

/// Attention of each sequence with itself, all of them one after the other: `q` and `out` are `[tokens, heads, D]`, `k` and `v` are
/// `[tokens, kv_heads, D]`, with strides for tokens and heads, and `group` heads of `q` share one of `k`. Sequence `s` has the tokens
/// `starts[s]..starts[s + 1]`. Program `(i, h, s)` makes `M` rows of a sequence, or none where it is shorter.
/// **Source.** `flash_attn_varlen_func` of FlashAttention-2, 2023, arXiv:2307.08691, with the grouped queries of Ainslie and others, 2023,
/// arXiv:2305.13245.
#[fuse_kernel(CAUSAL = [false, true], D = [128], M = [128], N = [64], num_warps = 8, num_stages = 3)]
pub fn varlen_attention<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    out: &mut [bf16],
    starts: &[i32],
    sm_scale: f32,
    stride_qt: i32,
    stride_qh: i32,
    stride_kt: i32,
    stride_kh: i32,
    group: i32,
) {
    let first = tl::program_id(0) * M;
    let head = tl::program_id(1);
    let sequence = tl::program_id(2);
    let begin = tl::load(starts + sequence);
    let length = tl::load(starts + sequence + 1) - begin;
    if first >= length {
        return;
    }
    let kv_head = head / group;
    let offs_d = tl::arange(0, D);
    let offs_m = first + tl::arange(0, M);
    let rows = (begin + offs_m).col() * stride_qt + head * stride_qh + offs_d.row();
    let q = tl::load(q + rows, (offs_m < length).col(), 0.0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut l_i = tl::zeros::<f32>([M]);
    let mut m_i = tl::full([M], f32::NEG_INFINITY);
    let end = if CAUSAL { tl::minimum(first + M, length) } else { length };
    for start in (0..end).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let at = (begin + offs_n) * stride_kt + kv_head * stride_kh;
        let keys = tl::load(k + (at.row() + offs_d.col()), (offs_n < length).row(), 0.0);
        let seen = (offs_n < length).row();
        let seen = if CAUSAL { seen & (offs_n.row() <= offs_m.col()) } else { seen };
        let qk = tl::select(seen, tl::dot(q, keys) * qk_scale, f32::NEG_INFINITY);
        let m_ij = tl::maximum(m_i, tl::max(qk, 1));
        let p = tl::exp2(qk - m_ij.col());
        let alpha = tl::exp2(m_i - m_ij);
        l_i = l_i * alpha + tl::sum(p, 1);
        let values = tl::load(v + (at.col() + offs_d.row()), (offs_n < length).col(), 0.0);
        acc = tl::dot(p.to::<bf16>(), values, acc * alpha.col());
        m_i = m_ij;
    }
    tl::store(out + rows, (acc / l_i.col()).to::<bf16>(), (offs_m < length).col());
}

/// Attention of 8-bit elements with a scale for each tensor: `q` and `k` are `[heads, n, D]`, `v` is `[heads, D, n]`, so that both operands
/// of each matmul are contiguous along the extent that it sums. Program `(i, h)` makes `M` rows of `out`, `[heads, n, D]`.
/// **Source.** Triton's tutorial 06 with its fp8 inputs.
#[fuse_kernel(D = [128], M = [128], N = [64], num_warps = 8, num_stages = 3)]
pub fn fp8_attention<const D: usize, const M: usize, const N: usize>(
    q: &[f8e4m3],
    k: &[f8e4m3],
    v: &[f8e4m3],
    out: &mut [bf16],
    sm_scale: f32,
    q_scale: f32,
    k_scale: f32,
    v_scale: f32,
    n: i32,
) {
    let base = tl::program_id(1) * n * D;
    let offs_m = tl::program_id(0) * M + tl::arange(0, M);
    let offs_d = tl::arange(0, D);
    let rows = base + (offs_m.col() * D + offs_d.row());
    let q = tl::load(q + rows, (offs_m < n).col(), 0.0);
    let qk_scale = sm_scale * q_scale * k_scale * f32::consts::LOG2_E;
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut l_i = tl::zeros::<f32>([M]);
    let mut m_i = tl::full([M], f32::NEG_INFINITY);
    for start in (0..n).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let keys = tl::load(k + base + (offs_n.row() * D + offs_d.col()), (offs_n < n).row(), 0.0);
        let qk = tl::select((offs_n < n).row(), tl::dot(q, keys) * qk_scale, f32::NEG_INFINITY);
        let m_ij = tl::maximum(m_i, tl::max(qk, 1));
        let p = tl::exp2(qk - m_ij.col());
        let alpha = tl::exp2(m_i - m_ij);
        l_i = l_i * alpha + tl::sum(p, 1);
        let values = tl::load(v + base + (offs_d.row() * n + offs_n.col()), (offs_n < n).col(), 0.0);
        acc = tl::dot(p.to::<f8e4m3>(), values, acc * alpha.col());
        m_i = m_ij;
    }
    tl::store(out + rows, (acc * v_scale / l_i.col()).to::<bf16>(), (offs_m < n).col());
}

/// Causal attention with a sink: `q` and `out` are `[batch, heads, n, D]`, `k` and `v` `[batch, kv_heads, n, D]`. A query sees the last `window`
/// keys up to its own position, and the softmax has one more score for each head, `sinks`, that belongs to no value. Program
/// `(i, z * heads + h)` makes `M` rows. **Source.** OpenAI, *gpt-oss-120b & gpt-oss-20b Model Card*, 2025, arXiv:2508.10925, in the loop of
/// FlashAttention-2.
#[fuse_kernel(D = [64], M = [128], N = [64], num_warps = 4, num_stages = 3)]
pub fn sink_attention<const D: usize, const M: usize, const N: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    sinks: &[f32],
    out: &mut [bf16],
    sm_scale: f32,
    heads: i32,
    kv_heads: i32,
    n: i32,
    window: i32,
) {
    let first = tl::program_id(0) * M;
    let off_hz = tl::program_id(1);
    let head = off_hz % heads;
    let kv_head = off_hz / heads * kv_heads + head / (heads / kv_heads);
    let offs_d = tl::arange(0, D);
    let offs_m = first + tl::arange(0, M);
    let rows = (off_hz * n + offs_m).col() * D + offs_d.row();
    let q = tl::load(q + rows, (offs_m < n).col(), 0.0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut l_i = tl::full([M], 1.0);
    let mut m_i = tl::full([M], tl::load(sinks + head) * f32::consts::LOG2_E);
    let begin = tl::maximum(first - window + 1, 0) / N * N;
    for start in (begin..tl::minimum(first + M, n)).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let at = kv_head * n + offs_n;
        let keys = tl::load(k + (at.row() * D + offs_d.col()), (offs_n < n).row(), 0.0);
        let behind = offs_m.col() - offs_n.row();
        let qk =
            tl::select((behind >= 0) & (behind < window), tl::dot(q, keys) * qk_scale, f32::NEG_INFINITY);
        let m_ij = tl::maximum(m_i, tl::max(qk, 1));
        let p = tl::exp2(qk - m_ij.col());
        let alpha = tl::exp2(m_i - m_ij);
        l_i = l_i * alpha + tl::sum(p, 1);
        let values = tl::load(v + (at.col() * D + offs_d.row()), (offs_n < n).col(), 0.0);
        acc = tl::dot(p.to::<bf16>(), values, acc * alpha.col());
        m_i = m_ij;
    }
    tl::store(out + rows, (acc / l_i.col()).to::<bf16>(), (offs_m < n).col());
}
