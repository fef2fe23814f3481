//! Attention of one query a sequence over caches of latent or 8-bit keys.

use dsl_runtime::prelude::*;

/// Multi-head latent attention of one query, split along keys. All `heads` share one row of `cache`, `[sequences, max_keys, D + ROPE]`, for
/// each key: the whole row is the key, its first `D` elements are the value. `q` is `[sequences, heads, D + ROPE]`, and `lengths` counts the
/// keys of each sequence. Program `(p, i, s)` attends `H` heads to part `p` of the keys of sequence `s`. It stores the result to `partial`,
/// `[sequences, heads, parts, D]`, and the logarithm of its sum of exponentials to `lse`, for [`merge_parts()`].
/// **Source.** DeepSeek-V2, 2024, arXiv:2405.04434, section 2.1, with absorbed projections, split along keys as Flash-Decoding.
#[fuse_kernel(D = [512], ROPE = [64], N = [32], configs = [{ H: 16, num_warps: 4 }, { H: 64, num_warps: 8 }], num_stages = 2)]
pub fn mla_decode<const H: usize, const D: usize, const ROPE: usize, const N: usize>(
    q: &[bf16],
    cache: &[bf16],
    lengths: &[i32],
    partial: &mut [f32],
    lse: &mut [f32],
    scale: f32,
    heads: i32,
    max_keys: i32,
) {
    let part = tl::program_id(0);
    let sequence = tl::program_id(2);
    let offs_h = tl::program_id(1) * H + tl::arange(0, H);
    let offs_d = tl::arange(0, D);
    let offs_r = D + tl::arange(0, ROPE);
    let length = tl::load(lengths + sequence);
    let share = tl::cdiv(tl::cdiv(length, N), tl::num_programs(0)) * N;
    let first = part * share;
    let end = tl::minimum(first + share, length);
    let q_rows = ((sequence * heads + offs_h) * (D + ROPE)).col();
    let q_latent = tl::load(q + q_rows + offs_d.row(), (offs_h < heads).col(), 0.0);
    let q_rope = tl::load(q + q_rows + offs_r.row(), (offs_h < heads).col(), 0.0);
    let mut acc = tl::zeros::<f32>([H, D]);
    let mut l_i = tl::zeros::<f32>([H]);
    let mut m_i = tl::full([H], f32::NEG_INFINITY);
    for start in (first..end).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let rows = ((sequence * max_keys + offs_n) * (D + ROPE)).col();
        let latent = tl::load(cache + rows + offs_d.row(), (offs_n < end).col(), 0.0);
        let rope = tl::load(cache + rows + offs_r.row(), (offs_n < end).col(), 0.0);
        let qk = tl::dot(q_rope, tl::trans(rope), tl::dot(q_latent, tl::trans(latent))) * scale;
        let qk = tl::select((offs_n < end).row(), qk, f32::NEG_INFINITY);
        let m_ij = tl::maximum(m_i, tl::max(qk, 1));
        let p = tl::exp(qk - m_ij.col());
        let alpha = tl::exp(m_i - m_ij);
        l_i = l_i * alpha + tl::sum(p, 1);
        acc = tl::dot(p.to::<bf16>(), latent, acc * alpha.col());
        m_i = m_ij;
    }
    // A part without keys has the weight 0.
    let scaled = acc * tl::select(l_i > 0.0, 1.0 / l_i, 0.0).col();
    let at = (sequence * heads + offs_h) * tl::num_programs(0) + part;
    tl::store(partial + at.col() * D + offs_d.row(), scaled, (offs_h < heads).col());
    tl::store(lse + at, m_i + tl::log(l_i), offs_h < heads);
}

/// Merges the results of attention to parts of the keys: `partial`, `[rows, parts, D]`, weighted by the exponentials of `lse`, `[rows, parts]`.
/// Program `i` makes row `i` of `out`, `[rows, D]`; the first part has keys. **Source.** Dao and others, *Flash-Decoding for long-context
/// inference*, 2023, its last step.
#[fuse_kernel(D = [512], num_warps = 4)]
pub fn merge_parts<const D: usize>(partial: &[f32], lse: &[f32], out: &mut [bf16], parts: i32) {
    let row = tl::program_id(0);
    let offs_d = tl::arange(0, D);
    let mut m = f32::NEG_INFINITY;
    let mut l = 0.0;
    let mut acc = tl::zeros::<f32>([D]);
    for part in 0..parts {
        let at = row * parts + part;
        let part_lse = tl::load(lse + at);
        let m_new = tl::maximum(m, part_lse);
        let alpha = tl::exp(m - m_new);
        let p = tl::exp(part_lse - m_new);
        acc = acc * alpha + p * tl::load(partial + at * D + offs_d);
        l = l * alpha + p;
        m = m_new;
    }
    tl::store(out + row * D + offs_d, (acc / l).to::<bf16>());
}

/// One query of each head over `i8` keys and values, which have a scale for each row: `q` and `out` are `[sequences, heads, D]`, the caches
/// `[sequences, max_keys, kv_heads, D]` and their scales without the last axis. The `heads / kv_heads` queries that share a head of keys,
/// at most `G`, are the rows of program `(h, s)`. **Source.** Grouped queries of Ainslie and others, 2023, arXiv:2305.13245, with the 8-bit
/// cache of vLLM and one scale a token and head.
#[fuse_kernel(D = [128], G = [16], N = [64], num_warps = 4, num_stages = 3)]
pub fn int8_decode<const D: usize, const G: usize, const N: usize>(
    q: &[bf16],
    k_cache: &[i8],
    v_cache: &[i8],
    k_scales: &[f32],
    v_scales: &[f32],
    lengths: &[i32],
    out: &mut [bf16],
    scale: f32,
    heads: i32,
    kv_heads: i32,
    max_keys: i32,
) {
    let kv_head = tl::program_id(0);
    let sequence = tl::program_id(1);
    let group = heads / kv_heads;
    let offs_g = tl::arange(0, G);
    let offs_d = tl::arange(0, D);
    let length = tl::load(lengths + sequence);
    let q_rows = sequence * heads + kv_head * group + offs_g;
    let q_offsets = q_rows.col() * D + offs_d.row();
    let q = tl::load(q + q_offsets, (offs_g < group).col(), 0.0);
    let mut acc = tl::zeros::<f32>([G, D]);
    let mut l_i = tl::zeros::<f32>([G]);
    let mut m_i = tl::full([G], f32::NEG_INFINITY);
    for start in (0..length).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let rows = (sequence * max_keys + offs_n) * kv_heads + kv_head;
        let offsets = rows.col() * D + offs_d.row();
        let present = offs_n < length;
        let keys = tl::load(k_cache + offsets, present.col(), 0).to::<bf16>();
        let k_scale = tl::load(k_scales + rows, present, 0.0);
        let qk = tl::dot(q, tl::trans(keys)) * (k_scale * scale).row();
        let qk = tl::select(present.row(), qk, f32::NEG_INFINITY);
        let m_ij = tl::maximum(m_i, tl::max(qk, 1));
        let p = tl::exp(qk - m_ij.col());
        let alpha = tl::exp(m_i - m_ij);
        l_i = l_i * alpha + tl::sum(p, 1);
        let values = tl::load(v_cache + offsets, present.col(), 0).to::<bf16>();
        let v_scale = tl::load(v_scales + rows, present, 0.0);
        acc = tl::dot((p * v_scale.row()).to::<bf16>(), values, acc * alpha.col());
        m_i = m_ij;
    }
    tl::store(out + q_offsets, (acc / l_i.col()).to::<bf16>(), (offs_g < group).col());
}
