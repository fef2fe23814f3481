//! The barriers and pipeline states that the producer warp and consumer warpgroups share.

use std::collections::HashMap;

use super::{MBARRIER_BYTES, TmaPipeline, TmaRing};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::ir::Value;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::ops::For;

/// The barrier objects of a block: that it came, and that it was used.
#[derive(Clone, Copy)]
pub(super) struct BarrierPair {
    pub full: Val,
    pub empty: Val,
}

/// Where the copies are: what the thread that copies and the other warps count alike.
#[derive(Clone, Default)]
pub(in crate::gpu::emit) struct PipelineProgress {
    /// The next turn of the ring of the loop with this variable.
    pub(super) turns: HashMap<Value, PipelineState>,
    /// The place of what is copied once for a program.
    pub(super) once: Option<PipelineState>,
}

/// The part of a ring that is next, and the parity of the phase that is waited for there.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct PipelineState {
    pub part: Val,
    pub parity: Val,
}

impl TmaPipeline {
    /// Before the first program.
    pub(super) fn start(&self, b: &mut Builder, fills: bool) -> PipelineProgress {
        let first = PipelineState::first(b, fills);
        let turns = self.rings.iter().map(|ring| (ring.variable, first)).collect();
        PipelineProgress { turns, once: Some(first) }
    }

    pub(super) fn flat(&self, progress: &PipelineProgress) -> Vec<Val> {
        let turns = self.rings.iter().flat_map(|ring| progress.turns[&ring.variable].flat());
        turns.chain(progress.once.iter().flat_map(|turn| turn.flat())).collect()
    }

    pub(super) fn progress(&self, flat: &[Val]) -> PipelineProgress {
        let mut turns = flat.chunks(2).map(PipelineState::of);
        let rings = self.rings.iter().map(|ring| ring.variable);
        let of_rings = rings.zip(turns.by_ref()).collect();
        PipelineProgress { turns: of_rings, once: turns.next() }
    }
}

impl PipelineState {
    pub fn flat(self) -> [Val; 2] {
        [self.part, self.parity]
    }

    pub fn of(flat: &[Val]) -> PipelineState {
        PipelineState { part: flat[0], parity: flat[1] }
    }

    /// The first one; who fills the parts finds them empty.
    pub(super) fn first(b: &mut Builder, fills: bool) -> PipelineState {
        PipelineState { part: b.int(Ty::I32, 0), parity: b.int(Ty::I32, i64::from(fills)) }
    }

    /// The one after it, of so many parts.
    pub(super) fn next(self, b: &mut Builder, parts: u32) -> PipelineState {
        let [zero, one, parts] = [0, 1, parts].map(|number| b.int(Ty::I32, i64::from(number)));
        let after = b.add(self.part, one);
        let around = b.icmp(IntPredicate::Eq, after, parts);
        let other = b.xor(self.parity, one);
        PipelineState { part: b.select(around, zero, after), parity: b.select(around, other, self.parity) }
    }
}

impl Gpu<'_> {
    /// The present turn of a loop's ring.
    pub(in crate::gpu::emit) fn present_turn(&self, body: &For) -> PipelineState {
        self.progress.turns[&body.body.args[0]]
    }

    pub(in crate::gpu::emit) fn set_turn(&mut self, body: &For, turn: PipelineState) {
        self.progress.turns.insert(body.body.args[0], turn);
    }

    /// The part after the present one of the loop's ring.
    pub(in crate::gpu::emit) fn next_turn(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        body: &For,
        turn: PipelineState,
    ) -> PipelineState {
        let ring = pipeline.ring_of(body.body.args[0]).expect("the loop takes turns");
        turn.next(b, ring.stages)
    }

    /// `start + number * bytes` in shared memory.
    pub(super) fn at(&self, b: &mut Builder, start: u32, number: Val, bytes: u32) -> Val {
        let first = b.offset_bytes(self.smem_base(), start as i32);
        let bytes = b.int(Ty::I32, i64::from(bytes));
        let distance = b.mul_nsw(number, bytes);
        b.offset(first, distance, 1)
    }

    /// Those of a lot of a ring's blocks.
    pub(super) fn ring_signals(
        &self,
        b: &mut Builder,
        ring: &TmaRing,
        lot: usize,
        turn: PipelineState,
    ) -> BarrierPair {
        let own = ring.signals + MBARRIER_BYTES * ring.stages * lot as u32;
        let apart = MBARRIER_BYTES * ring.stages * ring.lots().len() as u32;
        let full = self.at(b, own, turn.part, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, apart as i32) }
    }

    pub(super) fn own_signals(&self, b: &mut Builder, pipeline: &TmaPipeline, number: usize) -> BarrierPair {
        let own = pipeline.signals + MBARRIER_BYTES * pipeline.parts * number as u32;
        let apart = MBARRIER_BYTES * pipeline.parts * pipeline.once.len() as u32;
        let full = self.at(b, own, self.own_turn().part, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, apart as i32) }
    }

    /// The place of what is copied once for the present program.
    pub(super) fn own_turn(&self) -> PipelineState {
        self.progress.once.expect("programs are counted")
    }

    pub(super) fn await_phase(&self, b: &mut Builder, signal: Val, parity: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,r,~{memory}", &[signal, parity], &[]);
    }
}
