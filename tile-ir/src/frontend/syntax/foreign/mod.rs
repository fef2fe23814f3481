//! Names from other languages, and what to write instead: one table, asked wherever a name is looked up and not found, before
//! names that are spelled alike.

mod cuda;
mod cutlass;
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
    let tables =
        [element_types::TABLE, cuda::TABLE, cutlass::TABLE, triton::TABLE, numpy::TABLE, rust::TABLE];
    tables.into_iter().flatten()
}

/// What to write instead of an unknown name, if another language knows it.
pub fn foreign(name: &str, place: Place) -> Option<&'static Foreign> {
    table().find(|row| row.is_answered_in(place) && row.names.contains(&name))
}

/// Names that are as likely to be of a user's own function, which no kernel sees outside of a `#[fuse_module]`.
pub const COMMON_WORDS: [&str; 24] = [
    "average",
    "cross",
    "elu",
    "fract",
    "gemm",
    "hypot",
    "inner",
    "leaky_relu",
    "lerp",
    "matmul",
    "matvec",
    "mean",
    "mish",
    "norm",
    "outer",
    "power",
    "product",
    "reciprocal",
    "relu6",
    "sign",
    "square",
    "stddev",
    "swish",
    "variance",
];

/// What else to say of a call of `name` alone.
pub fn own_function_help(name: &str) -> Option<&'static str> {
    COMMON_WORDS
        .contains(&name)
        .then_some("; a function of your own is a `#[fuse_fn]` in the kernel's `#[fuse_module]`")
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
