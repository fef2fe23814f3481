//! `out = alpha * x + beta * y + gamma * z`, element by element, `y` and `z` with their factors where they are given.
//!
//! **Traffic.** Reads each input that is given and writes `out` once: `(inputs + 1) * n * size_of::<T>()` bytes. Three
//! products and two sums on their own move twelve elements for every four.
//!
//! **Rounding.** In `f32`, with one rounding for each input, then to `T`: within `3 * 2^-24 * (|alpha x| + |beta y| + |gamma z|)` of the
//! exact result before the last rounding. NaN stays NaN, and an input that is not given counts for nothing, whatever the others are.
//!
//! **Source.** BLAS's `axpby` with one input more, as optimizers and samplers of diffusion models combine what they have.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// The elements that one program handles.
const BLOCK: usize = 2048;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

/// `out[i] = alpha * x[i] + beta * y[i] + gamma * z[i]` for `i < n`; a program handles `BLOCK` elements. What is
/// not added is not read: any slice as long as `x` stands for it.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [2048], num_warps = 8)]
pub fn linear_combination<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    y: &[T],
    z: &[T],
    out: &mut [T],
    n: i32,
    adds_y: i32,
    adds_z: i32,
    alpha: f32,
    beta: f32,
    gamma: f32,
) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask).to::<f32>();
    let y = tl::load(y + offsets, mask & (adds_y != 0), 0.0).to::<f32>();
    let z = tl::load(z + offsets, mask & (adds_z != 0), 0.0).to::<f32>();
    let sum = tl::fma(x, alpha, tl::fma(y, beta, z * gamma));
    tl::store(out + offsets, sum.to::<T>(), mask);
}

/// A weighted sum of one, two or three slices of one length. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LinearCombination<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    y: Option<Slice<'a, T>>,
    z: Option<Slice<'a, T>>,
    coefficients: [f32; 3],
}

impl<'a, T: LibraryFloat> LinearCombination<'a, T> {
    /// `alpha * x`.
    pub fn new(alpha: f32, x: impl Into<Slice<'a, T>>) -> Self {
        LinearCombination { x: x.into(), y: None, z: None, coefficients: [alpha, 0.0, 0.0] }
    }

    /// Adds `beta * y`.
    pub fn y(self, beta: f32, y: impl Into<Slice<'a, T>>) -> Self {
        let [alpha, _, gamma] = self.coefficients;
        LinearCombination { y: Some(y.into()), coefficients: [alpha, beta, gamma], ..self }
    }

    /// Adds `gamma * z`.
    pub fn z(self, gamma: f32, z: impl Into<Slice<'a, T>>) -> Self {
        let [alpha, beta, _] = self.coefficients;
        LinearCombination { z: Some(z.into()), coefficients: [alpha, beta, gamma], ..self }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (mut out, checks) = (out.into(), Checks("linear_combination"));
        for (name, input) in [("x", Some(self.x)), ("y", self.y), ("z", self.z)] {
            if let Some(input) = input {
                checks.same((name, input.len()), ("out", out.len()))?;
            }
        }
        let [alpha, beta, gamma] = self.coefficients;
        for first in (0..out.len()).step_by(LAUNCH) {
            let part = first..out.len().min(first + LAUNCH);
            let (programs, n) = (part.len().div_ceil(BLOCK), part.len() as i32);
            let [x, y, z] =
                [Some(self.x), self.y, self.z].map(|input| input.unwrap_or(self.x).slice(part.clone()));
            let [adds_y, adds_z] = [self.y, self.z].map(|input| i32::from(input.is_some()));
            let out = out.slice_mut(part);
            let call = linear_combination::<T, BLOCK>(x, y, z, out, n, adds_y, adds_z, alpha, beta, gamma);
            call.grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// What the kernel computes, in `f64`, of one, two or three inputs and their factors, and the bound that the module's documentation
/// states.
pub fn reference<T: Float>(inputs: &[&[T]], coefficients: &[f32]) -> Vec<Expected> {
    let exact = |i: usize| {
        let products = inputs
            .iter()
            .zip(coefficients)
            .map(|(input, coefficient)| input[i].to_f64() * f64::from(*coefficient));
        let (value, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        Expected { value, within: 3.0 * unit_roundoff(DType::F32) * size }.rounded(T::DTYPE)
    };
    (0..inputs.first().map_or(0, |x| x.len())).map(exact).collect()
}

/// The bytes that combining `n` elements of each of so many inputs must move.
pub const fn traffic<T>(n: usize, inputs: usize) -> usize {
    (inputs + 1) * n * size_of::<T>()
}
