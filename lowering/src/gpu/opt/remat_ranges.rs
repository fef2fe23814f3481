//! Where the elements of a tile are is computed where it is asked for: a branch in a loop that multiplies computes its ramps
//! anew. What lies before such a loop takes registers from its products, and a branch is not always taken.

use std::collections::HashMap;

use crate::gpu::layout::assign::Distributed;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Op, Value, substitute_in};
use crate::ops::{Effect, Kind, Operation};

/// Gives the branches of loops with products of blocks ramps of their own.
pub fn remat_ranges(distributed: &mut Distributed) {
    let mut ramps = HashMap::new();
    find(&distributed.func, &distributed.func.body, &mut ramps);
    let mut body = std::mem::take(&mut distributed.func.body);
    for op in &mut body.ops {
        let Kind::For(body) = &mut op.kind else { continue };
        if body.body.ops.iter().any(|op| matches!(op.kind, Kind::WarpGroupDot(_))) {
            for op in &mut body.body.ops {
                op.kind
                    .operation_mut()
                    .blocks_mut()
                    .into_iter()
                    .for_each(|arm| in_arm(distributed, arm, &ramps));
            }
        }
    }
    distributed.func.body = body;
}

/// Tiles made of ramps and scalars alone, with what makes them.
fn find(func: &Func, block: &Block, ramps: &mut HashMap<Value, Op>) {
    for op in &block.ops {
        let operation = op.kind.operation();
        operation.blocks().into_iter().for_each(|block| find(func, block, ramps));
        if is_ramp(func, operation, op, ramps) {
            ramps.insert(op.results[0], op.clone());
        }
    }
}

fn is_ramp(func: &Func, operation: &dyn Operation, op: &Op, ramps: &HashMap<Value, Op>) -> bool {
    let known = |operand: &Value| func.ty(*operand).is_scalar() || ramps.contains_key(operand);
    op.results.len() == 1
        && !func.ty(op.results[0]).is_scalar()
        && operation.effect() == Effect::Pure
        && matches!(operation.spread(func, &op.results), LayoutRelation::Source | LayoutRelation::View(_))
        && operation.operands().iter().all(known)
}

fn in_arm(distributed: &mut Distributed, arm: &mut Block, ramps: &HashMap<Value, Op>) {
    let mut own: Vec<Op> = vec![];
    let mut copies: HashMap<Value, Value> = HashMap::new();
    let mut defined: Vec<Value> = vec![];
    let mut used: Vec<Value> = vec![];
    arm.walk(&mut |op| {
        defined.extend(&op.results);
        used.extend(op.kind.operation().operands());
    });
    for value in used.into_iter().filter(|value| !defined.contains(value)) {
        copy(distributed, value, ramps, (&mut own, &mut copies));
    }
    substitute_in(arm, &|value| copies.get(&value).copied().unwrap_or(value));
    own.append(&mut arm.ops);
    arm.ops = own;
}

/// Appends a ramp of its own, with what it is made of.
fn copy(
    distributed: &mut Distributed,
    value: Value,
    ramps: &HashMap<Value, Op>,
    (own, copies): (&mut Vec<Op>, &mut HashMap<Value, Value>),
) {
    let Some(op) = ramps.get(&value).filter(|_| !copies.contains_key(&value)) else { return };
    for operand in op.kind.operation().operands() {
        copy(distributed, operand, ramps, (own, copies));
    }
    let mut op = op.clone();
    op.kind.operation_mut().map(&mut |operand| copies.get(&operand).copied().unwrap_or(operand));
    let result = distributed.func.value(distributed.func.ty(value).clone());
    distributed.layouts.insert(result, distributed.layouts[&value].clone());
    op.results = vec![result];
    own.push(op);
    copies.insert(value, result);
}
