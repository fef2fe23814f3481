//! Loops of one product that adds to what they carry: the product of a turn is under way while that of the next one begins.
//!
//! The accumulator is in use from the first turn to the last. That a turn's blocks are no longer needed is known when the
//! next turn's product was started and waited on all but that.

use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::dot::wgmma::AfterIssue;
use crate::gpu::emit::warp_specialize::PipelineState;
use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::ir::{Func, Op, Value};
use crate::mlir::builder::Val;
use crate::mlir::shared::loop_variable;
use crate::mlir::types::Ty;
use crate::ops::{For, Kind, WarpGroupDot, is_zero};

/// A loop of this kind: the place of its product in the body, and of the sum among the carried values.
pub(super) struct AccumulatorLoop {
    product: usize,
    carried: usize,
}

impl AccumulatorLoop {
    /// Only a sum that begins at 0: anything else would have to be in its registers before the first product.
    pub fn new(func: &Func, body: &For) -> Option<AccumulatorLoop> {
        let ops = &body.body.ops;
        let is_product = |op: &Op| matches!(op.kind, Kind::WarpGroupDot(_));
        let product = ops.iter().position(is_product)?;
        let Kind::WarpGroupDot(dot) = &ops[product].kind else { return None };
        let result = ops[product].results[0];
        let carried = body.body.yields.iter().position(|&yielded| yielded == result)?;
        let sum = body.body.args[1 + carried];
        let mut products = 0;
        body.body.walk(&mut |op| products += usize::from(is_product(op)));
        // The product takes the sum, and the loop's end its result.
        let alone = dot.acc == Some(sum) && body.body.uses(sum) == 1 && body.body.uses(result) == 1;
        let is_plain =
            !dot.promotes() && dot.tile().is_none() && dot.gathered(func).is_none() && products == 1;
        let fits = alone && is_plain && is_zero(|value| func.body.definition(value), body.inits[carried]);
        fits.then_some(AccumulatorLoop { product, carried })
    }
}

impl Gpu<'_> {
    /// The registers of the results of a loop that adds products up.
    pub(super) fn accumulated(
        &mut self,
        b: &mut Builder,
        (body, sum): (&For, &AccumulatorLoop),
        IterationSpace { low, step, count }: IterationSpace,
    ) -> Vec<Val> {
        let op = &body.body.ops[sum.product];
        let Kind::WarpGroupDot(dot) = &op.kind else { unreachable!("a loop of this kind has a product") };
        let pipeline = self.plan.pipeline();
        let start = self.present_turn(body);
        let mut inits = self.flatten(&body.inits);
        let own = inits.len();
        let range = self.range_of(&body.body.args[1..], sum.carried);
        let nothing = b.poison(inits[range.start].ty);
        inits[range.clone()].fill(nothing);
        inits.extend(start.flat().into_iter().chain(start.flat()));
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let ends = b.for_range([zero, count, one], &inits, |b, index, carried| {
            self.scope(|gpu| {
                gpu.iteration = Some(index);
                let (carried, turns) = carried.split_at(own);
                let [before, now] = [&turns[..2], &turns[2..]].map(PipelineState::of);
                gpu.set_turn(body, now);
                let variable = loop_variable(b, index, low, step);
                gpu.define(body.body.args[0], vec![variable]);
                gpu.define_all(&body.body.args[1..], carried);
                for (i, op) in body.body.ops.iter().enumerate() {
                    if i != sum.product {
                        gpu.op(b, op);
                    }
                }
                let again = b.icmp(IntPredicate::Sgt, index, zero);
                let mut issued = dot.issue(gpu, b, op, (Some(again), AfterIssue::GoOn));
                WarpGroupDot::settle(b, &mut issued, 1, &[]);
                dot.define(gpu, op, &issued);
                gpu.set_turn(body, before);
                b.if_then(again, |b| gpu.release_blocks(b, dot, op));
                let next = gpu.next_turn(b, pipeline, body, now);
                let turns = now.flat().into_iter().chain(next.flat());
                gpu.flatten(&body.body.yields).into_iter().chain(turns).collect()
            })
        });
        let (results, turns) = ends.split_at(own);
        let [last, next] = [&turns[..2], &turns[2..]].map(PipelineState::of);
        let mut results = results.to_vec();
        let ran = (!self.runs(body)).then(|| b.icmp(IntPredicate::Sgt, count, zero));
        let sums = WarpGroupDot::ended(b, &results[range.clone()], ran);
        results.splice(range, sums);
        self.set_turn(body, last);
        b.guarded(ran, |b| self.release_blocks(b, dot, op));
        self.set_turn(body, next);
        results
    }

    /// Whether a loop is known to run at least once.
    pub(super) fn runs(&self, body: &For) -> bool {
        let (first, end) = (self.info(body.low).range.1, self.info(body.high).range.0);
        if body.closed { first <= end } else { first < end }
    }

    /// Where the registers of one of several values are among those of all.
    fn range_of(&self, values: &[Value], which: usize) -> std::ops::Range<usize> {
        let start: usize = values[..which].iter().map(|&value| self.register_count(value)).sum();
        start..start + self.register_count(values[which])
    }
}
