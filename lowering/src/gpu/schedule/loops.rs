//! What the passes on loops share: a walk that replaces loops, and a loop's dots with their barriers and pipeline states.

use std::collections::HashMap;
use std::ops::Range;

use super::Schedule;
use tile_ir::ir::{Block, Op, Storage, Type, Value};
use tile_ir::ops::scalar::Scalar;
use tile_ir::ops::schedule::{SlotNeighbor, stages};
use tile_ir::ops::{Constant, ConstantValue, Kind, Loop, Wgmma};
use tile_ir::support::dtype::DType;

/// The operation that defines each value.
pub type Definitions = HashMap<Value, Op>;

/// The definitions that a pass on loops asks for: none where there is no loop, which is most kernels.
pub fn definitions_around_loops(schedule: &Schedule) -> Definitions {
    let func = &schedule.distributed.func;
    let mut has_loops = false;
    func.body.walk(&mut |op| has_loops |= matches!(op.kind, Kind::Loop(_)));
    if has_loops { func.cloned_definitions() } else { Definitions::new() }
}

/// What defines a value.
pub fn kind_of(definitions: &Definitions, value: Value) -> Option<&Kind> {
    definitions.get(&value).map(|op| &op.kind)
}

/// A loop of the function, and the operation that it is.
#[derive(Clone, Copy)]
pub struct LoopOp<'a> {
    pub op: &'a Op,
    pub body: &'a Loop,
}

impl<'a> LoopOp<'a> {
    /// The carried values as arguments of the body.
    pub fn carried(&self) -> &'a [Value] {
        &self.body.body.args[1..]
    }

    pub fn ops(&self) -> &'a [Op] {
        &self.body.body.ops
    }
}

/// Replaces loops in all blocks of the function, inner ones first. Operations that replace a loop define its results.
pub fn replace_loops(
    schedule: &mut Schedule,
    replace: &mut dyn FnMut(&mut Schedule, LoopOp) -> Option<Vec<Op>>,
) {
    let mut body = std::mem::take(&mut schedule.distributed.func.body);
    replace_in(schedule, &mut body, replace);
    schedule.distributed.func.body = body;
}

fn replace_in(
    schedule: &mut Schedule,
    block: &mut Block,
    replace: &mut dyn FnMut(&mut Schedule, LoopOp) -> Option<Vec<Op>>,
) {
    for mut op in std::mem::take(&mut block.ops) {
        for nested in op.kind.operation_mut().blocks_mut() {
            replace_in(schedule, nested, replace);
        }
        let replaced =
            if let Kind::Loop(body) = &op.kind { replace(schedule, LoopOp { op: &op, body }) } else { None };
        match replaced {
            Some(ops) => block.ops.extend(ops),
            None => block.ops.push(op),
        }
    }
}

/// A dot among the operations of a block, with the waits and tiles of slots directly in front of it and the releases directly behind
/// it.
#[derive(Clone, Debug)]
pub struct DotGroup {
    pub dot: usize,
    all: Range<usize>,
}

impl DotGroup {
    fn new(ops: &[Op], dot: usize) -> DotGroup {
        let is_place = |op: &&Op| matches!(op.kind, Kind::MbarWait(_) | Kind::SlotTile(_));
        let waits = ops[..dot].iter().rev().take_while(is_place).count();
        let releases = ops[dot + 1..].iter().take_while(|op| matches!(op.kind, Kind::MbarArrive(_))).count();
        DotGroup { dot, all: dot - waits..dot + 1 + releases }
    }

    /// Those of the dots of a block, nested ones left out.
    pub fn all(ops: &[Op]) -> Vec<DotGroup> {
        let dots = ops.iter().enumerate().filter(|(_, op)| matches!(op.kind, Kind::Wgmma(_)));
        dots.map(|(index, _)| DotGroup::new(ops, index)).collect()
    }

    /// The indices of its operations.
    pub fn range(&self) -> Range<usize> {
        self.all.clone()
    }

    pub fn waits(&self) -> Range<usize> {
        self.all.start..self.dot
    }

    pub fn releases(&self) -> Range<usize> {
        self.dot + 1..self.all.end
    }

    pub fn wgmma<'a>(&self, ops: &'a [Op]) -> &'a Wgmma {
        match &ops[self.dot].kind {
            Kind::Wgmma(dot) => dot,
            kind => unreachable!("{kind:?} is no dot"),
        }
    }

    /// The pipeline states that it uses.
    pub fn pipes(&self, schedule: &Schedule, ops: &[Op]) -> Vec<Value> {
        let operands = ops[self.range()].iter().flat_map(|op| op.kind.operation().operands());
        operands.filter(|&value| is_pipe(schedule, value)).collect()
    }
}

/// How many dots a block has, nested ones included.
pub fn count_dots(block: &Block) -> usize {
    let mut dots = 0;
    block.walk(&mut |op| dots += usize::from(matches!(op.kind, Kind::Wgmma(_))));
    dots
}

/// Whether a value is the state of a ring: of one that TMA fills, or of one that threads copy to.
pub fn is_pipe(schedule: &Schedule, value: Value) -> bool {
    matches!(schedule.ty(value).storage, Storage::Pipe { .. } | Storage::Slot { .. })
}

/// A pipeline state or a slot that a loop carries, and moves on once in each iteration: that of the ring of its loads.
#[derive(Clone, Copy, Debug)]
pub struct RingPipe {
    /// Its place among the carried values.
    pub index: usize,
    /// The argument of the body.
    pub arg: Value,
    /// The index of the operation that moves it on.
    pub next: usize,
    /// Whether threads copy to it.
    pub is_slot: bool,
    /// Whether a stage may be read until the dot of the next iteration was issued.
    pub lasts: bool,
}

impl RingPipe {
    pub fn all(schedule: &Schedule, body: &Loop) -> Vec<RingPipe> {
        let spares_slot = body.body.ops.iter().any(spares_slot);
        let pairs = body.body.args[1..].iter().zip(&body.body.yields).enumerate();
        let ring = |(index, (&arg, &yielded)): (usize, (&Value, &Value))| {
            let next = body.body.ops.iter().position(|op| op.results.first() == Some(&yielded))?;
            let kind = &body.body.ops[next].kind;
            let is_slot =
                matches!(kind, Kind::SlotStep(moved) if moved.to == SlotNeighbor::Next && moved.slot == arg);
            let is_pipe = matches!(kind, Kind::PipeNext(moved) if moved.pipe == arg);
            let lasts = if is_slot { spares_slot } else { stages(&schedule.distributed.func, arg)? > 1 };
            let is_ring = (is_slot || is_pipe) && body.body.uses(yielded) == 1;
            is_ring.then_some(RingPipe { index, arg, next, is_slot, lasts })
        };
        pairs.filter_map(ring).collect()
    }
}

/// Whether an operation waits for copies that are behind those of the next iteration by no more than a slot: the copies that are issued
/// in an iteration go to the slot of the one before the last.
fn spares_slot(op: &Op) -> bool {
    matches!(&op.kind, Kind::AsyncWait(wait) if wait.pending + 3 <= wait.ring.slots)
}

/// A constant of 64 bits.
pub fn constant(schedule: &mut Schedule, ops: &mut Vec<Op>, at: &Op, value: i128) -> Value {
    let constant = Constant { value: ConstantValue::Int(value) };
    schedule.one(ops, at.loc, constant, Type::scalar(DType::I64))
}

/// Whether one index is above another one.
pub fn is_above(schedule: &mut Schedule, ops: &mut Vec<Op>, at: &Op, values: [Value; 2]) -> Value {
    schedule.one(ops, at.loc, Scalar::named("gt", values.to_vec()), Type::scalar(DType::Bool))
}
