//! From tile IR to the code of one GPU thread: `layout` says which thread holds what, `opt` rewrites laid-out tiles, `emit`
//! writes MLIR.

pub mod emit;
pub mod layout;
pub mod opt;
pub mod specialization;
