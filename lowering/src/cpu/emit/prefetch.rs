//! Prefetching of operands: while an iteration of a loop computes a dot, the elements that its next iteration packs are
//! prefetched, some cache lines with each block of accumulators.

use std::collections::HashSet;

use tile_ir::ir::{Block, Shape, Value, backward_slice};
use tile_ir::ops::{Effect, MemAccess};

use crate::cpu::emit::emitter;
use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, Host, Ty, Val};

/// Bytes of a cache line.
const LINE: u32 = 64;
/// Cache lines that a CPU has in flight at once.
const MAX_LINES: u32 = 16;

/// What the next iteration loads of an operand.
pub(super) struct Prefetch {
    access: MemAccess,
    /// The base of its offsets in that iteration.
    base: Val,
    shape: Shape,
    /// The axis along which it is contiguous in memory.
    axis: usize,
    bytes: u32,
}

/// The next iteration of a loop, or the last one again.
///
/// Only an iteration that runs may be computed ahead: the address of an operand may depend on scalars that are loaded, and what
/// the body of a loop loads is inside its slice in those alone.
struct NextIteration<'f> {
    body: &'f Block,
    /// The induction variable.
    variable: Value,
    /// Its value in that iteration.
    index: Val,
}

impl Prefetch {
    /// Cache lines along the axis.
    fn along(&self) -> u32 {
        (self.shape[self.axis] * self.bytes).div_ceil(LINE)
    }

    /// Cache lines in all.
    fn lines(&self) -> u32 {
        let rows = self.shape.elements() as u32 / self.shape[self.axis];
        rows * self.along()
    }

    /// The share of each of so many blocks: so many runs of so many contiguous cache lines.
    fn runs(&self, blocks: u32) -> [u32; 2] {
        let share = self.lines().div_ceil(blocks).min(MAX_LINES);
        let along = self.along();
        let run = if along.is_power_of_two() { along.min(share.next_power_of_two()) } else { 1 };
        [share.div_ceil(run), run]
    }
}

impl<'a> Host<'a> {
    /// What the enclosing loop loads of an operand in its next iteration, if that is known and fills cache lines.
    pub(super) fn plan_prefetch(&mut self, b: &mut Builder, operand: Value) -> Option<Prefetch> {
        let access = self.loaded_by(operand)?;
        let &(variable, index) = self.induction_variables.last()?;
        let next = NextIteration { body: self.loop_over(variable)?, variable, index };
        let base = self.in_next_iteration(b, &next, access.base?)?;
        let shape = self.func.ty(access.offset).shape.clone();
        let bytes = self.func.slice(access.param).0.bytes();
        let info = self.plan.axes.get(self.func, access.offset);
        let axis = (0..shape.rank()).max_by_key(|&axis| info.axes[axis].contiguity)?;
        let fills_lines =
            info.axes[axis].contiguity.min(shape[axis].into()) * u64::from(bytes) >= LINE.into();
        fills_lines.then_some(Prefetch { access, base, shape, axis, bytes })
    }

    /// The access that loads the elements of a value, if they are only moved or converted since.
    fn loaded_by(&self, value: Value) -> Option<MemAccess> {
        let operation = self.definitions.get(&value)?.kind.operation();
        if let Some(access) = operation.access() {
            return Some(*access);
        }
        let operands = operation.operands();
        let mut tiles = operands.iter().filter(|&&operand| !self.func.ty(operand).is_scalar());
        let (&tile, None) = (tiles.next()?, tiles.next()) else { return None };
        self.loaded_by(tile)
    }

    fn loop_over(&self, variable: Value) -> Option<&'a Block> {
        let mut found = None;
        self.func.body.walk(&mut |op| {
            let blocks = op.kind.operation().blocks();
            found = found.or(blocks.into_iter().find(|block| block.args.first() == Some(&variable)));
        });
        found
    }

    /// The value of a scalar in the next iteration, by arithmetic of scalars and by loads that the body does in each iteration.
    fn in_next_iteration(&mut self, b: &mut Builder, next: &NextIteration, value: Value) -> Option<Val> {
        let &NextIteration { body, variable, index } = next;
        let needed = backward_slice(value, &self.definitions);
        if body.args[1..].iter().any(|carried| needed.contains(carried)) {
            return None;
        }
        let now = self.scalars.clone();
        self.define(variable, index);
        let mut moved = HashSet::from([variable]);
        for op in body.ops.iter().filter(|op| op.results.iter().any(|result| needed.contains(result))) {
            let operation = op.kind.operation();
            let operands = operation.operands();
            let values = operands.iter().chain(&op.results);
            let scalars = values.into_iter().all(|&value| self.func.ty(value).is_scalar());
            if operands.iter().any(|operand| moved.contains(operand)) {
                if !scalars || operation.effect() != Effect::Pure || !operation.blocks().is_empty() {
                    moved.clear();
                    break;
                }
                emitter(&op.kind).run(self, b, op);
                moved.extend(&op.results);
            }
        }
        let result = moved.contains(&value).then(|| self.scalar(value));
        self.scalars = now;
        result
    }

    /// Prefetches the share of a block, which is one of so many; the last lines again where there are not as many.
    pub(super) fn prefetch(&mut self, b: &mut Builder, prefetch: &Prefetch, block: Val, blocks: u32) {
        let Prefetch { access, base, shape, axis, bytes } = prefetch;
        let [runs, run] = prefetch.runs(blocks);
        let constant = |b: &mut Builder, value: u32| b.int(Ty::I64, i64::from(value));
        let (count, last, length) =
            (constant(b, runs), constant(b, prefetch.lines() / run - 1), constant(b, run));
        let (along, elements) = (constant(b, prefetch.along()), constant(b, LINE / bytes));
        let first = b.mul(block, count);
        for i in 0..runs {
            let i = constant(b, i);
            let own = b.add(first, i);
            let own = b.op("llvm.intr.umin", &[own, last], Ty::I64);
            let line = b.mul(own, length);
            let (mut row, line) = (b.udiv(line, along), b.urem(line, along));
            let mut coords = vec![b.mul(line, elements); shape.rank()];
            for other in (0..shape.rank()).rev().filter(|other| other != axis) {
                let extent = constant(b, shape[other]);
                coords[other] = b.urem(row, extent);
                row = b.udiv(row, extent);
            }
            let index = self.wide_offset(b, access.offset, &Point { coords, axis: *axis, lanes: 1 });
            let index = b.add(index, *base);
            let pointer = b.offset(self.slice(access.param).pointer, index, *bytes);
            for line in 0..run {
                let pointer = b.offset_bytes(pointer, (line * LINE) as i32);
                let kind = [("rw", "0 : i32"), ("hint", "2 : i32"), ("cache", "1 : i32")];
                b.effect_with("llvm.intr.prefetch", &[pointer], &kind);
            }
        }
    }
}
