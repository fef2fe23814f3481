//! Blocks of views on their way to shared memory.
//!
//! A warp of a group beside those of the program has the GPU copy the blocks that products take ([`GroupDot`]). What a
//! loop takes anew in each turn goes to a ring of as many parts as there are stages; anything else is copied once for a
//! program, to a place of its own. Each place has two barrier objects: a phase of the first ends when the block has come,
//! and one of the second when every warp has multiplied by it. The copying warp computes by itself how often loops run and
//! where blocks begin.
//!
//! Where all programs take as long, a block runs one after the other: the copies of the next one are under way while the
//! last one's results are stored.

use std::collections::{HashMap, HashSet};

use super::shared::{Interval, SIGNAL};
use super::{Builder, Exchange, Gpu, IntPredicate, statement};
use crate::analysis::stage::{GROUP_WARPS, LINE};
use crate::layout::Distributed;
use crate::mlir::builder::{Arm, Val};
use crate::mlir::shared::{loop_variable, trip_count};
use crate::mlir::types::{Elem, Ty};
use crate::ops::{For, GroupDot, Kind, Staged, Window};
use crate::tile::{Block, Func, Op, ParamId, Value};

/// Shared memory that a block may ask for where there are copies of this kind.
pub(super) const MAX_BYTES: u32 = 227 * 1024;
/// Turns whose blocks are under way at once where the user does not say.
const STAGES: u32 = 4;
/// The warps of the group of which one copies.
pub(super) const WARPS: u32 = GROUP_WARPS;
/// Registers of a multiprocessor.
const REGISTERS: u32 = 64 * 1024;
/// A warp's threads get so many together.
const REGISTER_STEP: u32 = 8;
/// Registers of a thread that copies.
const COPYING_REGISTERS: u32 = 40;
/// What a block's address in shared memory divides by.
const ALIGNMENT: u32 = 1024;

/// By which the GPU finds the elements of a block: of a view, and so many of its elements along each axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    pub memory: ParamId,
    pub block: Vec<u32>,
}

/// A block to be copied.
#[derive(Clone, Debug)]
struct Transfer {
    window: Window,
    bytes: u32,
    map: usize,
    /// From the start of its part of a ring, or of shared memory.
    start: u32,
    /// The result of the last product that takes it, of those in a turn.
    last: Value,
    /// The variable of the loop that this product stands in.
    within: Option<Value>,
}

/// What is copied, and where to.
#[derive(Clone, Default, Debug)]
pub(super) struct Pipeline {
    /// Copied once for each program.
    once: Vec<Transfer>,
    rings: Vec<Ring>,
    pub maps: Vec<TensorMap>,
    /// Whether a block runs several programs, one after the other.
    pub persistent: bool,
    /// Where the barrier objects of what is copied once are.
    signals: u32,
    /// All places of blocks.
    place: Interval,
}

/// What a loop takes in each turn.
#[derive(Clone, Debug)]
struct Ring {
    variable: Value,
    copies: Vec<Transfer>,
    stages: u32,
    start: u32,
    signals: u32,
}

impl Ring {
    /// Bytes of one part.
    fn turn(&self) -> u32 {
        self.copies.iter().map(|copy| copy.bytes).sum()
    }

    fn bytes(&self) -> u32 {
        self.turn() * self.stages
    }
}

/// The barrier objects of a block: that it came, and that it was used.
#[derive(Clone, Copy)]
struct Signals {
    full: Val,
    empty: Val,
}

/// What a group of warps does about the turn to multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Baton {
    /// The last group lets the first one begin.
    First,
    /// Waits until the group before lets this one begin.
    Take,
    /// Lets the next one begin.
    Pass,
}

/// The number of the first group's barrier: 0 is the block's and 1 the program's.
const FIRST_BATON: u32 = 2;

/// Where the copies are: what a warp that copies and the others count alike.
#[derive(Clone, Default)]
pub(super) struct Progress {
    /// The next turn of the ring of the loop with this variable.
    turns: HashMap<Value, Turn>,
    /// The parity of what is copied once for a program.
    once: Option<Val>,
}

/// The part of a ring that is next, and the parity of the phase that is waited for there.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub part: Val,
    pub parity: Val,
}

impl Pipeline {
    /// `None` where nothing is to be copied.
    pub fn new(distributed: &Distributed) -> Option<Pipeline> {
        let mut pipeline = Pipeline::default();
        let definitions = definitions(&distributed.func);
        pipeline.block(distributed, &distributed.func.body, None, &definitions);
        let rings = pipeline.rings.iter().map(|ring| ring.variable).collect::<Vec<_>>();
        pipeline.persistent = distributed.func.body.ops.iter().all(|op| {
            let Kind::For(body) = &op.kind else { return true };
            let bounds = [body.low, body.high, body.step];
            !rings.contains(&body.body.args[0]) || !bounds.iter().any(|&bound| differs(bound, &definitions))
        });
        (!pipeline.maps.is_empty()).then_some(pipeline)
    }

    fn block(
        &mut self,
        distributed: &Distributed,
        block: &Block,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        for op in &block.ops {
            if let Kind::GroupDot(dot) = &op.kind {
                for staged in dot.staged() {
                    self.copy(distributed, staged, op, body, definitions);
                }
            }
            if let Kind::For(body) = &op.kind {
                self.block(distributed, &body.body, Some(body), definitions);
            }
        }
    }

    fn copy(
        &mut self,
        distributed: &Distributed,
        staged: &Staged,
        op: &Op,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let window = &staged.window;
        let moves =
            |body: &&For| window.offsets.iter().any(|&offset| varies(offset, body.body.args[0], definitions));
        let list = match body.filter(moves) {
            Some(body) => self.ring(distributed, body),
            None => &mut self.once,
        };
        let (last, within) = (op.results[0], body.map(|body| body.body.args[0]));
        if let Some(known) = list.iter_mut().find(|copy| copy.window == *window) {
            (known.last, known.within) = (last, within);
            return;
        }
        let elem = distributed.func.slice(window.memory).0.bytes();
        let [rows, columns] = staged.lines();
        let bytes = rows * columns * elem;
        list.push(Transfer { window: window.clone(), bytes, map: 0, start: 0, last, within });
        let mut block = vec![1; window.extents.rank()];
        let rank = block.len();
        (block[rank - 2], block[rank - 1]) = (rows, LINE / elem);
        let map = TensorMap { memory: window.memory, block };
        let number = self.maps.iter().position(|known| *known == map).unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        });
        self.copies_mut().filter(|copy| copy.window == *window).for_each(|copy| copy.map = number);
    }

    fn copies_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.once.iter_mut().chain(self.rings.iter_mut().flat_map(|ring| &mut ring.copies))
    }

    /// The copies of a loop.
    fn ring(&mut self, distributed: &Distributed, body: &For) -> &mut Vec<Transfer> {
        let variable = body.body.args[0];
        let place = self.rings.iter().position(|ring| ring.variable == variable).unwrap_or_else(|| {
            let asked = body.hints.num_stages.or(distributed.num_stages);
            let stages = asked.unwrap_or(STAGES).max(1);
            self.rings.push(Ring { variable, copies: vec![], stages, start: 0, signals: 0 });
            self.rings.len() - 1
        });
        &mut self.rings[place].copies
    }

    /// Finds places for the blocks, behind so many bytes of scratch memory, and under those that are used when no block of
    /// a ring is needed any more. Gives all bytes; there may be fewer stages than asked for, and too little room for one.
    pub fn place(&mut self, [first, last]: [u32; 2]) -> u32 {
        // The next program's blocks come while this one's results leave.
        let scratch = if self.persistent { [first.max(last); 2] } else { [first, last] };
        loop {
            let bytes = self.placed(scratch);
            let largest =
                self.rings.iter_mut().filter(|ring| ring.stages > 1).max_by_key(|ring| ring.bytes());
            match largest {
                Some(ring) if bytes > MAX_BYTES => ring.stages -= 1,
                _ => return bytes,
            }
        }
    }

    fn placed(&mut self, [first, last]: [u32; 2]) -> u32 {
        let start = first.next_multiple_of(ALIGNMENT);
        let mut next = start;
        for ring in &mut self.rings {
            ring.start = next;
            next += ring.bytes();
            let mut start = 0;
            for copy in &mut ring.copies {
                copy.start = start;
                start += copy.bytes;
            }
        }
        // What is copied once may be under way to the end of a loop that does not run.
        self.place = Interval { start, bytes: next - start };
        next = next.max(last).next_multiple_of(ALIGNMENT);
        for copy in &mut self.once {
            copy.start = next;
            next += copy.bytes;
        }
        for ring in &mut self.rings {
            ring.signals = next;
            next += 2 * SIGNAL * ring.stages * ring.copies.len() as u32;
        }
        self.signals = next;
        next + 2 * SIGNAL * self.once.len() as u32
    }

    /// Where the copy of a window is: in the ring of a loop, or in a place of its own.
    fn find(&self, window: &Window) -> (Option<&Ring>, usize) {
        let of = |copies: &[Transfer]| copies.iter().position(|copy| copy.window == *window);
        let ringed = self.rings.iter().find_map(|ring| Some((Some(ring), of(&ring.copies)?)));
        ringed.unwrap_or_else(|| (None, of(&self.once).expect("a block of a product is copied")))
    }

    fn ring_of(&self, variable: Value) -> Option<&Ring> {
        self.rings.iter().find(|ring| ring.variable == variable)
    }

    /// Whether the blocks of a turn can come while those of the turn before it are still in use.
    pub fn overlaps(&self, body: &For) -> bool {
        self.ring_of(body.body.args[0]).is_some_and(|ring| ring.stages > 1)
    }

    /// The loop's ring takes turns.
    pub fn turns(&self, body: &For) -> bool {
        self.ring_of(body.body.args[0]).is_some()
    }

    /// Before the first program; who fills the places finds them empty.
    fn start(&self, b: &mut Builder, fills: bool) -> Progress {
        let [part, parity] = [0, i64::from(fills)].map(|number| b.int(Ty::I32, number));
        let turns = self.rings.iter().map(|ring| (ring.variable, Turn { part, parity })).collect();
        Progress { turns, once: Some(parity) }
    }

    fn flat(&self, progress: &Progress) -> Vec<Val> {
        let turns = self.rings.iter().flat_map(|ring| progress.turns[&ring.variable].flat());
        turns.chain(progress.once).collect()
    }

    fn progress(&self, flat: &[Val]) -> Progress {
        let variables = self.rings.iter().map(|ring| ring.variable);
        let turns =
            variables.zip(flat.chunks(2)).map(|(variable, turn)| (variable, Turn::of(turn))).collect();
        Progress { turns, once: flat.last().copied() }
    }
}

impl Turn {
    pub fn flat(self) -> [Val; 2] {
        [self.part, self.parity]
    }

    pub fn of(flat: &[Val]) -> Turn {
        Turn { part: flat[0], parity: flat[1] }
    }
}

/// What defines each value.
fn definitions(func: &Func) -> HashMap<Value, &Op> {
    fn visit<'f>(block: &'f Block, map: &mut HashMap<Value, &'f Op>) {
        for op in &block.ops {
            map.extend(op.results.iter().map(|&result| (result, op)));
            op.kind.operation().blocks().into_iter().for_each(|block| visit(block, map));
        }
    }
    let mut map = HashMap::new();
    visit(&func.body, &mut map);
    map
}

/// A value and all that it is computed from.
fn sources(value: Value, definitions: &HashMap<Value, &Op>) -> HashSet<Value> {
    let mut found = HashSet::new();
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        if found.insert(value) {
            todo.extend(definitions.get(&value).iter().flat_map(|op| op.kind.operation().operands()));
        }
    }
    found
}

/// Whether a scalar is another one in other programs.
fn differs(value: Value, definitions: &HashMap<Value, &Op>) -> bool {
    sources(value, definitions)
        .iter()
        .filter_map(|value| definitions.get(value))
        .any(|op| matches!(op.kind, Kind::ProgramId(_)) || op.kind.operation().place().is_some())
}

/// Whether a scalar is computed from a loop's variable.
fn varies(value: Value, variable: Value, definitions: &HashMap<Value, &Op>) -> bool {
    sources(value, definitions).contains(&variable)
}

/// What threads of a program may have when those beside them have given theirs away. All start with the same number, as
/// many as fit or as the user allows, and what they have together does not grow. `None` where one group has enough, or
/// nobody anything to give.
fn multiplying_registers(groups: u32, most: Option<u32>) -> Option<u32> {
    let all = groups + 1;
    let fitting = REGISTERS / (all * GROUP_WARPS * 32);
    let first = fitting.min(most.unwrap_or(fitting)) / REGISTER_STEP * REGISTER_STEP;
    let shared = |given: u32| (first + given / groups) / REGISTER_STEP * REGISTER_STEP;
    first.checked_sub(COPYING_REGISTERS).filter(|_| groups > 1).map(shared)
}

/// Lets each thread of a group have so many registers from here on.
fn change_registers(b: &mut Builder, change: &str, registers: u32) {
    statement(b, &format!("setmaxnreg.{change}.sync.aligned.u32 {registers};"), "~{memory}", &[], &[]);
}

impl Gpu<'_> {
    /// Runs `consume` in the program's warps, and copies in the one beside them.
    pub(super) fn with_pipeline(
        &mut self,
        b: &mut Builder,
        pipeline: &Pipeline,
        consume: impl FnOnce(&mut Self, &mut Builder),
    ) {
        self.set_up(b, pipeline);
        let zero = b.int(Ty::I32, 0);
        // ptxas knows that a number is the same in all lanes only if it comes from a shuffle.
        let warp = self.shuffle(b, self.block_warp, Exchange::Index, zero);
        let num_warps = self.plan.distributed.num_warps;
        let consumers = b.int(Ty::I32, i64::from(num_warps));
        let beside = b.icmp(IntPredicate::Uge, warp, consumers);
        let registers = multiplying_registers(num_warps / GROUP_WARPS, self.plan.maxnreg);
        let mut consume = Some(consume);
        b.branch(beside, &[], |b, arm| {
            match arm {
                Arm::Then => {
                    registers.iter().for_each(|_| change_registers(b, "dec", COPYING_REGISTERS));
                    let copies = b.icmp(IntPredicate::Eq, warp, consumers);
                    b.if_then(copies, |b| {
                        let text =
                            "{\n.reg .pred chosen;\nelect.sync _|chosen, -1;\nselp.b32 $0, 1, 0, chosen;\n}";
                        let chosen = statement(b, text, "=r", &[], &[Ty::I32])[0];
                        let zero = b.int(Ty::I32, 0);
                        let chosen = b.icmp(IntPredicate::Ne, chosen, zero);
                        b.if_then(chosen, |b| {
                            self.scope(|gpu| {
                                gpu.programs(b, pipeline, true, |gpu, b| gpu.produce(b, pipeline))
                            });
                        });
                    });
                }
                Arm::Else => {
                    registers.iter().for_each(|&registers| change_registers(b, "inc", registers));
                    let consume = consume.take().expect("each arm is built once");
                    if self.alternates() {
                        self.take_turns(b, Baton::First);
                    }
                    self.scope(|gpu| gpu.programs(b, pipeline, false, consume));
                }
            }
            vec![]
        });
    }

    /// Runs the block's programs.
    fn programs(
        &mut self,
        b: &mut Builder,
        pipeline: &Pipeline,
        fills: bool,
        run: impl FnOnce(&mut Self, &mut Builder),
    ) {
        let start = pipeline.start(b, fills);
        if !pipeline.persistent {
            self.progress = start;
            return run(self, b);
        }
        let own = self.program;
        let [x, y, z] = self.grid.map(|extent| b.zext(extent, Elem::I64));
        let row = b.mul(x, y);
        let all = b.mul(row, z);
        let first = b.zext(own[0], Elem::I64);
        let step = b.op("nvvm.read.ptx.sreg.nctaid.x", &[], Ty::I32);
        let step = b.zext(step, Elem::I64);
        b.for_range([first, all, step], &pipeline.flat(&start), |b, index, progress| {
            self.scope(|gpu| {
                let rows = b.udiv(index, x);
                let numbers = [b.urem(index, x), b.urem(rows, y), b.udiv(rows, y)];
                gpu.program = numbers.map(|number| b.trunc(number, Elem::I32));
                gpu.progress = pipeline.progress(progress);
                if fills {
                    run(gpu, b);
                } else {
                    gpu.anew(b, |gpu, b| run(gpu, b));
                    gpu.barrier(b);
                }
                let one = b.int(Ty::I32, 1);
                gpu.progress.once = gpu.progress.once.map(|parity| b.xor(parity, one));
                pipeline.flat(&gpu.progress)
            })
        });
        self.program = own;
    }

    fn set_up(&mut self, b: &mut Builder, pipeline: &Pipeline) {
        let warps = self.plan.distributed.num_warps;
        let base = self.scratch();
        let first = self.first_of(b, 31, 2 * warps - 1);
        b.guarded(first, |b| {
            let mut init = |place: u32, count: u32| {
                let signal = b.offset_bytes(base, place as i32);
                let text = format!("mbarrier.init.shared::cta.b64 [$0], {count};");
                statement(b, &text, "l,~{memory}", &[signal], &[]);
            };
            for ring in &pipeline.rings {
                let parts = ring.stages * ring.copies.len() as u32;
                (0..parts).for_each(|part| init(ring.signals + part * SIGNAL, 1));
                (parts..2 * parts).for_each(|part| init(ring.signals + part * SIGNAL, warps));
            }
            for number in 0..pipeline.once.len() as u32 {
                init(pipeline.signals + 2 * number * SIGNAL, 1);
                init(pipeline.signals + (2 * number + 1) * SIGNAL, warps);
            }
            statement(b, "fence.mbarrier_init.release.cluster;", "~{memory}", &[], &[]);
        });
        b.effect_with("nvvm.barrier", &[], &[("operandSegmentSizes", "array<i32: 0, 0, 0>")]);
    }

    // ---- rings

    /// The present turn of a loop's ring.
    pub(super) fn present_turn(&self, body: &For) -> Turn {
        self.progress.turns[&body.body.args[0]]
    }

    pub(super) fn set_turn(&mut self, body: &For, turn: Turn) {
        self.progress.turns.insert(body.body.args[0], turn);
    }

    /// The part after the present one of the loop's ring.
    pub(super) fn next_turn(&self, b: &mut Builder, pipeline: &Pipeline, body: &For, turn: Turn) -> Turn {
        let ring = pipeline.ring_of(body.body.args[0]).expect("the loop takes turns");
        let [zero, one, stages] = [0, 1, ring.stages].map(|number| b.int(Ty::I32, i64::from(number)));
        let after = b.add(turn.part, one);
        let around = b.icmp(IntPredicate::Eq, after, stages);
        let other = b.xor(turn.parity, one);
        Turn { part: b.select(around, zero, after), parity: b.select(around, other, turn.parity) }
    }

    /// `start + number * bytes` in shared memory.
    fn at(&self, b: &mut Builder, start: u32, number: Val, bytes: u32) -> Val {
        let first = b.offset_bytes(self.scratch(), start as i32);
        let bytes = b.int(Ty::I32, i64::from(bytes));
        let distance = b.mul_nsw(number, bytes);
        b.offset(first, distance, 1)
    }

    fn ring_signals(&self, b: &mut Builder, ring: &Ring, copy: usize, turn: Turn) -> Signals {
        let own = ring.signals + SIGNAL * ring.stages * copy as u32;
        let apart = SIGNAL * ring.stages * ring.copies.len() as u32;
        let full = self.at(b, own, turn.part, SIGNAL);
        Signals { full, empty: b.offset_bytes(full, apart as i32) }
    }

    fn own_signals(&self, b: &mut Builder, pipeline: &Pipeline, number: usize) -> Signals {
        let own = pipeline.signals + 2 * SIGNAL * number as u32;
        let [full, empty] = [own, own + SIGNAL].map(|place| b.offset_bytes(self.scratch(), place as i32));
        Signals { full, empty }
    }

    fn await_phase(&self, b: &mut Builder, signal: Val, parity: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,r,~{memory}", &[signal, parity], &[]);
    }

    // ---- the warp that copies

    fn produce(&mut self, b: &mut Builder, pipeline: &Pipeline) {
        let values = self.values.clone();
        let func = self.func;
        let definitions = definitions(func);
        for (number, copy) in pipeline.once.iter().enumerate() {
            let Signals { full, empty } = self.own_signals(b, pipeline, number);
            self.await_phase(b, empty, self.progress.once.expect("programs are counted"));
            let to = b.offset_bytes(self.scratch(), copy.start as i32);
            self.start_copy(b, copy, full, to, &definitions);
        }
        for op in &func.body.ops {
            if let Kind::For(body) = &op.kind
                && let Some(ring) = pipeline.ring_of(body.body.args[0])
            {
                self.fill(b, pipeline, (body, ring), &definitions);
            }
        }
        self.values = values;
    }

    /// Copies what a loop takes.
    fn fill(
        &mut self,
        b: &mut Builder,
        pipeline: &Pipeline,
        (body, ring): (&For, &Ring),
        definitions: &HashMap<Value, &Op>,
    ) {
        let [low, high, step] =
            [body.low, body.high, body.step].map(|value| self.evaluated(b, value, definitions));
        let (count, step) = trip_count(b, low, high, step);
        let first = self.present_turn(body);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let end = b.for_range([zero, count, one], &first.flat(), |b, index, carried| {
            self.scope(|gpu| {
                let values = gpu.values.clone();
                let turn = Turn::of(carried);
                let variable = loop_variable(b, index, low, step);
                gpu.define(ring.variable, vec![variable]);
                for (number, copy) in ring.copies.iter().enumerate() {
                    let Signals { full, empty } = gpu.ring_signals(b, ring, number, turn);
                    gpu.await_phase(b, empty, turn.parity);
                    let to = gpu.at(b, ring.start + copy.start, turn.part, ring.turn());
                    gpu.start_copy(b, copy, full, to, definitions);
                }
                gpu.values = values;
                gpu.next_turn(b, pipeline, body, turn).flat().to_vec()
            })
        });
        self.set_turn(body, Turn::of(&end));
    }

    /// A scalar, computed here if it is not known.
    fn evaluated(&mut self, b: &mut Builder, value: Value, definitions: &HashMap<Value, &Op>) -> Val {
        if !self.values.contains_key(&value) {
            let op = definitions[&value];
            for operand in op.kind.operation().operands() {
                self.evaluated(b, operand, definitions);
            }
            op.kind.gpu().emit(self, b, op);
        }
        self.scalar(value)
    }

    fn start_copy(
        &mut self,
        b: &mut Builder,
        copy: &Transfer,
        full: Val,
        to: Val,
        definitions: &HashMap<Value, &Op>,
    ) {
        let text = format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {};", copy.bytes);
        statement(b, &text, "l,~{memory}", &[full], &[]);
        // What lies further out than 32 bits say lies outside of the view just as well.
        let [least, most] = [i32::MIN, i32::MAX].map(|limit| b.int(Ty::I64, limit.into()));
        let offsets = copy.window.offsets.iter().map(|&offset| {
            let offset = self.evaluated(b, offset, definitions);
            let offset = b.op("llvm.intr.smax", &[offset, least], Ty::I64);
            let offset = b.op("llvm.intr.smin", &[offset, most], Ty::I64);
            b.trunc(offset, Elem::I32)
        });
        let mut offsets: Vec<Val> = offsets.collect();
        offsets.reverse();
        let rank = offsets.len();
        let names: Vec<String> = (0..rank).map(|axis| format!("${}", axis + 3)).collect();
        let text = format!(
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {{{}}}], [$2];",
            names.join(", ")
        );
        let constraints = format!("l,l,l{},~{{memory}}", ",r".repeat(rank));
        let map = &self.plan.maps()[copy.map];
        let across = *map.block.last().expect("a view has an axis");
        let columns = copy.window.extents[rank - 1];
        let lines = map.block[rank - 2] * LINE;
        for piece in 0..columns / across {
            let place = b.offset_bytes(to, (piece * lines) as i32);
            let mut own = offsets.clone();
            let distance = b.int(Ty::I32, i64::from(piece * across));
            own[0] = b.add(own[0], distance);
            let operands: Vec<Val> = [place, self.maps[copy.map], full].into_iter().chain(own).collect();
            statement(b, &text, &constraints, &operands, &[]);
        }
    }

    // ---- the warps that multiply

    /// Waits for a product's block; gives where it is.
    pub(super) fn awaited_block(&mut self, b: &mut Builder, staged: &Staged) -> Val {
        let pipeline = self.plan.pipeline();
        match pipeline.find(&staged.window) {
            (Some(ring), number) => {
                let turn = self.progress.turns[&ring.variable];
                let Signals { full, .. } = self.ring_signals(b, ring, number, turn);
                self.await_phase(b, full, turn.parity);
                self.at(b, ring.start + ring.copies[number].start, turn.part, ring.turn())
            }
            (None, number) => {
                let Signals { full, .. } = self.own_signals(b, pipeline, number);
                self.await_phase(b, full, self.progress.once.expect("programs are counted"));
                b.offset_bytes(self.scratch(), pipeline.once[number].start as i32)
            }
        }
    }

    /// Lets blocks be copied to where those were that a product took, if it is the last in its turn to take them.
    pub(super) fn release_blocks(&mut self, b: &mut Builder, dot: &GroupDot, op: &Op) {
        let pipeline = self.plan.pipeline();
        for staged in dot.staged() {
            match pipeline.find(&staged.window) {
                (Some(ring), number) if ring.copies[number].last == op.results[0] => {
                    let turn = self.progress.turns[&ring.variable];
                    let Signals { empty, .. } = self.ring_signals(b, ring, number, turn);
                    self.arrive(b, empty);
                }
                (None, number) if pipeline.once[number].last == op.results[0] => {
                    if pipeline.once[number].within.is_none() {
                        let Signals { empty, .. } = self.own_signals(b, pipeline, number);
                        self.arrive(b, empty);
                    }
                }
                _ => {}
            }
        }
        self.shared.read(pipeline.place);
    }

    /// The same of blocks that are copied once, and taken last in this loop.
    pub(super) fn release_own(&mut self, b: &mut Builder, pipeline: &Pipeline, body: &For) {
        let variable = Some(body.body.args[0]);
        for (number, _) in pipeline.once.iter().enumerate().filter(|(_, copy)| copy.within == variable) {
            let Signals { full, empty } = self.own_signals(b, pipeline, number);
            // Nobody has waited for it if the loop has not run.
            self.await_phase(b, full, self.progress.once.expect("programs are counted"));
            self.arrive(b, empty);
        }
    }

    /// Lets the groups of warps multiply in turn.
    pub(super) fn take_turns(&mut self, b: &mut Builder, change: Baton) {
        let groups = self.plan.distributed.num_warps / GROUP_WARPS;
        let [zero, one, within, last, first] = [0, 1, GROUP_WARPS.ilog2(), groups - 1, FIRST_BATON]
            .map(|number| b.int(Ty::I32, i64::from(number)));
        let group = b.lshr(self.warp, within);
        let group = self.shuffle(b, group, Exchange::Index, zero);
        let next = b.add(group, one);
        let next = b.and(next, last);
        let (which, word, condition) = match change {
            Baton::First => (next, "arrive", Some(b.icmp(IntPredicate::Eq, group, last))),
            Baton::Take => (group, "sync", None),
            Baton::Pass => (next, "arrive", None),
        };
        let number = b.add(which, first);
        let text = format!("bar.{word} $0, {};", 2 * GROUP_WARPS * 32);
        b.guarded(condition, |b| {
            statement(b, &text, "r,~{memory}", &[number], &[]);
        });
    }

    fn arrive(&self, b: &mut Builder, signal: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];";
        statement(b, text, "l,b,~{memory}", &[signal, first], &[]);
    }
}
