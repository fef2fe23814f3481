//! `out = (x + y) * z`, element by element.
//!
//! **Traffic.** Reads `x`, `y`, `z` and writes `out` once: `4 * n * size_of::<T>()` bytes, two operations for every four
//! elements moved, so its speed is that of the memory. Unfused, the sum is written and read again: half as many bytes
//! more.
//!
//! **Rounding.** The sum and the product are each rounded to `T` at least as well as `T` itself would, so the result is
//! within a relative `2 u + u * u` of the exact one, `u` half the distance from 1 to the next number of `T`; below the
//! normal numbers of `T`, within its smallest subnormal one times `1 + |z|`. A sum too large for `T` is infinite.
//!
//! **Source.** The elementwise example that tile languages start with, with one operation more so that there is
//! something to fuse.

use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, smallest_subnormal, unit_roundoff};

/// The elements that one program handles.
const BLOCK: usize = 1024;

/// The elements of one launch: the kernel counts them in an `i32`. A multiple of every block and alignment.
const LAUNCH: usize = 1 << 30;

/// `out[i] = (x[i] + y[i]) * z[i]` for `i < n`; a program handles `BLOCK` elements.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [1024])]
pub fn add_mul<T: LibraryFloat, const BLOCK: usize>(x: &[T], y: &[T], z: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    let y = tl::load(y + offsets, mask);
    let z = tl::load(z + offsets, mask);
    tl::store(out + offsets, (x + y) * z, mask);
}

/// `(x + y) * z` of three slices of one length. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct AddMul<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    y: Slice<'a, T>,
    z: Slice<'a, T>,
}

impl<'a, T: LibraryFloat> AddMul<'a, T> {
    /// The inputs, which [`launch`](AddMul::launch) checks.
    pub fn new(x: impl Into<Slice<'a, T>>, y: impl Into<Slice<'a, T>>, z: impl Into<Slice<'a, T>>) -> Self {
        AddMul { x: x.into(), y: y.into(), z: z.into() }
    }

    /// Computes into `out`, on a device or stream. Any length will do: more than 2^30 elements are several launches.
    ///
    /// # Errors
    /// If the lengths differ; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let mut out = out.into();
        let n = out.len();
        for (name, len) in [("x", self.x.len()), ("y", self.y.len()), ("z", self.z.len())] {
            if len != n {
                let reason = format!("{name} has {len} elements and out has {n}");
                return Err(Error::Shape { operation: "add_mul", reason });
            }
        }
        for first in (0..n).step_by(LAUNCH) {
            let part = first..n.min(first + LAUNCH);
            let programs = part.len().div_ceil(BLOCK);
            let [x, y, z] = [&self.x, &self.y, &self.z].map(|input| input.slice(part.clone()));
            let len = part.len() as i32;
            add_mul::<T, BLOCK>(x, y, z, out.slice_mut(part), len).grid(programs).launch(on)?;
        }
        Ok(())
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], y: &[T], z: &[T]) -> Vec<Expected> {
    let (unit, subnormal) = (unit_roundoff(T::DTYPE), smallest_subnormal(T::DTYPE));
    let exact = |((x, y), z): ((&T, &T), &T)| {
        let (sum, z) = (x.to_f64() + y.to_f64(), z.to_f64());
        let value = sum * z;
        Expected { value, within: (2.0 * unit + unit * unit) * value.abs() + subnormal * (1.0 + z.abs()) }
    };
    x.iter().zip(y).zip(z).map(exact).collect()
}

/// The bytes that computing `n` elements of `T` must move.
pub const fn traffic<T>(n: usize) -> usize {
    4 * n * size_of::<T>()
}
