//! One program for each block of elements, or for each row.

use dsl_runtime::prelude::*;

/// `out = x + y` of `n` elements. **Source.** Triton's tutorial 01.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn vector_add<const BLOCK: usize>(x: &[f32], y: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    let y = tl::load(y + offsets, mask);
    tl::store(out + offsets, x + y, mask);
}

/// `out = x / (1 - p)` where a random number of the element is above `p`, else 0; the mask is a function of the seed.
/// **Source.** Triton's tutorial 04, `_seeded_dropout`.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn dropout<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32, p: f32, seed: u64) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    let keep = tl::rand(seed, offsets) > p;
    tl::store(out + offsets, tl::select(keep, x / (1.0 - p), 0.0), mask);
}

/// `out = silu(gate) * up` of rows of `n_cols` elements at a distance of `stride`; `BLOCK >= n_cols`.
/// **Source.** The gate of Shazeer, *GLU Variants Improve Transformer*, 2020, arXiv:2002.05202, one program a row as in Liger.
#[fuse_kernel(BLOCK = [16384], num_warps = 16)]
pub fn swiglu<const BLOCK: usize>(gate: &[bf16], up: &[bf16], out: &mut [bf16], stride: i32, n_cols: i32) {
    let row = tl::program_id(0);
    let cols = tl::arange(0, BLOCK);
    let mask = cols < n_cols;
    let gate = tl::load(gate + row * stride + cols, mask, 0.0).to::<f32>();
    let up = tl::load(up + row * stride + cols, mask, 0.0);
    let act = (gate * tl::sigmoid(gate)).to::<bf16>();
    tl::store(out + row * stride + cols, act * up, mask);
}

/// `out = gelu(gate) * up` of `n` elements, with the hyperbolic tangent's form of GELU.
/// **Source.** The same paper, by blocks of elements as in Unsloth.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn geglu<const BLOCK: usize>(gate: &[bf16], up: &[bf16], out: &mut [bf16], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let e = tl::load(gate + offsets, mask, 0.0).to::<f32>();
    let g = tl::load(up + offsets, mask, 0.0);
    let s = 0.7978845608028654;
    let f = 0.5 * e * (tl::tanh(s * e * (1.0 + 0.044715 * e * e)) + 1.0);
    tl::store(out + offsets, f.to::<bf16>() * g, mask);
}

/// A step of AdamW on `n` parameters, in place in the parameters and both moments; `bias1` and `bias2` are `1 - beta^step`.
/// **Source.** Loshchilov, Hutter, 2017, arXiv:1711.05101, algorithm 2.
#[fuse_kernel(BLOCK = [1024], num_warps = 4)]
pub fn adamw<const BLOCK: usize>(
    param: &mut [f32],
    grad: &[f32],
    exp_avg: &mut [f32],
    exp_avg_sq: &mut [f32],
    n: i32,
    lr: f32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    bias1: f32,
    bias2: f32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let g = tl::load(grad + offsets, mask);
    let p = tl::load(param + offsets, mask) * (1.0 - lr * weight_decay);
    let m = tl::load(exp_avg + offsets, mask) * beta1 + g * (1.0 - beta1);
    let v = tl::load(exp_avg_sq + offsets, mask) * beta2 + g * g * (1.0 - beta2);
    let denominator = tl::sqrt(v / bias2) + eps;
    tl::store(param + offsets, p - lr * (m / bias1) / denominator, mask);
    tl::store(exp_avg + offsets, m, mask);
    tl::store(exp_avg_sq + offsets, v, mask);
}
