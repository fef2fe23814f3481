//! What of a loop's body can be computed in another turn: the addresses of copies that are made ahead.

use std::collections::{HashMap, HashSet};

use crate::layout::Distributed;
use crate::layout::assign::Spread;
use crate::ops::{Effect, For};
use crate::tile::{Op, Value};

/// Finds which operations of a loop's body give a value from the loop's variable and what is outside the loop alone.
pub(super) struct Slicer<'a> {
    distributed: &'a Distributed,
    body: &'a For,
    /// Where each value is defined, among the body's own operations.
    places: HashMap<Value, usize>,
}

impl Slicer<'_> {
    pub fn new<'a>(distributed: &'a Distributed, body: &'a For) -> Slicer<'a> {
        let ops = body.body.ops.iter().enumerate();
        let places = ops.flat_map(|(i, op)| op.results.iter().map(move |&result| (result, i))).collect();
        Slicer { distributed, body, places }
    }

    /// The operations that `values` need; `None` if they need more than arithmetic, or nothing of this loop at all.
    pub fn slice(&self, values: &[Value]) -> Option<HashSet<usize>> {
        let args = &self.body.body.args;
        let mut found = HashSet::new();
        let mut varies = false;
        let mut todo = values.to_vec();
        while let Some(value) = todo.pop() {
            varies |= value == args[0];
            if args[1..].contains(&value) {
                return None;
            }
            let Some(&place) = self.places.get(&value) else { continue };
            let op = &self.body.body.ops[place];
            if !self.is_arithmetic(op) {
                return None;
            }
            if found.insert(place) {
                todo.extend(op.kind.operation().operands());
            }
        }
        varies.then_some(found)
    }

    fn is_arithmetic(&self, op: &Op) -> bool {
        let operation = op.kind.operation();
        let func = &self.distributed.func;
        let scalar = op.results.iter().all(|&result| func.ty(result).is_scalar());
        let cheap = match operation.spread(func, &op.results) {
            Spread::Lanewise { cheap } => cheap || scalar,
            Spread::Source | Spread::View(_) => true,
            Spread::Fold { .. }
            | Spread::Carry(_)
            | Spread::Product { .. }
            | Spread::Grouped
            | Spread::Free => false,
        };
        cheap
            && operation.effect() == Effect::Pure
            && operation.place().is_none()
            && operation.blocks().is_empty()
            && op.kind.gpu().scratch(self.distributed, op) == 0
    }
}
