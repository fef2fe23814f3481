//! Rescaling of the rows of an accumulator.

use std::collections::HashSet;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::FloatPredicate;
use crate::mlir::types::Ty;
use tile_ir::ir::Op;
use tile_ir::ops::{RescaleRows, Scalar};

impl GpuEmit for RescaleRows {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let tile = gpu.registers(self.tile).to_vec();
        // The scales of the rows, each once.
        let mut known = HashSet::new();
        let scales = gpu.registers(self.scales);
        let scales = scales.iter().copied().filter(|scale| known.insert(scale.id()));
        let one = b.float(Ty::F32, 1.0);
        let mut rescales = b.int(Ty::I1, 0);
        for scale in scales {
            let differs = b.fcmp(FloatPredicate::Une, scale, one);
            rescales = b.or(rescales, differs);
        }
        let lanes = statement(b, "vote.sync.ballot.b32 $0, $1, -1;", "=r,b", &[rescales], &[Ty::I32])[0];
        let zero = b.int(Ty::I32, 0);
        let any = b.icmp(IntPredicate::Ne, lanes, zero);
        let types = vec![Ty::F32; tile.len()];
        let scaled = |b: &mut Builder| {
            let product = Scalar::named("mul", vec![self.tile, self.scales]);
            gpu.scope(|gpu| product.emit(gpu, b, op));
            gpu.flatten(&op.results)
        };
        let changed = b.if_else(any, &types, scaled, |_| tile);
        gpu.define(op.results[0], changed);
    }
}
