//! Emission of special registers. Where threads of a program may read different values, the first one broadcasts its own.

use tile_ir::ir::Op;
use tile_ir::ops::{ReadRegister, SpecialRegister};

use crate::gpu::emit::atomic::broadcast;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::mlir::types::Ty;

impl GpuEmit for ReadRegister {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        // Accesses of memory stay on their side of a clock.
        let (text, constraints, ty) = match self.register {
            SpecialRegister::SmId => ("mov.u32 $0, %smid;", "=r", Ty::I32),
            SpecialRegister::GlobalTimer => ("mov.u64 $0, %globaltimer;", "=l,~{memory}", Ty::I64),
        };
        let mut values = statement(b, text, constraints, &[], &[ty]);
        let differs = match self.register {
            SpecialRegister::SmId => gpu.plan.schedule.distributed.cta_bits() != 0,
            SpecialRegister::GlobalTimer => true,
        };
        if differs && gpu.func.body.uses(op.results[0]) > 0 {
            values = broadcast(gpu, b, op, values);
        }
        gpu.define(op.results[0], values);
    }
}
