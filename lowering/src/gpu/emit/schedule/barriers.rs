//! `mbarrier` objects, and the order in which warpgroups issue their dots.

use crate::gpu::emit::barrier::{block_barrier, init_mbarriers, warp_barrier};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::pdl::INSTRUCTION_PREFIX;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::gpu::schedule::MBARRIER_BYTES;
use crate::gpu::schedule::named_barrier::NamedBarrier;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use tile_ir::ir::{Op, Storage, Value};
use tile_ir::ops::schedule::{InitVisibility, MmaOrderStep};
use tile_ir::ops::{
    Barrier, ClusterArrive, ClusterWait, ExpectTx, MbarArrive, MbarInit, MbarWait, MmaOrder, PdlWait,
    ProxyFence, WarpBarrier,
};

/// A list of `mbarrier` objects that is initialized: so many arrivals complete a phase.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct MbarrierList {
    pub start: u32,
    pub count: u32,
    pub arrivals: u32,
}

impl MbarrierList {
    /// The address and the arrivals of each.
    pub fn each(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count).map(move |index| (self.start + index * MBARRIER_BYTES, self.arrivals))
    }
}

/// Lets TMA and `wgmma` see what this thread has written to shared memory.
pub(in crate::gpu::emit) fn proxy_fence(b: &mut Builder) {
    statement(b, "fence.proxy.async.shared::cta;", "~{memory}", &[], &[]);
}

impl Gpu<'_> {
    /// Waits until a phase is complete.
    pub(in crate::gpu::emit) fn wait_phase(&self, b: &mut Builder, barrier: Val, phase: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,r,~{memory}", &[barrier, phase], &[]);
    }

    /// One thread of each warp arrives.
    pub(in crate::gpu::emit) fn arrive(&self, b: &mut Builder, barrier: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.thread.lane, zero);
        let text = "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];";
        statement(b, text, "l,b,~{memory}", &[barrier, first], &[]);
    }

    /// The thread arrives at a full barrier and expects so many bytes there.
    pub(in crate::gpu::emit) fn expect_tx(&self, b: &mut Builder, full: Val, bytes: u32) {
        let text = format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {bytes};");
        statement(b, &text, "l,~{memory}", &[full], &[]);
    }

    /// A step in the order of dots: warpgroups take turns (ping-pong).
    pub(in crate::gpu::emit) fn order_mma(&mut self, b: &mut Builder, step: MmaOrderStep) {
        let warpgroups = self.plan.schedule.distributed.num_warps / WARPGROUP_WARPS;
        let [zero, one, last, first] = [0, 1, warpgroups - 1, NamedBarrier::MmaOrder(0).number()]
            .map(|index| b.int(Ty::I32, i64::from(index)));
        let own = self.warpgroup(b);
        let is_last = b.icmp(IntPredicate::Eq, own, last);
        let after = b.add(own, one);
        let next = b.select(is_last, zero, after);
        let (warpgroup, word, condition) = match step {
            MmaOrderStep::Init => (next, "arrive", Some(is_last)),
            MmaOrderStep::Wait => (own, "sync", None),
            MmaOrderStep::Arrive => (next, "arrive", None),
        };
        let index = b.add(warpgroup, first);
        let text = format!("bar.{word} $0, {};", 2 * WARPGROUP_WARPS * 32);
        b.guarded(condition, |b| {
            statement(b, &text, "r,~{memory}", &[index], &[]);
        });
    }

    /// One thread prefetches tensor maps and initializes barriers, those of a cluster by whether there is one.
    pub(in crate::gpu::emit) fn init_barriers(
        &mut self,
        b: &mut Builder,
        maps: &[Val],
        clustered: &[MbarrierList],
        others: &[MbarrierList],
    ) {
        let base = self.smem_base();
        if !clustered.is_empty() {
            self.read_cluster_size(b);
        }
        let all = self.plan.threads() / 32;
        let first = self.first_of(b, 31, all.next_power_of_two() - 1);
        b.guarded(first, |b| {
            for &map in maps {
                statement(b, "prefetch.tensormap [$0];", "l,~{memory}", &[map], &[]);
            }
            for &list in clustered {
                self.init_cluster_barriers(b, list);
            }
            init_mbarriers(b, base, others.iter().flat_map(|list| list.each()));
        });
    }

    /// A list of barriers as it is initialized, and whether blocks of a cluster arrive there.
    fn mbarrier_list(&self, barrier: Value) -> (MbarrierList, bool) {
        let Storage::Mbarrier { stages, arrivals, cluster } = self.func.ty(barrier).storage else {
            unreachable!("the verifier has seen barriers");
        };
        (MbarrierList { start: self.buffer(barrier).start, count: stages, arrivals }, cluster)
    }
}

impl GpuEmit for MbarInit {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let maps: Vec<Val> = self.prefetched.iter().map(|&map| gpu.entry.tensor_maps[map]).collect();
        let lists = self.barriers.iter().map(|&barrier| gpu.mbarrier_list(barrier));
        let (clustered, others): (Vec<_>, Vec<_>) = lists.partition(|&(_, cluster)| cluster);
        let [clustered, others] =
            [clustered, others].map(|lists| lists.into_iter().map(|(list, _)| list).collect::<Vec<_>>());
        gpu.init_barriers(b, &maps, &clustered, &others);
        if self.visible == InitVisibility::Init {
            block_barrier(b);
            gpu.sync_cluster(b);
        }
    }
}

impl GpuEmit for MbarWait {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let barrier = gpu.stage_address(b, self.barrier);
        gpu.wait_phase(b, barrier, gpu.pipe(self.barrier.pipe).phase);
    }
}

impl GpuEmit for MbarArrive {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let (_, cluster) = gpu.mbarrier_list(self.barrier.buffer);
        let condition = self.only_if.map(|condition| gpu.scalar(condition));
        b.guarded(condition, |b| {
            let barrier = gpu.stage_address(b, self.barrier);
            gpu.arrive(b, barrier);
            if cluster {
                gpu.arrive_at_peer(b, barrier);
            }
        });
    }
}

impl GpuEmit for ExpectTx {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let barrier = gpu.stage_address(b, self.barrier);
        gpu.expect_tx(b, barrier, self.bytes);
    }
}

impl GpuEmit for WarpBarrier {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        warp_barrier(b);
    }
}

impl GpuEmit for ProxyFence {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        proxy_fence(b);
    }
}

impl GpuEmit for MmaOrder {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        gpu.order_mma(b, self.step);
    }
}

impl GpuEmit for PdlWait {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        statement(b, &format!("{INSTRUCTION_PREFIX}wait;"), "~{memory}", &[], &[]);
    }
}

impl GpuEmit for Barrier {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        gpu.barrier(b);
    }
}

impl GpuEmit for ClusterArrive {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        b.effect_with("nvvm.cluster.arrive.relaxed", &[], &[("aligned", "unit")]);
    }
}

impl GpuEmit for ClusterWait {
    fn emit(&self, _: &mut Gpu, b: &mut Builder, _: &Op) {
        b.effect_with("nvvm.cluster.wait", &[], &[("aligned", "unit")]);
    }
}
