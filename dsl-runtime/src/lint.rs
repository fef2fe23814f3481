//! What the outline of a kernel is made of, which the macro leaves for rustc's lints and nothing calls: every value is an
//! integer, and what a kernel computes with it is a call that takes it.

/// Any value, made of others.
pub fn value<T>(_: T) -> i32 {
    0
}

/// A constant, made of others.
pub const fn known<T: Copy>(_: T) {}

/// The value of a statement: it goes nowhere.
pub fn used<T>(_: T) {}

/// The value of a statement that should have gone somewhere.
pub fn unused<T>(_: T) -> crate::tl::Tile {
    unreachable!()
}

/// What a tuple's parts are made of.
pub fn parts<P, T>(_: T) -> P {
    unreachable!()
}

/// A condition.
pub fn truth<T>(_: T) -> bool {
    true
}

/// The iterations of a loop.
pub fn iterations<T>(_: T) -> std::iter::Empty<i32> {
    std::iter::empty()
}
