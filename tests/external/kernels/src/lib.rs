//! Kernels that the library does not have, made of its functions: attention with another score, a matmul with another epilogue, a norm with a
//! scaled residual.

pub mod attention;
pub mod gated;
pub mod norm;
