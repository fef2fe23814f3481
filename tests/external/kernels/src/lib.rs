//! Attention with a score function and a matmul with an epilogue that the library does not have, on its loops.

pub mod attention;
pub mod gated;
