//! Consumer warpgroups: wait for full stages, issue their dots in turn, and release stages.

use super::barriers::BarrierPair;
use super::{DotBuffers, TmaLoad};
use crate::gpu::emit::barrier::warp_barrier;
use crate::gpu::emit::dot::wgmma::OperandWords;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::ir::Op;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::ops::{For, Kind, OperandA, SmemOperand, WarpGroupDot};

/// What a group of warps does about the turn to multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::gpu::emit) enum MmaOrder {
    /// The last group lets the first one begin.
    First,
    /// Waits until the group before lets this one begin.
    Take,
    /// Lets the next one begin.
    Pass,
}

/// The number of the first group's barrier: 0 is the block's and 1 the program's.
const FIRST_BATON: u32 = 2;

impl Gpu<'_> {
    /// Waits for the blocks of a product.
    pub(in crate::gpu::emit) fn await_blocks(&mut self, b: &mut Builder, dot: &WarpGroupDot) {
        for taken in self.plan.pipeline().taken(dot) {
            match taken {
                DotBuffers::Lot(ring, lot) => {
                    let turn = self.progress.turns[&ring.variable];
                    let BarrierPair { full, .. } = self.ring_signals(b, ring, lot, turn);
                    self.await_phase(b, full, turn.parity);
                }
                DotBuffers::Own(number) => self.await_own(b, number),
            }
        }
    }

    /// Waits before a loop for what its products take that is copied once.
    pub(in crate::gpu::emit) fn await_before(&mut self, b: &mut Builder, body: &For) {
        let Some(pipeline) = &self.plan.pipeline else { return };
        body.body.walk(&mut |op| {
            let Kind::WarpGroupDot(dot) = &op.kind else { return };
            for staged in dot.staged() {
                if let (None, number) = pipeline.find(&staged.window) {
                    self.await_own(b, number);
                    self.waited_copies.insert(number);
                    self.hold(b, (dot, op), body, number);
                }
            }
        });
    }

    /// Loads a left factor that a whole loop takes into registers, if these are few, and lets go of its block.
    fn hold(&mut self, b: &mut Builder, (dot, op): (&WarpGroupDot, &Op), body: &For, number: usize) {
        let pipeline = self.plan.pipeline();
        let OperandA::Staged(staged) = &dot.a else { return };
        let mut takers = 0;
        self.func.body.walk(&mut |op| {
            let Kind::WarpGroupDot(dot) = &op.kind else { return };
            takers += dot.staged().filter(|staged| staged.window == pipeline.once[number].window).count();
        });
        let is_own = pipeline.once[number].window == staged.window && !staged.transposed;
        if !is_own
            || takers > 1
            || self.rs_operands.contains_key(&number)
            || pipeline.once[number].within != Some(body.body.args[0])
        {
            return;
        }
        let Some(words) = self.loaded_words(b, staged, self.func.ty(op.results[0]).shape[0]) else { return };
        self.rs_operands.insert(number, words);
        warp_barrier(b);
        let BarrierPair { empty, .. } = self.own_signals(b, pipeline, number);
        self.arrive(b, empty);
    }

    fn await_own(&mut self, b: &mut Builder, number: usize) {
        if !self.waited_copies.contains(&number) {
            let BarrierPair { full, .. } = self.own_signals(b, self.plan.pipeline(), number);
            self.await_phase(b, full, self.own_turn().parity);
        }
    }

    /// The words of a left factor that is held in registers.
    pub(in crate::gpu::emit) fn held_words(&self, staged: &SmemOperand) -> Option<&OperandWords> {
        let (None, number) = self.plan.pipeline().find(&staged.window) else { return None };
        self.rs_operands.get(&number)
    }

    /// Where a product's block is: its address in shared memory, an `i32`.
    pub(in crate::gpu::emit) fn block_address(&self, b: &mut Builder, staged: &SmemOperand) -> Val {
        let pipeline = self.plan.pipeline();
        let (start, number, bytes) = match pipeline.find(&staged.window) {
            (Some(ring), number) => {
                let turn = self.progress.turns[&ring.variable];
                (ring.start + ring.copies[number].start, turn.part, ring.turn())
            }
            (None, number) => {
                let TmaLoad { start, bytes, .. } = pipeline.once[number];
                (start, self.own_turn().part, bytes)
            }
        };
        let base = b.op("llvm.ptrtoint", &[self.smem_base()], Ty::I32);
        let [start, bytes] = [start, bytes].map(|number| b.int(Ty::I32, i64::from(number)));
        let first = b.add(base, start);
        let distance = b.mul_nsw(number, bytes);
        b.add(first, distance)
    }

    /// Lets blocks be copied to where those were that a product took, if it is the last in its turn to take them.
    pub(in crate::gpu::emit) fn release_blocks(&mut self, b: &mut Builder, dot: &WarpGroupDot, op: &Op) {
        let pipeline = self.plan.pipeline();
        for taken in pipeline.taken(dot) {
            match taken {
                DotBuffers::Lot(ring, lot) if ring.last_of(lot) == op.results[0] => {
                    let turn = self.progress.turns[&ring.variable];
                    let BarrierPair { empty, .. } = self.ring_signals(b, ring, lot, turn);
                    self.arrive(b, empty);
                    if ring.has_multicast() {
                        self.arrive_at_peer(b, empty);
                    }
                }
                DotBuffers::Own(number) if pipeline.once[number].ends_with(op) => {
                    let BarrierPair { empty, .. } = self.own_signals(b, pipeline, number);
                    self.arrive(b, empty);
                }
                DotBuffers::Lot(..) | DotBuffers::Own(_) => {}
            }
        }
    }

    /// The same of blocks that are copied once, and taken last in this loop, which may take nothing anew in its turns.
    pub(in crate::gpu::emit) fn release_own(&mut self, b: &mut Builder, body: &For) {
        let Some(pipeline) = &self.plan.pipeline else { return };
        let variable = Some(body.body.args[0]);
        for (number, _) in pipeline.once.iter().enumerate().filter(|(_, copy)| copy.within == variable) {
            if self.rs_operands.contains_key(&number) {
                continue;
            }
            let BarrierPair { empty, .. } = self.own_signals(b, pipeline, number);
            self.arrive(b, empty);
        }
    }

    /// Lets the groups of warps multiply in turn.
    pub(in crate::gpu::emit) fn take_turns(&mut self, b: &mut Builder, change: MmaOrder) {
        let groups = self.plan.distributed.num_warps / WARPGROUP_WARPS;
        let [zero, one, last, first] =
            [0, 1, groups - 1, FIRST_BATON].map(|number| b.int(Ty::I32, i64::from(number)));
        let group = self.warp_group(b);
        let is_last = b.icmp(IntPredicate::Eq, group, last);
        let after = b.add(group, one);
        let next = b.select(is_last, zero, after);
        let (which, word, condition) = match change {
            MmaOrder::First => (next, "arrive", Some(is_last)),
            MmaOrder::Take => (group, "sync", None),
            MmaOrder::Pass => (next, "arrive", None),
        };
        let number = b.add(which, first);
        let text = format!("bar.{word} $0, {};", 2 * WARPGROUP_WARPS * 32);
        b.guarded(condition, |b| {
            statement(b, &text, "r,~{memory}", &[number], &[]);
        });
    }

    pub(super) fn arrive(&self, b: &mut Builder, signal: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];";
        statement(b, text, "l,b,~{memory}", &[signal, first], &[]);
    }
}
