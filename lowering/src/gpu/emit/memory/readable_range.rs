//! Where in a slice a misaligned vector can be read as the two aligned vectors around it.

use tile_ir::ops::MemAccess;

use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

/// The addresses at which a vector can be read as two aligned ones.
pub(super) struct ReadableRange {
    /// The slice's address as an integer.
    start: Val,
    /// Bytes behind it from which on the second vector may end outside the slice.
    end: Val,
    /// The mask that clears the low bits of an address down to an aligned vector.
    low: Val,
}

impl ReadableRange {
    pub(super) fn new(gpu: &Gpu, b: &mut Builder, access: &MemAccess) -> ReadableRange {
        let (slice, size) = (gpu.slice(access.param), i64::from(gpu.func.slice(access.param).0.bytes()));
        let width = i64::from(access.vector) * size;
        let start = b.convert("llvm.ptrtoint", slice.pointer, Elem::I64);
        let [size, both, zero, low] = [size, 1 - 2 * width, 0, -width].map(|value| b.int(Ty::I64, value));
        let bytes = b.mul(slice.length, size);
        let end = b.add(bytes, both);
        let end = b.op("llvm.intr.smax", &[end, zero], Ty::I64);
        ReadableRange { start, end, low }
    }

    /// Whether both aligned vectors around a pointer are inside.
    pub(super) fn contains(&self, b: &mut Builder, pointer: Val) -> Val {
        let address = b.convert("llvm.ptrtoint", pointer, Elem::I64);
        let aligned = b.and(address, self.low);
        let distance = b.sub(aligned, self.start);
        b.icmp(IntPredicate::Ult, distance, self.end)
    }
}
