//! A software pipeline with `cp.async`: loads of later iterations are in flight while the current one computes.
//!
//! Each thread copies the elements it will need to its own part of shared memory, one iteration fewer ahead than
//! there are stages, and reads them back in their iteration. No thread reads what another one copied, so there is no
//! barrier, and copies in flight take no registers. The ring rotates its slots: a copy goes to the slot that the
//! iteration before last read. A large ring has one slot less, and an iteration refills its own slot as soon as it
//! has read it: a program that processes long rows one after the other so has the next row in flight.
//!
//! Operands that only dots read are copied to tiles that all threads read (`smem_operand`). An iteration then begins
//! with a wait for its own copies and one barrier, behind a proxy fence where warpgroups read them. After the barrier
//! every thread's copies for this iteration have landed, and no thread reads the slot of the iteration before, which the
//! next copies overwrite. In a loop of warpgroups a load that several warps would copy, each for itself, is such a tile too: its elements
//! are copied once, and threads read theirs behind the barrier.
//!
//! A loop with a ring becomes a prologue and a `loop` that carries its slot. The prologue stands as early in the block as its
//! addresses allow, so that its copies are in flight while the operations before the loop wait. No copy is of an iteration beyond the
//! last one: a group is empty there, and so are its loads of indices. A slot is refilled when all that read it have done so: threads
//! that read it themselves wait for their warp, and threads that read a tile wait for all others.
//!
//! Legal where
//! 1. the address of a load follows from the loop's variable and from values outside of the loop (`address_slice`), by operations
//!    that are cheap enough to do them again for another iteration;
//! 2. nothing in the kernel writes what it reads;
//! 3. `cp.async` can do it: by at least four bytes, and by vectors with zeros behind the end of a slice;
//! 4. the ring has several stages, and has got shared memory for them.

pub mod address_slice;
pub mod async_load;
mod iteration;
pub mod plan;
pub mod ring;
mod ring_loop;

use tile_ir::analysis::alias::SliceAlias;
use tile_ir::analysis::program_varying::{Across, varying};
use tile_ir::ir::{Block, Op};
use tile_ir::ops::schedule::RingStart;
use tile_ir::ops::{Kind, PdlWait, SlotAt, TripCount};

use crate::gpu::schedule::Schedule;
use crate::gpu::schedule::pdl::has_memory_effect;
use plan::CopyPlan;
use ring_loop::{Fill, Pipeliner, RingLoop, StartedLoop, index_type};

/// The pass: see the module.
pub fn software_pipeline(schedule: &mut Schedule) {
    let rings = std::mem::take(&mut schedule.rings);
    if rings.is_empty() {
        return;
    }
    // The accesses of slices that the kernel writes stay as they are, but not the loops around them.
    schedule.alias = Some(SliceAlias::analyze(&schedule.distributed.func, &schedule.guards));
    let varying = varying(&schedule.distributed.func, Across::Programs);
    let definitions = schedule.distributed.func.cloned_definitions();
    let body = std::mem::take(&mut schedule.distributed.func.body);
    let waits_for_kernel = schedule.setup.uses_pdl;
    let mut pipeliner = Pipeliner { schedule, rings, definitions, varying, waits_for_kernel };
    let ops = pipeliner.block(&body);
    schedule.distributed.func.body = Block { ops, ..body };
    schedule.distributed.smem_only.clear();
}

/// A loop whose prologue stands before the operations in front of it.
#[derive(Clone, Copy)]
struct EarlyPrologue {
    /// The operation that the prologue stands behind, and the loop, by their indices in the block.
    after: usize,
    ring_loop: usize,
}

impl Pipeliner<'_> {
    /// The operations of a block in which loops with rings are pipelined.
    fn block(&mut self, block: &Block) -> Vec<Op> {
        self.rewritten(block).into_iter().flatten().collect()
    }

    /// The same, those that each operation has become.
    fn rewritten(&mut self, block: &Block) -> Vec<Vec<Op>> {
        let early = self.earliest_prologue(block);
        let mut started = None;
        let mut rewritten = vec![];
        for (index, op) in block.ops.iter().enumerate() {
            let mut ops = vec![];
            if let Some(ring_loop) = self.ring_loop(op) {
                let started = match started.take() {
                    Some(started) => started,
                    None => self.start(&mut ops, &ring_loop),
                };
                self.iterations(&mut ops, &ring_loop, started);
            } else {
                self.waits_for_kernel &= !has_memory_effect(op);
                ops.push(self.with_blocks(op));
            }
            if let Some(early) = early.filter(|early| early.after == index) {
                let ring_loop = self.ring_loop(&block.ops[early.ring_loop]).expect("it has a ring");
                started = Some(self.start(&mut ops, &ring_loop));
            }
            rewritten.push(ops);
        }
        rewritten
    }

    /// An operation with its blocks rewritten.
    fn with_blocks(&mut self, op: &Op) -> Op {
        let mut op = op.clone();
        if !op.kind.operation().isolated() {
            for block in op.kind.operation_mut().blocks_mut() {
                let own = std::mem::take(block);
                *block = Block { ops: self.block(&own), ..own };
            }
        }
        op
    }

    fn ring_loop<'b>(&self, op: &'b Op) -> Option<RingLoop<'b>> {
        let Kind::For(body) = &op.kind else { return None };
        let allocated = *self.rings.get(&body.body.args[0])?;
        let plan = CopyPlan::new(&self.schedule.distributed, body)?.within(allocated);
        let ring = plan.copy_ring(allocated);
        Some(RingLoop { op, body, plan, ring })
    }

    /// Where the prologue of a block's first loop may stand, if that is known in the block. Reductions side by side stay so,
    /// for they share a barrier.
    fn earliest_prologue(&self, block: &Block) -> Option<EarlyPrologue> {
        let has_blocks =
            |op: &Op| !op.kind.operation().blocks().is_empty() && !op.kind.operation().isolated();
        let ring_loop = block.ops.iter().position(has_blocks)?;
        let RingLoop { body, plan, .. } = self.ring_loop(&block.ops[ring_loop])?;
        let mut used = vec![body.low, body.high, body.step];
        used.extend(plan.addresses.iter().flat_map(|op| op.kind.operation().operands()));
        let loads = plan.contents.loads.iter().map(|copied| copied.load);
        let tiles = plan.contents.tiles.iter().map(|copied| copied.load);
        used.extend(loads.chain(tiles).flat_map(|load| load.access.operands()));
        let last = block.ops.iter().rposition(|op| op.results.iter().any(|result| used.contains(result)))?;
        let reductions =
            block.ops[last..ring_loop].iter().take_while(|op| matches!(op.kind, Kind::Reduce(_)));
        Some(EarlyPrologue { after: last + reductions.count().saturating_sub(1), ring_loop })
    }

    /// The trip count and the prologue of a loop.
    fn start(&mut self, ops: &mut Vec<Op>, ring_loop: &RingLoop) -> StartedLoop {
        let RingLoop { op: Op { loc, .. }, body, plan, ring } = ring_loop;
        if std::mem::take(&mut self.waits_for_kernel) {
            self.schedule.effect(ops, *loc, PdlWait);
        }
        let trip_count =
            self.schedule.one(ops, *loc, TripCount::of(body, self.schedule.runs(body)), index_type());
        let widths = plan.widths(&self.schedule.distributed.func);
        let start = RingStart { ring: *ring, widths, has_tiles: plan.contents.has_tiles() };
        let ty = start.result_type();
        let first_slot = self.schedule.one(ops, *loc, start, ty.clone());
        let started = StartedLoop { trip_count, first_slot };
        for stage in 0..plan.distance() {
            let index = self.constant(ops, ring_loop, stage);
            let at = SlotAt { first: first_slot, ring: *ring, index: stage };
            let slot = self.schedule.one(ops, *loc, at, ty.clone());
            let group = self.group(ring_loop, started, Fill { index, slot });
            group.issue(self.schedule, ops, *loc);
        }
        started
    }
}
