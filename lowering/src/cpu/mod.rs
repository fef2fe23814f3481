//! From tile IR to the code of one CPU thread: `plan` says which tiles are written to memory, `emit` writes MLIR.

pub mod emit;
pub mod in_place;
pub mod plan;
