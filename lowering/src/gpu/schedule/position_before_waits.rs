//! Finds a warpgroup's position in a dot ahead of the waits for the dot's operands: the index of the warpgroup comes from a shuffle, which
//! takes its time before the waits and not behind them.
//!
//! Legal where
//! 1. nothing but waits at `mbarrier` objects stands between the position and the dot, so that it takes registers nowhere else.

use super::Schedule;
use tile_ir::ir::{Block, Op, Type};
use tile_ir::ops::{Kind, WarpgroupPosition};
use tile_ir::support::dtype::DType;

/// The pass: see the module.
pub fn position_before_waits(schedule: &mut Schedule) {
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    in_block(schedule, &mut body);
    schedule.distributed.func.body = body;
}

fn in_block(schedule: &mut Schedule, block: &mut Block) {
    let mut first_wait = None;
    for mut op in std::mem::take(&mut block.ops) {
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| in_block(schedule, block));
        if let (Kind::Wgmma(dot), Some(first)) = (&mut op.kind, first_wait) {
            let shape = &schedule.ty(op.results[0]).shape;
            let rows = if dot.transposed { shape[1] } else { shape[0] };
            dot.position = [0; 2].map(|_| schedule.value(Type::scalar(DType::I32))).to_vec();
            let position =
                Op { kind: WarpgroupPosition { rows }.into(), results: dot.position.clone(), loc: op.loc };
            block.ops.insert(first, position);
        }
        let is_wait = matches!(op.kind, Kind::MbarWait(_));
        first_wait = if is_wait { first_wait.or(Some(block.ops.len())) } else { None };
        block.ops.push(op);
    }
}
