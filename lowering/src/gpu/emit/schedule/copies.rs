//! Asynchronous copies as PTX: a `cp.async` for each chunk of a load, with its predicate, its cache operator, and zeros for what is
//! masked. A slot is the addresses of this thread in it; the tile of a slot is its address and its geometry. Where a slot has tiles its last
//! address is one that ptxas knows to be uniform, for the descriptors of `wgmma`.

use std::collections::VecDeque;

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::{CopyCache, CopyRing, CopyTarget, MaskedElements, SlotNeighbor, ThreadPart};
use tile_ir::ops::{
    AsyncCopy, AsyncGroup, AsyncWait, EvictionPolicy, MemAccess, RingStart, SlotAt, SlotLoad, SlotStep,
    SlotStore, SlotTile,
};

use crate::gpu::emit::memory::{VectorWords, pack, unpack};
use crate::gpu::emit::offset_address::OffsetAddress;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::store;
use crate::gpu::emit::schedule::operand_tile::SlotTileAddress;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Space, statement};
use crate::gpu::layout::smem_tile::vector_along;
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

/// The cache operator of copies that the first-level cache serves: the only one of fewer than 16 bytes.
const THROUGH_L1: &str = "ca";

/// The width of the only copies that pass the first-level cache.
const WIDEST: u32 = 16;

/// More copies of one predicate cost more than a branch around them.
const MAX_PREDICATED: usize = 4;

fn cache_operator(through: CopyCache, width: u32) -> &'static str {
    if through == CopyCache::Global && width == WIDEST { "cg" } else { THROUGH_L1 }
}

/// One `cp.async`, not yet issued.
pub(in crate::gpu::emit) struct CopyInstruction {
    text: String,
    constraints: String,
    operands: Vec<Val>,
    /// `None` always issues.
    predicate: Option<Val>,
}

impl CopyInstruction {
    fn issue(&self, b: &mut Builder) {
        self.issue_if(b, self.predicate)
    }

    fn issue_if(&self, b: &mut Builder, predicate: Option<Val>) {
        let CopyInstruction { text, constraints, operands, .. } = self;
        match predicate {
            None => statement(b, text, &format!("{constraints},~{{memory}}"), operands, &[]),
            Some(predicate) => {
                let text = format!("@${} {text}", operands.len());
                let operands: Vec<Val> = operands.iter().copied().chain([predicate]).collect();
                statement(b, &text, &format!("{constraints},b,~{{memory}}"), &operands, &[])
            }
        };
    }

    fn and_predicate(&mut self, b: &mut Builder, predicate: Val) {
        self.predicate = b.both(self.predicate, Some(predicate));
    }
}

/// Issues copies. Many of one predicate are under a branch, which warps skip whose threads copy none of them.
fn issue_all(b: &mut Builder, copies: &[CopyInstruction]) {
    let id = |copy: &CopyInstruction| copy.predicate.map(|predicate| predicate.id());
    for run in copies.chunk_by(|one, next| id(one) == id(next)) {
        match run[0].predicate.filter(|_| run.len() > MAX_PREDICATED) {
            Some(predicate) => b.if_then(predicate, |b| run.iter().for_each(|copy| copy.issue_if(b, None))),
            None => run.iter().for_each(|copy| copy.issue(b)),
        }
    }
}

/// Commits the copies issued so far as one group.
fn commit_group(b: &mut Builder) {
    statement(b, "cp.async.commit_group;", "~{memory}", &[], &[]);
}

/// Copies that an operation issues among its instructions, as one group.
pub(in crate::gpu::emit) struct InterleavedCopies(Option<VecDeque<CopyInstruction>>);

impl InterleavedCopies {
    /// Issues those that are due when so many of all instructions were issued.
    pub(in crate::gpu::emit) fn issue(&mut self, b: &mut Builder, done: usize, all: usize) {
        let Some(copies) = &mut self.0 else { return };
        let remaining = copies.len();
        let share = if done == all { remaining } else { remaining.div_ceil(all - done).min(remaining) };
        copies.drain(..share).for_each(|copy| copy.issue(b));
        if done == all {
            self.0 = None;
            commit_group(b);
        }
    }
}

impl Gpu<'_> {
    /// Prepared copies, which are issued now.
    pub(in crate::gpu::emit) fn take_copies(&mut self, prepared: Option<Value>) -> InterleavedCopies {
        InterleavedCopies(prepared.and_then(|value| self.in_flight.prepared_copies.remove(&value)))
    }

    /// The copies in a block, behind what computes their addresses.
    fn collect_copies(&mut self, b: &mut Builder, block: &Block) -> VecDeque<CopyInstruction> {
        let outer = std::mem::take(&mut self.in_flight.open_group);
        self.scope(|gpu| gpu.block(b, block));
        std::mem::replace(&mut self.in_flight.open_group, outer)
    }

    /// Bytes between the vectors of a thread.
    fn pitch(&self, width: u32) -> u32 {
        self.plan.schedule.distributed.warps_per_cta() * 32 * width
    }

    fn copy_width(&self, access: &MemAccess) -> u32 {
        access.vector * self.func.slice(access.param).0.bytes()
    }

    /// The copies of a thread to its own part of a slot.
    fn thread_copies(&mut self, b: &mut Builder, copy: &AsyncCopy, part: ThreadPart) -> Vec<CopyInstruction> {
        let pitch = self.pitch(self.copy_width(&copy.from));
        let base = self.registers(part.slot)[part.address];
        let start = |chunk: usize| (part.offset + chunk as u32 * pitch) as i32;
        self.chunk_copies(b, copy, |_, chunk| OffsetAddress { base, bytes: start(chunk) })
    }

    /// The copies of a tile: each thread copies the elements that the layout of the offsets gives it.
    fn tile_copies(&mut self, b: &mut Builder, copy: &AsyncCopy, to: Value) -> Vec<CopyInstruction> {
        let layout = self.layout(copy.from.offset);
        let SlotTileAddress { tile, address, .. } = self.smem.slot_tiles[&to].clone();
        let mut addresses = self.tile_addresses(b, tile, address, layout);
        let vector = copy.from.vector as usize;
        let mut copies =
            self.chunk_copies(b, copy, |b, chunk| addresses.at(b, layout.register(chunk * vector)));
        if let Some(writer) = self.writer(b, Some(layout)) {
            copies.iter_mut().for_each(|copy| copy.and_predicate(b, writer));
        }
        copies
    }

    /// The copies of a load, to an address for each chunk.
    fn chunk_copies(
        &mut self,
        b: &mut Builder,
        copy: &AsyncCopy,
        mut to: impl FnMut(&mut Builder, usize) -> OffsetAddress,
    ) -> Vec<CopyInstruction> {
        let dtype = self.func.slice(copy.from.param).0;
        let addresses = self.addresses(b, &copy.from, dtype);
        let width = self.copy_width(&copy.from);
        let cache_operator = cache_operator(copy.through, width);
        let policy = match copy.hints.eviction {
            EvictionPolicy::First => self.cse.policies.evict_first,
            EvictionPolicy::Normal | EvictionPolicy::Last => Some(self.cse.policies.evict_last),
        };
        let mut copies = vec![];
        for (i, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let OffsetAddress { base, bytes: start } = to(b, i);
            let mut operands = vec![base, pointer];
            let mut constraints = vec!["r", "l"];
            // Masked elements are filled with zeros: by a predicate, or where it would stay until a dot issues the copy, by a size.
            let mut masked = String::new();
            if let Some(mask) = mask {
                if self.in_flight.prepares_copies {
                    let (all, none) = (b.int(Ty::I32, i64::from(width)), b.int(Ty::I32, 0));
                    operands.push(b.select(mask, all, none));
                    constraints.push("r");
                } else {
                    operands.push(b.not(mask));
                    constraints.push("b");
                }
                masked = ", $2".into();
            }
            let mut hint = String::new();
            if let Some(policy) = policy {
                hint = format!(", ${}", operands.len());
                operands.push(policy);
                constraints.push("l");
            }
            let cached = if policy.is_some() { ".L2::cache_hint" } else { "" };
            let text = format!(
                "cp.async.{cache_operator}.shared.global{cached} [$0 + {start}], [$1], {width}{masked}{hint};"
            );
            copies.push(CopyInstruction {
                text,
                constraints: constraints.join(","),
                operands,
                predicate: None,
            });
        }
        copies
    }

    /// The addresses of a slot moved by so many bytes.
    fn moved_slot(&self, b: &mut Builder, slot: Value, bytes: i64) -> Vec<Val> {
        let bytes = b.int(Ty::I32, bytes);
        self.registers(slot).iter().map(|&address| b.add(address, bytes)).collect()
    }
}

/// The last slot of a ring is so many bytes behind the first.
fn last_slot(ring: CopyRing) -> i64 {
    i64::from(ring.slot_bytes * (ring.slots - 1))
}

impl GpuEmit for RingStart {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let ring = b.offset_bytes(gpu.smem_base(), self.ring.start as i32);
        let five = b.int(Ty::I32, 5);
        let first = b.shl(gpu.thread.block_warp, five);
        let thread = b.or(first, gpu.thread.lane);
        let widths = self.widths.iter().map(|&width| {
            // Neighboring threads have contiguous elements.
            let width = b.int(Ty::I32, i64::from(width));
            let distance = b.mul(thread, width);
            b.offset(ring, distance, 1)
        });
        let mut slot: Vec<Val> = widths.collect();
        // An address that differs from thread to thread, because a shuffle of a uniform value is uniform.
        slot.extend(self.has_tiles.then(|| b.offset(ring, gpu.thread.lane, 1)));
        // ptxas must not see that the address is a uniform value plus the thread's own part: a copy with a cache
        // policy to such an address becomes an illegal instruction.
        let mut slot: Vec<Val> = slot.into_iter().map(|first| gpu.opaque_to_ptxas(b, first)).collect();
        for first in &mut slot[self.widths.len()..] {
            *first = b.sub(*first, gpu.thread.lane);
        }
        slot.extend(self.has_tiles.then(|| b.op("llvm.ptrtoint", &[ring], Ty::I32)));
        gpu.define(op.results[0], slot);
    }
}

impl GpuEmit for SlotAt {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let slot = gpu.moved_slot(b, self.first, i64::from(self.index * self.ring.slot_bytes));
        gpu.define(op.results[0], slot);
    }
}

impl GpuEmit for SlotStep {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let first = gpu.registers(self.first);
        let last = gpu.moved_slot(b, self.first, last_slot(self.ring));
        let own = gpu.registers(self.slot);
        let bytes = i64::from(self.ring.slot_bytes);
        let (end, other_end, bytes) = match self.to {
            SlotNeighbor::Next => (&last[..], &first[..], bytes),
            SlotNeighbor::Previous => (&first[..], &last[..], -bytes),
        };
        let beside = gpu.moved_slot(b, self.slot, bytes);
        let uniform = own.len() - 1;
        // The uniform address has a comparison of its own, which is uniform as well.
        let at_end = [0, uniform].map(|i| b.icmp(IntPredicate::Eq, own[i], end[i]));
        let slot = (0..own.len())
            .map(|i| b.select(at_end[usize::from(i == uniform)], other_end[i], beside[i]))
            .collect();
        gpu.define(op.results[0], slot);
    }
}

impl GpuEmit for AsyncCopy {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let copies = match self.to {
            CopyTarget::Thread(part) => gpu.thread_copies(b, self, part),
            CopyTarget::Tile(tile) => gpu.tile_copies(b, self, tile),
        };
        gpu.in_flight.open_group.extend(copies);
    }
}

impl GpuEmit for AsyncGroup {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let condition = gpu.scalar(self.only_if);
        let Some(&prepared) = op.results.first() else {
            b.if_then(condition, |b| {
                let mut copies = gpu.collect_copies(b, &self.body);
                issue_all(b, copies.make_contiguous());
            });
            return commit_group(b);
        };
        gpu.in_flight.prepares_copies = true;
        let mut copies = gpu.collect_copies(b, &self.body);
        gpu.in_flight.prepares_copies = false;
        copies.iter_mut().for_each(|copy| copy.and_predicate(b, condition));
        gpu.in_flight.prepared_copies.insert(prepared, copies);
    }
}

impl GpuEmit for AsyncWait {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        statement(b, &format!("cp.async.wait_group {};", self.pending), "~{memory}", &[], &[]);
    }
}

impl GpuEmit for SlotLoad {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(op.results[0]).dtype;
        let part = match self.from {
            CopyTarget::Thread(part) => part,
            CopyTarget::Tile(tile) => return load_from_tile(gpu, b, self, [tile, op.results[0]]),
        };
        let vector = self.vector as usize;
        let width = self.vector * dtype.bytes();
        let pitch = gpu.pitch(width);
        let base = gpu.registers(part.slot)[part.address];
        let masked =
            self.masked.map(|MaskedElements { mask, other }| [mask, other].map(|value| gpu.registers(value)));
        let mut loaded = vec![];
        for i in 0..gpu.register_count(op.results[0]) / vector {
            let start = part.offset + i as u32 * pitch;
            let mut words = VectorWords::of(width).load_shared(b, base, start);
            if let Some([masks, others]) = &masked {
                let others = pack(b, &others[i * vector..(i + 1) * vector], dtype);
                let mask = masks[i * vector];
                let selected = words.into_iter().zip(others).map(|(word, other)| b.select(mask, word, other));
                words = selected.collect();
            }
            loaded.push(words);
        }
        let registers = loaded.iter().flat_map(|words| unpack(b, words, dtype, vector)).collect();
        gpu.define(op.results[0], registers);
    }
}

/// Loads a thread's elements of a tile, by vectors of those that are contiguous there.
fn load_from_tile(gpu: &mut Gpu, b: &mut Builder, load: &SlotLoad, [from, to]: [Value; 2]) {
    let (layout, dtype) = (gpu.layout(to).clone(), gpu.func.ty(to).dtype);
    let SlotTileAddress { tile, fast, address, .. } = gpu.smem.slot_tiles[&from].clone();
    let vector = vector_along(&layout, dtype, fast);
    let mut addresses = gpu.tile_addresses(b, tile, address, &layout);
    let mut loaded = vec![];
    for first in (0..layout.register_count()).step_by(vector) {
        let OffsetAddress { base, bytes } = addresses.at(b, layout.register(first));
        let words = VectorWords::of(vector as u32 * dtype.bytes()).load_shared(b, base, bytes as u32);
        loaded.extend(unpack(b, &words, dtype, vector));
    }
    if let Some(MaskedElements { mask, other }) = load.masked {
        let (masks, others) = (gpu.registers(mask), gpu.registers(other));
        let elements = loaded.iter().zip(masks.iter()).zip(others.iter());
        loaded = elements.map(|((&value, &mask), &other)| b.select(mask, value, other)).collect();
    }
    gpu.define(to, loaded);
}

impl GpuEmit for SlotStore {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let layout = gpu.layout(self.value).clone();
        let dtype = gpu.func.ty(self.value).dtype;
        let SlotTileAddress { tile, fast, address, .. } = gpu.smem.slot_tiles[&self.to].clone();
        let values = gpu.registers(self.value).to_vec();
        let writer = gpu.writer(b, Some(&layout));
        if let Some(rows) = layout.matrix_rows(fast).filter(|_| dtype.bytes() == 2) {
            let mut addresses = gpu.tile_addresses(b, tile, address, &rows.layout);
            let order = if rows.transposed { ".trans" } else { "" };
            b.guarded(writer, |b| {
                for (number, matrices) in values.chunks(8).enumerate() {
                    let OffsetAddress { base, bytes } = addresses.at(b, rows.layout.register(number));
                    let text = format!(
                        "stmatrix.sync.aligned.m8n8.x4{order}.shared.b16 [$0 + {bytes}], {{$1, $2, $3, $4}};"
                    );
                    let words = matrices.chunks(2).flat_map(|pair| pack(b, pair, dtype));
                    let operands: Vec<Val> = [base].into_iter().chain(words).collect();
                    statement(b, &text, "r,r,r,r,r,~{memory}", &operands, &[]);
                }
            });
            return;
        }
        let vector = vector_along(&layout, dtype, fast);
        let mut addresses = gpu.tile_addresses(b, tile, address, &layout);
        b.guarded(writer, |b| {
            for (number, chunk) in values.chunks(vector).enumerate() {
                let OffsetAddress { base, bytes } = addresses.at(b, layout.register(number * vector));
                let base = b.op("llvm.inttoptr", &[base], Ty::scalar(Elem::Ptr(Space::Shared)));
                let pointer = OffsetAddress { base, bytes }.pointer(b);
                store(b, chunk, dtype, pointer, vector as u32 * dtype.bytes());
            }
        });
    }
}

impl GpuEmit for SlotTile {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let start = b.int(Ty::I32, i64::from(self.offset));
        let slot = gpu.registers(self.slot);
        let [.., address, uniform] = slot[..] else { unreachable!("a slot with tiles has two addresses") };
        let [address, uniform] = [address, uniform].map(|slot| b.add(slot, start));
        let tile = SlotTileAddress { tile: self.tile.clone(), fast: self.fast, address, uniform };
        gpu.smem.slot_tiles.insert(op.results[0], tile);
    }
}
