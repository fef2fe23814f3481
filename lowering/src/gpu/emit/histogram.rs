//! Histograms: bins in shared memory, with an atomic addition for each element.

use tile_ir::ir::Op;
use tile_ir::ops::Histogram;
use tile_ir::support::dtype::DType;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::store;
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::smem_tile::SmemTile;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

impl GpuEmit for Histogram {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let counts = gpu.layout(op.results[0]).clone();
        let base = gpu.scratch_address(b, op.results[0]);
        let zero = b.int(Ty::I32, 0);
        let starts: Vec<Val> = (0..counts.register_count())
            .map(|register| {
                let index = gpu.coord(b, &counts, register, 0);
                b.offset(base, index, 4)
            })
            .collect();
        let writer = gpu.writer(b, Some(&counts));
        let clear = |b: &mut Builder| {
            for &start in &starts {
                gpu.for_each_cta(b, [start], |b, [bin]| store(b, &[zero], DType::I32, bin, 4));
            }
        };
        b.guarded(writer, clear);
        gpu.barrier(b);
        count_in_shared(self, gpu, b, base, counts.shape()[0]);
        gpu.barrier(b);
        let tile = SmemTile::dense(counts.shape());
        let dtype = gpu.func.ty(op.results[0]).dtype;
        let registers = gpu.read_smem_tile(b, op, &SmemTileAddress { tile, dtype, address: base });
        gpu.define(op.results[0], registers);
    }
}

/// Adds one for each element, in one of the threads that hold it.
fn count_in_shared(histogram: &Histogram, gpu: &mut Gpu, b: &mut Builder, base: Val, bins: u32) {
    let layout = gpu.layout(histogram.value).clone();
    let writer = gpu.writer(b, Some(&layout));
    let (one, bins) = (b.int(Ty::I32, 1), b.int(Ty::I32, i64::from(bins)));
    for &bin in gpu.registers(histogram.value).iter() {
        let inside = b.icmp(IntPredicate::Ult, bin, bins);
        let counts = writer.map_or(inside, |writer| b.and(inside, writer));
        b.if_then(counts, |b| {
            let pointer = b.offset(base, bin, 4);
            let space = if gpu.plan.blocks() == 1 { "shared" } else { "shared::cluster" };
            let text = format!("red.{space}.add.u32 [$0], $1;");
            gpu.for_each_cta(b, [pointer], |b, [pointer]| {
                statement(b, &text, "l,r", &[pointer, one], &[]);
            });
        });
    }
}
