//! The lanewise table and every conversion, generated from the compiler's own declarations.

dsl_macros::op_table!();
