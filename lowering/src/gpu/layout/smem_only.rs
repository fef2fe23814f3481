//! Tiles that are in shared memory alone.

use tile_ir::ir::Value;

/// A view of a load whose tile a loop copies to shared memory, as an operand of dots.
#[derive(Clone, Debug)]
pub struct SmemOnlyTile {
    /// The load's result.
    pub load: Value,
    /// For each axis, the load's axis that it is; none has extent 1.
    pub axes: Vec<Option<usize>>,
    /// For dots by FMA: the load's axis along which its rows are contiguous in shared memory.
    pub lines: Option<usize>,
}
