//! The compiler behind `#[fuse_kernel]`: tile kernels in Rust syntax to PTX and host assembly.
//!
//! [`compile`] is the whole of it; ARCHITECTURE.md has the map. The library runs without rustc and without a GPU: its
//! input and output are `proc_macro2` tokens.

pub mod backend;
pub mod cpu;
pub mod devtools;
pub mod driver;
pub mod expand;
pub mod gpu;
pub mod mlir;

pub use devtools::fuzzgen::random_programs;
pub use devtools::op_table::op_table;
pub use expand::macros::{
    compile, compile_configured, compile_configured_with, compile_imported, compile_imported_with,
    compile_method, compile_module, compile_module_with, compile_with, misplaced_function, misplaced_struct,
};
