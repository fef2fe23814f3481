//! Rows that begin anywhere (`analysis/rotate`, `analysis/unrotated`): their numbers, and what masks say of them.

use std::collections::HashMap;

use crate::frontend::syntax::BinaryOp;
use crate::gpu::emit::emit::{GpuEmit, opaque};
use crate::gpu::emit::{Builder, Gpu, IndexJoin, IntPredicate};
use crate::gpu::layout::Layout;
use crate::ir::{Func, Op, Value};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Kind, RangeOrder, Rotate, RowCut};

impl GpuEmit for Rotate {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let ramp = gpu.registers(self.ramp);
        let registers = match self.dealt {
            RangeOrder::Cut(cut) => {
                let (numbers, before) = gpu.cut_row(b, (self, cut), &ramp, &layout);
                gpu.rows.cuts.insert(op.results[0], (cut.bound, before));
                numbers
            }
            RangeOrder::Wrapped { by } => {
                let (by, ramp) = (gpu.scalar(by), ramp.iter().enumerate());
                ramp.map(|(i, &number)| gpu.wrapped(b, self, number, by, (i, &layout))).collect()
            }
        };
        gpu.define(op.results[0], registers);
    }
}

/// What is known of rows that begin anywhere.
#[derive(Default)]
pub(super) struct RotatedRows {
    /// Whether any was rotated.
    pub rotated: bool,
    /// Numbers of rows that were cut, which are of the row's head where this holds.
    pub heads: HashMap<usize, Val>,
    /// The elements of vectors that are not whole, read before the others, by the load's result.
    pub elements: HashMap<Value, Vec<Vec<Val>>>,
    /// What is known of vectors of rows that were cut, by the number of the first element.
    whole: HashMap<usize, WholeVector>,
    /// What vectors at the ends of rows that were cut are made of, by the number of the first element.
    pub ends_of_rows: HashMap<usize, RowEnd>,
    /// The bound of a row that was cut, and for each register whether its number, and all of its vector, is below; `None` where
    /// that differs.
    pub cuts: HashMap<Value, (Value, Vec<Option<Val>>)>,
    /// Comparisons of `i32` numbers: the one that is less where they hold, and the greater one.
    pub ends: HashMap<usize, (Val, Val)>,
    /// What holds where two others do.
    pub both: HashMap<usize, (Val, Val)>,
}

/// The fewest warps of a program of which one has the ends of a row.
const WARPS: u32 = 8;

/// A vector that holds the row's first elements, or its last ones, for the threads that have such: its numbers are made of little.
#[derive(Clone, Copy)]
pub(super) struct RowEnd {
    /// Of the ramp's numbers.
    first: Val,
    head: Val,
    /// The elements of whole vectors.
    elements: Val,
    /// What it is for the other threads.
    pub whole: WholeVector,
    pub bound: Val,
    limit: u32,
    extent: u32,
    /// Whether this thread has the row's first or last elements here.
    pub is_end: Val,
}

/// A vector between the ends of a row that was cut.
#[derive(Clone, Copy)]
pub(super) struct WholeVector {
    /// The number of its first element, by a constant behind that of the thread's other ones.
    pub number: Val,
    /// Where it is one.
    pub holds: Val,
}

impl RowEnd {
    /// The numbers of a vector's elements where it is no whole one.
    pub fn numbers(&self, b: &mut Builder, count: usize) -> Vec<Val> {
        let RowEnd { head, elements, limit, extent, .. } = *self;
        let int = |b: &mut Builder, number: u32| b.int(Ty::I32, i64::from(number));
        let (ends, tail) = (int(b, extent - 2 * limit), int(b, extent - limit));
        let first = opaque(b, self.first);
        let is_tail = b.icmp(IntPredicate::Sge, first, tail);
        let in_tail = b.sub_nsw(first, tail);
        let behind = b.add_nsw(head, elements);
        let in_tail = b.add_nsw(behind, in_tail);
        let in_head = b.sub_nsw(first, ends);
        let numbers = (0..count as u32).map(|i| {
            let constant = int(b, i);
            let of_tail = b.add_nsw(in_tail, constant);
            let own = b.add_nsw(in_head, constant);
            let is_first = b.icmp(IntPredicate::Slt, own, head);
            let last = b.add_nsw(own, tail);
            let of_head = b.select(is_first, own, last);
            b.select(is_tail, of_tail, of_head)
        });
        numbers.collect()
    }
}

impl RotatedRows {
    pub fn of(func: &Func) -> RotatedRows {
        let mut rotated = false;
        func.body.walk(&mut |op| rotated |= matches!(op.kind, Kind::Rotate(_)));
        RotatedRows { rotated, ..RotatedRows::default() }
    }

    /// Notes what a comparison, or a conjunction, is made of.
    pub fn note(&mut self, scalar: &Scalar, operands: &[Val], result: Val) {
        let &[left, right] = operands else { return };
        match scalar.op.algebra {
            ArithKind::Compare(BinaryOp::Lt) if left.ty == Ty::I32 => {
                self.ends.insert(result.id(), (left, right))
            }
            ArithKind::Compare(BinaryOp::Gt) if left.ty == Ty::I32 => {
                self.ends.insert(result.id(), (right, left))
            }
            ArithKind::And => self.both.insert(result.id(), (left, right)),
            _ => None,
        };
    }

    /// The comparisons that a mask is the conjunction of.
    fn parts(&self, mask: Val, found: &mut Vec<Val>) {
        match self.both.get(&mask.id()) {
            Some(&(one, other)) => [one, other].into_iter().for_each(|part| self.parts(part, found)),
            None => found.push(mask),
        }
    }
}

impl Gpu<'_> {
    /// A number of a ramp that was rotated, by registers whose numbers are negative only where the ramp begins.
    fn wrapped(
        &mut self,
        b: &mut Builder,
        rotate: &Rotate,
        number: Val,
        by: Val,
        (register, layout): (usize, &Layout),
    ) -> Val {
        let rotated = self.join_indices(b, IndexJoin::Difference, number, by);
        if layout.is_disjoint() && layout.register(register).get(0) >= rotate.limit {
            return rotated;
        }
        let (zero, extent) = (b.int(Ty::I32, 0), b.int(Ty::I32, i64::from(layout.shape()[0])));
        let last = b.add_nsw(rotated, extent);
        let negative = b.icmp(IntPredicate::Slt, rotated, zero);
        b.select(negative, last, rotated)
    }

    /// The numbers of a row that is cut, aligned vectors first, its ends last, and for each whether it is below the bound where its
    /// vector is.
    fn cut_row(
        &mut self,
        b: &mut Builder,
        (rotate, cut): (&Rotate, RowCut),
        ramp: &[Val],
        layout: &Layout,
    ) -> (Vec<Val>, Vec<Option<Val>>) {
        let limit = rotate.limit;
        let extent = layout.shape()[0];
        let (head, whole) = (self.scalar(cut.head), self.scalar(cut.whole));
        let int = |b: &mut Builder, number: u32| b.int(Ty::I32, i64::from(number));
        let last_of_thread = layout.thread(31, layout.num_warps() - 1).get(0);
        let (mut found, mut below) = (vec![], vec![]);
        let run = (layout.thread_contiguity(0).min(limit) as usize).min(ramp.len());
        for (piece, numbers) in ramp.chunks(run).enumerate() {
            let first = numbers[0];
            // Neither is more than the extent: one difference for all vectors of a thread, and one sum.
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
                || layout.register(piece * run).get(0) + last_of_thread + run as u32 > extent - 2 * limit;
            if !reaches_ends {
                self.rows.whole.insert(start.id(), WholeVector { number: unskipped, holds: before });
                found.extend((0..numbers.len()).map(|i| self.add_constant(b, start, i as i64)));
                below.extend(numbers.iter().map(|_| Some(before)));
                continue;
            }
            let (ends, tail) = (int(b, extent - 2 * limit), int(b, extent - limit));
            let is_end = b.icmp(IntPredicate::Sge, first, ends);
            let is_tail = b.icmp(IntPredicate::Sge, first, tail);
            let not_tail = b.not(is_tail);
            let is_head = b.and(is_end, not_tail);
            // The vector behind the whole ones.
            let in_tail = b.sub_nsw(first, tail);
            let behind = b.add_nsw(head, whole);
            let in_tail = b.add_nsw(behind, in_tail);
            let start = b.select(is_tail, in_tail, start);
            let in_head = b.sub_nsw(first, ends);
            let at = found.len();
            for i in 0..numbers.len() {
                let constant = int(b, i as u32);
                let number = b.add_nsw(start, constant);
                let own = b.add_nsw(in_head, constant);
                let is_first = b.icmp(IntPredicate::Slt, own, head);
                let last = int(b, extent - limit);
                let last = b.add_nsw(own, last);
                let own = b.select(is_first, own, last);
                let number = b.select(is_head, own, number);
                self.rows.heads.insert(number.id(), is_head);
                found.push(number);
                below.push(None);
            }
            let bound = self.scalar(cut.bound);
            let is_whole = WholeVector { number: unskipped, holds: before };
            self.rows.whole.insert(found[at].id(), is_whole);
            // A warp that always has an end would make its numbers anew each time.
            if layout.num_warps() < WARPS {
                continue;
            }
            let end = RowEnd { first, head, elements: whole, whole: is_whole, bound, limit, extent, is_end };
            self.rows.ends_of_rows.insert(found[at].id(), end);
        }
        (found, below)
    }

    /// Whether a number of a row that was cut is below the bound that it was cut for; `None` for another comparison.
    pub(super) fn below_bound(&self, scalar: &Scalar, operands: &[Val], register: usize) -> Option<Val> {
        if scalar.op.algebra != ArithKind::Compare(BinaryOp::Lt) {
            return None;
        }
        let (bound, below) = self.rows.cuts.get(&scalar.args[0])?;
        below.get(register)?.filter(|_| self.scalar(*bound).id() == operands[1].id())
    }
}

impl Gpu<'_> {
    /// A vector of a row that was cut, if that is what a mask lets through.
    pub(super) fn whole_vector(&self, number: Val, mask: Option<Val>) -> Option<WholeVector> {
        let whole = self.rows.whole.get(&number.id())?;
        let mut parts = vec![];
        self.rows.parts(mask?, &mut parts);
        parts.iter().any(|part| part.id() == whole.holds.id()).then_some(*whole)
    }

    /// What elements of a vector share of their masks, where for the rest these say that its numbers are below the bound.
    pub(super) fn below(
        &self,
        b: &mut Builder,
        numbers: &[Val],
        masks: &[Option<Val>],
        bound: Val,
    ) -> Option<Option<Val>> {
        let mut shared = None;
        for (i, (number, mask)) in numbers.iter().zip(masks).enumerate() {
            let mut parts = vec![];
            self.rows.parts((*mask)?, &mut parts);
            let is_bound = |part: &Val| {
                self.rows
                    .ends
                    .get(&part.id())
                    .is_some_and(|&(less, greater)| less.id() == number.id() && greater.id() == bound.id())
            };
            let bounds = parts.iter().filter(|part| is_bound(part)).count();
            let rest: Vec<Val> = parts.into_iter().filter(|part| !is_bound(part)).collect();
            let ids: Vec<usize> = rest.iter().map(|part| part.id()).collect();
            if bounds == 0 || i > 0 && shared.as_ref().is_none_or(|(known, _)| *known != ids) {
                return None;
            }
            shared.get_or_insert((ids, rest));
        }
        let (_, rest) = shared?;
        Some(rest.into_iter().fold(None, |all, part| b.both(all, Some(part))))
    }

    /// How many elements of a vector take part, the first of them, where their masks say that alone: as a number up to as many as
    /// there are, where any does.
    pub(super) fn active_count(&self, b: &mut Builder, masks: &[Option<Val>]) -> Option<Val> {
        let parts: Option<Vec<Vec<Val>>> = masks
            .iter()
            .map(|mask| {
                let mut found = vec![];
                self.rows.parts((*mask)?, &mut found);
                Some(found)
            })
            .collect();
        let parts = parts?;
        let first = &parts[0];
        if parts.iter().any(|own| own.len() != first.len()) {
            return None;
        }
        let count = b.int(Ty::I32, masks.len() as i64);
        let mut found = None;
        for (at, part) in first.iter().enumerate() {
            if parts.iter().all(|own| own[at].id() == part.id()) {
                continue;
            }
            let &(less, greater) = self.rows.ends.get(&part.id())?;
            let room = |less: Val, greater: Val| {
                let ((x, p), (y, q)) = (self.base_and_constant(less), self.base_and_constant(greater));
                (x.id(), y.id(), q - p)
            };
            let (x, y, distance) = room(less, greater);
            for (i, own) in parts.iter().enumerate() {
                let &(less, greater) = self.rows.ends.get(&own[at].id())?;
                if room(less, greater) != (x, y, distance - i as i64) {
                    return None;
                }
            }
            // No less than 1 where the first takes part.
            let left = b.sub(greater, less);
            let left = b.op("llvm.intr.umin", &[left, count], Ty::I32);
            found = Some(found.map_or(left, |known| b.op("llvm.intr.umin", &[known, left], Ty::I32)));
        }
        Some(found.unwrap_or(count))
    }
}
