//! FMA dots: each thread computes a tile of its own, for types that tensor cores do not have. Both operands are read
//! from shared memory, with contiguous elements along the axis that a thread reads in one step: from a smem operand
//! that the loop copied, if its rows are along that axis (`smem_operand`).
//!
//! A multiply-add reads three registers, and the register file has one port for each register parity in a clock. So
//! every FMA after the first of a row reuses the row's element, and reads an accumulator and a column's element of
//! other parity. Accumulators leave in vectors, of which the first register is even, and so do columns arrive, but
//! the two of each pair are swapped in shared memory.

use std::collections::HashMap;

use tile_ir::ops::DotOperand;
use tile_ir::support::dtype::DType;

use crate::gpu::emit::dot::StagedDot;
use crate::gpu::emit::dot::fragment::moved;
use crate::gpu::emit::reduce::load;
use crate::gpu::emit::schedule::SmemRowAddress;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::dot::{inner_axis, outer_axis};
use crate::gpu::layout::scratch_operands::held_together;
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::rounding;
use crate::mlir::types::Ty;

/// An operand in shared memory, as a thread reads its part.
struct SmemRows {
    dtype: DType,
    pointer: Val,
    strides: Vec<u32>,
    inner: usize,
    outer: usize,
    /// This thread's rows across K.
    lines: Vec<Coord>,
    /// Elements that one instruction reads, along the other axis.
    run: usize,
    /// Whether the two elements of each pair are swapped.
    swapped: bool,
}

/// K steps that are read together.
const STEPS: u32 = 4;

/// Multiply-adds of a thread without a branch: the assembler reads ahead as far as that.
const UNROLLED: usize = 1024;

impl SmemRows {
    /// The elements of every row at each of `steps` K steps from the pointer on.
    fn read(&self, b: &mut Builder, pointer: Val, steps: u32) -> Vec<HashMap<Coord, Val>> {
        let mut found = vec![HashMap::new(); steps as usize];
        let first = |line: &&Coord| (line.get(self.outer) as usize).is_multiple_of(self.run);
        for (step, found) in found.iter_mut().enumerate() {
            for &line in self.lines.iter().filter(first) {
                let line_at = line.set(self.inner, step as u32);
                let place = moved(b, pointer, &self.strides, self.dtype, line_at);
                for (i, value) in load(b, place, self.dtype, self.run).into_iter().enumerate() {
                    let along = i as u32 ^ u32::from(self.swapped);
                    found.insert(line.plus(Coord::along(self.outer, along)), value);
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

/// The registers of a result with their coordinates, row by row, every other row from its end: any two consecutive
/// FMAs share an element of one operand.
fn back_and_forth(layout: &Layout, columns: usize) -> Vec<(usize, Coord)> {
    let mut registers: Vec<(usize, Coord)> =
        (0..layout.register_count()).map(|register| (register, layout.register(register))).collect();
    let row = |coord: Coord| coord.set(columns, 0);
    registers.sort_by_key(|&(_, coord)| (row(coord), coord.get(columns)));
    for (number, row) in registers.chunk_by_mut(|a, b| row(a.1) == row(b.1)).enumerate() {
        if number % 2 == 1 {
            row.reverse();
        }
    }
    registers
}

impl StagedDot<'_> {
    /// An operand, as a thread reads its part.
    fn rows(&self, gpu: &mut Gpu, b: &mut Builder, side: DotOperand) -> SmemRows {
        let value = self.dot.operand(side);
        let layout = gpu.layout(self.result).clone();
        let ty = gpu.func.ty(value).clone();
        let rank = ty.shape.rank();
        let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
        let mut lines: Vec<Coord> =
            (0..layout.register_count()).map(|register| layout.register(register).set(inner, 0)).collect();
        lines.sort();
        lines.dedup();
        let (pointer, strides, swapped) =
            match &self.tiles[side as usize] {
                Some(written) => {
                    let zero = b.int(Ty::I32, 0);
                    let pointer = written.pointer(b, |b, axis| {
                        if axis == inner { zero } else { gpu.thread_coord(b, &layout, axis) }
                    });
                    (pointer, written.tile.strides.clone(), written.tile.swapped)
                }
                None => {
                    let lines = gpu.smem_rows(b, value, &layout, inner);
                    let SmemRowAddress { pointer, strides } = lines.expect("what was not written was copied");
                    (pointer, strides.iter().map(|stride| stride / ty.dtype.bytes()).collect(), false)
                }
            };
        let run = held_together(&layout, outer).min(16 / ty.dtype.bytes() as usize);
        SmemRows { dtype: ty.dtype, pointer, strides, inner, outer, lines, run, swapped }
    }

    /// The accumulators of the result, each thread by itself.
    pub(super) fn by_thread(self, gpu: &mut Gpu, b: &mut Builder) -> Vec<Val> {
        let layout = gpu.layout(self.result).clone();
        let [left, right] = DotOperand::ALL.map(|side| self.rows(gpu, b, side));
        let StagedDot { dot, accs, .. } = self;
        let order = back_and_forth(&layout, left.inner);
        let inner = dot.inner(gpu.func);
        let steps = 1 << inner.trailing_zeros().min(STEPS.trailing_zeros());
        let multiply = |b: &mut Builder, pointers: [Val; 2], mut accs: Vec<Val>| {
            let (rows, columns) = (left.read(b, pointers[0], steps), right.read(b, pointers[1], steps));
            for (rows, columns) in rows.iter().zip(&columns) {
                for &(register, coord) in &order {
                    let (row, column) =
                        (rows[&coord.set(left.inner, 0)], columns[&coord.set(right.inner, 0)]);
                    accs[register] = rounding::multiply_add(b, [row, column, accs[register]], left.dtype);
                }
            }
            accs
        };
        // As many steps of an iteration as there is room for.
        let unrolled = (UNROLLED / accs.len()).next_power_of_two() as u32;
        let together = steps.max(1 << inner.trailing_zeros().min(unrolled.trailing_zeros()));
        let part = |b: &mut Builder, pointers: [Val; 2], step: u32, accs: Vec<Val>| {
            let at = |lines: &SmemRows, from: Val, b: &mut Builder| {
                b.offset_bytes(from, (lines.pitch() * step) as i32)
            };
            let pointers = [at(&left, pointers[0], b), at(&right, pointers[1], b)];
            multiply(b, pointers, accs)
        };
        let parts = || (0..together).step_by(steps as usize);
        let mut interleaved = gpu.take_copies(dot.interleaved);
        if together == inner {
            let all = parts().len();
            return parts().enumerate().fold(accs, |accs, (number, step)| {
                let accs = part(b, [left.pointer, right.pointer], step, accs);
                interleaved.issue(b, number + 1, all);
                accs
            });
        }
        interleaved.issue(b, 1, 1);
        let bounds = [0, i64::from(inner / together), 1].map(|bound| b.int(Ty::I32, bound));
        b.for_range(bounds, &accs, |b, index, accs| {
            let pointers = [&left, &right].map(|lines| {
                let pitch = b.int(Ty::I32, i64::from(lines.pitch() * together));
                let bytes = b.mul_nsw(index, pitch);
                b.offset(lines.pointer, bytes, 1)
            });
            parts().fold(accs.to_vec(), |accs, step| part(b, pointers, step, accs))
        })
    }
}
