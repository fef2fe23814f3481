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
