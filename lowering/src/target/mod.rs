//! From a verified MLIR module to text a machine runs: PTX for GPUs, assembly for the host.

pub mod host;
pub mod llvm;
pub mod nvptx;
