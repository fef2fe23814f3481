//! The backward slice of an address: what of a loop's body can be recomputed for another iteration, to prefetch its
//! loads.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::{Effect, For, Kind, Load, Operation, Reshape};

use crate::gpu::layout::Distributed;

/// The fewest elements for each loaded index; of those of a thread, where it loads several.
const MIN_ELEMENTS_PER_INDEX: u64 = 8;

/// Finds the operations that compute a value from the loop variable and from values outside of the loop alone.
pub struct AddressSlice<'a> {
    distributed: &'a Distributed,
    body: &'a For,
    /// The operation that defines each value, by its index in the body.
    definitions: HashMap<Value, usize>,
}

impl AddressSlice<'_> {
    pub fn new<'a>(distributed: &'a Distributed, body: &'a For) -> AddressSlice<'a> {
        let ops = body.body.ops.iter().enumerate();
        let definitions = ops.flat_map(|(i, op)| op.results.iter().map(move |&result| (result, i))).collect();
        AddressSlice { distributed, body, definitions }
    }

    /// The operations that the address of a load depends on; `None` if it depends on more than arithmetic and loaded
    /// indices, or not on this loop.
    pub fn slice(&self, load: &Load) -> Option<HashSet<usize>> {
        let args = &self.body.body.args;
        let mut slice = HashSet::new();
        let mut varies = false;
        let mut todo = load.access.operands();
        while let Some(value) = todo.pop() {
            varies |= value == args[0];
            if args[1..].contains(&value) {
                return None;
            }
            let Some(&position) = self.definitions.get(&value) else { continue };
            let op = &self.body.body.ops[position];
            if !self.is_arithmetic(op) && !self.is_index_load(op, load) {
                return None;
            }
            if slice.insert(position) {
                todo.extend(op.kind.operation().operands());
            }
        }
        varies.then_some(slice)
    }

    /// Whether an operation loads an index for many of the elements that `load` takes: it is loaded again for the iteration that is
    /// prefetched.
    fn is_index_load(&self, op: &Op, load: &Load) -> bool {
        let Distributed { func, layouts, .. } = self.distributed;
        let Kind::Load(index) = &op.kind else { return false };
        let [indices, elements] = [index, load].map(|load| load.access.offset);
        let serves_many = match (layouts.get(&indices), layouts.get(&elements)) {
            (Some(indices), Some(elements)) => {
                indices.register_count() as u64 * MIN_ELEMENTS_PER_INDEX <= elements.register_count() as u64
            }
            _ => MIN_ELEMENTS_PER_INDEX <= func.ty(elements).shape.elements(),
        };
        index.effect() == Effect::Pure && !func.reports && serves_many
    }

    /// Whether threads keep their elements.
    fn keeps_elements(&self, op: &Op) -> bool {
        let Kind::Reshape(Reshape { value, .. }) = op.kind else { return true };
        let layouts = &self.distributed.layouts;
        layouts[&value].keeps_elements_as(&layouts[&op.results[0]])
    }

    fn is_arithmetic(&self, op: &Op) -> bool {
        let operation = op.kind.operation();
        let func = &self.distributed.func;
        let scalar = op.results.iter().all(|&result| func.ty(result).is_scalar());
        let cheap = match operation.layout_relation(func, &op.results) {
            LayoutRelation::Lanewise { cheap } => cheap || scalar,
            LayoutRelation::Source | LayoutRelation::View(_) => true,
            LayoutRelation::Reduce { .. }
            | LayoutRelation::Index { .. }
            | LayoutRelation::Tied(_)
            | LayoutRelation::Dot { .. }
            | LayoutRelation::WarpGroup { .. }
            | LayoutRelation::Free => false,
        };
        cheap && is_repeatable(operation) && self.keeps_elements(op)
    }
}

/// Whether an operation computes its results from its operands alone, so that it can be done again for another iteration.
pub fn is_repeatable(operation: &dyn Operation) -> bool {
    operation.effect() == Effect::Pure && operation.access().is_none() && operation.blocks().is_empty()
}
