//! A kernel with configs.

use dsl_runtime::prelude::*;

// ANCHOR: optional
#[fuse_kernel(BLOCK = [1024])]
pub fn add_bias<const BLOCK: usize>(x: &mut [f32], bias: Option<&[f32]>, n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let y = tl::load(x + offsets, mask);
    let y = if let Some(bias) = bias { y + tl::load(bias + offsets, mask) } else { y };
    tl::store(x + offsets, tl::relu(y), mask);
}
// ANCHOR_END: optional

// ANCHOR: when
#[fuse_kernel(configs = [{ BLOCK: 256, num_warps: 1, when: n <= 4096 }, { BLOCK: 2048 }])]
pub fn increment<const BLOCK: usize>(x: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(x + offsets, tl::load(x + offsets, offsets < n) + 1.0, offsets < n);
}
// ANCHOR_END: when

// ANCHOR: host
#[fuse_kernel(BLOCK = [256, 1024], when = BLOCK == block)]
pub fn negate<const BLOCK: usize>(x: &mut [f32], n: i32, #[host] block: usize) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(x + offsets, -tl::load(x + offsets, offsets < n), offsets < n);
}

/// `-x`, by the block that the host prefers.
pub fn negate_all(device: &Device, x: &mut Buffer<f32>) -> dsl_runtime::Result<()> {
    let n = x.len();
    let block = if n < 100 * 1024 { 256 } else { 1024 };
    negate(x, n as i32, block).grid(n.div_ceil(block)).launch(device)
}
// ANCHOR_END: host

// ANCHOR: kernel
#[fuse_kernel(
    configs = [{ BLOCK: 512, num_warps: 4 }, { BLOCK: 2048, num_warps: 8 }, { BLOCK: 2048, maxnreg: 64 }],
    tune(key = [n]),
)]
pub fn double<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x = tl::load(x + offsets, offsets < n);
    tl::store(out + offsets, x + x, offsets < n);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// `x + x`, by the config that was fastest for as many elements.
pub fn double_into(on: &Stream, x: &Buffer<f32>, out: &mut Buffer<f32>) -> dsl_runtime::Result<()> {
    let n = x.len();
    double(x, out, n as i32).grid_by(move |chosen| n.div_ceil(chosen.constant("BLOCK"))).launch(on)
}
// ANCHOR_END: launch

// ANCHOR: only
/// The same by one config, which nothing is measured for.
pub fn double_by(
    device: &Device,
    config: &str,
    x: &Buffer<f32>,
    out: &mut Buffer<f32>,
) -> dsl_runtime::Result<()> {
    let n = x.len();
    double(x, out, n as i32)
        .only(config)
        .grid_by(move |chosen| n.div_ceil(chosen.constant("BLOCK")))
        .launch(device)
}
// ANCHOR_END: only
