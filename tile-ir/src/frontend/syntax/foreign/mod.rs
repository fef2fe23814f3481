//! Names from other languages, and what to write instead: one table, asked wherever a name is looked up and not found, before
//! names that are spelled alike.

mod cuda;
mod element_types;
mod numpy;
mod row;
mod rust;
mod triton;

use crate::support::dtype::DType;

pub use row::{Answer, Foreign, NameKind, Place};
pub(crate) use row::{COUNT_DOWN, call_form, call_head, parameters};

/// The whole table.
pub fn table() -> impl Iterator<Item = &'static Foreign> {
    [element_types::TABLE, cuda::TABLE, triton::TABLE, numpy::TABLE, rust::TABLE].into_iter().flatten()
}

/// What to write instead of an unknown name, if another language knows it.
pub fn foreign(name: &str, place: Place) -> Option<&'static Foreign> {
    table().find(|row| row.is_answered_in(place) && row.names.contains(&name))
}

/// The help for an unknown name in a place, if another language knows it.
pub(crate) fn foreign_help(name: &str, place: Place) -> Option<String> {
    foreign(name, place).map(|row| row.help(place, None))
}

/// The element type that another language calls `name`.
pub(crate) fn element_type(name: &str) -> Option<DType> {
    match foreign(name, Place::Type)?.answer {
        Answer::Type(dtype) => Some(dtype),
        Answer::Own(_) | Answer::Convert(_) | Answer::Write(_) => None,
    }
}
