//! Batches: matrices, or stacks of them, along a first axis.

use super::{LIMIT, Layout, View, ViewMut};
use crate::dtype::Element;

impl<'a, T: Element> View<'a, T, 2> {
    /// The matrix as a batch of one.
    pub fn batch(&self) -> View<'a, T, 3> {
        let Layout { shape, strides } = self.layout().batch();
        View { memory: self.memory, shape, strides }
    }
}

impl<'a, T: Element> View<'a, T, 3> {
    /// The matrices as a batch of one such stack.
    pub fn batch(&self) -> View<'a, T, 4> {
        let Layout { shape, strides } = self.layout().batch();
        View { memory: self.memory, shape, strides }
    }

    /// A matrix of a batch.
    ///
    /// # Panics
    /// If there are not as many.
    #[track_caller]
    pub fn matrix(&self, index: usize) -> View<'a, T, 2> {
        let View { memory, shape: [_, rows, cols], strides: [_, row, col] } = self.slice(0, index..=index);
        View { memory, shape: [rows, cols], strides: [row, col] }
    }
}

impl<'a, T: Element> ViewMut<'a, T, 2> {
    /// The matrix as a batch of one.
    pub fn batch(self) -> ViewMut<'a, T, 3> {
        let Layout { shape, strides } = self.layout().batch();
        ViewMut { memory: self.memory, shape, strides }
    }
}

impl<'a, T: Element> ViewMut<'a, T, 3> {
    /// The matrices as a batch of one such stack.
    pub fn batch(self) -> ViewMut<'a, T, 4> {
        let Layout { shape, strides } = self.layout().batch();
        ViewMut { memory: self.memory, shape, strides }
    }
}

impl<const R: usize> Layout<R> {
    /// A stride that leads beyond all elements.
    fn beyond(&self) -> usize {
        let ends = self.shape.iter().zip(self.strides).map(|(&extent, stride)| extent.saturating_mul(stride));
        ends.max().unwrap_or(0).min(LIMIT - 1)
    }
}

impl Layout<2> {
    /// With an axis of extent 1 before the others.
    fn batch(self) -> Layout<3> {
        let Layout { shape: [rows, cols], strides: [row, col] } = self;
        Layout { shape: [1, rows, cols], strides: [self.beyond(), row, col] }
    }
}

impl Layout<3> {
    /// With an axis of extent 1 before the others.
    fn batch(self) -> Layout<4> {
        let Layout { shape: [count, rows, cols], strides: [matrix, row, col] } = self;
        Layout { shape: [1, count, rows, cols], strides: [self.beyond(), matrix, row, col] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_a_batch_of_one() {
        let mut memory: Vec<i32> = (0..12).collect();
        let strided = View::strided(&memory, [2, 3], [1, 4]).expect("a view that fits").batch();
        assert_eq!((strided.shape(), strided.strides()), ([1, 2, 3], [12, 1, 4]));
        let batch = View::new(&memory, [2, 3, 2]).expect("a view that fits");
        let stack = batch.batch();
        assert_eq!((stack.shape(), stack.strides()), ([1, 2, 3, 2], [12, 6, 2, 1]));
        let second = batch.matrix(1);
        assert_eq!((second.shape(), second.strides(), second.memory.len()), ([3, 2], [2, 1], 6));
        let written = ViewMut::new(&mut memory, [3, 4]).expect("a view that fits").batch();
        assert_eq!((written.shape(), written.strides()), ([1, 3, 4], [12, 4, 1]));
    }

    #[test]
    #[should_panic(expected = "range")]
    fn a_matrix_is_one_of_its_batch() {
        let memory: Vec<i32> = (0..12).collect();
        View::new(&memory, [2, 3, 2]).expect("a view that fits").matrix(2);
    }
}
