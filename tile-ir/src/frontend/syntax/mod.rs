//! Tokens to [`Kernel`]: the only user of syn.
//!
//! Takes the attribute's and the function's tokens; gives a tree in which every node has its span. It knows what
//! Rust syntax a kernel may use, names what it may not, and never stops at the first mistake. It does not know names,
//! types or operations: `typeck` does.

mod assign;
mod ast;
mod attribute;
mod conditions;
mod depth;
mod early_exit;
mod enclosing;
mod expr;
mod foreign_types;
mod fragments;
mod function;
mod inner_attributes;
mod item;
mod lints;
mod match_lowering;
mod module;
mod suffix;
mod values;

pub use ast::*;
pub use attribute::describe as describe_value;
pub(crate) use attribute::{OPTIONS, SETTINGS, nearest_name};
pub use conditions::{is_conditional, without_empty_places};
pub use enclosing::is_in_impl_or_trait;
pub(crate) use foreign_types::element_type;
pub(crate) use function::{CONSTANTS, parse_items};
pub(crate) use item::const_range;
pub use item::{has_receiver, parse, parse_method, syntax_error, without_body};
pub use lints::expects_outline_lint;
pub(crate) use match_lowering::is_scrutinee;
pub use module::{FuseModule, Mark, ModuleItem, parse as parse_module};
