//! Copies of operations: for a prologue, an epilogue, another iteration or another role.

use std::collections::HashMap;

use super::Schedule;
use tile_ir::ir::{Block, Op, Value};

/// What values are in a copy.
#[derive(Clone, Default, Debug)]
pub struct Copies {
    known: HashMap<Value, Value>,
}

impl Copies {
    /// Uses of `old` become uses of `new`.
    pub fn insert(&mut self, old: Value, new: Value) {
        self.known.insert(old, new);
    }

    /// The same for pairs.
    pub fn extend(&mut self, old: &[Value], new: &[Value]) {
        self.known.extend(old.iter().copied().zip(new.iter().copied()));
    }

    pub fn contains(&self, value: Value) -> bool {
        self.known.contains_key(&value)
    }

    /// A value in the copy; what was not copied is the same.
    pub fn get(&self, value: Value) -> Value {
        self.known.get(&value).copied().unwrap_or(value)
    }

    pub fn all(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|&value| self.get(value)).collect()
    }

    /// A copy of an operation with fresh results and blocks; later copies use them.
    pub fn op(&mut self, schedule: &mut Schedule, op: &Op) -> Op {
        let mut copy = op.clone();
        let operation = copy.kind.operation_mut();
        operation.map(&mut |value| self.get(value));
        for block in operation.blocks_mut() {
            let own = std::mem::take(block);
            *block = self.block(schedule, &own);
        }
        copy.results = self.fresh(schedule, &op.results);
        copy
    }

    /// A copy of a block, whose arguments are fresh.
    pub fn block(&mut self, schedule: &mut Schedule, block: &Block) -> Block {
        let args = self.fresh(schedule, &block.args);
        let ops = block.ops.iter().map(|op| self.op(schedule, op)).collect();
        Block { args, ops, yields: self.all(&block.yields) }
    }

    /// Fresh values for these.
    pub fn fresh(&mut self, schedule: &mut Schedule, values: &[Value]) -> Vec<Value> {
        let fresh: Vec<Value> = values.iter().map(|&value| schedule.copy_of(value)).collect();
        self.extend(values, &fresh);
        fresh
    }
}
