//! Accesses in loops.

use std::collections::HashSet;

use crate::ir::Func;
use crate::ops::{Kind, MemAccess};

/// The accesses in loops.
pub fn repeated(func: &Func) -> HashSet<MemAccess> {
    let mut accesses = HashSet::new();
    func.body.walk(&mut |op| {
        if matches!(op.kind, Kind::For(_) | Kind::While(_)) {
            for block in op.kind.operation().blocks() {
                block.walk(&mut |op| accesses.extend(op.kind.operation().access().copied()));
            }
        }
    });
    accesses
}
