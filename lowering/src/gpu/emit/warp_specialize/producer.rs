//! The producer warp: acquires empty stages and issues the TMA loads that fill them. It never touches the data.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{For, Kind};

use super::barriers::{BarrierPair, PipelineState};
use super::multicast::{Peer, load_box, multicast_box};
use super::{TmaLoad, TmaPipeline, TmaRing, depends_on};
use crate::gpu::emit::emitter;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use crate::gpu::opt::select_wgmma::MAX_TMA_EXTENT;
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::shared::{loop_variable, trip_count};
use crate::mlir::types::{Elem, Ty};

impl Gpu<'_> {
    /// Issues the loads of a program.
    pub(super) fn produce(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        peer: Option<&Peer>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let values = self.values.clone();
        for (index, load) in pipeline.resident.iter().enumerate() {
            let offsets = self.load_coordinates(b, load, definitions, &HashMap::new());
            let barriers = self.resident_barriers(b, pipeline, index);
            let state = self.resident_state();
            self.producer_acquire(b, barriers, state.phase, load.bytes);
            let to = self.at(b, load.start, state.stage, load.bytes);
            self.issue_tma_load(b, load, &offsets, [barriers.full, to], None);
        }
        for op in &self.func.body.ops {
            if let Kind::For(body) = &op.kind
                && let Some(ring) = pipeline.ring_of(body.body.args[0])
            {
                self.load_ring(b, pipeline, (body, ring), peer, definitions);
            }
        }
        self.values = values;
    }

    /// Issues the loads of a loop's ring.
    fn load_ring(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        (body, ring): (&For, &TmaRing),
        peer: Option<&Peer>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let ends = [body.low, body.high, body.step].map(|value| self.evaluate(b, value, definitions));
        let (lower, (trip_count, step)) = (ends[0], trip_count(b, body, ends, self.runs(body)));
        let first = self.pipeline_state(body);
        // Invariants are computed before the loop: the producer has little time for an iteration.
        self.evaluate_invariants(b, ring, definitions);
        let mut invariant = HashMap::new();
        for &value in ring.loads.iter().flat_map(|load| &load.tile.offsets) {
            if !depends_on(value, ring.variable, definitions) && !invariant.contains_key(&value) {
                invariant.insert(value, self.tma_coordinate(b, value));
            }
        }
        // The producer has a few dozen instructions for each iteration; 64 bits take twice as many.
        let (low_bound, high_bound) = self.info(ring.variable).range;
        let fits_i32 = low_bound >= 0 && high_bound < i32::MAX.into();
        let trip_count = if fits_i32 { b.trunc(trip_count, Elem::I32) } else { trip_count };
        let (zero, one) = (b.int(trip_count.ty, 0), b.int(trip_count.ty, 1));
        let end = b.for_range([zero, trip_count, one], &first.flatten(), |b, index, carried| {
            self.scope(|gpu| {
                let values = gpu.values.clone();
                let state = PipelineState::of(carried);
                let index = if fits_i32 { b.zext(index, Elem::I64) } else { index };
                let variable = loop_variable(b, index, lower, step);
                gpu.define(ring.variable, vec![variable]);
                for (group_index, group) in ring.barrier_groups().into_iter().enumerate() {
                    let barriers = gpu.ring_barriers(b, ring, group_index, state);
                    if let Some(peer) = peer.filter(|_| ring.has_multicast()) {
                        gpu.arrive_for_missing(b, peer, ring, [barriers.empty, index]);
                    }
                    let bytes = group.iter().map(|&load| ring.loads[load].bytes).sum();
                    gpu.producer_acquire(b, barriers, state.phase, bytes);
                    for load_index in group {
                        let load = &ring.loads[load_index];
                        let shared = peer.and_then(|peer| peer.shares(ring, load_index));
                        let offsets = gpu.load_coordinates(b, load, definitions, &invariant);
                        let to = gpu.at(b, ring.start + load.start, state.stage, ring.stage_bytes());
                        gpu.issue_tma_load(b, load, &offsets, [barriers.full, to], shared);
                    }
                }
                gpu.values = values;
                gpu.next_pipeline_state(b, pipeline, body, state).flatten().to_vec()
            })
        });
        self.set_pipeline_state(body, PipelineState::of(&end));
    }

    /// A scalar, computed here if it is not known.
    pub(in crate::gpu::emit) fn evaluate(
        &mut self,
        b: &mut Builder,
        value: Value,
        definitions: &HashMap<Value, &Op>,
    ) -> Val {
        if !self.values.contains_key(&value) {
            let op = definitions[&value];
            for operand in op.kind.operation().operands() {
                self.evaluate(b, operand, definitions);
            }
            emitter(&op.kind).emit(self, b, op);
        }
        self.scalar(value)
    }

    /// Computes the part of the offsets that does not depend on the loop variable.
    fn evaluate_invariants(&mut self, b: &mut Builder, ring: &TmaRing, definitions: &HashMap<Value, &Op>) {
        let offsets = ring.loads.iter().flat_map(|load| &load.tile.offsets);
        let mut todo: Vec<Value> = offsets.copied().collect();
        todo.reverse();
        let mut visited = HashSet::new();
        while let Some(value) = todo.pop() {
            if !visited.insert(value) {
                continue;
            }
            if !depends_on(value, ring.variable, definitions) {
                self.evaluate(b, value, definitions);
            } else if let Some(op) = definitions.get(&value) {
                todo.extend(op.kind.operation().operands().into_iter().rev());
            }
        }
    }

    /// The coordinates of a view tile for TMA; some may be known.
    fn load_coordinates(
        &mut self,
        b: &mut Builder,
        load: &TmaLoad,
        definitions: &HashMap<Value, &Op>,
        known: &HashMap<Value, Val>,
    ) -> Vec<Val> {
        let offsets = load.tile.offsets.iter().map(|offset| {
            known.get(offset).copied().unwrap_or_else(|| {
                self.evaluate(b, *offset, definitions);
                self.tma_coordinate(b, *offset)
            })
        });
        offsets.collect()
    }

    /// Waits until consumers have released a stage, and expects so many bytes at its full barrier.
    fn producer_acquire(&self, b: &mut Builder, barriers: BarrierPair, phase: Val, bytes: u32) {
        self.wait_phase(b, barriers.empty, phase);
        self.expect_tx(b, barriers.full, bytes);
    }

    fn expect_tx(&self, b: &mut Builder, full: Val, bytes: u32) {
        let text = format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {bytes};");
        statement(b, &text, "l,~{memory}", &[full], &[]);
    }

    /// Issues the loads of a tile's boxes; the other block of the cluster may share them.
    fn issue_tma_load(
        &mut self,
        b: &mut Builder,
        load: &TmaLoad,
        offsets: &[Val],
        [full, to]: [Val; 2],
        shared: Option<Val>,
    ) {
        let map = &self.plan.tensor_maps()[load.map];
        let chunk_columns = *map.block.last().expect("a view has an axis");
        let outer = map.block.len() - 2;
        let (rows, columns) = (map.block[outer], load.tile.extents[outer + 1]);
        let mut boxes = vec![];
        for chunk in 0..columns / chunk_columns {
            let place = b.offset_bytes(to, (chunk * rows * SWIZZLE_ROW_BYTES) as i32);
            let mut at = vec![place, self.tensor_maps[load.map], full];
            at.extend(offsets.iter().rev());
            let distance = b.int(Ty::I32, i64::from(chunk * chunk_columns));
            at[3] = b.add(at[3], distance);
            boxes.push(at);
        }
        let (Some(shared), Some(clustered)) = (shared, self.clustered) else {
            boxes.iter().for_each(|at| load_box(b, at));
            return;
        };
        b.branch(clustered, &[], |b, arm| {
            for at in &boxes {
                match arm {
                    BranchArm::Then => multicast_box(b, shared, at, [rows, SWIZZLE_ROW_BYTES]),
                    BranchArm::Else => load_box(b, at),
                }
            }
            vec![]
        });
    }

    /// An offset in a view as a TMA coordinate. An offset beyond 32 bits is outside of the view, and so is what it is
    /// clamped to, which keeps its divisibility.
    pub(super) fn tma_coordinate(&self, b: &mut Builder, offset: Value) -> Val {
        let (low, high) = self.info(offset).range;
        let fits = low >= i32::MIN.into() && high <= i32::MAX.into();
        let offset = self.scalar(offset);
        if fits {
            return b.trunc(offset, Elem::I32);
        }
        let [low_bound, high_bound] = [i32::MIN.into(), MAX_TMA_EXTENT].map(|limit| b.int(Ty::I64, limit));
        let offset = b.op("llvm.intr.smax", &[offset, low_bound], Ty::I64);
        let offset = b.op("llvm.intr.smin", &[offset, high_bound], Ty::I64);
        b.trunc(offset, Elem::I32)
    }
}
