//! Emission of loops and branches. Control flow is uniform over the threads of a program, so barriers may stand inside.

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu};
use crate::mlir::builder::{BranchArm, LoopPart, Val};
use crate::mlir::shared::{LoopRange, loop_variable};
use crate::mlir::types::Ty;
use tile_ir::ir::{Op, Storage, Value};
use tile_ir::ops::{For, If, While};

impl Gpu<'_> {
    /// The registers of several values, one after the other.
    pub(super) fn flatten(&self, values: &[Value]) -> Vec<Val> {
        values.iter().flat_map(|&value| self.registers(value).to_vec()).collect()
    }

    pub(super) fn define_all(&mut self, values: &[Value], mut registers: &[Val]) {
        for &value in values {
            let (own, rest) = registers.split_at(self.register_count(value));
            self.define(value, own.to_vec());
            registers = rest;
        }
    }

    pub(super) fn types(&self, values: &[Value]) -> Vec<Ty> {
        let types = |&value: &Value| match self.func.ty(value).storage {
            Storage::Registers => vec![self.register_type(value); self.register_count(value)],
            Storage::Words => self.word_types(value),
            Storage::Pipe { .. } => vec![Ty::I32; 2],
            Storage::Slot { addresses } => vec![Ty::I32; addresses as usize],
            Storage::Smem { .. } | Storage::Mbarrier { .. } | Storage::Copies => vec![],
        };
        values.iter().flat_map(types).collect()
    }
}

impl GpuEmit for For {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let ends = [self.low, self.high, self.step].map(|value| gpu.scalar(value));
        let (trip_count, step) = LoopRange::of(self, ends).trip_count(b);
        let inits = gpu.flatten(&self.inits);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let results = b.for_range([zero, trip_count, one], &inits, |b, index, carried| {
            gpu.scope(|gpu| {
                gpu.iterations.push((self.body.args[0], index));
                let variable = loop_variable(b, index, ends[0], step);
                gpu.define(self.body.args[0], vec![variable]);
                gpu.define_all(&self.body.args[1..], carried);
                gpu.block(b, &self.body);
                gpu.flatten(&self.body.yields)
            })
        });
        gpu.iterations.pop();
        gpu.define_all(&op.results, &results);
    }
}

impl GpuEmit for If {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let condition = gpu.scalar(self.condition);
        let types = gpu.types(&op.results);
        // What a branch computes from the thread's index takes registers from the dots in flight around it.
        let overlaps = gpu.in_flight.iterations_overlap;
        let rematerializes = overlaps && !self.overlapped;
        gpu.in_flight.iterations_overlap |= self.overlapped;
        let results = b.branch(condition, &types, |b, arm| {
            let own = match arm {
                BranchArm::Then => &self.then,
                BranchArm::Else => &self.otherwise,
            };
            if rematerializes && !own.ops.is_empty() {
                gpu.rematerialize(b, |gpu, b| gpu.block(b, own));
            } else {
                gpu.scope(|gpu| gpu.block(b, own));
            }
            gpu.flatten(&own.yields)
        });
        gpu.in_flight.iterations_overlap = overlaps;
        gpu.define_all(&op.results, &results);
    }
}

impl GpuEmit for While {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let inits = gpu.flatten(&self.inits);
        let results = b.while_loop(&inits, |b, part, carried| {
            gpu.scope(|gpu| match part {
                LoopPart::Test => {
                    gpu.define_all(&self.test.args, carried);
                    gpu.block(b, &self.test);
                    gpu.flatten(&self.test.yields)
                }
                LoopPart::Body => {
                    gpu.define_all(&self.body.args, carried);
                    gpu.block(b, &self.body);
                    gpu.flatten(&self.body.yields)
                }
            })
        });
        gpu.define_all(&op.results, &results);
    }
}
