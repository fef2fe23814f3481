//! The rows that users call by name: those of the table, and those that are written in the language.

use super::{ScalarOp, TABLE, elementary};

/// Every such row.
pub fn all() -> impl Iterator<Item = &'static ScalarOp> {
    TABLE.iter().filter(|op| !op.is_operator()).chain(elementary::FUNCTIONS)
}

/// The row that is called `name`.
pub fn named(name: &str) -> Option<&'static ScalarOp> {
    all().find(|op| op.name == name)
}
