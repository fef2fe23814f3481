//! From a verified MLIR module to text a machine runs: PTX for GPUs, assembly for the host; and what surrounds that at
//! build time: a child process for safety, a cache, NVIDIA's assembler.

pub mod cache;
pub mod host;
pub mod inject;
pub mod isolate;
pub mod llvm;
pub mod nvptx;
pub mod packed;
pub mod ptxas;
