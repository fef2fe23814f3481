//! Blocks of views on their way to shared memory.
//!
//! One thread of a group of warps beside those of the program has the GPU copy the blocks that products take
//! ([`crate::ops::WarpGroupDot`]). What a loop takes anew in each turn goes to a ring of as many parts as there are stages;
//! anything else is copied once for a program, to a place of its own. The blocks of a turn that are let go together,
//! and each of those other places, have two barrier objects: a phase of the first ends when the blocks have come, and
//! one of the second when every warp has multiplied by them. The copying thread computes by itself how often loops run
//! and where blocks begin.
//!
//! A block runs one program after the other: the copies of the next one are under way while the last one's results are
//! stored. Where all take as long, blocks take them in turn; otherwise from a counter ([`programs`]). What is made of
//! products may leave through shared memory ([`stores`]).

mod barriers;
mod consumer;
mod multicast;
mod producer;
mod roles;
mod tile_scheduler;
mod tma_store;

use std::collections::HashMap;

pub(super) use self::barriers::{PipelineProgress, PipelineState};
pub(super) use self::consumer::MmaOrder;
use self::tma_store::EpilogueBuffers;
pub(super) use self::tma_store::bits;
use crate::gpu::emit::smem_alloc::MBARRIER_BYTES;
use crate::gpu::layout::Distributed;
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WARPGROUP_WARPS};
use crate::ir::{Block, Func, Op, ParamId, Value, backward_slice};
use crate::ops::{For, Kind, SmemOperand, ViewTile, WarpGroupDot};
use crate::support::dtype::DType;

/// Shared memory that a block may ask for where there are copies of this kind.
pub(super) const MAX_BYTES: u32 = 227 * 1024;
/// Turns whose blocks are under way at once where the user does not say: at least so many where there is room, and more where
/// that takes no room from another block.
const STAGES: u32 = 4;
const MOST_STAGES: u32 = 8;
/// Shared memory of a multiprocessor, and what each block takes of it beside its own.
const MULTIPROCESSOR_BYTES: u32 = 228 * 1024;
const BLOCK_BYTES: u32 = 1024;
/// The warps of the group of which one copies.
pub(super) const WARPS: u32 = WARPGROUP_WARPS;
/// Registers of a multiprocessor.
const REGISTERS: u32 = 64 * 1024;
/// A warp's threads get so many together.
const REGISTER_STEP: u32 = 8;
/// The most registers that each of a block's threads can have.
pub fn registers_of_each(threads: u32) -> u32 {
    REGISTERS / threads / REGISTER_STEP * REGISTER_STEP
}

/// Registers of a thread that copies, and as few as it can do with.
const COPYING_REGISTERS: [u32; 2] = [32, 24];
/// Words of a left factor from which on threads that multiply get all that others can give. More registers than a loop
/// needs have `ptxas` find another order for it, which took 4 % longer.
const MANY_HELD: u32 = 32;
/// What a block's address in shared memory divides by.
const ALIGNMENT: u32 = 1024;

/// By which the GPU finds the elements of a block: of a view, and so many of its elements along each axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    pub memory: ParamId,
    pub block: Vec<u32>,
    /// Whether the block's last two axes are the parameter's exchanged.
    pub transposed: bool,
    /// Whether elements of `f32` are rounded to TF32 as they are copied in, halves to even.
    pub tf32: bool,
    /// What a program loads by it, if the blocks of a cluster may load halves of each box for each other ([`multicast`]).
    pub multicast: Option<Multicast>,
}

/// Loads of a loop: along an axis of the box, so many elements and bytes in an iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    pub axis: u32,
    pub step: u32,
    pub bytes: u32,
}

/// A block to be copied.
#[derive(Clone, Debug)]
struct TmaLoad {
    window: ViewTile,
    bytes: u32,
    map: usize,
    /// From the start of its part of a ring, or of shared memory.
    start: u32,
    /// The result of the last product that takes it, of those in a turn.
    last: Value,
    /// The variable of the loop that this product stands in.
    within: Option<Value>,
    /// Whether the blocks of a cluster may load it for each other.
    multicast: bool,
}

impl TmaLoad {
    /// Whether nothing takes the block after this operation, which stands in no loop.
    fn ends_with(&self, op: &Op) -> bool {
        self.last == op.results[0] && self.within.is_none()
    }
}

/// What is copied, and where to.
#[derive(Clone, Default, Debug)]
pub(super) struct TmaPipeline {
    /// Copied once for each program.
    once: Vec<TmaLoad>,
    /// Programs for which there is room at once: the next one's blocks may come while this one's are in use.
    parts: u32,
    rings: Vec<TmaRing>,
    pub maps: Vec<TensorMap>,
    outgoing: EpilogueBuffers,
    /// Whether programs take differently long, so that a block's next one comes from a counter.
    pub counted: bool,
    /// Scalars of a program that the thread that copies computes for all: quotients, which take long.
    pub told: Vec<Value>,
    /// Where programs are announced, and the barrier objects of that.
    announcements: u32,
    /// Where the barrier objects of what is copied once are.
    signals: u32,
}

/// What a loop takes in each turn.
#[derive(Clone, Debug)]
struct TmaRing {
    variable: Value,
    copies: Vec<TmaLoad>,
    stages: u32,
    /// Whether the user said how many.
    asked: bool,
    start: u32,
    signals: u32,
}

impl TmaRing {
    /// The blocks of a turn in lots that come together and are let go together.
    fn lots(&self) -> Vec<Vec<usize>> {
        let mut lots: Vec<Vec<usize>> = vec![];
        for (number, copy) in self.copies.iter().enumerate() {
            match lots.iter_mut().find(|lot| self.copies[lot[0]].last == copy.last) {
                Some(lot) => lot.push(number),
                None => lots.push(vec![number]),
            }
        }
        lots
    }

    /// Which lot a block belongs to.
    fn lot(&self, number: usize) -> usize {
        let found = self.lots().iter().position(|lot| lot.contains(&number));
        found.expect("each block is in a lot")
    }

    /// The last product that takes a lot.
    fn last_of(&self, lot: usize) -> Value {
        self.copies[self.lots()[lot][0]].last
    }

    /// Bytes of one part.
    fn turn(&self) -> u32 {
        self.copies.iter().map(|copy| copy.bytes).sum()
    }

    fn bytes(&self) -> u32 {
        self.turn() * self.stages
    }
}

/// What a product takes: a lot of a ring's blocks, or a block that is copied once.
#[derive(Clone, Copy)]
enum DotBuffers<'p> {
    Lot(&'p TmaRing, usize),
    Own(usize),
}

impl TmaPipeline {
    /// `None` where nothing is to be copied.
    pub fn new(distributed: &Distributed) -> Option<TmaPipeline> {
        let mut pipeline = TmaPipeline::default();
        let definitions = distributed.func.definitions();
        pipeline.block(distributed, &distributed.func.body, None, &definitions);
        let rings = pipeline.rings.iter().map(|ring| ring.variable).collect::<Vec<_>>();
        pipeline.counted = distributed.func.body.ops.iter().any(|op| {
            let Kind::For(body) = &op.kind else { return false };
            let bounds = [body.low, body.high, body.step];
            rings.contains(&body.body.args[0]) && bounds.iter().any(|&bound| differs(bound, &definitions))
        });
        if distributed.num_ctas == 1 {
            pipeline.mark_multicast(&distributed.func, &definitions);
        }
        pipeline.told = tile_scheduler::quotients(&distributed.func, &definitions);
        (!pipeline.maps.is_empty()).then_some(pipeline)
    }

    fn block(
        &mut self,
        distributed: &Distributed,
        block: &Block,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        for op in &block.ops {
            if let Kind::WarpGroupDot(dot) = &op.kind {
                for staged in dot.staged() {
                    self.copy(distributed, staged, op, body, definitions);
                }
            }
            if let Kind::TmaStore(store) = &op.kind {
                self.leaves(distributed, store);
            }
            if let Kind::For(body) = &op.kind {
                self.block(distributed, &body.body, Some(body), definitions);
            }
        }
    }

    fn copy(
        &mut self,
        distributed: &Distributed,
        staged: &SmemOperand,
        op: &Op,
        body: Option<&For>,
        definitions: &HashMap<Value, &Op>,
    ) {
        let window = &staged.window;
        let moves =
            |body: &&For| window.offsets.iter().any(|&offset| varies(offset, body.body.args[0], definitions));
        let list = match body.filter(moves) {
            Some(body) => self.ring(distributed, body),
            None => &mut self.once,
        };
        let (last, within) = (op.results[0], body.map(|body| body.body.args[0]));
        if let Some(known) = list.iter_mut().find(|copy| copy.window == *window) {
            (known.last, known.within) = (last, within);
            return;
        }
        let dtype = distributed.func.slice(window.memory).0;
        let elem = dtype.bytes();
        let [rows, columns] = staged.lines();
        let bytes = rows * columns * elem;
        list.push(TmaLoad {
            window: window.clone(),
            bytes,
            map: 0,
            start: 0,
            last,
            within,
            multicast: false,
        });
        // All products of `f32` by groups of warps are in TF32.
        let number =
            self.map_of(&distributed.func, window, [rows, SWIZZLE_ROW_BYTES / elem], dtype == DType::F32);
        self.copies_mut().filter(|copy| copy.window == *window).for_each(|copy| copy.map = number);
    }

    /// The number of the map for matrices of so many rows and columns of a view.
    fn map_of(&mut self, func: &Func, window: &ViewTile, matrix: [u32; 2], tf32: bool) -> usize {
        let mut block = vec![1; window.extents.rank()];
        let outer = block.len() - 2;
        block[outer..].copy_from_slice(&matrix);
        let transposed = func.view(window.memory).is_some_and(|view| view.transposed);
        let map = TensorMap { memory: window.memory, block, transposed, tf32, multicast: None };
        self.maps.iter().position(|known| *known == map).unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        })
    }

    fn copies_mut(&mut self) -> impl Iterator<Item = &mut TmaLoad> {
        self.once.iter_mut().chain(self.rings.iter_mut().flat_map(|ring| &mut ring.copies))
    }

    /// The copies of a loop.
    fn ring(&mut self, distributed: &Distributed, body: &For) -> &mut Vec<TmaLoad> {
        let variable = body.body.args[0];
        let place = self.rings.iter().position(|ring| ring.variable == variable).unwrap_or_else(|| {
            let asked = body.hints.num_stages.or(distributed.num_stages);
            let stages = asked.unwrap_or(STAGES).max(1);
            let asked = asked.is_some();
            self.rings.push(TmaRing { variable, copies: vec![], stages, asked, start: 0, signals: 0 });
            self.rings.len() - 1
        });
        &mut self.rings[place].copies
    }

    /// Finds places for the blocks, behind so many bytes of scratch memory. Gives all bytes; there may be fewer stages
    /// than asked for, and too little room for one.
    pub fn place(&mut self, scratch: u32) -> u32 {
        // A ring needs two parts before the next program's blocks come early.
        let asked = self.rings.clone();
        let bytes = self.fitted(scratch, [2, 2]);
        if bytes <= MAX_BYTES {
            return self.deepened(scratch, bytes);
        }
        self.rings = asked;
        self.fitted(scratch, [1, 1])
    }

    /// More stages in memory that no other block could use: programs with few neighbours wait for memory and for nothing else. Not where
    /// programs come from a counter: the thread that copies would take the next one too early.
    fn deepened(&mut self, scratch: u32, mut bytes: u32) -> u32 {
        if self.counted {
            return bytes;
        }
        let resident = |bytes: u32| MULTIPROCESSOR_BYTES / (bytes + BLOCK_BYTES);
        loop {
            let mut deeper = self.clone();
            let rings = deeper.rings.iter_mut().filter(|ring| !ring.asked && ring.stages < MOST_STAGES);
            let Some(shortest) = rings.min_by_key(|ring| ring.stages) else { return bytes };
            shortest.stages += 1;
            let more = deeper.placed(scratch);
            if more > MAX_BYTES || resident(more) < resident(bytes) {
                return self.placed(scratch);
            }
            (*self, bytes) = (deeper, more);
        }
    }

    /// The same with so many parts of what is copied once, and at least so many stages if there were as many.
    fn fitted(&mut self, scratch: u32, [parts, least]: [u32; 2]) -> u32 {
        self.parts = parts;
        loop {
            let bytes = self.placed(scratch);
            let largest =
                self.rings.iter_mut().filter(|ring| ring.stages > least).max_by_key(|ring| ring.bytes());
            match largest {
                Some(ring) if bytes > MAX_BYTES => ring.stages -= 1,
                _ => return bytes,
            }
        }
    }

    fn placed(&mut self, scratch: u32) -> u32 {
        let start = scratch.next_multiple_of(ALIGNMENT);
        let mut next = start;
        for ring in &mut self.rings {
            ring.start = next;
            next += ring.bytes();
            let mut start = 0;
            for copy in &mut ring.copies {
                copy.start = start;
                start += copy.bytes;
            }
        }
        next = next.next_multiple_of(ALIGNMENT);
        for copy in &mut self.once {
            copy.start = next;
            next += copy.bytes * self.parts;
        }
        self.outgoing.start = next.next_multiple_of(ALIGNMENT);
        next = self.outgoing.start + self.outgoing.bytes;
        for ring in &mut self.rings {
            ring.signals = next;
            next += 2 * MBARRIER_BYTES * ring.stages * ring.lots().len() as u32;
        }
        self.signals = next;
        next += 2 * MBARRIER_BYTES * self.parts * self.once.len() as u32;
        self.announcements = next.next_multiple_of(16);
        self.announcing_end()
    }

    /// Where the copy of a window is: in the ring of a loop, or in a place of its own.
    fn find(&self, window: &ViewTile) -> (Option<&TmaRing>, usize) {
        let of = |copies: &[TmaLoad]| copies.iter().position(|copy| copy.window == *window);
        let ringed = self.rings.iter().find_map(|ring| Some((Some(ring), of(&ring.copies)?)));
        ringed.unwrap_or_else(|| (None, of(&self.once).expect("a block of a product is copied")))
    }

    /// What a product takes, each lot once.
    fn taken(&self, dot: &WarpGroupDot) -> Vec<DotBuffers<'_>> {
        let mut list: Vec<DotBuffers> = vec![];
        for staged in dot.staged() {
            let taken = match self.find(&staged.window) {
                (Some(ring), number) => DotBuffers::Lot(ring, ring.lot(number)),
                (None, number) => DotBuffers::Own(number),
            };
            let is_same = |known: &DotBuffers| match (known, taken) {
                (DotBuffers::Lot(a, lot), DotBuffers::Lot(b, other)) => {
                    a.variable == b.variable && *lot == other
                }
                (DotBuffers::Own(a), DotBuffers::Own(b)) => *a == b,
                (DotBuffers::Lot(..), DotBuffers::Own(_)) | (DotBuffers::Own(_), DotBuffers::Lot(..)) => {
                    false
                }
            };
            if !list.iter().any(is_same) {
                list.push(taken);
            }
        }
        list
    }

    fn ring_of(&self, variable: Value) -> Option<&TmaRing> {
        self.rings.iter().find(|ring| ring.variable == variable)
    }

    /// Whether the blocks of a turn can come while those of the turn before it are still in use.
    pub fn overlaps(&self, body: &For) -> bool {
        self.ring_of(body.body.args[0]).is_some_and(|ring| ring.stages > 1)
    }

    /// The loop's ring takes turns.
    pub fn turns(&self, body: &For) -> bool {
        self.ring_of(body.body.args[0]).is_some()
    }
}

/// Whether a scalar is another one in other programs.
fn differs(value: Value, definitions: &HashMap<Value, &Op>) -> bool {
    backward_slice(value, definitions)
        .iter()
        .filter_map(|value| definitions.get(value))
        .any(|op| matches!(op.kind, Kind::ProgramId(_)) || op.kind.operation().place().is_some())
}

/// Whether a scalar is computed from a loop's variable.
pub(super) fn varies(value: Value, variable: Value, definitions: &HashMap<Value, &Op>) -> bool {
    backward_slice(value, definitions).contains(&variable)
}
