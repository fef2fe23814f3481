//! Operands that are written to shared memory before a loop.

use tile_ir::ir::Op;
use tile_ir::ops::StageOperands;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::scratch_operands::staged_tile;

impl GpuEmit for StageOperands {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let mut address = gpu.scratch_address(b, op.results[0]);
        for (staged, &result) in self.staged.iter().zip(&op.results) {
            let ty = gpu.func.ty(staged.value);
            let tile = staged_tile(ty, staged);
            let bytes = (tile.elements * ty.dtype.bytes()).next_multiple_of(16);
            let tile = SmemTileAddress { tile, dtype: ty.dtype, address };
            gpu.write_smem_tile(b, staged.value, &tile);
            gpu.smem.staged_operands.insert(result, tile);
            address = b.offset_bytes(address, bytes as i32);
        }
        gpu.barrier(b);
    }
}
