//! A software pipeline with `cp.async`: loads of later iterations are in flight while the current one computes.
//!
//! Each thread copies the elements it will need to its own part of shared memory, one iteration fewer ahead than
//! there are stages, and reads them back in their iteration. No thread reads what another one copied, so there is no
//! barrier, and copies in flight take no registers. The ring rotates its slots: a copy goes to the slot that the
//! iteration before last read. A large ring has one slot less, and an iteration refills its own slot as soon as it
//! has read it: a program that processes long rows one after the other so has the next row in flight.
//!
//! Operands that only dots read are copied to tiles that all threads read (`smem_operand`). An iteration then begins
//! with a wait for its own copies and one barrier. After the barrier every thread's copies for this iteration have
//! landed, and no thread reads the slot of the iteration before, which the next copies overwrite.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Effect, For, Kind, Load, Operation};
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use crate::gpu::emit::address_slice::AddressSlice;
use crate::gpu::emit::cp_async::{AsyncCopy, BufferSlot, width};
use crate::gpu::emit::smem_alloc::SmemRing;
use crate::gpu::emit::smem_operand;
use crate::gpu::emit::smem_operand::{OperandStage, OperandTile};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, MAX_SHARED_BYTES, MIN_SHARED_BYTES, statement};
use crate::gpu::layout::Distributed;
use crate::mlir::builder::Val;
use crate::mlir::shared::{LoopRange, loop_variable};
use crate::mlir::types::Ty;

/// Stages, where the user does not say.
const DEFAULT_STAGES: u32 = 4;
/// The largest ring that is ours to choose, for each thread and in all: enough threads should fit a multiprocessor.
const DEFAULT_BYTES_PER_THREAD: u32 = 256;
const MAX_DEFAULT_RING_BYTES: u32 = 64 * 1024;
/// Stages of a loop with tiles that dots read, where the user does not say.
const DEFAULT_TILE_STAGES: u32 = 3;
/// Where shared memory should end then, the best first: half of what there is, what every GPU has, all of it.
const SMEM_LIMITS: [u32; 3] = [MAX_SHARED_BYTES / 2, MIN_SHARED_BYTES, MAX_SHARED_BYTES];
/// Up to this size a ring has a slot to spare. Beyond, its memory serves better as L1 cache, and the third of three
/// long rows in flight only waits for the others (docs/decisions/0011).
const MAX_SPARE_SLOT_BYTES: u32 = 64 * 1024;

/// The asynchronous copies of a loop.
pub(super) struct CopyPlan<'a> {
    /// The operations that compute the addresses, in program order.
    addresses: Vec<&'a Op>,
    /// Loads whose elements each thread copies for itself.
    loads: Vec<(&'a Op, &'a Load)>,
    /// Loads of tiles that all threads read, with the offset of the tile in a slot.
    tiles: Vec<(&'a Op, &'a Load, u32)>,
    /// The first dot of a tile, which issues copies among its instructions.
    dot: Option<Value>,
    pub stages: u32,
    /// Whether the user said how many.
    is_requested: bool,
    /// Bytes of one stage.
    stage_bytes: u32,
    /// Slots of the ring: as many as stages, or one less.
    slots: u32,
}

impl CopyPlan<'_> {
    pub fn new<'a>(distributed: &Distributed, body: &'a For) -> Option<CopyPlan<'a>> {
        let requested = body.hints.num_stages.or(distributed.num_stages);
        let func = &distributed.func;
        let address_slice = AddressSlice::new(distributed, body);
        let mut candidates = vec![];
        for (index, op) in body.body.ops.iter().enumerate() {
            if let Kind::Load(load) = &op.kind
                && can_copy_async(func, load)
                && let Some(slice) = address_slice.slice(load)
            {
                candidates.push((index, op, load, slice));
            }
        }
        // Loads whose values index other loads are repeated when the copies of their iteration are issued.
        let index_loads: HashSet<usize> = candidates.iter().flat_map(|(.., slice)| slice).copied().collect();
        candidates.retain(|(index, ..)| !index_loads.contains(index));
        let mut sliced = HashSet::new();
        let mut loads = vec![];
        let mut tile_loads = vec![];
        let mut stage_bytes = 0;
        for (_, op, load, slice) in candidates {
            sliced.extend(slice);
            if distributed.smem_only.contains_key(&op.results[0]) {
                tile_loads.push((op, load));
            } else {
                stage_bytes += block_bytes(distributed, op, load);
                loads.push((op, load));
            }
        }
        let mut tiles = vec![];
        for (op, load) in tile_loads {
            stage_bytes = stage_bytes.next_multiple_of(smem_operand::ALIGNMENT);
            tiles.push((op, load, stage_bytes));
            stage_bytes += OperandTile::of(distributed, op, load).bytes();
        }
        // Loads that cannot be copied use the L1 cache, whose memory the ring would take.
        let others = body
            .body
            .ops
            .iter()
            .any(|op| matches!(&op.kind, Kind::Load(load) if load.effect() == Effect::Read));
        if others && requested.is_none() && tiles.is_empty() {
            return None;
        }
        // The widest first, so that each is aligned.
        loads.sort_by_key(|(_, load)| std::cmp::Reverse(width(func, load)));
        // Registers limit the occupancy of loops with dots: one iteration ahead is always affordable.
        let has_dot = body.body.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)));
        let min_bytes = if has_dot { 2 * stage_bytes } else { 0 };
        let max_bytes = MAX_DEFAULT_RING_BYTES
            .min(min_bytes.max(DEFAULT_BYTES_PER_THREAD * 32 * distributed.warps_per_cta()));
        let fitting_stages = max_bytes.checked_div(stage_bytes)?;
        let stages = requested.unwrap_or(if tiles.is_empty() {
            DEFAULT_STAGES.min(fitting_stages)
        } else {
            DEFAULT_TILE_STAGES
        });
        let ops = body.body.ops.iter().enumerate();
        let addresses = ops.filter(|(i, _)| sliced.contains(i)).map(|(_, op)| op).collect();
        let is_requested = requested.is_some();
        // Many small copies would each keep an address and a mask in registers until they are issued.
        let by_chunks = tiles.iter().all(|(_, load, _)| width(func, load) == smem_operand::CHUNK_BYTES);
        let dot = body.body.ops.iter().find(|op| by_chunks && smem_operand::is_smem_dot(distributed, op));
        let dot = dot.map(|op| op.results[0]);
        (stages > 1).then_some(CopyPlan {
            addresses,
            loads,
            tiles,
            dot,
            stages,
            is_requested,
            stage_bytes,
            slots: stages,
        })
    }

    /// The tiles that each thread copies for itself.
    pub fn thread_values(&self) -> impl Iterator<Item = Value> {
        self.loads.iter().flat_map(|(op, _)| op.results.iter().copied())
    }

    /// Whether addresses are loaded too, which must not happen for an iteration beyond the last one.
    fn has_indirect_addresses(&self) -> bool {
        self.addresses.iter().any(|op| matches!(op.kind, Kind::Load(_)))
    }

    /// Whether an iteration's copies overwrite the slot it has just read.
    fn refills_own_slot(&self) -> bool {
        self.slots < self.stages
    }

    /// The iteration whose copies are issued in iteration `index`.
    fn prefetched_iteration(&self, b: &mut Builder, index: Val) -> Val {
        let distance = b.int(Ty::I64, i64::from(self.stages - 1));
        b.add(index, distance)
    }

    /// The last operation of the body that reads a copied tile.
    fn last_read(&self, body: &For) -> usize {
        let reads = |op: &Op| self.loads.iter().any(|(load, _)| load.results == op.results);
        body.body.ops.iter().rposition(reads).expect("what is copied ahead is read")
    }

    /// The ring in shared memory.
    pub fn ring(&self, distributed: &Distributed) -> SmemRing {
        let mut hasher = DefaultHasher::new();
        for (op, load) in &self.loads {
            (width(&distributed.func, load), block_bytes(distributed, op, load)).hash(&mut hasher);
        }
        let ring_bytes = |slots: u32| slots.saturating_mul(self.stage_bytes);
        if self.tiles.is_empty() {
            let full = ring_bytes(self.stages);
            let bytes = if full <= MAX_SPARE_SLOT_BYTES { full } else { ring_bytes(self.stages - 1) };
            return SmemRing {
                bytes: vec![bytes],
                limits: &[MAX_SHARED_BYTES],
                shape: Some(hasher.finish()),
            };
        }
        // Two blocks on a multiprocessor are worth more than a third slot, and so is to fit on any GPU.
        let limits: &[u32] = if self.is_requested { &[MAX_SHARED_BYTES] } else { &SMEM_LIMITS };
        SmemRing { bytes: (2..=self.stages).rev().map(ring_bytes).collect(), limits, shape: None }
    }

    /// The widths of its copies, each once.
    fn widths(&self, func: &Func) -> Vec<u32> {
        let mut widths: Vec<u32> = self.loads.iter().map(|(_, load)| width(func, load)).collect();
        widths.dedup();
        widths
    }

    /// Each load with the slot address of its width and its offset in the slot.
    fn buffer_slots(&self, distributed: &Distributed, slots: &[Val]) -> Vec<(&Op, &Load, BufferSlot)> {
        let widths = self.widths(&distributed.func);
        let mut start = 0;
        let mut found = vec![];
        for &(op, load) in &self.loads {
            let which = widths.iter().position(|&known| known == width(&distributed.func, load));
            let base = slots[which.expect("a width of the list")];
            found.push((op, load, BufferSlot { base, offset: start }));
            start += block_bytes(distributed, op, load);
        }
        found
    }
}

/// Commits the copies issued so far as one group.
fn commit_group(b: &mut Builder) {
    statement(b, "cp.async.commit_group;", "~{memory}", &[], &[]);
}

/// Bytes that all threads of a block copy for a load in an iteration.
fn block_bytes(distributed: &Distributed, op: &Op, load: &Load) -> u32 {
    let registers = distributed.layouts[&op.results[0]].register_count() as u32;
    registers / load.access.vector * width(&distributed.func, load) * distributed.warps_per_cta() * 32
}

/// The tiles that a loop copies asynchronously.
pub fn prefetched_values(distributed: &Distributed, body: &For) -> HashSet<Value> {
    let plan = CopyPlan::new(distributed, body);
    let tiles = |plan: &CopyPlan| {
        let of_block = plan.tiles.iter().flat_map(|(op, ..)| op.results.clone());
        plan.thread_values().chain(of_block).collect()
    };
    plan.as_ref().map(tiles).unwrap_or_default()
}

/// Whether `cp.async` can do a load. It fills out-of-bounds elements with zeros and reports none; element by element
/// it would take more registers than it saves.
pub(super) fn can_copy_async(func: &Func, load: &Load) -> bool {
    let by_vectors = load.access.vector > 1 && load.other.is_none() && !func.reports;
    load.effect() == Effect::Pure
        && (!load.access.bounded || by_vectors)
        && load.access.shift.is_none()
        && !func.ty(load.access.offset).is_scalar()
        && width(func, load) >= MIN_ASYNC_COPY_BYTES
}

/// Copies of a later iteration that a dot issues among its instructions, as one group.
pub(super) struct PendingCopies {
    dot: Value,
    copies: VecDeque<AsyncCopy>,
}

/// A loop's lower bound, step and trip count.
#[derive(Clone, Copy)]
pub(super) struct IterationSpace {
    pub lower: Val,
    pub step: Val,
    pub trip_count: Val,
}

/// A loop whose prologue copies are in flight.
pub(super) struct StartedLoop {
    pub iterations: IterationSpace,
    /// For each width of the ring, the address of this thread's elements in the first slot; then that of the slot, if
    /// it has tiles.
    pub ring_start: Vec<Val>,
}

/// The first loop of a block with asynchronous copies, and the index of the operation after which its prologue can be
/// issued.
pub(super) fn earliest_prefetch<'b>(gpu: &Gpu, block: &'b Block) -> Option<(usize, &'b For)> {
    let has_blocks = |op: &&Op| !op.kind.operation().blocks().is_empty() && !op.kind.operation().isolated();
    let Kind::For(body) = &block.ops.iter().find(has_blocks)?.kind else { return None };
    let plan = gpu.copy_plan(body)?;
    let mut used = vec![body.low, body.high, body.step];
    used.extend(plan.addresses.iter().flat_map(|op| op.kind.operation().operands()));
    let tiles = plan.tiles.iter().map(|&(_, load, _)| load);
    let loads = plan.loads.iter().map(|&(_, load)| load);
    used.extend(loads.chain(tiles).flat_map(|load| load.access.operands()));
    let last = block.ops.iter().rposition(|op| op.results.iter().any(|result| used.contains(result)))?;
    Some((last, body))
}

impl Gpu<'_> {
    /// A loop's asynchronous copies, if there is shared memory for them.
    pub(super) fn copy_plan<'b>(&self, body: &'b For) -> Option<CopyPlan<'b>> {
        let ring = self.smem.ring(body.body.args[0])?;
        let plan = CopyPlan::new(&self.plan.schedule.distributed, body)?;
        let slots = ring.bytes / plan.stage_bytes;
        let stages = if plan.tiles.is_empty() { plan.stages } else { slots };
        Some(CopyPlan { slots, stages, ..plan })
    }

    /// Computes a loop's trip count and issues the prologue copies.
    pub(super) fn start_loop(&mut self, b: &mut Builder, body: &For) -> StartedLoop {
        let ends = [body.low, body.high, body.step].map(|value| self.scalar(value));
        let (lower, (trip_count, step)) = (ends[0], LoopRange::of(body, ends).trip_count(b));
        let iterations = IterationSpace { lower, step, trip_count };
        let ring_start = match self.copy_plan(body) {
            Some(plan) => self.issue_prologue_copies(b, body, &plan, iterations),
            None => vec![],
        };
        StartedLoop { iterations, ring_start }
    }

    fn issue_prologue_copies(
        &mut self,
        b: &mut Builder,
        body: &For,
        plan: &CopyPlan,
        iterations: IterationSpace,
    ) -> Vec<Val> {
        let base = self.smem_base.expect("there is shared memory");
        let variable = body.body.args[0];
        let interval = self.smem.ring(variable).expect("the ring was planned");
        if self.membar.use_ring(variable) {
            self.barrier(b);
            self.membar.use_ring(variable);
        }
        let ring = b.offset_bytes(base, interval.start as i32);
        let five = b.int(Ty::I32, 5);
        let first = b.shl(self.block_warp, five);
        let thread = b.or(first, self.lane);
        let widths = plan.widths(self.func).into_iter().map(|width| {
            // Neighboring threads have contiguous elements.
            let width = b.int(Ty::I32, i64::from(width));
            let distance = b.mul(thread, width);
            b.offset(ring, distance, 1)
        });
        let mut ring_start: Vec<Val> = widths.collect();
        let widths = ring_start.len();
        // An address that differs from thread to thread, because a shuffle of a uniform value is uniform.
        ring_start.extend((!plan.tiles.is_empty()).then(|| b.offset(ring, self.lane, 1)));
        // ptxas must not see that the address is a uniform value plus the thread's own part: a copy with a cache
        // policy to such an address becomes an illegal instruction.
        let mut ring_start: Vec<Val> =
            ring_start.into_iter().map(|first| self.opaque_to_ptxas(b, first)).collect();
        for first in &mut ring_start[widths..] {
            *first = b.sub(*first, self.lane);
        }
        for stage in 0..plan.stages - 1 {
            let index = b.int(Ty::I64, i64::from(stage));
            let slots = self.offset_all(b, &ring_start, i64::from(stage * plan.stage_bytes));
            self.copy_iteration(b, body, plan, iterations, index, &slots);
        }
        ring_start
    }

    fn offset_all(&self, b: &mut Builder, slots: &[Val], bytes: i64) -> Vec<Val> {
        let bytes = b.int(Ty::I32, bytes);
        slots.iter().map(|&base| b.add(base, bytes)).collect()
    }

    /// Issues the copies of a later iteration if a slot is free for them, waits for those of this one, and defines
    /// where its loads find their elements. `slots` are the addresses of this iteration's slot; returns those of the
    /// next iteration.
    pub(super) fn begin_iteration(
        &mut self,
        b: &mut Builder,
        body: &For,
        plan: &CopyPlan,
        started: &StartedLoop,
        index: Val,
        slots: &[Val],
    ) -> Vec<Val> {
        let StartedLoop { iterations, ring_start } = started;
        let last_slots = self.offset_all(b, ring_start, i64::from(plan.stage_bytes * (plan.slots - 1)));
        let has_tiles = !plan.tiles.is_empty();
        if has_tiles {
            statement(b, &format!("cp.async.wait_group {};", plan.slots - 2), "~{memory}", &[], &[]);
            self.barrier(b);
        }
        if !plan.refills_own_slot() {
            let at_first = b.icmp(IntPredicate::Eq, slots[0], ring_start[0]);
            let before = self.offset_all(b, slots, -i64::from(plan.stage_bytes));
            let free_slot: Vec<Val> = last_slots
                .iter()
                .zip(before)
                .map(|(&last, before)| b.select(at_first, last, before))
                .collect();
            let prefetched = plan.prefetched_iteration(b, index);
            match plan.dot.filter(|_| !plan.has_indirect_addresses()) {
                Some(dot) => {
                    let in_range = b.icmp(IntPredicate::Slt, prefetched, iterations.trip_count);
                    let mut copies =
                        self.iteration_copies(b, body, plan, (*iterations, prefetched), &free_slot);
                    copies.iter_mut().for_each(|copy| copy.and_predicate(b, in_range));
                    self.pending_copies = Some(PendingCopies { dot, copies });
                }
                None => self.copy_iteration(b, body, plan, *iterations, prefetched, &free_slot),
            }
        }
        if !has_tiles {
            statement(b, &format!("cp.async.wait_group {};", plan.slots - 1), "~{memory}", &[], &[]);
        }
        for (tile, stage) in self.operand_stages(b, plan, slots) {
            self.operand_stages.insert(tile, stage);
        }
        for (op, _, slot) in plan.buffer_slots(&self.plan.schedule.distributed, slots) {
            self.prefetched.insert(op.results[0], slot);
        }
        if plan.slots == 1 {
            return slots.to_vec();
        }
        let at_last = b.icmp(IntPredicate::Eq, slots[0], last_slots[0]);
        let after = self.offset_all(b, slots, i64::from(plan.stage_bytes));
        ring_start.iter().zip(after).map(|(&first, after)| b.select(at_last, first, after)).collect()
    }

    /// Emits the operations of an iteration. `slots` are the addresses of its slot. If no other slot is free, the
    /// slot is refilled after the last operation that reads it.
    pub(super) fn emit_iteration(
        &mut self,
        b: &mut Builder,
        body: &For,
        plan: Option<&CopyPlan>,
        iterations: IterationSpace,
        index: Val,
        slots: &[Val],
    ) {
        let refill = plan.filter(|plan| plan.refills_own_slot()).map(|plan| (plan.last_read(body), plan));
        self.block_with(b, &body.body, |gpu, b, position| {
            if let Some((last, plan)) = refill
                && last == position
            {
                // A copy is not ordered behind what its own thread has read, but for a barrier.
                statement(b, "bar.warp.sync -1;", "~{memory}", &[], &[]);
                let prefetched = plan.prefetched_iteration(b, index);
                gpu.copy_iteration(b, body, plan, iterations, prefetched, slots);
            }
        });
    }

    /// Issues the copies of iteration `index`, if there is one, and commits them as one group.
    fn copy_iteration(
        &mut self,
        b: &mut Builder,
        body: &For,
        plan: &CopyPlan,
        iterations: IterationSpace,
        index: Val,
        slots: &[Val],
    ) {
        let in_range = b.icmp(IntPredicate::Slt, index, iterations.trip_count);
        b.if_then(in_range, |b| {
            let copies = self.iteration_copies(b, body, plan, (iterations, index), slots);
            copies.iter().for_each(|copy| copy.issue(b));
        });
        commit_group(b);
    }

    /// The copies of iteration `index`.
    fn iteration_copies(
        &mut self,
        b: &mut Builder,
        body: &For,
        plan: &CopyPlan,
        (iterations, index): (IterationSpace, Val),
        slots: &[Val],
    ) -> VecDeque<AsyncCopy> {
        let variable = body.body.args[0];
        let of_iteration = plan.addresses.iter().flat_map(|op| op.results.iter().copied()).chain([variable]);
        // Values of the current iteration are restored afterwards.
        let saved: Vec<_> = of_iteration.filter_map(|value| self.values.remove_entry(&value)).collect();
        let mut copies = VecDeque::new();
        self.scope(|gpu| {
            gpu.define(variable, vec![loop_variable(b, index, iterations.lower, iterations.step)]);
            for op in &plan.addresses {
                gpu.op(b, op);
            }
            for (_, load, slot) in plan.buffer_slots(&gpu.plan.schedule.distributed, slots) {
                copies.extend(gpu.thread_copies(b, load, slot));
            }
            for (&(op, load, _), (_, stage)) in plan.tiles.iter().zip(gpu.operand_stages(b, plan, slots)) {
                copies.extend(gpu.tile_copies(b, op, load, &stage));
            }
        });
        self.values.extend(saved);
        copies
    }

    /// Issues pending copies while a dot is emitted, which has issued `done` of all its instructions.
    pub(super) fn issue_pending(&mut self, b: &mut Builder, dot: Value, (done, all): (usize, usize)) {
        let Some(pending) = self.pending_copies.as_mut().filter(|pending| pending.dot == dot) else { return };
        let remaining = pending.copies.len();
        let share = if done == all { remaining } else { remaining.div_ceil(all - done).min(remaining) };
        pending.copies.drain(..share).for_each(|copy| copy.issue(b));
        if done == all {
            self.pending_copies = None;
            commit_group(b);
        }
    }

    /// Bytes between the vectors of a thread.
    pub(super) fn pitch(&self, width: u32) -> u32 {
        self.plan.schedule.distributed.warps_per_cta() * 32 * width
    }

    /// The tiles of an iteration, by the addresses of its slot.
    fn operand_stages(
        &mut self,
        b: &mut Builder,
        plan: &CopyPlan,
        slots: &[Val],
    ) -> Vec<(Value, OperandStage)> {
        let distributed = &self.plan.schedule.distributed;
        let tiles = plan.tiles.iter().map(|&(op, load, start)| {
            let start = b.int(Ty::I32, i64::from(start));
            let address = b.add(*slots.last().expect("a ring with tiles has an address"), start);
            let fast = smem_operand::fast_axis(distributed, load, op.results[0]);
            (op.results[0], OperandStage { tile: OperandTile::of(distributed, op, load), fast, address })
        });
        tiles.collect()
    }
}
