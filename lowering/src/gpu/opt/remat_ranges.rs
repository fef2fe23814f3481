//! Rematerializes ranges inside branches of loops with wgmma. Ranges from before such a loop would take registers from
//! its accumulators, and a branch is not always taken.

use std::collections::HashMap;

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Func, Op, Value, substitute_in};
use tile_ir::ops::{Effect, Kind, Operation};

use crate::gpu::layout::Distributed;
use crate::gpu::layout::dot::is_warpgroup_dot;

/// Rematerializes ranges in the branches of loops with wgmma.
pub fn remat_ranges(distributed: &mut Distributed) {
    let mut ranges = HashMap::new();
    find_ranges(&distributed.func, &distributed.func.body, &mut ranges);
    let mut body = std::mem::take(&mut distributed.func.body);
    for op in &mut body.ops {
        let Kind::For(body) = &mut op.kind else { continue };
        if body.body.ops.iter().any(is_warpgroup_dot) {
            for op in &mut body.body.ops {
                op.kind
                    .operation_mut()
                    .blocks_mut()
                    .into_iter()
                    .for_each(|arm| in_arm(distributed, arm, &ranges));
            }
        }
    }
    distributed.func.body = body;
}

/// Tiles made of ranges and scalars alone, with the operations that make them.
fn find_ranges(func: &Func, block: &Block, ranges: &mut HashMap<Value, Op>) {
    for op in &block.ops {
        let operation = op.kind.operation();
        operation.blocks().into_iter().for_each(|block| find_ranges(func, block, ranges));
        if is_range(func, operation, op, ranges) {
            ranges.insert(op.results[0], op.clone());
        }
    }
}

fn is_range(func: &Func, operation: &dyn Operation, op: &Op, ranges: &HashMap<Value, Op>) -> bool {
    let known = |operand: &Value| func.ty(*operand).is_scalar() || ranges.contains_key(operand);
    op.results.len() == 1
        && !func.ty(op.results[0]).is_scalar()
        && operation.effect() == Effect::Pure
        && matches!(
            operation.layout_relation(func, &op.results),
            LayoutRelation::Source | LayoutRelation::View(_)
        )
        && operation.operands().iter().all(known)
}

fn in_arm(distributed: &mut Distributed, arm: &mut Block, ranges: &HashMap<Value, Op>) {
    let mut rematerialized = RangeCopies::default();
    let mut defined: Vec<Value> = vec![];
    let mut used: Vec<Value> = vec![];
    arm.walk(&mut |op| {
        defined.extend(&op.results);
        used.extend(op.kind.operation().operands());
    });
    for value in used.into_iter().filter(|value| !defined.contains(value)) {
        rematerialized.add(distributed, value, ranges);
    }
    substitute_in(arm, &|value| rematerialized.copy_of(value));
    rematerialized.ops.append(&mut arm.ops);
    arm.ops = rematerialized.ops;
}

/// Copies of ranges in a branch.
#[derive(Default)]
struct RangeCopies {
    ops: Vec<Op>,
    /// By the value that is copied.
    results: HashMap<Value, Value>,
}

impl RangeCopies {
    /// The copy of a value, or the value itself where it has none.
    fn copy_of(&self, value: Value) -> Value {
        self.results.get(&value).copied().unwrap_or(value)
    }

    /// Appends a copy of a range, with what it is made of.
    fn add(&mut self, distributed: &mut Distributed, value: Value, ranges: &HashMap<Value, Op>) {
        let Some(op) = ranges.get(&value).filter(|_| !self.results.contains_key(&value)) else { return };
        for operand in op.kind.operation().operands() {
            self.add(distributed, operand, ranges);
        }
        let mut op = op.clone();
        op.kind.operation_mut().map(&mut |operand| self.copy_of(operand));
        let result = distributed.func.value(distributed.func.ty(value).clone());
        distributed.layouts.insert(result, distributed.layouts[&value].clone());
        op.results = vec![result];
        self.ops.push(op);
        self.results.insert(value, result);
    }
}
