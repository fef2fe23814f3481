//! Loads that do not depend on a reduction are hoisted above it, so that memory latency is paid once: the parameters of
//! a norm are in flight while its row is reduced.
//!
//! What was loaded waits in registers, as few as its type needs. Programs of many warps and those that compute much
//! have none to spare: the more of them run at once, the sooner large grids end.

use std::collections::HashSet;
use std::ops::Range;

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Effect, Kind, Load};

use crate::gpu::layout::Distributed;
use crate::gpu::opt::batch_reductions::crosses_warps;

/// Registers of a thread for loads before the first reduction, those that were there already included.
const MAX_REGISTERS: u32 = 48;
/// The most warps of a CTA that hoists. LayerNorm of 8192 columns, by eight warps, took 7 % longer.
const MAX_WARPS: u32 = 4;
/// The most elementwise operations of a program that hoists, splats included. LayerNorm with GELU took 8 %, quantized
/// LayerNorm 1 to 3 % longer.
const MAX_OPERATIONS: usize = 10;
/// Bytes of a register.
const REGISTER_BYTES: u32 = 4;

/// Reorders the outermost block: loops are software-pipelined anyway.
pub fn hoist_loads(distributed: &mut Distributed) {
    let ops = &distributed.func.body.ops;
    let Some(first) = ops.iter().position(|op| crosses_warps(distributed, op)) else { return };
    if distributed.warps_per_cta() > MAX_WARPS || operations(distributed) > MAX_OPERATIONS {
        return;
    }
    let loads = ops[..first].iter().filter_map(|op| {
        let Kind::Load(load) = &op.kind else { return None };
        Some(registers(distributed, op, load))
    });
    let mut left = MAX_REGISTERS.saturating_sub(loads.sum());
    let mut hoisted = HashSet::new();
    for (position, op) in ops.iter().enumerate().skip(first) {
        if let Kind::Load(load) = &op.kind
            && op.kind.operation().effect() == Effect::Pure
            && let Some(rest) = left.checked_sub(registers(distributed, op, load))
            && let Some(addresses) = address_operations(&distributed.func, first..position, load)
        {
            left = rest;
            hoisted.extend(addresses);
            hoisted.insert(position);
        }
    }
    let ops = &mut distributed.func.body.ops;
    let (mut before, mut after) = (vec![], vec![]);
    for (position, op) in (first..).zip(ops.split_off(first)) {
        if hoisted.contains(&position) { before.push(op) } else { after.push(op) }
    }
    ops.append(&mut before);
    ops.append(&mut after);
}

/// Elementwise operations of the outermost block.
fn operations(distributed: &Distributed) -> usize {
    let func = &distributed.func;
    let computes = |op: &&Op| {
        let lanewise =
            matches!(op.kind.operation().layout_relation(func, &op.results), LayoutRelation::Lanewise { .. });
        let floats = |&result: &Value| !func.ty(result).is_scalar() && func.ty(result).dtype.is_float();
        lanewise && !matches!(op.kind, Kind::Cast(_)) && op.results.iter().any(floats)
    };
    func.body.ops.iter().filter(computes).count()
}

/// Registers of a thread that hold the result of a load.
pub fn registers(distributed: &Distributed, op: &Op, load: &Load) -> u32 {
    let ty = distributed.func.ty(op.results[0]);
    let count = distributed.layouts.get(&op.results[0]).map_or(1, |layout| layout.register_count() as u32);
    let vector = load.access.vector;
    count / vector * (vector * ty.dtype.bytes()).div_ceil(REGISTER_BYTES)
}

/// The operations of a range that compute the addresses of a load, if they may move and need no reduction.
fn address_operations(func: &Func, range: Range<usize>, load: &Load) -> Option<Vec<usize>> {
    let mut wanted: HashSet<Value> = load.access.operands().into_iter().chain(load.other).collect();
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

/// Whether each thread computes it for itself, from registers alone.
fn stays_in_thread(func: &Func, op: &Op) -> bool {
    let operation = op.kind.operation();
    operation.effect() == Effect::Pure
        && operation.blocks().is_empty()
        && operation.access().is_none()
        && matches!(
            operation.layout_relation(func, &op.results),
            LayoutRelation::Source | LayoutRelation::Lanewise { .. } | LayoutRelation::View(_)
        )
}
