//! An elementwise kernel whose operations are switched on at build time: `out = x`, then `+ bias` where `FUSE_BIAS`, then `max(.., 0)` where
//! `FUSE_RELU`. What is switched off is not compiled: the GPU code of a variant is that of a kernel written without the operation,
//! to the letter, which a test of the compiler checks.
//!
//! Flags at build time cost a build for each combination, and are for what an inner loop would feel. Where the memory is the bound a
//! branch that all programs take alike costs nothing: [`crate::linear_combination`] leaves its inputs out at launch.
//!
//! **Traffic.** Reads `x`, and `bias` where it is added, and writes `out` once: `2 * n * size_of::<T>()` bytes, with a bias `3`, where the two
//! operations on their own move five elements.
//!
//! **Rounding.** The sum is computed in `f32` and rounded to `T` once: within `2^-24 * |x + bias|` of the exact one before that. NaN stays NaN.
//!
//! **Source.** The template parameters of CUDA kernels and `tl.constexpr` of Triton's.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

/// The operations that are switched on, of each of the first `n` elements; a program handles `BLOCK`. Without `FUSE_BIAS` `bias` may be
/// empty.
#[fuse_kernel(
    T = [f32, f16, bf16], FUSE_BIAS = [false, true], FUSE_RELU = [false, true], BLOCK = [2048], num_warps = 8,
)]
pub fn bias_relu<T: LibraryFloat, const FUSE_BIAS: bool, const FUSE_RELU: bool, const BLOCK: usize>(
    x: &[T],
    bias: &[T],
    out: &mut [T],
    n: i32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let mut y = tl::load(x + offsets, mask).to::<f32>();
    if FUSE_BIAS {
        y += tl::load(bias + offsets, mask).to::<f32>();
    }
    if FUSE_RELU {
        y = tl::maximum(y, 0.0);
    }
    tl::store(out + offsets, y.to::<T>(), mask);
}

/// The operations that are switched on, of a slice: `BiasRelu::<bf16, true, false>::new(&x).bias(&bias)`. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct BiasRelu<'a, T: LibraryFloat, const FUSE_BIAS: bool, const FUSE_RELU: bool> {
    x: Slice<'a, T>,
    bias: Slice<'a, T>,
}

impl<'a, T: LibraryFloat, const FUSE_BIAS: bool, const FUSE_RELU: bool>
    BiasRelu<'a, T, FUSE_BIAS, FUSE_RELU>
{
    /// The input, without a bias.
    pub fn new(x: impl Into<Slice<'a, T>>) -> Self {
        let x = x.into();
        BiasRelu { x, bias: x.slice(..0) }
    }

    /// The bias, one for each element; only `FUSE_BIAS` takes one.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        const { assert!(FUSE_BIAS, "FUSE_BIAS is switched off") };
        BiasRelu { bias: bias.into(), ..self }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (mut out, checks) = (out.into(), Checks("bias_relu"));
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        if FUSE_BIAS {
            checks.same(("bias", self.bias.len()), ("out", out.len()))?;
        }
        for first in (0..out.len()).step_by(LAUNCH) {
            let part = first..out.len().min(first + LAUNCH);
            let (programs, n) = (part.len().div_ceil(BLOCK), part.len() as i32);
            let x = self.x.slice(part.clone());
            let bias = if FUSE_BIAS { self.bias.slice(part.clone()) } else { self.bias };
            let call = bias_relu::<T, FUSE_BIAS, FUSE_RELU, BLOCK>(x, bias, out.slice_mut(part), n);
            call.grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// What the kernel computes, in `f64`, with or without a bias and ReLU, and the bound that the module's documentation states.
pub fn reference<T: Float, const FUSE_RELU: bool>(x: &[T], bias: Option<&[T]>) -> Vec<Expected> {
    let exact = |(i, x): (usize, &T)| {
        let sum = x.to_f64() + bias.map_or(0.0, |bias| bias[i].to_f64());
        let within = if bias.is_some() { unit_roundoff(DType::F32) * sum.abs() } else { 0.0 };
        let value = if FUSE_RELU && sum < 0.0 { 0.0 } else { sum };
        Expected { value, within }.rounded(T::DTYPE)
    };
    x.iter().enumerate().map(exact).collect()
}

/// The bytes that computing `n` elements of `T` must move without a bias.
pub const fn traffic<T>(n: usize) -> usize {
    2 * n * size_of::<T>()
}
