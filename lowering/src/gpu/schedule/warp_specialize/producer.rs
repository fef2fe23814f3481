//! The producer warp: acquires empty stages and issues the TMA loads that fill them. It never touches the data.
//!
//! It computes all scalars by itself, from copies of the operations that the consumers run.

use std::collections::{HashMap, HashSet};

use super::{Pipes, Specializer, counts_in_32_bits, resident_pipe};
use crate::gpu::schedule::Schedule;
use crate::gpu::schedule::copy::Copies;
use crate::gpu::schedule::tma_pipeline::{TmaRing, depends_on};
use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Block, Op, Type, Value};
use tile_ir::ops::scalar::{ArithKind, binary};
use tile_ir::ops::schedule::{Role, Stage};
use tile_ir::ops::{
    Constant, ConstantValue, ExpectTx, For, Induction, Kind, Loop, MbarArriveForPeer, MbarWait, PeerShares,
    PipeNext, Publish, Scalar, TileQuotient, TmaLoad, TripCount, ViewTile, WorkTiles,
};
use tile_ir::support::dtype::DType;

/// What the producer knows of the program that the other block of the cluster runs.
struct Peer {
    missing: Value,
    /// By the index of a ring and that of a load, whether both programs load the same box.
    shared: HashMap<(usize, usize), Value>,
}

/// The operations of the producer for one program.
struct ProducerProgram<'a> {
    by: &'a Specializer<'a>,
    definitions: HashMap<Value, &'a Op>,
    ops: Vec<Op>,
    copies: Copies,
}

impl Specializer<'_> {
    /// The block of the producer's role.
    pub(super) fn producer(&self, schedule: &mut Schedule, body: &Block) -> Block {
        let mut ops = vec![];
        let inits = self.start(schedule, &mut ops, Role::Producer).flatten();
        let args = self.pipe_args(schedule);
        let definitions = self.definitions.iter().map(|(&value, op)| (value, op)).collect();
        let mut program = ProducerProgram { by: self, definitions, ops: vec![], copies: Copies::default() };
        let scalars = program.tile_scalars(schedule);
        let types = scalars.iter().map(|&scalar| schedule.ty(scalar).dtype).collect();
        schedule.effect(&mut program.ops, self.loc, Publish { scalars });
        let peer = program.peer(schedule);
        let yields = program.loads(schedule, body, &args, peer.as_ref());
        let body = Block { args: args.flatten(), ops: program.ops, yields: yields.flatten() };
        let work_tiles = WorkTiles {
            role: Role::Producer,
            dynamic: self.pipeline.is_dynamic,
            inits,
            address: self.pipeline.work_tiles,
            body,
            scalars: types,
        };
        schedule.effect(&mut ops, self.loc, work_tiles);
        Block { args: vec![], ops, yields: vec![] }
    }
}

impl ProducerProgram<'_> {
    /// A scalar in the producer: computed here if it is not known.
    fn scalar(&mut self, schedule: &mut Schedule, value: Value) -> Value {
        if !self.copies.contains(value)
            && let Some(&op) = self.definitions.get(&value)
        {
            for operand in op.kind.operation().operands() {
                self.scalar(schedule, operand);
            }
            let copy = self.copies.op(schedule, op);
            self.ops.push(copy);
        }
        self.copies.get(value)
    }

    /// The published quotients and remainders: one division for each pair of operands.
    fn tile_scalars(&mut self, schedule: &mut Schedule) -> Vec<Value> {
        let mut known: HashMap<[Value; 2], Value> = HashMap::new();
        let loc = self.by.loc;
        let mut scalars = vec![];
        for &value in &self.by.pipeline.tile_scalars {
            let Kind::Scalar(Scalar { op: row, args, .. }) = &self.definitions[&value].kind else {
                unreachable!("quotients are scalar operations");
            };
            let (arith, pair) = (row.arith, [args[0], args[1]]);
            let ty = schedule.ty(value).clone();
            let [dividend, divisor] = pair.map(|operand| self.scalar(schedule, operand));
            let quotient = known.get(&pair).copied().unwrap_or_else(|| {
                schedule.one(&mut self.ops, loc, TileQuotient { dividend, divisor }, ty.clone())
            });
            known.insert(pair, quotient);
            let result = if arith == ArithKind::Rem {
                let whole = Scalar::new(binary(BinaryOp::Mul), vec![quotient, divisor]);
                let whole = schedule.one(&mut self.ops, loc, whole, ty.clone());
                let rest = Scalar::new(binary(BinaryOp::Sub), vec![dividend, whole]);
                schedule.one(&mut self.ops, loc, rest, ty)
            } else {
                quotient
            };
            schedule.set_origin(result, value);
            self.copies.insert(value, result);
            scalars.push(result);
        }
        scalars
    }

    /// What the program shares with that of the other block of its cluster, if loads may be multicast.
    fn peer(&mut self, schedule: &mut Schedule) -> Option<Peer> {
        let pipeline = self.by.pipeline;
        if !pipeline.has_multicast() {
            return None;
        }
        let mut inner = ProducerProgram {
            by: self.by,
            definitions: self.definitions.clone(),
            ops: vec![],
            copies: Copies::default(),
        };
        let (mut counts, mut names, mut yields) = (vec![], vec![], vec![]);
        for (which, ring) in pipeline.rings.iter().enumerate() {
            for (index, load) in ring.loads.iter().enumerate().filter(|(_, load)| load.multicast) {
                let fixed: Vec<Value> = load
                    .tile
                    .offsets
                    .iter()
                    .copied()
                    .filter(|&offset| !depends_on(offset, ring.variable, &self.definitions))
                    .collect();
                counts.push(fixed.len());
                names.push((which, index));
                yields.extend(fixed.into_iter().map(|offset| inner.scalar(schedule, offset)));
            }
        }
        let offsets = Block { args: vec![], ops: inner.ops, yields };
        let flags = vec![Type::scalar(DType::Bool); 1 + counts.len()];
        let results = schedule.push(&mut self.ops, self.by.loc, PeerShares { offsets, counts }, &flags);
        Some(Peer { missing: results[0], shared: names.into_iter().zip(results[1..].to_vec()).collect() })
    }

    /// The loads of a program; gives the pipeline states behind them.
    fn loads(&mut self, schedule: &mut Schedule, body: &Block, pipes: &Pipes, peer: Option<&Peer>) -> Pipes {
        let mut pipes = pipes.clone();
        let (pipeline, loc) = (self.by.pipeline, self.by.loc);
        for (index, load) in pipeline.resident.iter().enumerate() {
            let [full, empty] = self.by.resident_stage(index, &pipes);
            let tile = self.view_tile(schedule, &load.tile);
            schedule.effect(&mut self.ops, loc, MbarWait { barrier: empty });
            schedule.effect(&mut self.ops, loc, ExpectTx { barrier: full, bytes: load.bytes });
            let to = Stage { buffer: self.by.buffers.resident[index], pipe: resident_pipe(&pipes) };
            let copy = TmaLoad { tile, to, signal: full.buffer, map: load.map, shared: None };
            schedule.effect(&mut self.ops, loc, copy);
        }
        for op in &body.ops {
            if let Kind::For(body) = &op.kind {
                self.ring_loop(schedule, body, &mut pipes, peer);
            }
        }
        pipes.resident = pipes
            .resident
            .map(|pipe| schedule.one(&mut self.ops, loc, PipeNext { pipe }, schedule.ty(pipe).clone()));
        pipes
    }

    /// A view tile with its offsets in the producer.
    fn view_tile(&mut self, schedule: &mut Schedule, tile: &ViewTile) -> ViewTile {
        let offsets = tile.offsets.iter().map(|&offset| self.scalar(schedule, offset)).collect();
        ViewTile { offsets, ..tile.clone() }
    }

    /// The loads of a loop's ring, if it has one; leaves the pipeline state behind them.
    fn ring_loop(&mut self, schedule: &mut Schedule, body: &For, pipes: &mut Pipes, peer: Option<&Peer>) {
        let Some(which) = self.by.ring_of(body.body.args[0]) else { return };
        let pipe = pipes.rings[which];
        let (ring, loc) = (&self.by.pipeline.rings[which], self.by.loc);
        let [low, high, step] = [body.low, body.high, body.step].map(|value| self.scalar(schedule, value));
        let index_type = Type::scalar(DType::I64);
        let trip_count = TripCount { low, high, step, closed: body.closed, runs: schedule.runs(body) };
        let trip_count = schedule.one(&mut self.ops, loc, trip_count, index_type.clone());
        self.invariants(schedule, ring);
        let narrow = counts_in_32_bits(schedule, ring.variable);
        let zero = Constant { value: ConstantValue::Int(0) };
        let zero = schedule.one(&mut self.ops, loc, zero, index_type.clone());
        let (index, state) = (schedule.value(index_type), schedule.value(schedule.ty(pipe).clone()));
        let copies = self.copies.clone();
        let before = std::mem::take(&mut self.ops);
        let variable = schedule.copy_of(ring.variable);
        self.ops.push(Op { kind: Induction { index, low, step }.into(), results: vec![variable], loc });
        self.copies.insert(ring.variable, variable);
        for (group, loads) in ring.barrier_groups().into_iter().enumerate() {
            self.stage_loads(schedule, (which, group), &loads, Stage { buffer: index, pipe: state }, peer);
        }
        let next = PipeNext { pipe: state };
        let next = schedule.one(&mut self.ops, loc, next, schedule.ty(state).clone());
        let ops = std::mem::replace(&mut self.ops, before);
        self.copies = copies;
        let body = Block { args: vec![index, state], ops, yields: vec![next] };
        let whole = Loop { first: zero, end: trip_count, inits: vec![pipe], body, narrow, overlapped: false };
        let ty = schedule.ty(pipe).clone();
        pipes.rings[which] = schedule.one(&mut self.ops, loc, whole, ty);
    }

    /// The loads of a barrier group in an iteration. `at` has the index of the iteration and the pipeline state.
    fn stage_loads(
        &mut self,
        schedule: &mut Schedule,
        (which, group): (usize, usize),
        loads: &[usize],
        at: Stage,
        peer: Option<&Peer>,
    ) {
        let (ring, loc) = (&self.by.pipeline.rings[which], self.by.loc);
        let Stage { buffer: iteration, pipe } = at;
        let [full, empty] = self.by.ring_stage(which, group, pipe);
        if let Some(peer) = peer.filter(|_| ring.has_multicast()) {
            let arrive = MbarArriveForPeer { barrier: empty, missing: peer.missing, iteration };
            schedule.effect(&mut self.ops, loc, arrive);
        }
        let bytes = loads.iter().map(|&load| ring.loads[load].bytes).sum();
        schedule.effect(&mut self.ops, loc, MbarWait { barrier: empty });
        schedule.effect(&mut self.ops, loc, ExpectTx { barrier: full, bytes });
        for &index in loads {
            let load = &ring.loads[index];
            let tile = self.view_tile(schedule, &load.tile);
            let to = Stage { buffer: self.by.buffers.rings[which][index], pipe };
            let shared = peer.and_then(|peer| peer.shared.get(&(which, index)).copied());
            let copy = TmaLoad { tile, to, signal: full.buffer, map: load.map, shared };
            schedule.effect(&mut self.ops, loc, copy);
        }
    }

    /// Computes the part of the offsets that does not depend on the loop variable: the producer has little time for an iteration.
    fn invariants(&mut self, schedule: &mut Schedule, ring: &TmaRing) {
        let offsets = ring.loads.iter().flat_map(|load| &load.tile.offsets);
        let mut todo: Vec<Value> = offsets.copied().collect();
        todo.reverse();
        let mut visited = HashSet::new();
        while let Some(value) = todo.pop() {
            if !visited.insert(value) {
                continue;
            }
            if !depends_on(value, ring.variable, &self.definitions) {
                self.scalar(schedule, value);
            } else if let Some(op) = self.definitions.get(&value) {
                todo.extend(op.kind.operation().operands().into_iter().rev());
            }
        }
    }
}
