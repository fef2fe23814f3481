//! The part of the compiler behind `#[fuse_kernel]` that knows nothing of MLIR: tokens in, tile IR out.
//!
//! [`frontend`] parses and checks a kernel, [`ir`] and [`ops`] are what it becomes, [`analysis`] and [`transform`] are
//! the passes that need no layout. `lowering` goes on from there.

pub mod analysis;
pub mod frontend;
pub mod ir;
pub mod ops;
pub mod support;
#[doc(hidden)]
pub mod testing;
pub mod transform;
