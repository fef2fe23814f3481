//! Waits until all blocks of a cluster that run one program have started, before one of them stores to another.
//!
//! A block arrives first of all, and waits once. Reductions whose partial results go to other blocks by asynchronous stores wait for
//! them at `mbarrier` objects: the pass allocates these, says so with each reduction, and has them initialized before the block
//! arrives, so that they are behind the wait. Legal where:
//! 1. several blocks run a program;
//! 2. there is an operation whose effect other blocks may see: the wait stands before the first one.

use std::collections::BTreeMap;

use super::Schedule;
use super::reduce_batch::batch;
use super::scratch::scratch_of;
use crate::gpu::layout::Distributed;
use tile_ir::ir::{Block, Op, Type, Value};
use tile_ir::ops::schedule::{InitVisibility, PartialExchange};
use tile_ir::ops::{ClusterArrive, ClusterWait, Effect, Kind, MbarAlloc, MbarInit};

/// The pass: see the module.
pub fn cluster_wait(schedule: &mut Schedule) {
    let Distributed { func, num_ctas, .. } = &schedule.distributed;
    if *num_ctas == 1 {
        return;
    }
    let is_seen = |op: &Op| has_cluster_effect(&schedule.distributed, op);
    let Some(first) = func.body.ops.iter().position(is_seen) else { return };
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    let loc = body.ops[first].loc;
    let mut start = vec![];
    let barriers = barriers_by_address(schedule, &body);
    wait_at_barriers(schedule, &mut body, &barriers);
    if !barriers.is_empty() {
        let alloc = |(&address, &barrier): (&u32, &Value)| {
            let kind = MbarAlloc { address }.into();
            Op { kind, results: vec![barrier], loc }
        };
        start.extend(barriers.iter().map(alloc));
        let barriers = barriers.into_values().collect();
        let init = MbarInit { barriers, prefetched: vec![], visible: InitVisibility::ClusterWait };
        start.push(Op { kind: init.into(), results: vec![], loc });
    }
    start.push(Op { kind: ClusterArrive.into(), results: vec![], loc });
    body.ops.insert(first, Op { kind: ClusterWait.into(), results: vec![], loc });
    body.ops.splice(0..0, start);
    schedule.distributed.func.body = body;
}

/// The barriers of reductions whose partial results arrive at one; every warp of this block arrives once in each phase. Copies of a
/// reduction have the same.
fn barriers_by_address(schedule: &mut Schedule, body: &Block) -> BTreeMap<u32, Value> {
    let mut stages = BTreeMap::new();
    body.walk(&mut |op| {
        let is_reduction = matches!(op.kind, Kind::Reduce(_));
        let Some(&result) = op.results.first().filter(|_| is_reduction) else { return };
        if let Some(address) = schedule.mbarrier(result) {
            stages.insert(address, if schedule.is_double_buffered(result) { 2 } else { 1 });
        }
    });
    let warps = schedule.distributed.warps_per_cta();
    let barrier = |(address, stages)| (address, schedule.value(Type::mbarriers(stages, warps, false)));
    stages.into_iter().map(barrier).collect()
}

/// Says of each reduction at which barrier it waits, if it does so at one.
fn wait_at_barriers(schedule: &mut Schedule, block: &mut Block, barriers: &BTreeMap<u32, Value>) {
    for mut op in std::mem::take(&mut block.ops) {
        let barrier_of = |op: &Op| barriers.get(&schedule.mbarrier(*op.results.first()?)?).copied();
        if let Kind::ReduceBatch(batch) = &mut op.kind {
            let own: Vec<Option<Value>> = batch.body.ops.iter().map(barrier_of).collect();
            if own.iter().any(Option::is_some) {
                let with = |(index, &barrier)| PartialExchange { barrier, ..batch.exchange(index) };
                batch.exchanges = own.iter().enumerate().map(with).collect();
            }
        } else if let Kind::Reduce(_) = &op.kind
            && let Some(barrier) = barrier_of(&op)
        {
            let exchange = PartialExchange { parity: None, barrier: Some(barrier) };
            op = batch(schedule, vec![op], vec![exchange]);
        } else if !op.kind.operation().isolated() {
            let blocks = op.kind.operation_mut().blocks_mut();
            blocks.into_iter().for_each(|block| wait_at_barriers(schedule, block, barriers));
        }
        block.ops.push(op);
    }
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
