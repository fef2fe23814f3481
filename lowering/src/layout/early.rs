//! Loads that do not need a reduction's result stand before it, so that memory's latency is paid once: the parameters of a
//! norm are under way while its row is summed.
//!
//! What was loaded waits in registers, as few as its type needs. A program of many warps has none to spare, and others to
//! run meanwhile.

use std::collections::HashSet;
use std::ops::Range;

use super::assign::{Distributed, Spread};
use super::rounds::crosses_warps;
use crate::ops::{Effect, Kind, Load};
use crate::tile::{Func, Op, Value};

/// Registers of a thread in which loads wait that stood behind a reduction.
const REGISTERS: u32 = 32;
/// The most warps of a block in which they do.
const WARPS: u32 = 8;
/// Bytes of a register.
const REGISTER: u32 = 4;

/// Reorders the outermost block: loops copy ahead by themselves.
pub fn advance(distributed: &mut Distributed) {
    let ops = &distributed.func.body.ops;
    let Some(first) = ops.iter().position(|op| crosses_warps(distributed, op)) else { return };
    if distributed.block_warps() > WARPS {
        return;
    }
    let mut left = REGISTERS;
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
            Spread::Source | Spread::Lanewise { .. } | Spread::View(_)
        )
}
