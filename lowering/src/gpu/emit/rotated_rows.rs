//! Misaligned rows (`transform/rotate_rows`, `transform/read_unrotated`): their indices, and the comparisons in their masks.

use std::collections::HashMap;

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::scalar::{ArithKind, Scalar};
use tile_ir::ops::{Kind, RangeOrder, Rotate, RowCut};

use crate::gpu::emit::indices::IndexJoin;
use crate::gpu::emit::operation::{GpuEmit, opaque};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, TileRegisters};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

impl GpuEmit for Rotate {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let range = gpu.registers(self.range);
        let registers = match self.order {
            RangeOrder::Cut(cut) => {
                let range = TileRegisters { layout: &layout, values: &range };
                let (indices, before) = gpu.cut_row(b, cut, self.limit, range);
                gpu.facts.rows.cuts.insert(op.results[0], (cut.bound, before));
                indices
            }
            RangeOrder::Wrapped { by } => {
                let by = gpu.scalar(by);
                // Only registers at the start of the range can have negative indices.
                let wraps = |i| !layout.is_disjoint() || layout.register(i).get(0) < self.limit;
                let indices = range.iter().enumerate().map(|(i, &index)| {
                    let rotated = gpu.join_indices(b, IndexJoin::Difference, index, by);
                    if wraps(i) { wrapped(b, rotated, layout.shape()[0]) } else { rotated }
                });
                indices.collect()
            }
        };
        gpu.define(op.results[0], registers);
    }
}

/// The values recorded for misaligned rows, by the ids of their registers.
#[derive(Default)]
pub(super) struct RotatedRows {
    /// Whether any was rotated.
    pub rotated: bool,
    /// Indices of cut rows, which belong to the row's head where this condition holds.
    pub heads: HashMap<usize, Val>,
    /// The elements of partial vectors, read before the others, by the load's result.
    pub elements: HashMap<Value, Vec<Vec<Val>>>,
    /// Whole vectors of cut rows, by the index of the first element.
    whole: HashMap<usize, WholeVector>,
    /// Vectors at the ends of cut rows, by the index of the first element.
    pub row_ends: HashMap<usize, RowEnd>,
    /// The bound of a cut row, and for each register whether its index, and all of its vector, is below; `None` where that
    /// differs.
    pub cuts: HashMap<Value, (Value, Vec<Option<Val>>)>,
    /// Comparisons of `i32` values: the lesser operand where they hold, and the greater.
    pub less_than: HashMap<usize, (Val, Val)>,
    /// Conjunctions of two conditions.
    pub conjunctions: HashMap<usize, (Val, Val)>,
}

/// Warps of a program from which on the ends of a row are emitted apart.
const MIN_WARPS: u32 = 8;

/// A vector of the row's first or last elements, in the threads that hold them: few values determine its indices.
#[derive(Clone, Copy)]
pub(super) struct RowEnd {
    /// The range's value at the first element.
    first: Val,
    head: Val,
    /// The elements of whole vectors.
    elements: Val,
    /// The vector of the other threads.
    pub whole: WholeVector,
    pub bound: Val,
    limit: u32,
    extent: u32,
    /// Whether this thread has the row's first or last elements here.
    pub is_end: Val,
}

/// A vector between the ends of a cut row.
#[derive(Clone, Copy)]
pub(super) struct WholeVector {
    /// The index of its first element, at a constant distance from those of the thread's other vectors.
    pub offset: Val,
    /// Whether it is one.
    pub holds: Val,
}

impl RowEnd {
    /// The indices of a vector's elements where it is not a whole one.
    pub fn indices(&self, b: &mut Builder, count: usize) -> Vec<Val> {
        let RowEnd { head, elements, limit, extent, .. } = *self;
        let int = |b: &mut Builder, value: u32| b.int(Ty::I32, i64::from(value));
        let (ends, tail) = (int(b, extent - 2 * limit), int(b, extent - limit));
        let first = opaque(b, self.first);
        let is_tail = b.icmp(IntPredicate::Sge, first, tail);
        let in_tail = b.sub_nsw(first, tail);
        let behind = b.add_nsw(head, elements);
        let in_tail = b.add_nsw(behind, in_tail);
        let in_head = b.sub_nsw(first, ends);
        let indices = (0..count as u32).map(|i| {
            let constant = int(b, i);
            let of_tail = b.add_nsw(in_tail, constant);
            let own = b.add_nsw(in_head, constant);
            let is_first = b.icmp(IntPredicate::Slt, own, head);
            let last = b.add_nsw(own, tail);
            let of_head = b.select(is_first, own, last);
            b.select(is_tail, of_tail, of_head)
        });
        indices.collect()
    }
}

impl RotatedRows {
    pub fn of(func: &Func) -> RotatedRows {
        let mut rotated = false;
        func.body.walk(&mut |op| rotated |= matches!(op.kind, Kind::Rotate(_)));
        RotatedRows { rotated, ..RotatedRows::default() }
    }

    /// Records the operands of a comparison or a conjunction.
    pub fn record(&mut self, scalar: &Scalar, operands: &[Val], result: Val) {
        let &[left, right] = operands else { return };
        match scalar.op.arith {
            ArithKind::Compare(BinaryOp::Lt) if left.ty == Ty::I32 => {
                self.less_than.insert(result.id(), (left, right))
            }
            ArithKind::Compare(BinaryOp::Gt) if left.ty == Ty::I32 => {
                self.less_than.insert(result.id(), (right, left))
            }
            ArithKind::And => self.conjunctions.insert(result.id(), (left, right)),
            _ => None,
        };
    }

    /// The comparisons that a mask is the conjunction of.
    fn conjuncts(&self, mask: Val, found: &mut Vec<Val>) {
        match self.conjunctions.get(&mask.id()) {
            Some(&(one, other)) => {
                [one, other].into_iter().for_each(|conjunct| self.conjuncts(conjunct, found))
            }
            None => found.push(mask),
        }
    }
}

/// A rotated index: behind the end where it is negative.
fn wrapped(b: &mut Builder, rotated: Val, extent: u32) -> Val {
    let (zero, extent) = (b.int(Ty::I32, 0), b.int(Ty::I32, i64::from(extent)));
    let last = b.add_nsw(rotated, extent);
    let negative = b.icmp(IntPredicate::Slt, rotated, zero);
    b.select(negative, last, rotated)
}

impl Gpu<'_> {
    /// The indices of a cut row, aligned vectors first, its ends last, and for each whether it is below the bound where its vector
    /// is.
    fn cut_row(
        &mut self,
        b: &mut Builder,
        cut: RowCut,
        limit: u32,
        range: TileRegisters,
    ) -> (Vec<Val>, Vec<Option<Val>>) {
        let TileRegisters { layout, values: range } = range;
        let extent = layout.shape()[0];
        let (head, whole) = (self.scalar(cut.head), self.scalar(cut.whole));
        let int = |b: &mut Builder, value: u32| b.int(Ty::I32, i64::from(value));
        let last_of_thread = layout.thread(31, layout.num_warps() - 1).get(0);
        let (mut found, mut below) = (vec![], vec![]);
        let run = (layout.thread_contiguity(0).min(limit) as usize).min(range.len());
        for (chunk, values) in range.chunks(run).enumerate() {
            let first = values[0];
            // Neither exceeds the extent: one difference for all vectors of a thread, and one sum.
            let (of_thread, constant) = self.base_and_constant(first);
            let left = b.sub_nsw(whole, of_thread);
            let constant = b.int(Ty::I32, constant);
            let before = b.icmp(IntPredicate::Slt, constant, left);
            let unskipped = self.join_indices(b, IndexJoin::Sum, first, head);
            let (skipped, none) = (int(b, limit), int(b, 0));
            let skipped = b.select(before, none, skipped);
            let moved = b.add_nsw(head, skipped);
            let start = b.add_nsw(first, moved);
            let reaches_ends = !layout.is_disjoint()
                || layout.register(chunk * run).get(0) + last_of_thread + run as u32 > extent - 2 * limit;
            if !reaches_ends {
                self.facts.rows.whole.insert(start.id(), WholeVector { offset: unskipped, holds: before });
                found.extend((0..values.len()).map(|i| self.add_constant(b, start, i as i64)));
                below.extend(values.iter().map(|_| Some(before)));
                continue;
            }
            let (ends, tail) = (int(b, extent - 2 * limit), int(b, extent - limit));
            let is_end = b.icmp(IntPredicate::Sge, first, ends);
            let is_tail = b.icmp(IntPredicate::Sge, first, tail);
            let not_tail = b.not(is_tail);
            let is_head = b.and(is_end, not_tail);
            // The vector behind the whole vectors.
            let in_tail = b.sub_nsw(first, tail);
            let behind = b.add_nsw(head, whole);
            let in_tail = b.add_nsw(behind, in_tail);
            let start = b.select(is_tail, in_tail, start);
            let in_head = b.sub_nsw(first, ends);
            let at = found.len();
            for i in 0..values.len() {
                let constant = int(b, i as u32);
                let index = b.add_nsw(start, constant);
                let own = b.add_nsw(in_head, constant);
                let is_first = b.icmp(IntPredicate::Slt, own, head);
                let last = int(b, extent - limit);
                let last = b.add_nsw(own, last);
                let own = b.select(is_first, own, last);
                let index = b.select(is_head, own, index);
                self.facts.rows.heads.insert(index.id(), is_head);
                found.push(index);
                below.push(None);
            }
            let bound = self.scalar(cut.bound);
            let is_whole = WholeVector { offset: unskipped, holds: before };
            self.facts.rows.whole.insert(found[at].id(), is_whole);
            // A warp that always has an end would rematerialize its indices each time.
            if layout.num_warps() < MIN_WARPS {
                continue;
            }
            let end = RowEnd { first, head, elements: whole, whole: is_whole, bound, limit, extent, is_end };
            self.facts.rows.row_ends.insert(found[at].id(), end);
        }
        (found, below)
    }

    /// Whether an index of a cut row is below the row's bound; `None` for another comparison.
    pub(super) fn below_bound(&self, scalar: &Scalar, operands: &[Val], register: usize) -> Option<Val> {
        if scalar.op.arith != ArithKind::Compare(BinaryOp::Lt) {
            return None;
        }
        let (bound, below) = self.facts.rows.cuts.get(&scalar.args[0])?;
        below.get(register)?.filter(|_| self.scalar(*bound).id() == operands[1].id())
    }
}

impl Gpu<'_> {
    /// The whole vector of a cut row that starts at an index, if the mask selects exactly whole vectors.
    pub(super) fn whole_vector(&self, index: Val, mask: Option<Val>) -> Option<WholeVector> {
        let whole = self.facts.rows.whole.get(&index.id())?;
        let mut conjuncts = vec![];
        self.facts.rows.conjuncts(mask?, &mut conjuncts);
        conjuncts.iter().any(|conjunct| conjunct.id() == whole.holds.id()).then_some(*whole)
    }

    /// The conjuncts that the masks of a vector's elements share, where all others say that its indices are below the bound.
    pub(super) fn mask_besides_bound(
        &self,
        b: &mut Builder,
        indices: &[Val],
        masks: &[Option<Val>],
        bound: Val,
    ) -> Option<Option<Val>> {
        let mut shared = None;
        for (i, (index, mask)) in indices.iter().zip(masks).enumerate() {
            let mut conjuncts = vec![];
            self.facts.rows.conjuncts((*mask)?, &mut conjuncts);
            let is_bound = |conjunct: &Val| {
                self.facts
                    .rows
                    .less_than
                    .get(&conjunct.id())
                    .is_some_and(|&(less, greater)| less.id() == index.id() && greater.id() == bound.id())
            };
            let bounds = conjuncts.iter().filter(|conjunct| is_bound(conjunct)).count();
            let rest: Vec<Val> = conjuncts.into_iter().filter(|conjunct| !is_bound(conjunct)).collect();
            let ids: Vec<usize> = rest.iter().map(|conjunct| conjunct.id()).collect();
            if bounds == 0 || i > 0 && shared.as_ref().is_none_or(|(known, _)| *known != ids) {
                return None;
            }
            shared.get_or_insert((ids, rest));
        }
        let (_, rest) = shared?;
        Some(rest.into_iter().fold(None, |all, conjunct| b.both(all, Some(conjunct))))
    }

    /// The length of the prefix of a vector's elements that are active, where their masks select a prefix: at most the vector's
    /// length, where any is active.
    pub(super) fn active_count(&self, b: &mut Builder, masks: &[Option<Val>]) -> Option<Val> {
        let conjuncts: Option<Vec<Vec<Val>>> = masks
            .iter()
            .map(|mask| {
                let mut found = vec![];
                self.facts.rows.conjuncts((*mask)?, &mut found);
                Some(found)
            })
            .collect();
        let conjuncts = conjuncts?;
        let first = &conjuncts[0];
        if conjuncts.iter().any(|own| own.len() != first.len()) {
            return None;
        }
        let count = b.int(Ty::I32, masks.len() as i64);
        let mut found = None;
        for (at, conjunct) in first.iter().enumerate() {
            if conjuncts.iter().all(|own| own[at].id() == conjunct.id()) {
                continue;
            }
            let &(less, greater) = self.facts.rows.less_than.get(&conjunct.id())?;
            let room = |less: Val, greater: Val| {
                let ((x, p), (y, q)) = (self.base_and_constant(less), self.base_and_constant(greater));
                (x.id(), y.id(), q - p)
            };
            let (x, y, distance) = room(less, greater);
            for (i, own) in conjuncts.iter().enumerate() {
                let &(less, greater) = self.facts.rows.less_than.get(&own[at].id())?;
                if room(less, greater) != (x, y, distance - i as i64) {
                    return None;
                }
            }
            // At least 1 where the first element is active.
            let left = b.sub(greater, less);
            let left = b.op("llvm.intr.umin", &[left, count], Ty::I32);
            found = Some(found.map_or(left, |known| b.op("llvm.intr.umin", &[known, left], Ty::I32)));
        }
        Some(found.unwrap_or(count))
    }
}
