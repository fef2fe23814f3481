//! Addresses with a constant offset, which instructions add by themselves.

use crate::gpu::emit::Builder;
use crate::mlir::builder::Val;

/// The address `base + bytes`.
#[derive(Clone, Copy)]
pub(super) struct OffsetAddress {
    /// A pointer, or an `i32` in shared memory.
    pub base: Val,
    pub bytes: i32,
}

impl OffsetAddress {
    /// The sum, from a pointer.
    pub fn pointer(self, b: &mut Builder) -> Val {
        b.offset_bytes(self.base, self.bytes)
    }
}
