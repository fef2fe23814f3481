//! From a verified MLIR module to text that a machine runs: PTX for GPUs, assembly for the CPU. Around that at build
//! time: child processes for safety, a cache, and ptxas.

pub mod cache;
pub mod compress;
pub mod environment;
pub mod host_asm;
pub mod image;
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
