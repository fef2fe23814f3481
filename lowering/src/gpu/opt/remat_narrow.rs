//! Rematerializes upcasts of narrow tiles after reductions, so that narrow tiles stay narrow.
//!
//! A row of `bf16` that is upcast, reduced, and used again after the reduction would wait for the result in twice the
//! registers, and fewer blocks would fit on a multiprocessor. After every reduction this pass repeats the upcast: what
//! was made from narrow tiles by cheap lanewise operations is recomputed from them at its next use, if they take fewer
//! registers. A sum of two rows waits as the sum.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Effect, Kind, RematBarrier, has_own_dot};
use tile_ir::support::dtype::DType;

use crate::gpu::layout::Distributed;
use crate::gpu::opt::batch_reductions::{shares_barrier_with_next, used_values};

/// Registers of one thread below which a tile may as well wait wide.
const MIN_REGISTERS: usize = 16;
/// Bytes of an element that takes a register of its own.
const REGISTER_BYTES: u32 = 4;
/// The most operations on each element that are repeated: instructions cost time too.
const MAX_COST: u32 = 4;

/// Rebuilds the function's outermost block and the bodies of loops that reduce a whole tile to a scalar; the bodies of
/// other loops are short of registers for other reasons. In a loop with dots a copy of a loaded tile would keep an operand in
/// registers that could be in shared memory alone.
pub fn remat_narrow(distributed: &mut Distributed) {
    let block = std::mem::take(&mut distributed.func.body);
    let pass = RematNarrow { distributed, state: RematState::default(), ops: vec![] };
    distributed.func.body = pass.rebuilt(block);
}

/// Whether an operation is a loop that reduces a whole tile and has no dots.
fn reduces_inside(func: &Func, op: &Op) -> bool {
    let Kind::For(inner) = &op.kind else { return false };
    inner.body.ops.iter().any(|op| reduces_to_scalar(func, op)) && !has_own_dot(&inner.body)
}

/// Whether an operation reduces a whole tile.
fn reduces_to_scalar(func: &Func, op: &Op) -> bool {
    matches!(op.kind.operation().layout_relation(func, &op.results), LayoutRelation::Reduce { .. })
        && op.results.iter().all(|&result| func.ty(result).is_scalar())
}

struct RematNarrow<'d> {
    distributed: &'d mut Distributed,
    state: RematState,
    ops: Vec<Op>,
}

#[derive(Clone, Default)]
struct RematState {
    /// How values can be rematerialized, by the result of the original operation.
    recipes: HashMap<Value, Recipe>,
    /// The original of a value or of its rematerialized copy.
    origins: HashMap<Value, Value>,
    /// The latest copy of a value, and how many reductions were before it.
    current: HashMap<Value, (Value, u32)>,
    /// Tiles that take no registers of their own: a splat, a mask, a range.
    light: HashSet<Value>,
    /// Reductions so far.
    age: u32,
}

/// How a value is rematerialized.
#[derive(Clone)]
struct Recipe {
    op: Op,
    /// How many operations that takes.
    cost: u32,
    /// The narrow tiles that it is made of; itself, if it is one.
    sources: HashSet<Value>,
}

impl Recipe {
    fn is_source(&self) -> bool {
        self.sources.contains(&self.op.results[0])
    }
}

impl RematNarrow<'_> {
    fn rebuilt(mut self, block: Block) -> Block {
        self.ops(block.ops);
        Block { ops: self.ops, ..block }
    }

    fn ops(&mut self, ops: Vec<Op>) {
        let mut ops = ops.into_iter().peekable();
        while let Some(mut op) = ops.next() {
            if reduces_inside(self.func(), &op) {
                let operands = op.kind.operation().operands();
                let current_copy: HashMap<Value, Value> =
                    operands.into_iter().map(|value| (value, self.current_copy(value))).collect();
                op.kind.operation_mut().map(&mut |value| current_copy[&value]);
                if let Kind::For(inner) = &mut op.kind {
                    // Values from outside are rematerialized in every iteration.
                    let mut state = self.state.clone();
                    state.age += 1;
                    let pass = RematNarrow { distributed: self.distributed, state, ops: vec![] };
                    inner.body = pass.rebuilt(std::mem::take(&mut inner.body));
                }
                self.ops.push(op);
                continue;
            }
            let current_copy: HashMap<Value, Value> =
                used_values(&op).into_iter().map(|value| (value, self.current_copy(value))).collect();
            replace(&mut op, &current_copy);
            let relation = op.kind.operation().layout_relation(self.func(), &op.results);
            if self.is_light_result(&op, &relation) {
                self.state.light.extend(&op.results);
            }
            if let [result] = op.results[..]
                && let Some(recipe) = self.recipe(&op, &relation)
            {
                self.state.recipes.insert(result, recipe);
                self.state.origins.insert(result, result);
                self.state.current.insert(result, (result, self.state.age));
            }
            // Reductions that share a barrier are one wait.
            let reduces = matches!(relation, LayoutRelation::Reduce { .. })
                && !shares_barrier_with_next(self.func(), &op, ops.peek());
            self.ops.push(op);
            self.state.age += u32::from(reduces);
        }
    }

    fn func(&self) -> &Func {
        &self.distributed.func
    }

    /// How to rematerialize the result, if that pays: a narrow load, a cheap operation on what was made of such, or a
    /// tile that is narrower than all that it was made of.
    fn recipe(&self, op: &Op, relation: &LayoutRelation) -> Option<Recipe> {
        let result = op.results[0];
        let layout = self.distributed.layouts.get(&result)?;
        if layout.register_count() < MIN_REGISTERS || op.kind.operation().effect() != Effect::Pure {
            return None;
        }
        let as_source = || Recipe { op: op.clone(), cost: 0, sources: HashSet::from([result]) };
        if is_narrow_load(self.func(), op) {
            return Some(as_source());
        }
        if !matches!(op.kind, Kind::Cast(_)) && *relation != (LayoutRelation::Lanewise { cheap: true }) {
            return None;
        }
        let (mut cost, mut sources) = (1u32, HashSet::new());
        for operand in op.kind.operation().operands() {
            match self.state.origins.get(&operand).map(|origin| &self.state.recipes[origin]) {
                Some(recipe) => {
                    cost = cost.saturating_add(recipe.cost);
                    sources.extend(&recipe.sources);
                }
                None if self.is_light(operand) => {}
                None => return None,
            }
        }
        let bytes = |value: Value| self.func().ty(value).dtype.bytes();
        let source_bytes: u32 = sources.iter().map(|&source| bytes(source)).sum();
        if source_bytes >= bytes(result) {
            // A condition is a predicate, of which there are few.
            let narrow = bytes(result) < REGISTER_BYTES && self.func().ty(result).dtype != DType::Bool;
            return narrow.then(as_source);
        }
        (source_bytes > 0 && cost <= MAX_COST).then(|| Recipe { op: op.clone(), cost, sources })
    }

    fn is_light(&self, value: Value) -> bool {
        self.func().ty(value).is_scalar() || self.state.light.contains(&value)
    }

    fn is_light_result(&self, op: &Op, relation: &LayoutRelation) -> bool {
        match relation {
            LayoutRelation::Source => true,
            LayoutRelation::Lanewise { cheap: true } | LayoutRelation::View(_) => {
                op.kind.operation().operands().into_iter().all(|operand| self.is_light(operand))
            }
            LayoutRelation::Lanewise { cheap: false }
            | LayoutRelation::Reduce { .. }
            | LayoutRelation::Index { .. }
            | LayoutRelation::Tied(_)
            | LayoutRelation::Dot { .. }
            | LayoutRelation::WarpGroup { .. }
            | LayoutRelation::Free => false,
        }
    }

    /// The copy of a value that later operations should use.
    fn current_copy(&mut self, value: Value) -> Value {
        let Some(&(latest, age)) = self.state.current.get(&value) else { return value };
        if age == self.state.age {
            return latest;
        }
        let recipe = self.state.recipes[&value].clone();
        let copy = if recipe.is_source() {
            self.append(RematBarrier { value: latest }.into(), &recipe.op)
        } else {
            let mut kind = recipe.op.kind.clone();
            let operands = kind.operation().operands();
            let current_copy: HashMap<Value, Value> = operands
                .into_iter()
                .map(|operand| match self.state.origins.get(&operand) {
                    Some(&origin) => (operand, self.current_copy(origin)),
                    None => (operand, operand),
                })
                .collect();
            kind.operation_mut().map(&mut |operand| current_copy[&operand]);
            self.append(kind, &recipe.op)
        };
        self.state.current.insert(value, (copy, self.state.age));
        self.state.origins.insert(copy, value);
        copy
    }

    fn append(&mut self, kind: Kind, like: &Op) -> Value {
        let value = self.distributed.value_like(like.results[0]);
        self.ops.push(Op { kind, results: vec![value], loc: like.loc });
        value
    }
}

impl Distributed {
    /// A new value of the same type and in the same layout as a tile.
    pub(crate) fn value_like(&mut self, tile: Value) -> Value {
        let (ty, layout) = (self.func.ty(tile).clone(), self.layouts[&tile].clone());
        let value = self.func.value(ty);
        self.layouts.insert(value, layout);
        value
    }
}

fn replace(op: &mut Op, current_copy: &HashMap<Value, Value>) {
    let mut change = |value: Value| current_copy.get(&value).copied().unwrap_or(value);
    op.kind.operation_mut().map(&mut change);
    for block in op.kind.operation_mut().blocks_mut() {
        block.yields.iter_mut().for_each(|value| *value = change(*value));
        block.ops.iter_mut().for_each(|inner| replace(inner, current_copy));
    }
}

fn is_narrow_load(func: &Func, op: &Op) -> bool {
    op.kind.operation().access().is_some() && func.ty(op.results[0]).dtype.bytes() < REGISTER_BYTES
}
