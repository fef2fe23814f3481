//! What is known of emitted values by how they were made, which later operations make use of.

use std::collections::HashMap;

use tile_ir::ir::Func;

use crate::gpu::emit::rotated_rows::RotatedRows;
use crate::mlir::builder::Val;

/// What is known of emitted values, by their ids.
pub(super) struct ValueFacts {
    /// Values that are a base plus a constant, which then goes into the instruction's offset instead of a register.
    pub constant_offsets: HashMap<usize, (Val, i64)>,
    /// Values that are 0 where a mask does not hold, with the mask and what they are elsewhere.
    pub masked: HashMap<usize, (Val, Val)>,
    /// Indices of misaligned rows, and comparisons of them.
    pub rows: RotatedRows,
}

impl ValueFacts {
    /// Before anything of a function is emitted.
    pub fn of(func: &Func) -> ValueFacts {
        ValueFacts { constant_offsets: HashMap::new(), masked: HashMap::new(), rows: RotatedRows::of(func) }
    }
}
