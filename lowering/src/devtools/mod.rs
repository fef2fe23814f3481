//! Generators for tests and documentation: random kernels, the reference of `tl::`, tests of the lanewise table; and the simulator of GPU
//! schedules.

pub mod fuzzgen;
pub mod op_table;
pub mod schedule_simulator;
pub mod tl_reference;
