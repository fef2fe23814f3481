//! Barriers where accesses of different threads may conflict (`membar`), and nowhere else.
//!
//! Takes the function in the order in which threads run it, with the accesses that wait for a barrier: to scratch memory, to rings of
//! copies and the tiles behind their slots, and to slices that the kernel writes. A barrier may stand anywhere, because control flow is the same in all threads of a
//! program. It costs time, so one stands before an operation from one iteration of a loop to the next, and where two ways meet, as in
//! straight code. Legal where, and put only where:
//! 1. the operation accesses shared memory that another thread may have accessed since the last barrier, and one of both writes;
//! 2. or it accesses a slice that another thread may have accessed, one of both writes, and the two may meet (`alias`);
//! 3. or it is an atomic operation that releases what threads have accessed, or follows one that acquires, whose result each thread
//!    has from its own.
//!
//! A release also waits until TMA stores are in memory.
//! The barrier between what an operation writes to its scratch memory and what it reads from there is part of the operation.

mod hazards;

use std::collections::HashSet;
use std::vec::IntoIter;

use tile_ir::analysis::alias::SliceAlias;
use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::WaitedStores;
use tile_ir::ops::{Atomic, Barrier, Effect, Kind, MemoryOrder, StoreWait};

use self::hazards::Hazards;
use super::scratch::idle_warps;
use super::{Schedule, ScratchExchange};

/// The pass: see the module.
pub fn membar(schedule: &mut Schedule) {
    if schedule.alias.is_none() {
        schedule.alias = Some(SliceAlias::analyze(&schedule.distributed.func, &schedule.guards));
    }
    let missing = missing_barriers(schedule).into_iter();
    let body = &mut schedule.distributed.func.body;
    let mut stores_by_tma = false;
    body.walk(&mut |op| stores_by_tma |= matches!(op.kind, Kind::TmaStore(_)));
    BarrierInsertion { missing, stores_by_tma }.insert(body);
}

/// Where a barrier is missing.
pub enum MissingBarrier<'s> {
    Before(&'s Op),
    EndOfBlock,
}

/// The first barrier that is missing, if there is one.
pub fn first_missing_barrier(schedule: &Schedule) -> Option<MissingBarrier<'_>> {
    let mut missing = missing_barriers(schedule).into_iter();
    first_in(&schedule.distributed.func.body, &mut missing)
}

/// Which operations of each block a barrier is missing before, by their indices; blocks in the order of [`nested`].
fn missing_barriers(schedule: &Schedule) -> Vec<Vec<usize>> {
    let func = &schedule.distributed.func;
    let hazards = Hazards::new(schedule);
    let mut positive = HashSet::new();
    func.body.walk(&mut |op| {
        if matches!(&op.kind, Kind::TripCount(count) if count.runs) {
            positive.extend(&op.results);
        }
    });
    let mut walk = BarrierWalk { schedule, hazards, positive, has_acquired: false, missing: vec![] };
    walk.block(&func.body);
    walk.missing
}

/// Whether an operation that exchanges elements waits for them at `mbarrier` objects, and not at a barrier.
fn waits_remotely(op: &Op) -> bool {
    let Kind::ReduceBatch(batch) = &op.kind else { return false };
    (0..batch.body.ops.len()).all(|index| batch.exchange(index).barrier.is_some())
}

/// The blocks of an operation that threads run as they stand there.
fn nested(op: &Op) -> Vec<&Block> {
    let operation = op.kind.operation();
    if operation.isolated() || matches!(op.kind, Kind::ReduceBatch(_)) { vec![] } else { operation.blocks() }
}

fn nested_mut(op: &mut Op) -> Vec<&mut Block> {
    if nested(op).is_empty() { vec![] } else { op.kind.operation_mut().blocks_mut() }
}

/// The insertion of barriers that are missing.
struct BarrierInsertion {
    missing: IntoIter<Vec<usize>>,
    /// Whether a release waits for TMA stores.
    stores_by_tma: bool,
}

impl BarrierInsertion {
    fn insert(&mut self, block: &mut Block) {
        let own = self.missing.next().unwrap_or_default();
        let ops = std::mem::take(&mut block.ops);
        let count = ops.len();
        let push = |block: &mut Block, kind: Kind, loc| block.ops.push(Op { kind, results: vec![], loc });
        let mut last = None;
        for (index, mut op) in ops.into_iter().enumerate() {
            last = Some(op.loc);
            if self.stores_by_tma && matches!(&op.kind, Kind::Atomic(atomic) if releases(atomic)) {
                push(block, StoreWait { until: WaitedStores::Written }.into(), op.loc);
            }
            if own.contains(&index) {
                push(block, Barrier.into(), op.loc);
            }
            nested_mut(&mut op).into_iter().for_each(|block| self.insert(block));
            block.ops.push(op);
        }
        if let Some(loc) = last.filter(|_| own.contains(&count)) {
            push(block, Barrier.into(), loc);
        }
    }
}

fn first_in<'b>(block: &'b Block, missing: &mut IntoIter<Vec<usize>>) -> Option<MissingBarrier<'b>> {
    let own = missing.next().unwrap_or_default();
    for (index, op) in block.ops.iter().enumerate() {
        if own.contains(&index) {
            return Some(MissingBarrier::Before(op));
        }
        let found = nested(op).into_iter().find_map(|block| first_in(block, missing));
        if found.is_some() {
            return found;
        }
    }
    own.contains(&block.ops.len()).then_some(MissingBarrier::EndOfBlock)
}

fn releases(atomic: &Atomic) -> bool {
    matches!(atomic.order, MemoryOrder::Release | MemoryOrder::AcqRel)
}

fn acquires(atomic: &Atomic) -> bool {
    matches!(atomic.order, MemoryOrder::Acquire | MemoryOrder::AcqRel)
}

/// The walk over a function in the order in which threads run it.
struct BarrierWalk<'s> {
    schedule: &'s Schedule,
    hazards: Hazards<'s>,
    /// Trip counts that are above 0.
    positive: HashSet<Value>,
    /// Whether a barrier must follow before anything else.
    has_acquired: bool,
    missing: Vec<Vec<usize>>,
}

impl BarrierWalk<'_> {
    fn block(&mut self, block: &Block) {
        let number = self.missing.len();
        self.missing.push(vec![]);
        for (index, op) in block.ops.iter().enumerate() {
            let is_missing = self.acquired(op) | self.access(op);
            self.missing[number].extend(is_missing.then_some(index));
            self.nested(op);
        }
        if std::mem::take(&mut self.has_acquired) {
            self.hazards.after_barrier();
            self.missing[number].push(block.ops.len());
        }
    }

    /// Whether a barrier is missing behind the operation before.
    fn acquired(&mut self, op: &Op) -> bool {
        let is_missing = std::mem::take(&mut self.has_acquired) && !matches!(op.kind, Kind::Barrier(_));
        if is_missing {
            self.hazards.after_barrier();
        }
        is_missing
    }

    /// Records what an operation itself accesses; true when a barrier must come before it.
    fn access(&mut self, op: &Op) -> bool {
        if matches!(op.kind, Kind::Barrier(_)) {
            self.hazards.after_barrier();
        }
        let mut conflicts = false;
        if let Kind::RingStart(start) = &op.kind {
            conflicts |= self.hazards.use_ring(start.ring);
        }
        if let Kind::Atomic(atomic) = &op.kind
            && releases(atomic)
            && self.hazards.has_slice_effects()
        {
            self.hazards.after_barrier();
            conflicts = true;
        }
        let (operation, func) = (op.kind.operation(), &self.schedule.distributed.func);
        if let Some(access) = operation.access()
            && func.slice(access.param).1
        {
            conflicts |= self.hazards.access_slice(*access, operation.effect() == Effect::Write);
        }
        conflicts |= self.hazards.access_stored_tiles(op);
        let exchanged = self.schedule.exchanges(op);
        if !exchanged.is_empty() {
            conflicts |= self.exchange(op, &exchanged);
        }
        if let Kind::Atomic(atomic) = &op.kind {
            self.has_acquired = acquires(atomic)
                && func.body.uses(op.results[0]) > 0
                && idle_warps(&self.schedule.distributed, op) == 0;
        }
        conflicts
    }

    /// An exchange of elements through scratch memory: all threads write, wait, and read.
    fn exchange(&mut self, op: &Op, exchanged: &[ScratchExchange]) -> bool {
        let mut conflicts = false;
        for &exchange in exchanged {
            conflicts |= self.hazards.write(exchange);
        }
        if waits_remotely(op) {
            self.hazards.after_remote_wait();
        } else {
            self.hazards.after_barrier();
        }
        for &exchange in exchanged {
            self.hazards.read(exchange);
        }
        conflicts
    }

    /// Walks the blocks of an operation.
    fn nested(&mut self, op: &Op) {
        let is_loop = matches!(op.kind, Kind::For(_) | Kind::Loop(_) | Kind::While(_));
        let blocks = nested(op);
        let unless_it_runs = if is_loop && !self.runs(op) { self.hazards.snapshot() } else { vec![] };
        if is_loop {
            blocks.iter().for_each(|body| self.hazards.enter_loop(body));
        }
        if let Kind::If(branch) = &op.kind {
            let before = self.hazards.snapshot();
            self.block(&branch.then);
            let after_then = self.hazards.snapshot();
            self.hazards.restore(before);
            self.block(&branch.otherwise);
            self.hazards.join(after_then);
            return;
        }
        blocks.iter().for_each(|block| self.block(block));
        if is_loop {
            blocks.iter().for_each(|body| self.hazards.leave_loop(body));
        }
        self.hazards.join(unless_it_runs);
    }

    /// Whether a loop is known to run at least once.
    fn runs(&self, op: &Op) -> bool {
        if let Kind::For(body) = &op.kind {
            return self.schedule.runs(body);
        }
        matches!(&op.kind, Kind::Loop(body) if self.positive.contains(&body.end))
    }
}
