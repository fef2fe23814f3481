//! What code is built for.

/// What code is built for, as far as a single operation needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// An NVIDIA GPU thread.
    Nvptx,
    Host(Vectors),
}

/// What a host's processor does to vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// Nothing is known but its family.
    Baseline,
    /// It converts half precision itself, and multiplies and adds with one rounding.
    Fused,
    /// And it has 32 registers of 64 bytes.
    Wide,
}
