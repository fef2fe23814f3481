//! Factors on their way to the caches: while a turn of a loop multiplies, the elements that its next turn lays out are
//! asked for, some lines of memory with each block of sums.

use std::collections::HashSet;

use crate::cpu::emit::emitter;
use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, Host, Ty, Val};
use crate::ir::{Block, Shape, Value, backward_slice};
use crate::ops::{Effect, MemAccess};

/// Bytes that come together.
const LINE: u32 = 64;
/// Lines that a processor waits for at once.
const MOST: u32 = 16;

/// What the next turn reads of a factor.
pub(super) struct Prefetch {
    place: MemAccess,
    /// The base of its offsets in that turn.
    base: Val,
    shape: Shape,
    /// The axis along which neighbours are neighbours in memory.
    axis: usize,
    bytes: u32,
}

impl Prefetch {
    /// Lines of memory along the axis.
    fn along(&self) -> u32 {
        (self.shape[self.axis] * self.bytes).div_ceil(LINE)
    }

    /// Lines of memory in all.
    fn lines(&self) -> u32 {
        let rows = self.shape.elements() as u32 / self.shape[self.axis];
        rows * self.along()
    }

    /// How each of so many blocks asks for its share: so many runs of so many lines that follow each other.
    fn runs(&self, blocks: u32) -> [u32; 2] {
        let share = self.lines().div_ceil(blocks).min(MOST);
        let along = self.along();
        let run = if along.is_power_of_two() { along.min(share.next_power_of_two()) } else { 1 };
        [share.div_ceil(run), run]
    }
}

impl<'a> Host<'a> {
    /// What the loop around reads of a factor in its next turn, if that is known and lies in lines of memory.
    pub(super) fn ahead(&mut self, b: &mut Builder, factor: Value) -> Option<Prefetch> {
        let place = self.read_by(factor)?;
        let &(variable, next) = self.turns.last()?;
        let body = self.loop_over(variable)?;
        let base = self.in_next_turn(b, (body, variable, next), place.base?)?;
        let shape = self.func.ty(place.offset).shape.clone();
        let bytes = self.func.slice(place.param).0.bytes();
        let info = self.plan.axes.get(self.func, place.offset);
        let axis = (0..shape.rank()).max_by_key(|&axis| info.axes[axis].contiguity)?;
        let in_lines = info.axes[axis].contiguity.min(shape[axis].into()) * u64::from(bytes) >= LINE.into();
        in_lines.then_some(Prefetch { place, base, shape, axis, bytes })
    }

    /// Where the elements of a value are read, if all that is made of them is moved or converted.
    fn read_by(&self, value: Value) -> Option<MemAccess> {
        let operation = self.definitions.get(&value)?.kind.operation();
        if let Some(place) = operation.place() {
            return Some(*place);
        }
        let operands = operation.operands();
        let mut tiles = operands.iter().filter(|&&operand| !self.func.ty(operand).is_scalar());
        let (&tile, None) = (tiles.next()?, tiles.next()) else { return None };
        self.read_by(tile)
    }

    fn loop_over(&self, variable: Value) -> Option<&'a Block> {
        let mut found = None;
        self.func.body.walk(&mut |op| {
            let blocks = op.kind.operation().blocks();
            found = found.or(blocks.into_iter().find(|block| block.args.first() == Some(&variable)));
        });
        found
    }

    /// What a scalar comes to in the next turn, by arithmetic of scalars.
    fn in_next_turn(
        &mut self,
        b: &mut Builder,
        (body, variable, next): (&Block, Value, Val),
        value: Value,
    ) -> Option<Val> {
        let needed = backward_slice(value, &self.definitions);
        if body.args[1..].iter().any(|carried| needed.contains(carried)) {
            return None;
        }
        let now = self.scalars.clone();
        self.define(variable, next);
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
        let then = moved.contains(&value).then(|| self.scalar(value));
        self.scalars = now;
        then
    }

    /// Asks for the share of a block, which is one of so many; for the last lines where there are not as many.
    pub(super) fn fetch(&mut self, b: &mut Builder, ahead: &Prefetch, (block, blocks): (Val, u32)) {
        let Prefetch { place, base, shape, axis, bytes } = ahead;
        let [runs, run] = ahead.runs(blocks);
        let number = |b: &mut Builder, number: u32| b.int(Ty::I64, i64::from(number));
        let (count, last, length) = (number(b, runs), number(b, ahead.lines() / run - 1), number(b, run));
        let (along, elements) = (number(b, ahead.along()), number(b, LINE / bytes));
        let first = b.mul(block, count);
        for i in 0..runs {
            let i = number(b, i);
            let own = b.add(first, i);
            let own = b.op("llvm.intr.umin", &[own, last], Ty::I64);
            let line = b.mul(own, length);
            let (mut row, line) = (b.udiv(line, along), b.urem(line, along));
            let mut coords = vec![b.mul(line, elements); shape.rank()];
            for other in (0..shape.rank()).rev().filter(|other| other != axis) {
                let extent = number(b, shape[other]);
                coords[other] = b.urem(row, extent);
                row = b.udiv(row, extent);
            }
            let index = self.wide_offset(b, place.offset, &Point { coords, axis: *axis, lanes: 1 });
            let index = b.add(index, *base);
            let pointer = b.offset(self.slice(place.param).pointer, index, *bytes);
            for line in 0..run {
                let pointer = b.offset_bytes(pointer, (line * LINE) as i32);
                let kind = [("rw", "0 : i32"), ("hint", "2 : i32"), ("cache", "1 : i32")];
                b.effect_with("llvm.intr.prefetch", &[pointer], &kind);
            }
        }
    }
}
