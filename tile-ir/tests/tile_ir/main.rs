//! Tests of every stage up to the passes that need no layout: a small kernel's source in, the whole output out.
//! `UPDATE_EXPECT=1 cargo test` blesses.

mod axis_info;
mod book;
mod check_overflow;
mod contract_floats;
mod defer_scale;
mod dtype;
mod early_exit;
mod enclosing;
mod errors;
mod filetests;
mod foreign;
mod functions;
mod guarded_bounds;
mod index_width;
mod inline;
mod language;
mod legalize_index;
mod lexer;
mod library;
mod longest_first;
mod lower_view_access;
mod messages_syntax;
mod messages_typeck;
mod mistakes;
mod modules;
mod optional;
mod parse;
mod robustness;
mod sources;
mod strength_reduce;
mod tokens;
mod typeck;
mod warnings;
mod wrong_kernels;
