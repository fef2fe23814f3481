//! The code of the book: each module belongs to the page of its name, which includes it between anchors. Kernels here are
//! short; those of `fused-kernels` are tuned.

pub mod attention;
pub mod guides;
pub mod layer_norm;
pub mod matmul;
pub mod mistakes;
pub mod readme;
pub mod softmax;
pub mod vector_add;
