//! Allocation of shared memory by liveness.
//!
//! Takes a distributed function; gives each operation with scratch memory an interval, each `mbarrier` an address and
//! each software-pipelined loop a ring. Scratch is live while its operation runs, so large intervals share addresses.
//! Small intervals get addresses of their own while there is room, which saves the barrier between two uses. Scratch of
//! operations behind the last loop reuses the memory of the loops' copies. It never decides where barriers stand
//! ([`membar`](super::membar)).

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::Kind;
use tile_ir::ops::schedule::OperandTile;
use tile_ir::support::diagnostic::Loc;

use super::scratch::scratch_of;
use super::smem_limits::MAX_SHARED_BYTES;
use super::software_pipeline::plan::CopyPlan;
use super::software_pipeline::ring::{AllocatedRing, RingChoice, SmemRing};
use super::tma_pipeline::{self, TmaPipeline};
use super::work_tiles::MBARRIER_BYTES;
use crate::gpu::layout::Distributed;

/// Scratch up to this size gets addresses of its own.
const SMALL: u32 = 1024;
/// Such intervals take at most this much together.
const SMALL_TOTAL: u32 = 8192;

/// Programs that a block runs side by side, each with barriers of its own.
const MAX_PROGRAMS: u32 = 8;

/// Bytes of shared memory, from the start of the program's part.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interval {
    pub start: u32,
    pub bytes: u32,
}

impl Interval {
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
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

/// What is copied to shared memory besides the scratch of operations.
pub enum StagedCopies<'a> {
    /// View tiles by TMA.
    Tma(&'a mut TmaPipeline),
    /// The rings of software-pipelined loops.
    Rings,
    Nothing,
}

/// Scratch memory in three lists: of the operations behind the last loop and the last warpgroup dot that take much, of those behind
/// the last loop in the body of another one, and of all others.
struct ScratchBytes<'a> {
    distributed: &'a Distributed,
    double_buffered: &'a HashSet<Value>,
    first: Vec<(Value, u32)>,
    behind_inner_loops: Vec<(Value, u32)>,
    last: Vec<(Value, u32)>,
    too_large: Vec<SmemRequest>,
}

/// Which list the scratch memory of a block's operations is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockPlace {
    Function,
    /// The body of a loop that copies nothing itself; so do the loops around it.
    OuterLoop,
    /// Inside of an operation that is behind the last loop.
    Last,
    Other,
}

impl<'a> ScratchBytes<'a> {
    /// The rings of inner loops are used by nobody else if `has_rings`.
    fn new(
        distributed: &'a Distributed,
        double_buffered: &'a HashSet<Value>,
        has_rings: bool,
    ) -> Result<ScratchBytes<'a>, SmemOverflow> {
        let mut needs = ScratchBytes {
            distributed,
            double_buffered,
            first: vec![],
            behind_inner_loops: vec![],
            last: vec![],
            too_large: vec![],
        };
        needs.block(&distributed.func.body, BlockPlace::Function, has_rings);
        if needs.too_large.is_empty() { Ok(needs) } else { Err(SmemOverflow(needs.too_large)) }
    }

    fn block(&mut self, block: &Block, place: BlockPlace, has_rings: bool) {
        // Memory of other blocks, which may be behind, is not reused.
        let last = block.ops.iter().rposition(copies).filter(|_| self.distributed.num_ctas == 1);
        for (index, op) in block.ops.iter().enumerate() {
            let is_behind = last.is_some_and(|last| index > last);
            let bytes = self.bytes(op);
            let list = match place {
                _ if bytes <= SMALL => &mut self.first,
                BlockPlace::Last => &mut self.last,
                BlockPlace::Function if is_behind => &mut self.last,
                BlockPlace::OuterLoop if is_behind => &mut self.behind_inner_loops,
                _ => &mut self.first,
            };
            list.extend(op.results.first().filter(|_| bytes > 0).map(|&result| (result, bytes)));
            let copies_itself =
                matches!(&op.kind, Kind::For(body) if CopyPlan::new(self.distributed, body).is_some());
            let inside = match place {
                BlockPlace::Last => BlockPlace::Last,
                BlockPlace::Function if is_behind => BlockPlace::Last,
                BlockPlace::Function | BlockPlace::OuterLoop if has_rings && !copies_itself => {
                    BlockPlace::OuterLoop
                }
                _ => BlockPlace::Other,
            };
            let blocks = op.kind.operation().blocks();
            blocks.into_iter().for_each(|nested| self.block(nested, inside, has_rings));
        }
    }

    /// Bytes of the scratch memory of an operation.
    fn bytes(&mut self, op: &Op) -> u32 {
        // A view of a tile in shared memory moves nothing.
        let moves = op.results.first().is_none_or(|result| !self.distributed.smem_only.contains_key(result));
        let bytes = if moves { scratch_of(&op.kind).scratch(self.distributed, op) } else { 0 };
        let bytes = bytes.next_multiple_of(16);
        if bytes > MAX_SHARED_BYTES {
            self.too_large.push(SmemRequest { loc: op.loc, bytes });
        }
        let is_double = op.results.first().is_some_and(|result| self.double_buffered.contains(result));
        bytes * if is_double { 2 } else { 1 }
    }
}

/// Whether an operation may have copies to shared memory in flight while it runs.
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

/// Assigns intervals from an address on; those of `lasting` values outlive their operation and share no
/// addresses. Returns the end of the last one.
fn assign_intervals(
    needs: &[(Value, u32)],
    lasting: &HashSet<Value>,
    start: u32,
    intervals: &mut HashMap<Value, Interval>,
) -> u32 {
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
    let mut next = start + large.max().unwrap_or(0);
    for (&(value, bytes), small) in needs.iter().zip(is_small) {
        let start = if small { next } else { start };
        next += if small { bytes } else { 0 };
        intervals.insert(value, Interval { start, bytes });
    }
    next
}

/// The shared memory of one program.
#[derive(Clone, Default, Debug)]
pub struct SmemAllocation {
    scratch: HashMap<Value, Interval>,
    /// The address of an operation's `mbarrier`.
    mbarriers: HashMap<Value, u32>,
    /// Reductions with two buffers and two `mbarrier` objects for alternating iterations of a loop, so that an iteration need
    /// not wait until all threads have read the results of the one before it.
    double_buffered: HashSet<Value>,
    /// By the loop's variable.
    pub rings: HashMap<Value, AllocatedRing>,
    bytes: u32,
}

impl SmemAllocation {
    /// With the stages or the rings of what is copied.
    pub fn new(distributed: &Distributed, copies: StagedCopies) -> Result<SmemAllocation, SmemOverflow> {
        let mut with_mbarrier = vec![];
        distributed.func.body.walk(&mut |op| {
            if scratch_of(&op.kind).uses_remote_stores(distributed) {
                with_mbarrier.push(op.results[0]);
            }
        });
        let double_buffered = double_buffered(distributed);
        let has_rings = matches!(copies, StagedCopies::Rings);
        let needs = ScratchBytes::new(distributed, &double_buffered, has_rings)?;
        let mut scratch = HashMap::new();
        let mut lasting = double_buffered.clone();
        distributed.func.body.walk(&mut |op| {
            lasting.extend(op.results.first().filter(|_| matches!(op.kind, Kind::For(_))));
        });
        let mut next = assign_intervals(&needs.first, &lasting, 0, &mut scratch);
        let last = assign_intervals(&needs.last, &lasting, 0, &mut scratch);
        // Where the rings of inner loops are, behind what lasts as long as the loop around them.
        let behind = assign_intervals(&needs.behind_inner_loops, &lasting, next, &mut scratch);
        let mut mbarriers = HashMap::new();
        for value in with_mbarrier {
            mbarriers.insert(value, next);
            next += if double_buffered.contains(&value) { 2 * MBARRIER_BYTES } else { MBARRIER_BYTES };
        }
        let mut smem = SmemAllocation {
            scratch,
            mbarriers,
            double_buffered,
            rings: HashMap::new(),
            bytes: next.max(last).max(behind),
        };
        match copies {
            StagedCopies::Tma(pipeline) => {
                smem.bytes = pipeline.assign_smem(next.max(last));
                if smem.bytes > tma_pipeline::MAX_BYTES {
                    let (loc, bytes) = (distributed.func.loc, smem.bytes);
                    return Err(SmemOverflow(vec![SmemRequest { loc, bytes }]));
                }
            }
            StagedCopies::Rings => {
                smem.assign_rings(distributed, &distributed.func.body, next.next_multiple_of(16));
                // The start of the next program's shared memory.
                let alignment = if distributed.smem_only.is_empty() { 1 } else { OperandTile::ALIGNMENT };
                smem.bytes = smem.bytes.next_multiple_of(alignment);
            }
            StagedCopies::Nothing => {}
        }
        Ok(smem)
    }

    /// Assigns the rings of a block's loops, where there is room: loops that run one after the other share addresses.
    fn assign_rings(&mut self, distributed: &Distributed, block: &Block, start: u32) {
        for op in &block.ops {
            let body = if let Kind::For(body) = &op.kind { Some(body) } else { None };
            let plan = body.and_then(|body| CopyPlan::new(distributed, body));
            let ring = plan.and_then(|plan| {
                let SmemRing { choices, shape, alignment } = plan.ring(distributed);
                let start = start.next_multiple_of(alignment);
                let fits = |choice: &&RingChoice| start.saturating_add(choice.bytes) <= choice.limit;
                let RingChoice { bytes, .. } = *choices.iter().find(fits)?;
                Some(AllocatedRing { start, bytes, shape })
            });
            let end = ring.map_or(start, |ring| ring.start + ring.bytes);
            for nested in op.kind.operation().blocks() {
                if let Some(ring) = ring {
                    self.rings.insert(nested.args[0], ring);
                    self.bytes = self.bytes.max(end);
                }
                self.assign_rings(distributed, nested, end);
            }
        }
    }

    /// Shared memory of one program.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// How many of so many programs fit into a block: they share its memory and its sixteen barriers.
    pub fn programs(&self, most: u32) -> u32 {
        let fitting = MAX_SHARED_BYTES.checked_div(self.bytes).unwrap_or(most).max(1);
        most.min(1 << fitting.min(MAX_PROGRAMS).ilog2())
    }

    /// Whether any operation has scratch memory.
    pub fn is_scratch_used(&self) -> bool {
        !self.scratch.is_empty()
    }

    /// The scratch of the operation that defines `value`, if it needs any.
    pub fn scratch(&self, value: Value) -> Option<Interval> {
        self.scratch.get(&value).copied()
    }

    /// Moves the scratch of one operation to another, each by its result.
    pub fn move_scratch(&mut self, from: Value, to: Value) {
        if let Some(interval) = self.scratch.remove(&from) {
            self.scratch.insert(to, interval);
        }
    }

    /// The address of the `mbarrier` of the operation that defines `value`.
    pub fn mbarrier(&self, value: Value) -> Option<u32> {
        self.mbarriers.get(&value).copied()
    }

    /// Whether the operation that defines `value` has one buffer for even and one for odd iterations of the loop around it.
    pub fn is_double_buffered(&self, value: Value) -> bool {
        self.double_buffered.contains(&value)
    }
}

/// Reductions directly in the body of an outermost loop, which run in each of its iterations.
fn double_buffered(distributed: &Distributed) -> HashSet<Value> {
    let loops = distributed.func.body.ops.iter().filter_map(|op| {
        let Kind::For(op) = &op.kind else { return None };
        Some(&op.body.ops)
    });
    let small = |op: &&Op| (1..=SMALL / 2).contains(&scratch_of(&op.kind).scratch(distributed, op));
    let reductions = loops.flatten().filter(|op| matches!(op.kind, Kind::Reduce(_))).filter(small);
    reductions.map(|op| op.results[0]).collect()
}
