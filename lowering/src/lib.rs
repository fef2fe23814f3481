//! The compiler behind `#[fuse_kernel]`.

pub mod analysis;
pub mod body;
pub mod check;
pub mod diagnostic;
pub mod dtype;
pub mod layout;
pub mod mlir;
pub mod ops;
pub mod syntax;
pub mod target;
pub mod tile;

#[cfg(test)]
mod tests;
