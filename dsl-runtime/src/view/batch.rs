//! Batches: matrices along a first axis.

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

impl Layout<2> {
    /// With an axis of extent 1 before the others, whose stride leads beyond them.
    fn batch(self) -> Layout<3> {
        let Layout { shape: [rows, cols], strides: [row, col] } = self;
        let stride = rows.saturating_mul(row).max(cols.saturating_mul(col)).min(LIMIT - 1);
        Layout { shape: [1, rows, cols], strides: [stride, row, col] }
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
