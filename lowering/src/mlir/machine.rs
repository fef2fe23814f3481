//! The target of code, as far as a single operation depends on it.

/// The target of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// An NVIDIA GPU thread.
    Nvptx,
    Host(Vectors),
}

/// The vector extensions of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// Those of every CPU of the family.
    Baseline,
    /// With conversion of half precision and fused multiply-add.
    Fused,
    /// And with 32 registers of 64 bytes.
    Wide,
}
