//! Which loads of a loop are copied asynchronously, and the ring of slots that they need.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::schedule::{CHUNK_BYTES, CopyRing, LineOrder, OperandTile, ThreadPart};
use tile_ir::ops::{Dot, DotUnit, Effect, For, Kind, Load, Operation, has_own_dot};

use crate::gpu::layout::Distributed;
use crate::gpu::layout::dot::is_warpgroup_dot;
use crate::gpu::schedule::dot_registers;
use crate::gpu::schedule::scratch::scratch_of;
use crate::gpu::schedule::smem_limits::{DEFAULT_TILE_STAGES, MAX_SHARED_BYTES, MIN_SHARED_BYTES};
use crate::gpu::schedule::smem_operand;
use crate::gpu::schedule::smem_operand::StoredOperand;
use crate::gpu::schedule::software_pipeline::address_slice::AddressSlice;
use crate::gpu::schedule::software_pipeline::async_load::{can_copy_async, width};
use crate::gpu::schedule::software_pipeline::ring::{AllocatedRing, RingChoice, SmemRing};
use crate::gpu::schedule::tma_pipeline;

/// Stages, where the user does not say.
const DEFAULT_STAGES: u32 = 4;
/// The largest ring that is ours to choose, for each thread and in all: enough threads should fit a multiprocessor.
const DEFAULT_BYTES_PER_THREAD: u32 = 256;
const MAX_DEFAULT_RING_BYTES: u32 = 64 * 1024;
/// Stages of a loop whose operands are stored and not copied: no warp stores what others still read.
const STORED_STAGES: u32 = 2;
/// Where shared memory should end then, the best first: half of what there is, what every GPU has, all of it.
const SMEM_LIMITS: [u32; 3] = [MAX_SHARED_BYTES / 2, MIN_SHARED_BYTES, MAX_SHARED_BYTES];
/// The least shared memory of a program beside a ring.
const OTHER_SHARED_BYTES: u32 = 2048;
/// The most copies of a thread in an iteration that take less time than a barrier.
const MAX_OWN_COPIES: u32 = 8;
/// Up to this size a ring has a slot to spare. Beyond, its memory serves better as L1 cache, and the third of three
/// long rows in flight only waits for the others (docs/performance.md).
const MAX_SPARE_SLOT_BYTES: u32 = 64 * 1024;

/// A load that is copied.
#[derive(Clone, Copy)]
pub struct CopiedLoad<'a> {
    pub op: &'a Op,
    pub load: &'a Load,
}

/// A load of a tile that dots or all threads read.
#[derive(Clone)]
pub struct CopiedTile<'a> {
    pub op: &'a Op,
    pub load: &'a Load,
    /// From the start of a slot.
    pub offset: u32,
    pub tile: OperandTile,
}

/// An operand that threads store.
#[derive(Clone)]
pub struct StoredTile {
    pub operand: StoredOperand,
    /// Whether it is behind the slots: an invariant operand, or one that each iteration overwrites.
    pub is_behind: bool,
    /// From the start of a slot, or from the end of the last one.
    pub offset: u32,
    /// Whether an earlier operand holds the same, and is stored for both.
    pub is_repeated: bool,
}

/// Where the operands are that threads store in each iteration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StoredBuffers {
    /// One buffer behind the slots: no dot of an iteration runs when the next one stores.
    One,
    /// One in each slot.
    EachSlot,
}

/// What is in a slot, and behind the slots.
pub struct SlotContents<'a> {
    /// Loads whose elements each thread copies for itself.
    pub loads: Vec<CopiedLoad<'a>>,
    pub tiles: Vec<CopiedTile<'a>>,
    pub stored: Vec<StoredTile>,
    /// Whether warpgroups read tiles.
    pub feeds_wgmma: bool,
    /// Whether threads read what others have copied.
    pub has_shared_loads: bool,
    /// Bytes of one stage.
    stage_bytes: u32,
    /// Bytes of the stored operands behind the slots.
    bytes_behind: u32,
}

/// The asynchronous copies of a loop, and what its iterations store beside them.
pub struct CopyPlan<'a> {
    /// The operations that compute the addresses, in program order.
    pub addresses: Vec<&'a Op>,
    pub contents: SlotContents<'a>,
    /// The first dot of a tile, which issues copies among its instructions.
    dot: Option<Value>,
    /// Dots of earlier iterations that may still read their slots when the copies of an iteration are issued.
    pub dots_in_flight: u32,
    pub stages: u32,
    /// Whether the user said how many.
    is_requested: bool,
    /// Whether a multiprocessor has registers for two programs, by what the loop's dots take.
    shares_multiprocessor: bool,
    /// Slots of the ring: as many as stages, or one less.
    slots: u32,
}

impl<'a> SlotContents<'a> {
    /// Of a loop that copies these loads.
    fn new(
        distributed: &Distributed,
        body: &For,
        copied: Vec<CopiedLoad<'a>>,
        buffers: StoredBuffers,
    ) -> Option<SlotContents<'a>> {
        let feeds_wgmma = body.body.ops.iter().any(is_warpgroup_dot);
        let operands = smem_operand::stored_operands(distributed, body)?;
        let is_of_dots = |copied: &CopiedLoad| distributed.smem_only.contains_key(&copied.op.results[0]);
        // Threads wait for each other's copies before they read any, but where they store operands first: there it takes a barrier more.
        let waits = copied.iter().any(is_of_dots) && operands.iter().all(|operand| operand.is_invariant);
        let is_shared = |copied: &CopiedLoad| {
            let own = distributed.layouts[&copied.op.results[0]].register_count() as u32;
            let pays = waits || own / copied.load.access.vector > MAX_OWN_COPIES;
            feeds_wgmma && pays && is_read_by_several_warps(distributed, copied.op)
        };
        let has_shared_loads = copied.iter().any(|copied| is_shared(copied) && !is_of_dots(copied));
        let (of_tiles, mut loads): (Vec<CopiedLoad>, Vec<CopiedLoad>) =
            copied.into_iter().partition(|copied| is_of_dots(copied) || is_shared(copied));
        let alignment = alignment(feeds_wgmma);
        let bytes = loads.iter().map(|copied| block_bytes(distributed, copied.op, copied.load));
        let mut stage_bytes = bytes.sum();
        let mut tiles = vec![];
        for copied in of_tiles {
            let CopiedLoad { op, load } = copied;
            let tile = if is_of_dots(&copied) {
                smem_operand::operand_tile(distributed, op, load, feeds_wgmma)
            } else {
                let fast = smem_operand::fast_axis(distributed, load, op.results[0]);
                OperandTile::new(distributed.func.ty(op.results[0]), fast, LineOrder::Plain)
            };
            let offset = append(&mut stage_bytes, tile.bytes, alignment);
            tiles.push(CopiedTile { op, load, offset, tile });
        }
        let mut stored: Vec<StoredTile> = vec![];
        let mut bytes_behind = 0;
        // A ring has slots.
        let has_one_buffer = buffers == StoredBuffers::One && stage_bytes > 0;
        for operand in operands {
            let is_behind = operand.is_invariant || has_one_buffer;
            let known =
                stored.iter().find(|stored| stored.operand.holds_same(&operand)).map(|stored| stored.offset);
            let offset = known.unwrap_or_else(|| {
                let end = if is_behind { &mut bytes_behind } else { &mut stage_bytes };
                append(end, operand.tile.bytes, alignment)
            });
            stored.push(StoredTile { operand, is_behind, offset, is_repeated: known.is_some() });
        }
        // The widest first, so that each is aligned.
        loads.sort_by_key(|copied| std::cmp::Reverse(width(&distributed.func, copied.load)));
        let mut contents =
            SlotContents { loads, tiles, stored, feeds_wgmma, has_shared_loads, stage_bytes, bytes_behind };
        if contents.has_tiles() {
            contents.stage_bytes = stage_bytes.next_multiple_of(alignment);
        }
        Some(contents)
    }

    /// Whether slots have tiles that all threads read.
    pub fn has_tiles(&self) -> bool {
        !(self.tiles.is_empty() && self.stored.is_empty())
    }

    /// The operands that each iteration stores.
    pub fn stored_each_time(&self) -> impl Iterator<Item = &StoredTile> {
        self.stored.iter().filter(|stored| !(stored.operand.is_invariant || stored.is_repeated))
    }

    /// The operands that are stored before the loop.
    pub fn stored_once(&self) -> impl Iterator<Item = &StoredTile> {
        self.stored.iter().filter(|stored| stored.operand.is_invariant && !stored.is_repeated)
    }

    /// Whether slots have copies.
    fn has_copies(&self) -> bool {
        !(self.tiles.is_empty() && self.loads.is_empty())
    }

    /// The tiles that each thread copies for itself.
    pub fn thread_values(&self) -> impl Iterator<Item = Value> {
        self.loads.iter().flat_map(|copied| copied.op.results.iter().copied())
    }

    /// Bytes of a ring with so many slots.
    fn ring_bytes(&self, slots: u32) -> u32 {
        slots.saturating_mul(self.stage_bytes).saturating_add(self.bytes_behind)
    }

    /// Stages, where the user does not say.
    fn default_stages(&self, distributed: &Distributed, body: &For) -> Option<u32> {
        if self.has_tiles() {
            return Some(DEFAULT_TILE_STAGES);
        }
        // Registers limit the occupancy of loops with dots: one iteration ahead is always affordable.
        let min_bytes = if has_own_dot(&body.body) { 2 * self.stage_bytes } else { 0 };
        let max_bytes = MAX_DEFAULT_RING_BYTES
            .min(min_bytes.max(DEFAULT_BYTES_PER_THREAD * 32 * distributed.warps_per_cta()));
        Some(DEFAULT_STAGES.min(max_bytes.checked_div(self.stage_bytes)?))
    }

    /// Programs that a multiprocessor runs at once, if it has registers for so many, beside so many bytes of other shared memory.
    fn resident_programs(&self, slots: u32, by_registers: u32, other_bytes: u32) -> u32 {
        let bytes = self.ring_bytes(slots).saturating_add(other_bytes);
        by_registers.min(tma_pipeline::MAX_BYTES / bytes).max(1)
    }
}

/// Whether several warps read the same elements of a load.
fn is_read_by_several_warps(distributed: &Distributed, op: &Op) -> bool {
    let layout = &distributed.layouts[&op.results[0]];
    layout.is_disjoint() && layout.replicated_warps() != 0
}

/// How tiles are aligned in a slot, and the ring.
fn alignment(feeds_wgmma: bool) -> u32 {
    if feeds_wgmma { OperandTile::WGMMA_ALIGNMENT } else { OperandTile::ALIGNMENT }
}

/// Appends an aligned tile of so many bytes; returns where it begins.
fn append(end: &mut u32, bytes: u32, alignment: u32) -> u32 {
    let offset = end.next_multiple_of(alignment);
    *end = offset + bytes;
    offset
}

/// The loads of a loop that can be copied ahead, and the operations that compute their addresses, by their indices. Loads whose values
/// index other loads are not among the former: they are repeated when the copies of their iteration are issued.
fn copied_loads<'a>(distributed: &Distributed, body: &'a For) -> (Vec<CopiedLoad<'a>>, HashSet<usize>) {
    let address_slice = AddressSlice::new(distributed, body);
    let mut candidates = vec![];
    for (index, op) in body.body.ops.iter().enumerate() {
        if let Kind::Load(load) = &op.kind
            && can_copy_async(&distributed.func, load)
            && !distributed.sector_loads.contains(&op.results[0])
            && let Some(slice) = address_slice.slice(load)
        {
            candidates.push((index, CopiedLoad { op, load }, slice));
        }
    }
    let index_loads: HashSet<usize> = candidates.iter().flat_map(|(.., slice)| slice).copied().collect();
    candidates.retain(|(index, ..)| !index_loads.contains(index));
    let sliced = candidates.iter().flat_map(|(.., slice)| slice).copied().collect();
    (candidates.into_iter().map(|(_, copied, _)| copied).collect(), sliced)
}

impl<'a> CopyPlan<'a> {
    pub fn new(distributed: &Distributed, body: &'a For) -> Option<CopyPlan<'a>> {
        let requested = body.hints.num_stages.or(distributed.num_stages);
        let func = &distributed.func;
        let (copied, sliced) = copied_loads(distributed, body);
        let mut contents = SlotContents::new(distributed, body, copied.clone(), StoredBuffers::One)?;
        // Loads that cannot be copied use the L1 cache, whose memory the ring would take.
        let mut ops = body.body.ops.iter();
        let others = ops.any(|op| matches!(&op.kind, Kind::Load(load) if load.effect() == Effect::Read));
        if contents.stage_bytes == 0 || others && requested.is_none() && !contents.has_tiles() {
            return None;
        }
        let wanted = match requested {
            // What is stored is read in the same iteration.
            _ if !contents.has_copies() => requested.unwrap_or(STORED_STAGES).min(STORED_STAGES),
            Some(stages) => stages,
            None => contents.default_stages(distributed, body)?,
        };
        // Another program fills the wait for a dot as well, without a slot more.
        let by_registers = dot_registers::programs(distributed, &body.body, 0);
        let other_bytes = scratch_up_to(distributed, body).max(OTHER_SHARED_BYTES);
        let resident =
            |contents: &SlotContents, slots| contents.resident_programs(slots, by_registers, other_bytes);
        let mut dots_in_flight = 0;
        if has_async_dot(&body.body) {
            let in_slots = SlotContents::new(distributed, body, copied, StoredBuffers::EachSlot)?;
            if resident(&in_slots, wanted + 1) == resident(&contents, wanted) {
                (contents, dots_in_flight) = (in_slots, 1);
            }
        }
        let stages = wanted + dots_in_flight;
        let ops = body.body.ops.iter().enumerate();
        let addresses = ops.filter(|(i, _)| sliced.contains(i)).map(|(_, op)| op).collect();
        // Many small copies would each keep an address and a mask in registers until they are issued.
        let by_chunks = |copied: &CopiedTile| width(func, copied.load) == CHUNK_BYTES;
        let by_dot = !contents.feeds_wgmma && contents.tiles.iter().all(by_chunks);
        let dot = body.body.ops.iter().find(|op| by_dot && smem_operand::is_smem_dot(distributed, op));
        (wanted > 1).then_some(CopyPlan {
            addresses,
            contents,
            dot: dot.map(|op| op.results[0]),
            dots_in_flight,
            stages,
            is_requested: requested.is_some(),
            shares_multiprocessor: by_registers > 1,
            slots: stages,
        })
    }

    /// The plan in the shared memory that it has got.
    pub fn within(self, ring: AllocatedRing) -> Self {
        let slots = (ring.bytes - self.contents.bytes_behind) / self.contents.stage_bytes;
        let stages = if self.contents.has_tiles() { slots } else { self.stages };
        CopyPlan { slots, stages, ..self }
    }

    /// How many iterations ahead copies are issued.
    pub fn distance(&self) -> u32 {
        self.stages - 1 - self.dots_in_flight
    }

    /// The ring there.
    pub fn copy_ring(&self, AllocatedRing { start, bytes, shape }: AllocatedRing) -> CopyRing {
        CopyRing { start, bytes, slots: self.slots, slot_bytes: self.contents.stage_bytes, shape }
    }

    /// The dot that issues the copies of a later iteration among its instructions. Loaded addresses must not be loaded for an
    /// iteration beyond the last one, so a branch is around such copies.
    pub fn interleaving_dot(&self) -> Option<Value> {
        let has_indirect_addresses = self.addresses.iter().any(|op| matches!(op.kind, Kind::Load(_)));
        self.dot.filter(|_| !has_indirect_addresses)
    }

    /// Whether an iteration's copies overwrite the slot it has just read.
    pub fn refills_own_slot(&self) -> bool {
        self.slots < self.stages
    }

    /// The last operation of the body that reads a copied tile.
    pub fn last_read(&self, body: &For) -> usize {
        let reads = |op: &Op| self.contents.loads.iter().any(|copied| copied.op.results == op.results);
        body.body.ops.iter().rposition(reads).expect("what is copied ahead is read")
    }

    /// The ring in shared memory.
    pub fn ring(&self, distributed: &Distributed) -> SmemRing {
        let mut hasher = DefaultHasher::new();
        for CopiedLoad { op, load } in &self.contents.loads {
            (width(&distributed.func, load), block_bytes(distributed, op, load)).hash(&mut hasher);
        }
        let contents = &self.contents;
        if !contents.has_tiles() {
            let full = contents.ring_bytes(self.stages);
            let bytes =
                if full <= MAX_SPARE_SLOT_BYTES { full } else { contents.ring_bytes(self.stages - 1) };
            let only = RingChoice { bytes, limit: MAX_SHARED_BYTES };
            return SmemRing { choices: vec![only], shape: Some(hasher.finish()), alignment: 1 };
        }
        // Two blocks on a multiprocessor are worth more than a third slot, and so is to fit on any GPU.
        let least = 2 + self.dots_in_flight;
        let up_to = |least: u32, limit: u32| {
            let choice = move |slots| RingChoice { bytes: contents.ring_bytes(slots), limit };
            (least..=self.stages).rev().map(choice)
        };
        let choices = match (contents.feeds_wgmma, self.is_requested) {
            (true, is_requested) => {
                let wanted = if is_requested { self.stages } else { least };
                let half = self.shares_multiprocessor.then(|| up_to(wanted, tma_pipeline::MAX_BYTES / 2));
                half.into_iter().flatten().chain(up_to(least, tma_pipeline::MAX_BYTES)).collect()
            }
            (false, true) => up_to(least, MAX_SHARED_BYTES).collect(),
            (false, false) => SMEM_LIMITS.into_iter().flat_map(|limit| up_to(least, limit)).collect(),
        };
        SmemRing { choices, shape: None, alignment: alignment(contents.feeds_wgmma) }
    }

    /// The widths of its copies, each once.
    pub fn widths(&self, func: &Func) -> Vec<u32> {
        let mut widths: Vec<u32> =
            self.contents.loads.iter().map(|copied| width(func, copied.load)).collect();
        widths.dedup();
        widths
    }

    /// Each load of threads with its place in a slot.
    pub fn thread_parts(&self, distributed: &Distributed, slot: Value) -> Vec<(CopiedLoad<'a>, ThreadPart)> {
        let widths = self.widths(&distributed.func);
        let mut offset = 0;
        let mut found = vec![];
        for &copied in &self.contents.loads {
            let CopiedLoad { op, load } = copied;
            let address = widths.iter().position(|&known| known == width(&distributed.func, load));
            found.push((copied, ThreadPart { slot, address: address.expect("a width of the list"), offset }));
            offset += block_bytes(distributed, op, load);
        }
        found
    }
}

/// The most scratch memory of an operation in a loop or before it: what is behind the loop takes the memory of its ring.
fn scratch_up_to(distributed: &Distributed, body: &For) -> u32 {
    let (mut most, mut is_behind) = (0, false);
    let mut visit = |op: &Op| {
        most = most.max(scratch_of(&op.kind).scratch(distributed, op));
        is_behind |= matches!(&op.kind, Kind::For(found) if found.body.args == body.body.args);
        is_behind
    };
    for op in &distributed.func.body.ops {
        let mut ends = visit(op);
        op.kind.operation().blocks().into_iter().for_each(|block| block.walk(&mut |op| ends |= visit(op)));
        if ends {
            break;
        }
    }
    most
}

/// Whether a dot of an iteration may run while the next iteration's is issued: the only one, whose operands are both in shared memory
/// ([`async_dot`](crate::gpu::schedule::async_dot)), or the second of two
/// ([`overlap_chained_dots`](crate::gpu::schedule::overlap_chained_dots)). Its result is what the loop carries.
fn has_async_dot(body: &Block) -> bool {
    let mut dots = vec![];
    body.walk(&mut |op| {
        if let Kind::Dot(dot) = &op.kind {
            dots.push((dot, op.results[0]));
        }
    });
    let is_carried = |result| body.yields.contains(&result) && body.uses(result) == 1;
    match dots[..] {
        [(Dot { unit: DotUnit::Wgmma, acc: Some(acc), .. }, result)] => {
            is_carried(result) && body.uses(*acc) == 1
        }
        [(first, _), (Dot { unit: DotUnit::WgmmaRs, .. }, result)] => {
            first.unit.is_warpgroup() && is_carried(result)
        }
        _ => false,
    }
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
        let of_block = plan.contents.tiles.iter().flat_map(|copied| copied.op.results.clone());
        plan.contents.thread_values().chain(of_block).collect()
    };
    plan.as_ref().map(tiles).unwrap_or_default()
}
