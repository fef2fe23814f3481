//! Which program a block runs.

use crate::gpu::emit::schedule::CurrentWorkTile;
use crate::gpu::emit::threads::ThreadIndices;
use crate::gpu::emit::{GpuPlan, dsmem};
use crate::mlir::builder::{Builder, Val};
use crate::mlir::types::Ty;

/// The program that this thread's block runs: the grid's, or the work tile that a persistent block is at.
pub(super) struct RunningProgram {
    /// Its coordinates in the grid.
    pub coord: [Val; 3],
    /// What else the producer knows of it.
    pub work_tile: Option<CurrentWorkTile>,
    /// Whether the launch has clusters of two blocks, for kernels with multicast loads.
    pub clustered: Option<Val>,
}

impl RunningProgram {
    /// The program of the block's place in the grid. A cluster of blocks runs one, whose warps are counted over all blocks.
    pub fn of_block(plan: &GpuPlan, b: &mut Builder, thread: &mut ThreadIndices) -> RunningProgram {
        let axes = ["x", "y", "z"].map(|axis| format!("nvvm.read.ptx.sreg.ctaid.{axis}"));
        let mut coord =
            [b.op(&axes[0], &[], Ty::I32), b.op(&axes[1], &[], Ty::I32), b.op(&axes[2], &[], Ty::I32)];
        if plan.programs > 1 {
            let count = b.int(Ty::I32, i64::from(plan.programs));
            let first = b.mul_nsw(coord[0], count);
            coord[0] = b.add_nsw(first, thread.program_in_block);
        }
        thread.warp = dsmem::warp_of(plan, b, thread.block_warp, &mut coord[0]);
        RunningProgram { coord, work_tile: None, clustered: None }
    }
}
