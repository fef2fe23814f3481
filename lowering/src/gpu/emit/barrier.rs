//! Emission of barriers between a program's warps, and of `mbarrier` initialization.

use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::schedule::named_barrier::NamedBarrier;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

impl Gpu<'_> {
    /// Waits for the other warps of this program, and makes what they wrote visible.
    pub(super) fn barrier(&self, b: &mut Builder) {
        let num_warps = self.plan.schedule.distributed.num_warps;
        if self.plan.blocks() > 1 {
            cluster_barrier(b);
        } else if num_warps == 1 {
            warp_barrier(b);
        } else if self.plan.is_warp_specialized() {
            named_barrier(b, NamedBarrier::Consumers, num_warps);
        } else {
            block_barrier(b);
        }
    }
}

/// Initializes `mbarrier` objects in shared memory, each given by its offset from `base` and the arrivals that complete a
/// phase. One thread runs this, before the others use them.
pub(super) fn init_mbarriers(b: &mut Builder, base: Val, mbarriers: impl IntoIterator<Item = (u32, u32)>) {
    for (offset, arrivals) in mbarriers {
        let mbarrier = b.offset_bytes(base, offset as i32);
        let text = format!("mbarrier.init.shared::cta.b64 [$0], {arrivals};");
        statement(b, &text, "l,~{memory}", &[mbarrier], &[]);
    }
    statement(b, "fence.mbarrier_init.release.cluster;", "~{memory}", &[], &[]);
}

/// Waits for the other lanes of this warp: their earlier accesses are done.
pub(super) fn warp_barrier(b: &mut Builder) {
    let all = b.int(Ty::I32, -1);
    b.effect("nvvm.bar.warp.sync", &[all]);
}

/// The barrier of all of a block's threads.
pub(super) fn block_barrier(b: &mut Builder) {
    b.effect_with("nvvm.barrier", &[], &[("operandSegmentSizes", "array<i32: 0, 0, 0>")]);
}

/// One of the block's named barriers, for `num_warps` warps.
fn named_barrier(b: &mut Builder, barrier: NamedBarrier, num_warps: u32) {
    let operands = [barrier.number(), num_warps * 32].map(|operand| b.int(Ty::I32, i64::from(operand)));
    b.effect_with("nvvm.barrier", &operands, &[("operandSegmentSizes", "array<i32: 1, 1, 0>")]);
}

/// Waits for all threads of the cluster, and makes what they wrote visible.
fn cluster_barrier(b: &mut Builder) {
    b.effect_with("nvvm.cluster.arrive", &[], &[("aligned", "unit")]);
    b.effect_with("nvvm.cluster.wait", &[], &[("aligned", "unit")]);
}
