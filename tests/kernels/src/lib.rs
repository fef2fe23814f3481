//! Kernels of the tests, and what the harness in `tests/numerics/` runs them with. Free of the compiler, so that a test binary
//! runs on a machine that has neither Rust nor LLVM.

pub mod arrange;
pub mod async_copy;
pub mod atomic;
pub mod attention_backward;
pub mod case;
pub mod cluster;
pub mod conditions;
pub mod control;
pub mod dot;
pub mod functions;
pub mod integers;
pub mod memory;
pub mod programs;
pub mod random;
pub mod reduce;
pub mod rounding;
pub mod scan;
pub mod shape;
pub mod special;
pub mod table;
pub mod view;
pub mod warpgroup_dot;
