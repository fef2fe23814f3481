//! Tensors whose channels, or heads, are innermost.

use dsl_runtime::prelude::*;

/// Group norm of images `[images, pixels, channels]` (NHWC). Program `(i, g)` normalizes group `g` of image `i`, of
/// `group_channels <= CHANNELS` channels, in one loop for the sums and one for the results.
/// **Source.** Wu, He, 2018, arXiv:1803.08494, equations 2 to 5.
#[fuse_kernel(PIXELS = [128], CHANNELS = [16], num_warps = 4)]
pub fn group_norm<const PIXELS: usize, const CHANNELS: usize>(
    x: &[bf16],
    weight: &[bf16],
    bias: &[bf16],
    out: &mut [bf16],
    pixels: i32,
    channels: i32,
    group_channels: i32,
    eps: f32,
) {
    let image = tl::program_id(0);
    let group = tl::program_id(1);
    let lanes = tl::arange(0, PIXELS);
    let group_cols = tl::arange(0, CHANNELS);
    let cols = group * group_channels + group_cols;
    let present = group_cols < group_channels;
    let base = image * pixels * channels;
    let mut sums = tl::zeros::<f32>([PIXELS, CHANNELS]);
    let mut squares = tl::zeros::<f32>([PIXELS, CHANNELS]);
    for start in (0..pixels).step_by(PIXELS) {
        let rows = start + lanes;
        let mask = (rows < pixels).col() & present.row();
        let x = tl::load(x + base + rows.col() * channels + cols.row(), mask, 0.0).to::<f32>();
        sums += x;
        squares += x * x;
    }
    let count = (pixels * group_channels) as f32;
    let mean = tl::sum(sums) / count;
    let variance = tl::sum(squares) / count - mean * mean;
    let rstd = tl::rsqrt(variance + eps);
    let w = tl::load(weight + cols, present, 0.0).to::<f32>();
    let b = tl::load(bias + cols, present, 0.0).to::<f32>();
    for start in (0..pixels).step_by(PIXELS) {
        let rows = start + lanes;
        let mask = (rows < pixels).col() & present.row();
        let offsets = base + rows.col() * channels + cols.row();
        let x = tl::load(x + offsets, mask, 0.0).to::<f32>();
        let y = (x - mean) * rstd * w.row() + b.row();
        tl::store(out + offsets, y.to::<bf16>(), mask);
    }
}

/// Depthwise causal convolution of width 4 along time with SiLU behind it: `x` and `out` are `[sequences, n, channels]`, `weight`
/// is `[channels, 4]`. Program `(c, t, s)` makes a tile of `STEPS x CHANNELS` of sequence `s`.
/// **Source.** Gu, Dao, *Mamba*, 2023, arXiv:2312.00752, section 3.4.
#[fuse_kernel(STEPS = [32], CHANNELS = [128], num_warps = 4)]
pub fn causal_conv<const STEPS: usize, const CHANNELS: usize>(
    x: &[bf16],
    weight: &[bf16],
    bias: &[bf16],
    out: &mut [bf16],
    n: i32,
    channels: i32,
) {
    let cols = tl::program_id(0) * CHANNELS + tl::arange(0, CHANNELS);
    let i = tl::program_id(1) * STEPS + tl::arange(0, STEPS);
    let base = tl::program_id(2) * n * channels;
    let present = cols < channels;
    let b = tl::load(bias + cols, present, 0.0).to::<f32>();
    let mut acc = tl::zeros::<f32>([STEPS, CHANNELS]) + b.row();
    for j in tl::static_range(0, 4) {
        let t = i - 3 + j;
        let mask = ((t >= 0) & (t < n)).col() & present.row();
        let w = tl::load(weight + cols * 4 + j, present, 0.0).to::<f32>();
        let x = tl::load(x + base + t.col() * channels + cols.row(), mask, 0.0).to::<f32>();
        acc += x * w.row();
    }
    let y = acc * tl::sigmoid(acc);
    let mask = (i < n).col() & present.row();
    tl::store(out + base + i.col() * channels + cols.row(), y.to::<bf16>(), mask);
}

/// Rotary embedding, halves of a head as pairs: `x` and `out` are `[tokens, heads, 2 * half]` with strides for tokens and heads,
/// `cos` and `sin` are `[tokens, half]`. One program for each token.
/// **Source.** Su and others, *RoFormer*, 2021, arXiv:2104.09864, equation 34, with pairs as in GPT-NeoX.
#[fuse_kernel(HEADS = [32], HALF = [64], num_warps = 4)]
pub fn rope<const HEADS: usize, const HALF: usize>(
    x: &[bf16],
    cos: &[bf16],
    sin: &[bf16],
    out: &mut [bf16],
    x_token_stride: i32,
    x_head_stride: i32,
    out_token_stride: i32,
    out_head_stride: i32,
    heads: i32,
    half: i32,
) {
    let token = tl::program_id(0);
    let rows = tl::arange(0, HEADS);
    let cols = tl::arange(0, HALF);
    let present = cols < half;
    let cos = tl::load(cos + token * half + cols, present, 0.0).to::<f32>().row();
    let sin = tl::load(sin + token * half + cols, present, 0.0).to::<f32>().row();
    let mask = (rows < heads).col() & present.row();
    let first = x + token * x_token_stride + rows.col() * x_head_stride + cols.row();
    let x1 = tl::load(first, mask, 0.0).to::<f32>();
    let x2 = tl::load(first + half, mask, 0.0).to::<f32>();
    let first = out + token * out_token_stride + rows.col() * out_head_stride + cols.row();
    tl::store(first, (x1 * cos - x2 * sin).to::<bf16>(), mask);
    tl::store(first + half, (x2 * cos + x1 * sin).to::<bf16>(), mask);
}
