//! Reductions side by side exchange their partial results at one barrier, and those of even and odd iterations in different buffers.
//!
//! A reduction whose scratch memory has two buffers takes the one that the parity of the iteration names. So an iteration need not
//! wait until all threads have read the results of the one before it: [`membar`](super::membar) puts no barrier there.
//!
//! Legal where
//! 1. all of a batch exchange partial results through scratch memory, and no two of them through the same bytes;
//! 2. none takes the result of another one;
//! 3. a buffer is chosen by parity where there are two, and the reduction stands in the body of a loop that counts its iterations: it runs
//!    in each of them, so that all threads have read a buffer when it is written again.

use super::smem_alloc::Interval;
use super::{Schedule, ScratchExchange};
use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::PartialExchange;
use tile_ir::ops::{Kind, ReduceBatch};

/// The pass: see the module.
pub fn reduce_batch(schedule: &mut Schedule) {
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    in_block(schedule, &mut body, None);
    schedule.distributed.func.body = body;
}

/// Rewrites a block; `parity` is the loop whose body it is, if that counts its iterations.
fn in_block(schedule: &mut Schedule, block: &mut Block, parity: Option<Value>) {
    let mut rest = std::mem::take(&mut block.ops);
    while !rest.is_empty() {
        let count = batch_size(schedule, &rest);
        let behind = rest.split_off(count.max(1));
        let mut ops = std::mem::replace(&mut rest, behind);
        let exchange = |op: &Op| {
            let parity = parity.filter(|_| schedule.is_double_buffered(op.results[0]));
            PartialExchange { parity, barrier: None }
        };
        let exchanges: Vec<PartialExchange> = ops[..count].iter().map(exchange).collect();
        if count > 1 || exchanges.iter().any(|exchange| exchange.parity.is_some()) {
            block.ops.push(batch(schedule, ops, exchanges));
            continue;
        }
        for op in &mut ops {
            if !op.kind.operation().isolated() {
                let parity = parity_of(op);
                let blocks = op.kind.operation_mut().blocks_mut();
                blocks.into_iter().for_each(|block| in_block(schedule, block, parity));
            }
        }
        block.ops.append(&mut ops);
    }
}

/// A loop that counts its iterations, by the first argument of its body.
pub fn parity_of(op: &Op) -> Option<Value> {
    let counts = matches!(op.kind, Kind::For(_) | Kind::Loop(_));
    if counts { op.kind.operation().blocks()[0].args.first().copied() } else { None }
}

/// How many of these operations are reductions that may share a barrier.
fn batch_size(schedule: &Schedule, ops: &[Op]) -> usize {
    let mut intervals: Vec<Interval> = vec![];
    for (count, op) in ops.iter().enumerate() {
        let depends_on_earlier = |value| ops[..count].iter().any(|earlier| earlier.results.contains(value));
        let exchanged = if matches!(op.kind, Kind::Reduce(_)) { schedule.exchanges(op) } else { vec![] };
        let own: Vec<Interval> = exchanged.iter().map(|&ScratchExchange { interval, .. }| interval).collect();
        let overlaps = own.iter().any(|own| intervals.iter().any(|other| other.overlaps(own)));
        if own.is_empty() || overlaps || op.kind.operation().operands().iter().any(depends_on_earlier) {
            return count;
        }
        intervals.extend(own);
    }
    ops.len()
}

/// The batch of some reductions, whose results it has; in its block they have copies of their own.
pub fn batch(schedule: &mut Schedule, mut ops: Vec<Op>, mut exchanges: Vec<PartialExchange>) -> Op {
    let loc = ops[0].loc;
    let results = ops.iter().flat_map(|op| op.results.iter().copied()).collect();
    for op in &mut ops {
        op.results = op.results.iter().map(|&result| schedule.copy_of(result)).collect();
    }
    let yields = ops.iter().flat_map(|op| op.results.iter().copied()).collect();
    let body = Block { args: vec![], ops, yields };
    if exchanges.iter().all(|exchange| *exchange == PartialExchange::default()) {
        exchanges.clear();
    }
    Op { kind: ReduceBatch { exchanges, body }.into(), results, loc }
}
