//! The iterations of a loop with a ring: the wait for their copies, the copies of a later one, and what reads them.

use std::collections::{HashMap, HashSet};

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Op, Storage, Type, Value, substitute_in};
use tile_ir::ops::scalar::binary;
use tile_ir::ops::schedule::{
    AfterIssue, CopyCache, CopyRing, CopyTarget, GroupIssue, MaskedElements, SlotNeighbor, SmemPlace,
    StagedOperand, WgmmaOperandA,
};
use tile_ir::ops::{
    AsyncCopy, AsyncGroup, AsyncWait, Barrier, Dot, DotOperand, Induction, Kind, Load, Loop, MemAccess,
    Operation, ProxyFence, Scalar, SlotLoad, SlotStep, SlotStore, SlotTile, WarpBarrier, Wgmma,
};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;

use super::ring_loop::{Fill, Pipeliner, RingLoop, StartedLoop, index_type};
use crate::gpu::layout::{Layout, SmemOnlyTile};
use crate::gpu::schedule::copy::Copies;
use crate::gpu::schedule::promotion::{ImpreciseDot, PromotedDot, promoted};
use crate::gpu::schedule::smem_operand::StoredOperand;
use crate::gpu::schedule::software_pipeline::address_slice::is_repeatable;
use crate::gpu::schedule::software_pipeline::plan::{CopiedLoad, CopiedTile, StoredTile};
use crate::gpu::schedule::{Schedule, smem_operand};

/// A group of copies, and the comparison before it.
pub(super) struct CopyGroup {
    before: Op,
    group: AsyncGroup,
}

impl CopyGroup {
    pub(super) fn issue(self, schedule: &mut Schedule, ops: &mut Vec<Op>, loc: Loc) {
        ops.push(self.before);
        schedule.effect(ops, loc, self.group);
    }

    /// The copies as a value that a dot takes.
    fn prepare(self, schedule: &mut Schedule, ops: &mut Vec<Op>, loc: Loc) -> Value {
        ops.push(self.before);
        let group = AsyncGroup { issue: GroupIssue::ByDot, ..self.group };
        schedule.one(ops, loc, group, Type::copies())
    }
}

/// A value in shared memory alone.
struct ReadTile {
    value: Value,
    /// The tile that dots read for it.
    tile: SlotTile,
    ty: Type,
    /// That tile, if warps read it.
    read: Option<Value>,
}

/// What an iteration begins with.
struct IterationStart {
    tiles: Vec<ReadTile>,
    /// Copies that a dot issues.
    interleaved: Option<Value>,
    first_slot: Value,
    slot: Value,
    next_slot: Value,
    /// Copies that are issued behind what threads store for the first dot, and behind the barrier there.
    behind_stores: Option<CopyGroup>,
}

impl IterationStart {
    /// The slot from which the offset of a stored operand counts.
    fn slot_of(&self, stored: &StoredTile) -> Value {
        if stored.is_behind { self.first_slot } else { self.slot }
    }
}

impl Pipeliner<'_> {
    /// The loop behind its prologue.
    pub(super) fn iterations(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, started: StartedLoop) {
        let RingLoop { op, body, plan, .. } = ring_loop;
        let first = self.constant(ops, ring_loop, 0);
        let slot_type = self.schedule.ty(started.first_slot).clone();
        let index = self.schedule.value(index_type());
        let slot = self.schedule.value(slot_type.clone());
        for stored in plan.contents.stored_once() {
            self.store(ops, ring_loop, stored, started.first_slot);
        }
        let mut own = vec![];
        let mut start = self.begin(&mut own, ring_loop, started, Fill { index, slot });
        let variable = body.body.args[0];
        let induction = Induction { index, low: body.low, step: body.step };
        own.push(Op { kind: induction.into(), results: vec![variable], loc: op.loc });
        let last_read = plan.refills_own_slot().then(|| plan.last_read(body));
        for (position, rewritten) in self.rewritten(&body.body).into_iter().enumerate() {
            for op in rewritten {
                self.reading_slot(&mut own, ring_loop, &mut start, op);
            }
            if last_read == Some(position) {
                // A copy is not ordered behind what its own thread has read, but for a barrier.
                self.schedule.effect(&mut own, op.loc, WarpBarrier);
                let fill = self.prefetched(&mut own, ring_loop, Fill { index, slot });
                self.group(ring_loop, started, fill).issue(self.schedule, &mut own, op.loc);
            }
        }
        let args = [index].into_iter().chain(body.body.args[1..].iter().copied()).chain([slot]).collect();
        let yields = body.body.yields.iter().copied().chain([start.next_slot]).collect();
        let inits = body.inits.iter().copied().chain([started.first_slot]).collect();
        let results = op.results.iter().copied().chain([self.schedule.value(slot_type)]).collect();
        let body = Block { args, ops: own, yields };
        let end = started.trip_count;
        let pipelined = Loop { first, end, inits, body, narrow: false, overlapped: false };
        ops.push(Op { kind: pipelined.into(), results, loc: op.loc });
    }

    /// Waits for the copies of an iteration, and fills the slot before its own with those of a later one.
    fn begin(
        &mut self,
        ops: &mut Vec<Op>,
        ring_loop: &RingLoop,
        started: StartedLoop,
        own: Fill,
    ) -> IterationStart {
        let RingLoop { op: Op { loc, .. }, plan, ring, .. } = ring_loop;
        let (ring, loc, has_tiles) = (*ring, *loc, plan.contents.has_tiles());
        let has_stores = plan.contents.stored_each_time().next().is_some();
        let mut behind_stores = None;
        let beside = |to| SlotStep { slot: own.slot, first: started.first_slot, ring, to };
        let slot_type = self.schedule.ty(own.slot).clone();
        let mut interleaved = None;
        if has_tiles {
            self.schedule.effect(ops, loc, AsyncWait { pending: plan.distance() - 1, ring });
            if !has_stores {
                self.synchronize(ops, ring_loop);
            } else if plan.contents.has_shared_loads {
                self.schedule.effect(ops, loc, Barrier);
            }
        }
        if !plan.refills_own_slot() {
            let mut slot = own.slot;
            for _ in 0..1 + plan.dots_in_flight {
                let before = SlotStep { slot, ..beside(SlotNeighbor::Previous) };
                slot = self.schedule.one(ops, loc, before, slot_type.clone());
            }
            let fill = Fill { slot, ..self.prefetched(ops, ring_loop, own) };
            let group = self.group(ring_loop, started, fill);
            match plan.interleaving_dot() {
                _ if has_stores => behind_stores = Some(group),
                Some(_) => interleaved = Some(group.prepare(self.schedule, ops, loc)),
                None => group.issue(self.schedule, ops, loc),
            }
        }
        if !has_tiles {
            self.schedule.effect(ops, loc, AsyncWait { pending: ring.slots - 1, ring });
        }
        let tiles = self.tiles(ops, ring_loop, own.slot);
        let next_slot = if ring.slots == 1 {
            own.slot
        } else {
            self.schedule.one(ops, loc, beside(SlotNeighbor::Next), slot_type)
        };
        let first_slot = started.first_slot;
        IterationStart { tiles, interleaved, first_slot, slot: own.slot, next_slot, behind_stores }
    }

    /// Lets all threads, and warpgroups in their dots, see what is in the tiles of a slot.
    fn synchronize(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop) {
        let loc = ring_loop.op.loc;
        if ring_loop.plan.contents.feeds_wgmma {
            self.schedule.effect(ops, loc, ProxyFence);
        }
        self.schedule.effect(ops, loc, Barrier);
    }

    /// Stores the operands of a dot, and synchronizes behind that or before the first dot.
    fn before_dot(
        &mut self,
        ops: &mut Vec<Op>,
        ring_loop: &RingLoop,
        start: &mut IterationStart,
        dot: Option<Value>,
    ) {
        let stored = ring_loop.plan.contents.stored_each_time();
        let own: Vec<&StoredTile> = stored.filter(|stored| Some(stored.operand.dot) == dot).collect();
        own.iter().for_each(|stored| self.store(ops, ring_loop, stored, start.slot_of(stored)));
        let copies = start.behind_stores.take();
        if copies.is_some() || !own.is_empty() {
            self.synchronize(ops, ring_loop);
        }
        if let Some(copies) = copies {
            copies.issue(self.schedule, ops, ring_loop.op.loc);
        }
    }

    /// Stores an operand to a slot.
    fn store(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, stored: &StoredTile, slot: Value) {
        let loc = ring_loop.op.loc;
        let (tile, ty) = self.stored_tile(ring_loop, stored, slot);
        let to = self.schedule.one(ops, loc, tile, ty);
        self.schedule.effect(ops, loc, SlotStore { value: stored.operand.value, to });
    }

    /// The tile of a stored operand: in this slot, or behind the last one; the slot is the first one then.
    fn stored_tile(&self, ring_loop: &RingLoop, stored: &StoredTile, slot: Value) -> (SlotTile, Type) {
        let StoredOperand { value, tile, fast, .. } = &stored.operand;
        let CopyRing { slots, slot_bytes, .. } = ring_loop.ring;
        let offset = stored.offset + if stored.is_behind { slots * slot_bytes } else { 0 };
        let ty = self.schedule.ty(*value).stored(Storage::Smem { stages: 1 });
        (SlotTile { slot, offset, tile: tile.clone(), fast: *fast }, ty)
    }

    /// The iteration whose copies are issued in this one, to the same slot.
    fn prefetched(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, own: Fill) -> Fill {
        let distance = self.constant(ops, ring_loop, ring_loop.plan.distance());
        let add = Scalar::new(binary(BinaryOp::Add), vec![own.index, distance]);
        Fill { index: self.schedule.one(ops, ring_loop.op.loc, add, index_type()), ..own }
    }

    /// The copies of an iteration, if there is one with this index.
    pub(super) fn group(&mut self, ring_loop: &RingLoop, started: StartedLoop, fill: Fill) -> CopyGroup {
        let RingLoop { op: Op { loc, .. }, body, plan, .. } = ring_loop;
        let mut before = vec![];
        let exists = Scalar::new(binary(BinaryOp::Lt), vec![fill.index, started.trip_count]);
        let only_if = self.schedule.one(&mut before, *loc, exists, Type::scalar(DType::Bool));
        let mut copies = Copies::default();
        let variable = copies.fresh(self.schedule, &body.body.args[..1]);
        let induction = Induction { index: fill.index, low: body.low, step: body.step };
        let mut ops = vec![Op { kind: induction.into(), results: variable, loc: *loc }];
        ops.extend(plan.addresses.iter().map(|op| copies.op(self.schedule, op)));
        let of_threads = plan.thread_parts(&self.schedule.distributed, fill.slot);
        for (CopiedLoad { load, .. }, part) in of_threads {
            let through = if self.is_reused(&load.access) { CopyCache::All } else { CopyCache::Global };
            let to = CopyTarget::Thread(part);
            let copy = AsyncCopy { from: load.access, to, hints: load.cache, through };
            self.copy(&mut ops, *loc, &copies, copy);
        }
        let targets: Vec<Value> =
            plan.contents.tiles.iter().map(|copied| self.target(&mut ops, *loc, copied, fill.slot)).collect();
        for (CopiedTile { op, load, .. }, tile) in plan.contents.tiles.iter().zip(targets) {
            let from = smem_operand::copy_access(&self.schedule.distributed, op, load);
            let to = CopyTarget::Tile(tile);
            let copy = AsyncCopy { from, to, hints: load.cache, through: CopyCache::Global };
            match self.spread_over_threads(&mut ops, &copies, &from) {
                Some(from) => self.schedule.effect(&mut ops, *loc, AsyncCopy { from, ..copy }),
                None => self.copy(&mut ops, *loc, &copies, copy),
            }
        }
        let body = Block { ops, ..Block::default() };
        CopyGroup { before: before.remove(0), group: AsyncGroup { only_if, issue: GroupIssue::Now, body } }
    }

    /// The access of a row with its elements spread over all threads, where its offsets and its mask are cheap: the threads that use an
    /// element are a few that have many.
    fn spread_over_threads(
        &mut self,
        ops: &mut Vec<Op>,
        copies: &Copies,
        access: &MemAccess,
    ) -> Option<MemAccess> {
        let distributed = &self.schedule.distributed;
        let shape = &distributed.func.ty(access.offset).shape;
        if shape.rank() != 1 || distributed.layouts[&access.offset].replicated_warps() == 0 {
            return None;
        }
        let layout = Layout::blocked(shape, &[0], &[0], access.vector, distributed.num_warps);
        let mut spread = SpreadRow { pipeliner: self, copies, layout, ops: vec![], known: HashMap::new() };
        let offset = spread.value(access.offset)?;
        let mask = match access.mask {
            Some(mask) => Some(spread.value(mask)?),
            None => None,
        };
        ops.extend(spread.ops);
        Some(MemAccess { base: access.base.map(|base| copies.get(base)), offset, mask, ..*access })
    }

    /// A copy of values of another iteration.
    fn copy(&mut self, ops: &mut Vec<Op>, loc: Loc, copies: &Copies, mut copy: AsyncCopy) {
        copy.map(&mut |value| copies.get(value));
        self.schedule.effect(ops, loc, copy);
    }

    /// The tile of a load in a slot.
    fn target(&mut self, ops: &mut Vec<Op>, loc: Loc, copied: &CopiedTile, slot: Value) -> Value {
        let result = copied.op.results[0];
        let fast = smem_operand::fast_axis(&self.schedule.distributed, copied.load, result);
        let tile = SlotTile { slot, offset: copied.offset, tile: copied.tile.clone(), fast };
        let ty = self.schedule.ty(result).stored(Storage::Smem { stages: 1 });
        self.schedule.one(ops, loc, tile, ty)
    }

    /// Whether a multiprocessor copies the same elements several times: each of some warps does, or every program. The second-level
    /// cache would be asked for few lines by all of them, at a fraction of its bandwidth.
    fn is_reused(&self, access: &MemAccess) -> bool {
        let varies = |value: Value| self.varying.contains(&value);
        let varies = varies(access.offset) || access.base.is_some_and(varies);
        !varies || self.schedule.distributed.layouts[&access.offset].replicated_warps() > 0
    }

    /// The tiles of a slot that dots read. Those of warpgroups stand in front of each of their dots.
    fn tiles(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, slot: Value) -> Vec<ReadTile> {
        let (mut read, mut of_warps) = (HashSet::new(), HashSet::new());
        ring_loop.body.body.walk(&mut |op| {
            if let Kind::Dot(dot) = &op.kind {
                let by = if dot.unit.is_warpgroup() { &mut read } else { &mut of_warps };
                by.extend(op.kind.operation().operands());
            }
        });
        read.extend(&of_warps);
        let mut tiles = vec![];
        for copied in &ring_loop.plan.contents.tiles {
            let distributed = &self.schedule.distributed;
            let result = copied.op.results[0];
            let fast = smem_operand::fast_axis(distributed, copied.load, result);
            let of_load = |view: &SmemOnlyTile| view.load == result;
            let mut views: Vec<(Value, Vec<Option<usize>>)> = distributed
                .smem_only
                .iter()
                .filter(|(value, view)| of_load(view) && read.contains(value))
                .map(|(&value, view)| (value, view.axes.clone()))
                .collect();
            views.sort_by_key(|(value, _)| *value);
            for (value, axes) in views {
                let (offset, tile) = (copied.offset, copied.tile.viewed(&axes));
                let along = axes.iter().position(|&axis| axis == Some(fast));
                let fast = along.expect("dots read along the rows of memory or across them");
                let ty = self.schedule.ty(value).stored(Storage::Smem { stages: 1 });
                let tile = SlotTile { slot, offset, tile, fast };
                let by_warps = of_warps.contains(&value);
                let read =
                    by_warps.then(|| self.schedule.one(ops, ring_loop.op.loc, tile.clone(), ty.clone()));
                tiles.push(ReadTile { value, tile, ty, read });
            }
        }
        tiles
    }

    /// An operation of the body that reads a slot where it loaded before; nothing may be left of it.
    fn reading_slot(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop, start: &mut IterationStart, op: Op) {
        let result = op.results.first().copied();
        let mut block = Block { ops: vec![op], ..Block::default() };
        let mut has_dot = false;
        block.walk(&mut |op| has_dot |= matches!(op.kind, Kind::Dot(_)));
        if has_dot {
            self.before_dot(ops, ring_loop, start, result);
        }
        self.drop_smem_only(&mut block);
        let tile_of = |value| {
            let tile = start.tiles.iter().find(|tile| tile.value == value);
            tile.and_then(|tile| tile.read).unwrap_or(value)
        };
        substitute_in(&mut block, &tile_of);
        let Some(mut op) = block.ops.pop() else { return };
        if let Kind::Load(load) = &op.kind {
            let load = *load;
            if let Some(from) = self.copied_to(ops, ring_loop, start.slot, op.results[0]) {
                op.kind = slot_load(&load, from).into();
            }
        }
        if let Kind::Dot(dot) = &mut op.kind
            && ring_loop.plan.interleaving_dot() == op.results.first().copied()
        {
            dot.interleaved = start.interleaved;
        }
        if let Kind::Dot(dot) = &op.kind
            && dot.unit.is_warpgroup()
        {
            let result = op.results[0];
            let wgmma = self.wgmma(ops, ring_loop, start, dot, result);
            let Some(most) = dot.imprecise.filter(|&most| wgmma.acc.is_some() || most < wgmma.k[1]) else {
                return ops.push(Op { kind: wgmma.into(), ..op });
            };
            let dot = ImpreciseDot { wgmma, result, loc: op.loc, most };
            let PromotedDot { parts, sum } = promoted(self.schedule, dot);
            return ops.extend(parts.into_iter().chain(sum));
        }
        ops.push(op);
    }

    /// Where a load of this result was copied to in a slot, if it was.
    fn copied_to(
        &mut self,
        ops: &mut Vec<Op>,
        ring_loop: &RingLoop,
        slot: Value,
        result: Value,
    ) -> Option<CopyTarget> {
        let RingLoop { op, plan, .. } = ring_loop;
        if let Some(copied) = plan.contents.tiles.iter().find(|copied| copied.op.results == [result]) {
            return Some(CopyTarget::Tile(self.target(ops, op.loc, copied, slot)));
        }
        let parts = plan.thread_parts(&self.schedule.distributed, slot);
        let own = parts.into_iter().find(|(copied, _)| copied.op.results == [result]);
        own.map(|(_, part)| CopyTarget::Thread(part))
    }

    /// A dot of warpgroups whose operands in shared memory are among these tiles, or stored.
    fn wgmma(
        &mut self,
        ops: &mut Vec<Op>,
        ring_loop: &RingLoop,
        start: &IterationStart,
        dot: &Dot,
        result: Value,
    ) -> Wgmma {
        let loc = ring_loop.op.loc;
        let mut staged = |side: DotOperand| {
            let is_own =
                |StoredTile { operand, .. }: &&StoredTile| operand.dot == result && operand.side == side;
            let (tile, ty) = match ring_loop.plan.contents.stored.iter().find(is_own) {
                Some(stored) => self.stored_tile(ring_loop, stored, start.slot_of(stored)),
                None => {
                    let copied = start.tiles.iter().find(|tile| tile.value == dot.operand(side))?;
                    (copied.tile.clone(), copied.ty.clone())
                }
            };
            // The rows of memory are along K for operand A, and across it for operand B.
            let transposed = tile.fast == 0;
            let place = SmemPlace::Slot(self.schedule.one(ops, loc, tile, ty));
            Some(StagedOperand { place, transposed })
        };
        Wgmma {
            a: staged(DotOperand::A).map_or(WgmmaOperandA::Regs(dot.a), WgmmaOperandA::Smem),
            b: staged(DotOperand::B).expect("operand B of a dot of warpgroups is in shared memory"),
            acc: dot.acc,
            accumulates: None,
            k: [0, dot.inner(&self.schedule.distributed.func)],
            position: vec![],
            transposed: false,
            then: AfterIssue::Wait,
        }
    }

    /// Drops what only names tiles in shared memory: dots read these themselves.
    fn drop_smem_only(&self, block: &mut Block) {
        let smem_only = &self.schedule.distributed.smem_only;
        block.ops.retain(|op| op.results.first().is_none_or(|result| !smem_only.contains_key(result)));
        for op in &mut block.ops {
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| self.drop_smem_only(nested));
        }
    }
}

fn slot_load(load: &Load, from: CopyTarget) -> SlotLoad {
    let masked = load.access.mask.zip(load.other).map(|(mask, other)| MaskedElements { mask, other });
    SlotLoad { from, vector: load.access.vector, masked }
}

/// Rows of another iteration in a layout of their own.
struct SpreadRow<'p, 'a> {
    pipeliner: &'p mut Pipeliner<'a>,
    copies: &'p Copies,
    layout: Layout,
    ops: Vec<Op>,
    known: HashMap<Value, Value>,
}

impl SpreadRow<'_, '_> {
    /// A scalar of that iteration, or a row computed again; `None` where that is more than arithmetic.
    fn value(&mut self, value: Value) -> Option<Value> {
        let schedule = &self.pipeliner.schedule;
        if schedule.ty(value).is_scalar() {
            return Some(self.copies.get(value));
        }
        if let Some(&known) = self.known.get(&value) {
            return Some(known);
        }
        let mut op = self.pipeliner.definitions.get(&value)?.clone();
        let operation = op.kind.operation();
        let relation = operation.layout_relation(&schedule.distributed.func, &op.results);
        let is_arithmetic =
            matches!(relation, LayoutRelation::Lanewise { cheap: true } | LayoutRelation::Source)
                && is_repeatable(operation);
        if !is_arithmetic {
            return None;
        }
        let operands: HashMap<Value, Value> = operation
            .operands()
            .into_iter()
            .map(|operand| Some((operand, self.value(operand)?)))
            .collect::<Option<_>>()?;
        op.kind.operation_mut().map(&mut |operand| operands[&operand]);
        let schedule = &mut self.pipeliner.schedule;
        let spread = schedule.copy_of(value);
        schedule.distributed.layouts.insert(spread, self.layout.clone());
        self.known.insert(value, spread);
        self.ops.push(Op { results: vec![spread], ..op });
        Some(spread)
    }
}
