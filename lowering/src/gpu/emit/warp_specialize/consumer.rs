//! Consumer warpgroups: wait for full stages, issue their dots, release stages.
//!
//! With several warpgroups the dots alternate (ping-pong): one warpgroup issues its dots while the others work on
//! their results.

use tile_ir::ir::Op;
use tile_ir::ops::{For, Kind, OperandA, SmemOperand, WarpGroupDot};

use super::barriers::BarrierPair;
use super::{DotBuffers, TmaLoad};
use crate::gpu::emit::barrier::warp_barrier;
use crate::gpu::emit::dot::wgmma::OperandWords;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// A warpgroup's step in the order of dots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::gpu::emit) enum MmaOrder {
    /// Before the first program: the last warpgroup lets the first one begin.
    Init,
    /// Waits until the warpgroup before lets this one begin.
    Wait,
    /// Lets the next warpgroup begin.
    Arrive,
}

/// The named barrier of the first warpgroup: 0 is the block's and 1 the program's.
const FIRST_MMA_ORDER_BARRIER: u32 = 2;

impl Gpu<'_> {
    /// Waits on the full barriers of what a dot reads.
    pub(in crate::gpu::emit) fn consumer_wait(&mut self, b: &mut Builder, dot: &WarpGroupDot) {
        for buffers in self.plan.pipeline().buffers_of(dot) {
            match buffers {
                DotBuffers::Ring(ring, group) => {
                    let state = self.progress.rings[&ring.variable];
                    let BarrierPair { full, .. } = self.ring_barriers(b, ring, group, state);
                    self.wait_phase(b, full, state.phase);
                }
                DotBuffers::Resident(index) => self.wait_resident(b, index),
            }
        }
    }

    /// Waits before a loop for the resident operands of its dots.
    pub(in crate::gpu::emit) fn wait_before_loop(&mut self, b: &mut Builder, body: &For) {
        let Some(pipeline) = &self.plan.pipeline else { return };
        body.body.walk(&mut |op| {
            let Kind::WarpGroupDot(dot) = &op.kind else { return };
            for operand in dot.smem_operands() {
                if let (None, index) = pipeline.find(&operand.tile) {
                    self.wait_resident(b, index);
                    self.waited_copies.insert(index);
                    self.preload_operand_a(b, (dot, op), body, index);
                }
            }
        });
    }

    /// Preloads a resident operand A that a whole loop reads into registers, if these are few, and releases its
    /// buffer.
    fn preload_operand_a(
        &mut self,
        b: &mut Builder,
        (dot, op): (&WarpGroupDot, &Op),
        body: &For,
        index: usize,
    ) {
        let pipeline = self.plan.pipeline();
        let OperandA::Smem(operand) = &dot.a else { return };
        let mut uses = 0;
        self.func.body.walk(&mut |op| {
            let Kind::WarpGroupDot(dot) = &op.kind else { return };
            uses +=
                dot.smem_operands().filter(|operand| operand.tile == pipeline.resident[index].tile).count();
        });
        let is_operand_a = pipeline.resident[index].tile == operand.tile && !operand.transposed;
        if !is_operand_a
            || uses > 1
            || self.rs_operands.contains_key(&index)
            || pipeline.resident[index].last_loop != Some(body.body.args[0])
        {
            return;
        }
        let Some(words) = self.preload_words(b, operand, self.func.ty(op.results[0]).shape[0]) else {
            return;
        };
        self.rs_operands.insert(index, words);
        warp_barrier(b);
        let BarrierPair { empty, .. } = self.resident_barriers(b, pipeline, index);
        self.arrive(b, empty);
    }

    fn wait_resident(&mut self, b: &mut Builder, index: usize) {
        if !self.waited_copies.contains(&index) {
            let BarrierPair { full, .. } = self.resident_barriers(b, self.plan.pipeline(), index);
            self.wait_phase(b, full, self.resident_state().phase);
        }
    }

    /// The words of an operand A that is in registers.
    pub(in crate::gpu::emit) fn preloaded_words(&self, operand: &SmemOperand) -> Option<&OperandWords> {
        let (None, index) = self.plan.pipeline().find(&operand.tile) else { return None };
        self.rs_operands.get(&index)
    }

    /// The address of a dot's operand in shared memory, an `i32`.
    pub(in crate::gpu::emit) fn smem_operand_address(&self, b: &mut Builder, operand: &SmemOperand) -> Val {
        let pipeline = self.plan.pipeline();
        let (start, index, bytes) = match pipeline.find(&operand.tile) {
            (Some(ring), index) => {
                let state = self.progress.rings[&ring.variable];
                (ring.start + ring.loads[index].start, state.stage, ring.stage_bytes())
            }
            (None, index) => {
                let TmaLoad { start, bytes, .. } = pipeline.resident[index];
                (start, self.resident_state().stage, bytes)
            }
        };
        let base = b.op("llvm.ptrtoint", &[self.smem_base()], Ty::I32);
        let [start, bytes] = [start, bytes].map(|index| b.int(Ty::I32, i64::from(index)));
        let first = b.add(base, start);
        let distance = b.mul_nsw(index, bytes);
        b.add(first, distance)
    }

    /// Releases the buffers of a dot, if it is the last of its iteration to read them.
    pub(in crate::gpu::emit) fn consumer_release(&mut self, b: &mut Builder, dot: &WarpGroupDot, op: &Op) {
        let pipeline = self.plan.pipeline();
        for buffers in pipeline.buffers_of(dot) {
            match buffers {
                DotBuffers::Ring(ring, group) if ring.last_use_of(group) == op.results[0] => {
                    let state = self.progress.rings[&ring.variable];
                    let BarrierPair { empty, .. } = self.ring_barriers(b, ring, group, state);
                    self.arrive(b, empty);
                    if ring.has_multicast() {
                        self.arrive_at_peer(b, empty);
                    }
                }
                DotBuffers::Resident(index) if pipeline.resident[index].ends_with(op) => {
                    let BarrierPair { empty, .. } = self.resident_barriers(b, pipeline, index);
                    self.arrive(b, empty);
                }
                DotBuffers::Ring(..) | DotBuffers::Resident(_) => {}
            }
        }
    }

    /// Releases resident buffers whose last use is in this loop, which may have no ring.
    pub(in crate::gpu::emit) fn release_resident(&mut self, b: &mut Builder, body: &For) {
        let Some(pipeline) = &self.plan.pipeline else { return };
        let variable = Some(body.body.args[0]);
        for (index, _) in pipeline.resident.iter().enumerate().filter(|(_, load)| load.last_loop == variable)
        {
            if self.rs_operands.contains_key(&index) {
                continue;
            }
            let BarrierPair { empty, .. } = self.resident_barriers(b, pipeline, index);
            self.arrive(b, empty);
        }
    }

    /// A step in the order of dots: warpgroups take turns (ping-pong).
    pub(in crate::gpu::emit) fn order_mma(&mut self, b: &mut Builder, step: MmaOrder) {
        let warpgroups = self.plan.distributed.num_warps / WARPGROUP_WARPS;
        let [zero, one, last, first] =
            [0, 1, warpgroups - 1, FIRST_MMA_ORDER_BARRIER].map(|index| b.int(Ty::I32, i64::from(index)));
        let own = self.warpgroup(b);
        let is_last = b.icmp(IntPredicate::Eq, own, last);
        let after = b.add(own, one);
        let next = b.select(is_last, zero, after);
        let (warpgroup, word, condition) = match step {
            MmaOrder::Init => (next, "arrive", Some(is_last)),
            MmaOrder::Wait => (own, "sync", None),
            MmaOrder::Arrive => (next, "arrive", None),
        };
        let index = b.add(warpgroup, first);
        let text = format!("bar.{word} $0, {};", 2 * WARPGROUP_WARPS * 32);
        b.guarded(condition, |b| {
            statement(b, &text, "r,~{memory}", &[index], &[]);
        });
    }

    pub(super) fn arrive(&self, b: &mut Builder, barrier: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];";
        statement(b, text, "l,b,~{memory}", &[barrier, first], &[]);
    }
}
