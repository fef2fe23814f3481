//! Recurrences along time, one step after the other.

use dsl_runtime::prelude::*;

/// The selective scan `h = exp(dt * A) * h + dt * B * u`, `y = C · h + D * u` with the gate `y * silu(z)`: `u`, `dt`, `z` and `out` are
/// `[sequences, n, channels]`, `a` is `[channels, STATE]`, `b` and `c` are `[sequences, n, STATE]`, `d` is `[channels]`.
/// Program `(i, s)` takes `CHANNELS` channels of sequence `s`, with their state in registers.
/// **Source.** Gu, Dao, *Mamba*, 2023, arXiv:2312.00752, algorithm 2, with `dt` before its softplus.
#[fuse_kernel(CHANNELS = [64], STATE = [16], num_warps = 4)]
pub fn selective_scan<const CHANNELS: usize, const STATE: usize>(
    u: &[bf16],
    dt: &[bf16],
    a: &[f32],
    b: &[bf16],
    c: &[bf16],
    d: &[f32],
    z: &[bf16],
    out: &mut [bf16],
    n: i32,
    channels: i32,
) {
    let cols = tl::program_id(0) * CHANNELS + tl::arange(0, CHANNELS);
    let sequence = tl::program_id(1);
    let states = tl::arange(0, STATE);
    let mask = cols < channels;
    let a = tl::load(a + cols.col() * STATE + states.row(), mask.col(), 0.0);
    let d = tl::load(d + cols, mask, 0.0);
    let mut h = tl::zeros::<f32>([CHANNELS, STATE]);
    for t in 0..n {
        let at = (sequence * n + t) * channels + cols;
        let at_state = (sequence * n + t) * STATE + states;
        let u = tl::load(u + at, mask, 0.0).to::<f32>();
        let dt = tl::load(dt + at, mask, 0.0).to::<f32>();
        let z = tl::load(z + at, mask, 0.0).to::<f32>();
        let b = tl::load(b + at_state).to::<f32>();
        let c = tl::load(c + at_state).to::<f32>();
        let dt = tl::select(dt <= 20.0, tl::log(1.0 + tl::exp(dt)), dt);
        h = tl::exp(dt.col() * a) * h + (dt * u).col() * b.row();
        let y = tl::sum(h * c.row(), 1) + u * d;
        tl::store(out + at, (y * z * tl::sigmoid(z)).to::<bf16>(), mask);
    }
}

/// The gated delta rule, one step a token: `s = exp(gate) * s`, `s += k · (beta * (v - sᵀ k))ᵀ`, `out = scale * sᵀ q`, with a state `s` of
/// `DK x dim_v` for each head. `q` and `k` are `[sequences, n, heads, DK]`, `v` and `out` are `[sequences, n, heads, dim_v]`, `gate` and `beta` are
/// `[sequences, n, heads]`. Program `(i, z * heads + h)` takes `DV` columns of a head's state, in registers.
/// **Source.** Yang, Kautz, Hatamizadeh, *Gated Delta Networks*, 2024, arXiv:2412.06464, by its recurrence, as in decoding.
#[fuse_kernel(DK = [128], DV = [32], num_warps = 4)]
pub fn gated_delta_rule<const DK: usize, const DV: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    gate: &[f32],
    beta: &[f32],
    out: &mut [bf16],
    scale: f32,
    n: i32,
    heads: i32,
    dim_v: i32,
) {
    let offs_k = tl::arange(0, DK);
    let offs_v = tl::program_id(0) * DV + tl::arange(0, DV);
    let sequence = tl::program_id(1) / heads;
    let head = tl::program_id(1) % heads;
    let mask = offs_v < dim_v;
    let mut state = tl::zeros::<f32>([DK, DV]);
    for t in 0..n {
        let row = (sequence * n + t) * heads + head;
        let q = tl::load(q + row * DK + offs_k).to::<f32>() * scale;
        let k = tl::load(k + row * DK + offs_k).to::<f32>();
        let v = tl::load(v + row * dim_v + offs_v, mask, 0.0).to::<f32>();
        state *= tl::exp(tl::load(gate + row));
        let change = (v - tl::sum(state * k.col(), 0)) * tl::load(beta + row);
        state += k.col() * change.row();
        let y = tl::sum(state * q.col(), 0);
        tl::store(out + row * dim_v + offs_v, y.to::<bf16>(), mask);
    }
}
