//! Asynchronous dots: in a loop whose only dot adds to a carried accumulator, the dot of an iteration runs while that
//! of the next one is issued.
//!
//! The accumulator is in use from the first iteration to the last. An iteration's smem operands are released when the
//! next dot was issued and all but that one have completed.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{For, Kind, is_zero};

use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::dot::wgmma;
use crate::gpu::emit::dot::wgmma_statement::AfterIssue;
use crate::gpu::emit::warp_specialize::PipelineState;
use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::shared::loop_variable;
use crate::mlir::types::Ty;

/// The index of the dot in the body of such a loop, and of the accumulator among the carried values.
pub(super) struct AccumulatorLoop {
    dot_index: usize,
    acc_index: usize,
}

impl AccumulatorLoop {
    /// Only with an accumulator that begins at 0: any other value would have to be in its registers before the first
    /// dot.
    pub fn new(func: &Func, body: &For) -> Option<AccumulatorLoop> {
        let ops = &body.body.ops;
        let is_dot = |op: &Op| matches!(op.kind, Kind::WarpGroupDot(_));
        let dot_index = ops.iter().position(is_dot)?;
        let Kind::WarpGroupDot(dot) = &ops[dot_index].kind else { return None };
        let result = ops[dot_index].results[0];
        let acc_index = body.body.yields.iter().position(|&yielded| yielded == result)?;
        let acc = body.body.args[1 + acc_index];
        let mut dots = 0;
        body.body.walk(&mut |op| dots += usize::from(is_dot(op)));
        // The dot is the only use of the accumulator, and the yield that of its result.
        let is_only_use = dot.acc == Some(acc) && body.body.uses(acc) == 1 && body.body.uses(result) == 1;
        let is_plain =
            !dot.promotes() && dot.tile().is_none() && dot.a_in_fragments(func).is_none() && dots == 1;
        let fits =
            is_only_use && is_plain && is_zero(|value| func.body.definition(value), body.inits[acc_index]);
        fits.then_some(AccumulatorLoop { dot_index, acc_index })
    }
}

impl Gpu<'_> {
    /// Emits such a loop, and returns the registers of its results.
    pub(super) fn async_mma_loop(
        &mut self,
        b: &mut Builder,
        (body, acc_loop): (&For, &AccumulatorLoop),
        IterationSpace { lower, step, trip_count }: IterationSpace,
    ) -> Vec<Val> {
        let op = &body.body.ops[acc_loop.dot_index];
        let Kind::WarpGroupDot(dot) = &op.kind else { unreachable!("the loop has a dot") };
        let pipeline = self.plan.pipeline();
        let start = self.pipeline_state(body);
        let mut inits = self.flatten(&body.inits);
        let carried_count = inits.len();
        let range = self.register_range(&body.body.args[1..], acc_loop.acc_index);
        let undefined = b.poison(inits[range.start].ty);
        inits[range.clone()].fill(undefined);
        inits.extend(start.flatten().into_iter().chain(start.flatten()));
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let ends = b.for_range([zero, trip_count, one], &inits, |b, index, carried| {
            self.scope(|gpu| {
                gpu.iteration = Some(index);
                let (carried, states) = carried.split_at(carried_count);
                let [previous, current] = [&states[..2], &states[2..]].map(PipelineState::of);
                gpu.set_pipeline_state(body, current);
                let variable = loop_variable(b, index, lower, step);
                gpu.define(body.body.args[0], vec![variable]);
                gpu.define_all(&body.body.args[1..], carried);
                for (i, op) in body.body.ops.iter().enumerate() {
                    if i != acc_loop.dot_index {
                        gpu.op(b, op);
                    }
                }
                let accumulates = b.icmp(IntPredicate::Sgt, index, zero);
                let mut issued = wgmma::issue(dot, gpu, b, op, (Some(accumulates), AfterIssue::Continue));
                wgmma::wait_group(b, &mut issued, 1, &[]);
                wgmma::define(gpu, op, &issued);
                gpu.set_pipeline_state(body, previous);
                b.if_then(accumulates, |b| gpu.consumer_release(b, dot, op));
                let next = gpu.next_pipeline_state(b, pipeline, body, current);
                let states = current.flatten().into_iter().chain(next.flatten());
                gpu.flatten(&body.body.yields).into_iter().chain(states).collect()
            })
        });
        let (results, states) = ends.split_at(carried_count);
        let [last, next] = [&states[..2], &states[2..]].map(PipelineState::of);
        let mut results = results.to_vec();
        let ran = (!self.runs(body)).then(|| b.icmp(IntPredicate::Sgt, trip_count, zero));
        let accs = wgmma::wait_all(b, &results[range.clone()], ran);
        results.splice(range, accs);
        self.set_pipeline_state(body, last);
        b.guarded(ran, |b| self.consumer_release(b, dot, op));
        self.set_pipeline_state(body, next);
        results
    }

    /// Whether a loop is known to run at least once.
    pub(super) fn runs(&self, body: &For) -> bool {
        let (first, end) = (self.info(body.low).range.1, self.info(body.high).range.0);
        if body.closed { first <= end } else { first < end }
    }

    /// The range of the registers of one of several values among those of all.
    fn register_range(&self, values: &[Value], which: usize) -> std::ops::Range<usize> {
        let start: usize = values[..which].iter().map(|&value| self.register_count(value)).sum();
        start..start + self.register_count(values[which])
    }
}
