//! Waits until all blocks of a cluster that run one program have started, before one of them stores to another.
//!
//! A block arrives first of all, and waits once. Legal where:
//! 1. several blocks run a program;
//! 2. there is an operation whose effect other blocks may see: the wait stands before the first one.

use super::Schedule;
use super::scratch::scratch_of;
use crate::gpu::layout::Distributed;
use tile_ir::ir::Op;
use tile_ir::ops::{ClusterArrive, ClusterWait, Effect, Kind};

/// The pass: see the module.
pub fn cluster_wait(schedule: &mut Schedule) {
    let Distributed { func, num_ctas, .. } = &schedule.distributed;
    if *num_ctas == 1 {
        return;
    }
    let is_seen = |op: &Op| has_cluster_effect(&schedule.distributed, op);
    let Some(first) = func.body.ops.iter().position(is_seen) else { return };
    let ops = &mut schedule.distributed.func.body.ops;
    let loc = ops[first].loc;
    ops.insert(first, Op { kind: ClusterWait.into(), results: vec![], loc });
    ops.insert(0, Op { kind: ClusterArrive.into(), results: vec![], loc });
}

/// Whether an operation writes what other blocks of the cluster may see, or waits for them.
fn has_cluster_effect(distributed: &Distributed, op: &Op) -> bool {
    let operation = op.kind.operation();
    scratch_of(&op.kind).scratch(distributed, op) > 0
        || matches!(op.kind, Kind::AsyncWait(_))
        || operation.access().is_some() && operation.effect() == Effect::Write
        || operation
            .blocks()
            .iter()
            .any(|block| block.ops.iter().any(|op| has_cluster_effect(distributed, op)))
}
