//! Barriers of a program's warps.

use crate::gpu::emit::dsmem;
use crate::gpu::emit::smem_alloc::Interval;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

impl Gpu<'_> {
    /// Waits for the other warps of this program, and makes what they wrote visible.
    pub(super) fn barrier(&mut self, b: &mut Builder) {
        let num_warps = self.plan.distributed.num_warps;
        if self.plan.blocks() > 1 {
            dsmem::barrier(b);
        } else if num_warps == 1 {
            warp_barrier(b);
        } else if self.plan.pipeline.is_some() {
            barrier_of(b, 1, num_warps);
        } else if self.plan.programs == 1 {
            block_barrier(b);
        } else {
            // A barrier whose number is not a constant would reserve all sixteen for the block.
            for group in 0..self.plan.programs {
                let number = b.int(Ty::I32, i64::from(group));
                let own = b.icmp(IntPredicate::Eq, self.program_in_block, number);
                b.if_then(own, |b| barrier_of(b, group + 1, num_warps));
            }
        }
        self.membar.after_barrier();
    }

    /// Stands before a write to a part of shared memory: waits while others may still need what lies there.
    pub(super) fn before_write(&mut self, b: &mut Builder, place: Interval) {
        if self.membar.write(place) {
            self.barrier(b);
            self.membar.write(place);
        }
    }
}

/// Makes barrier objects in shared memory, so many bytes behind `base`, each with the arrivals that end a phase. By one
/// thread, before the others use them.
pub(super) fn init_mbarriers(b: &mut Builder, base: Val, signals: impl IntoIterator<Item = (u32, u32)>) {
    for (place, arrivals) in signals {
        let signal = b.offset_bytes(base, place as i32);
        let text = format!("mbarrier.init.shared::cta.b64 [$0], {arrivals};");
        statement(b, &text, "l,~{memory}", &[signal], &[]);
    }
    statement(b, "fence.mbarrier_init.release.cluster;", "~{memory}", &[], &[]);
}

/// Waits for the other lanes of this warp: what they read and wrote before is done.
pub(super) fn warp_barrier(b: &mut Builder) {
    let all = b.int(Ty::I32, -1);
    b.effect("nvvm.bar.warp.sync", &[all]);
}

/// The barrier of all of a block's threads.
pub(super) fn block_barrier(b: &mut Builder) {
    b.effect_with("nvvm.barrier", &[], &[("operandSegmentSizes", "array<i32: 0, 0, 0>")]);
}

/// One of the block's numbered barriers, of so many warps.
fn barrier_of(b: &mut Builder, number: u32, num_warps: u32) {
    let operands = [number, num_warps * 32].map(|number| b.int(Ty::I32, i64::from(number)));
    b.effect_with("nvvm.barrier", &operands, &[("operandSegmentSizes", "array<i32: 1, 1, 0>")]);
}
