//! What of a loop's body can be computed in another turn: the addresses of copies that are made ahead.

use std::collections::{HashMap, HashSet};

use crate::gpu::emit::emitter;
use crate::gpu::layout::Distributed;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Op, Value};
use crate::ops::{Effect, For, Kind, Load, Operation};

/// The fewest elements that a place in a table is of.
const LEAST_FOUND: u64 = 8;

/// Finds which operations of a loop's body give a value from the loop's variable and what is outside the loop alone.
pub(super) struct AddressSlice<'a> {
    distributed: &'a Distributed,
    body: &'a For,
    /// Where each value is defined, among the body's own operations.
    places: HashMap<Value, usize>,
}

impl AddressSlice<'_> {
    pub fn new<'a>(distributed: &'a Distributed, body: &'a For) -> AddressSlice<'a> {
        let ops = body.body.ops.iter().enumerate();
        let places = ops.flat_map(|(i, op)| op.results.iter().map(move |&result| (result, i))).collect();
        AddressSlice { distributed, body, places }
    }

    /// The operations that the address of a load needs; `None` if it needs more than arithmetic and places that are found in a
    /// table, or nothing of this loop at all.
    pub fn slice(&self, load: &Load) -> Option<HashSet<usize>> {
        let args = &self.body.body.args;
        let mut found = HashSet::new();
        let mut varies = false;
        let mut todo = load.place.operands();
        let elements = self.distributed.func.ty(load.place.offset).shape.elements();
        while let Some(value) = todo.pop() {
            varies |= value == args[0];
            if args[1..].contains(&value) {
                return None;
            }
            let Some(&place) = self.places.get(&value) else { continue };
            let op = &self.body.body.ops[place];
            if !self.is_arithmetic(op) && !self.is_found(op, elements) {
                return None;
            }
            if found.insert(place) {
                todo.extend(op.kind.operation().operands());
            }
        }
        varies.then_some(found)
    }

    /// Whether an operation looks up in a table what is the place of many of the `elements` that are loaded: it is looked up
    /// again in the turn that copies them.
    fn is_found(&self, op: &Op, elements: u64) -> bool {
        let func = &self.distributed.func;
        let Kind::Load(load) = &op.kind else { return false };
        let own = func.ty(load.place.offset).shape.elements();
        load.effect() == Effect::Pure && !func.reports && own * LEAST_FOUND <= elements
    }

    fn is_arithmetic(&self, op: &Op) -> bool {
        let operation = op.kind.operation();
        let func = &self.distributed.func;
        let scalar = op.results.iter().all(|&result| func.ty(result).is_scalar());
        let cheap = match operation.spread(func, &op.results) {
            LayoutRelation::Lanewise { cheap } => cheap || scalar,
            LayoutRelation::Source | LayoutRelation::View(_) => true,
            LayoutRelation::Reduce { .. }
            | LayoutRelation::Tied(_)
            | LayoutRelation::Dot { .. }
            | LayoutRelation::WarpGroup { .. }
            | LayoutRelation::Free => false,
        };
        cheap
            && operation.effect() == Effect::Pure
            && operation.place().is_none()
            && operation.blocks().is_empty()
            && emitter(&op.kind).scratch(self.distributed, op) == 0
    }
}
