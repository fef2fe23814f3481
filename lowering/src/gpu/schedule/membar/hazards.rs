//! Hazards: accesses of different threads since the last barrier that may conflict.

use std::collections::HashMap;

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::schedule::{CopyRing, StagedOperand, loop_variable};
use tile_ir::ops::{Effect, Kind, MemAccess, Wgmma};

use crate::gpu::schedule::smem_alloc::Interval;
use crate::gpu::schedule::{Schedule, ScratchExchange};

/// An access that may conflict with those of other threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MemoryEffect {
    Shared {
        interval: Interval,
        /// The loop whose even and odd iterations access different halves.
        parity: Option<Value>,
        writes: bool,
    },
    /// The asynchronous copies of a loop, and what it stores for its dots.
    Ring { interval: Interval, shape: Option<u64> },
    /// A tile that threads store behind the slots of a ring, and warpgroups read.
    Stored { interval: Interval, writes: bool },
    /// Memory of a slice that the kernel writes.
    Slice { access: MemAccess, writes: bool, iteration: WhichIteration },
}

/// When an access happened, relative to where the walk is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WhichIteration {
    /// Once, in the current iteration of all loops around it.
    Current,
    /// In some iteration of the loop with this variable, if it has one.
    Other(Option<Value>),
}

impl MemoryEffect {
    fn of_ring(ring: CopyRing) -> MemoryEffect {
        let interval = Interval { start: ring.start, bytes: ring.bytes };
        MemoryEffect::Ring { interval, shape: ring.shape }
    }

    fn conflicts(&self, other: &MemoryEffect) -> bool {
        match (self, other) {
            (
                MemoryEffect::Shared { interval: a, writes: x, .. },
                MemoryEffect::Shared { interval: b, writes: y, .. },
            )
            | (
                MemoryEffect::Stored { interval: a, writes: x },
                MemoryEffect::Stored { interval: b, writes: y },
            ) => (*x || *y) && a.overlaps(b),
            (MemoryEffect::Ring { interval: a, shape: x }, MemoryEffect::Ring { interval: b, shape: y }) => {
                (x.is_none() || x != y) && a.overlaps(b)
            }
            (MemoryEffect::Ring { interval: a, .. }, MemoryEffect::Shared { interval: b, .. })
            | (MemoryEffect::Shared { interval: a, .. }, MemoryEffect::Ring { interval: b, .. }) => {
                a.overlaps(b)
            }
            (
                MemoryEffect::Slice { access: a, writes: x, iteration: r },
                MemoryEffect::Slice { access: b, writes: y, iteration: s },
            ) => {
                // A thread that accesses its own elements again conflicts with no other thread. The layout follows from
                // the offsets, so equal accesses are equal elements, unless a loop has moved them.
                let current = [r, s].into_iter().all(|iteration| *iteration == WhichIteration::Current);
                let same = a.base == b.base && a.offset == b.offset && a.vector == b.vector && current;
                (*x || *y) && a.param == b.param && !same
            }
            _ => false,
        }
    }
}

/// The memory effects since the last barrier.
#[derive(Debug)]
pub struct Hazards<'a> {
    schedule: &'a Schedule,
    stored_tiles: StoredTiles<'a>,
    /// What threads may have accessed since the last barrier.
    pending: Vec<MemoryEffect>,
}

/// Tiles behind the slots of rings, and the dots that may read them.
#[derive(Default, Debug)]
struct StoredTiles<'a> {
    rings: HashMap<Value, CopyRing>,
    tiles: HashMap<Value, Interval>,
    dots: HashMap<Value, &'a Wgmma>,
}

impl<'a> StoredTiles<'a> {
    fn find(func: &'a Func) -> StoredTiles<'a> {
        let mut found = StoredTiles::default();
        func.body.walk(&mut |op| {
            if let Kind::RingStart(start) = &op.kind {
                found.rings.insert(op.results[0], start.ring);
            }
            // The first slot is named by its own value alone where a tile is behind all slots.
            if let Kind::SlotTile(tile) = &op.kind
                && let Some(ring) = found.rings.get(&tile.slot)
            {
                let interval = Interval { start: ring.start + tile.offset, bytes: tile.tile.bytes };
                found.tiles.insert(op.results[0], interval);
            }
            if let Kind::Wgmma(dot) = &op.kind {
                found.dots.insert(op.results[0], dot);
            }
        });
        found
    }

    /// The tiles that an operation writes or reads: a dot does when it is issued, and until the wait for it.
    fn effects(&self, op: &Op) -> Vec<MemoryEffect> {
        let effect = |tile: &Value, writes| {
            self.tiles.get(tile).map(|&interval| MemoryEffect::Stored { interval, writes })
        };
        let read = |dot: &Wgmma| {
            let tiles = dot.smem_operands().into_iter().map(StagedOperand::memory);
            tiles.filter_map(|tile| effect(&tile, false)).collect::<Vec<_>>()
        };
        if let Kind::SlotStore(store) = &op.kind {
            return effect(&store.to, true).into_iter().collect();
        }
        if let Kind::Wgmma(dot) = &op.kind {
            return read(dot);
        }
        let Kind::DotWait(wait) = &op.kind else { return vec![] };
        let dots = wait.values.iter().filter_map(|value| self.dots.get(value));
        dots.flat_map(|dot| read(dot)).collect()
    }
}

impl<'a> Hazards<'a> {
    pub fn new(schedule: &'a Schedule) -> Hazards<'a> {
        let stored_tiles = StoredTiles::find(&schedule.distributed.func);
        Hazards { schedule, stored_tiles, pending: vec![] }
    }

    /// Records that a loop uses its ring; true when a barrier must come before it.
    pub fn use_ring(&mut self, ring: CopyRing) -> bool {
        self.record(MemoryEffect::of_ring(ring))
    }

    /// Every warp has waited for a message from all others: their earlier accesses to shared memory are done. Their stores to
    /// slices may still be pending.
    pub fn after_remote_wait(&mut self) {
        self.pending.retain(|effect| matches!(effect, MemoryEffect::Slice { .. }));
    }

    /// Whether threads may have accessed slices that are written since the last barrier.
    pub fn has_slice_effects(&self) -> bool {
        self.pending.iter().any(|effect| matches!(effect, MemoryEffect::Slice { .. }))
    }

    /// A barrier was passed.
    pub fn after_barrier(&mut self) {
        self.pending.clear();
    }

    /// Records an access; true when a barrier must come before it.
    fn record(&mut self, effect: MemoryEffect) -> bool {
        let conflict =
            self.pending.iter().any(|other| other.conflicts(&effect) && !self.are_disjoint(other, &effect));
        if conflict {
            self.pending.clear();
        }
        if !self.pending.contains(&effect) {
            self.pending.push(effect);
        }
        conflict
    }

    fn are_disjoint(&self, a: &MemoryEffect, b: &MemoryEffect) -> bool {
        let (
            MemoryEffect::Slice { access: a, iteration: r, .. },
            MemoryEffect::Slice { access: b, iteration: s, .. },
        ) = (a, b)
        else {
            return false;
        };
        let Some(alias) = &self.schedule.alias else { return false };
        match (*r, *s) {
            (WhichIteration::Current, WhichIteration::Current) => alias.are_disjoint(*a, *b),
            (WhichIteration::Other(Some(variable)), WhichIteration::Current)
            | (WhichIteration::Current, WhichIteration::Other(Some(variable))) => {
                alias.are_disjoint_across_iterations(variable, *a, *b)
            }
            _ => false,
        }
    }

    pub fn write(&mut self, exchange: ScratchExchange) -> bool {
        let ScratchExchange { interval, parity } = exchange;
        self.record(MemoryEffect::Shared { interval, parity, writes: true })
    }

    pub fn read(&mut self, exchange: ScratchExchange) -> bool {
        let ScratchExchange { interval, parity } = exchange;
        self.record(MemoryEffect::Shared { interval, parity, writes: false })
    }

    /// Records the accesses of an operation to tiles behind the slots of rings.
    pub fn access_stored_tiles(&mut self, op: &Op) -> bool {
        let mut conflicts = false;
        for effect in self.stored_tiles.effects(op) {
            conflicts |= self.record(effect);
        }
        conflicts
    }

    /// An access to a slice that the kernel writes.
    pub fn access_slice(&mut self, access: MemAccess, writes: bool) -> bool {
        self.record(MemoryEffect::Slice { access, writes, iteration: WhichIteration::Current })
    }

    /// The pending effects, for a second path through the code.
    pub fn snapshot(&self) -> Vec<MemoryEffect> {
        self.pending.clone()
    }

    pub fn restore(&mut self, pending: Vec<MemoryEffect>) {
        self.pending = pending;
    }

    /// Adds the pending effects of another path to the same point.
    pub fn join(&mut self, other: Vec<MemoryEffect>) {
        for effect in other {
            if !self.pending.contains(&effect) {
                self.pending.push(effect);
            }
        }
    }

    /// Adds what a loop's body may leave pending when it starts over: all effects behind the last wait in shared memory, every
    /// access to a slice that is written, and its own ring in spite of the body's waits.
    pub fn enter_loop(&mut self, body: &Block) {
        let mut effects = self.effects_of_iterations(body);
        // An iteration uses the other half than the one before it, and in between all warps wait for each other.
        let alternates = |parity: &Option<Value>| parity.is_some() && *parity == body.args.first().copied();
        effects.retain(|effect| !matches!(effect, MemoryEffect::Shared { parity, .. } if alternates(parity)));
        self.join(effects);
    }

    /// Adds what a loop may leave pending behind itself.
    pub fn leave_loop(&mut self, body: &Block) {
        let effects = self.effects_of_iterations(body);
        self.join(effects);
    }

    fn effects_of_iterations(&self, body: &Block) -> Vec<MemoryEffect> {
        let mut effects = vec![];
        self.effects_of(body, loop_variable(body), &mut effects);
        effects.extend(ring_of(body));
        effects
    }

    fn effects_of(&self, block: &Block, variable: Option<Value>, effects: &mut Vec<MemoryEffect>) {
        for op in &block.ops {
            if matches!(op.kind, Kind::Barrier(_)) {
                effects.clear();
            }
            effects.extend(self.stored_tiles.effects(op));
            let operation = op.kind.operation();
            let exchanged = self.schedule.exchanges(op);
            if !exchanged.is_empty() {
                // Between its writes and its reads every warp waits for all others.
                effects.retain(|effect| matches!(effect, MemoryEffect::Slice { .. }));
                effects.extend(exchanged.into_iter().map(|ScratchExchange { interval, parity }| {
                    MemoryEffect::Shared { interval, parity, writes: true }
                }));
            }
            let nested = if matches!(op.kind, Kind::ReduceBatch(_)) { vec![] } else { operation.blocks() };
            for nested in nested {
                // It may not run at all.
                let mut own = vec![];
                self.effects_of(nested, variable, &mut own);
                effects.extend(ring_of(nested));
                effects.extend(own);
            }
            if let Some(access) = operation.access()
                && self.schedule.distributed.func.slice(access.param).1
            {
                let writes = operation.effect() == Effect::Write;
                effects.push(MemoryEffect::Slice {
                    access: *access,
                    writes,
                    iteration: WhichIteration::Other(variable),
                });
            }
        }
    }
}

/// The ring of the loop with this body, if it has one.
fn ring_of(body: &Block) -> Option<MemoryEffect> {
    let ring = |op: &Op| if let Kind::AsyncWait(wait) = &op.kind { Some(wait.ring) } else { None };
    body.ops.iter().find_map(ring).map(MemoryEffect::of_ring)
}
