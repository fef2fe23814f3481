//! Shared memory descriptors: how a `wgmma` finds an operand tile, as TMA wrote it.

use crate::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use crate::mlir::builder::Val;

/// Bytes of rows that are swizzled in groups of four chunks; those of two have half as many.
const HALF_ROW_BYTES: u32 = SWIZZLE_ROW_BYTES / 2;
/// Rows whose chunks are swizzled together.
const SWIZZLED: u32 = 8;

/// A shared memory descriptor: an operand tile as the instruction reads it.
pub(super) struct SmemDescriptor {
    /// The lower word of the descriptor of the warpgroup's first instruction.
    pub descriptor: Val,
    /// Whether the tile is MN-major: elements along K are one row after the other.
    pub mn_major: bool,
    /// The rows of a chunk that is one swizzled row wide.
    pub lines: u32,
    /// Elements of a swizzled row.
    pub width: u32,
    /// Bytes of a swizzled row: 128, or those of a whole row of the tile if it is shorter.
    pub row_bytes: u32,
}

/// The field of a descriptor for a number of bytes.
pub(super) fn field(bytes: u32) -> i64 {
    i64::from(bytes >> 4)
}

impl SmemDescriptor {
    /// The offset of the K step at `step`, in units of the descriptor.
    pub fn step(&self, step: u32) -> i64 {
        let bytes = if self.mn_major {
            step * self.row_bytes
        } else {
            step / self.width * self.lines * self.row_bytes
                + step % self.width * (self.row_bytes / self.width)
        };
        field(bytes)
    }

    /// Bytes to the rows (or columns) of the result from `first` on, a multiple of a swizzled row where these are
    /// along it.
    pub fn distance(&self, first: u32) -> u32 {
        if self.mn_major { first / self.width * self.lines * self.row_bytes } else { first * self.row_bytes }
    }

    /// The upper word: how rows are swizzled, and the stride between groups of swizzled rows.
    pub fn upper_word(&self) -> u32 {
        let swizzle: u32 = match self.row_bytes {
            SWIZZLE_ROW_BYTES => 1,
            HALF_ROW_BYTES => 2,
            _ => 3,
        };
        swizzle << 30 | (SWIZZLED * self.row_bytes) >> 4
    }
}
