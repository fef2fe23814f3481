//! `out = max(x, 0) * scale + bias`, element by element.
//!
//! **Traffic.** Reads `x` and writes `out` once: `2 * n * size_of::<T>()` bytes.
//!
//! **Rounding.** In `f32`, with one or two roundings, then to `T`: within `2 * 2^-24 * (|x * scale| + |bias|)` of the exact
//! result before the last rounding. NaN stays NaN.
//!
//! **Source.** The activation with a learned scale and shift, three operations and one pass.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

/// `out[i] = max(x[i], 0) * scale + bias` for `i < n`; a program handles `BLOCK` elements.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [2048], num_warps = 8)]
pub fn scale_relu<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32, scale: f32, bias: f32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask).to::<f32>();
    tl::store(out + offsets, (tl::maximum(x, 0.0) * scale + bias).to::<T>(), mask);
}

/// `max(x, 0) * scale + bias` of a slice. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct ScaleRelu<'a, T: Float> {
    x: Slice<'a, T>,
    scale: f32,
    bias: f32,
}

impl<'a, T: Float> ScaleRelu<'a, T> {
    /// The input; a scale of 1, a bias of 0.
    pub fn new(x: impl Into<Slice<'a, T>>) -> Self {
        ScaleRelu { x: x.into(), scale: 1.0, bias: 0.0 }
    }

    /// What the activation is multiplied by.
    pub fn scale(self, scale: f32) -> Self {
        ScaleRelu { scale, ..self }
    }

    /// What is added after that.
    pub fn bias(self, bias: f32) -> Self {
        ScaleRelu { bias, ..self }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()>
    where
        scale_relu::Choice<T, BLOCK>: scale_relu::Declared,
    {
        let mut out = out.into();
        Checks("scale_relu").same(("x", self.x.len()), ("out", out.len()))?;
        for first in (0..out.len()).step_by(LAUNCH) {
            let part = first..out.len().min(first + LAUNCH);
            let (programs, n) = (part.len().div_ceil(BLOCK), part.len() as i32);
            let (x, out) = (self.x.slice(part.clone()), out.slice_mut(part));
            scale_relu::<T, BLOCK>(x, out, n, self.scale, self.bias).grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], scale: f32, bias: f32) -> Vec<Expected> {
    let exact = |x: &T| {
        let x = x.to_f64();
        let product = if x.is_nan() { x } else { x.max(0.0) } * f64::from(scale);
        let value = product + f64::from(bias);
        let inner = 2.0 * unit_roundoff(DType::F32) * (product.abs() + f64::from(bias).abs());
        Expected { value, within: inner }.rounded(T::DTYPE)
    };
    x.iter().map(exact).collect()
}

/// The bytes that computing `n` elements of `T` must move.
pub const fn traffic<T>(n: usize) -> usize {
    2 * n * size_of::<T>()
}
