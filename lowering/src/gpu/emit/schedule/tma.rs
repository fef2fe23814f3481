//! Loads by TMA.

use super::cluster::{load_box, multicast_box};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use crate::gpu::opt::select_wgmma::MAX_TMA_EXTENT;
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::types::{Elem, Ty};
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::{Stage, WaitedStores};
use tile_ir::ops::{StoreWait, TmaLoad};

/// The load of a tile: by which tensor map, of how many columns, from where and to where.
pub(in crate::gpu::emit) struct TmaIssue {
    pub map: usize,
    pub columns: u32,
    /// The coordinates of its first element, outermost first.
    pub offsets: Vec<Val>,
    pub full: Val,
    pub to: Val,
    /// Whether both programs of a cluster take it, for a load that may be multicast.
    pub shared: Option<Val>,
}

impl Gpu<'_> {
    /// Issues the loads of a tile's boxes; the other block of the cluster may share them.
    pub(in crate::gpu::emit) fn issue_tma_load(&mut self, b: &mut Builder, load: &TmaIssue) {
        let map = &self.plan.tensor_maps()[load.map];
        let chunk_columns = *map.block.last().expect("a view has an axis");
        let rows = map.block[map.block.len() - 2];
        let mut boxes = vec![];
        for chunk in 0..load.columns / chunk_columns {
            let place = b.offset_bytes(load.to, (chunk * rows * SWIZZLE_ROW_BYTES) as i32);
            let mut at = vec![place, self.entry.tensor_maps[load.map], load.full];
            at.extend(load.offsets.iter().rev());
            let distance = b.int(Ty::I32, i64::from(chunk * chunk_columns));
            at[3] = b.add(at[3], distance);
            boxes.push(at);
        }
        let (Some(shared), Some(clustered)) = (load.shared, self.program.clustered) else {
            boxes.iter().for_each(|at| load_box(b, at));
            return;
        };
        b.branch(clustered, &[], |b, arm| {
            for at in &boxes {
                match arm {
                    BranchArm::Then => multicast_box(b, shared, at, [rows, SWIZZLE_ROW_BYTES]),
                    BranchArm::Else => load_box(b, at),
                }
            }
            vec![]
        });
    }

    /// An offset in a view as a TMA coordinate. An offset beyond 32 bits is outside of the view, and so is what it is
    /// clamped to, which keeps its divisibility.
    pub(in crate::gpu::emit) fn tma_coordinate(&self, b: &mut Builder, offset: Value) -> Val {
        let (low, high) = self.info(offset).range;
        let fits = low >= i32::MIN.into() && high <= i32::MAX.into();
        let offset = self.scalar(offset);
        if fits {
            return b.trunc(offset, Elem::I32);
        }
        let [low_bound, high_bound] = [i32::MIN.into(), MAX_TMA_EXTENT].map(|limit| b.int(Ty::I64, limit));
        let offset = b.op("llvm.intr.smax", &[offset, low_bound], Ty::I64);
        let offset = b.op("llvm.intr.smin", &[offset, high_bound], Ty::I64);
        b.trunc(offset, Elem::I32)
    }
}

impl GpuEmit for TmaLoad {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let offsets = self.tile.offsets.iter().map(|&offset| gpu.tma_coordinate(b, offset)).collect();
        let full = gpu.stage_address(b, Stage { buffer: self.signal, pipe: self.to.pipe });
        let to = gpu.stage_address(b, self.to);
        let columns = *self.tile.extents.last().expect("a view has an axis");
        let shared = self.shared.map(|shared| gpu.scalar(shared));
        gpu.issue_tma_load(b, &TmaIssue { map: self.map, columns, offsets, full, to, shared });
    }
}

impl GpuEmit for StoreWait {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        let text = match self.until {
            WaitedStores::Read => "cp.async.bulk.wait_group.read 0;",
            WaitedStores::Written => "cp.async.bulk.wait_group 0;",
        };
        statement(b, text, "~{memory}", &[], &[]);
    }
}
