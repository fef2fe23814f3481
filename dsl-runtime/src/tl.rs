//! The language of kernels: every operation that the body of a `#[fuse_kernel]` function can use.
//!
//! A kernel computes on tiles. One *program* of its grid runs the whole body; which one it is, [`program_id`] says.
//! [`arange`] makes offsets, a slice parameter plus offsets is a tile of pointers, [`load`] and [`store`] move elements,
//! and everything between is arithmetic on whole tiles, written with Rust's operators ([`Tile`]) and the functions here:
//!
//! ```
//! use dsl_runtime::prelude::*;
//!
//! #[fuse_kernel(T = [f32, bf16], BLOCK = [1024])]
//! fn relu<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32) {
//!     let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
//!     let mask = offsets < n;
//!     let y = tl::load(x + offsets, mask);
//!     tl::store(out + offsets, tl::maximum(y, 0.0), mask);
//! }
//! ```
//!
//! # Laws
//! - **Types** do not mix: both sides of an operator have one element type, and `.to::<f32>()` or `as f32` converts. A
//!   literal takes the type it meets; alone it is `i32`, `f32` or `bool`.
//! - **8-bit floats** (`f8e4m3`, `f8e5m2`) are loaded, stored, selected, moved and converted, not computed with.
//! - **Shapes** broadcast from the last axis: an extent of 1 repeats, and so does a missing axis. Extents are constants,
//!   a power of two or one times 3, 5, 7, 9, 11, 13 or 15.
//! - **Memory** outside a slice is never touched: such elements are masked off by the compiler.
//! - **Control flow** decides on scalars: `for` over ranges, `while`, `if`; on an element, [`select`] decides. A variable
//!   that a loop or branch changes keeps its type and shape. An `if` on a constant leaves the other branch out.
//! - **NaN** propagates unless an operation's documentation says otherwise; comparisons with it are false, but for `!=`.
//! - **Constants** of element types are as in Rust: `f32::INFINITY`, `T::MAX`, `f32::consts::PI`.
//!
//! # These items
//! are documentation, and what an editor resolves inside a kernel; a kernel's body is compiled without them, and calling
//! one anywhere else panics.

#![allow(unused_variables, reason = "nothing here has a body")]

dsl_macros::tl_reference!();

/// Anything a kernel can compute with: tiles, scalars, constants, slices and pointers.
pub trait Operand {}

impl<X> Operand for X {}

/// An argument that may be left out.
pub trait Optional {}

impl<X> Optional for X {}

/// What a `for` runs over. Rust's `0..n` and `(0..n).step_by(BLOCK)` do as well.
#[derive(Clone, Copy, Debug)]
pub struct Range(());

impl IntoIterator for Range {
    type Item = Tile;
    type IntoIter = std::iter::Empty<Tile>;

    fn into_iter(self) -> std::iter::Empty<Tile> {
        only_in_kernels("range")
    }
}

/// What stands for an argument that was left out.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Absent;

#[track_caller]
fn only_in_kernels(name: &str) -> ! {
    panic!("`{name}` has a meaning only in the body of a `#[fuse_kernel]` function")
}
