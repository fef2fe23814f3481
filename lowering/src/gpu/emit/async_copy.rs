//! Loads of a loop's later turns, under way before their turn comes.
//!
//! Each thread copies what it will need into shared memory of its own (`cp.async`), one turn less ahead than there are
//! stages, and reads it back when it is due. No thread reads what another one copied, so there is no barrier, and what
//! is under way takes no registers. The parts of the ring take turns: a copy goes where the turn before last was read.
//! A large ring has one part less, and a turn's own part is filled anew as soon as the turn has read it: a program that takes
//! one long row after the other has the next one under way so.
//!
//! What products alone read is copied to tiles that all threads read (`copied`). A turn then begins with a wait for its
//! own copies and one barrier: behind it every thread's copies of this turn have come, and no thread reads the part of
//! the turn before any more, where the copies of a later turn go.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::gpu::emit::address_slice::AddressSlice;
use crate::gpu::emit::memory::VectorWords;
use crate::gpu::emit::smem_alloc::SmemRing;
use crate::gpu::emit::smem_operand;
use crate::gpu::emit::smem_operand::{OperandStage, OperandTile, TileAddresses};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, MAX_SHARED_BYTES, MIN_SHARED_BYTES, statement};
use crate::gpu::layout::Distributed;
use crate::ir::{Block, Func, Op, Value};
use crate::mlir::builder::Val;
use crate::mlir::shared::{loop_variable, trip_count};
use crate::mlir::types::Ty;
use crate::ops::{Effect, EvictionPolicy, For, Kind, Load, Operation};
use crate::support::limits::MIN_ASYNC_COPY_BYTES;

/// Turns whose loads are in flight at once where the user does not say.
const STAGES: u32 = 4;
/// The largest ring that is ours to choose, for each thread and in all: enough threads should fit a multiprocessor.
const BYTES_PER_THREAD: u32 = 256;
const CHOSEN_BYTES: u32 = 64 * 1024;
/// Turns of a loop with tiles of products, where the user does not say.
const STAGES_OF_TILES: u32 = 3;
/// Where shared memory should end then, the best first: half of what there is, what every GPU has, all of it.
const LIMITS: [u32; 3] = [MAX_SHARED_BYTES / 2, MIN_SHARED_BYTES, MAX_SHARED_BYTES];
/// Up to this size a ring has a part to spare. Beyond, its memory serves better as a first-level cache, and the third of
/// three long rows that would be under way only waits for the others (docs/performance.md).
const SPARE: u32 = 64 * 1024;

/// What a loop copies ahead.
pub(super) struct CopyPlan<'a> {
    /// What the addresses are computed by, in the body's order.
    addresses: Vec<&'a Op>,
    /// What each thread copies for itself.
    loads: Vec<(&'a Op, &'a Load)>,
    /// What it copies for all, and where the tile starts in a turn's part.
    tiles: Vec<(&'a Op, &'a Load, u32)>,
    /// The first product of a tile, among whose instructions copies are started.
    product: Option<Value>,
    pub stages: u32,
    /// Whether the user said how many.
    asked: bool,
    /// Bytes of one turn.
    turn: u32,
    /// Parts of the ring: as many as stages, or one less.
    parts: u32,
}

/// Where a thread finds a load's elements: an address in shared memory, and the bytes after it.
#[derive(Clone, Copy)]
pub(super) struct BufferSlot {
    part: Val,
    start: u32,
}

impl CopyPlan<'_> {
    pub fn new<'a>(distributed: &Distributed, body: &'a For) -> Option<CopyPlan<'a>> {
        let asked = body.hints.num_stages.or(distributed.num_stages);
        let func = &distributed.func;
        let slicer = AddressSlice::new(distributed, body);
        let mut found = vec![];
        for (number, op) in body.body.ops.iter().enumerate() {
            if let Kind::Load(load) = &op.kind
                && copies(func, load)
                && let Some(slice) = slicer.slice(load)
            {
                found.push((number, op, load, slice));
            }
        }
        // Where others lie is looked up when their turn is copied.
        let looked_up: HashSet<usize> = found.iter().flat_map(|(.., slice)| slice).copied().collect();
        found.retain(|(number, ..)| !looked_up.contains(number));
        let mut needed = HashSet::new();
        let mut loads = vec![];
        let mut shared = vec![];
        let mut turn = 0;
        for (_, op, load, slice) in found {
            needed.extend(slice);
            if distributed.smem_only.contains_key(&op.results[0]) {
                shared.push((op, load));
            } else {
                turn += bytes(distributed, op, load);
                loads.push((op, load));
            }
        }
        let mut tiles = vec![];
        for (op, load) in shared {
            turn = turn.next_multiple_of(smem_operand::ALIGNMENT);
            tiles.push((op, load, turn));
            turn += OperandTile::of(distributed, op, load).bytes();
        }
        // What cannot be copied waits in the first-level cache, whose memory the ring would take.
        let others = body
            .body
            .ops
            .iter()
            .any(|op| matches!(&op.kind, Kind::Load(load) if load.effect() == Effect::Read));
        if others && asked.is_none() && tiles.is_empty() {
            return None;
        }
        // The widest first, so that each is aligned.
        loads.sort_by_key(|(_, load)| std::cmp::Reverse(width(func, load)));
        // Where tiles are multiplied, registers are what keeps threads from fitting: one turn ahead there is always.
        let multiplies = body.body.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)));
        let least = if multiplies { 2 * turn } else { 0 };
        let chosen = CHOSEN_BYTES.min(least.max(BYTES_PER_THREAD * 32 * distributed.warps_per_cta()));
        let fitting = chosen.checked_div(turn)?;
        let stages = asked.unwrap_or(if tiles.is_empty() { STAGES.min(fitting) } else { STAGES_OF_TILES });
        let ops = body.body.ops.iter().enumerate();
        let addresses = ops.filter(|(i, _)| needed.contains(i)).map(|(_, op)| op).collect();
        let asked = asked.is_some();
        // Of many small copies each would keep its address and its mask until it is due.
        let by_pieces = tiles.iter().all(|(_, load, _)| width(func, load) == smem_operand::PIECE);
        let product = body.body.ops.iter().find(|op| by_pieces && smem_operand::is_product(distributed, op));
        let product = product.map(|op| op.results[0]);
        (stages > 1).then_some(CopyPlan {
            addresses,
            loads,
            tiles,
            product,
            stages,
            asked,
            turn,
            parts: stages,
        })
    }

    /// The tiles that each thread copies for itself.
    pub fn own(&self) -> impl Iterator<Item = Value> {
        self.loads.iter().flat_map(|(op, _)| op.results.iter().copied())
    }

    /// Whether places of what is copied are looked up, which there may be none of in a turn that there is not.
    fn looks_up(&self) -> bool {
        self.addresses.iter().any(|op| matches!(op.kind, Kind::Load(_)))
    }

    /// Whether a turn's copies go where it has read its own elements.
    fn late(&self) -> bool {
        self.parts < self.stages
    }

    /// The turn whose copies are due in turn `index`.
    fn copied_in(&self, b: &mut Builder, index: Val) -> Val {
        let distance = b.int(Ty::I64, i64::from(self.stages - 1));
        b.add(index, distance)
    }

    /// The last operation of the body that reads what was copied.
    fn last(&self, body: &For) -> usize {
        let reads = |op: &Op| self.loads.iter().any(|(load, _)| load.results == op.results);
        body.body.ops.iter().rposition(reads).expect("what is copied ahead is read")
    }

    /// What it needs of shared memory.
    pub fn ring(&self, distributed: &Distributed) -> SmemRing {
        let mut hasher = DefaultHasher::new();
        for (op, load) in &self.loads {
            (width(&distributed.func, load), bytes(distributed, op, load)).hash(&mut hasher);
        }
        let bytes = |parts: u32| parts.saturating_mul(self.turn);
        if self.tiles.is_empty() {
            let full = bytes(self.stages);
            let bytes = if full <= SPARE { full } else { bytes(self.stages - 1) };
            return SmemRing {
                bytes: vec![bytes],
                limits: &[MAX_SHARED_BYTES],
                shape: Some(hasher.finish()),
            };
        }
        // If the user does not say otherwise, two blocks to a multiprocessor are worth more than a third part, and so is
        // to fit on any GPU.
        let limits: &[u32] = if self.asked { &[MAX_SHARED_BYTES] } else { &LIMITS };
        SmemRing { bytes: (2..=self.stages).rev().map(bytes).collect(), limits, shape: None }
    }

    /// The widths of its copies, each once.
    fn widths(&self, func: &Func) -> Vec<u32> {
        let mut widths: Vec<u32> = self.loads.iter().map(|(_, load)| width(func, load)).collect();
        widths.dedup();
        widths
    }

    /// Each load with the address of its width, and where its part of a turn starts.
    fn places(&self, distributed: &Distributed, parts: &[Val]) -> Vec<(&Op, &Load, BufferSlot)> {
        let widths = self.widths(&distributed.func);
        let mut start = 0;
        let mut places = vec![];
        for &(op, load) in &self.loads {
            let which = widths.iter().position(|&known| known == width(&distributed.func, load));
            let part = parts[which.expect("a width of the list")];
            places.push((op, load, BufferSlot { part, start }));
            start += bytes(distributed, op, load);
        }
        places
    }
}

/// Ends a group of copies.
fn commit(b: &mut Builder) {
    statement(b, "cp.async.commit_group;", "~{memory}", &[], &[]);
}

pub(super) fn width(func: &Func, load: &Load) -> u32 {
    load.place.vector * func.slice(load.place.param).0.bytes()
}

/// Bytes of a turn that all threads of a block copy for a load.
fn bytes(distributed: &Distributed, op: &Op, load: &Load) -> u32 {
    let registers = distributed.layouts[&op.results[0]].register_count() as u32;
    registers / load.place.vector * width(&distributed.func, load) * distributed.warps_per_cta() * 32
}

/// The tiles that a loop copies ahead.
pub fn copied_ahead(distributed: &Distributed, body: &For) -> HashSet<Value> {
    let ahead = CopyPlan::new(distributed, body);
    let tiles = |ahead: &CopyPlan| {
        let of_all = ahead.tiles.iter().flat_map(|(op, ..)| op.results.clone());
        ahead.own().chain(of_all).collect()
    };
    ahead.as_ref().map(tiles).unwrap_or_default()
}

/// Whether a load can be made in another turn, by an instruction that copies. That leaves zeros where an element is outside
/// the slice, and reports none; element by element it would take more registers than it saves.
pub(super) fn copies(func: &Func, load: &Load) -> bool {
    let by_vectors = load.place.vector > 1 && load.other.is_none() && !func.reports;
    load.effect() == Effect::Pure
        && (!load.place.bounded || by_vectors)
        && load.place.shift.is_none()
        && !func.ty(load.place.offset).is_scalar()
        && width(func, load) >= MIN_ASYNC_COPY_BYTES
}

/// A copy of one piece, to be started.
struct AsyncCopy {
    text: String,
    constraints: String,
    operands: Vec<Val>,
    /// `None` is always started.
    condition: Option<Val>,
}

impl AsyncCopy {
    fn start(&self, b: &mut Builder) {
        let AsyncCopy { text, constraints, operands, condition } = self;
        match condition {
            None => statement(b, text, &format!("{constraints},~{{memory}}"), operands, &[]),
            Some(condition) => {
                let text = format!("@${} {text}", operands.len());
                let operands: Vec<Val> = operands.iter().chain([condition]).copied().collect();
                statement(b, &text, &format!("{constraints},b,~{{memory}}"), &operands, &[])
            }
        };
    }

    fn only_if(&mut self, b: &mut Builder, condition: Val) {
        self.condition = b.both(self.condition, Some(condition));
    }
}

/// Copies of a later turn, which a product starts among its instructions: a group.
pub(super) struct PendingCopies {
    product: Value,
    copies: VecDeque<AsyncCopy>,
}

/// A loop's first value and step, and how often it runs.
#[derive(Clone, Copy)]
pub(super) struct IterationSpace {
    pub low: Val,
    pub step: Val,
    pub count: Val,
}

/// A loop whose first turns are under way.
pub(super) struct StartedLoop {
    pub turns: IterationSpace,
    /// For each width of the ring, the address of this thread's elements in the first part; then that of the part, if it
    /// has tiles.
    pub firsts: Vec<Val>,
}

/// Where in a block the first loop that copies ahead can start to: after the operation with this number, and the loop's
/// own.
pub(super) fn earliest<'b>(gpu: &Gpu, block: &'b Block) -> Option<(usize, &'b For)> {
    let has_blocks = |op: &&Op| !op.kind.operation().blocks().is_empty() && !op.kind.operation().isolated();
    let Kind::For(body) = &block.ops.iter().find(has_blocks)?.kind else { return None };
    let ahead = gpu.ahead(body)?;
    let mut used = vec![body.low, body.high, body.step];
    used.extend(ahead.addresses.iter().flat_map(|op| op.kind.operation().operands()));
    let tiles = ahead.tiles.iter().map(|&(_, load, _)| load);
    let loads = ahead.loads.iter().map(|&(_, load)| load);
    used.extend(loads.chain(tiles).flat_map(|load| load.place.operands()));
    let last = block.ops.iter().rposition(|op| op.results.iter().any(|result| used.contains(result)))?;
    Some((last, body))
}

impl Gpu<'_> {
    /// What a loop copies ahead, if there is shared memory for it.
    pub(super) fn ahead<'b>(&self, body: &'b For) -> Option<CopyPlan<'b>> {
        let place = self.smem.ring(body.body.args[0])?;
        let ahead = CopyPlan::new(&self.plan.distributed, body)?;
        let parts = place.bytes / ahead.turn;
        let stages = if ahead.tiles.is_empty() { ahead.stages } else { parts };
        Some(CopyPlan { parts, stages, ..ahead })
    }

    /// Counts a loop's turns and starts the copies of the first ones.
    pub(super) fn start(&mut self, b: &mut Builder, body: &For) -> StartedLoop {
        let ends = [body.low, body.high, body.step].map(|value| self.scalar(value));
        let (low, (count, step)) = (ends[0], trip_count(b, body, ends, false));
        let turns = IterationSpace { low, step, count };
        let firsts = match self.ahead(body) {
            Some(ahead) => self.start_ahead(b, body, &ahead, turns),
            None => vec![],
        };
        StartedLoop { turns, firsts }
    }

    fn start_ahead(
        &mut self,
        b: &mut Builder,
        body: &For,
        ahead: &CopyPlan,
        turns: IterationSpace,
    ) -> Vec<Val> {
        let base = self.smem_base.expect("there is shared memory");
        let variable = body.body.args[0];
        let place = self.smem.ring(variable).expect("the ring was planned");
        if self.membar.use_ring(variable) {
            self.barrier(b);
            self.membar.use_ring(variable);
        }
        let ring = b.offset_bytes(base, place.start as i32);
        let five = b.int(Ty::I32, 5);
        let first = b.shl(self.block_warp, five);
        let thread = b.or(first, self.lane);
        let widths = ahead.widths(self.func).into_iter().map(|width| {
            // Neighbouring threads lie next to each other.
            let width = b.int(Ty::I32, i64::from(width));
            let distance = b.mul(thread, width);
            b.offset(ring, distance, 1)
        });
        let mut firsts: Vec<Val> = widths.collect();
        let widths = firsts.len();
        // One that differs from thread to thread, for a shuffle of a uniform number is one.
        firsts.extend((!ahead.tiles.is_empty()).then(|| b.offset(ring, self.lane, 1)));
        // ptxas must not see that the address is a uniform number and a part of the thread's own, for a copy with a cache
        // policy to such an address comes out as an illegal instruction.
        let mut firsts: Vec<Val> = firsts.into_iter().map(|first| self.hidden(b, first)).collect();
        for first in &mut firsts[widths..] {
            *first = b.sub(*first, self.lane);
        }
        for turn in 0..ahead.stages - 1 {
            let index = b.int(Ty::I64, i64::from(turn));
            let parts = self.moved(b, &firsts, i64::from(turn * ahead.turn));
            self.copy_turn(b, body, ahead, turns, index, &parts);
        }
        firsts
    }

    fn moved(&self, b: &mut Builder, parts: &[Val], bytes: i64) -> Vec<Val> {
        let bytes = b.int(Ty::I32, bytes);
        parts.iter().map(|&part| b.add(part, bytes)).collect()
    }

    /// Starts the copies of a later turn if there is a part of the ring for them, waits for those of this one, and says where
    /// its loads find them. `parts` are the addresses of this turn's part of the ring; gives those of the next turn.
    pub(super) fn turn_ahead(
        &mut self,
        b: &mut Builder,
        body: &For,
        ahead: &CopyPlan,
        started: &StartedLoop,
        index: Val,
        parts: &[Val],
    ) -> Vec<Val> {
        let StartedLoop { turns, firsts } = started;
        let lasts = self.moved(b, firsts, i64::from(ahead.turn * (ahead.parts - 1)));
        let shares = !ahead.tiles.is_empty();
        if shares {
            statement(b, &format!("cp.async.wait_group {};", ahead.parts - 2), "~{memory}", &[], &[]);
            self.barrier(b);
        }
        if !ahead.late() {
            let at_first = b.icmp(IntPredicate::Eq, parts[0], firsts[0]);
            let before = self.moved(b, parts, -i64::from(ahead.turn));
            let free: Vec<Val> =
                lasts.iter().zip(before).map(|(&last, before)| b.select(at_first, last, before)).collect();
            let later = ahead.copied_in(b, index);
            match ahead.product.filter(|_| !ahead.looks_up()) {
                Some(product) => {
                    let runs = b.icmp(IntPredicate::Slt, later, turns.count);
                    let mut copies = self.copies_of_turn(b, body, ahead, (*turns, later), &free);
                    copies.iter_mut().for_each(|copy| copy.only_if(b, runs));
                    self.pending_copies = Some(PendingCopies { product, copies });
                }
                None => self.copy_turn(b, body, ahead, *turns, later, &free),
            }
        }
        if !shares {
            statement(b, &format!("cp.async.wait_group {};", ahead.parts - 1), "~{memory}", &[], &[]);
        }
        for (tile, place) in self.tiles_of(b, ahead, parts) {
            self.operand_stages.insert(tile, place);
        }
        for (op, _, arrived) in ahead.places(&self.plan.distributed, parts) {
            self.prefetched.insert(op.results[0], arrived);
        }
        if ahead.parts == 1 {
            return parts.to_vec();
        }
        let at_last = b.icmp(IntPredicate::Eq, parts[0], lasts[0]);
        let after = self.moved(b, parts, i64::from(ahead.turn));
        firsts.iter().zip(after).map(|(&first, after)| b.select(at_last, first, after)).collect()
    }

    /// The operations of a turn. `parts` are the addresses of its part of the ring, which is filled anew after the last
    /// operation that reads it, if no other part is free for what is copied in this turn.
    pub(super) fn turn(
        &mut self,
        b: &mut Builder,
        body: &For,
        ahead: Option<&CopyPlan>,
        turns: IterationSpace,
        index: Val,
        parts: &[Val],
    ) {
        let late = ahead.filter(|ahead| ahead.late()).map(|ahead| (ahead.last(body), ahead));
        self.block_with(b, &body.body, |gpu, b, position| {
            if let Some((last, ahead)) = late
                && last == position
            {
                // A copy is not ordered behind what its own thread has read, but for a barrier.
                statement(b, "bar.warp.sync -1;", "~{memory}", &[], &[]);
                let later = ahead.copied_in(b, index);
                gpu.copy_turn(b, body, ahead, turns, later, parts);
            }
        });
    }

    /// Starts the copies of turn `index`, if there is one, and counts them as one group.
    fn copy_turn(
        &mut self,
        b: &mut Builder,
        body: &For,
        ahead: &CopyPlan,
        turns: IterationSpace,
        index: Val,
        parts: &[Val],
    ) {
        let runs = b.icmp(IntPredicate::Slt, index, turns.count);
        b.if_then(runs, |b| {
            let copies = self.copies_of_turn(b, body, ahead, (turns, index), parts);
            copies.iter().for_each(|copy| copy.start(b));
        });
        commit(b);
    }

    /// The copies of turn `index`.
    fn copies_of_turn(
        &mut self,
        b: &mut Builder,
        body: &For,
        ahead: &CopyPlan,
        (turns, index): (IterationSpace, Val),
        parts: &[Val],
    ) -> VecDeque<AsyncCopy> {
        let variable = body.body.args[0];
        let of_turn = ahead.addresses.iter().flat_map(|op| op.results.iter().copied()).chain([variable]);
        // What is defined of the turn that is under way holds again afterwards.
        let own: Vec<_> = of_turn.filter_map(|value| self.values.remove_entry(&value)).collect();
        let mut copies = VecDeque::new();
        self.scope(|gpu| {
            gpu.define(variable, vec![loop_variable(b, index, turns.low, turns.step)]);
            for op in &ahead.addresses {
                gpu.op(b, op);
            }
            for (_, load, place) in ahead.places(&gpu.plan.distributed, parts) {
                copies.extend(gpu.copy(b, load, place));
            }
            for (&(op, load, _), (_, arrival)) in ahead.tiles.iter().zip(gpu.tiles_of(b, ahead, parts)) {
                copies.extend(gpu.copy_tile(b, op, load, &arrival));
            }
        });
        self.values.extend(own);
        copies
    }

    /// Starts copies that are due while a product is multiplied: after so many of all its instructions.
    pub(super) fn start_due(&mut self, b: &mut Builder, product: Value, (done, all): (usize, usize)) {
        let Some(due) = self.pending_copies.as_mut().filter(|due| due.product == product) else { return };
        let left = due.copies.len();
        let share = if done == all { left } else { left.div_ceil(all - done).min(left) };
        due.copies.drain(..share).for_each(|copy| copy.start(b));
        if done == all {
            self.pending_copies = None;
            commit(b);
        }
    }

    /// Bytes between the vectors of a thread.
    fn pitch(&self, width: u32) -> u32 {
        self.plan.distributed.warps_per_cta() * 32 * width
    }

    /// The tiles of a turn, by the addresses of its part of the ring.
    fn tiles_of(&mut self, b: &mut Builder, ahead: &CopyPlan, parts: &[Val]) -> Vec<(Value, OperandStage)> {
        let distributed = &self.plan.distributed;
        let tiles = ahead.tiles.iter().map(|&(op, load, start)| {
            let start = b.int(Ty::I32, i64::from(start));
            let address = b.add(*parts.last().expect("a ring with tiles has an address"), start);
            let fast = smem_operand::fast_axis(distributed, load, op.results[0]);
            (op.results[0], OperandStage { tile: OperandTile::of(distributed, op, load), fast, address })
        });
        tiles.collect()
    }

    /// The copies of one load.
    fn copy(&mut self, b: &mut Builder, load: &Load, to: BufferSlot) -> Vec<AsyncCopy> {
        let pitch = self.pitch(width(self.func, load));
        self.copy_pieces(b, load, |_, piece| (to.part, to.start + piece as u32 * pitch))
    }

    /// The copies of a tile, each thread's those of the elements that the load's layout gives it.
    fn copy_tile(&mut self, b: &mut Builder, op: &Op, load: &Load, to: &OperandStage) -> Vec<AsyncCopy> {
        let layout = self.layout(op.results[0]);
        let place = to.tile.place(b, |b, axis| self.thread_coord(b, layout, axis));
        let first = b.add(to.address, place);
        let mut places = TileAddresses::new(to.tile.clone(), first);
        let load = smem_operand::as_copied(&self.plan.distributed, op, load);
        let vector = load.place.vector as usize;
        let mut copies = self.copy_pieces(b, &load, |b, piece| places.at(b, layout.register(piece * vector)));
        if let Some(writer) = self.writer(b, Some(layout)) {
            copies.iter_mut().for_each(|copy| copy.only_if(b, writer));
        }
        copies
    }

    /// The copies of a load to an address for each piece, and bytes behind it.
    fn copy_pieces(
        &mut self,
        b: &mut Builder,
        load: &Load,
        mut to: impl FnMut(&mut Builder, usize) -> (Val, u32),
    ) -> Vec<AsyncCopy> {
        let dtype = self.func.slice(load.place.param).0;
        let addresses = self.addresses(b, &load.place, dtype);
        let width = width(self.func, load);
        let policy = match load.cache.keep {
            EvictionPolicy::First => self.evict_first_policy,
            EvictionPolicy::Normal | EvictionPolicy::Last => Some(self.evict_last_policy),
        };
        let mut copies = vec![];
        for (i, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let (part, start) = to(b, i);
            let mut operands = vec![part, pointer];
            let mut constraints = vec!["r", "l"];
            // What is masked off is filled with zeros.
            let mut size = String::new();
            if let Some(mask) = mask {
                let (all, none) = (b.int(Ty::I32, i64::from(width)), b.int(Ty::I32, 0));
                operands.push(b.select(mask, all, none));
                constraints.push("r");
                size = ", $2".into();
            }
            let mut hint = String::new();
            if let Some(policy) = policy {
                hint = format!(", ${}", operands.len());
                operands.push(policy);
                constraints.push("l");
            }
            let level = if width == 16 { "cg" } else { "ca" };
            let cached = if policy.is_some() { ".L2::cache_hint" } else { "" };
            let text =
                format!("cp.async.{level}.shared.global{cached} [$0 + {start}], [$1], {width}{size}{hint};");
            copies.push(AsyncCopy { text, constraints: constraints.join(","), operands, condition: None });
        }
        copies
    }

    /// The words of a load that was made ahead, one list for each vector; `others` stand where the mask does not hold.
    pub(super) fn take_arrived(
        &mut self,
        b: &mut Builder,
        load: &Load,
        from: BufferSlot,
        others: impl Fn(&mut Builder, usize) -> Option<Vec<Val>>,
    ) -> Vec<Vec<Val>> {
        let width = width(self.func, load);
        let vector = load.place.vector as usize;
        let masks = load.place.mask.map(|mask| self.registers(mask));
        let count = self.registers(load.place.offset).len() / vector;
        (0..count)
            .map(|i| {
                let start = from.start + i as u32 * self.pitch(width);
                let words = VectorWords::of(width).load_shared(b, from.part, start);
                let Some((masks, others)) = masks.as_ref().zip(others(b, i)) else { return words };
                let mask = masks[i * vector];
                words.into_iter().zip(others).map(|(word, other)| b.select(mask, word, other)).collect()
            })
            .collect()
    }
}
