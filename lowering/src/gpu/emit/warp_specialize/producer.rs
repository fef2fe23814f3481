//! The producer warp: issues TMA loads for the consumer warpgroups.

use std::collections::{HashMap, HashSet};

use super::barriers::{BarrierPair, PipelineState};
use super::multicast::{Peer, load_box, multicast_box};
use super::{TmaLoad, TmaPipeline, TmaRing, varies};
use crate::gpu::emit::emitter;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use crate::gpu::opt::select_wgmma::MAX_TMA_EXTENT;
use crate::ir::{Op, Value};
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::shared::{loop_variable, trip_count};
use crate::mlir::types::{Elem, Ty};
use crate::ops::{For, Kind};

impl Gpu<'_> {
    /// Copies what a program takes.
    pub(super) fn produce(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        peer: Option<&Peer>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let values = self.values.clone();
        for (number, copy) in pipeline.once.iter().enumerate() {
            let offsets = self.coordinates(b, copy, definitions, &HashMap::new());
            let BarrierPair { full, empty } = self.own_signals(b, pipeline, number);
            let turn = self.own_turn();
            self.await_phase(b, empty, turn.parity);
            self.expect_bytes(b, full, copy.bytes);
            let to = self.at(b, copy.start, turn.part, copy.bytes);
            self.start_copy(b, copy, &offsets, [full, to], None);
        }
        for op in &self.func.body.ops {
            if let Kind::For(body) = &op.kind
                && let Some(ring) = pipeline.ring_of(body.body.args[0])
            {
                self.fill(b, pipeline, (body, ring), peer, definitions);
            }
        }
        self.values = values;
    }

    /// Copies what a loop takes.
    fn fill(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        (body, ring): (&For, &TmaRing),
        peer: Option<&Peer>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let ends = [body.low, body.high, body.step].map(|value| self.evaluated(b, value, definitions));
        let (low, (count, step)) = (ends[0], trip_count(b, body, ends, self.runs(body)));
        let first = self.present_turn(body);
        // What stays the same is computed before the loop: a thread that copies has little time for a turn.
        self.evaluate_constants(b, ring, definitions);
        let mut same = HashMap::new();
        for &value in ring.copies.iter().flat_map(|copy| &copy.window.offsets) {
            if !varies(value, ring.variable, definitions) && !same.contains_key(&value) {
                same.insert(value, self.coordinate_of(b, value));
            }
        }
        // The thread that copies has a few dozen instructions for each iteration; 64 bits take twice as many.
        let (least, most) = self.info(ring.variable).range;
        let narrow = least >= 0 && most < i32::MAX.into();
        let count = if narrow { b.trunc(count, Elem::I32) } else { count };
        let (zero, one) = (b.int(count.ty, 0), b.int(count.ty, 1));
        let end = b.for_range([zero, count, one], &first.flat(), |b, index, carried| {
            self.scope(|gpu| {
                let values = gpu.values.clone();
                let turn = PipelineState::of(carried);
                let index = if narrow { b.zext(index, Elem::I64) } else { index };
                let variable = loop_variable(b, index, low, step);
                gpu.define(ring.variable, vec![variable]);
                for (number, lot) in ring.lots().into_iter().enumerate() {
                    let BarrierPair { full, empty } = gpu.ring_signals(b, ring, number, turn);
                    if let Some(peer) = peer.filter(|_| ring.has_multicast()) {
                        gpu.arrive_for_missing(b, peer, ring, [empty, index]);
                    }
                    gpu.await_phase(b, empty, turn.parity);
                    gpu.expect_bytes(b, full, lot.iter().map(|&copy| ring.copies[copy].bytes).sum());
                    for number in lot {
                        let copy = &ring.copies[number];
                        let shared = peer.and_then(|peer| peer.shares(ring, number));
                        let offsets = gpu.coordinates(b, copy, definitions, &same);
                        let to = gpu.at(b, ring.start + copy.start, turn.part, ring.turn());
                        gpu.start_copy(b, copy, &offsets, [full, to], shared);
                    }
                }
                gpu.values = values;
                gpu.next_turn(b, pipeline, body, turn).flat().to_vec()
            })
        });
        self.set_turn(body, PipelineState::of(&end));
    }

    /// A scalar, computed here if it is not known.
    pub(in crate::gpu::emit) fn evaluated(
        &mut self,
        b: &mut Builder,
        value: Value,
        definitions: &HashMap<Value, &Op>,
    ) -> Val {
        if !self.values.contains_key(&value) {
            let op = definitions[&value];
            for operand in op.kind.operation().operands() {
                self.evaluated(b, operand, definitions);
            }
            emitter(&op.kind).emit(self, b, op);
        }
        self.scalar(value)
    }

    /// Computes what of the offsets of a loop's copies does not come from its variable.
    fn evaluate_constants(&mut self, b: &mut Builder, ring: &TmaRing, definitions: &HashMap<Value, &Op>) {
        let offsets = ring.copies.iter().flat_map(|copy| &copy.window.offsets);
        let mut todo: Vec<Value> = offsets.copied().collect();
        todo.reverse();
        let mut seen = HashSet::new();
        while let Some(value) = todo.pop() {
            if !seen.insert(value) {
                continue;
            }
            if !varies(value, ring.variable, definitions) {
                self.evaluated(b, value, definitions);
            } else if let Some(op) = definitions.get(&value) {
                todo.extend(op.kind.operation().operands().into_iter().rev());
            }
        }
    }

    /// Where a block begins, as copies take it; some coordinates may be known.
    fn coordinates(
        &mut self,
        b: &mut Builder,
        copy: &TmaLoad,
        definitions: &HashMap<Value, &Op>,
        known: &HashMap<Value, Val>,
    ) -> Vec<Val> {
        let offsets = copy.window.offsets.iter().map(|offset| {
            known.get(offset).copied().unwrap_or_else(|| {
                self.evaluated(b, *offset, definitions);
                self.coordinate_of(b, *offset)
            })
        });
        offsets.collect()
    }

    fn expect_bytes(&self, b: &mut Builder, full: Val, bytes: u32) {
        let text = format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {bytes};");
        statement(b, &text, "l,~{memory}", &[full], &[]);
    }

    /// Issues the loads of a window's boxes to a place in shared memory; the other block of the cluster may share them.
    fn start_copy(
        &mut self,
        b: &mut Builder,
        copy: &TmaLoad,
        offsets: &[Val],
        [full, to]: [Val; 2],
        shared: Option<Val>,
    ) {
        let map = &self.plan.tensor_maps()[copy.map];
        let across = *map.block.last().expect("a view has an axis");
        let outer = map.block.len() - 2;
        let (rows, columns) = (map.block[outer], copy.window.extents[outer + 1]);
        let mut pieces = vec![];
        for piece in 0..columns / across {
            let place = b.offset_bytes(to, (piece * rows * SWIZZLE_ROW_BYTES) as i32);
            let mut at = vec![place, self.tensor_maps[copy.map], full];
            at.extend(offsets.iter().rev());
            let distance = b.int(Ty::I32, i64::from(piece * across));
            at[3] = b.add(at[3], distance);
            pieces.push(at);
        }
        let (Some(shared), Some(clustered)) = (shared, self.clustered) else {
            pieces.iter().for_each(|at| load_box(b, at));
            return;
        };
        b.branch(clustered, &[], |b, arm| {
            for at in &pieces {
                match arm {
                    BranchArm::Then => multicast_box(b, shared, at, [rows, SWIZZLE_ROW_BYTES]),
                    BranchArm::Else => load_box(b, at),
                }
            }
            vec![]
        });
    }

    /// An offset in a view as copies take it. What lies further out than 32 bits say lies outside of the view just as
    /// well, at a multiple of what it was a multiple of.
    pub(super) fn coordinate_of(&self, b: &mut Builder, offset: Value) -> Val {
        let (low, high) = self.info(offset).range;
        let fits = low >= i32::MIN.into() && high <= i32::MAX.into();
        let offset = self.scalar(offset);
        if fits {
            return b.trunc(offset, Elem::I32);
        }
        let [least, most] = [i32::MIN.into(), MAX_TMA_EXTENT].map(|limit| b.int(Ty::I64, limit));
        let offset = b.op("llvm.intr.smax", &[offset, least], Ty::I64);
        let offset = b.op("llvm.intr.smin", &[offset, most], Ty::I64);
        b.trunc(offset, Elem::I32)
    }
}
