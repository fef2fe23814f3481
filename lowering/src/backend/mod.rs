//! From a verified MLIR module to text a machine runs: PTX for GPUs, assembly for the host; and what surrounds that at
//! build time: a child process for safety, a cache, NVIDIA's assembler.

pub mod cache;
pub mod compress;
pub mod host_asm;
pub mod inject;
pub mod llvm;
pub mod nvptx;
pub mod ptxas;
pub mod sandbox;

/// The text of each stage of a module, for `FUSE_DUMP`.
#[derive(Default, Debug)]
pub struct StageTexts {
    pub mlir: String,
    pub llvm: String,
}
