//! The element types that kernels of the library are compiled for.

use dsl_runtime::Result;
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
pub trait LibraryFloat: Float + LibraryElement {
    /// Launches the kernels for the width of this type.
    #[doc(hidden)]
    fn launch_by_width(launch: impl ByWidth<Self>, on: impl LaunchOn) -> Result<()>;
}

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

/// A launch that takes other kernels for `f32` than for 16-bit floats.
#[doc(hidden)]
pub trait ByWidth<T: LibraryFloat> {
    /// Launches the kernels of 16-bit floats.
    fn launch_half(self, on: impl LaunchOn) -> Result<()>
    where
        T: HalfFloat;

    /// Launches the kernels of `f32`.
    fn launch_single(self, on: impl LaunchOn) -> Result<()>
    where
        T: SingleFloat;
}

/// `f32`, as generic code knows it: its tensors are those of `f32`.
#[doc(hidden)]
pub trait SingleFloat: LibraryFloat {
    fn slice(of: Slice<'_, Self>) -> Slice<'_, f32>;
    fn view<const R: usize>(of: View<'_, Self, R>) -> View<'_, f32, R>;
    fn view_mut<const R: usize>(of: ViewMut<'_, Self, R>) -> ViewMut<'_, f32, R>;
}

impl SingleFloat for f32 {
    fn slice(of: Slice<'_, f32>) -> Slice<'_, f32> {
        of
    }

    fn view<const R: usize>(of: View<'_, f32, R>) -> View<'_, f32, R> {
        of
    }

    fn view_mut<const R: usize>(of: ViewMut<'_, f32, R>) -> ViewMut<'_, f32, R> {
        of
    }
}

impl LibraryFloat for f32 {
    fn launch_by_width(launch: impl ByWidth<f32>, on: impl LaunchOn) -> Result<()> {
        launch.launch_single(on)
    }
}

impl LibraryFloat for f16 {
    fn launch_by_width(launch: impl ByWidth<f16>, on: impl LaunchOn) -> Result<()> {
        launch.launch_half(on)
    }
}

impl LibraryFloat for bf16 {
    fn launch_by_width(launch: impl ByWidth<bf16>, on: impl LaunchOn) -> Result<()> {
        launch.launch_half(on)
    }
}

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
