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
mod enums;
mod expr;
mod foreign;
mod foreign_syntax;
mod fragments;
mod function;
mod import;
mod inner_attributes;
mod item;
mod items;
mod lints;
mod match_lowering;
mod module;
mod option_mistakes;
mod optional;
mod structs;
mod suffix;
mod token_names;
mod unsupported;
mod use_tree;
mod values;
mod without_effect;

pub use ast::*;
pub use attribute::describe as describe_value;
pub(crate) use attribute::{OPTIONS, SETTINGS, nearest_name};
pub use conditions::{is_conditional, without_empty_places};
pub use enclosing::is_in_impl_or_trait;
pub use foreign::{
    Answer, COMMON_WORDS, Foreign, NameKind, Place, foreign, own_function_help, table as foreign_table,
};
pub(crate) use foreign::{COUNT_DOWN, call_form, call_head, element_type, foreign_help, parameters};
pub use foreign_syntax::report_foreign_syntax;
pub(crate) use function::CONSTANTS;
pub use import::{Wanted, exported, imported, imports, wanted};
pub(crate) use item::const_range;
pub use item::{has_receiver, parse, parse_method, syntax_error, without_body};
pub(crate) use items::parse_items;
pub use lints::{expects_outline_lint, sets_lint_level};
pub(crate) use match_lowering::is_scrutinee;
pub use module::{FuseModule, Mark, ModuleItem, parse as parse_module};
pub(crate) use optional::{BOUND, HAS_NONE, HAS_SOME};
pub(crate) use token_names::find_name;
pub(crate) use unsupported::hint_method;
pub use use_tree::LANGUAGE_TYPES;
pub(crate) use values::integer as written_integer;
pub use without_effect::without_effect;
