//! Recurrences along time in chunks, so that matmuls do most of the work.

use dsl_runtime::prelude::*;

/// What each chunk of `chunk` steps adds to the state of Mamba-2: the sum over its steps of `exp(last - decay[t]) * dt[t] * x[t] · b[t]ᵀ`,
/// `DIM x STATE` for each head. `x` is `[sequences, n, heads, DIM]`, `b` is `[sequences, n, STATE]`, `dt` and `decay` are `[sequences, heads, n]`.
/// `decay` has running sums of `dt * A` within a chunk, and `last` is the one of its last step. Program `(c, h, s)` makes the matrix
/// `out[s, c, h]`. **Source.** Dao, Gu, *Transformers are SSMs*, 2024, arXiv:2405.21060, section 6, as `_chunk_state_fwd_kernel`.
#[fuse_kernel(DIM = [64], STATE = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn chunk_state<const DIM: usize, const STATE: usize, const K: usize>(
    x: &[bf16],
    b: &[bf16],
    dt: &[f32],
    decay: &[f32],
    out: &mut [f32],
    n: i32,
    heads: i32,
    chunk: i32,
) {
    let first = tl::program_id(0) * chunk;
    let end = tl::minimum(first + chunk, n);
    let head = tl::program_id(1);
    let sequence = tl::program_id(2);
    let dims = tl::arange(0, DIM);
    let states = tl::arange(0, STATE);
    let at_head = (sequence * heads + head) * n;
    let last = tl::load(decay + at_head + end - 1);
    let mut acc = tl::zeros::<f32>([DIM, STATE]);
    for start in (first..end).step_by(K) {
        let steps = start + tl::arange(0, K);
        let mask = steps < end;
        let rows = sequence * n + steps;
        let x_t = tl::load(x + (rows * heads + head).row() * DIM + dims.col(), mask.row(), 0.0);
        let tile_b = tl::load(b + rows.col() * STATE + states.row(), mask.col(), 0.0).to::<f32>();
        let step_decay = tl::load(decay + at_head + steps, mask, 0.0);
        let step_dt = tl::load(dt + at_head + steps, mask, 0.0);
        let scale = tl::exp(last - step_decay) * step_dt;
        acc = tl::dot(x_t, (tile_b * scale.col()).to::<bf16>(), acc);
    }
    let matrix = (sequence * tl::num_programs(0) + tl::program_id(0)) * heads + head;
    tl::store(out + (matrix * DIM + dims.col()) * STATE + states.row(), acc);
}

/// Linear attention with a decay for each step and head, `out[t] = scale * q[t] · h[t]` with `h[t] = exp(gate[t]) * h[t - 1] + k[t] · v[t]ᵀ`,
/// in chunks: within one `(q · kᵀ ∘ decay) · v`, and `q` times the state that the chunks before it left. `q` and `k` are `[heads, n, DK]`,
/// `v` and `out` are `[heads, n, dim_v]`, `gate` is `[heads, n]` and not above 0. Program `(j, h)` makes `DV` columns of all chunks, with the
/// state in registers.
/// **Source.** Yang and others, *Gated Linear Attention*, 2023, arXiv:2312.06635, section 4, with the scalar decay of Mamba-2.
#[fuse_kernel(DK = [128], DV = [64], CHUNK = [64], num_warps = 4)]
pub fn gated_linear_attention<const DK: usize, const DV: usize, const CHUNK: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    gate: &[f32],
    out: &mut [bf16],
    scale: f32,
    n: i32,
    dim_v: i32,
) {
    let offs_k = tl::arange(0, DK);
    let offs_v = tl::program_id(0) * DV + tl::arange(0, DV);
    let offs_t = tl::arange(0, CHUNK);
    let mut state = tl::zeros::<f32>([DK, DV]);
    for start in (0..n).step_by(CHUNK) {
        let rows = tl::program_id(1) * n + start + offs_t;
        let mask = start + offs_t < n;
        let mask_v = mask.col() & (offs_v < dim_v).row();
        let tile_q = tl::load(q + rows.col() * DK + offs_k.row(), mask.col(), 0.0);
        let tile_k = tl::load(k + rows.col() * DK + offs_k.row(), mask.col(), 0.0);
        let tile_v = tl::load(v + rows.col() * dim_v + offs_v.row(), mask_v, 0.0);
        let step = tl::load(gate + rows, mask, 0.0);
        let decay = tl::cumsum(step, 0);
        let total = tl::sum(step, 0);
        let scores = tl::dot(tile_q, tl::trans(tile_k)) * tl::exp(decay.col() - decay.row());
        let scores = tl::select(offs_t.col() >= offs_t.row(), scores, 0.0);
        let before = tl::dot(tile_q, state.to::<bf16>()) * tl::exp(decay).col();
        let y = tl::dot(scores.to::<bf16>(), tile_v, before) * scale;
        tl::store(out + rows.col() * dim_v + offs_v.row(), y.to::<bf16>(), mask_v);
        let faded = (tile_k.to::<f32>() * tl::exp(total - decay).col()).to::<bf16>();
        state = tl::dot(tl::trans(faded), tile_v, state * tl::exp(total));
    }
}

/// The rows of Mamba-2 from the states before each chunk of `chunk` steps: `out[t] = exp(decay[t]) * state · c[t]`, and for each step `u` up to
/// `t` of its chunk `exp(decay[t] - decay[u]) * dt[u] * (c[t] · b[u]) * x[u]`. Shapes are those of [`chunk_state()`]: `c` has that of `b`, `out`
/// that of `x`, and `states` is `[sequences, chunks, heads, DIM, STATE]`. Program `(i, h, s * chunks + j)` makes `M` rows of chunk `j`.
/// **Source.** Dao, Gu, *Transformers are SSMs*, 2024, arXiv:2405.21060, section 6, as `_chunk_scan_fwd_kernel`.
#[fuse_kernel(DIM = [64], STATE = [128], M = [64], K = [64], num_warps = 4, num_stages = 3)]
pub fn chunk_scan<const DIM: usize, const STATE: usize, const M: usize, const K: usize>(
    x: &[bf16],
    b: &[bf16],
    c: &[bf16],
    dt: &[f32],
    decay: &[f32],
    states: &[f32],
    out: &mut [bf16],
    n: i32,
    heads: i32,
    chunk: i32,
) {
    let chunks = tl::cdiv(n, chunk);
    let sequence = tl::program_id(2) / chunks;
    let head = tl::program_id(1);
    let begin = tl::program_id(2) % chunks * chunk;
    let end = tl::minimum(begin + chunk, n);
    let first = begin + tl::program_id(0) * M;
    let steps = first + tl::arange(0, M);
    let dims = tl::arange(0, DIM);
    let offs_s = tl::arange(0, STATE);
    let mask = steps < end;
    let at_head = (sequence * heads + head) * n;
    let tile_c = tl::load(c + (sequence * n + steps).col() * STATE + offs_s.row(), mask.col(), 0.0);
    let step_decay = tl::load(decay + at_head + steps, mask, 0.0);
    let matrix = tl::program_id(2) * heads + head;
    let state = tl::load(states + (matrix * DIM + dims).row() * STATE + offs_s.col()).to::<bf16>();
    let mut acc = tl::dot(tile_c, state) * tl::exp(step_decay).col();
    for start in (begin..tl::minimum(first + M, end)).step_by(K) {
        let inner = start + tl::arange(0, K);
        let present = inner < end;
        let tile_b = tl::load(b + (sequence * n + inner).row() * STATE + offs_s.col(), present.row(), 0.0);
        let inner_decay = tl::load(decay + at_head + inner, present, 0.0);
        let inner_dt = tl::load(dt + at_head + inner, present, 0.0);
        let factor = tl::exp(step_decay.col() - inner_decay.row()) * inner_dt.row();
        let scores = tl::dot(tile_c, tile_b) * factor;
        let scores = tl::select(steps.col() >= inner.row(), scores, 0.0);
        let rows = (sequence * n + inner) * heads + head;
        let tile_x = tl::load(x + rows.col() * DIM + dims.row(), present.col(), 0.0);
        acc = tl::dot(scores.to::<bf16>(), tile_x, acc);
    }
    let rows = (sequence * n + steps) * heads + head;
    tl::store(out + rows.col() * DIM + dims.row(), acc.to::<bf16>(), mask.col());
}
