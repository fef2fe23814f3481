//! The functions that a kernel's outline calls. The macro emits the outline for rustc's lints, and nothing runs it: every
//! value is an integer, and each computation of the kernel is a call that takes its operands.

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

/// The value that a `match` compares with numbers.
pub fn matched<T>(_: T) -> i128 {
    0
}

/// The iterations of a loop.
pub fn iterations<T>(_: T) -> std::iter::Empty<i32> {
    std::iter::empty()
}
