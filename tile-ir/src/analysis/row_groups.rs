//! Row groups: parts of a function that share no tile, such as consecutive loops over the same rows.
//!
//! Each group gets a range (`arange`) of its own, so that one of them can permute its elements without the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Op, Rewriter, Value};
use crate::ops::Kind;

/// Gives each group whose tiles of one extent are indexed by one of these ranges a range of its own, and returns those ranges.
/// Changes nothing where a loop carries a range; returns none where two ranges index one group.
pub(crate) fn separate(func: &mut Func, ranges: &[Value], extent: u32) -> Vec<Value> {
    let row_groups = RowGroups::new(func, ranges, extent);
    let mut carried = false;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        carried |= operation.operands().iter().any(|operand| ranges.contains(operand))
            && matches!(operation.layout_relation(func, &op.results), LayoutRelation::Tied(_));
    });
    if carried {
        return if let [range] = ranges { vec![*range] } else { vec![] };
    }
    let Some(own) = row_groups.ranges_of_groups(func, ranges) else { return vec![] };
    let mut copies = HashMap::new();
    Rewriter::default().run(func, &mut |_, builder, mut op| {
        if let Some(&range) = op.results.first().filter(|value| ranges.contains(value)) {
            let (kind, ty) = (op.kind.clone(), builder.func.ty(range).clone());
            builder.append(op);
            for (group, _) in own.iter().filter(|(_, indexed_by)| *indexed_by == range).skip(1) {
                copies.insert(*group, (range, builder.one(kind.clone(), ty.clone())));
            }
            return;
        }
        if let Some(&(range, copy)) = row_groups.of(&op).and_then(|group| copies.get(&group)) {
            op.kind.operation_mut().map(&mut |value| if value == range { copy } else { value });
        }
        builder.append(op);
    });
    own.into_iter().map(|(group, range)| copies.get(&group).map_or(range, |&(_, copy)| copy)).collect()
}

/// Tiles of one extent, united where their elements must have one order (union-find).
struct RowGroups {
    /// A tile of the same group, itself if it represents the group; ranges and uniform tiles are in none.
    parents: HashMap<Value, Value>,
}

impl RowGroups {
    /// The groups that one of these ranges indexes, each with that range; `None` where two index one.
    fn ranges_of_groups(&self, func: &Func, ranges: &[Value]) -> Option<Vec<(Value, Value)>> {
        let mut ranges_of: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
        func.body.walk(&mut |op| {
            if let Some(group) = self.of(op) {
                let operands = op.kind.operation().operands().into_iter();
                ranges_of
                    .entry(group)
                    .or_default()
                    .extend(operands.filter(|operand| ranges.contains(operand)));
            }
        });
        ranges_of.retain(|_, ranges| !ranges.is_empty());
        let single = |ranges: &[Value]| {
            ranges.first().copied().filter(|first| ranges.iter().all(|range| range == first))
        };
        ranges_of.into_iter().map(|(group, ranges)| Some((group, single(&ranges)?))).collect()
    }

    fn new(func: &Func, ranges: &[Value], extent: u32) -> RowGroups {
        let mut row_groups = RowGroups { parents: HashMap::new() };
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
                && !ranges.contains(value)
        };
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let groups = match operation.layout_relation(func, &op.results) {
                LayoutRelation::Tied(groups) => groups,
                _ => vec![operation.operands().into_iter().chain(op.results.iter().copied()).collect()],
            };
            for group in groups {
                let mut tiles = group.into_iter().filter(is_tile);
                let Some(first) = tiles.next() else { continue };
                row_groups.unite(first, first);
                tiles.for_each(|tile| row_groups.unite(first, tile));
            }
        });
        row_groups
    }

    fn unite(&mut self, one: Value, other: Value) {
        let (one, other) = (self.find(one), self.find(other));
        self.parents.insert(other, one);
    }

    fn find(&self, mut tile: Value) -> Value {
        while let Some(&parent) = self.parents.get(&tile).filter(|parent| **parent != tile) {
            tile = parent;
        }
        tile
    }

    /// The group of an operation that takes or returns a tile.
    fn of(&self, op: &Op) -> Option<Value> {
        let operands = op.kind.operation().operands();
        let tile = operands.iter().chain(&op.results).find(|value| self.parents.contains_key(value))?;
        Some(self.find(*tile))
    }
}
