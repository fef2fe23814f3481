//! What is emitted: a finished schedule, and how its programs share blocks.

use std::collections::HashSet;

use tile_ir::analysis::program_length::{LongestAxis, longest_axis};
use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Kind, WarpSpecialize};

use crate::gpu::emit::operation::emitter;
use crate::gpu::schedule::held_operands::held_operands;
use crate::gpu::schedule::scratch::allows_any_warp_count;
use crate::gpu::schedule::{Schedule, TensorMap};
use crate::mlir::session::Limit;

/// A specialization of a kernel, ready to be emitted.
#[derive(Debug)]
pub struct GpuPlan {
    pub schedule: Schedule,
    /// The function before it was scheduled.
    pub laid_out: Func,
    /// Programs that one block runs.
    pub programs: u32,
    threads: u32,
    /// The register limit for ptxas.
    pub limit: Option<Limit>,
    /// The grid axis for longest-processing-time-first tile order.
    pub(super) longest_axis: Option<LongestAxis>,
    /// Dots whose operand A is made again in each iteration.
    pub(super) held_operands: HashSet<Value>,
}

/// How many programs and threads a block has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockShape {
    pub programs: u32,
    pub threads: u32,
}

impl GpuPlan {
    /// A plan of a finished schedule, of a function that was `laid_out` before.
    pub fn new(schedule: Schedule, laid_out: Func, block: BlockShape, limit: Option<Limit>) -> GpuPlan {
        let longest_axis = longest_axis(&laid_out);
        let held_operands = held_operands(&schedule.distributed.func);
        let BlockShape { programs, threads } = block;
        GpuPlan { schedule, laid_out, programs, threads, limit, longest_axis, held_operands }
    }

    /// Whether GPUs of other capabilities get other code.
    pub fn differs_by_capability(&self) -> bool {
        let func = &self.laid_out;
        let mut differs = false;
        func.body.walk(&mut |op| differs |= emitter(&op.kind).differs_by_capability(func, op));
        differs
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The tensor maps that it takes behind the grid's extents.
    pub fn tensor_maps(&self) -> &[TensorMap] {
        &self.schedule.tensor_maps
    }

    /// Whether a block runs several programs, one after the other.
    pub fn persistent(&self) -> bool {
        self.is_warp_specialized()
    }

    /// Whether warps have roles.
    pub(super) fn is_warp_specialized(&self) -> bool {
        self.roles().is_some()
    }

    /// The roles of warps in its schedule.
    pub(super) fn roles(&self) -> Option<&WarpSpecialize> {
        let ops = &self.schedule.distributed.func.body.ops;
        ops.iter().find_map(|op| if let Kind::WarpSpecialize(roles) = &op.kind { Some(roles) } else { None })
    }

    /// Whether the tile scheduler takes them from a counter, whose address stands behind the grid's extents.
    pub fn is_dynamic_persistent(&self) -> bool {
        let is_dynamic = |op: &Op| matches!(&op.kind, Kind::WorkTiles(tiles) if tiles.dynamic);
        self.roles().is_some_and(|roles| roles.producer.ops.iter().any(is_dynamic))
    }

    /// Whether it waits for the kernel before it, on GPUs that let it start earlier.
    pub fn uses_pdl(&self) -> bool {
        self.schedule.setup.uses_pdl
    }

    /// Whether its warp count may be no power of two.
    pub fn allows_any_warp_count(&self) -> bool {
        allows_any_warp_count(&self.schedule.distributed)
    }

    /// Blocks that run one program.
    pub fn blocks(&self) -> u32 {
        self.schedule.distributed.num_ctas
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.schedule.smem.bytes() * self.programs
    }
}
