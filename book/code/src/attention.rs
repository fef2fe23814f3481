//! Attention: two chained products and an online softmax between them.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(CAUSAL = [false, true], D = [64], M = [64], N = [64], num_warps = 4)]
pub fn attention<const CAUSAL: bool, const D: usize, const M: usize, const N: usize>(
    q: &View<bf16, 3>,
    k: &View<bf16, 3>,
    v: &View<bf16, 3>,
    out: &mut View<bf16, 3>,
    scale: f32,
) {
    let (head, first) = (tl::program_id(1), tl::program_id(0) * M);
    let length = k.shape::<i32>(1);
    let rows = first + tl::arange(0, M);
    let q = q.at(head).load::<M, D>(first, 0);

    // ANCHOR: state
    let mut acc = tl::zeros::<f32>([M, D]);
    let mut l_i = tl::zeros::<f32>([M]);
    let mut m_i = tl::full([M], f32::NEG_INFINITY);
    // ANCHOR_END: state
    let end = if CAUSAL { tl::minimum(first + M, length) } else { length };
    for start in (0..end).step_by(N) {
        // ANCHOR: scores
        let cols = start + tl::arange(0, N);
        let k = k.at(head).load::<N, D>(start, 0);
        let s = tl::dot(q, tl::trans(k)) * scale;
        let visible = (cols < length).row();
        let visible = if CAUSAL { visible & (cols.row() <= rows.col()) } else { visible };
        let s = tl::select(visible, s, f32::NEG_INFINITY);
        // ANCHOR_END: scores

        // ANCHOR: online
        let m_new = tl::maximum(m_i, tl::max(s, 1));
        let p = tl::exp(s - m_new.col());
        let alpha = tl::exp(m_i - m_new);
        l_i = l_i * alpha + tl::sum(p, 1);
        m_i = m_new;
        // ANCHOR_END: online

        // ANCHOR: values
        let v = v.at(head).load::<N, D>(start, 0);
        acc = tl::dot(p.to::<bf16>(), v, acc * alpha.col());
        // ANCHOR_END: values
    }
    out.at(head).store((acc / l_i.col()).to::<bf16>(), first, 0);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// Queries, keys and values, each `[heads, length, 64]` in row-major order.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub q: &'a Buffer<bf16>,
    pub k: &'a Buffer<bf16>,
    pub v: &'a Buffer<bf16>,
    pub heads: usize,
    pub length: usize,
}

impl Heads<'_> {
    /// Attends each query to the keys up to its own position.
    pub fn causal(&self, on: impl LaunchOn, out: &mut Buffer<bf16>) -> dsl_runtime::Result<()> {
        let shape = [self.heads, self.length, 64];
        let (q, k, v) = (self.q.view(shape)?, self.k.view(shape)?, self.v.view(shape)?);
        attention::<true, 64, 64, 64>(q, k, v, out.view_mut(shape)?, 0.125)
            .grid((self.length.div_ceil(64), self.heads))
            .launch(on)
    }
}
// ANCHOR_END: launch
