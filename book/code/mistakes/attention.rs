use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(D = [64], M = [128], N = [64])]
fn attend<const D: usize, const M: usize, const N: usize>(
    q: &View<bf16, 2>,
    k: &View<bf16, 2>,
    v: &View<bf16, 2>,
    out: &mut View<f32, 2>,
) {
    let q = q.load::<M, D>(0, 0);
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut m_i = f32::NEG_INFINITY;
    for start in (0..k.shape(0)).step_by(N) {
        let s = tl::dot(q, tl::trans(k.load::<N, D>(start, 0)));
        m_i = tl::maximum(m_i, tl::max(s, 1));
        let p = tl::exp(s - m_i);
        acc = tl::dot(p, v.load::<N, D>(start, 0), acc);
    }
    out.store(acc, 0, 0);
}
// ANCHOR_END: kernel

fn main() {}
