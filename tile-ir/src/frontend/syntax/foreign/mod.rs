//! Names from other languages, and what to write instead: one table, asked wherever a name is looked up and not found, before
//! names that are spelled alike.

mod cuda;
mod cutlass;
mod element_types;
mod numpy;
mod row;
mod rust;
mod triton;

use crate::ops;
use crate::support::dtype::DType;

pub use row::{Answer, Foreign, NameKind, Place};
pub(crate) use row::{COUNT_DOWN, call_form, call_head, parameters};

/// The whole table.
pub fn table() -> impl Iterator<Item = &'static Foreign> {
    let tables =
        [element_types::TABLE, cuda::TABLE, cutlass::TABLE, triton::TABLE, numpy::TABLE, rust::TABLE];
    tables.into_iter().flatten()
}

/// What to write instead of an unknown name, if another language knows it: as it is spelled, or else in any spelling.
pub fn foreign(name: &str, place: Place) -> Option<Foreign> {
    let rows = || table().filter(|row| row.is_answered_in(place)).copied();
    if let Some(row) = rows().find(|row| row.names.contains(&name)) {
        return Some(row);
    }
    // An option in capitals is a generic.
    let name = (place != Place::Option).then(|| folded(name))?;
    let is_function = matches!(place, Place::Function | Place::Module | Place::Method | Place::Macro);
    // `atomicMax` is `tl::atomic_max`.
    let own = ops::function_names().find(|own| is_function && folded(own) == name);
    let own = own.map(|own| row::own(&[], own));
    own.or_else(|| rows().find(|row| row.names.iter().any(|known| is_spelling(known, &name))))
}

/// A name without case and underscores, in which languages differ.
fn folded(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Whether a folded name is that of a row, or begins with it where a `*` follows.
fn is_spelling(known: &str, name: &str) -> bool {
    match known.strip_suffix('*') {
        Some(start) => name.starts_with(&folded(start)),
        None => folded(known) == name,
    }
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
