//! Matmuls whose results are reduced along rows and never stored.

use dsl_runtime::prelude::*;

/// The centroid nearest to each row of `x`, `[n, D]`, and the square of its distance, `|x|² - 2 x · c + |c|²`. `centroids` is `[k, D]`, and
/// `norms` has `|c|²`. Program `i` takes `M` rows and `N` centroids an iteration.
/// **Source.** The assignment of Lloyd's algorithm, *Least squares quantization in PCM*, 1982, by a matmul as in Faiss.
#[fuse_kernel(D = [128], M = [128], N = [128], num_warps = 8)]
pub fn nearest_centroid<const D: usize, const M: usize, const N: usize>(
    x: &[bf16],
    centroids: &[bf16],
    norms: &[f32],
    labels: &mut [i32],
    distances: &mut [f32],
    n: i32,
    k: i32,
) {
    let rows = tl::program_id(0) * M + tl::arange(0, M);
    let offs_d = tl::arange(0, D);
    let x = tl::load(x + rows.col() * D + offs_d.row(), (rows < n).col(), 0.0);
    let mut label = tl::zeros::<i32>([M]);
    let mut nearest = tl::full([M], f32::INFINITY);
    for start in (0..k).step_by(N) {
        let ids = start + tl::arange(0, N);
        let c = tl::load(centroids + ids.row() * D + offs_d.col(), (ids < k).row(), 0.0);
        let norm = tl::load(norms + ids, ids < k, f32::INFINITY);
        let (distance, id) = tl::min_index(norm.row() - 2.0 * tl::dot(x, c), 1);
        label = tl::select(distance < nearest, start + id, label);
        nearest = tl::minimum(nearest, distance);
    }
    let x = x.to::<f32>();
    tl::store(labels + rows, label, rows < n);
    tl::store(distances + rows, tl::sum(x * x, 1) + nearest, rows < n);
}

/// The cross-entropy of the logits `x · wᵀ`, of `x` of `[tokens, d]` and `w` of `[vocabulary, d]`, without storing a logit: a program has `M`
/// tokens, takes `N` words an iteration, and keeps the maximum and the sum of exponentials so far. **Source.** Wijmans and others, *Cut Your
/// Losses in Large-Vocabulary Language Models*, 2024, arXiv:2411.09009, algorithm 2, with the target's logit from the same matmul.
#[fuse_kernel(M = [128], N = [128], K = [64], num_warps = 4, num_stages = 3)]
pub fn linear_cross_entropy<const M: usize, const N: usize, const K: usize>(
    x: &[bf16],
    w: &[bf16],
    targets: &[i32],
    loss: &mut [f32],
    lse: &mut [f32],
    tokens: i32,
    vocabulary: i32,
    d: i32,
) {
    let rows = tl::program_id(0) * M + tl::arange(0, M);
    let target = tl::load(targets + rows, rows < tokens, -1);
    let mut peak = tl::full([M], f32::NEG_INFINITY);
    let mut total = tl::zeros::<f32>([M]);
    let mut hit = tl::zeros::<f32>([M]);
    for first in (0..vocabulary).step_by(N) {
        let words = first + tl::arange(0, N);
        let mut logits = tl::zeros::<f32>([M, N]);
        for start in (0..d).step_by(K) {
            let inner = start + tl::arange(0, K);
            let mask_x = (rows < tokens).col() & (inner < d).row();
            let mask_w = (inner < d).col() & (words < vocabulary).row();
            let tile_x = tl::load(x + rows.col() * d + inner.row(), mask_x, 0.0);
            let tile_w = tl::load(w + words.row() * d + inner.col(), mask_w, 0.0);
            logits = tl::dot(tile_x, tile_w, logits);
        }
        hit += tl::sum(tl::select(words.row() == target.col(), logits, 0.0), 1);
        let logits = tl::select((words < vocabulary).row(), logits, f32::NEG_INFINITY);
        let new_peak = tl::maximum(peak, tl::max(logits, 1));
        total = total * tl::exp(peak - new_peak) + tl::sum(tl::exp(logits - new_peak.col()), 1);
        peak = new_peak;
    }
    let row_lse = peak + tl::log(total);
    tl::store(lse + rows, row_lse, rows < tokens);
    tl::store(loss + rows, row_lse - hit, rows < tokens);
}
