//! Dots of warpgroups that run asynchronously, and waits for them.

use crate::gpu::emit::dot::wgmma::{OperandWords, WgmmaIssue, WgmmaSource, wait_all};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::warpgroup::{WGMMA_K_BYTES, WarpGroupTiling};
use crate::mlir::builder::Val;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::{AfterIssue, WgmmaOperandA};
use tile_ir::ops::{DotWait, WarpgroupPosition, Wgmma};

/// 32-bit words of a fragment of operand A.
const FRAGMENT_WORDS: usize = 4;

impl Gpu<'_> {
    /// Words of an operand A in lists of each set of rows and each step.
    fn operand_words(&self, value: Value) -> OperandWords {
        let (words, ty) = (self.registers(value), self.func.ty(value));
        let steps = ty.shape[1] * ty.dtype.bytes() / WGMMA_K_BYTES;
        let fragments: Vec<Vec<Val>> = words.chunks(FRAGMENT_WORDS).map(<[Val]>::to_vec).collect();
        fragments.chunks(steps as usize).map(<[Vec<Val>]>::to_vec).collect()
    }
}

impl GpuEmit for WarpgroupPosition {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let tiling = WarpGroupTiling::new(self.rows, gpu.plan.schedule.distributed.num_warps);
        let position = gpu.warpgroup_position(b, tiling);
        gpu.define_all(&op.results, &position);
    }
}

impl GpuEmit for Wgmma {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let result = op.results[0];
        let a = match self.a {
            WgmmaOperandA::Regs(value) => WgmmaSource::Regs(value),
            WgmmaOperandA::Words(value) => WgmmaSource::Words(gpu.operand_words(value)),
            WgmmaOperandA::Smem(staged) => WgmmaSource::Smem(gpu.staged_operand(b, staged)),
        };
        let issue = WgmmaIssue {
            a,
            b: gpu.staged_operand(b, self.b),
            acc: self.acc,
            again: self.accumulates.map(|condition| gpu.scalar(condition)),
            k: self.k,
            result,
            transposed: self.transposed,
            then: self.then,
        };
        let position = match self.position[..] {
            [row, column] => [row, column].map(|along| gpu.scalar(along)),
            _ => gpu.warpgroup_position(b, issue.tiling(gpu)),
        };
        let issued = issue.issue(gpu, b, position);
        issued.define(gpu, result);
        if self.then == AfterIssue::Continue {
            gpu.in_flight.dots.insert(result, issued);
        }
    }
}

impl GpuEmit for DotWait {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (dot, unread) = (self.values[0], &self.values[1..]);
        match gpu.in_flight.dots.remove(&dot) {
            // What the dot reads stays in its registers until then.
            Some(mut issued) if self.issued_if.is_none() => {
                let unread = gpu.flatten(unread);
                let unread = issued.wait_group(b, self.pending, &unread);
                issued.define(gpu, op.results[0]);
                gpu.define_all(&op.results[1..], &unread);
            }
            _ => {
                let values = gpu.flatten(&self.values);
                let issued = self.issued_if.map(|condition| gpu.scalar(condition));
                let waited = wait_all(b, &values, self.pending, issued);
                gpu.define_all(&op.results, &waited);
            }
        }
    }
}
