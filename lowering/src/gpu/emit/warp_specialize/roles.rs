//! The roles of warps: consumer warpgroups, and one more warpgroup of which one thread of one warp is the producer.

use tile_ir::ops::{Kind, OperandA};

use super::consumer::MmaOrder;
use super::tile_scheduler::WORK_TILE_STAGES;
use super::{
    MANY_PRELOADED_WORDS, MBARRIER_BYTES, PRODUCER_REGISTERS, REGISTER_STEP, TmaPipeline, registers_of_each,
};
use crate::gpu::emit::barrier::{block_barrier, init_mbarriers};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::mlir::Limit;
use crate::mlir::builder::BranchArm;
use crate::mlir::types::Ty;

/// Registers of a consumer thread after `setmaxnreg`, where a producer thread keeps `producer_registers`. All threads
/// start with the same number, as many as fit or as the user allows, and their total does not grow. `None` where one
/// warpgroup has enough, or there is nothing to give.
fn consumer_registers(warpgroups: u32, limit: Option<u32>, producer_registers: u32) -> Option<u32> {
    let all = warpgroups + 1;
    let fitting = registers_of_each(all * WARPGROUP_WARPS * 32);
    let first = fitting.min(limit.unwrap_or(fitting)) / REGISTER_STEP * REGISTER_STEP;
    let shared = |given: u32| (first + given / warpgroups) / REGISTER_STEP * REGISTER_STEP;
    first.checked_sub(producer_registers).filter(|_| warpgroups > 1).map(shared)
}

/// Changes the registers of each thread of this warpgroup.
fn set_max_registers(b: &mut Builder, change: &str, registers: u32) {
    statement(b, &format!("setmaxnreg.{change}.sync.aligned.u32 {registers};"), "~{memory}", &[], &[]);
}

/// The most tensor maps to prefetch: the addresses of four cost attention, a long kernel, registers that it does not
/// have.
const MAX_PREFETCHED_MAPS: usize = 3;

impl Gpu<'_> {
    /// Runs `consume` in the consumer warpgroups, and the producer in the warpgroup behind them.
    pub(in crate::gpu::emit) fn specialize_warps(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        consume: impl FnOnce(&mut Self, &mut Builder),
    ) {
        self.init_barriers(b, pipeline);
        self.pdl_wait(b);
        let warp = self.uniform(b, self.block_warp);
        let num_warps = self.plan.distributed.num_warps;
        let consumers = b.int(Ty::I32, i64::from(num_warps));
        let is_producer = b.icmp(IntPredicate::Uge, warp, consumers);
        let limit = self.plan.limit.and_then(Limit::registers);
        let consumers_get =
            |producer_registers| consumer_registers(num_warps / WARPGROUP_WARPS, limit, producer_registers);
        let mut producer_registers =
            PRODUCER_REGISTERS[usize::from(self.max_preloaded_words() >= MANY_PRELOADED_WORDS)];
        let registers = consumers_get(producer_registers);
        // More where consumers have no use for them.
        while registers.is_some() && consumers_get(producer_registers + REGISTER_STEP) == registers {
            producer_registers += REGISTER_STEP;
        }
        let mut consume = Some(consume);
        b.branch(is_producer, &[], |b, arm| {
            match arm {
                BranchArm::Then => {
                    registers.iter().for_each(|_| set_max_registers(b, "dec", producer_registers));
                    let is_first_warp = b.icmp(IntPredicate::Eq, warp, consumers);
                    b.if_then(is_first_warp, |b| {
                        let text =
                            "{\n.reg .pred chosen;\nelect.sync _|chosen, -1;\nselp.b32 $0, 1, 0, chosen;\n}";
                        let chosen = statement(b, text, "=r", &[], &[Ty::I32])[0];
                        let zero = b.int(Ty::I32, 0);
                        let chosen = b.icmp(IntPredicate::Ne, chosen, zero);
                        b.if_then(chosen, |b| {
                            self.scope(|gpu| {
                                gpu.schedule_work_tiles(b, pipeline);
                            });
                        });
                    });
                }
                BranchArm::Else => {
                    registers.iter().for_each(|&registers| set_max_registers(b, "inc", registers));
                    let consume = consume.take().expect("each arm is built once");
                    if self.uses_ping_pong() {
                        self.order_mma(b, MmaOrder::Init);
                    }
                    self.scope(|gpu| gpu.run_work_tiles(b, pipeline, consume));
                    self.wait_tma_store_reads(b);
                }
            }
            self.sync_cluster(b);
            vec![]
        });
    }

    /// The most words of operand A that a thread may preload.
    fn max_preloaded_words(&self) -> u32 {
        let mut most = 0;
        self.func.body.walk(&mut |op| {
            if let Kind::WarpGroupDot(dot) = &op.kind
                && let OperandA::Smem(operand) = &dot.a
                && self.plan.pipeline().find(&operand.tile).0.is_none()
            {
                let words = self.preload_word_count(operand, self.func.ty(op.results[0]).shape[0]);
                most = most.max(words.unwrap_or(0));
            }
        });
        most
    }

    /// Initializes the mbarriers, in each list the full ones followed by the empty ones, and prefetches tensor maps
    /// where they are few: the first load by one would wait for it.
    fn init_barriers(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let warps = self.plan.distributed.num_warps;
        let base = self.smem_base();
        self.read_cluster_size(b, pipeline);
        // Where each list starts, its full barriers, and the empty barriers initialized here.
        let rings = pipeline.rings.iter().map(|ring| {
            let full_count = ring.stages * ring.barrier_groups().len() as u32;
            (ring.barriers, full_count, if ring.has_multicast() { 0 } else { full_count })
        });
        let count = pipeline.resident_stages * pipeline.resident.len() as u32;
        let resident = (pipeline.resident_barriers, count, count);
        let work_tiles = (
            pipeline.work_tiles + WORK_TILE_STAGES * pipeline.work_tile_bytes(),
            WORK_TILE_STAGES,
            WORK_TILE_STAGES,
        );
        let barriers = rings.chain([resident, work_tiles]).flat_map(|(start, full_count, empty_count)| {
            let full = (0..full_count).map(move |i| (start + i * MBARRIER_BYTES, 1));
            full.chain((0..empty_count).map(move |i| (start + (full_count + i) * MBARRIER_BYTES, warps)))
        });
        let all = self.plan.threads() / 32;
        let first = self.first_of(b, 31, all.next_power_of_two() - 1);
        let maps =
            if self.tensor_maps.len() <= MAX_PREFETCHED_MAPS { self.tensor_maps.clone() } else { vec![] };
        b.guarded(first, |b| {
            for map in maps {
                statement(b, "prefetch.tensormap [$0];", "l,~{memory}", &[map], &[]);
            }
            for ring in &pipeline.rings {
                self.init_empty_barriers(b, ring, warps);
            }
            init_mbarriers(b, base, barriers);
        });
        block_barrier(b);
        self.sync_cluster(b);
    }
}
