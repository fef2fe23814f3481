//! Rows, planes and volumes that are normalized, quantized, filtered, ranked or pooled.

use dsl_runtime::prelude::*;

/// Instance norm of planes of `n` elements, `[images * channels, n]`, with a weight and a bias for each of `channels`. Program `i` takes plane `i`: one
/// loop for the sums of elements and squares, and one for the results. **Source.** Ulyanov and others, *Instance Normalization*, 2016,
/// arXiv:1607.08022, equation 4, as `torch.nn.InstanceNorm2d`.
#[fuse_kernel(BLOCK = [2048], num_warps = 8)]
pub fn instance_norm<const BLOCK: usize>(
    x: &[f16],
    weight: &[f16],
    bias: &[f16],
    out: &mut [f16],
    channels: i32,
    n: i32,
    eps: f32,
) {
    let plane = tl::program_id(0);
    let lanes = tl::arange(0, BLOCK);
    let mut sums = tl::zeros::<f32>([BLOCK]);
    let mut squares = tl::zeros::<f32>([BLOCK]);
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let x = tl::load(x + plane * n + cols, cols < n, 0.0).to::<f32>();
        sums += x;
        squares += x * x;
    }
    let mean = tl::sum(sums, 0) / n as f32;
    let variance = tl::sum(squares, 0) / n as f32 - mean * mean;
    let rstd = tl::rsqrt(variance + eps);
    let w = tl::load(weight + plane % channels).to::<f32>();
    let b = tl::load(bias + plane % channels).to::<f32>();
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let x = tl::load(x + plane * n + cols, cols < n, 0.0).to::<f32>();
        let y = (x - mean) * rstd * w + b;
        tl::store(out + plane * n + cols, y.to::<f16>(), cols < n);
    }
}

/// Quantizes rows of `n` elements in groups of `SIZE`, the last of which may be shorter: a scale is the largest magnitude of its group over 127,
/// and `q` has the elements over it, rounded to the nearest integer, halves to the even one. `scales` is `[rows, cdiv(n, SIZE)]`. Program
/// `(i, j)` takes the `j`th `GROUPS` groups of row `i`. **Source.** `per_token_group_quant_8bit` of SGLang, with `i8`.
#[fuse_kernel(GROUPS = [16], SIZE = [64], num_warps = 4)]
pub fn quantize_groups<const GROUPS: usize, const SIZE: usize>(
    x: &[bf16],
    q: &mut [i8],
    scales: &mut [f32],
    n: i32,
) {
    let row = tl::program_id(0);
    let groups = tl::program_id(1) * GROUPS + tl::arange(0, GROUPS);
    let cols = groups.col() * SIZE + tl::arange(0, SIZE).row();
    let x = tl::load(x + row * n + cols, cols < n, 0.0).to::<f32>();
    let scale = tl::maximum(tl::max(tl::abs(x), 1), 1e-10) / 127.0;
    let quantized = tl::round_ties_even(x / scale.col()).to::<i8>();
    let count = tl::cdiv(n, SIZE);
    tl::store(q + row * n + cols, quantized, cols < n);
    tl::store(scales + row * count + groups, scale, groups < count);
}

/// The element-wise part of a step of an LSTM: `c = sigmoid(f) * before + sigmoid(i) * tanh(g)` and `h = sigmoid(o) * tanh(c)`. `gates` is
/// `[rows, 4 * hidden]` with `i`, `f`, `g` and `o` side by side, the others are `[rows, hidden]`. Program `(i, j)` takes the `i`th `BLOCK` elements
/// of row `j`. **Source.** Hochreiter, Schmidhuber, *Long Short-Term Memory*, 1997, with a forget gate, as `torch.nn.LSTMCell`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn lstm_cell<const BLOCK: usize>(
    gates: &[f16],
    before: &[f32],
    c: &mut [f32],
    h: &mut [f16],
    hidden: i32,
) {
    let row = tl::program_id(1);
    let cols = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = cols < hidden;
    let of_row = gates + row * 4 * hidden + cols;
    let input = tl::sigmoid(tl::load(of_row, mask, 0.0).to::<f32>());
    let forget = tl::sigmoid(tl::load(of_row + hidden, mask, 0.0).to::<f32>());
    let added = tl::tanh(tl::load(of_row + 2 * hidden, mask, 0.0).to::<f32>());
    let output = tl::sigmoid(tl::load(of_row + 3 * hidden, mask, 0.0).to::<f32>());
    let state = forget * tl::load(before + row * hidden + cols, mask, 0.0) + input * added;
    tl::store(c + row * hidden + cols, state, mask);
    tl::store(h + row * hidden + cols, (output * tl::tanh(state)).to::<f16>(), mask);
}

/// The moving average `y[t] = a[t] * y[t - 1] + (1 - a[t]) * x[t]` along rows of `n` elements, from 0 before the first. Program `i` takes row `i`,
/// `BLOCK` elements an iteration: a scan over pairs of a factor and a sum, and the last element so far. **Source.** Blelloch, *Prefix sums and
/// their applications*, 1990, section 1.4, by `tl.associative_scan`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn moving_average<const BLOCK: usize>(x: &[f32], a: &[f32], out: &mut [f32], n: i32) {
    let row = tl::program_id(0);
    let lanes = tl::arange(0, BLOCK);
    let mut last = 0.0;
    for start in (0..n).step_by(BLOCK) {
        let cols = start + lanes;
        let x = tl::load(x + row * n + cols, cols < n, 0.0);
        let a = tl::load(a + row * n + cols, cols < n, 1.0);
        let (factors, sums) =
            tl::associative_scan((a, (1.0 - a) * x), 0, |(a, p), (b, q)| (a * b, p * b + q));
        let y = factors * last + sums;
        last = tl::sum(tl::select(lanes == BLOCK - 1, y, 0.0), 0);
        tl::store(out + row * n + cols, y, cols < n);
    }
}

/// The `K` largest elements of each row of `n` elements, in descending order, and their columns, the first one of equal elements first: `values` and
/// `columns` are `[rows, K]`, and `BLOCK >= n >= K`. A turn takes the maximum out of the row. **Source.** `torch.topk`, by repeated maxima as
/// routers of mixtures of experts have it.
#[fuse_kernel(BLOCK = [1024], K = [8], num_warps = 4)]
pub fn top_k<const BLOCK: usize, const K: usize>(x: &[f32], values: &mut [f32], columns: &mut [i32], n: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mut left = tl::load(x + row * n + cols, cols < n, f32::NEG_INFINITY);
    for i in tl::static_range(0, K) {
        let (value, column) = tl::max_index(left, 0);
        tl::store(values + row * K + i, value);
        tl::store(columns + row * K + i, column);
        left = tl::select(cols == column, f32::NEG_INFINITY, left);
    }
}

/// Means of 2 x 2 x 2 elements of volumes of `depth x height x width`; an odd last plane, row or column is left out. Program `i` makes `BLOCK` of
/// the `total` elements in the order of `out`. **Source.** `torch.nn.functional.avg_pool3d` with `kernel_size=2`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn avg_pool3d<const BLOCK: usize>(
    x: &[f16],
    out: &mut [f16],
    total: i32,
    depth: i32,
    height: i32,
    width: i32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < total;
    let (out_depth, out_height, out_width) = (depth / 2, height / 2, width / 2);
    let col = offsets % out_width * 2;
    let row = offsets / out_width % out_height * 2;
    let plane = offsets / (out_width * out_height) % out_depth * 2;
    let volume = offsets / (out_width * out_height * out_depth);
    let first = x + ((volume * depth + plane) * height + row) * width + col;
    let mut sum = tl::zeros::<f32>([BLOCK]);
    for dz in tl::static_range(0, 2) {
        for dy in tl::static_range(0, 2) {
            for dx in tl::static_range(0, 2) {
                sum += tl::load(first + (dz * height + dy) * width + dx, mask, 0.0).to::<f32>();
            }
        }
    }
    tl::store(out + offsets, (sum * 0.125).to::<f16>(), mask);
}
