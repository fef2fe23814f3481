//! Consumer warpgroups: wait for full stages, issue their dots, release stages.

use std::collections::{HashMap, HashSet};

use super::{Pipes, Specializer, counts_in_32_bits, resident_pipe};
use crate::gpu::layout::warpgroup::preload_word_count;
use crate::gpu::schedule::Schedule;
use crate::gpu::schedule::promotion::{ImpreciseDot, PromotedDot, promoted};
use crate::gpu::schedule::tma_pipeline::DotBuffers;
use tile_ir::ir::{Block, Op, Storage, Type, Value};
use tile_ir::ops::schedule::{
    AfterIssue, Role, SmemPlace, Stage, StagedOperand, WaitedStores, WgmmaOperandA,
};
use tile_ir::ops::{
    Barrier, Constant, ConstantValue, For, Induction, Kind, Loop, MbarArrive, MbarWait, OperandA, PipeNext,
    SmemLoadWords, SmemOperand, StoreWait, TripCount, WarpBarrier, WarpGroupDot, Wgmma, WorkTiles,
};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;

/// The operations of the consumers for one program.
struct ConsumerProgram<'a> {
    by: &'a Specializer<'a>,
    ops: Vec<Op>,
    pipes: Pipes,
    /// How many dots read each resident buffer.
    uses: Vec<usize>,
    /// Resident buffers that were waited for before the loop that reads them.
    waited: HashSet<usize>,
    /// Those of them that are operand A of a dot, in registers.
    words: HashMap<usize, Value>,
}

/// A ring that a loop takes a stage of in each iteration.
#[derive(Clone, Copy)]
struct ConsumedRing {
    /// Its index in the plan.
    index: usize,
    /// How many stages the loop takes: its trip count.
    stages: Value,
}

/// An operand A of a dot in a resident buffer.
struct ResidentA<'a> {
    /// The index of the buffer in the plan.
    index: usize,
    operand: &'a SmemOperand,
    /// The rows of the dot.
    rows: u32,
}

impl Specializer<'_> {
    /// The block of the consumers' role, made of the kernel's body.
    pub(super) fn consumer(&self, schedule: &mut Schedule, body: Block) -> Block {
        let mut ops = vec![];
        let inits = self.start(schedule, &mut ops, Role::Consumer).flatten();
        let args = self.pipe_args(schedule);
        let uses = self.pipeline.resident.iter().map(|load| {
            let mut uses = 0;
            body.walk(&mut |op| {
                if let Kind::WarpGroupDot(dot) = &op.kind {
                    uses += dot.smem_operands().filter(|operand| operand.tile == load.tile).count();
                }
            });
            uses
        });
        let uses = uses.collect();
        let (ops_before, waited, words) = (vec![], HashSet::new(), HashMap::new());
        let mut program =
            ConsumerProgram { by: self, ops: ops_before, pipes: args.clone(), uses, waited, words };
        body.ops.into_iter().for_each(|op| program.op(schedule, op));
        if schedule.smem.is_scratch_used() {
            schedule.effect(&mut program.ops, self.loc, Barrier);
        }
        let ConsumerProgram { ops: mut own, mut pipes, .. } = program;
        pipes.resident = pipes
            .resident
            .map(|pipe| schedule.one(&mut own, self.loc, PipeNext { pipe }, schedule.ty(pipe).clone()));
        // The scalars come from the producer.
        let scalars = self.pipeline.tile_scalars.clone();
        let types = scalars.iter().map(|&scalar| schedule.ty(scalar).dtype).collect();
        let args = scalars.into_iter().chain(args.flatten()).collect();
        let body = Block { args, ops: own, yields: pipes.flatten() };
        let work_tiles = WorkTiles {
            role: Role::Consumer,
            dynamic: self.pipeline.is_dynamic,
            inits,
            address: self.pipeline.work_tiles,
            body,
            scalars: types,
        };
        schedule.effect(&mut ops, self.loc, work_tiles);
        if self.buffers.epilogue.is_some() {
            schedule.effect(&mut ops, self.loc, StoreWait { until: WaitedStores::Read });
        }
        Block { args: vec![], ops, yields: vec![] }
    }
}

/// The most words that results of a loop's dots and preloaded operands A take of a consumer thread's 240 registers: the rest has addresses and
/// operands that are converted.
const MAX_HELD_WORDS: u32 = 200;

impl ConsumerProgram<'_> {
    fn op(&mut self, schedule: &mut Schedule, mut op: Op) {
        let is_published =
            op.results.first().is_some_and(|result| self.by.pipeline.tile_scalars.contains(result));
        if is_published {
            return;
        }
        if let Kind::WarpGroupDot(dot) = &op.kind {
            return self.dot(schedule, dot, op.results[0], op.loc);
        }
        if let Kind::For(body) = op.kind {
            return self.for_loop(schedule, body, op.results, op.loc);
        }
        if let Kind::TmaStore(store) = &mut op.kind {
            let maps = &self.by.pipeline.epilogue.maps;
            let map = maps.iter().find(|(memory, _)| *memory == store.tile.memory);
            (store.through, store.map) = (self.by.buffers.epilogue, map.map(|&(_, map)| map));
        }
        self.ops.push(op);
    }

    /// A loop: with a ring by the index of the iteration, with its pipeline state carried.
    fn for_loop(&mut self, schedule: &mut Schedule, mut body: For, mut results: Vec<Value>, loc: Loc) {
        let variable = body.body.args[0];
        let ring = self.by.ring_of(variable).map(|index| {
            let count = TripCount::of(&body, schedule.runs(&body));
            let stages = schedule.one(&mut self.ops, loc, count, Type::scalar(DType::I64));
            ConsumedRing { index, stages }
        });
        self.wait_before_loop(schedule, &body.body, variable, loc);
        match ring {
            Some(ring) => {
                let whole = self.ring_loop(schedule, ring, body, loc);
                results.push(self.pipes.rings[ring.index]);
                self.ops.push(Op { kind: whole.into(), results, loc });
            }
            None => {
                let before = std::mem::take(&mut self.ops);
                std::mem::take(&mut body.body.ops).into_iter().for_each(|op| self.op(schedule, op));
                body.body.ops = std::mem::replace(&mut self.ops, before);
                self.ops.push(Op { kind: body.into(), results, loc });
            }
        }
        let resident = self.by.pipeline.resident.iter().enumerate();
        let released: Vec<usize> = resident
            .filter(|(index, load)| load.last_loop == Some(variable) && !self.words.contains_key(index))
            .map(|(index, _)| index)
            .collect();
        released.into_iter().for_each(|index| self.release_resident(schedule, index, loc));
    }

    /// A loop that takes its stages of a ring, and carries the pipeline state besides; leaves the state behind it.
    fn ring_loop(&mut self, schedule: &mut Schedule, ring: ConsumedRing, body: For, loc: Loc) -> Loop {
        let For { low, step, inits, body, .. } = body;
        let narrow = counts_in_32_bits(schedule, body.args[0]);
        let ConsumedRing { index: ring, stages } = ring;
        let before = self.pipes.rings[ring];
        let ty = schedule.ty(before).clone();
        let index_type = Type::scalar(DType::I64);
        let zero = Constant { value: ConstantValue::Int(0) };
        let zero = schedule.one(&mut self.ops, loc, zero, index_type.clone());
        let (index, state) = (schedule.value(index_type), schedule.value(ty.clone()));
        let outer = std::mem::take(&mut self.ops);
        self.pipes.rings[ring] = state;
        let Block { args, ops, yields } = body;
        self.ops.push(Op { kind: Induction { index, low, step }.into(), results: vec![args[0]], loc });
        ops.into_iter().for_each(|op| self.op(schedule, op));
        let next = schedule.one(&mut self.ops, loc, PipeNext { pipe: state }, ty.clone());
        let ops = std::mem::replace(&mut self.ops, outer);
        let args = [index].into_iter().chain(args[1..].iter().copied()).chain([state]).collect();
        let yields = yields.into_iter().chain([next]).collect();
        let inits = inits.into_iter().chain([before]).collect();
        self.pipes.rings[ring] = schedule.value(ty);
        let body = Block { args, ops, yields };
        Loop { first: zero, end: stages, inits, body, narrow, overlapped: false }
    }

    /// A dot: waits for its operands, issues it, and releases what it is the last to read.
    fn dot(&mut self, schedule: &mut Schedule, dot: &WarpGroupDot, result: Value, loc: Loc) {
        for buffers in self.by.pipeline.buffers_of(dot) {
            match buffers {
                DotBuffers::Ring(ring, group) => {
                    let ring = self.ring_index(ring.variable);
                    let [full, _] = self.by.ring_stage(ring, group, self.pipes.rings[ring]);
                    schedule.effect(&mut self.ops, loc, MbarWait { barrier: full });
                }
                DotBuffers::Resident(index) => self.wait_resident(schedule, index, loc),
            }
        }
        let a = match &dot.a {
            OperandA::Regs(value) => WgmmaOperandA::Regs(*value),
            OperandA::Smem(operand) => match self.preloaded(operand) {
                Some(words) => WgmmaOperandA::Words(words),
                None => WgmmaOperandA::Smem(self.staged(operand)),
            },
        };
        let wgmma = Wgmma {
            a,
            b: self.staged(&dot.b),
            acc: dot.acc,
            accumulates: None,
            k: [0, dot.inner()],
            position: vec![],
            transposed: dot.transposed,
            then: AfterIssue::Wait,
        };
        if dot.promotes() {
            let most = dot.promotion_interval();
            let PromotedDot { parts, sum } = promoted(schedule, ImpreciseDot { wgmma, result, loc, most });
            self.ops.extend(parts);
            self.release(schedule, dot, result, loc);
            return self.ops.extend(sum);
        }
        self.ops.push(Op { kind: wgmma.into(), results: vec![result], loc });
        self.release(schedule, dot, result, loc);
    }

    fn ring_index(&self, variable: Value) -> usize {
        self.by.ring_of(variable).expect("the ring is one of the plan's")
    }

    /// A stage of an operand's buffer.
    fn staged(&self, operand: &SmemOperand) -> StagedOperand {
        let stage = match self.by.pipeline.find(&operand.tile) {
            (Some(ring), index) => {
                let ring = self.ring_index(ring.variable);
                Stage { buffer: self.by.buffers.rings[ring][index], pipe: self.pipes.rings[ring] }
            }
            (None, index) => self.resident(index),
        };
        StagedOperand { place: SmemPlace::Stage(stage), transposed: operand.transposed }
    }

    fn resident(&self, index: usize) -> Stage {
        Stage { buffer: self.by.buffers.resident[index], pipe: resident_pipe(&self.pipes) }
    }

    /// The words of an operand A that is in registers.
    fn preloaded(&self, operand: &SmemOperand) -> Option<Value> {
        let (None, index) = self.by.pipeline.find(&operand.tile) else { return None };
        self.words.get(&index).copied()
    }

    fn wait_resident(&mut self, schedule: &mut Schedule, index: usize, loc: Loc) {
        if !self.waited.contains(&index) {
            let [full, _] = self.by.resident_stage(index, &self.pipes);
            schedule.effect(&mut self.ops, loc, MbarWait { barrier: full });
        }
    }

    fn release_resident(&mut self, schedule: &mut Schedule, index: usize, loc: Loc) {
        let [_, empty] = self.by.resident_stage(index, &self.pipes);
        schedule.effect(&mut self.ops, loc, MbarArrive { barrier: empty, only_if: None });
    }

    /// Waits before a loop for the resident operands of its dots.
    fn wait_before_loop(&mut self, schedule: &mut Schedule, body: &Block, variable: Value, loc: Loc) {
        let mut dots = vec![];
        body.walk(&mut |op| {
            if let Kind::WarpGroupDot(dot) = &op.kind {
                dots.push((dot, op.results[0]));
            }
        });
        let threads = schedule.distributed.num_warps * 32;
        let elements = |result: Value| schedule.ty(result).shape.iter().product::<u32>() / threads;
        let of_results = dots.iter().map(|&(_, result)| elements(result)).sum();
        let mut room = MAX_HELD_WORDS.saturating_sub(of_results);
        for (dot, result) in dots {
            for operand in dot.smem_operands() {
                if let (None, index) = self.by.pipeline.find(&operand.tile) {
                    self.wait_resident(schedule, index, loc);
                    self.waited.insert(index);
                    if matches!(&dot.a, OperandA::Smem(a) if a == operand) {
                        let rows = schedule.ty(result).shape[0];
                        let a = ResidentA { index, operand, rows };
                        self.preload_operand_a(schedule, a, variable, &mut room, loc);
                    }
                }
            }
        }
    }

    /// Preloads an operand A into registers if the whole loop with this variable reads it and there is room for its words, and releases its
    /// buffer.
    fn preload_operand_a(
        &mut self,
        schedule: &mut Schedule,
        a: ResidentA,
        variable: Value,
        room: &mut u32,
        loc: Loc,
    ) {
        let ResidentA { index, operand, rows } = a;
        let load = &self.by.pipeline.resident[index];
        let dtype = schedule.distributed.func.slice(load.tile.memory).0;
        let words = preload_word_count(dtype, operand.lines(), rows, schedule.distributed.num_warps);
        if operand.transposed
            || self.uses[index] > 1
            || self.words.contains_key(&index)
            || load.last_loop != Some(variable)
        {
            return;
        }
        let Some(left) = words.and_then(|words| room.checked_sub(words)) else { return };
        *room = left;
        let from = self.resident(index);
        let ty = schedule.ty(from.buffer).stored(Storage::Words);
        let words = schedule.one(&mut self.ops, loc, SmemLoadWords { from, rows }, ty);
        self.words.insert(index, words);
        schedule.effect(&mut self.ops, loc, WarpBarrier);
        self.release_resident(schedule, index, loc);
    }

    /// Releases the buffers of a dot, if it is the last of its iteration to read them.
    fn release(&mut self, schedule: &mut Schedule, dot: &WarpGroupDot, result: Value, loc: Loc) {
        for buffers in self.by.pipeline.buffers_of(dot) {
            match buffers {
                DotBuffers::Ring(ring, group) if ring.last_use_of(group) == result => {
                    let ring = self.ring_index(ring.variable);
                    let [_, empty] = self.by.ring_stage(ring, group, self.pipes.rings[ring]);
                    schedule.effect(&mut self.ops, loc, MbarArrive { barrier: empty, only_if: None });
                }
                DotBuffers::Resident(index) => {
                    let load = &self.by.pipeline.resident[index];
                    if load.last_use == result && load.last_loop.is_none() {
                        self.release_resident(schedule, index, loc);
                    }
                }
                DotBuffers::Ring(..) => {}
            }
        }
    }
}
