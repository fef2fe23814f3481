//! Loops by the index of the iteration.

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu};
use crate::mlir::builder::Val;
use crate::mlir::shared::{LoopRange, at_least_one, loop_variable};
use crate::mlir::types::{Elem, Ty};
use tile_ir::ir::Op;
use tile_ir::ops::{Induction, IterationBound, Loop, TripCount};

impl GpuEmit for TripCount {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let [low, high, step] = [self.low, self.high, self.step].map(|value| gpu.scalar(value));
        let range = LoopRange { low, high, step, closed: self.closed, runs: self.runs };
        let (count, _) = range.trip_count(b);
        gpu.define(op.results[0], vec![count]);
    }
}

impl GpuEmit for Induction {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let [index, low, step] = [self.index, self.low, self.step].map(|value| gpu.scalar(value));
        let step = at_least_one(b, step);
        let variable = loop_variable(b, index, low, step);
        gpu.define(op.results[0], vec![variable]);
    }
}

impl GpuEmit for Loop {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let inits = gpu.flatten(&self.inits);
        let ends = [self.first, self.end].map(|end| {
            let end = gpu.scalar(end);
            if self.narrow { b.trunc(end, Elem::I32) } else { end }
        });
        let one = b.int(ends[0].ty, 1);
        let overlaps = gpu.in_flight.iterations_overlap;
        gpu.in_flight.iterations_overlap |= self.overlapped;
        let results = b.for_range([ends[0], ends[1], one], &inits, |b, index, carried| {
            gpu.scope(|gpu| {
                let index = if self.narrow { b.zext(index, Elem::I64) } else { index };
                gpu.iterations.push((self.body.args[0], index));
                gpu.define(self.body.args[0], vec![index]);
                gpu.define_all(&self.body.args[1..], carried);
                gpu.block(b, &self.body);
                gpu.flatten(&self.body.yields)
            })
        });
        gpu.iterations.pop();
        gpu.in_flight.iterations_overlap = overlaps;
        gpu.define_all(&op.results, &results);
    }
}

impl GpuEmit for IterationBound {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let [low, step] = [self.low, self.step].map(|value| gpu.scalar(value));
        let step = at_least_one(b, step);
        let (low, step) = (to_i64(b, low), to_i64(b, step));
        // The first value of the variable for which it holds.
        let mut bound = b.int(Ty::I64, i64::from(self.strict));
        for &(plus, term) in &self.terms {
            let term = gpu.scalar(term);
            let term = to_i64(b, term);
            bound = if plus { b.sub(bound, term) } else { b.add(bound, term) };
        }
        let distance = b.sub(bound, low);
        let one = b.int(Ty::I64, 1);
        let zero = b.int(Ty::I64, 0);
        let distance = b.op("llvm.intr.smax", &[distance, zero], Ty::I64);
        let up = b.sub(step, one);
        let distance = b.add(distance, up);
        let iteration = b.udiv(distance, step);
        gpu.define(op.results[0], vec![iteration]);
    }
}

/// A signed integer in 64 bits.
fn to_i64(b: &mut Builder, value: Val) -> Val {
    if value.ty.elem == Elem::I64 { value } else { b.sext(value, Elem::I64) }
}
