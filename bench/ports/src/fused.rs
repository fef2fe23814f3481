//! Products with what comes before and after them in the same kernel.

use dsl_runtime::prelude::*;

/// `out[i] = gelu(x[i] · w[i]ᵀ + bias[i])` for each `i` of a batch, with the hyperbolic tangent's form of GELU: `x` is `[batch, m, k]`, `w` is
/// `[batch, n, k]`, `bias` is `[batch, n]` and `out` is `[batch, m, n]`, with any strides but for the bias along `n`. Program `(j, i, b)` makes a
/// tile of `M x N` of product `b`. **Source.** Triton's tutorial 03 with a batch, and with the activation of a feed-forward layer.
#[fuse_kernel(M = [128], N = [128], K = [32], num_warps = 4, num_stages = 4)]
pub fn batched_matmul_bias_gelu<const M: usize, const N: usize, const K: usize>(
    x: &[bf16],
    w: &[bf16],
    bias: &[bf16],
    out: &mut [bf16],
    m: i32,
    n: i32,
    k: i32,
    stride_xb: i32,
    stride_xm: i32,
    stride_xk: i32,
    stride_wb: i32,
    stride_wn: i32,
    stride_wk: i32,
    stride_bias: i32,
    stride_ob: i32,
    stride_om: i32,
    stride_on: i32,
) {
    let offs_n = tl::program_id(0) * N + tl::arange(0, N);
    let offs_m = tl::program_id(1) * M + tl::arange(0, M);
    let batch = tl::program_id(2);
    let mut acc = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let mask_x = (offs_m < m).col() & (inner < k).row();
        let mask_w = (inner < k).col() & (offs_n < n).row();
        let at_x = offs_m.col() * stride_xm + inner.row() * stride_xk;
        let at_w = offs_n.row() * stride_wn + inner.col() * stride_wk;
        let tile_x = tl::load(x + batch * stride_xb + at_x, mask_x, 0.0);
        let tile_w = tl::load(w + batch * stride_wb + at_w, mask_w, 0.0);
        acc = tl::dot(tile_x, tile_w, acc);
    }
    let bias = tl::load(bias + batch * stride_bias + offs_n, offs_n < n, 0.0).to::<f32>();
    let y = acc + bias.row();
    let s = 0.7978845608028654;
    let y = 0.5 * y * (tl::tanh(s * y * (1.0 + 0.044715 * y * y)) + 1.0);
    let at = offs_m.col() * stride_om + offs_n.row() * stride_on;
    tl::store(out + batch * stride_ob + at, y.to::<bf16>(), (offs_m < m).col() & (offs_n < n).row());
}

/// The convolution along time with `taps` taps that are `dilation` steps apart, stride 1 and a border of zeros, as a sum of matmuls: `x` is
/// `[sequences, length, c_in]`, `w` is `[taps, c_in, c_out]`, `out` is `[sequences, length, c_out]`, and tap `taps / 2` is at the step itself.
/// Program `(i, j, s)` makes `M` steps of `N` channels of sequence `s`.
/// **Source.** van den Oord and others, *WaveNet*, 2016, arXiv:1609.03499, section 2.1, with taps on both sides, as `torch.nn.Conv1d`.
#[fuse_kernel(M = [128], N = [64], K = [64], num_warps = 4, num_stages = 3)]
pub fn conv1d<const M: usize, const N: usize, const K: usize>(
    x: &[f16],
    w: &[f16],
    out: &mut [f16],
    length: i32,
    c_in: i32,
    c_out: i32,
    taps: i32,
    dilation: i32,
) {
    let steps = tl::program_id(0) * M + tl::arange(0, M);
    let offs_n = tl::program_id(1) * N + tl::arange(0, N);
    let first_row = tl::program_id(2) * length;
    let mut acc = tl::zeros::<f32>([M, N]);
    for tap in 0..taps {
        let from = steps + (tap - taps / 2) * dilation;
        let inside = (from >= 0) & (from < length);
        for start in (0..c_in).step_by(K) {
            let channels = start + tl::arange(0, K);
            let mask_x = inside.col() & (channels < c_in).row();
            let mask_w = (channels < c_in).col() & (offs_n < c_out).row();
            let tile_x = tl::load(x + (first_row + from).col() * c_in + channels.row(), mask_x, 0.0);
            let tile_w = tl::load(w + (tap * c_in + channels).col() * c_out + offs_n.row(), mask_w, 0.0);
            acc = tl::dot(tile_x, tile_w, acc);
        }
    }
    let mask = (steps < length).col() & (offs_n < c_out).row();
    tl::store(out + (first_row + steps).col() * c_out + offs_n.row(), acc.to::<f16>(), mask);
}

/// Five iterations of `X = a X + (b A + c A²) X` with `A = X · Xᵀ`, of matrices of `SIZE x SIZE` that are first divided by their Frobenius norm: they
/// bring the singular values near to 1. `X` is kept in `f32`, operands of matmuls are `f16`. Program `i` takes matrix `i`.
/// **Source.** Jordan and others, *Muon: an optimizer for hidden layers in neural networks*, 2024, `zeropower_via_newtonschulz5`.
#[fuse_kernel(SIZE = [64], num_warps = 4)]
pub fn newton_schulz<const SIZE: usize>(x: &[f32], out: &mut [f32], a: f32, b: f32, c: f32) {
    let rows = tl::program_id(0) * SIZE + tl::arange(0, SIZE);
    let offsets = rows.col() * SIZE + tl::arange(0, SIZE).row();
    let given = tl::load(x + offsets);
    let mut x = given / (tl::sqrt(tl::sum(given * given)) + 1e-7);
    for _ in 0..5 {
        let half = x.to::<f16>();
        let square = tl::dot(half, tl::trans(half));
        let half_square = square.to::<f16>();
        let change = b * square + c * tl::dot(half_square, half_square);
        x = tl::dot(change.to::<f16>(), half, a * x);
    }
    tl::store(out + offsets, x);
}

/// Attention within windows of `tokens` places, at most `N`, with a bias for each pair of places: `qkv` is `[windows, tokens, 3, heads, D]` and
/// `out` is `[windows, tokens, heads, D]`. `index`, `[tokens, tokens]`, names the row of `table`, `[distances, heads]`, that has the bias of a query
/// and a key. Program `(h, w)` makes all rows of a head of window `w`.
/// **Source.** Liu and others, *Swin Transformer*, 2021, arXiv:2103.14030, equation 4.
#[fuse_kernel(D = [32], N = [64], num_warps = 4)]
pub fn window_attention<const D: usize, const N: usize>(
    qkv: &[f16],
    table: &[f16],
    index: &[i32],
    out: &mut [f16],
    scale: f32,
    heads: i32,
    tokens: i32,
) {
    let head = tl::program_id(0);
    let window = tl::program_id(1);
    let places = tl::arange(0, N);
    let offs_d = tl::arange(0, D);
    let present = places < tokens;
    let at = ((window * tokens + places) * 3 * heads + head) * D;
    let q = tl::load(qkv + at.col() + offs_d.row(), present.col(), 0.0);
    let k = tl::load(qkv + at.col() + heads * D + offs_d.row(), present.col(), 0.0);
    let v = tl::load(qkv + at.col() + 2 * heads * D + offs_d.row(), present.col(), 0.0);
    let both = present.col() & present.row();
    let distance = tl::load(index + places.col() * tokens + places.row(), both, 0);
    let bias = tl::load(table + distance * heads + head, both, 0.0).to::<f32>();
    let scores = tl::dot(q, tl::trans(k)) * scale + bias;
    let scores = tl::select(present.row(), scores, f32::NEG_INFINITY);
    let p = tl::exp(scores - tl::max(scores, 1).col());
    let y = tl::dot(p.to::<f16>(), v) / tl::sum(p, 1).col();
    let at_out = ((window * tokens + places) * heads + head) * D;
    tl::store(out + at_out.col() + offs_d.row(), y.to::<f16>(), present.col());
}
