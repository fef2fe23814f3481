//! The mbarriers and pipeline states that the producer warp and consumer warpgroups share.

use std::collections::HashMap;

use tile_ir::ir::Value;
use tile_ir::ops::For;

use super::{MBARRIER_BYTES, TmaPipeline, TmaRing};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// The mbarriers of a buffer: `full` when TMA has filled it, `empty` when consumers have released it.
#[derive(Clone, Copy)]
pub(super) struct BarrierPair {
    pub full: Val,
    pub empty: Val,
}

/// Pipeline states, which the producer and consumers advance alike.
#[derive(Clone, Default)]
pub(in crate::gpu::emit) struct PipelineProgress {
    /// The state of the ring of the loop with this variable.
    pub(super) rings: HashMap<Value, PipelineState>,
    /// The state of the resident buffers.
    pub(super) resident: Option<PipelineState>,
}

/// The stage that is next, and the parity of the phase to wait for there.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct PipelineState {
    pub stage: Val,
    pub phase: Val,
}

impl TmaPipeline {
    /// Before the first program.
    pub(super) fn initial_progress(&self, b: &mut Builder, is_producer: bool) -> PipelineProgress {
        let first = PipelineState::first(b, is_producer);
        let rings = self.rings.iter().map(|ring| (ring.variable, first)).collect();
        PipelineProgress { rings, resident: Some(first) }
    }

    pub(super) fn flatten(&self, progress: &PipelineProgress) -> Vec<Val> {
        let states = self.rings.iter().flat_map(|ring| progress.rings[&ring.variable].flatten());
        states.chain(progress.resident.iter().flat_map(|state| state.flatten())).collect()
    }

    pub(super) fn progress(&self, values: &[Val]) -> PipelineProgress {
        let mut states = values.chunks(2).map(PipelineState::of);
        let rings = self.rings.iter().map(|ring| ring.variable);
        let rings = rings.zip(states.by_ref()).collect();
        PipelineProgress { rings, resident: states.next() }
    }
}

impl PipelineState {
    pub fn flatten(self) -> [Val; 2] {
        [self.stage, self.phase]
    }

    pub fn of(values: &[Val]) -> PipelineState {
        PipelineState { stage: values[0], phase: values[1] }
    }

    /// The first state; the producer finds the stages empty.
    pub(super) fn first(b: &mut Builder, is_producer: bool) -> PipelineState {
        PipelineState { stage: b.int(Ty::I32, 0), phase: b.int(Ty::I32, i64::from(is_producer)) }
    }

    /// The state after it, in a ring of so many stages.
    pub(super) fn next(self, b: &mut Builder, stages: u32) -> PipelineState {
        let [zero, one, stages] = [0, 1, stages].map(|index| b.int(Ty::I32, i64::from(index)));
        let after = b.add(self.stage, one);
        let around = b.icmp(IntPredicate::Eq, after, stages);
        let other = b.xor(self.phase, one);
        PipelineState { stage: b.select(around, zero, after), phase: b.select(around, other, self.phase) }
    }
}

impl Gpu<'_> {
    /// The current state of a loop's ring.
    pub(in crate::gpu::emit) fn pipeline_state(&self, body: &For) -> PipelineState {
        self.progress.rings[&body.body.args[0]]
    }

    pub(in crate::gpu::emit) fn set_pipeline_state(&mut self, body: &For, state: PipelineState) {
        self.progress.rings.insert(body.body.args[0], state);
    }

    /// The state after this one in the loop's ring.
    pub(in crate::gpu::emit) fn next_pipeline_state(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        body: &For,
        state: PipelineState,
    ) -> PipelineState {
        let ring = pipeline.ring_of(body.body.args[0]).expect("the loop has a ring");
        state.next(b, ring.stages)
    }

    /// `start + index * bytes` in shared memory.
    pub(super) fn at(&self, b: &mut Builder, start: u32, index: Val, bytes: u32) -> Val {
        let first = b.offset_bytes(self.smem_base(), start as i32);
        let bytes = b.int(Ty::I32, i64::from(bytes));
        let distance = b.mul_nsw(index, bytes);
        b.offset(first, distance, 1)
    }

    /// The barriers of a barrier group in this stage.
    pub(super) fn ring_barriers(
        &self,
        b: &mut Builder,
        ring: &TmaRing,
        group: usize,
        state: PipelineState,
    ) -> BarrierPair {
        let first = ring.barriers + MBARRIER_BYTES * ring.stages * group as u32;
        let empty_offset = MBARRIER_BYTES * ring.stages * ring.barrier_groups().len() as u32;
        let full = self.at(b, first, state.stage, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, empty_offset as i32) }
    }

    pub(super) fn resident_barriers(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        index: usize,
    ) -> BarrierPair {
        let first = pipeline.resident_barriers + MBARRIER_BYTES * pipeline.resident_stages * index as u32;
        let empty_offset = MBARRIER_BYTES * pipeline.resident_stages * pipeline.resident.len() as u32;
        let full = self.at(b, first, self.resident_state().stage, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, empty_offset as i32) }
    }

    /// The state of the resident buffers of the current program.
    pub(super) fn resident_state(&self) -> PipelineState {
        self.progress.resident.expect("programs are counted")
    }

    pub(super) fn wait_phase(&self, b: &mut Builder, barrier: Val, phase: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,r,~{memory}", &[barrier, phase], &[]);
    }
}
