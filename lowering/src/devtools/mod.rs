//! What the project is checked and documented with: random kernels, the reference of `tl::`, the table of operations.

pub mod fuzzgen;
pub mod op_table;
pub mod tl_reference;
