//! `out = act(x + y)`, element by element, for each activation of [`crate::activation`]: add and ReLU, add and GELU, and so
//! on.
//!
//! **Traffic.** Reads `x` and `y` and writes `out` once: `3 * n * size_of::<T>()` bytes, where an addition and an
//! activation on their own move five.
//!
//! **Rounding.** The sum and the activation are computed in `f32` and the result is rounded to `T` once: before that it
//! is within the activation's own bound, and 1.13 times the rounding of the sum.
//!
//! **Source.** The shortcut of a residual block: He, Zhang, Ren, Sun, 2015, arXiv:1512.03385, figure 2.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate};
    use crate::float::LibraryFloat;

    /// `out[i] = act(x[i] + y[i])` for `i < n`; a program handles `BLOCK` elements.
    #[fuse_kernel(T = [f32, f16, bf16], activation = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu], BLOCK = [2048])]
    pub fn add_activation<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        y: &[T],
        out: &mut [T],
        activation: Activation,
        n: i32,
    ) {
        let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
        let mask = offsets < n;
        let x = tl::load(x + offsets, mask).to::<f32>();
        let v = x + tl::load(y + offsets, mask).to::<f32>();
        let y = activate::<T>(v, activation);
        tl::store(out + offsets, y.to::<T>(), mask);
    }
}

pub use kernels::add_activation;

/// The activation of the sum of two slices: `AddActivation::new(&x, &y, Activation::Gelu)`, of any but the identity.
#[derive(Clone, Copy)]
pub struct AddActivation<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    y: Slice<'a, T>,
    activation: Activation,
}

impl<'a, T: LibraryFloat> AddActivation<'a, T> {
    /// The inputs, which [`launch`](AddActivation::launch) checks.
    pub fn new(x: impl Into<Slice<'a, T>>, y: impl Into<Slice<'a, T>>, activation: Activation) -> Self {
        AddActivation { x: x.into(), y: y.into(), activation }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; if there is no kernel with the activation; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let mut out = out.into();
        let checks = Checks("add_activation");
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        checks.same(("y", self.y.len()), ("out", out.len()))?;
        self.activation
            .check(checks, &[Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu])?;
        for first in (0..out.len()).step_by(LAUNCH) {
            let part = first..out.len().min(first + LAUNCH);
            let (programs, n) = (part.len().div_ceil(BLOCK), part.len() as i32);
            let [x, y] = [&self.x, &self.y].map(|input| input.slice(part.clone()));
            let out = out.slice_mut(part);
            add_activation::<T, BLOCK>(x, y, out, self.activation, n).grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], y: &[T], activation: Activation) -> Vec<Expected> {
    let exact = |(x, y): (&T, &T)| {
        let value = x.to_f64() + y.to_f64();
        activation
            .propagated_rounded(Expected { value, within: unit_roundoff(DType::F32) * value.abs() }, T::DTYPE)
    };
    x.iter().zip(y).map(exact).collect()
}

/// The bytes that computing `n` elements of `T` must move.
pub const fn traffic<T>(n: usize) -> usize {
    3 * n * size_of::<T>()
}
