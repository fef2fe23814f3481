//! Shared memory: who uses which part of it, and where a barrier must stand.
//!
//! Scratch memory lives while its operation runs, so large parts lie on top of each other; small ones get places of
//! their own while there is room, which saves the barrier between two uses. A barrier is placed where an access could
//! meet one of another thread since the last barrier, in shared memory or in a slice that the kernel writes.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{MAX_SHARED_BYTES, TooMuchShared};
use crate::analysis::bounds;
use crate::analysis::fact::Fact;
use crate::analysis::polynomial::Polynomials;
use crate::layout::Distributed;
use crate::ops::{Effect, Place};
use crate::tile::{Block, Func, Op, Value};

/// Scratch up to this size gets a place of its own.
const SMALL: u32 = 1024;
/// Places of their own take at most this much together.
const SMALL_TOTAL: u32 = 8192;
/// Up to this size a ring has a part to spare. Beyond, its memory serves better as a first-level cache, and the third of
/// three long rows that would be under way only waits for the others (docs/performance.md).
const SPARE: u32 = 64 * 1024;
/// Accesses to slices that are written, beyond which nobody asks which of them meet.
const MAX_COMPARED: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub start: u32,
    pub bytes: u32,
}

impl Interval {
    fn meets(&self, other: &Interval) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }
}

/// An access that may meet those of other threads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Touch {
    Shared {
        place: Interval,
        writes: bool,
    },
    /// A loop's copies ahead.
    Ring {
        place: Interval,
        shape: u64,
    },
    /// Memory of a slice that the kernel writes.
    Slice {
        place: Place,
        writes: bool,
        repeats: bool,
    },
}

impl Touch {
    fn conflicts(&self, other: &Touch) -> bool {
        match (self, other) {
            (Touch::Shared { place: a, writes: x }, Touch::Shared { place: b, writes: y }) => {
                (*x || *y) && a.meets(b)
            }
            (Touch::Ring { place: a, shape: x }, Touch::Ring { place: b, shape: y }) => x != y && a.meets(b),
            (
                Touch::Slice { place: a, writes: x, repeats: r },
                Touch::Slice { place: b, writes: y, repeats: s },
            ) => {
                // A thread that comes back to the very elements it touched itself meets nobody. The layout follows from
                // the offsets, so equal places are equal elements, unless a loop has moved them.
                let same = a.base == b.base && a.offset == b.offset && a.vector == b.vector && !r && !s;
                (*x || *y) && a.param == b.param && !same
            }
            _ => false,
        }
    }
}

/// Shared memory of which each thread uses parts of its own.
#[derive(Clone, Copy)]
pub struct Ring {
    /// As it should be, and the least that will do.
    pub bytes: [u32; 2],
    /// Tells which parts are whose: rings of the same shape may follow each other without a barrier.
    pub shape: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Shared {
    places: HashMap<Value, Interval>,
    /// By the loop's variable.
    rings: HashMap<Value, (Interval, u64)>,
    bytes: u32,
    /// What threads may have touched since the last barrier.
    pending: Vec<Touch>,
    /// Accesses of one slice that never meet.
    apart: Rc<HashSet<(Place, Place)>>,
}

impl Shared {
    pub fn plan(distributed: &Distributed, facts: &[Fact]) -> Result<Shared, TooMuchShared> {
        let mut needs: Vec<(Value, u32)> = vec![];
        let mut error = None;
        distributed.func.body.walk(&mut |op| {
            let bytes = op.kind.gpu().scratch(distributed, op).next_multiple_of(16);
            if bytes > MAX_SHARED_BYTES {
                error = Some(TooMuchShared { loc: op.loc, bytes, what: op.kind.operation().name() });
            }
            if bytes > 0 {
                needs.push((op.results[0], bytes));
            }
        });
        if let Some(error) = error {
            return Err(error);
        }
        let mut small_total = 0;
        let is_small: Vec<bool> = needs
            .iter()
            .map(|&(_, bytes)| {
                let small = bytes <= SMALL && small_total + bytes <= SMALL_TOTAL;
                small_total += if small { bytes } else { 0 };
                small
            })
            .collect();
        let large = needs
            .iter()
            .zip(&is_small)
            .filter(|(_, small)| !**small)
            .map(|(need, _)| need.1)
            .max()
            .unwrap_or(0);
        let mut next = large;
        let mut places = HashMap::new();
        for (&(value, bytes), small) in needs.iter().zip(is_small) {
            let start = if small { next } else { 0 };
            next += if small { bytes } else { 0 };
            places.insert(value, Interval { start, bytes });
        }
        let apart = Rc::new(apart(&distributed.func, facts));
        let mut shared = Shared { places, rings: HashMap::new(), bytes: next, pending: vec![], apart };
        shared.place_rings(distributed, &distributed.func.body, next.next_multiple_of(16));
        Ok(shared)
    }

    /// Places the rings of a block's loops, where there is room: those of loops one after the other lie on top of each other.
    fn place_rings(&mut self, distributed: &Distributed, block: &Block, start: u32) {
        for op in &block.ops {
            let ring = op.kind.gpu().ring(distributed).and_then(|Ring { bytes, shape }| {
                let [full, least] = bytes;
                let bytes = if full <= SPARE { full } else { least };
                (start.saturating_add(bytes) <= MAX_SHARED_BYTES).then_some((bytes, shape))
            });
            let end = start + ring.map_or(0, |(bytes, _)| bytes);
            for nested in op.kind.operation().blocks() {
                if let Some((bytes, shape)) = ring {
                    self.rings.insert(nested.args[0], (Interval { start, bytes }, shape));
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
        self.touch(Touch::Ring { place, shape })
    }

    /// Shared memory of one program.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The scratch of the operation that defines `value`.
    pub fn place(&self, value: Value) -> Interval {
        self.places[&value]
    }

    /// A barrier was passed.
    pub fn synchronised(&mut self) {
        self.pending.clear();
    }

    /// Records an access; true when a barrier must come before it.
    fn touch(&mut self, touch: Touch) -> bool {
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

    fn are_apart(&self, a: &Touch, b: &Touch) -> bool {
        let (Touch::Slice { place: a, repeats: false, .. }, Touch::Slice { place: b, repeats: false, .. }) =
            (a, b)
        else {
            return false;
        };
        self.apart.contains(&(*a, *b)) || self.apart.contains(&(*b, *a))
    }

    pub fn write(&mut self, place: Interval) -> bool {
        self.touch(Touch::Shared { place, writes: true })
    }

    pub fn read(&mut self, place: Interval) -> bool {
        self.touch(Touch::Shared { place, writes: false })
    }

    /// An access to a slice that the kernel writes.
    pub fn slice(&mut self, place: Place, writes: bool) -> bool {
        self.touch(Touch::Slice { place, writes, repeats: false })
    }

    /// What was pending, for a second way through the code.
    pub fn snapshot(&self) -> Vec<Touch> {
        self.pending.clone()
    }

    pub fn restore(&mut self, pending: Vec<Touch>) {
        self.pending = pending;
    }

    /// Adds what another way to the same point left pending.
    pub fn join(&mut self, other: Vec<Touch>) {
        for touch in other {
            if !self.pending.contains(&touch) {
                self.pending.push(touch);
            }
        }
    }

    /// Everything a loop's body touches is pending when it starts over, its own ring in spite of the body's barriers.
    pub fn enter_loop(&mut self, distributed: &Distributed, body: &Block) {
        let own = body.args.first().and_then(|variable| self.rings.get(variable));
        let mut touches: Vec<Touch> =
            own.map(|&(place, shape)| Touch::Ring { place, shape }).into_iter().collect();
        body.walk(&mut |op: &Op| {
            if let Some(place) = op.results.first().and_then(|result| self.places.get(result)) {
                touches.push(Touch::Shared { place: *place, writes: true });
            }
            let variables = op.kind.operation().blocks().into_iter().filter_map(|block| block.args.first());
            for (place, shape) in variables.filter_map(|variable| self.rings.get(variable)) {
                touches.push(Touch::Ring { place: *place, shape: *shape });
            }
            if let Some(place) = op.kind.operation().place()
                && distributed.func.slice(place.param).1
            {
                let writes = op.kind.operation().effect() == Effect::Write;
                touches.push(Touch::Slice { place: *place, writes, repeats: true });
            }
        });
        self.join(touches);
    }
}

/// Pairs of accesses to one slice that never meet, where one of them writes.
fn apart(func: &Func, facts: &[Fact]) -> HashSet<(Place, Place)> {
    let mut places: Vec<(Place, bool)> = vec![];
    func.body.walk(&mut |op| {
        if let Some(place) = op.kind.operation().place()
            && func.slice(place.param).1
        {
            places.push((*place, op.kind.operation().effect() == Effect::Write));
        }
    });
    let mut apart = HashSet::new();
    if !(2..=MAX_COMPARED).contains(&places.len()) {
        return apart;
    }
    let polynomials = Polynomials::analyse(func);
    for (i, (a, writes)) in places.iter().enumerate() {
        for (b, also) in &places[..i] {
            if a.param == b.param && (*writes || *also) && bounds::apart(func, &polynomials, [a, b], facts) {
                apart.insert((*a, *b));
            }
        }
    }
    apart
}
