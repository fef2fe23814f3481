//! The element types that kernels of the library are compiled for.

use dsl_runtime::prelude::*;

mod sealed {
    pub trait Sealed {}
}

/// An element type of the library's kernels: `f32`, `f16`, `bf16`, `i8`, `f8e4m3` or `bool`. Not every kernel has all of them.
#[diagnostic::on_unimplemented(
    message = "the library has no kernels for `{Self}`",
    label = "not an element type of the library",
    note = "its element types are f32, f16, bf16, i8, f8e4m3 and bool"
)]
pub trait LibraryElement: Element + sealed::Sealed {}

/// `f32`, `f16` or `bf16`: the bound with which generic code calls any operation of the library, but for those that need [`HalfFloat`].
#[diagnostic::on_unimplemented(
    message = "the library has no kernels for `{Self}`",
    label = "not a float type of the library",
    note = "its float types are f32, f16 and bf16"
)]
pub trait LibraryFloat: Float + LibraryElement {}

/// `f16` or `bf16`: the element types of operations on tensor cores, such as attention.
#[diagnostic::on_unimplemented(
    message = "this operation has no kernels for `{Self}`",
    label = "not an element type of this operation",
    note = "its element types are f16 and bf16"
)]
pub trait HalfFloat: LibraryFloat {}

/// `i8` or `f8e4m3`: the element types of quantized tensors.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of quantized tensors",
    label = "not an element type of this operation",
    note = "its element types are i8 and f8e4m3"
)]
pub trait QuantizedElement: LibraryElement {}

/// `i32` or `f32`: what products of quantized elements are added in.
pub trait Accumulator: Element + sealed::Sealed {}

impl Accumulator for i32 {}
impl Accumulator for f32 {}
impl sealed::Sealed for i32 {}

impl LibraryFloat for f32 {}
impl LibraryFloat for f16 {}
impl LibraryFloat for bf16 {}

impl HalfFloat for f16 {}
impl HalfFloat for bf16 {}

impl QuantizedElement for i8 {}
impl QuantizedElement for f8e4m3 {}

macro_rules! elements {
    ($($T:ty),*) => {$(
        impl sealed::Sealed for $T {}
        impl LibraryElement for $T {}
    )*};
}

elements!(f32, f16, bf16, i8, f8e4m3, bool);
