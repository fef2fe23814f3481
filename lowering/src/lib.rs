//! The compiler behind `#[fuse_kernel]`: tile kernels in Rust syntax to PTX and host assembly.
//!
//! [`compile`] is the whole of it; ARCHITECTURE.md has the map. The library runs without rustc and without a GPU: its
//! input and output are `proc_macro2` tokens.

pub mod analysis;
pub mod body;
pub mod check;
mod compile;
pub mod diagnostic;
pub mod dtype;
mod expand;
pub mod layout;
mod mistake;
pub mod mlir;
mod op_table;
pub mod ops;
pub mod options;
mod programs;
pub mod reference;
pub mod syntax;
pub mod target;
pub mod tile;

pub use compile::{
    compile, compile_method, compile_module, compile_module_with, compile_with, misplaced_function,
};
pub use op_table::op_table;
pub use programs::random_programs;

#[cfg(test)]
mod tests;
