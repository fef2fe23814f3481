//! Warp specialization: a producer warp issues TMA loads, consumer warpgroups issue the dots.
//!
//! Takes a kernel with [`tile_ir::ops::WarpGroupDot`]s on tiles of views and the plan of their loads
//! ([`super::tma_pipeline`]). Gives buffers, barriers and two roles. The producer computes trip counts and tile offsets by itself
//! ([`producer`]). A consumer waits for a dot's operands in front of it, waits for its result, and releases the buffers behind the
//! last dot of an iteration that reads them ([`consumer`]). Later passes let dots overlap.
//!
//! A block is persistent: the loads of its next program are in flight while results of the current one are stored.
//!
//! The producer fills a stage only behind a wait on its empty barrier, at which every consumer warp has arrived. Both roles run the same
//! programs, loops and stages in the same order.
//!
//! Legal where (`opt::select_wgmma` and the plan of the loads see to it)
//! 1. an operand of a dot is a tile of a view, which TMA loads and wgmma reads;
//! 2. the tile's offsets and the bounds of the loop around it are scalars that any thread can compute: from arguments, program ids and
//!    memory that nothing writes;
//! 3. nothing in the kernel writes the view (`LoadView::invariant`);
//! 4. a stage of each buffer fits in shared memory;
//! 5. a load that a tile's offset depends on is outside of the loop or depends on its variable: the producer does all others before
//!    the loop, which may have no iteration.

mod consumer;
mod producer;
pub mod registers;

use std::collections::HashMap;

use super::Schedule;
use super::tma_pipeline::{PipelinedLoad, TmaPipeline, TmaRing};
use super::work_tiles::WORK_TILE_STAGES;
use crate::gpu::layout::warpgroup::{WARPGROUP_WARPS, preload_word_count};
use tile_ir::ir::{Func, Op, Shape, Storage, Type, Value};
use tile_ir::ops::schedule::{InitVisibility, Role, Stage};
use tile_ir::ops::{Kind, MbarAlloc, MbarInit, OperandA, PdlWait, PipeStart, SmemAlloc, WarpSpecialize};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;

/// The most tensor maps to prefetch: the addresses of four cost attention, a long kernel, registers that it does not have.
const MAX_PREFETCHED_MAPS: usize = 3;

/// A buffer, or the buffers of a barrier group, with their barriers.
#[derive(Clone, Copy)]
struct BarrierPair {
    full: Value,
    empty: Value,
}

/// The values of a kernel's buffers and barriers.
struct Buffers {
    /// Of each ring, the buffer of each load.
    rings: Vec<Vec<Value>>,
    /// Of each ring, the barriers of each barrier group.
    ring_barriers: Vec<Vec<BarrierPair>>,
    resident: Vec<Value>,
    resident_barriers: Vec<BarrierPair>,
    /// The buffers of TMA stores.
    epilogue: Option<Value>,
    /// The barriers of published work tiles.
    work_tiles: BarrierPair,
}

/// What both roles are built from.
struct Specializer<'a> {
    pipeline: &'a TmaPipeline,
    buffers: &'a Buffers,
    definitions: &'a HashMap<Value, Op>,
    loc: Loc,
}

/// The pipeline states of a role.
#[derive(Clone)]
struct Pipes {
    rings: Vec<Value>,
    /// That of the resident buffers, if there are any.
    resident: Option<Value>,
}

impl Pipes {
    fn flatten(&self) -> Vec<Value> {
        self.rings.iter().copied().chain(self.resident).collect()
    }
}

/// Makes the roles of a kernel with TMA loads.
pub fn warp_specialize(schedule: &mut Schedule) {
    let Some(pipeline) = schedule.pipeline.take() else { return };
    let loc = schedule.distributed.func.loc;
    let definitions = schedule.distributed.func.cloned_definitions();
    let body = std::mem::take(&mut schedule.distributed.func.body);
    schedule.tensor_maps = pipeline.maps.clone();
    let mut ops = vec![];
    let buffers = allocate(schedule, &mut ops, &pipeline, loc);
    let specializer = Specializer { pipeline: &pipeline, buffers: &buffers, definitions: &definitions, loc };
    specializer.initialize_barriers(schedule, &mut ops);
    if schedule.setup.uses_pdl {
        schedule.effect(&mut ops, loc, PdlWait);
    }
    let words = max_preloaded_words(schedule, &pipeline, &body.ops);
    let producer = specializer.producer(schedule, &body);
    let consumer = specializer.consumer(schedule, body);
    let num_warps = schedule.distributed.num_warps;
    let registers = registers::role_registers(num_warps, schedule.setup.max_registers, words);
    let warpgroups = num_warps / WARPGROUP_WARPS;
    schedule.effect(&mut ops, loc, WarpSpecialize { producer, consumer, warpgroups, registers });
    schedule.distributed.func.body.ops = ops;
    forget_moved_extents(&mut schedule.distributed.func);
}

/// Extents and strides of views that a role computes now are nowhere defined for the whole function.
fn forget_moved_extents(func: &mut Func) {
    let mut views = std::mem::take(&mut func.views);
    for value in views.iter_mut().flat_map(|view| view.shape.iter_mut().chain(&mut view.strides)) {
        if func.scalar_parameter(*value).is_none() && func.body.definition(*value).is_none() {
            *value = func.value(func.ty(*value).clone());
        }
    }
    func.views = views;
}

/// The most words of operand A that a thread may preload.
fn max_preloaded_words(schedule: &Schedule, pipeline: &TmaPipeline, ops: &[Op]) -> u32 {
    let mut most = 0;
    let mut visit = |op: &Op| {
        if let Kind::WarpGroupDot(dot) = &op.kind
            && let OperandA::Smem(operand) = &dot.a
            && pipeline.find(&operand.tile).0.is_none()
        {
            let rows = schedule.ty(op.results[0]).shape[0];
            let dtype = schedule.distributed.func.slice(operand.tile.memory).0;
            let words = preload_word_count(dtype, operand.lines(), rows, schedule.distributed.num_warps);
            most = most.max(words.unwrap_or(0));
        }
    };
    for op in ops {
        visit(op);
        op.kind.operation().blocks().into_iter().for_each(|block| block.walk(&mut visit));
    }
    most
}

/// Appends the buffers and barriers.
fn allocate(schedule: &mut Schedule, ops: &mut Vec<Op>, pipeline: &TmaPipeline, loc: Loc) -> Buffers {
    let (mut rings, mut ring_barriers) = (vec![], vec![]);
    for ring in &pipeline.rings {
        let buffers = ring.loads.iter().map(|load| {
            let place = SmemAlloc { address: ring.start + load.start, stride: ring.stage_bytes() };
            let ty = buffer_type(schedule, load, ring.stages);
            schedule.one(ops, loc, place, ty)
        });
        rings.push(buffers.collect());
        ring_barriers.push(ring_pairs(schedule, ops, ring, loc));
    }
    let stages = pipeline.resident_stages;
    let resident: Vec<Value> = pipeline
        .resident
        .iter()
        .map(|load| {
            let place = SmemAlloc { address: load.start, stride: load.bytes };
            let ty = buffer_type(schedule, load, stages);
            schedule.one(ops, loc, place, ty)
        })
        .collect();
    let list = BarrierList { address: pipeline.resident_barriers, stages, cluster: false };
    let resident_barriers = list.pairs(schedule, ops, resident.len() as u32, loc);
    let epilogue = (pipeline.epilogue.bytes > 0).then(|| {
        // A stage for each warpgroup.
        let stages = schedule.distributed.num_warps / WARPGROUP_WARPS;
        let stride = pipeline.epilogue.bytes / stages;
        let ty = Type::tile(DType::U8, Shape::new([stride])).stored(Storage::Smem { stages });
        schedule.one(ops, loc, SmemAlloc { address: pipeline.epilogue.start, stride }, ty)
    });
    let work_tiles = work_tile_barriers(schedule, ops, pipeline, loc);
    Buffers { rings, ring_barriers, resident, resident_barriers, epilogue, work_tiles }
}

/// The type of a load's buffer with so many stages.
fn buffer_type(schedule: &Schedule, load: &PipelinedLoad, stages: u32) -> Type {
    let extents = &load.tile.extents;
    let dtype = schedule.distributed.func.slice(load.tile.memory).0;
    let lines = Shape::new([extents[extents.rank() - 2], extents[extents.rank() - 1]]);
    Type::tile(dtype, lines).stored(Storage::Smem { stages })
}

/// Full barriers of so many stages from an address on, one list behind the other, then the empty ones.
struct BarrierList {
    address: u32,
    stages: u32,
    /// Whether consumers of all blocks of the cluster arrive at the empty ones.
    cluster: bool,
}

impl BarrierList {
    fn pairs(self, schedule: &mut Schedule, ops: &mut Vec<Op>, count: u32, loc: Loc) -> Vec<BarrierPair> {
        let BarrierList { address, stages, cluster } = self;
        let bytes = super::MBARRIER_BYTES * stages;
        let consumers = schedule.distributed.num_warps;
        let mut list = |first: u32, arrivals: u32, cluster: bool| -> Vec<Value> {
            let ty = Type::mbarriers(stages, arrivals, cluster);
            let addresses = (0..count).map(|index| first + index * bytes);
            addresses.map(|address| schedule.one(ops, loc, MbarAlloc { address }, ty.clone())).collect()
        };
        let full = list(address, 1, false);
        let empty = list(address + count * bytes, consumers, cluster);
        full.into_iter().zip(empty).map(|(full, empty)| BarrierPair { full, empty }).collect()
    }
}

fn ring_pairs(schedule: &mut Schedule, ops: &mut Vec<Op>, ring: &TmaRing, loc: Loc) -> Vec<BarrierPair> {
    let list = BarrierList { address: ring.barriers, stages: ring.stages, cluster: ring.has_multicast() };
    list.pairs(schedule, ops, ring.barrier_groups().len() as u32, loc)
}

fn work_tile_barriers(
    schedule: &mut Schedule,
    ops: &mut Vec<Op>,
    pipeline: &TmaPipeline,
    loc: Loc,
) -> BarrierPair {
    let address = pipeline.work_tile_layout().full_barriers();
    let list = BarrierList { address, stages: WORK_TILE_STAGES, cluster: false };
    list.pairs(schedule, ops, 1, loc)[0]
}

impl Specializer<'_> {
    /// Appends the initialization of all barriers.
    fn initialize_barriers(&self, schedule: &mut Schedule, ops: &mut Vec<Op>) {
        let Buffers { ring_barriers, resident_barriers, work_tiles, .. } = self.buffers;
        let in_order = |pairs: &Vec<BarrierPair>| {
            let full = pairs.iter().map(|pair| pair.full);
            full.chain(pairs.iter().map(|pair| pair.empty)).collect::<Vec<Value>>()
        };
        let lists = ring_barriers.iter().chain([resident_barriers]);
        let barriers = lists.flat_map(in_order).chain([work_tiles.full, work_tiles.empty]).collect();
        let count = self.pipeline.maps.len();
        let prefetched = if count <= MAX_PREFETCHED_MAPS { (0..count).collect() } else { vec![] };
        schedule.effect(ops, self.loc, MbarInit { barriers, prefetched, visible: InitVisibility::Init });
    }

    /// The index of the ring of the loop with this variable.
    fn ring_of(&self, variable: Value) -> Option<usize> {
        self.pipeline.rings.iter().position(|ring| ring.variable == variable)
    }

    /// The pipeline states before the first program.
    fn start(&self, schedule: &mut Schedule, ops: &mut Vec<Op>, role: Role) -> Pipes {
        let mut first = |stages: u32| {
            let ty = pipe_type(stages);
            schedule.one(ops, self.loc, PipeStart { role }, ty)
        };
        let rings = self.pipeline.rings.iter().map(|ring| first(ring.stages)).collect();
        let resident = (!self.pipeline.resident.is_empty()).then(|| first(self.pipeline.resident_stages));
        Pipes { rings, resident }
    }

    /// The same as arguments of a block.
    fn pipe_args(&self, schedule: &mut Schedule) -> Pipes {
        let rings = self.pipeline.rings.iter().map(|ring| schedule.value(pipe_type(ring.stages))).collect();
        let resident = (!self.pipeline.resident.is_empty())
            .then(|| schedule.value(pipe_type(self.pipeline.resident_stages)));
        Pipes { rings, resident }
    }

    /// The barrier of a barrier group in its stage.
    fn ring_stage(&self, ring: usize, group: usize, pipe: Value) -> [Stage; 2] {
        let BarrierPair { full, empty } = self.buffers.ring_barriers[ring][group];
        [full, empty].map(|buffer| Stage { buffer, pipe })
    }

    /// The full and the empty barrier of a resident buffer.
    fn resident_stage(&self, index: usize, pipes: &Pipes) -> [Stage; 2] {
        let BarrierPair { full, empty } = self.buffers.resident_barriers[index];
        [full, empty].map(|buffer| Stage { buffer, pipe: resident_pipe(pipes) })
    }
}

/// Whether 32 bits count the iterations of a loop over this variable. A counter of 64 bits takes twice the instructions, which a
/// producer has few of besides; those of a consumer follow the wait for its dots, before the next iteration's.
fn counts_in_32_bits(schedule: &Schedule, variable: Value) -> bool {
    let (low, high) = schedule.info(variable).range;
    low >= 0 && high < i32::MAX.into()
}

fn pipe_type(stages: u32) -> Type {
    Type::pipe(stages)
}

fn resident_pipe(pipes: &Pipes) -> Value {
    pipes.resident.expect("there are resident buffers")
}
