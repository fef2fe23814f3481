//! Tiles that lie in shared memory alone.

use crate::ir::Value;

/// What is seen of a load whose tile a loop copies to shared memory, for products to read.
#[derive(Clone, Debug)]
pub struct SmemOnlyTile {
    /// What the load gives.
    pub load: Value,
    /// For each axis, which one of the load's it is; none has extent 1.
    pub axes: Vec<Option<usize>>,
    /// Where single threads multiply it: the load's axis along which its lines lie, as they are.
    pub lines: Option<usize>,
}
