//! Decides which values are materialized, and allocates their buffers in scratch memory.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Effect, Kind};

use crate::cpu::emit::emitter;
use crate::cpu::in_place::in_place;

/// Recomputing this much for each element is cheaper than a store and a load.
const MAX_RECOMPUTE_COST: u32 = 8;

/// Buffers start at multiples of this.
const ALIGNMENT: u64 = 64;

/// A tile in scratch memory, row-major.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScratchBuffer {
    pub offset: u64,
}

/// The materialized values of a function.
#[derive(Debug)]
pub struct ScratchPlan {
    buffers: HashMap<Value, ScratchBuffer>,
    /// Where the workspace starts, behind all buffers: operations use it one after the other.
    workspace: u64,
    bytes: u64,
}

impl ScratchPlan {
    pub fn new(func: &Func) -> ScratchPlan {
        let mut planner = ScratchPlanner {
            func,
            costs: HashMap::new(),
            users: HashMap::new(),
            materialized: HashSet::new(),
            depth: HashMap::new(),
        };
        planner.costs(&func.body, 0);
        planner.count_users(&func.body, 0);
        let mut plan = ScratchPlan { buffers: HashMap::new(), workspace: 0, bytes: 0 };
        let mut values: Vec<Value> = planner.materialized.into_iter().collect();
        values.sort();
        let shared = in_place(func);
        for &value in values.iter().filter(|value| !shared.contains_key(value)) {
            plan.allocate(func, value);
        }
        for (result, arg) in shared {
            plan.buffers.insert(result, plan.buffers[&arg]);
        }
        plan.workspace = plan.bytes;
        let mut most = 0;
        func.body.walk(&mut |op| most = most.max(emitter(&op.kind).workspace(func, op)));
        plan.bytes += most.next_multiple_of(ALIGNMENT);
        plan
    }

    fn allocate(&mut self, func: &Func, value: Value) {
        let ty = func.ty(value);
        self.buffers.insert(value, ScratchBuffer { offset: self.bytes });
        self.bytes += (ty.shape.elements() * u64::from(ty.dtype.bytes())).next_multiple_of(ALIGNMENT);
    }

    pub(crate) fn buffer(&self, value: Value) -> Option<ScratchBuffer> {
        self.buffers.get(&value).copied()
    }

    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

struct ScratchPlanner<'f> {
    func: &'f Func,
    /// The work of computing one element from what is in memory.
    costs: HashMap<Value, u32>,
    /// The loop nests that use a value, by the first value or the address of the operation that runs them.
    users: HashMap<Value, HashSet<usize>>,
    materialized: HashSet<Value>,
    /// How many loops stand around a value's definition.
    depth: HashMap<Value, u32>,
}

impl ScratchPlanner<'_> {
    fn costs(&mut self, block: &Block, depth: u32) {
        for &arg in &block.args {
            self.depth.insert(arg, depth);
        }
        for op in &block.ops {
            let operation = op.kind.operation();
            for nested in operation.blocks() {
                self.costs(nested, depth + 1);
            }
            let cost_of = |operand: &Value| self.costs.get(operand).copied().unwrap_or(0);
            let operands = operation.operands().iter().map(cost_of).fold(0, u32::saturating_add);
            let cost = operands.saturating_add(emitter(&op.kind).cost());
            for &result in &op.results {
                let tile = !self.func.ty(result).is_scalar();
                self.costs.insert(result, if tile && !emitter(&op.kind).is_statement() { cost } else { 0 });
                self.depth.insert(result, depth);
            }
        }
    }

    /// From the last operation backwards: every use is known before the definition decides.
    fn count_users(&mut self, block: &Block, depth: u32) {
        for &value in &block.yields {
            // What a block yields is stored to the buffer that carries it.
            self.add_user(value, usize::MAX - value.index(), depth);
        }
        for op in block.ops.iter().rev() {
            let operation = op.kind.operation();
            for nested in operation.blocks() {
                self.count_users(nested, depth + 1);
                for &arg in &nested.args {
                    self.must_materialize(arg);
                }
            }
            let is_nest =
                emitter(&op.kind).is_statement() || op.results.iter().all(|&r| self.func.ty(r).is_scalar());
            if is_nest {
                for &result in &op.results {
                    self.must_materialize(result);
                }
                let nest = op.results.first().map_or_else(|| address(op), |result| result.index());
                for operand in operation.operands() {
                    self.add_user(operand, nest, depth);
                }
                continue;
            }
            let result = op.results[0];
            let users = self.users.get(&result).cloned().unwrap_or_default();
            if users.is_empty() {
                continue;
            }
            let expensive = self.costs.get(&result).copied().unwrap_or(0) > MAX_RECOMPUTE_COST;
            let reads_changing = operation.effect() == Effect::Read;
            if (users.len() > 1 && expensive) || reads_changing {
                self.materialized.insert(result);
            }
            let nests: Vec<usize> = if self.materialized.contains(&result) {
                vec![result.index()]
            } else {
                users.into_iter().collect()
            };
            for operand in operation.operands() {
                for &nest in &nests {
                    self.add_user(operand, nest, depth);
                }
            }
            for operand in emitter(&op.kind).random_access_operands(self.func, op) {
                self.must_materialize(operand);
            }
        }
    }

    fn must_materialize(&mut self, value: Value) {
        if !self.func.ty(value).is_scalar() {
            self.materialized.insert(value);
        }
    }

    fn add_user(&mut self, value: Value, nest: usize, depth: u32) {
        if self.func.ty(value).is_scalar() {
            return;
        }
        let users = self.users.entry(value).or_default();
        users.insert(nest);
        // A loop uses it in every iteration.
        if self.depth.get(&value).copied().unwrap_or(0) < depth {
            users.insert(usize::MAX / 2 + value.index());
        }
    }
}

/// The identity of an operation without results.
fn address(op: &Op) -> usize {
    std::ptr::from_ref::<Kind>(&op.kind).addr()
}
