//! The thread that copies blocks, and what it and the warps that multiply tell each other.

use std::collections::{HashMap, HashSet};

use super::multicast::{Peer, load_box, multicast_box};
use super::tile_scheduler::ANNOUNCED;
use super::{
    BarrierPair, COPYING_REGISTERS, DotBuffers, FIRST_BATON, MANY_HELD, MmaOrder, PipelineState,
    REGISTER_STEP, SIGNAL, TmaLoad, TmaPipeline, TmaRing, registers_of_each, varies,
};
use crate::gpu::emit::barrier::{block_barrier, init_signals, warp_barrier};
use crate::gpu::emit::dot::wgmma::OperandWords;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::opt::select_wgmma::{GROUP_WARPS, LINE, MAX_EXTENT};
use crate::ir::{Op, Value};
use crate::mlir::Limit;
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::shared::{loop_variable, trip_count};
use crate::mlir::types::{Elem, Ty};
use crate::ops::{For, Kind, OperandA, SmemOperand, WarpGroupDot};

/// What threads of a program may have when those beside them have given theirs away. All start with the same number, as
/// many as fit or as the user allows, and what they have together does not grow: `copying` is what is left to others.
/// `None` where one group has enough, or nobody anything to give.
fn multiplying_registers(groups: u32, most: Option<u32>, copying: u32) -> Option<u32> {
    let all = groups + 1;
    let fitting = registers_of_each(all * GROUP_WARPS * 32);
    let first = fitting.min(most.unwrap_or(fitting)) / REGISTER_STEP * REGISTER_STEP;
    let shared = |given: u32| (first + given / groups) / REGISTER_STEP * REGISTER_STEP;
    first.checked_sub(copying).filter(|_| groups > 1).map(shared)
}

/// Lets each thread of a group have so many registers from here on.
fn change_registers(b: &mut Builder, change: &str, registers: u32) {
    statement(b, &format!("setmaxnreg.{change}.sync.aligned.u32 {registers};"), "~{memory}", &[], &[]);
}

/// The most tensor maps that are asked for ahead: the addresses of four cost attention, which is long, registers that it has not.
const PREFETCHED: usize = 3;

impl Gpu<'_> {
    /// Runs `consume` in the program's warps, and copies in the one beside them.
    pub(in crate::gpu::emit) fn with_pipeline(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        consume: impl FnOnce(&mut Self, &mut Builder),
    ) {
        self.set_up(b, pipeline);
        self.await_predecessor(b);
        let warp = self.uniform(b, self.block_warp);
        let num_warps = self.plan.distributed.num_warps;
        let consumers = b.int(Ty::I32, i64::from(num_warps));
        let beside = b.icmp(IntPredicate::Uge, warp, consumers);
        let most = self.plan.limit.and_then(Limit::registers);
        let multiplying = |copying| multiplying_registers(num_warps / GROUP_WARPS, most, copying);
        let mut copying = COPYING_REGISTERS[usize::from(self.most_held() >= MANY_HELD)];
        let registers = multiplying(copying);
        // More where they are of no use to the others.
        while registers.is_some() && multiplying(copying + REGISTER_STEP) == registers {
            copying += REGISTER_STEP;
        }
        let mut consume = Some(consume);
        b.branch(beside, &[], |b, arm| {
            match arm {
                BranchArm::Then => {
                    registers.iter().for_each(|_| change_registers(b, "dec", copying));
                    let copies = b.icmp(IntPredicate::Eq, warp, consumers);
                    b.if_then(copies, |b| {
                        let text =
                            "{\n.reg .pred chosen;\nelect.sync _|chosen, -1;\nselp.b32 $0, 1, 0, chosen;\n}";
                        let chosen = statement(b, text, "=r", &[], &[Ty::I32])[0];
                        let zero = b.int(Ty::I32, 0);
                        let chosen = b.icmp(IntPredicate::Ne, chosen, zero);
                        b.if_then(chosen, |b| {
                            self.scope(|gpu| {
                                gpu.announced_programs(b, pipeline);
                            });
                        });
                    });
                }
                BranchArm::Else => {
                    registers.iter().for_each(|&registers| change_registers(b, "inc", registers));
                    let consume = consume.take().expect("each arm is built once");
                    if self.alternates() {
                        self.take_turns(b, MmaOrder::First);
                    }
                    self.scope(|gpu| gpu.programs(b, pipeline, consume));
                    self.await_departure(b);
                }
            }
            self.sync_cluster(b);
            vec![]
        });
    }

    /// The most words of a left factor that a thread may hold.
    fn most_held(&self) -> u32 {
        let mut most = 0;
        self.func.body.walk(&mut |op| {
            if let Kind::WarpGroupDot(dot) = &op.kind
                && let OperandA::Staged(staged) = &dot.a
                && self.plan.pipeline().find(&staged.window).0.is_none()
            {
                let words = self.words_to_hold(staged, self.func.ty(op.results[0]).shape[0]);
                most = most.max(words.unwrap_or(0));
            }
        });
        most
    }

    /// Makes the barrier objects, in each list those of what came followed by as many of what was used, and asks for the tensor maps where
    /// they are few: the first copy by one would wait for it.
    fn set_up(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let warps = self.plan.distributed.num_warps;
        let base = self.scratch();
        self.read_cluster_size(b, pipeline);
        // Where they start, how many say what came, and how many of those that say what was used are made here.
        let rings = pipeline.rings.iter().map(|ring| {
            let count = ring.stages * ring.lots().len() as u32;
            (ring.signals, count, if ring.has_multicast() { 0 } else { count })
        });
        let once = pipeline.parts * pipeline.once.len() as u32;
        let own = (pipeline.signals, once, once);
        let announced = (pipeline.announcements + ANNOUNCED * pipeline.announcement(), ANNOUNCED, ANNOUNCED);
        let signals = rings.chain([own, announced]).flat_map(|(start, count, let_go)| {
            let came = (0..count).map(move |i| (start + i * SIGNAL, 1));
            came.chain((0..let_go).map(move |i| (start + (count + i) * SIGNAL, warps)))
        });
        let all = self.plan.threads() / 32;
        let first = self.first_of(b, 31, all.next_power_of_two() - 1);
        let maps = if self.maps.len() <= PREFETCHED { self.maps.clone() } else { vec![] };
        b.guarded(first, |b| {
            for map in maps {
                statement(b, "prefetch.tensormap [$0];", "l,~{memory}", &[map], &[]);
            }
            for ring in &pipeline.rings {
                self.init_empty_barriers(b, ring, warps);
            }
            init_signals(b, base, signals);
        });
        block_barrier(b);
        self.sync_cluster(b);
    }

    // ---- rings

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
        let first = b.offset_bytes(self.scratch(), start as i32);
        let bytes = b.int(Ty::I32, i64::from(bytes));
        let distance = b.mul_nsw(number, bytes);
        b.offset(first, distance, 1)
    }

    /// Those of a lot of a ring's blocks.
    fn ring_signals(&self, b: &mut Builder, ring: &TmaRing, lot: usize, turn: PipelineState) -> BarrierPair {
        let own = ring.signals + SIGNAL * ring.stages * lot as u32;
        let apart = SIGNAL * ring.stages * ring.lots().len() as u32;
        let full = self.at(b, own, turn.part, SIGNAL);
        BarrierPair { full, empty: b.offset_bytes(full, apart as i32) }
    }

    fn own_signals(&self, b: &mut Builder, pipeline: &TmaPipeline, number: usize) -> BarrierPair {
        let own = pipeline.signals + SIGNAL * pipeline.parts * number as u32;
        let apart = SIGNAL * pipeline.parts * pipeline.once.len() as u32;
        let full = self.at(b, own, self.own_turn().part, SIGNAL);
        BarrierPair { full, empty: b.offset_bytes(full, apart as i32) }
    }

    /// The place of what is copied once for the present program.
    fn own_turn(&self) -> PipelineState {
        self.progress.once.expect("programs are counted")
    }

    pub(super) fn await_phase(&self, b: &mut Builder, signal: Val, parity: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,r,~{memory}", &[signal, parity], &[]);
    }

    // ---- the thread that copies

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
            op.kind.gpu().emit(self, b, op);
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
        let map = &self.plan.maps()[copy.map];
        let across = *map.block.last().expect("a view has an axis");
        let outer = map.block.len() - 2;
        let (rows, columns) = (map.block[outer], copy.window.extents[outer + 1]);
        let mut pieces = vec![];
        for piece in 0..columns / across {
            let place = b.offset_bytes(to, (piece * rows * LINE) as i32);
            let mut at = vec![place, self.maps[copy.map], full];
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
                    BranchArm::Then => multicast_box(b, shared, at, [rows, LINE]),
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
        let [least, most] = [i32::MIN.into(), MAX_EXTENT].map(|limit| b.int(Ty::I64, limit));
        let offset = b.op("llvm.intr.smax", &[offset, least], Ty::I64);
        let offset = b.op("llvm.intr.smin", &[offset, most], Ty::I64);
        b.trunc(offset, Elem::I32)
    }

    // ---- the warps that multiply

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
                    self.came.insert(number);
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
            || self.held.contains_key(&number)
            || pipeline.once[number].within != Some(body.body.args[0])
        {
            return;
        }
        let Some(words) = self.loaded_words(b, staged, self.func.ty(op.results[0]).shape[0]) else { return };
        self.held.insert(number, words);
        warp_barrier(b);
        let BarrierPair { empty, .. } = self.own_signals(b, pipeline, number);
        self.arrive(b, empty);
    }

    fn await_own(&mut self, b: &mut Builder, number: usize) {
        if !self.came.contains(&number) {
            let BarrierPair { full, .. } = self.own_signals(b, self.plan.pipeline(), number);
            self.await_phase(b, full, self.own_turn().parity);
        }
    }

    /// The words of a left factor that is held in registers.
    pub(in crate::gpu::emit) fn held_words(&self, staged: &SmemOperand) -> Option<&OperandWords> {
        let (None, number) = self.plan.pipeline().find(&staged.window) else { return None };
        self.held.get(&number)
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
        let base = b.op("llvm.ptrtoint", &[self.scratch()], Ty::I32);
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
            if self.held.contains_key(&number) {
                continue;
            }
            let BarrierPair { empty, .. } = self.own_signals(b, pipeline, number);
            self.arrive(b, empty);
        }
    }

    /// Lets the groups of warps multiply in turn.
    pub(in crate::gpu::emit) fn take_turns(&mut self, b: &mut Builder, change: MmaOrder) {
        let groups = self.plan.distributed.num_warps / GROUP_WARPS;
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
        let text = format!("bar.{word} $0, {};", 2 * GROUP_WARPS * 32);
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
