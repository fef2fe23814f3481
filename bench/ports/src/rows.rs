//! One program for each row of a matrix.

use dsl_runtime::prelude::*;

/// The softmax of rows of `n_cols` elements, each read at once: `BLOCK >= n_cols`. **Source.** Triton's tutorial 02.
#[fuse_kernel(BLOCK = [4096, 8192], num_warps = 8)]
pub fn softmax<const BLOCK: usize>(
    x: &[bf16],
    out: &mut [bf16],
    x_row_stride: i32,
    out_row_stride: i32,
    n_cols: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let x = tl::load(x + row * x_row_stride + cols, mask, bf16::NEG_INFINITY).to::<f32>();
    let numerator = tl::exp(x - tl::max(x, 0));
    let y = numerator / tl::sum(numerator, 0);
    tl::store(out + row * out_row_stride + cols, y.to::<bf16>(), mask);
}

/// Layer norm of rows of `n` elements in three loops, for the mean, the variance and the result; leaves both statistics for the
/// gradient. **Source.** Triton's tutorial 05, `_layer_norm_fwd_fused`.
#[fuse_kernel(BLOCK = [1024, 4096], num_warps = 8)]
pub fn layer_norm<const BLOCK: usize>(
    x: &[bf16],
    out: &mut [bf16],
    weight: &[bf16],
    bias: &[bf16],
    mean: &mut [f32],
    rstd: &mut [f32],
    stride: i32,
    n: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let lanes = tl::arange(0, BLOCK);
    let mut sums = tl::zeros::<f32>([BLOCK]);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        sums += tl::load(x + row * stride + cols, cols < n, 0.0).to::<f32>();
    }
    let row_mean = tl::sum(sums, 0) / n as f32;
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let x = tl::load(x + row * stride + cols, cols < n, 0.0).to::<f32>();
        let centered = tl::select(cols < n, x - row_mean, 0.0);
        squares += centered * centered;
    }
    let variance = tl::sum(squares, 0) / n as f32;
    let row_rstd = 1.0 / tl::sqrt(variance + eps);
    tl::store(mean + row, row_mean);
    tl::store(rstd + row, row_rstd);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let mask = cols < n;
        let w = tl::load(weight + cols, mask).to::<f32>();
        let b = tl::load(bias + cols, mask).to::<f32>();
        let x = tl::load(x + row * stride + cols, mask, 0.0).to::<f32>();
        let y = (x - row_mean) * row_rstd * w + b;
        tl::store(out + row * stride + cols, y.to::<bf16>(), mask);
    }
}

/// The gradient of the input of [`layer_norm()`], of rows of `n` elements that are read at once: `BLOCK >= n`.
/// **Source.** Triton's tutorial 05, `_layer_norm_bwd_dx_fused`, without the gradients of the parameters.
#[fuse_kernel(BLOCK = [4096], num_warps = 8)]
pub fn layer_norm_dx<const BLOCK: usize>(
    dx: &mut [bf16],
    dy: &[bf16],
    x: &[bf16],
    weight: &[bf16],
    mean: &[f32],
    rstd: &[f32],
    stride: i32,
    n: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n;
    let x = tl::load(x + row * stride + cols, mask, 0.0).to::<f32>();
    let dy = tl::load(dy + row * stride + cols, mask, 0.0).to::<f32>();
    let w = tl::load(weight + cols, mask).to::<f32>();
    let mean = tl::load(mean + row);
    let rstd = tl::load(rstd + row);
    let x_hat = tl::select(mask, (x - mean) * rstd, 0.0);
    let wdy = tl::select(mask, w * dy, 0.0);
    let c1 = tl::sum(x_hat * wdy, 0) / n as f32;
    let c2 = tl::sum(wdy, 0) / n as f32;
    let result = (wdy - (x_hat * c1 + c2)) * rstd;
    tl::store(dx + row * stride + cols, result.to::<bf16>(), mask);
}

/// RMSNorm of rows of `n` elements in two loops. **Source.** Zhang, Sennrich, 2019, arXiv:1910.07467, looped as in FlagGems.
#[fuse_kernel(BLOCK = [2048], num_warps = 8)]
pub fn rms_norm<const BLOCK: usize>(
    x: &[bf16],
    weight: &[bf16],
    out: &mut [bf16],
    x_row_stride: i32,
    out_row_stride: i32,
    n: i32,
    eps: f32,
) {
    let row = tl::program_id(0);
    let lanes = tl::arange(0, BLOCK);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let x = tl::load(x + row * x_row_stride + cols, cols < n, 0.0).to::<f32>();
        squares += x * x;
    }
    let rrms = tl::rsqrt(tl::sum(squares, 0) / n as f32 + eps);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let mask = cols < n;
        let x = tl::load(x + row * x_row_stride + cols, mask, 0.0).to::<f32>();
        let w = tl::load(weight + cols, mask, 0.0).to::<f32>();
        tl::store(out + row * out_row_stride + cols, (x * rrms * w).to::<bf16>(), mask);
    }
}

/// The cross-entropy of rows of `n_classes` logits, in one loop with an online sum of exponentials.
/// **Source.** Milakov, Gimelshein, *Online normalizer calculation for softmax*, 2018, arXiv:1805.02867, algorithm 3.
#[fuse_kernel(BLOCK = [4096], num_warps = 8)]
pub fn cross_entropy<const BLOCK: usize>(
    logits: &[bf16],
    targets: &[i64],
    loss: &mut [f32],
    lse: &mut [f32],
    row_stride: i32,
    n_classes: i32,
    ignored: i64,
) {
    let row = tl::program_id(0);
    let target = tl::load(targets + row);
    let mut m = f32::NEG_INFINITY;
    let mut d = 0.0;
    for start in (0..n_classes).step_by(BLOCK) {
        let cols = start + tl::arange(0, BLOCK);
        let x = tl::load(logits + row * row_stride + cols, cols < n_classes, bf16::NEG_INFINITY).to::<f32>();
        let block_max = tl::max(x, 0);
        let m_new = tl::maximum(m, block_max);
        d = d * tl::exp(m - m_new) + tl::sum(tl::exp(x - m_new), 0);
        m = m_new;
    }
    let row_lse = m + tl::log(d);
    let hit = tl::load(logits + row * row_stride + target, target != ignored).to::<f32>();
    tl::store(loss + row, tl::select(target == ignored, 0.0, row_lse - hit));
    tl::store(lse + row, row_lse);
}
