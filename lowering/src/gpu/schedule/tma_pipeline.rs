//! The plan of a warp-specialized kernel: which tiles TMA loads and stores, by which tensor maps, and where their buffers and
//! barriers are in shared memory.
//!
//! Tiles that differ from iteration to iteration go to a ring of stages. Others are resident: loaded once for a work tile, to
//! buffers of their own. The loads of a stage that are released together form a barrier group. Each barrier group of a stage, and
//! each resident buffer, has a full and an empty barrier.

use std::collections::HashMap;

use crate::gpu::layout::Distributed;
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WARPGROUP_WARPS, WGMMA_M};
use crate::gpu::schedule::epilogue::{CHUNK_BYTES, EpilogueBuffers, MAX_CHUNKS, StoreChunks};
use crate::gpu::schedule::tensor_map::TensorMap;
use crate::gpu::schedule::tile_scalars::{self, varies_by_program};
use crate::gpu::schedule::work_tiles::{MBARRIER_BYTES, WorkTileLayout};
use tile_ir::ir::{Block, Func, Op, Value, backward_slice};
use tile_ir::ops::{For, Kind, SmemOperand, TmaStore, ViewTile, WarpGroupDot};
use tile_ir::support::dtype::DType;

/// Shared memory that a block with TMA loads may ask for.
pub const MAX_BYTES: u32 = 227 * 1024;
/// Stages where the user does not say: at least so many where there is room, and more where that takes no room from
/// another block.
const DEFAULT_STAGES: u32 = 4;
const MAX_STAGES: u32 = 8;
/// Shared memory of a multiprocessor, and what each block takes of it beside its own.
const SM_SHARED_BYTES: u32 = 228 * 1024;
const RESERVED_BLOCK_BYTES: u32 = 1024;
/// The warps beside so many consumers of which one is the producer: a warpgroup where consumers take its registers, as more than one
/// warpgroup of them does.
pub fn producer_warps(consumers: u32) -> u32 {
    if consumers > WARPGROUP_WARPS { WARPGROUP_WARPS } else { 1 }
}
/// Alignment of TMA buffers in shared memory.
pub const ALIGNMENT: u32 = 1024;

/// The blocks that a multiprocessor has so much shared memory for.
pub fn blocks_per_sm(bytes: u32) -> u32 {
    SM_SHARED_BYTES / (bytes + RESERVED_BLOCK_BYTES)
}

/// A TMA load of a view tile.
#[derive(Clone, Debug)]
pub struct PipelinedLoad {
    pub tile: ViewTile,
    pub bytes: u32,
    pub map: usize,
    /// Offset in a stage of its ring, or in shared memory.
    pub start: u32,
    /// The result of the last dot of an iteration that reads it.
    pub last_use: Value,
    /// The variable of the loop around that dot.
    pub last_loop: Option<Value>,
    /// Whether the blocks of a cluster may load it for each other.
    pub multicast: bool,
}

impl PipelinedLoad {
    /// Whether this operation is the last to read the tile, and in no loop.
    pub fn ends_with(&self, op: &Op) -> bool {
        self.last_use == op.results[0] && self.last_loop.is_none()
    }
}

/// All loads and stores of a kernel, and where their buffers and barriers are.
#[derive(Clone, Default, Debug)]
pub struct TmaPipeline {
    /// Loaded once for each program.
    pub resident: Vec<PipelinedLoad>,
    /// Stages of resident buffers: the next program's tiles may be loaded while this one's are in use.
    pub resident_stages: u32,
    pub rings: Vec<TmaRing>,
    pub maps: Vec<TensorMap>,
    pub epilogue: EpilogueBuffers,
    /// Whether programs differ in length, so that a counter schedules them (dynamic persistent).
    pub is_dynamic: bool,
    /// Quotients of a program that the producer computes for all warps, because divisions take long.
    pub tile_scalars: Vec<Value>,
    /// Where published work tiles start, with their barriers behind them.
    pub work_tiles: u32,
    /// Where the barriers of resident buffers start.
    pub resident_barriers: u32,
}

/// The loads of a loop, in a ring of stages.
#[derive(Clone, Debug)]
pub struct TmaRing {
    pub variable: Value,
    pub loads: Vec<PipelinedLoad>,
    pub stages: u32,
    /// Whether the user said how many.
    pub is_requested: bool,
    pub start: u32,
    pub barriers: u32,
}

impl TmaRing {
    /// The loads of a stage in barrier groups, each filled and released together.
    pub fn barrier_groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = vec![];
        for (index, load) in self.loads.iter().enumerate() {
            match groups.iter_mut().find(|group| self.loads[group[0]].last_use == load.last_use) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups
    }

    /// The barrier group of a load.
    pub fn group_of(&self, index: usize) -> usize {
        let found = self.barrier_groups().iter().position(|group| group.contains(&index));
        found.expect("each load is in a barrier group")
    }

    /// The last dot that reads a barrier group.
    pub fn last_use_of(&self, group: usize) -> Value {
        self.loads[self.barrier_groups()[group][0]].last_use
    }

    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    fn bytes(&self) -> u32 {
        self.stage_bytes() * self.stages
    }
}

/// Buffers that a dot reads: a barrier group of a ring, or a resident buffer.
#[derive(Clone, Copy)]
pub enum DotBuffers<'p> {
    Ring(&'p TmaRing, usize),
    Resident(usize),
}

impl TmaPipeline {
    /// `None` where nothing is loaded by TMA.
    pub fn new(distributed: &Distributed) -> Option<TmaPipeline> {
        let mut pipeline = TmaPipeline::default();
        let definitions = distributed.func.definitions();
        pipeline.collect(distributed, &distributed.func.body, None, &definitions);
        let rings = pipeline.rings.iter().map(|ring| ring.variable).collect::<Vec<_>>();
        pipeline.is_dynamic = distributed.func.body.ops.iter().any(|op| {
            let Kind::For(body) = &op.kind else { return false };
            let bounds = [body.low, body.high, body.step];
            rings.contains(&body.body.args[0])
                && bounds.iter().any(|&bound| varies_by_program(bound, &definitions))
        });
        if distributed.num_ctas == 1 {
            pipeline.mark_multicast(&distributed.func, &definitions);
        }
        pipeline.tile_scalars = tile_scalars::quotients(&distributed.func, &definitions);
        (!pipeline.maps.is_empty()).then_some(pipeline)
    }

    fn collect(
        &mut self,
        distributed: &Distributed,
        block: &Block,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        for op in &block.ops {
            if let Kind::WarpGroupDot(dot) = &op.kind {
                for operand in dot.smem_operands() {
                    self.add_load(distributed, operand, op, body, definitions);
                }
            }
            if let Kind::TmaStore(store) = &op.kind {
                self.add_store(distributed, store);
            }
            if let Kind::For(body) = &op.kind {
                self.collect(distributed, &body.body, Some(body), definitions);
            }
        }
    }

    fn add_load(
        &mut self,
        distributed: &Distributed,
        operand: &SmemOperand,
        op: &Op,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let tile = &operand.tile;
        let moves = |body: &&For| {
            tile.offsets.iter().any(|&offset| depends_on(offset, body.body.args[0], definitions))
        };
        let loads = match body.filter(moves) {
            Some(body) => self.ring_loads(distributed, body),
            None => &mut self.resident,
        };
        let (last_use, last_loop) = (op.results[0], body.map(|body| body.body.args[0]));
        if let Some(known) = loads.iter_mut().find(|load| load.tile == *tile) {
            (known.last_use, known.last_loop) = (last_use, last_loop);
            return;
        }
        let dtype = distributed.func.slice(tile.memory).0;
        let elem = dtype.bytes();
        let [rows, columns] = operand.lines();
        let bytes = rows * columns * elem;
        loads.push(PipelinedLoad {
            tile: tile.clone(),
            bytes,
            map: 0,
            start: 0,
            last_use,
            last_loop,
            multicast: false,
        });
        // All warpgroup dots of `f32` are in TF32.
        let index =
            self.tensor_map(&distributed.func, tile, [rows, SWIZZLE_ROW_BYTES / elem], dtype == DType::F32);
        self.loads_mut().filter(|load| load.tile == *tile).for_each(|load| load.map = index);
    }

    /// The index of the tensor map for boxes of so many rows and columns of a view.
    pub fn tensor_map(&mut self, func: &Func, tile: &ViewTile, matrix: [u32; 2], tf32: bool) -> usize {
        let mut block = vec![1; tile.extents.rank()];
        let outer = block.len() - 2;
        block[outer..].copy_from_slice(&matrix);
        let shape = func.view(tile.memory).expect("a tile of a view").launch_shape();
        let map = TensorMap { memory: tile.memory, shape, block, tf32, multicast: None };
        self.maps.iter().position(|known| *known == map).unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        })
    }

    /// Adds a tensor map and epilogue buffers for a store.
    fn add_store(&mut self, distributed: &Distributed, store: &TmaStore) {
        let StoreChunks { tiling, origins, width, .. } =
            StoreChunks::new(&distributed.func, store, distributed.num_warps);
        let map = self.tensor_map(&distributed.func, &store.tile, [WGMMA_M, width], false);
        self.epilogue.maps.push((store.tile.memory, map));
        let own = origins.len().min(MAX_CHUNKS) as u32 * CHUNK_BYTES;
        self.epilogue.bytes = self.epilogue.bytes.max(tiling.along_rows * tiling.along_columns * own);
    }

    /// Bytes of the tiles of one program, in at most so many stages where the user does not say how many.
    pub fn tile_bytes(&self, stages: u32) -> u32 {
        let stages = |ring: &TmaRing| if ring.is_requested { ring.stages } else { ring.stages.min(stages) };
        let rings = self.rings.iter().map(|ring| stages(ring) * ring.stage_bytes());
        rings.chain(self.resident.iter().map(|load| load.bytes)).sum()
    }

    fn loads_mut(&mut self) -> impl Iterator<Item = &mut PipelinedLoad> {
        self.resident.iter_mut().chain(self.rings.iter_mut().flat_map(|ring| &mut ring.loads))
    }

    /// The loads of a loop.
    fn ring_loads(&mut self, distributed: &Distributed, body: &For) -> &mut Vec<PipelinedLoad> {
        let variable = body.body.args[0];
        let position = self.rings.iter().position(|ring| ring.variable == variable).unwrap_or_else(|| {
            let requested = body.hints.num_stages.or(distributed.num_stages);
            let stages = requested.unwrap_or(DEFAULT_STAGES).max(1);
            let is_requested = requested.is_some();
            self.rings.push(TmaRing { variable, loads: vec![], stages, is_requested, start: 0, barriers: 0 });
            self.rings.len() - 1
        });
        &mut self.rings[position].loads
    }

    /// Assigns offsets behind so many bytes of scratch memory. Returns all bytes; there may be fewer stages than
    /// requested, and too little room for one.
    pub fn assign_smem(&mut self, scratch: u32) -> u32 {
        // A ring needs two stages before resident tiles are loaded for the next program.
        let requested = self.rings.clone();
        let bytes = self.fit_stages(scratch, [2, 2]);
        if bytes <= MAX_BYTES {
            return self.add_stages(scratch, bytes);
        }
        self.rings = requested;
        self.fit_stages(scratch, [1, 1])
    }

    /// More stages in memory that no other block could use: short grids wait for memory and for nothing else. Not
    /// with a dynamic scheduler: the producer would take the next program too early.
    fn add_stages(&mut self, scratch: u32, mut bytes: u32) -> u32 {
        if self.is_dynamic {
            return bytes;
        }
        loop {
            let mut deeper = self.clone();
            let rings = deeper.rings.iter_mut().filter(|ring| !ring.is_requested && ring.stages < MAX_STAGES);
            let Some(shallowest) = rings.min_by_key(|ring| ring.stages) else { return bytes };
            shallowest.stages += 1;
            let new_bytes = deeper.assign_offsets(scratch);
            if new_bytes > MAX_BYTES || blocks_per_sm(new_bytes) < blocks_per_sm(bytes) {
                return self.assign_offsets(scratch);
            }
            (*self, bytes) = (deeper, new_bytes);
        }
    }

    /// The same with so many resident stages, reducing rings to at least so many stages.
    fn fit_stages(&mut self, scratch: u32, [resident_stages, min_stages]: [u32; 2]) -> u32 {
        self.resident_stages = resident_stages;
        loop {
            let bytes = self.assign_offsets(scratch);
            let largest =
                self.rings.iter_mut().filter(|ring| ring.stages > min_stages).max_by_key(|ring| ring.bytes());
            match largest {
                Some(ring) if bytes > MAX_BYTES => ring.stages -= 1,
                _ => return bytes,
            }
        }
    }

    fn assign_offsets(&mut self, scratch: u32) -> u32 {
        let start = scratch.next_multiple_of(ALIGNMENT);
        let mut next = start;
        for ring in &mut self.rings {
            ring.start = next;
            next += ring.bytes();
            let mut start = 0;
            for load in &mut ring.loads {
                load.start = start;
                start += load.bytes;
            }
        }
        next = next.next_multiple_of(ALIGNMENT);
        for load in &mut self.resident {
            load.start = next;
            next += load.bytes * self.resident_stages;
        }
        self.epilogue.start = next.next_multiple_of(ALIGNMENT);
        next = self.epilogue.start + self.epilogue.bytes;
        for ring in &mut self.rings {
            ring.barriers = next;
            next += 2 * MBARRIER_BYTES * ring.stages * ring.barrier_groups().len() as u32;
        }
        self.resident_barriers = next;
        next += 2 * MBARRIER_BYTES * self.resident_stages * self.resident.len() as u32;
        self.work_tiles = next.next_multiple_of(16);
        let work_tiles = self.work_tile_layout();
        if self.is_dynamic { work_tiles.dynamic_end() } else { work_tiles.static_end() }
    }

    /// Where work tiles are published.
    pub fn work_tile_layout(&self) -> WorkTileLayout {
        WorkTileLayout { address: self.work_tiles, scalars: self.tile_scalars.len() as u32 }
    }

    /// The load of a view tile: in the ring of a loop, or resident.
    pub fn find(&self, tile: &ViewTile) -> (Option<&TmaRing>, usize) {
        let of = |loads: &[PipelinedLoad]| loads.iter().position(|load| load.tile == *tile);
        let ringed = self.rings.iter().find_map(|ring| Some((Some(ring), of(&ring.loads)?)));
        ringed.unwrap_or_else(|| (None, of(&self.resident).expect("an operand of a dot is loaded")))
    }

    /// The buffers that a dot reads, each barrier group once.
    pub fn buffers_of(&self, dot: &WarpGroupDot) -> Vec<DotBuffers<'_>> {
        let mut loads: Vec<DotBuffers> = vec![];
        for operand in dot.smem_operands() {
            let buffers = match self.find(&operand.tile) {
                (Some(ring), index) => DotBuffers::Ring(ring, ring.group_of(index)),
                (None, index) => DotBuffers::Resident(index),
            };
            let is_same = |known: &DotBuffers| match (known, buffers) {
                (DotBuffers::Ring(a, group), DotBuffers::Ring(b, other)) => {
                    a.variable == b.variable && *group == other
                }
                (DotBuffers::Resident(a), DotBuffers::Resident(b)) => *a == b,
                (DotBuffers::Ring(..), DotBuffers::Resident(_))
                | (DotBuffers::Resident(_), DotBuffers::Ring(..)) => false,
            };
            if !loads.iter().any(is_same) {
                loads.push(buffers);
            }
        }
        loads
    }

    pub fn ring_of(&self, variable: Value) -> Option<&TmaRing> {
        self.rings.iter().find(|ring| ring.variable == variable)
    }
}

/// Whether a scalar is computed from a loop's variable.
pub fn depends_on(value: Value, variable: Value, definitions: &HashMap<Value, &Op>) -> bool {
    backward_slice(value, definitions).contains(&variable)
}
