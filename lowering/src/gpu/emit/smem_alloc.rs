//! Shared memory: who uses which part of it, and where a barrier must stand.
//!
//! Scratch memory lives while its operation runs, so large parts lie on top of each other; small ones get places of
//! their own while there is room, which saves the barrier between two uses. What is used behind the last loop lies where
//! loops had their copies. A barrier is placed where an access could
//! meet one of another thread since the last barrier, in shared memory or in a slice that the kernel writes.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::analysis::bounds::DisjointAccesses;
use crate::analysis::polynomial::Polynomials;
use crate::gpu::emit::MAX_SHARED_BYTES;
use crate::gpu::emit::smem_operand;
use crate::gpu::emit::warp_specialize;
use crate::gpu::emit::warp_specialize::TmaPipeline;
use crate::gpu::layout::Distributed;
use crate::ir::guard::Guard;
use crate::ir::{Block, Func, Op, Value};
use crate::ops::{Effect, Kind, MemAccess};
use crate::support::diagnostic::Loc;

/// Scratch up to this size gets a place of its own.
const SMALL: u32 = 1024;
/// Places of their own take at most this much together.
const SMALL_TOTAL: u32 = 8192;
/// An `mbarrier` object.
pub(super) const SIGNAL: u32 = 8;
/// Accesses to slices that are written, beyond which nobody asks which of them meet.
const MAX_COMPARED: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Interval {
    pub start: u32,
    pub bytes: u32,
}

impl Interval {
    pub fn meets(&self, other: &Interval) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }
}

/// An access that may meet those of other threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum MemoryEffect {
    Shared {
        place: Interval,
        writes: bool,
    },
    /// A loop's copies ahead.
    Ring {
        place: Interval,
        shape: Option<u64>,
    },
    /// Memory of a slice that the kernel writes.
    Slice {
        place: MemAccess,
        writes: bool,
        turn: WhichIteration,
    },
}

/// When an access happened, as seen from the code that is being emitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum WhichIteration {
    /// Once, in the present turn of all loops around it.
    Present,
    /// In some turn of the loop with this variable, if it has one.
    Other(Option<Value>),
}

impl MemoryEffect {
    fn conflicts(&self, other: &MemoryEffect) -> bool {
        match (self, other) {
            (MemoryEffect::Shared { place: a, writes: x }, MemoryEffect::Shared { place: b, writes: y }) => {
                (*x || *y) && a.meets(b)
            }
            (MemoryEffect::Ring { place: a, shape: x }, MemoryEffect::Ring { place: b, shape: y }) => {
                (x.is_none() || x != y) && a.meets(b)
            }
            (MemoryEffect::Ring { place: a, .. }, MemoryEffect::Shared { place: b, .. })
            | (MemoryEffect::Shared { place: a, .. }, MemoryEffect::Ring { place: b, .. }) => a.meets(b),
            (
                MemoryEffect::Slice { place: a, writes: x, turn: r },
                MemoryEffect::Slice { place: b, writes: y, turn: s },
            ) => {
                // A thread that comes back to the very elements it touched itself meets nobody. The layout follows from
                // the offsets, so equal places are equal elements, unless a loop has moved them.
                let present = [r, s].into_iter().all(|turn| *turn == WhichIteration::Present);
                let same = a.base == b.base && a.offset == b.offset && a.vector == b.vector && present;
                (*x || *y) && a.param == b.param && !same
            }
            _ => false,
        }
    }
}

/// Operations that do not fit into shared memory, at least one: the one limit that only shows once threads are assigned.
#[derive(Clone, Debug)]
pub struct SmemOverflow(pub Vec<SmemRequest>);

/// An operation that takes more shared memory than a block has.
#[derive(Clone, Copy, Debug)]
pub struct SmemRequest {
    pub loc: Loc,
    pub bytes: u32,
}

/// Shared memory for what a loop copies.
#[derive(Clone)]
pub struct SmemRing {
    /// The sizes that will do, the best first.
    pub bytes: Vec<u32>,
    /// Where shared memory should end then, the best first.
    pub limits: &'static [u32],
    /// Tells which parts are whose, if each thread uses parts of its own: rings of the same shape may follow each other
    /// without a barrier.
    pub shape: Option<u64>,
}

/// Scratch memory in two: what operations take that stand before the end of the last loop and the last product of blocks,
/// and what those behind it take, if that is much.
struct ScratchBytes {
    first: Vec<(Value, u32)>,
    last: Vec<(Value, u32)>,
}

impl ScratchBytes {
    fn new(distributed: &Distributed, alternating: &HashSet<Value>) -> Result<ScratchBytes, SmemOverflow> {
        let mut needs = ScratchBytes { first: vec![], last: vec![] };
        let mut too_large = vec![];
        let ops = &distributed.func.body.ops;
        let last = ops.iter().rposition(copies);
        // Memory of other blocks, which may be behind, is not used for something else.
        let end = last.filter(|_| distributed.num_ctas == 1).map_or(ops.len(), |last| last + 1);
        for (number, op) in ops.iter().enumerate() {
            walk(op, &mut |op| {
                // What is seen of a tile moves nothing.
                let moves = op.results.first().is_none_or(|result| !distributed.copied.contains_key(result));
                let bytes = if moves { op.kind.gpu().scratch(distributed, op) } else { 0 };
                let bytes = bytes.next_multiple_of(16);
                if bytes > MAX_SHARED_BYTES {
                    too_large.push(SmemRequest { loc: op.loc, bytes });
                }
                if bytes > 0 {
                    let turns = if alternating.contains(&op.results[0]) { 2 } else { 1 };
                    let list =
                        if number < end || bytes <= SMALL { &mut needs.first } else { &mut needs.last };
                    list.push((op.results[0], bytes * turns));
                }
            });
        }
        if too_large.is_empty() { Ok(needs) } else { Err(SmemOverflow(too_large)) }
    }
}

/// Whether an operation may have copies to shared memory under way while it runs.
fn copies(op: &Op) -> bool {
    let mut found = false;
    walk(op, &mut |op| found |= matches!(op.kind, Kind::For(_) | Kind::While(_) | Kind::WarpGroupDot(_)));
    found
}

/// An operation and those inside of it.
fn walk(op: &Op, visit: &mut impl FnMut(&Op)) {
    visit(op);
    op.kind.operation().blocks().into_iter().for_each(|block| block.walk(visit));
}

/// Finds places from the start of shared memory on, and of their own for what lasts beyond one operation; gives where
/// they end.
fn laid(needs: &[(Value, u32)], lasting: &HashSet<Value>, places: &mut HashMap<Value, Interval>) -> u32 {
    let mut small_total = 0;
    let is_small: Vec<bool> = needs
        .iter()
        .map(|&(value, bytes)| {
            let lasts = lasting.contains(&value);
            let small = lasts || bytes <= SMALL && small_total + bytes <= SMALL_TOTAL;
            small_total += if small { bytes } else { 0 };
            small
        })
        .collect();
    let large = needs.iter().zip(&is_small).filter(|(_, small)| !**small).map(|(need, _)| need.1);
    let mut next = large.max().unwrap_or(0);
    for (&(value, bytes), small) in needs.iter().zip(is_small) {
        let start = if small { next } else { 0 };
        next += if small { bytes } else { 0 };
        places.insert(value, Interval { start, bytes });
    }
    next
}

type Pairs = HashSet<(MemAccess, MemAccess)>;
/// With the variable of a loop.
type PairsAcrossIterations = HashSet<(Value, MemAccess, MemAccess)>;

#[derive(Clone, Debug)]
pub(super) struct SmemPlan {
    places: HashMap<Value, Interval>,
    /// Where an operation's barrier object lies.
    signals: HashMap<Value, u32>,
    /// Reductions of which every other turn of a loop has a place and a barrier object of its own, so that a turn need not
    /// wait until all have read what the one before it left.
    alternating: Rc<HashSet<Value>>,
    /// By the loop's variable.
    rings: HashMap<Value, (Interval, Option<u64>)>,
    bytes: u32,
    /// What threads may have touched since the last barrier.
    pending: Vec<MemoryEffect>,
    /// Accesses of one slice that never meet in one turn of the loops around them.
    apart: Rc<Pairs>,
    /// Accesses of one slice that never meet in different turns of the loop with this variable.
    apart_in_turns: Rc<PairsAcrossIterations>,
}

impl SmemPlan {
    /// With `pipeline` blocks of views get places too.
    pub fn plan(
        distributed: &Distributed,
        facts: &[Guard],
        pipeline: Option<&mut TmaPipeline>,
    ) -> Result<SmemPlan, SmemOverflow> {
        let mut signalling = vec![];
        distributed.func.body.walk(&mut |op| {
            if op.kind.gpu().signals(distributed) {
                signalling.push(op.results[0]);
            }
        });
        let alternating = alternating(distributed);
        let needs = ScratchBytes::new(distributed, &alternating)?;
        let mut places = HashMap::new();
        let mut lasting = HashSet::clone(&alternating);
        distributed.func.body.walk(&mut |op| {
            lasting.extend(op.results.first().filter(|_| matches!(op.kind, Kind::For(_))));
        });
        let mut next = laid(&needs.first, &lasting, &mut places);
        let last = laid(&needs.last, &lasting, &mut places);
        let mut signals = HashMap::new();
        for value in signalling {
            signals.insert(value, next);
            next += if alternating.contains(&value) { 2 * SIGNAL } else { SIGNAL };
        }
        let (apart, apart_in_turns) = apart(&distributed.func, facts);
        let mut shared = SmemPlan {
            places,
            signals,
            alternating,
            rings: HashMap::new(),
            bytes: next.max(last),
            pending: vec![],
            apart: Rc::new(apart),
            apart_in_turns: Rc::new(apart_in_turns),
        };
        match pipeline {
            Some(pipeline) => {
                shared.bytes = pipeline.place(next.max(last));
                if shared.bytes > warp_specialize::MAX_BYTES {
                    let (loc, bytes) = (distributed.func.loc, shared.bytes);
                    return Err(SmemOverflow(vec![SmemRequest { loc, bytes }]));
                }
            }
            None => {
                shared.place_rings(distributed, &distributed.func.body, next.next_multiple_of(16));
                // Where the next program's part starts.
                let alignment = if distributed.copied.is_empty() { 1 } else { smem_operand::ALIGNMENT };
                shared.bytes = shared.bytes.next_multiple_of(alignment);
            }
        }
        Ok(shared)
    }

    /// Places the rings of a block's loops, where there is room: those of loops one after the other lie on top of each other.
    fn place_rings(&mut self, distributed: &Distributed, block: &Block, start: u32) {
        for op in &block.ops {
            let ring = op.kind.gpu().ring(distributed).and_then(|SmemRing { bytes, limits, shape }| {
                let start =
                    if shape.is_none() { start.next_multiple_of(smem_operand::ALIGNMENT) } else { start };
                let fits = |limit: &u32| bytes.iter().find(|&&bytes| start.saturating_add(bytes) <= *limit);
                let bytes = *limits.iter().find_map(fits)?;
                Some((Interval { start, bytes }, shape))
            });
            let end = ring.map_or(start, |(place, _)| place.start + place.bytes);
            for nested in op.kind.operation().blocks() {
                if let Some(ring) = ring {
                    self.rings.insert(nested.args[0], ring);
                    self.bytes = self.bytes.max(end);
                }
                self.place_rings(distributed, nested, end);
            }
        }
    }

    /// The ring of the loop with this variable, if there was room.
    pub fn ring(&self, variable: Value) -> Option<Interval> {
        self.rings.get(&variable).map(|(place, _)| *place)
    }

    /// Records that a loop uses its ring; true when a barrier must come before it.
    pub fn use_ring(&mut self, variable: Value) -> bool {
        let (place, shape) = self.rings[&variable];
        self.touch(MemoryEffect::Ring { place, shape })
    }

    /// Shared memory of one program.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether any operation has scratch memory.
    pub fn is_scratch_used(&self) -> bool {
        !self.places.is_empty()
    }

    /// The scratch of the operation that defines `value`, if it needs any.
    pub fn planned(&self, value: Value) -> Option<Interval> {
        self.places.get(&value).copied()
    }

    /// The scratch of the operation that defines `value`.
    pub fn place(&self, value: Value) -> Interval {
        self.places[&value]
    }

    /// The barrier object of the operation that defines `value`.
    pub fn signal(&self, value: Value) -> Option<u32> {
        self.signals.get(&value).copied()
    }

    /// All barrier objects.
    pub fn signals(&self) -> Vec<u32> {
        let both = |(value, &start): (&Value, &u32)| {
            let turns = if self.alternates(*value) { 2 } else { 1 };
            (0..turns).map(move |turn| start + turn * SIGNAL)
        };
        let mut places: Vec<u32> = self.signals.iter().flat_map(both).collect();
        places.sort_unstable();
        places
    }

    /// Whether every other turn of the loop around the operation that defines `value` has a place of its own.
    pub fn alternates(&self, value: Value) -> bool {
        self.alternating.contains(&value)
    }

    /// Every warp has said something to all others: what it read and wrote in shared memory before is done. Its stores to
    /// slices may be under way.
    pub fn exchanged(&mut self) {
        self.pending.retain(|touch| matches!(touch, MemoryEffect::Slice { .. }));
    }

    /// Whether threads may have accessed slices that are written since the last barrier.
    pub fn touches_slices(&self) -> bool {
        self.pending.iter().any(|touch| matches!(touch, MemoryEffect::Slice { .. }))
    }

    /// A barrier was passed.
    pub fn synchronised(&mut self) {
        self.pending.clear();
    }

    /// Records an access; true when a barrier must come before it.
    fn touch(&mut self, touch: MemoryEffect) -> bool {
        let conflict =
            self.pending.iter().any(|other| other.conflicts(&touch) && !self.are_apart(other, &touch));
        if conflict {
            self.pending.clear();
        }
        if !self.pending.contains(&touch) {
            self.pending.push(touch);
        }
        conflict
    }

    fn are_apart(&self, a: &MemoryEffect, b: &MemoryEffect) -> bool {
        let (MemoryEffect::Slice { place: a, turn: r, .. }, MemoryEffect::Slice { place: b, turn: s, .. }) =
            (a, b)
        else {
            return false;
        };
        match (*r, *s) {
            (WhichIteration::Present, WhichIteration::Present) => {
                self.apart.contains(&(*a, *b)) || self.apart.contains(&(*b, *a))
            }
            (WhichIteration::Other(Some(variable)), WhichIteration::Present)
            | (WhichIteration::Present, WhichIteration::Other(Some(variable))) => {
                let known = &self.apart_in_turns;
                known.contains(&(variable, *a, *b)) || known.contains(&(variable, *b, *a))
            }
            _ => false,
        }
    }

    pub fn write(&mut self, place: Interval) -> bool {
        self.touch(MemoryEffect::Shared { place, writes: true })
    }

    pub fn read(&mut self, place: Interval) -> bool {
        self.touch(MemoryEffect::Shared { place, writes: false })
    }

    /// An access to a slice that the kernel writes.
    pub fn slice(&mut self, place: MemAccess, writes: bool) -> bool {
        self.touch(MemoryEffect::Slice { place, writes, turn: WhichIteration::Present })
    }

    /// What was pending, for a second way through the code.
    pub fn snapshot(&self) -> Vec<MemoryEffect> {
        self.pending.clone()
    }

    pub fn restore(&mut self, pending: Vec<MemoryEffect>) {
        self.pending = pending;
    }

    /// Adds what another way to the same point left pending.
    pub fn join(&mut self, other: Vec<MemoryEffect>) {
        for touch in other {
            if !self.pending.contains(&touch) {
                self.pending.push(touch);
            }
        }
    }

    /// What a loop's body may leave pending when it starts over: all that stands behind the last wait in shared memory, every
    /// access to a slice that is written, and its own ring in spite of the body's waits.
    pub fn enter_loop(&mut self, distributed: &Distributed, body: &Block) {
        let mut touches = self.left_by_turns(distributed, body);
        // A turn has another place than the one before it.
        let own = |place: &Interval| self.alternating.iter().any(|value| self.places[value] == *place);
        touches.retain(|touch| !matches!(touch, MemoryEffect::Shared { place, .. } if own(place)));
        self.join(touches);
    }

    /// What it may leave pending behind itself; the body may not have run at all.
    pub fn leave_loop(&mut self, distributed: &Distributed, body: &Block) {
        let touches = self.left_by_turns(distributed, body);
        self.join(touches);
    }

    fn left_by_turns(&self, distributed: &Distributed, body: &Block) -> Vec<MemoryEffect> {
        let mut touches = vec![];
        self.left_by(distributed, body, body.args.first().copied(), &mut touches);
        touches.extend(self.ring_of(body));
        touches
    }

    /// The ring of the loop with this body, if it has one.
    fn ring_of(&self, body: &Block) -> Option<MemoryEffect> {
        let (place, shape) = *self.rings.get(body.args.first()?)?;
        Some(MemoryEffect::Ring { place, shape })
    }

    fn left_by(
        &self,
        distributed: &Distributed,
        block: &Block,
        variable: Option<Value>,
        touches: &mut Vec<MemoryEffect>,
    ) {
        for op in &block.ops {
            let operation = op.kind.operation();
            if let Some(place) = op.results.first().and_then(|result| self.places.get(result)) {
                // Between its writes and its reads every warp waits for all others.
                touches.retain(|touch| matches!(touch, MemoryEffect::Slice { .. }));
                touches.push(MemoryEffect::Shared { place: *place, writes: true });
            }
            for nested in operation.blocks() {
                // It may not run at all.
                let mut own = vec![];
                self.left_by(distributed, nested, variable, &mut own);
                touches.extend(self.ring_of(nested));
                touches.extend(own);
            }
            if let Some(place) = operation.place()
                && distributed.func.slice(place.param).1
            {
                let writes = operation.effect() == Effect::Write;
                touches.push(MemoryEffect::Slice {
                    place: *place,
                    writes,
                    turn: WhichIteration::Other(variable),
                });
            }
        }
    }
}

/// Reductions that stand in the body of an outermost loop themselves, and so happen in each of its turns.
fn alternating(distributed: &Distributed) -> Rc<HashSet<Value>> {
    let loops = distributed.func.body.ops.iter().filter_map(|op| {
        let Kind::For(op) = &op.kind else { return None };
        Some(&op.body.ops)
    });
    let small = |op: &&Op| (1..=SMALL / 2).contains(&op.kind.gpu().scratch(distributed, op));
    let reductions = loops.flatten().filter(|op| matches!(op.kind, Kind::Reduce(_))).filter(small);
    Rc::new(reductions.map(|op| op.results[0]).collect())
}

/// Pairs of accesses to one slice that never meet, where one of them writes: in one turn of all loops, and in different
/// turns of the loop with a variable.
fn apart(func: &Func, facts: &[Guard]) -> (Pairs, PairsAcrossIterations) {
    let (mut apart, mut in_turns) = (HashSet::new(), HashSet::new());
    let places = written_places(func, &func.body);
    let mut loops = false;
    func.body.walk(&mut |op| loops |= matches!(op.kind, Kind::For(_)));
    // One access outside of loops meets nobody but itself.
    let least = if loops { 1 } else { 2 };
    if !(least..=MAX_COMPARED).contains(&places.len()) {
        return (apart, in_turns);
    }
    let polynomials = Polynomials::analyze(func);
    let meetings = DisjointAccesses::new(func, &polynomials, facts);
    let pairs = |places: &[(MemAccess, bool)]| {
        let mut pairs = vec![];
        for (i, (a, writes)) in places.iter().enumerate() {
            let meeting = places[..=i].iter().filter(|(b, also)| a.param == b.param && (*writes || *also));
            pairs.extend(meeting.map(|(b, _)| (*a, *b)));
        }
        pairs
    };
    apart.extend(pairs(&places).into_iter().filter(|(a, b)| a != b && meetings.disjoint([a, b])));
    func.body.walk(&mut |op| {
        let Kind::For(op) = &op.kind else { return };
        let own = pairs(&written_places(func, &op.body)).into_iter();
        let own = own.filter(|(a, b)| meetings.disjoint_across_iterations(op, [a, b]));
        in_turns.extend(own.map(|(a, b)| (op.body.args[0], a, b)));
    });
    (apart, in_turns)
}

/// Accesses to slices that the function writes, and whether they write.
fn written_places(func: &Func, block: &Block) -> Vec<(MemAccess, bool)> {
    let mut places: Vec<(MemAccess, bool)> = vec![];
    block.walk(&mut |op| {
        if let Some(place) = op.kind.operation().place()
            && func.slice(place.param).1
        {
            places.push((*place, op.kind.operation().effect() == Effect::Write));
        }
    });
    places
}
