//! The scratch memory of operations: shared memory that one needs while it runs, to exchange elements between warps.
//!
//! An operation that has it writes there, waits for the other warps, and reads. How it does so is emission's; where its memory is says
//! [`smem_alloc`](super::smem_alloc), and which barrier stands before it [`membar`](super::membar).

use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::StagedValue;
use tile_ir::ops::*;

use super::invariant_operand;
use crate::gpu::layout::coord_bits::CoordBits;
use crate::gpu::layout::gather::warp_gather;
use crate::gpu::layout::scratch_operands::{ScratchOperands, staged_tile};
use crate::gpu::layout::smem_tile::SmemTile;
use crate::gpu::layout::warp_totals::{WarpTotals, group_count};
use crate::gpu::layout::{Conversion, Distributed, Layout, Segment, conversion};
use crate::gpu::opt::batch_reductions::reduced_warps;

/// What an operation needs of shared memory.
pub trait Scratch {
    /// The bytes that it needs while it runs.
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32;

    /// Whether it stores to the other blocks of a cluster asynchronously, completing an `mbarrier` there.
    fn uses_remote_stores(&self, distributed: &Distributed) -> bool {
        let _ = distributed;
        false
    }
}

macro_rules! scratches {
    ($($name:ident),* $(,)?) => {
        /// What an operation needs of shared memory.
        pub fn scratch_of(kind: &Kind) -> &dyn Scratch {
            match kind {
                $(Kind::$name(op) => op,)*
            }
        }
    };
}

for_each_op!(scratches);

/// Whether the warp count of a function may be no power of two: warps exchange nothing but whole tiles in layout conversions.
pub fn allows_any_warp_count(distributed: &Distributed) -> bool {
    let mut allows = true;
    distributed.func.body.walk(&mut |op| {
        let converts = matches!(op.kind, Kind::Convert(_) | Kind::RematBarrier(_));
        let along_axis = matches!(
            op.kind,
            Kind::Scan(_) | Kind::Index(_) | Kind::Exchange(_) | Kind::Gather(_) | Kind::Histogram(_)
        );
        allows &= converts || !along_axis && scratch_of(&op.kind).scratch(distributed, op) == 0;
    });
    allows
}

/// Operations that exchange nothing through scratch memory.
macro_rules! no_scratch {
    ($($name:ident),* $(,)?) => {
        $(impl Scratch for $name {
            fn scratch(&self, _: &Distributed, _: &Op) -> u32 {
                0
            }
        })*
    };
}

no_scratch! {
    Constant, ProgramId, NumPrograms, Length, Arange, Rotate, Splat, Scalar, Cast, Bitcast, Broadcast, ExpandDims, Permute, Load, Store,
    LoadView, StoreView, AddView, InlinePtx, AxisHint, If, While, RematBarrier, Random, Philox, Join, WarpGroupDot, TmaStore, SmemAlloc,
    MbarAlloc, MbarInit, MbarWait, MbarArrive, MbarArriveForPeer, ExpectTx, WarpBarrier, Barrier, ProxyFence, PdlWait, ClusterArrive, ClusterWait, MmaOrder, PipeStart, PipeNext,
    SmemLoadWords, Poison, Pack, Unpack, TmaLoad, StoreWait, WarpgroupPosition, Wgmma, DotWait, RescaleRows, TripCount, Induction, Loop, IterationBound,
    WarpSpecialize, WorkTiles, Publish, TileQuotient, PeerShares, RingStart, SlotAt, SlotStep, AsyncCopy, AsyncGroup, AsyncWait, SlotLoad,
    SlotStore, SlotTile, ReduceBatch, Assert, Print,
}

impl Scratch for Convert {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let (from, to) = (&distributed.layouts[&self.value], &distributed.layouts[&op.results[0]]);
        let ty = distributed.func.ty(self.value);
        match conversion(from, to) {
            Conversion::Registers(_) | Conversion::Shuffle(_) => 0,
            Conversion::Shared => SmemTile::between(from, to, ty.dtype).elements * ty.dtype.bytes(),
        }
    }
}

impl Scratch for Reshape {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let (from, to) = (&distributed.layouts[&self.value], &distributed.layouts[&op.results[0]]);
        let ty = distributed.func.ty(self.value);
        if from.keeps_elements_as(to) { 0 } else { ty.shape.elements() as u32 * ty.dtype.bytes() }
    }
}

/// The layout of what is reduced.
fn layout_of<'a>(distributed: &'a Distributed, reduce: &Reduce) -> &'a Layout {
    &distributed.layouts[&reduce.combination.inputs[0]]
}

/// Bytes of the partial results of one of a reduction's inputs.
pub fn partial_bytes(distributed: &Distributed, reduce: &Reduce, input: usize) -> u32 {
    let layout = layout_of(distributed, reduce);
    let folded = layout.without(&reduce.axes);
    let partials = 1 << reduced_warps(layout, &folded).count_ones();
    let size = distributed.func.ty(reduce.combination.inputs[input]).dtype.bytes();
    (folded.shape().elements() as u32 * partials * size).next_multiple_of(16)
}

impl Scratch for Reduce {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let layout = layout_of(distributed, self);
        if reduced_warps(layout, &layout.without(&self.axes)) == 0 {
            return 0;
        }
        (0..self.combination.inputs.len()).map(|input| partial_bytes(distributed, self, input)).sum()
    }

    /// Partial results go to the other blocks of a cluster by asynchronous stores that complete an `mbarrier`, which takes no barrier of
    /// the cluster; every warp takes part.
    fn uses_remote_stores(&self, distributed: &Distributed) -> bool {
        let layout = layout_of(distributed, self);
        let folded = layout.without(&self.axes);
        let wide = |&input: &Value| distributed.func.ty(input).dtype.bytes() >= 4;
        reduced_warps(layout, &folded) & distributed.cta_bits() != 0
            && layout.replicated_warps() == 0
            && self.combination.inputs.iter().all(wide)
    }
}

impl Scratch for Scan {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let layout = &distributed.layouts[&self.combination.inputs[0]];
        let bytes = |segment: &Segment| match segment {
            Segment::Warps { first, warps } => {
                let totals = WarpTotals::new(layout, self.axis, warps);
                let groups = group_count(self, layout, *first);
                let inputs = self.combination.inputs.iter();
                inputs.map(|&input| totals.bytes(distributed.func.ty(input).dtype, groups)).sum()
            }
            Segment::Registers { .. } | Segment::Lanes { .. } | Segment::Blocks { .. } => 0,
        };
        layout.segments(self.axis).iter().map(bytes).max().unwrap_or(0)
    }
}

/// Bytes of a tile or a scalar in shared memory.
fn tile_bytes(distributed: &Distributed, value: Value) -> u32 {
    let ty = distributed.func.ty(value);
    SmemTile::of_tile_or_scalar(&ty.shape, ty.dtype).elements * ty.dtype.bytes()
}

impl Scratch for Index {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let bits = CoordBits::all(&distributed.layouts[&self.value], self.axis);
        if bits.warps == 0 { 0 } else { tile_bytes(distributed, op.results[0]) }
    }
}

impl Scratch for Exchange {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let bits = CoordBits::new(&distributed.layouts[&op.results[0]], self.axis, self.mask);
        if bits.warps == 0 { 0 } else { tile_bytes(distributed, self.value) }
    }
}

impl Scratch for Gather {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        match warp_gather(distributed, self, op.results[0]) {
            Some(_) => 0,
            None => tile_bytes(distributed, self.value),
        }
    }
}

impl Scratch for Histogram {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        distributed.func.ty(op.results[0]).shape.elements() as u32 * 4
    }
}

/// Warp bits that do not select elements of an atomic operation.
pub fn idle_warps(distributed: &Distributed, op: &Op) -> u32 {
    match distributed.layouts.get(&op.results[0]) {
        Some(layout) => layout.replicated_warps(),
        None => distributed.warp_bits(),
    }
}

/// One thread reads the clock for all warps, and one block the multiprocessor for all of a cluster.
impl Scratch for ReadRegister {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let among = match self.register {
            SpecialRegister::SmId => distributed.cta_bits(),
            SpecialRegister::GlobalTimer => distributed.warp_bits(),
        };
        if among == 0 || distributed.func.body.uses(op.results[0]) == 0 {
            return 0;
        }
        32 * distributed.num_warps * self.register.dtype().bytes()
    }
}

impl Scratch for Atomic {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let result = op.results[0];
        if idle_warps(distributed, op) == 0 || distributed.func.body.uses(result) == 0 {
            return 0;
        }
        let registers = distributed.layouts.get(&result).map_or(1, Layout::register_count) as u32;
        registers * 32 * distributed.num_warps * distributed.func.ty(result).dtype.bytes()
    }
}

impl Scratch for Dot {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        ScratchOperands::new(distributed, self, op).bytes
    }
}

impl Scratch for For {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        invariant_operand::scratch(distributed, &self.body)
    }
}

impl Scratch for StageOperands {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let bytes = |staged: &StagedValue| {
            let ty = distributed.func.ty(staged.value);
            (staged_tile(ty, staged).elements * ty.dtype.bytes()).next_multiple_of(16)
        };
        self.staged.iter().map(bytes).sum()
    }
}
