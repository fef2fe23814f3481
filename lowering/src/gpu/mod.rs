//! From tile IR to the code of one GPU thread. `layout` assigns each tile a layout, `opt` rewrites laid-out tile IR,
//! `emit` writes MLIR.

pub mod emit;
pub mod layout;
pub mod opt;
pub mod schedule;
pub mod specialization;
