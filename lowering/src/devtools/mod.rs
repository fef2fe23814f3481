//! Generators for tests and documentation: random kernels, the reference of `tl::`, tests of the lanewise table.

pub mod fuzzgen;
pub mod op_table;
pub mod tl_reference;
