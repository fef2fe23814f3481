//! Reductions along the last axis of a square tile that broadcast against it along the other axis: one result per row becomes
//! one per column. Of a tile with two extents the same line is an error.

use std::collections::{HashMap, HashSet};

use crate::ir::{Func, Op, Value, backward_slice};
use crate::ops::{Broadcast, ExpandDims, Kind, Reduce};
use crate::support::warning::Warning;

/// Returns a warning for each operation of a tile and such a reduction of it.
pub(super) fn reduced_rows(func: &Func, definitions: &HashMap<Value, &Op>) -> Vec<Warning> {
    let trace = RowTrace { func, definitions };
    let mut found = vec![];
    func.body.walk(&mut |op| {
        if !matches!(op.kind, Kind::Scalar(_)) {
            return;
        }
        let operands = op.kind.operation().operands();
        let misplaced = operands.iter().any(|&operand| {
            let mut others = operands.iter().filter(|&&other| other != operand);
            trace.rows_as_columns(operand, op)
                .is_some_and(|tile| others.any(|&other| trace.are_related([tile, other])))
        });
        if misplaced {
            let shape = &func.ty(op.results[0]).shape;
            let text = format!(
                "this has one result for each row of a tile of shape {shape}, and aligns with its columns: `.col()` aligns it with the \
                 rows, `.row()` says that columns are meant"
            );
            found.push(Warning { loc: op.loc, kind: "reduced_rows", text });
        }
    });
    found
}

/// Where values come from.
struct RowTrace<'a> {
    func: &'a Func,
    definitions: &'a HashMap<Value, &'a Op>,
}

impl RowTrace<'_> {
    /// The tile of `user`'s shape whose rows `operand` was reduced from, if `user` itself has broadcast it along the rows.
    fn rows_as_columns(&self, operand: Value, user: &Op) -> Option<Value> {
        let Kind::Broadcast(Broadcast { value }) = self.definitions.get(&operand)?.kind else { return None };
        let expanded = self.definitions.get(&value)?;
        let Kind::ExpandDims(ExpandDims { value, axis: 0 }) = expanded.kind else { return None };
        // An axis that the user wrote has a place of its own in the source.
        if expanded.loc != user.loc {
            return None;
        }
        let tile = self.reduced(value, &mut HashSet::new())?;
        (self.func.ty(tile).shape == self.func.ty(user.results[0]).shape).then_some(tile)
    }

    /// The tile that `value` is the reduction of, along its last axis alone, through operations of each element.
    fn reduced(&self, value: Value, seen: &mut HashSet<Value>) -> Option<Value> {
        let op = self.definitions.get(&value).filter(|_| seen.insert(value))?;
        if let Kind::Reduce(Reduce { combination, axes }) = &op.kind {
            let tile = combination.inputs[0];
            return (axes[..] == [self.func.ty(tile).shape.rank() - 1]).then_some(tile);
        }
        let is_lanewise = matches!(op.kind, Kind::Scalar(_) | Kind::Cast(_));
        let operands = op.kind.operation().operands();
        operands.into_iter().filter(|_| is_lanewise).find_map(|operand| self.reduced(operand, seen))
    }

    /// Whether two tiles are computed from the same one of their shape. Offsets are shared by unrelated tiles.
    fn are_related(&self, [one, other]: [Value; 2]) -> bool {
        let (ours, theirs) = (backward_slice(one, self.definitions), backward_slice(other, self.definitions));
        let shape = &self.func.ty(one).shape;
        ours.intersection(&theirs).any(|&common| {
            let ty = self.func.ty(common);
            ty.shape == *shape && ty.dtype.is_float()
        })
    }
}
