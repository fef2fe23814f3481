//! The instructions of programmatic dependent launch (`gpu::schedule::pdl`).

/// The prefix of the instructions of this module, each in a line of its own; GPUs that lack them get the same code without it.
pub const INSTRUCTION_PREFIX: &str = "griddepcontrol.";

/// The first capability that has them.
pub const CAPABILITY: u32 = 90;
