//! Gradients of attention with respect to keys and values: a loop by pointers whose operands several dots share.

use dsl_runtime::prelude::*;

/// `dk` and `dv` of one head of attention, of `N` keys a program; `lse` has base 2 and includes the scale, `delta` is the sum of
/// `out * dout` per row. **Source.** Dao, *FlashAttention-2*, 2023, arXiv:2307.08691, algorithm 2, as Triton's tutorial 06 has it.
#[fuse_kernel(configs = [{ M: 32, N: 64 }, { M: 64, N: 64 }, { M: 32, N: 128 }], D = [128], num_warps = 4)]
pub fn attention_dkdv<const D: usize, const M: usize, const N: usize>(
    q: &[bf16],
    k: &[bf16],
    v: &[bf16],
    dout: &[bf16],
    lse: &[f32],
    delta: &[f32],
    dk: &mut [f32],
    dv: &mut [f32],
    scale: f32,
    queries: i32,
) {
    let offs_n = tl::program_id(0) * N + tl::arange(0, N);
    let offs_d = tl::arange(0, D);
    let rows = offs_n.col() * D + offs_d.row();
    let (k, v) = (tl::load(k + rows), tl::load(v + rows));
    let (mut acc_k, mut acc_v) = (tl::zeros::<f32>([N, D]), tl::zeros::<f32>([N, D]));
    for start in (0..queries).step_by(M) {
        let offs_m = start + tl::arange(0, M);
        let q = tl::load(q + (offs_m.col() * D + offs_d.row()));
        let dout = tl::load(dout + (offs_m.col() * D + offs_d.row()));
        let s = tl::dot(k, tl::trans(q)) * scale;
        let p = tl::exp2(s - tl::load(lse + offs_m).row());
        acc_v = tl::dot(p.to::<bf16>(), dout, acc_v);
        let dp = tl::dot(v, tl::trans(dout));
        let ds = p * (dp - tl::load(delta + offs_m).row());
        acc_k = tl::dot(ds.to::<bf16>(), q, acc_k);
    }
    tl::store(dv + rows, acc_v);
    tl::store(dk + rows, acc_k);
}
