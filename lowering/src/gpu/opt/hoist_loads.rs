//! Loads that do not need a reduction's result stand before it, so that memory's latency is paid once: the parameters of a
//! norm are under way while its row is summed.
//!
//! What was loaded waits in registers, as few as its type needs. Programs of many warps and those that compute much have none
//! to spare: the more of them run, the sooner large grids end.

use std::collections::HashSet;
use std::ops::Range;

use crate::gpu::layout::assign::Distributed;
use crate::gpu::opt::batch_reductions::crosses_warps;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Op, Value};
use crate::ops::{Effect, Kind, Load};

/// Registers of a thread in which loads wait for the first reduction, those included that stood before it.
const REGISTERS: u32 = 48;
/// The most warps of a block in which they do. LayerNorm of 8192 columns, by eight warps, took 7 % longer.
const WARPS: u32 = 4;
/// The most operations on the elements of tiles, numbers for all of them included, beside them. LayerNorm with GELU took 8 %,
/// quantised LayerNorm 1 to 3 % longer.
const OPERATIONS: usize = 10;
/// Bytes of a register.
const REGISTER: u32 = 4;

/// Reorders the outermost block: loops copy ahead by themselves.
pub fn hoist_loads(distributed: &mut Distributed) {
    let ops = &distributed.func.body.ops;
    let Some(first) = ops.iter().position(|op| crosses_warps(distributed, op)) else { return };
    if distributed.warps_per_cta() > WARPS || operations(distributed) > OPERATIONS {
        return;
    }
    let loads = ops[..first].iter().filter_map(|op| {
        let Kind::Load(load) = &op.kind else { return None };
        Some(registers(distributed, op, load))
    });
    let mut left = REGISTERS.saturating_sub(loads.sum());
    let mut moved = HashSet::new();
    for (position, op) in ops.iter().enumerate().skip(first) {
        if let Kind::Load(load) = &op.kind
            && op.kind.operation().effect() == Effect::Pure
            && let Some(rest) = left.checked_sub(registers(distributed, op, load))
            && let Some(needed) = needed(&distributed.func, first..position, load)
        {
            left = rest;
            moved.extend(needed);
            moved.insert(position);
        }
    }
    let ops = &mut distributed.func.body.ops;
    let (mut before, mut behind) = (vec![], vec![]);
    for (position, op) in (first..).zip(ops.split_off(first)) {
        if moved.contains(&position) { before.push(op) } else { behind.push(op) }
    }
    ops.append(&mut before);
    ops.append(&mut behind);
}

/// Operations of the outermost block on the elements of tiles.
fn operations(distributed: &Distributed) -> usize {
    let func = &distributed.func;
    let computes = |op: &&Op| {
        let lanewise =
            matches!(op.kind.operation().spread(func, &op.results), LayoutRelation::Lanewise { .. });
        let floats = |&result: &Value| !func.ty(result).is_scalar() && func.ty(result).dtype.is_float();
        lanewise && !matches!(op.kind, Kind::Cast(_)) && op.results.iter().any(floats)
    };
    func.body.ops.iter().filter(computes).count()
}

/// Registers of a thread that hold what a load gives.
pub fn registers(distributed: &Distributed, op: &Op, load: &Load) -> u32 {
    let ty = distributed.func.ty(op.results[0]);
    let count = distributed.layouts.get(&op.results[0]).map_or(1, |layout| layout.register_count() as u32);
    let vector = load.place.vector;
    count / vector * (vector * ty.dtype.bytes()).div_ceil(REGISTER)
}

/// The operations of a range by which a load's place is computed, if they may move and need no reduction.
fn needed(func: &Func, range: Range<usize>, load: &Load) -> Option<Vec<usize>> {
    let mut wanted: HashSet<Value> = load.place.operands().into_iter().chain(load.other).collect();
    let mut found = vec![];
    for position in range.rev() {
        let op = &func.body.ops[position];
        if op.results.iter().any(|result| wanted.contains(result)) {
            if !stays_in_thread(func, op) {
                return None;
            }
            wanted.extend(op.kind.operation().operands());
            found.push(position);
        }
    }
    Some(found)
}

/// Whether each thread computes it for itself, from nothing but registers.
fn stays_in_thread(func: &Func, op: &Op) -> bool {
    let operation = op.kind.operation();
    operation.effect() == Effect::Pure
        && operation.blocks().is_empty()
        && operation.place().is_none()
        && matches!(
            operation.spread(func, &op.results),
            LayoutRelation::Source | LayoutRelation::Lanewise { .. } | LayoutRelation::View(_)
        )
}
