//! Vector addition: programs, offsets and masks.

// ANCHOR: kernel
use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, bf16], BLOCK = [1024])]
pub fn vector_add<T: Float, const BLOCK: usize>(x: &[T], y: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    let y = tl::load(y + offsets, mask);
    tl::store(out + offsets, x + y, mask);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// `x + y`, element by element, on a device.
pub fn add(device: &Device, x: &[f32], y: &[f32]) -> dsl_runtime::Result<Vec<f32>> {
    let n = x.len();
    let (x, y) = (device.upload(x)?, device.upload(y)?);
    let mut out = device.zeros::<f32>(n)?;
    vector_add::<f32, 1024>(&x, &y, &mut out, n as i32).grid(n.div_ceil(1024)).launch(device)?;
    out.download()
}
// ANCHOR_END: launch
