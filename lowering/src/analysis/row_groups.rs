//! Parts of a function that share no tile: loops that go over the same rows one after the other, say.
//!
//! Each gets a ramp of its own, so that what one of them does to the order of its elements is nothing to the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Op, Rewriter, Value};
use crate::ops::Kind;

/// Gives each part whose tiles of one extent are counted by one of these ramps a ramp of its own, and returns those ramps. Nothing is
/// changed where a loop carries a ramp, and none is returned where two count one part.
pub(crate) fn separate(func: &mut Func, ramps: &[Value], extent: u32) -> Vec<Value> {
    let parts = RowGroups::new(func, ramps, extent);
    let mut counted: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    let mut carried = false;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let used: Vec<Value> =
            operation.operands().into_iter().filter(|operand| ramps.contains(operand)).collect();
        carried |= !used.is_empty() && matches!(operation.spread(func, &op.results), LayoutRelation::Tied(_));
        if let Some(part) = parts.of(op) {
            counted.entry(part).or_default().extend(used);
        }
    });
    if carried {
        return if let [ramp] = ramps { vec![*ramp] } else { vec![] };
    }
    let alone =
        |ramps: &[Value]| ramps.first().copied().filter(|first| ramps.iter().all(|ramp| ramp == first));
    counted.retain(|_, ramps| !ramps.is_empty());
    let own: Option<Vec<(Value, Value)>> =
        counted.into_iter().map(|(part, ramps)| Some((part, alone(&ramps)?))).collect();
    let Some(own) = own else { return vec![] };
    let mut copies = HashMap::new();
    Rewriter::default().run(func, &mut |_, builder, mut op| {
        if let Some(&ramp) = op.results.first().filter(|value| ramps.contains(value)) {
            let (kind, ty) = (op.kind.clone(), builder.func.ty(ramp).clone());
            builder.append(op);
            for (part, _) in own.iter().filter(|(_, counts)| *counts == ramp).skip(1) {
                copies.insert(*part, (ramp, builder.one(kind.clone(), ty.clone())));
            }
            return;
        }
        if let Some(&(ramp, copy)) = parts.of(&op).and_then(|part| copies.get(&part)) {
            op.kind.operation_mut().map(&mut |value| if value == ramp { copy } else { value });
        }
        builder.append(op);
    });
    own.into_iter().map(|(part, ramp)| copies.get(&part).map_or(ramp, |&(_, copy)| copy)).collect()
}

/// Tiles of one extent, joined where their elements must be in one order.
struct RowGroups {
    /// A tile of the same part, itself where it stands for the part; ramps, and tiles whose elements are all the same, are of none.
    parents: HashMap<Value, Value>,
}

impl RowGroups {
    fn new(func: &Func, ramps: &[Value], extent: u32) -> RowGroups {
        let mut parts = RowGroups { parents: HashMap::new() };
        let mut uniform = HashSet::new();
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let same = operation.is_pointwise()
                && operation.operands().iter().all(|operand| uniform.contains(operand));
            if same || matches!(op.kind, Kind::Splat(_) | Kind::Constant(_)) {
                uniform.extend(op.results.iter().copied());
            }
        });
        let is_tile = |value: &Value| {
            let ty = func.ty(*value);
            !ty.is_scalar()
                && ty.shape.contains(&extent)
                && !uniform.contains(value)
                && !ramps.contains(value)
        };
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let groups = match operation.spread(func, &op.results) {
                LayoutRelation::Tied(groups) => groups,
                _ => vec![operation.operands().into_iter().chain(op.results.iter().copied()).collect()],
            };
            for group in groups {
                let mut tiles = group.into_iter().filter(is_tile);
                let Some(first) = tiles.next() else { continue };
                parts.join(first, first);
                tiles.for_each(|tile| parts.join(first, tile));
            }
        });
        parts
    }

    fn join(&mut self, one: Value, other: Value) {
        let (one, other) = (self.find(one), self.find(other));
        self.parents.insert(other, one);
    }

    fn find(&self, mut tile: Value) -> Value {
        while let Some(&parent) = self.parents.get(&tile).filter(|parent| **parent != tile) {
            tile = parent;
        }
        tile
    }

    /// The part of an operation that takes or gives a tile.
    fn of(&self, op: &Op) -> Option<Value> {
        let operands = op.kind.operation().operands();
        let tile = operands.iter().chain(&op.results).find(|value| self.parents.contains_key(value))?;
        Some(self.find(*tile))
    }
}
