//! Tokens to [`Kernel`]: the only user of syn.
//!
//! Takes the attribute's and the function's tokens; gives a tree in which everything has its place in the source. It
//! knows what Rust syntax a kernel may use and names what it may not, and never stops at the first mistake. It does not
//! know names, types or operations: that is `check`.

mod ast;
mod attribute;
mod depth;
mod expr;
mod item;

pub use ast::*;
pub(crate) use attribute::{OPTIONS, SETTINGS, describe as describe_value};
pub(crate) use item::const_range;
pub use item::parse;
