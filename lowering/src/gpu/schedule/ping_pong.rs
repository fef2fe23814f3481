//! Lets the warpgroups issue their chained dots in turn: one issues, while the others work on their results (FlashAttention-3's
//! ping-pong).
//!
//! A warpgroup waits for its turn once in each iteration, and lets the next one begin once. Before the first program, the last warpgroup
//! lets the first one begin. Each runs the same iterations: the scalars that a loop's range is computed from are the same in all of them.
//!
//! Legal where
//! 1. a program has several consumer warpgroups;
//! 2. the loop is one of the consumers, and overlaps its iterations;
//! 3. its body issues two dots, and waits for neither at once.

use super::Schedule;
use super::loops::DotGroup;
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use tile_ir::ir::{Block, Op};
use tile_ir::ops::schedule::{AfterIssue, MmaOrderStep};
use tile_ir::ops::{Kind, MmaOrder};
use tile_ir::support::diagnostic::Loc;

/// Orders the dots of overlapped loops with two of them, where a program has several warpgroups.
pub fn ping_pong(schedule: &mut Schedule) {
    if schedule.distributed.num_warps / WARPGROUP_WARPS <= 1 {
        return;
    }
    for op in &mut schedule.distributed.func.body.ops {
        if let Kind::WarpSpecialize(roles) = &mut op.kind
            && order_dots(&mut roles.consumer)
        {
            roles.consumer.ops.insert(0, step(op.loc, MmaOrderStep::Init));
        }
    }
}

/// Whether dots of the block are in an order now.
fn order_dots(block: &mut Block) -> bool {
    let mut any = false;
    for op in &mut block.ops {
        for nested in op.kind.operation_mut().blocks_mut() {
            any |= order_dots(nested);
        }
        if let Kind::Loop(body) = &mut op.kind {
            any |= body.overlapped && order_chain(&mut body.body);
        }
    }
    any
}

/// Orders the two dots of an iteration, if both are asynchronous.
fn order_chain(body: &mut Block) -> bool {
    let Ok([first, second]) = <[DotGroup; 2]>::try_from(DotGroup::all(&body.ops)) else { return false };
    let both = [&first, &second].map(|group| group.wgmma(&body.ops).then == AfterIssue::Continue);
    if both != [true; 2] {
        return false;
    }
    let loc = body.ops[first.dot].loc;
    body.ops.insert(second.dot + 1, step(loc, MmaOrderStep::Arrive));
    body.ops.insert(first.range().start, step(loc, MmaOrderStep::Wait));
    true
}

fn step(loc: Loc, step: MmaOrderStep) -> Op {
    Op { kind: MmaOrder { step }.into(), results: vec![], loc }
}
