//! Strided views: what a kernel's `&View<T, R>` and `&mut View<T, R>` parameters take.
//!
//! Takes a [`Slice`] or [`SliceMut`] with a shape and strides in elements, and checks once that every index inside the
//! shape is an element of the memory, and of a view to write that no two are the same one. Kernels rely on it: their
//! accesses compare indices with the shape alone. What they take of a view is [`ViewArgs`](crate::ViewArgs).

mod batch;
mod rows;

pub use rows::{RowLayout, Rows, RowsMut};

use std::fmt;
use std::ops::RangeBounds;

use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::slice::{Slice, SliceMut, resolve};

/// Extents and strides are below this, so that what kernels compute of them fits in 64 bits.
const LIMIT: usize = 1 << 40;

/// Memory with a shape of `R` axes, to read: a matrix, its transpose, every other row of it, one row repeated.
///
/// Made by `.view(shape)` and `.view_strided(shape, strides)` of a [`Buffer`](crate::Buffer) or [`Slice`], or here of what turns into one.
/// Strides are in elements and may be 0, which repeats the elements along the axis.
///
/// ```
/// # use dsl_runtime::{Device, View, Result};
/// # fn main() -> Result<()> {
/// let buffer = Device::cpu().upload(&[1, 2, 3, 4, 5, 6])?;
/// let matrix = buffer.view([2, 3])?;
/// assert_eq!((matrix.shape(), matrix.strides()), ([2, 3], [3, 1]));
/// let transposed = matrix.permute([1, 0]);
/// assert_eq!((transposed.shape(), transposed.strides()), ([3, 2], [1, 3]));
/// let last_columns = matrix.slice(1, 1..);
/// assert_eq!(last_columns.shape(), [2, 2]);
/// let row_four_times = buffer.view_strided([4, 3], [0, 1])?;
/// # assert_eq!(row_four_times.shape(), [4, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct View<'a, T: Element, const R: usize> {
    /// No longer than the view needs.
    memory: Slice<'a, T>,
    shape: [usize; R],
    strides: [usize; R],
}

/// Memory with a shape of `R` axes, to write, borrowed by nobody else. No two of its elements are the same.
///
/// Made from what a [`View`] is made from, borrowed mutably. An output cannot be an input of the same launch:
///
/// ```compile_fail,E0502
/// # use dsl_runtime::{Device, View, ViewMut};
/// fn kernel<'a>(x: impl Into<View<'a, f32, 1>>, out: impl Into<ViewMut<'a, f32, 1>>) {}
/// let mut x = Device::cpu().zeros::<f32>(10).unwrap();
/// kernel(x.view([10]).unwrap(), x.view_mut([10]).unwrap());
/// ```
pub struct ViewMut<'a, T: Element, const R: usize> {
    memory: SliceMut<'a, T>,
    shape: [usize; R],
    strides: [usize; R],
}

impl<T: Element, const R: usize> Default for View<'_, T, R> {
    /// No elements.
    fn default() -> Self {
        View { memory: Slice::default(), shape: [0; R], strides: [0; R] }
    }
}

impl<T: Element, const R: usize> Default for ViewMut<'_, T, R> {
    /// No elements.
    fn default() -> Self {
        ViewMut { memory: SliceMut::default(), shape: [0; R], strides: [0; R] }
    }
}

impl<'a, T: Element, const R: usize> View<'a, T, R> {
    /// The first elements of `memory` in row-major order.
    ///
    /// # Errors
    /// If there are too few.
    pub fn new(memory: impl Into<Slice<'a, T>>, shape: [usize; R]) -> Result<Self> {
        View::strided(memory, shape, row_major(shape))
    }

    /// The elements of `memory` at index times stride, summed over the axes.
    ///
    /// # Errors
    /// If one lies outside of the memory.
    pub fn strided(memory: impl Into<Slice<'a, T>>, shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        let memory = memory.into();
        let layout = Layout { shape, strides };
        let len = layout.check(memory.len())?;
        Ok(View { memory: memory.slice(..len), shape, strides })
    }

    /// The extent of each axis.
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// The distance in memory, in elements, between adjacent indices along each axis.
    pub fn strides(&self) -> [usize; R] {
        self.strides
    }

    /// The same elements with axis `order[i]` as axis `i`.
    ///
    /// # Panics
    /// If `order` does not name every axis once.
    #[track_caller]
    pub fn permute(&self, order: [usize; R]) -> View<'a, T, R> {
        let Layout { shape, strides } = self.layout().permute(order);
        View { memory: self.memory, shape, strides }
    }

    /// The subview with the indices of a range along one axis.
    ///
    /// # Panics
    /// If there is no such axis, or the range does not lie within its extent.
    #[track_caller]
    pub fn slice(&self, axis: usize, range: impl RangeBounds<usize>) -> View<'a, T, R> {
        let (subview, start) = self.layout().subview(axis, range);
        let memory = self.memory.slice(start..start + subview.len());
        View { memory, shape: subview.shape, strides: subview.strides }
    }

    /// The same elements in a larger shape: the element along an axis of extent 1 is repeated, by a stride of 0.
    ///
    /// # Errors
    /// If an extent changes that is not 1.
    pub fn broadcast(&self, shape: [usize; R]) -> Result<View<'a, T, R>> {
        let mut strides = self.strides;
        for axis in (0..R).filter(|&axis| self.shape[axis] != shape[axis]) {
            if self.shape[axis] != 1 {
                return Err(self.layout().error(format!("cannot be repeated to the shape {shape:?}")));
            }
            strides[axis] = 0;
        }
        View::strided(self.memory, shape, strides)
    }

    /// The same elements in the same row-major order of indices, as another shape.
    ///
    /// # Errors
    /// If there are more or fewer, or if no strides reach them.
    pub fn reshape<const S: usize>(&self, shape: [usize; S]) -> Result<View<'a, T, S>> {
        let strides = self.layout().reshape(shape)?;
        View::strided(self.memory, shape, strides)
    }

    fn layout(&self) -> Layout<R> {
        Layout { shape: self.shape, strides: self.strides }
    }

    pub(crate) fn memory(self) -> Slice<'a, T> {
        self.memory
    }
}

impl<'a, T: Element, const R: usize> ViewMut<'a, T, R> {
    /// The first elements of `memory` in row-major order.
    ///
    /// # Errors
    /// If there are too few.
    pub fn new(memory: impl Into<SliceMut<'a, T>>, shape: [usize; R]) -> Result<Self> {
        ViewMut::strided(memory, shape, row_major(shape))
    }

    /// The elements of `memory` at index times stride, summed over the axes.
    ///
    /// # Errors
    /// If one lies outside of the memory, or two might be the same: axes with more than one index need strides that each
    /// lead beyond what the axes of smaller strides reach.
    pub fn strided(
        memory: impl Into<SliceMut<'a, T>>,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<Self> {
        let memory = memory.into();
        let layout = Layout { shape, strides };
        let len = layout.check(memory.len())?;
        layout.check_distinct()?;
        Ok(ViewMut { memory: memory.into_subslice(0, len), shape, strides })
    }

    /// The extent of each axis.
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// The distance in memory, in elements, between adjacent indices along each axis.
    pub fn strides(&self) -> [usize; R] {
        self.strides
    }

    /// The same view for a shorter time: what a launch takes when it is needed again afterwards.
    pub fn reborrow(&mut self) -> ViewMut<'_, T, R> {
        ViewMut { memory: self.memory.reborrow(), shape: self.shape, strides: self.strides }
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_, T, R> {
        View { memory: self.memory.slice(..), shape: self.shape, strides: self.strides }
    }

    /// The same elements with axis `order[i]` as axis `i`.
    ///
    /// # Panics
    /// If `order` does not name every axis once.
    #[track_caller]
    pub fn permute(self, order: [usize; R]) -> ViewMut<'a, T, R> {
        let Layout { shape, strides } = self.layout().permute(order);
        ViewMut { memory: self.memory, shape, strides }
    }

    /// The same elements in the same row-major order of indices, as another shape.
    ///
    /// # Errors
    /// If there are more or fewer, or if no strides reach them.
    pub fn reshape<const S: usize>(self, shape: [usize; S]) -> Result<ViewMut<'a, T, S>> {
        let strides = self.layout().reshape(shape)?;
        ViewMut::strided(self.memory, shape, strides)
    }

    /// The subview with the indices of a range along one axis.
    ///
    /// # Panics
    /// If there is no such axis, or the range does not lie within its extent.
    #[track_caller]
    pub fn slice_mut(&mut self, axis: usize, range: impl RangeBounds<usize>) -> ViewMut<'_, T, R> {
        let (subview, start) = self.layout().subview(axis, range);
        let memory = self.memory.slice_mut(start..start + subview.len());
        ViewMut { memory, shape: subview.shape, strides: subview.strides }
    }

    fn layout(&self) -> Layout<R> {
        Layout { shape: self.shape, strides: self.strides }
    }

    pub(crate) fn into_memory(self) -> SliceMut<'a, T> {
        self.memory
    }
}

impl<'a, T: Element> Slice<'a, T> {
    /// The first elements in row-major order.
    ///
    /// # Errors
    /// If there are too few.
    pub fn view<const R: usize>(&self, shape: [usize; R]) -> Result<View<'a, T, R>> {
        View::new(*self, shape)
    }

    /// The elements at index times stride, summed over the axes.
    ///
    /// # Errors
    /// If one lies outside of the slice.
    pub fn view_strided<const R: usize>(
        &self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<View<'a, T, R>> {
        View::strided(*self, shape, strides)
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// The first elements in row-major order, to write.
    ///
    /// # Errors
    /// If there are too few.
    pub fn view_mut<const R: usize>(&mut self, shape: [usize; R]) -> Result<ViewMut<'_, T, R>> {
        ViewMut::new(self, shape)
    }

    /// The elements at index times stride, summed over the axes, to write.
    ///
    /// # Errors
    /// Those of [`ViewMut::strided`].
    pub fn view_strided_mut<const R: usize>(
        &mut self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<ViewMut<'_, T, R>> {
        ViewMut::strided(self, shape, strides)
    }
}

impl<'a, T: Element, const R: usize> From<&View<'a, T, R>> for View<'a, T, R> {
    fn from(view: &View<'a, T, R>) -> Self {
        *view
    }
}

impl<'a, T: Element, const R: usize> From<&'a ViewMut<'_, T, R>> for View<'a, T, R> {
    fn from(view: &'a ViewMut<'_, T, R>) -> Self {
        view.as_view()
    }
}

impl<'a, T: Element, const R: usize> From<&'a mut ViewMut<'_, T, R>> for ViewMut<'a, T, R> {
    fn from(view: &'a mut ViewMut<'_, T, R>) -> Self {
        view.reborrow()
    }
}

impl<T: Element, const R: usize> fmt::Debug for View<'_, T, R> {
    /// Says what it is, not what it holds: that may still be computed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} by {:?}", T::DTYPE, self.shape, self.strides)
    }
}

impl<T: Element, const R: usize> fmt::Debug for ViewMut<'_, T, R> {
    /// Says what it is, not what it holds: that may still be computed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_view().fmt(f)
    }
}

/// Where the elements of a view are, from the start of its memory.
#[derive(Clone, Copy)]
struct Layout<const R: usize> {
    shape: [usize; R],
    strides: [usize; R],
}

fn row_major<const R: usize>(shape: [usize; R]) -> [usize; R] {
    let mut strides = [1usize; R];
    for axis in (0..R.saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1]);
    }
    strides
}

/// A multiple of every vector, in elements.
const EVEN: usize = 16;

/// The strides that a launch passes: those of axes with one element satisfy the guards of the faster specializations. They are
/// multiples of every vector, and that of the last such axis is 1 where no other one is.
pub(crate) fn launch_strides<const R: usize>(shape: [usize; R], mut strides: [usize; R]) -> [usize; R] {
    let is_empty = shape.contains(&0);
    let is_unit = |axis: &usize| is_empty || shape[*axis] == 1;
    let has_contiguous = (0..R).any(|axis| !is_unit(&axis) && strides[axis] == 1);
    for axis in (0..R).filter(is_unit) {
        strides[axis] = EVEN;
    }
    if !has_contiguous && let Some(last) = (0..R).rev().find(is_unit) {
        strides[last] = 1;
    }
    strides
}

impl<const R: usize> Layout<R> {
    /// Elements of memory from the first to the last.
    fn len(&self) -> usize {
        if self.shape.contains(&0) {
            0
        } else {
            1 + self.pairs().map(|(extent, stride)| (extent - 1) * stride).sum::<usize>()
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.shape.into_iter().zip(self.strides)
    }

    /// Elements of memory from the first to the last, if it has as many.
    fn check(&self, len: usize) -> Result<usize> {
        const { assert!(R >= 1 && R <= 5, "a view has 1 to 5 axes") };
        if let Some(&large) = self.shape.iter().chain(&self.strides).find(|&&number| number >= LIMIT) {
            return Err(self.error(format!("has {large} where the limit is {}", LIMIT - 1)));
        }
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let last: u128 = self.pairs().map(|(extent, stride)| (extent as u128 - 1) * stride as u128).sum();
        if last >= len as u128 {
            let elements = if len == 1 { "1 element".to_string() } else { format!("{len} elements") };
            return Err(self.error(format!("reaches element {last} of memory that has {elements}")));
        }
        Ok(last as usize + 1)
    }

    /// Whether no two elements are the same, as far as strides in order show.
    fn check_distinct(&self) -> Result<()> {
        if self.shape.contains(&0) {
            return Ok(());
        }
        let mut axes: Vec<usize> = (0..R).filter(|&axis| self.shape[axis] > 1).collect();
        axes.sort_by_key(|&axis| self.strides[axis]);
        let mut reach = 0;
        for axis in axes {
            if self.strides[axis] <= reach {
                let text =
                    format!("has elements that might be the same along axis {axis}: it cannot be written");
                return Err(self.error(text));
            }
            reach += (self.shape[axis] - 1) * self.strides[axis];
        }
        Ok(())
    }

    fn error(&self, problem: String) -> Error {
        Error::View { shape: self.shape.to_vec(), strides: self.strides.to_vec(), problem }
    }

    #[track_caller]
    fn permute(&self, order: [usize; R]) -> Layout<R> {
        let all = (0..R).all(|axis| order.contains(&axis));
        assert!(all, "the order {order:?} does not name each of {R} axes once");
        Layout { shape: order.map(|axis| self.shape[axis]), strides: order.map(|axis| self.strides[axis]) }
    }

    /// The strides by which a shape has the same elements in the same order.
    fn reshape<const S: usize>(&self, shape: [usize; S]) -> Result<[usize; S]> {
        let count = |shape: &[usize]| shape.iter().map(|&extent| extent as u128).product::<u128>();
        if count(&self.shape) != count(&shape) {
            return Err(self.error(format!("has not as many elements as the shape {shape:?}")));
        }
        if shape.contains(&0) {
            return Ok(row_major(shape));
        }
        // Axes that are contiguous in memory are one, the last ones first.
        let mut runs: Vec<(usize, usize)> = vec![];
        for (extent, stride) in
            self.pairs().filter(|&(extent, _)| extent > 1).collect::<Vec<_>>().into_iter().rev()
        {
            match runs.last_mut() {
                Some((length, first)) if *length * *first == stride => *length *= extent,
                _ => runs.push((extent, stride)),
            }
        }
        let mut runs = runs.into_iter();
        let (mut length, mut stride) = (1, 1);
        let mut strides = [0; S];
        for axis in (0..S).rev() {
            if length == 1 && shape[axis] > 1 {
                (length, stride) = runs.next().expect("as many elements in both shapes");
            }
            if length % shape[axis] != 0 {
                return Err(self.error(format!("has no strides for the shape {shape:?}")));
            }
            strides[axis] = stride;
            stride *= shape[axis];
            length /= shape[axis];
        }
        Ok(strides)
    }

    /// The subview with the indices of a range along one axis, and the element that it begins with.
    #[track_caller]
    fn subview(&self, axis: usize, range: impl RangeBounds<usize>) -> (Layout<R>, usize) {
        assert!(axis < R, "there is no axis {axis}: a view of {R} axes has axes 0 to {}", R - 1);
        let (first, last) = resolve(range, self.shape[axis]);
        let mut subview = *self;
        subview.shape[axis] = last - first;
        // Where nothing is left, the first element might lie beyond the memory.
        let start = if subview.shape.contains(&0) { 0 } else { first * self.strides[axis] };
        (subview, start)
    }
}

#[cfg(test)]
mod tests;
