//! Products by single threads, each of a block of its own: what tensor cores do not take. Both factors are read from
//! shared memory, a few steps along the axis that is summed over at a time.

use std::collections::HashMap;

use super::super::reduce::load;
use super::{Builder, Factors, Gpu, Staged, inner_axis, moved, outer_axis};
use crate::dtype::DType;
use crate::layout::dot::{SIDES, Side};
use crate::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::rounding;
use crate::mlir::types::Ty;
use crate::ops::Dot;
use crate::tile::Op;

/// A factor in shared memory, as a thread reads the part that it multiplies.
struct Lines {
    dtype: DType,
    pointer: Val,
    strides: Vec<u32>,
    inner: usize,
    outer: usize,
    /// This thread's lines across the axis that is summed over.
    lines: Vec<Coord>,
    /// Elements that one instruction reads, and along which axis.
    run: usize,
    fast: usize,
}

/// Steps along the axis that is summed over that are read together.
const STEPS: u32 = 4;

impl Lines {
    /// The elements of every line at each of `steps` steps from the pointer on.
    fn read(&self, b: &mut Builder, pointer: Val, steps: u32) -> Vec<HashMap<Coord, Val>> {
        let mut found = vec![HashMap::new(); steps as usize];
        let at = |b: &mut Builder, line: Coord, step: u32| {
            moved(b, pointer, &self.strides, self.dtype, line.set(self.inner, step))
        };
        if self.fast == self.inner {
            for &line in &self.lines {
                let place = at(b, line, 0);
                for (step, value) in load(b, place, self.dtype, steps as usize).into_iter().enumerate() {
                    found[step].insert(line, value);
                }
            }
            return found;
        }
        for (step, found) in found.iter_mut().enumerate() {
            for &line in
                self.lines.iter().filter(|line| (line.get(self.outer) as usize).is_multiple_of(self.run))
            {
                let place = at(b, line, step as u32);
                for (i, value) in load(b, place, self.dtype, self.run).into_iter().enumerate() {
                    found.insert(line.plus(Coord::along(self.outer, i as u32)), value);
                }
            }
        }
        found
    }

    /// Bytes from one step to the next.
    fn pitch(&self) -> u32 {
        self.strides[self.inner] * self.dtype.bytes()
    }
}

/// How many neighbours along an axis a thread holds, whatever registers they are in.
fn held_together(layout: &Layout, axis: usize) -> usize {
    let holds = |bit: &u32| layout.register_bases().contains(&Coord::along(axis, 1 << bit));
    1 << (0..).take_while(holds).count()
}

impl Dot {
    fn lines(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        side: Side,
        (op, staged, base): (&Op, &Staged, Val),
    ) -> Lines {
        let layout = gpu.layout(op.results[0]).clone();
        let ty = gpu.func.ty(self.factor(side)).clone();
        let rank = ty.shape.rank();
        let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
        let mut lines: Vec<Coord> =
            (0..layout.register_count()).map(|register| layout.register(register).set(inner, 0)).collect();
        lines.sort();
        lines.dedup();
        let zero = b.int(Ty::I32, 0);
        let pointer = staged.staging.pointer(b, base, ty.dtype, |b, axis| {
            if axis == inner { zero } else { gpu.thread_coord(b, &layout, axis) }
        });
        let run = held_together(&layout, outer).min(16 / ty.dtype.bytes() as usize);
        let strides = staged.staging.strides.clone();
        Lines { dtype: ty.dtype, pointer, strides, inner, outer, lines, run, fast: staged.staging.fast }
    }

    pub(super) fn by_thread(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        (factors, bases): (&Factors, [Option<Val>; 2]),
        sums: Vec<Val>,
    ) -> Vec<Val> {
        let layout = gpu.layout(op.results[0]).clone();
        let [left, right] = SIDES.map(|side| {
            let staged = factors.staged[side as usize].as_ref().expect("both factors are in shared memory");
            let base = bases[side as usize].expect("both factors are in shared memory");
            self.lines(gpu, b, side, (op, staged, base))
        });
        let steps = 1 << self.inner(gpu.func).trailing_zeros().min(STEPS.trailing_zeros());
        let turns = self.inner(gpu.func) / steps;
        let turn = |b: &mut Builder, pointers: [Val; 2], mut sums: Vec<Val>| {
            let (rows, columns) = (left.read(b, pointers[0], steps), right.read(b, pointers[1], steps));
            for (rows, columns) in rows.iter().zip(&columns) {
                for (register, sum) in sums.iter_mut().enumerate() {
                    let coord = layout.register(register);
                    let (row, column) =
                        (rows[&coord.set(left.inner, 0)], columns[&coord.set(right.inner, 0)]);
                    *sum = rounding::multiply_add(b, [row, column, *sum], left.dtype);
                }
            }
            sums
        };
        if turns == 1 {
            return turn(b, [left.pointer, right.pointer], sums);
        }
        let bounds = [0, i64::from(turns), 1].map(|bound| b.int(Ty::I32, bound));
        b.for_range(bounds, &sums, |b, index, sums| {
            let pointers = [&left, &right].map(|lines| {
                let pitch = b.int(Ty::I32, i64::from(lines.pitch() * steps));
                let bytes = b.mul_nsw(index, pitch);
                b.offset(lines.pointer, bytes, 1)
            });
            turn(b, pointers, sums.to_vec())
        })
    }
}
