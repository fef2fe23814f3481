//! Emission of loops and branches. Control flow is uniform over the threads of a program, so barriers may stand inside.

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{For, If, While};

use crate::gpu::emit::async_copy::{CopyPlan, IterationSpace, StartedLoop};
use crate::gpu::emit::async_mma::AccumulatorLoop;
use crate::gpu::emit::dot::invariant_operand;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::smem_alloc::SmemRing;
use crate::gpu::emit::warp_specialize::PipelineState;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::Distributed;
use crate::mlir::builder::{BranchArm, LoopPart, Val};
use crate::mlir::shared::loop_variable;
use crate::mlir::types::Ty;

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
        values.iter().flat_map(|&value| vec![self.register_type(value); self.register_count(value)]).collect()
    }
}

/// The results, if this is a loop whose iterations overlap.
fn emit_overlapped(
    body: &For,
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    iterations: IterationSpace,
) -> Option<Vec<Val>> {
    let chain = gpu.chained_dots(body);
    let acc_loop =
        AccumulatorLoop::new(gpu.func, body).filter(|_| gpu.plan.pipeline().overlaps_iterations(body));
    if chain.is_none() && acc_loop.is_none() {
        return None;
    }
    let distributed = &gpu.plan.distributed;
    let (outer, overlaps) = (gpu.iteration, std::mem::replace(&mut gpu.iterations_overlap, true));
    gpu.membar.enter_loop(distributed, &body.body);
    let results = match (chain, acc_loop) {
        (Some(chain), _) => gpu.chained_loop(b, op, (body, &chain), iterations),
        (None, acc_loop) => gpu.async_mma_loop(b, (body, &acc_loop?), iterations),
    };
    gpu.membar.leave_loop(distributed, &body.body);
    (gpu.iteration, gpu.iterations_overlap) = (outer, overlaps);
    Some(results)
}

impl GpuEmit for For {
    fn ring(&self, distributed: &Distributed) -> Option<SmemRing> {
        CopyPlan::new(distributed, self).map(|copy_plan| copy_plan.ring(distributed))
    }

    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        invariant_operand::scratch(distributed, self)
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let started =
            gpu.hoisted_prologues.remove(&self.body.args[0]).unwrap_or_else(|| gpu.start_loop(b, self));
        let StartedLoop { iterations: IterationSpace { lower, step, trip_count }, ring_start } = &started;
        gpu.wait_before_loop(b, self);
        let plan = gpu.plan;
        let pipeline = plan.pipeline.as_ref().filter(|pipeline| pipeline.has_ring(self));
        if pipeline.is_some()
            && let Some(results) = emit_overlapped(self, gpu, b, op, started.iterations)
        {
            gpu.define_all(&op.results, &results);
            gpu.release_resident(b, self);
            return;
        }
        gpu.write_invariant_operands(b, self, op);
        let copy_plan = gpu.copy_plan(self);
        let mut inits = gpu.flatten(&self.inits);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let own = inits.len();
        inits.extend(ring_start);
        inits.extend(pipeline.iter().flat_map(|_| gpu.pipeline_state(self).flatten()));
        gpu.membar.enter_loop(&gpu.plan.distributed, &self.body);
        let outer = gpu.iteration;
        let results = b.for_range([zero, *trip_count, one], &inits, |b, index, carried| {
            gpu.scope(|gpu| {
                gpu.iteration = Some(index);
                let (carried, slots) = carried.split_at(own);
                let (slots, state) = slots.split_at(ring_start.len());
                if pipeline.is_some() {
                    gpu.set_pipeline_state(self, PipelineState::of(state));
                }
                let next = copy_plan
                    .as_ref()
                    .map(|copy_plan| gpu.begin_iteration(b, self, copy_plan, &started, index, slots))
                    .unwrap_or_default();
                let variable = loop_variable(b, index, *lower, *step);
                gpu.define(self.body.args[0], vec![variable]);
                gpu.define_all(&self.body.args[1..], carried);
                gpu.emit_iteration(b, self, copy_plan.as_ref(), started.iterations, index, slots);
                let state = pipeline.iter().flat_map(|pipeline| {
                    let state = gpu.pipeline_state(self);
                    gpu.next_pipeline_state(b, pipeline, self, state).flatten()
                });
                let state: Vec<Val> = state.collect();
                gpu.flatten(&self.body.yields).into_iter().chain(next).chain(state).collect()
            })
        });
        gpu.iteration = outer;
        if pipeline.is_some() {
            gpu.set_pipeline_state(self, PipelineState::of(&results[results.len() - 2..]));
        }
        gpu.release_resident(b, self);
        gpu.membar.leave_loop(&gpu.plan.distributed, &self.body);
        gpu.define_all(&op.results, &results);
    }
}

impl GpuEmit for If {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        if gpu.false_conditions.contains(&self.condition) {
            gpu.block(b, &self.otherwise);
            let registers = gpu.flatten(&self.otherwise.yields);
            return gpu.define_all(&op.results, &registers);
        }
        let condition = gpu.scalar(self.condition);
        let types = gpu.types(&op.results);
        let before = gpu.membar.snapshot();
        let mut after_then = vec![];
        let results = b.branch(condition, &types, |b, arm| {
            let own = match arm {
                BranchArm::Then => &self.then,
                BranchArm::Else => {
                    after_then = gpu.membar.snapshot();
                    gpu.membar.restore(before.clone());
                    &self.otherwise
                }
            };
            if gpu.iterations_overlap && !own.ops.is_empty() {
                gpu.rematerialize(b, |gpu, b| gpu.block(b, own));
            } else {
                gpu.scope(|gpu| gpu.block(b, own));
            }
            gpu.flatten(&own.yields)
        });
        gpu.membar.join(after_then);
        gpu.define_all(&op.results, &results);
    }
}

impl GpuEmit for While {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let inits = gpu.flatten(&self.inits);
        gpu.membar.enter_loop(&gpu.plan.distributed, &self.test);
        gpu.membar.enter_loop(&gpu.plan.distributed, &self.body);
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
        gpu.membar.leave_loop(&gpu.plan.distributed, &self.test);
        gpu.membar.leave_loop(&gpu.plan.distributed, &self.body);
        gpu.define_all(&op.results, &results);
    }
}
