//! Narrow tiles stay narrow.
//!
//! A row of `bf16` that is widened, reduced, and used again after the reduction would wait for the result in twice the
//! registers, and fewer blocks would fit on a multiprocessor. After every reduction this pass widens anew: what was made
//! from narrow tiles by cheap lanewise operations is made again where it is next used, from the narrow registers, if those
//! are fewer: a sum of two rows waits as the sum.

use std::collections::{HashMap, HashSet};

use crate::gpu::layout::assign::Distributed;
use crate::gpu::opt::batch_reductions::shares_barrier_with_next;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Op, Value};
use crate::ops::{Effect, Hold, Kind};
use crate::support::dtype::DType;

/// Registers of one thread below which a tile may as well wait wide.
const MIN_REGISTERS: usize = 16;
/// Bytes of an element that takes a register of its own.
const WIDE: u32 = 4;
/// Operations on each element beyond which a tile waits as it is: instructions are short too.
const MAX_COST: u32 = 4;

/// Rebuilds the function's outermost block and the bodies of loops in which a tile waits for a number that all threads
/// make together; the body of another loop is short of registers for other reasons.
pub fn remat_narrow(distributed: &mut Distributed) {
    let block = std::mem::take(&mut distributed.func.body);
    let pass = RematNarrow { distributed, known: Known::default(), ops: vec![] };
    distributed.func.body = pass.rebuilt(block);
}

/// Whether an operation is a loop in which tiles wait for numbers.
fn waits_inside(func: &Func, op: &Op) -> bool {
    matches!(&op.kind, Kind::For(inner) if inner.body.ops.iter().any(|op| makes_a_number(func, op)))
}

/// Whether an operation reduces a whole tile.
fn makes_a_number(func: &Func, op: &Op) -> bool {
    matches!(op.kind.operation().spread(func, &op.results), LayoutRelation::Reduce { .. })
        && op.results.iter().all(|&result| func.ty(result).is_scalar())
}

struct RematNarrow<'d> {
    distributed: &'d mut Distributed,
    known: Known,
    ops: Vec<Op>,
}

#[derive(Clone, Default)]
struct Known {
    /// What can be made again, by its result's name.
    made: HashMap<Value, Recipe>,
    /// The name under which a value, or an earlier incarnation of it, can be made again.
    origins: HashMap<Value, Value>,
    /// The youngest incarnation of a value, and how many reductions it has seen.
    current: HashMap<Value, (Value, u32)>,
    /// Tiles that take no registers of their own: a number everywhere, a mask, a ramp.
    light: HashSet<Value>,
    /// Reductions so far.
    age: u32,
}

/// How a value is made again.
#[derive(Clone)]
struct Recipe {
    op: Op,
    /// How many operations that takes.
    cost: u32,
    /// The narrow tiles that wait for it; itself, if it is one.
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
            if waits_inside(self.func(), &op) {
                let operands = op.kind.operation().operands();
                let fresh: HashMap<Value, Value> =
                    operands.into_iter().map(|value| (value, self.fresh(value))).collect();
                op.kind.operation_mut().map(&mut |value| fresh[&value]);
                if let Kind::For(inner) = &mut op.kind {
                    // What waits outside is made again in every turn.
                    let mut known = self.known.clone();
                    known.age += 1;
                    let pass = RematNarrow { distributed: self.distributed, known, ops: vec![] };
                    inner.body = pass.rebuilt(std::mem::take(&mut inner.body));
                }
                self.ops.push(op);
                continue;
            }
            let fresh: HashMap<Value, Value> =
                used_values(&op).into_iter().map(|value| (value, self.fresh(value))).collect();
            replace(&mut op, &fresh);
            let spread = op.kind.operation().spread(self.func(), &op.results);
            if self.is_light_result(&op, &spread) {
                self.known.light.extend(&op.results);
            }
            if let [result] = op.results[..]
                && let Some(made) = self.made(&op, &spread)
            {
                self.known.made.insert(result, made);
                self.known.origins.insert(result, result);
                self.known.current.insert(result, (result, self.known.age));
            }
            // Reductions that share a barrier are one wait.
            let reduces = matches!(spread, LayoutRelation::Reduce { .. })
                && !shares_barrier_with_next(self.func(), &op, ops.peek());
            self.ops.push(op);
            self.known.age += u32::from(reduces);
        }
    }

    fn func(&self) -> &Func {
        &self.distributed.func
    }

    /// How to make the result again, if that is worth it: a narrow load, a cheap operation on what was made from such, or
    /// what is narrower than all that it was made from.
    fn made(&self, op: &Op, spread: &LayoutRelation) -> Option<Recipe> {
        let result = op.results[0];
        let layout = self.distributed.layouts.get(&result)?;
        if layout.register_count() < MIN_REGISTERS || op.kind.operation().effect() != Effect::Pure {
            return None;
        }
        let itself = || Recipe { op: op.clone(), cost: 0, sources: HashSet::from([result]) };
        if is_narrow_load(self.func(), op) {
            return Some(itself());
        }
        if !matches!(op.kind, Kind::Cast(_)) && *spread != (LayoutRelation::Lanewise { cheap: true }) {
            return None;
        }
        let (mut cost, mut sources) = (1u32, HashSet::new());
        for operand in op.kind.operation().operands() {
            match self.known.origins.get(&operand).map(|origin| &self.known.made[origin]) {
                Some(made) => {
                    cost = cost.saturating_add(made.cost);
                    sources.extend(&made.sources);
                }
                None if self.is_light(operand) => {}
                None => return None,
            }
        }
        let bytes = |value: Value| self.func().ty(value).dtype.bytes();
        let waiting: u32 = sources.iter().map(|&source| bytes(source)).sum();
        if waiting >= bytes(result) {
            // A condition is a predicate, of which there are few.
            let narrow = bytes(result) < WIDE && self.func().ty(result).dtype != DType::Bool;
            return narrow.then(itself);
        }
        (waiting > 0 && cost <= MAX_COST).then(|| Recipe { op: op.clone(), cost, sources })
    }

    fn is_light(&self, value: Value) -> bool {
        self.func().ty(value).is_scalar() || self.known.light.contains(&value)
    }

    fn is_light_result(&self, op: &Op, spread: &LayoutRelation) -> bool {
        match spread {
            LayoutRelation::Source => true,
            LayoutRelation::Lanewise { cheap: true } | LayoutRelation::View(_) => {
                op.kind.operation().operands().into_iter().all(|operand| self.is_light(operand))
            }
            LayoutRelation::Lanewise { cheap: false }
            | LayoutRelation::Reduce { .. }
            | LayoutRelation::Tied(_)
            | LayoutRelation::Dot { .. }
            | LayoutRelation::WarpGroup { .. }
            | LayoutRelation::Free => false,
        }
    }

    /// The value as later operations should have it.
    fn fresh(&mut self, value: Value) -> Value {
        let Some(&(latest, age)) = self.known.current.get(&value) else { return value };
        if age == self.known.age {
            return latest;
        }
        let made = self.known.made[&value].clone();
        let renewed = if made.is_source() {
            self.append(Hold { value: latest }.into(), &made.op)
        } else {
            let mut kind = made.op.kind.clone();
            let operands = kind.operation().operands();
            let fresh: HashMap<Value, Value> = operands
                .into_iter()
                .map(|operand| match self.known.origins.get(&operand) {
                    Some(&origin) => (operand, self.fresh(origin)),
                    None => (operand, operand),
                })
                .collect();
            kind.operation_mut().map(&mut |operand| fresh[&operand]);
            self.append(kind, &made.op)
        };
        self.known.current.insert(value, (renewed, self.known.age));
        self.known.origins.insert(renewed, value);
        renewed
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

/// What an operation and those in its blocks use.
pub(crate) fn used_values(op: &Op) -> Vec<Value> {
    let operation = op.kind.operation();
    let mut used = operation.operands();
    for block in operation.blocks() {
        used.extend(&block.yields);
        used.extend(block.ops.iter().flat_map(used_values));
    }
    used
}

fn replace(op: &mut Op, fresh: &HashMap<Value, Value>) {
    let mut change = |value: Value| fresh.get(&value).copied().unwrap_or(value);
    op.kind.operation_mut().map(&mut change);
    for block in op.kind.operation_mut().blocks_mut() {
        block.yields.iter_mut().for_each(|value| *value = change(*value));
        block.ops.iter_mut().for_each(|inner| replace(inner, fresh));
    }
}

fn is_narrow_load(func: &Func, op: &Op) -> bool {
    op.kind.operation().place().is_some() && func.ty(op.results[0]).dtype.bytes() < WIDE
}
