//! Operands that are written to shared memory before a loop.

use tile_ir::ir::Op;
use tile_ir::ops::StageOperands;

use crate::gpu::emit::dot::{Builder, Gpu, StagedOperandTile};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::layout::scratch_operands::staged_tile;

impl GpuEmit for StageOperands {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let mut address = gpu.scratch_address(b, op.results[0]);
        for (staged, &result) in self.staged.iter().zip(&op.results) {
            let ty = gpu.func.ty(staged.value);
            let tile = staged_tile(ty, staged);
            gpu.write_smem_tile(b, staged.value, &tile, address);
            let bytes = (tile.elements * ty.dtype.bytes()).next_multiple_of(16);
            gpu.smem.staged_operands.insert(result, StagedOperandTile { tile, address });
            address = b.offset_bytes(address, bytes as i32);
        }
        gpu.barrier(b);
    }
}
