//! Conversion traits of a kernel's parameters. They exist for their error messages: rustc's about [`Into`] say nothing of
//! kernels.
//!
//! Each is implemented for every type that implements its `Into`.

use crate::dtype::Element;
use crate::slice::{Slice, SliceMut};
use crate::view::{View, ViewMut};

/// What a `&[T]` parameter takes.
#[diagnostic::on_unimplemented(
    message = "expected a slice `&[{T}]`, found `{Self}`",
    label = "not a slice of `{T}`",
    note = "a kernel reads `&buffer`, `&vec`, `&array` or `buffer.slice(range)`"
)]
pub trait IntoSlice<'a, T: Element> {
    #[doc(hidden)]
    fn convert(self) -> Slice<'a, T>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Element, S: Into<Slice<'a, T>>> IntoSlice<'a, T> for S {
    #[inline]
    fn convert(self) -> Slice<'a, T> {
        self.into()
    }
}

/// What a `&mut [T]` parameter takes.
#[diagnostic::on_unimplemented(
    message = "expected a slice `&mut [{T}]`, found `{Self}`",
    label = "not a slice of `{T}` that can be written",
    note = "a kernel writes `&mut buffer`, `&mut vec`, `&mut array` or `buffer.slice_mut(range)`"
)]
pub trait IntoSliceMut<'a, T: Element> {
    #[doc(hidden)]
    fn convert(self) -> SliceMut<'a, T>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Element, S: Into<SliceMut<'a, T>>> IntoSliceMut<'a, T> for S {
    #[inline]
    fn convert(self) -> SliceMut<'a, T> {
        self.into()
    }
}

/// What a `&View<T, R>` parameter takes.
#[diagnostic::on_unimplemented(
    message = "expected a view `&View<{T}, {R}>`, found `{Self}`",
    label = "not a view of `{T}` of rank {R}",
    note = "`buffer.view(extents)?` is a view, with an extent for each of its axes and `?` for the error of too few elements"
)]
pub trait IntoView<'a, T: Element, const R: usize> {
    #[doc(hidden)]
    fn convert(self) -> View<'a, T, R>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Element, const R: usize, V: Into<View<'a, T, R>>> IntoView<'a, T, R> for V {
    #[inline]
    fn convert(self) -> View<'a, T, R> {
        self.into()
    }
}

/// What a `&mut View<T, R>` parameter takes.
#[diagnostic::on_unimplemented(
    message = "expected a view `&mut View<{T}, {R}>`, found `{Self}`",
    label = "not a view of `{T}` of rank {R} that can be written",
    note = "`buffer.view_mut(extents)?` is one, with an extent for each of its axes and `?` for the error of too few elements"
)]
pub trait IntoViewMut<'a, T: Element, const R: usize> {
    #[doc(hidden)]
    fn convert(self) -> ViewMut<'a, T, R>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Element, const R: usize, V: Into<ViewMut<'a, T, R>>> IntoViewMut<'a, T, R> for V {
    #[inline]
    fn convert(self) -> ViewMut<'a, T, R> {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Device};

    struct Tensor(Buffer<f32>);

    impl<'a> From<&'a Tensor> for Slice<'a, f32> {
        fn from(tensor: &'a Tensor) -> Self {
            tensor.0.slice(..)
        }
    }

    fn len<'a>(x: impl IntoSlice<'a, f32>) -> usize {
        x.convert().len()
    }

    #[test]
    fn whatever_becomes_a_slice_is_taken() {
        fn any<'a>(x: impl Into<Slice<'a, f32>>) -> usize {
            len(x)
        }
        let tensor = Tensor(Device::cpu().zeros(3).unwrap());
        assert_eq!((len(&tensor), any(&tensor), len(tensor.0.slice(1..))), (3, 3, 2));
    }
}
