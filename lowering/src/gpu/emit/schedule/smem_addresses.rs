//! Where things are in shared memory.

use std::collections::HashMap;

use tile_ir::ir::Value;

use super::{SlotTileAddress, SmemBufferAddress};
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::mlir::builder::Val;

/// Addresses in this program's shared memory.
#[derive(Default)]
pub(in crate::gpu::emit) struct SmemAddresses {
    /// Where it starts; `None` where the program has none.
    pub base: Option<Val>,
    /// Buffers, and lists of barriers.
    pub buffers: HashMap<Value, SmemBufferAddress>,
    /// The tiles of slots that dots read.
    pub slot_tiles: HashMap<Value, SlotTileAddress>,
    /// Operands of dots that were written before a loop.
    pub staged_operands: HashMap<Value, SmemTileAddress>,
}
