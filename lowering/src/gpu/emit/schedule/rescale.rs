//! Rescaling of the rows of an accumulator.

use std::collections::HashSet;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::{FloatPredicate, Val};
use crate::mlir::types::Ty;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::{RescaleRows, Scalar};

/// Fewest registers of an accumulator for each scale, where it is tested first whether all scales are 1.
const MIN_ELEMENTS_PER_SCALE: usize = 16;

impl Gpu<'_> {
    /// The scales of the rows of a tile, each once; `None` for one scale for all, and for many.
    pub(in crate::gpu::emit) fn row_scales(&self, [tile, scales]: [Value; 2]) -> Option<Vec<Val>> {
        if self.register_type(tile) != Ty::F32 {
            return None;
        }
        let mut known = HashSet::new();
        let scales = self.registers(scales);
        let scales: Vec<Val> = scales.iter().copied().filter(|scale| known.insert(scale.id())).collect();
        let fits = scales.len() > 1 && scales.len() * MIN_ELEMENTS_PER_SCALE <= self.registers(tile).len();
        fits.then_some(scales)
    }

    /// Emits a multiplication of a tile's rows by these scales. A warp whose scales are all 1 skips it: most of the time the running
    /// maximum does not change.
    pub(in crate::gpu::emit) fn rescale_rows(
        &mut self,
        b: &mut Builder,
        (tile, scales): (Value, Vec<Val>),
        result: Value,
        multiply: impl FnOnce(&mut Self, &mut Builder),
    ) {
        let tile = self.registers(tile).to_vec();
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
            self.scope(|gpu| multiply(gpu, b));
            self.flatten(&[result])
        };
        let changed = b.if_else(any, &types, scaled, |_| tile);
        self.define(result, changed);
    }
}

impl GpuEmit for RescaleRows {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let product = Scalar::named("mul", vec![self.tile, self.scales]);
        match gpu.row_scales([self.tile, self.scales]) {
            Some(scales) => {
                let multiply = |gpu: &mut Gpu, b: &mut Builder| product.emit(gpu, b, op);
                gpu.rescale_rows(b, (self.tile, scales), op.results[0], multiply);
            }
            None => product.emit(gpu, b, op),
        }
    }
}
