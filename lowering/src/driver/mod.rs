//! The compiler's stages in order: every variant of a kernel, every specialization of a variant, on every target.

pub mod artifact;
pub mod compile;
mod dump;
pub mod options;
pub mod pipeline;
pub mod specialize;
pub mod variant_errors;
pub mod workers;
