//! A loop with a ring while it is being pipelined.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Op, Type, Value};
use tile_ir::ops::schedule::CopyRing;
use tile_ir::ops::{Constant, ConstantValue, For};
use tile_ir::support::dtype::DType;

use super::plan::CopyPlan;
use super::ring::AllocatedRing;
use crate::gpu::schedule::Schedule;

/// The rewriting of a function.
pub struct Pipeliner<'a> {
    pub schedule: &'a mut Schedule,
    /// By the loop's variable.
    pub rings: HashMap<Value, AllocatedRing>,
    /// What defined each value before.
    pub definitions: HashMap<Value, Op>,
    /// Values that differ between programs.
    pub varying: HashSet<Value>,
    /// Whether the kernel before this one may still run.
    pub waits_for_kernel: bool,
}

/// A loop with a ring.
pub struct RingLoop<'a> {
    pub op: &'a Op,
    pub body: &'a For,
    pub plan: CopyPlan<'a>,
    pub ring: CopyRing,
}

/// A loop whose prologue stands.
#[derive(Clone, Copy)]
pub struct StartedLoop {
    pub trip_count: Value,
    pub first_slot: Value,
}

/// A slot, and the iteration whose elements are copied there.
#[derive(Clone, Copy)]
pub struct Fill {
    pub index: Value,
    pub slot: Value,
}

/// The type of iterations.
pub fn index_type() -> Type {
    Type::scalar(DType::I64)
}

impl Pipeliner<'_> {
    /// An index that is known.
    pub fn constant(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, value: u32) -> Value {
        let constant = Constant { value: ConstantValue::Int(value.into()) };
        self.schedule.one(ops, ring_loop.op.loc, constant, index_type())
    }
}
