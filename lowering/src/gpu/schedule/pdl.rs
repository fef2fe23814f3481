//! Where a kernel that is launched while the one before it runs must wait for that one (programmatic dependent launch).

use tile_ir::ir::{Block, Op};
use tile_ir::ops::{Effect, Kind};

/// Whether an operation may access memory outside of the block, or has another effect than its results.
pub fn has_memory_effect(op: &Op) -> bool {
    // Barriers are in shared memory.
    if matches!(op.kind, Kind::SmemAlloc(_) | Kind::MbarAlloc(_) | Kind::MbarInit(_) | Kind::PdlWait(_)) {
        return false;
    }
    let operation = op.kind.operation();
    operation.access().is_some()
        || operation.effect() != Effect::Pure
        || matches!(op.kind, Kind::InlinePtx(_))
        || operation.blocks().into_iter().any(|block: &Block| block.ops.iter().any(has_memory_effect))
}
