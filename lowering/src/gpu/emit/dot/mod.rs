//! Dots: by the tensor cores of a warp (`mma`), or by FMAs of single threads.
//!
//! An operand whose registers are laid out as the instruction reads it is read from there: the result of an earlier
//! dot, say. Any other goes through shared memory, both operands with one barrier, from which fragments are read
//! shortly before their use: as matrices of 16-byte rows (`ldmatrix`) where they have such. Accumulators stay in
//! their registers.

mod fma;
mod fragment;
mod mma;
mod smem_descriptor;
mod stage_operands;
pub(super) mod wgmma;
pub(super) mod wgmma_statement;

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Dot, DotOperand, InputPrecision};

use super::{Builder, Gpu};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::gpu::layout::dot::{DotMethod, method};
use crate::gpu::layout::scratch_operands::{ScratchOperand, ScratchOperands};
use crate::mlir::builder::Val;

impl GpuEmit for Dot {
    fn differs_by_capability(&self, func: &Func, _: &Op) -> bool {
        func.ty(self.a).dtype.is_f8() || self.input != InputPrecision::Ieee
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let tiles = gpu.stage(b, self, op);
        let accs = match self.acc {
            Some(acc) => gpu.registers(acc).to_vec(),
            None => {
                let zero = b.zero(gpu.register_type(op.results[0]));
                vec![zero; gpu.register_count(op.results[0])]
            }
        };
        let dot = StagedDot { dot: self, result: op.results[0], tiles, accs };
        let accs = match method(gpu.func.ty(self.a).dtype, self.input) {
            DotMethod::Mma(shape) => dot.by_warp(gpu, b, shape),
            DotMethod::Fma => dot.by_thread(gpu, b),
        };
        gpu.define(op.results[0], accs);
    }
}

impl Gpu<'_> {
    /// Writes the operands that need it to shared memory; returns those that are there.
    fn stage(&mut self, b: &mut Builder, dot: &Dot, op: &Op) -> [Option<SmemTileAddress>; 2] {
        let ScratchOperands { staged, bytes } =
            ScratchOperands::new(&self.plan.schedule.distributed, dot, op);
        let operands = DotOperand::ALL.map(|side| {
            let value = dot.operand(side);
            let Some(ScratchOperand { start: Some(start), staging }) = &staged[side as usize] else {
                return self.smem.staged_operands.get(&value).cloned();
            };
            let place = self.scratch(op.results[0]);
            let address = b.offset_bytes(self.smem_base(), (place.start + start) as i32);
            let dtype = self.func.ty(value).dtype;
            let tile = SmemTileAddress { tile: staging.clone(), dtype, address };
            self.write_smem_tile(b, value, &tile);
            Some(tile)
        });
        if bytes > 0 {
            self.barrier(b);
        }
        operands
    }
}

/// A dot whose operands are where its threads read them, with the accumulators to add to.
struct StagedDot<'a> {
    dot: &'a Dot,
    result: Value,
    /// The operands that were written to shared memory.
    tiles: [Option<SmemTileAddress>; 2],
    accs: Vec<Val>,
}
