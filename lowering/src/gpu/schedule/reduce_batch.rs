//! Reductions side by side exchange their partial results at one barrier.
//!
//! Legal where
//! 1. all of them exchange partial results through scratch memory, and no two of them through the same bytes;
//! 2. none takes the result of another one.

use super::Schedule;
use super::smem_alloc::Interval;
use tile_ir::ir::{Block, Op};
use tile_ir::ops::{Kind, ReduceBatch};

/// The pass: see the module.
pub fn reduce_batch(schedule: &mut Schedule) {
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    in_block(schedule, &mut body);
    schedule.distributed.func.body = body;
}

fn in_block(schedule: &mut Schedule, block: &mut Block) {
    let mut rest = std::mem::take(&mut block.ops);
    while !rest.is_empty() {
        let count = batch_size(schedule, &rest);
        let behind = rest.split_off(count.max(1));
        let mut ops = std::mem::replace(&mut rest, behind);
        if count > 1 {
            block.ops.push(batch(schedule, ops));
            continue;
        }
        for op in &mut ops {
            if !op.kind.operation().isolated() {
                op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(schedule, block));
            }
        }
        block.ops.append(&mut ops);
    }
}

/// How many of these operations are reductions that may share a barrier.
fn batch_size(schedule: &Schedule, ops: &[Op]) -> usize {
    let mut intervals: Vec<Interval> = vec![];
    for (count, op) in ops.iter().enumerate() {
        let depends_on_earlier = |value| ops[..count].iter().any(|earlier| earlier.results.contains(value));
        let exchanged = if matches!(op.kind, Kind::Reduce(_)) { schedule.exchanges(op) } else { vec![] };
        let overlaps = exchanged.iter().any(|own| intervals.iter().any(|other| other.overlaps(own)));
        if exchanged.is_empty() || overlaps || op.kind.operation().operands().iter().any(depends_on_earlier) {
            return count;
        }
        intervals.extend(exchanged);
    }
    ops.len()
}

/// The batch of some reductions, whose results it has; in its block they have copies of their own.
fn batch(schedule: &mut Schedule, mut ops: Vec<Op>) -> Op {
    let loc = ops[0].loc;
    let results = ops.iter().flat_map(|op| op.results.iter().copied()).collect();
    for op in &mut ops {
        op.results = op.results.iter().map(|&result| schedule.copy_of(result)).collect();
    }
    let yields = ops.iter().flat_map(|op| op.results.iter().copied()).collect();
    let body = Block { args: vec![], ops, yields };
    Op { kind: ReduceBatch { body }.into(), results, loc }
}
