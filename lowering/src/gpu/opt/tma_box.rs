//! What TMA accesses at once.

/// The alignment of the address and strides of a view, in bytes, and of where a block begins along the last axis.
pub const TMA_ALIGNMENT: u32 = 16;
/// The rows of a block are a multiple of this.
pub const ROW_MULTIPLE: u32 = 16;
/// The most rows of a box that one instruction loads.
pub const MAX_ROWS: u32 = 256;
