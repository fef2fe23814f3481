//! Invariant operands of dots go to shared memory before their loop ([`invariant_operand`](super::invariant_operand)).
//!
//! Legal where
//! 1. the loop does not change the operand;
//! 2. one block runs the program, and its memory is planned for longer than the loop runs.

use super::Schedule;
use super::invariant_operand::{InvariantOperand, of_loop};
use tile_ir::ir::{Block, Op, Storage, Value};
use tile_ir::ops::{DotOperand, Kind, StageOperands};

/// The pass: see the module.
pub fn stage_operands(schedule: &mut Schedule) {
    if schedule.distributed.invariant_operands.is_empty() {
        return;
    }
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    in_block(schedule, &mut body);
    schedule.distributed.func.body = body;
    schedule.distributed.invariant_operands.clear();
}

fn in_block(schedule: &mut Schedule, block: &mut Block) {
    for mut op in std::mem::take(&mut block.ops) {
        if matches!(op.kind, Kind::For(_) | Kind::Loop(_)) {
            block.ops.extend(before_loop(schedule, &mut op));
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(schedule, block));
        block.ops.push(op);
    }
}

/// What writes the invariant operands of a loop, if it has any. The dots of the loop read what was written.
fn before_loop(schedule: &mut Schedule, op: &mut Op) -> Option<Op> {
    let operands: Vec<InvariantOperand> = op
        .kind
        .operation()
        .blocks()
        .into_iter()
        .flat_map(|body| of_loop(&schedule.distributed, body))
        .collect();
    if operands.is_empty() {
        return None;
    }
    let (mut staged, mut results) = (vec![], vec![]);
    for operand in &operands {
        staged.push(operand.staged.form(operand.value));
        let ty = schedule.ty(operand.value).clone().stored(Storage::Smem { stages: 1 });
        let result = schedule.value(ty);
        let blocks = op.kind.operation_mut().blocks_mut();
        blocks.into_iter().for_each(|body| replace(body, operand, result));
        results.push(result);
    }
    schedule.move_scratch(op.results[0], results[0]);
    Some(Op { kind: StageOperands { staged }.into(), results, loc: op.loc })
}

/// Gives the dot of an operand another value for it.
fn replace(block: &mut Block, operand: &InvariantOperand, by: Value) {
    for op in &mut block.ops {
        if let Kind::Dot(own) = &mut op.kind
            && op.results[0] == operand.result
        {
            match operand.side {
                DotOperand::A => own.a = by,
                DotOperand::B => own.b = by,
            }
        }
        let blocks = op.kind.operation_mut().blocks_mut();
        blocks.into_iter().for_each(|block| replace(block, operand, by));
    }
}
