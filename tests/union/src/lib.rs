//! A kernel on the memory and the stream of another framework, as a layer of candle or burn would launch it.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use dsl_runtime::Result;
use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(BLOCK = [1024])]
fn squares<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let i = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let x = tl::load(x + i, i < n);
    tl::store(out + i, x * x, i < n);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// Squares the elements of `x` into `out`, at most `i32::MAX` of them, on a stream that the framework made.
///
/// # Errors
/// A CUDA error.
pub fn square(stream: &Arc<CudaStream>, x: &CudaSlice<f32>, out: &mut CudaSlice<f32>) -> Result<()> {
    let stream = Stream::from_cuda(stream.clone())?;
    let n = x.len().min(out.len()).min(i32::MAX as usize) as i32;
    squares::<1024>(x, out, n).grid(n.unsigned_abs().div_ceil(1024)).launch(&stream)
}
// ANCHOR_END: launch
