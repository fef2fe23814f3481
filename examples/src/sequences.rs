//! Views of the heads of one sequence or of several.

use dsl_runtime::prelude::*;

/// The heads of a sequence, `[heads, rows, D]`, or those of several sequences along a first axis.
pub trait Sequences<'a, T: Element> {
    /// The same with an axis that counts sequences.
    fn sequences(self) -> View<'a, T, 4>;
}

impl<'a, T: Element> Sequences<'a, T> for View<'a, T, 3> {
    fn sequences(self) -> View<'a, T, 4> {
        self.batch()
    }
}

impl<'a, T: Element> Sequences<'a, T> for View<'a, T, 4> {
    fn sequences(self) -> View<'a, T, 4> {
        self
    }
}

/// The heads of a sequence to write, or those of several sequences along a first axis.
pub trait SequencesMut<'a, T: Element> {
    /// The same with an axis that counts sequences.
    fn sequences(self) -> ViewMut<'a, T, 4>;
}

impl<'a, T: Element> SequencesMut<'a, T> for ViewMut<'a, T, 3> {
    fn sequences(self) -> ViewMut<'a, T, 4> {
        self.batch()
    }
}

impl<'a, T: Element> SequencesMut<'a, T> for ViewMut<'a, T, 4> {
    fn sequences(self) -> ViewMut<'a, T, 4> {
        self
    }
}
