//! Independent reductions are moved next to each other, so that they share one barrier.
//!
//! `sum(x) / n` and then `sum(y) / n` wait for the other warps twice; only the division is between them. Pure
//! operations that need the first result move behind the second reduction.

use std::collections::HashSet;
use std::ops::Range;

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Effect, Kind};

use crate::gpu::layout::Distributed;
use crate::gpu::layout::Layout;

/// Reorders every block.
pub fn batch_reductions(distributed: &mut Distributed) {
    let mut body = std::mem::take(&mut distributed.func.body);
    in_block(distributed, &mut body);
    distributed.func.body = body;
}

fn in_block(distributed: &Distributed, block: &mut Block) {
    for op in &mut block.ops {
        if !op.kind.operation().isolated() {
            for inner in op.kind.operation_mut().blocks_mut() {
                in_block(distributed, inner);
            }
        }
    }
    let mut first = 0;
    while first < block.ops.len() {
        // The batch is `first..end`.
        let mut end = first + 1;
        while crosses_warps(distributed, &block.ops[first])
            && let Some((next, dependent)) = next_independent(distributed, &block.ops, first..end)
        {
            // Of the operations between the batch and the next reduction, independent ones go before the batch,
            // dependent ones behind.
            let between: Vec<Op> = block.ops.drain(end..next).collect();
            let (behind, before): (Vec<Op>, Vec<Op>) = between
                .into_iter()
                .partition(|op| op.results.iter().any(|result| dependent.contains(result)));
            let moved = before.len();
            block.ops.splice(first..first, before);
            (first, end) = (first + moved, end + moved + 1);
            block.ops.splice(end..end, behind);
        }
        first = end;
    }
}

/// The next reduction, if it does not depend on the batch, and the values that do.
fn next_independent(
    distributed: &Distributed,
    ops: &[Op],
    batch: Range<usize>,
) -> Option<(usize, HashSet<Value>)> {
    let mut dependent: HashSet<Value> =
        ops[batch.clone()].iter().flat_map(|op| &op.results).copied().collect();
    for (i, op) in ops.iter().enumerate().skip(batch.end) {
        let depends = used_values(op).iter().any(|value| dependent.contains(value));
        if crosses_warps(distributed, op) {
            return (!depends).then_some((i, dependent));
        }
        let operation = op.kind.operation();
        if depends {
            if operation.effect() != Effect::Pure || !operation.blocks().is_empty() {
                return None;
            }
            dependent.extend(&op.results);
        } else if operation.effect() == Effect::Write || !operation.blocks().is_empty() {
            return None;
        }
    }
    None
}

pub(crate) fn crosses_warps(distributed: &Distributed, op: &Op) -> bool {
    matches!(&op.kind, Kind::Reduce(reduce) if { let layout = &distributed.layouts[&reduce.combination.inputs[0]]; reduced_warps(layout, &layout.without(&reduce.axes)) != 0 })
}

/// Warp bits along reduced axes: their partial results are combined in shared memory.
pub fn reduced_warps(layout: &Layout, reduced: &Layout) -> u32 {
    reduced.replicated_warps() & !layout.replicated_warps()
}

/// Whether an operation is a reduction that is followed by an independent one, with which it shares a barrier.
pub(crate) fn shares_barrier_with_next(func: &Func, op: &Op, next: Option<&Op>) -> bool {
    let reduces = |op: &Op| {
        matches!(op.kind.operation().layout_relation(func, &op.results), LayoutRelation::Reduce { .. })
    };
    next.is_some_and(|next| {
        reduces(op)
            && reduces(next)
            && !next.kind.operation().operands().iter().any(|value| op.results.contains(value))
    })
}

/// The values that an operation and those in its blocks use.
pub(crate) fn used_values(op: &Op) -> Vec<Value> {
    let operation = op.kind.operation();
    let mut used = operation.operands();
    for block in operation.blocks() {
        used.extend(&block.yields);
        used.extend(block.ops.iter().flat_map(used_values));
    }
    used
}
