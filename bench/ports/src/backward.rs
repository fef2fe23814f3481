//! The gradients of attention, from the logarithms of its sums of exponentials, by pointers and by views.

use dsl_runtime::prelude::*;

/// The gradients of keys and values of `out = softmax(q · kᵀ * sm_scale) · v`, all of `[heads, n, D]`: `dv = pᵀ · d_out` and
/// `dk = dsᵀ · q * sm_scale` with `ds = p * (d_out · vᵀ - delta)`. `lse` has the logarithms to base 2 that
/// [`flash_attention`](crate::attention::flash_attention()) stores, `delta` the sums of `d_out * out` along rows, both `[heads, n]`.
/// Program `(i, h)` has `N` keys and takes `M` queries an iteration.
/// **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2, as `_attn_bwd_dkdv` of Triton's tutorial 06.
#[fuse_kernel(CAUSAL = [false, true], D = [128], M = [32], N = [128], num_warps = 4, num_stages = 3)]
pub fn attention_dkdv<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    d_out: &[bf16],
    lse: &[f32],
    delta: &[f32],
    dk: &mut [bf16],
    dv: &mut [bf16],
    sm_scale: f32,
    n: i32,
) {
    let first = tl::program_id(0) * N;
    let first_row = tl::program_id(1) * n;
    let offs_n = first + tl::arange(0, N);
    let offs_d = tl::arange(0, D);
    let at_keys = (first_row + offs_n).col() * D + offs_d.row();
    let k = tl::load(k + at_keys, (offs_n < n).col(), 0.0);
    let v = tl::load(v + at_keys, (offs_n < n).col(), 0.0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut k_sum = tl::zeros::<f32>([N, D]);
    let mut v_sum = tl::zeros::<f32>([N, D]);
    let begin = if CAUSAL { first } else { 0 };
    for start in (begin..n).step_by(M) {
        let offs_m = start + tl::arange(0, M);
        let rows = first_row + offs_m;
        let q_t = tl::load(q + rows.row() * D + offs_d.col(), (offs_m < n).row(), 0.0);
        let row_lse = tl::load(lse + rows, offs_m < n, 0.0);
        let p_t = tl::exp2(tl::dot(k, q_t) * qk_scale - row_lse.row());
        let p_t = if CAUSAL { tl::select(offs_n.col() <= offs_m.row(), p_t, 0.0) } else { p_t };
        let d_out = tl::load(d_out + rows.col() * D + offs_d.row(), (offs_m < n).col(), 0.0);
        v_sum = tl::dot(p_t.to::<bf16>(), d_out, v_sum);
        let row_delta = tl::load(delta + rows, offs_m < n, 0.0);
        let ds_t = p_t * (tl::dot(v, tl::trans(d_out)) - row_delta.row());
        k_sum = tl::dot(ds_t.to::<bf16>(), tl::trans(q_t), k_sum);
    }
    tl::store(dv + at_keys, v_sum.to::<bf16>(), (offs_n < n).col());
    tl::store(dk + at_keys, (k_sum * sm_scale).to::<bf16>(), (offs_n < n).col());
}

/// The gradient of the queries of the same attention, `dq = ds · k * sm_scale` with [`attention_dkdv()`]'s `ds`. Program `(i, h)` has `M`
/// queries and takes `N` keys an iteration.
/// **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2, as `_attn_bwd_dq` of Triton's tutorial 06.
#[fuse_kernel(CAUSAL = [false, true], D = [128], M = [128], N = [32], num_warps = 4, num_stages = 3)]
pub fn attention_dq<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    d_out: &[bf16],
    lse: &[f32],
    delta: &[f32],
    dq: &mut [bf16],
    sm_scale: f32,
    n: i32,
) {
    let first = tl::program_id(0) * M;
    let first_row = tl::program_id(1) * n;
    let offs_m = first + tl::arange(0, M);
    let offs_d = tl::arange(0, D);
    let at_rows = (first_row + offs_m).col() * D + offs_d.row();
    let q = tl::load(q + at_rows, (offs_m < n).col(), 0.0);
    let d_out = tl::load(d_out + at_rows, (offs_m < n).col(), 0.0);
    let row_lse = tl::load(lse + first_row + offs_m, offs_m < n, 0.0);
    let row_delta = tl::load(delta + first_row + offs_m, offs_m < n, 0.0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut q_sum = tl::zeros::<f32>([M, D]);
    let end = if CAUSAL { tl::minimum(first + M, n) } else { n };
    for start in (0..end).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let at_keys = (first_row + offs_n).row() * D + offs_d.col();
        let k_t = tl::load(k + at_keys, (offs_n < n).row(), 0.0);
        let v_t = tl::load(v + at_keys, (offs_n < n).row(), 0.0);
        let p = tl::exp2(tl::dot(q, k_t) * qk_scale - row_lse.col());
        let p = if CAUSAL { tl::select(offs_n.row() <= offs_m.col(), p, 0.0) } else { p };
        let ds = p * (tl::dot(d_out, v_t) - row_delta.col());
        q_sum = tl::dot(ds.to::<bf16>(), tl::trans(k_t), q_sum);
    }
    tl::store(dq + at_rows, (q_sum * sm_scale).to::<bf16>(), (offs_m < n).col());
}

/// [`attention_dkdv()`] with blocks of views of `[heads, n, D]` for what Triton has tensor descriptors for.
/// **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2, as `_attn_bwd_dkdv` of Triton's tutorial 06.
#[fuse_kernel(CAUSAL = [false, true], D = [128], M = [32], N = [128], num_warps = 4, num_stages = 3)]
pub fn attention_dkdv_by_views<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &View<bf16, 3>,
    k: &View<bf16, 3>,
    v: &View<bf16, 3>,
    d_out: &View<bf16, 3>,
    lse: &[f32],
    delta: &[f32],
    dk: &mut View<bf16, 3>,
    dv: &mut View<bf16, 3>,
    sm_scale: f32,
) {
    let (head, first) = (tl::program_id(1), tl::program_id(0) * N);
    let n = q.shape::<i32>(1);
    let offs_n = first + tl::arange(0, N);
    let k = k.at(head).load::<N, D>(first, 0);
    let v = v.at(head).load::<N, D>(first, 0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut k_sum = tl::zeros::<f32>([N, D]);
    let mut v_sum = tl::zeros::<f32>([N, D]);
    let begin = if CAUSAL { first } else { 0 };
    for start in (begin..n).step_by(M) {
        let offs_m = start + tl::arange(0, M);
        let q = q.at(head).load::<M, D>(start, 0);
        let row_lse = tl::load(lse + head * n + offs_m, offs_m < n, 0.0);
        let p_t = tl::exp2(tl::dot(k, tl::trans(q)) * qk_scale - row_lse.row());
        let p_t = if CAUSAL { tl::select(offs_n.col() <= offs_m.row(), p_t, 0.0) } else { p_t };
        let d_out = d_out.at(head).load::<M, D>(start, 0);
        v_sum = tl::dot(p_t.to::<bf16>(), d_out, v_sum);
        let row_delta = tl::load(delta + head * n + offs_m, offs_m < n, 0.0);
        let ds_t = p_t * (tl::dot(v, tl::trans(d_out)) - row_delta.row());
        k_sum = tl::dot(ds_t.to::<bf16>(), q, k_sum);
    }
    dv.at(head).store(v_sum.to::<bf16>(), first, 0);
    dk.at(head).store((k_sum * sm_scale).to::<bf16>(), first, 0);
}

/// [`attention_dq()`] with blocks of views of `[heads, n, D]` for what Triton has tensor descriptors for.
/// **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2, as `_attn_bwd_dq` of Triton's tutorial 06.
#[fuse_kernel(CAUSAL = [false, true], D = [128], M = [128], N = [32], num_warps = 4, num_stages = 3)]
pub fn attention_dq_by_views<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &View<bf16, 3>,
    k: &View<bf16, 3>,
    v: &View<bf16, 3>,
    d_out: &View<bf16, 3>,
    lse: &[f32],
    delta: &[f32],
    dq: &mut View<bf16, 3>,
    sm_scale: f32,
) {
    let (head, first) = (tl::program_id(1), tl::program_id(0) * M);
    let n = k.shape::<i32>(1);
    let offs_m = first + tl::arange(0, M);
    let q = q.at(head).load::<M, D>(first, 0);
    let d_out = d_out.at(head).load::<M, D>(first, 0);
    let row_lse = tl::load(lse + head * n + offs_m, offs_m < n, 0.0);
    let row_delta = tl::load(delta + head * n + offs_m, offs_m < n, 0.0);
    let qk_scale = sm_scale * f32::consts::LOG2_E;
    let mut q_sum = tl::zeros::<f32>([M, D]);
    let end = if CAUSAL { tl::minimum(first + M, n) } else { n };
    for start in (0..end).step_by(N) {
        let offs_n = start + tl::arange(0, N);
        let k = k.at(head).load::<N, D>(start, 0);
        let v = v.at(head).load::<N, D>(start, 0);
        let p = tl::exp2(tl::dot(q, tl::trans(k)) * qk_scale - row_lse.col());
        let p = if CAUSAL { tl::select(offs_n.row() <= offs_m.col(), p, 0.0) } else { p };
        let ds = p * (tl::dot(d_out, tl::trans(v)) - row_delta.col());
        q_sum = tl::dot(ds.to::<bf16>(), k, q_sum);
    }
    dq.at(head).store((q_sum * sm_scale).to::<bf16>(), first, 0);
}
