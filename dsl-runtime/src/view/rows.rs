//! The rows of a matrix, each contiguous, at any distance from each other: what operations on rows take.

use super::{View, ViewMut};
use crate::dtype::Element;
use crate::slice::{Slice, SliceMut};

/// Where the rows of a matrix are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLayout {
    /// One behind the other in so many elements. The operation says how long a row is.
    Contiguous(usize),
    /// Those of a view with this shape and these strides, in elements.
    Strided([usize; 2], [usize; 2]),
}

/// The rows of a matrix, to read: of memory in row-major order, or of a [`View`] with any stride between rows. Made of either by `.into()`.
///
/// ```
/// # use dsl_runtime::{Device, RowLayout, Rows, Result};
/// # fn main() -> Result<()> {
/// let qkv = Device::cpu().upload(&[1.0f32; 60])?;
/// assert_eq!(Rows::from(&qkv).layout(), RowLayout::Contiguous(60));
/// let queries = qkv.view([5, 12])?.slice(1, ..4);
/// assert_eq!(Rows::from(queries).layout(), RowLayout::Strided([5, 4], [12, 1]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Rows<'a, T: Element> {
    memory: Slice<'a, T>,
    layout: RowLayout,
}

/// The rows of a matrix, to write: of memory in row-major order, or of a [`ViewMut`] with any stride between rows.
pub struct RowsMut<'a, T: Element> {
    memory: SliceMut<'a, T>,
    layout: RowLayout,
}

impl<'a, T: Element> Rows<'a, T> {
    /// From the first element to the last, and what lies between rows.
    pub fn memory(&self) -> Slice<'a, T> {
        self.memory
    }

    /// Where the rows are in it.
    pub fn layout(&self) -> RowLayout {
        self.layout
    }
}

impl<'a, T: Element> RowsMut<'a, T> {
    /// From the first element to the last, and what lies between rows.
    pub fn into_memory(self) -> SliceMut<'a, T> {
        self.memory
    }

    /// Where the rows are in it.
    pub fn layout(&self) -> RowLayout {
        self.layout
    }
}

impl<'a, T: Element, S: Into<Slice<'a, T>>> From<S> for Rows<'a, T> {
    fn from(memory: S) -> Self {
        let memory = memory.into();
        Rows { memory, layout: RowLayout::Contiguous(memory.len()) }
    }
}

impl<'a, T: Element> From<View<'a, T, 2>> for Rows<'a, T> {
    fn from(view: View<'a, T, 2>) -> Self {
        Rows { memory: view.memory(), layout: RowLayout::Strided(view.shape, view.strides) }
    }
}

impl<'a, T: Element> From<&View<'a, T, 2>> for Rows<'a, T> {
    fn from(view: &View<'a, T, 2>) -> Self {
        Rows::from(*view)
    }
}

impl<'a, T: Element> From<&'a ViewMut<'_, T, 2>> for Rows<'a, T> {
    fn from(view: &'a ViewMut<'_, T, 2>) -> Self {
        Rows::from(view.as_view())
    }
}

impl<'a, T: Element, S: Into<SliceMut<'a, T>>> From<S> for RowsMut<'a, T> {
    fn from(memory: S) -> Self {
        let memory = memory.into();
        let layout = RowLayout::Contiguous(memory.len());
        RowsMut { memory, layout }
    }
}

impl<'a, T: Element> From<ViewMut<'a, T, 2>> for RowsMut<'a, T> {
    fn from(view: ViewMut<'a, T, 2>) -> Self {
        let layout = RowLayout::Strided(view.shape, view.strides);
        RowsMut { memory: view.into_memory(), layout }
    }
}

impl<'a, T: Element> From<&'a mut ViewMut<'_, T, 2>> for RowsMut<'a, T> {
    fn from(view: &'a mut ViewMut<'_, T, 2>) -> Self {
        RowsMut::from(view.reborrow())
    }
}
