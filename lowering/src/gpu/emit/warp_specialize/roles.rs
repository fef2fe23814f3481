//! The roles of a kernel's warps: consumer warpgroups, and one more warpgroup of which a warp is the producer.

use super::consumer::MmaOrder;
use super::tile_scheduler::ANNOUNCED;
use super::{COPYING_REGISTERS, MANY_HELD, MBARRIER_BYTES, REGISTER_STEP, TmaPipeline, registers_of_each};
use crate::gpu::emit::barrier::{block_barrier, init_mbarriers};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::mlir::Limit;
use crate::mlir::builder::BranchArm;
use crate::mlir::types::Ty;
use crate::ops::{Kind, OperandA};

/// What threads of a program may have when those beside them have given theirs away. All start with the same number, as
/// many as fit or as the user allows, and what they have together does not grow: `copying` is what is left to others.
/// `None` where one group has enough, or nobody anything to give.
fn multiplying_registers(groups: u32, most: Option<u32>, copying: u32) -> Option<u32> {
    let all = groups + 1;
    let fitting = registers_of_each(all * WARPGROUP_WARPS * 32);
    let first = fitting.min(most.unwrap_or(fitting)) / REGISTER_STEP * REGISTER_STEP;
    let shared = |given: u32| (first + given / groups) / REGISTER_STEP * REGISTER_STEP;
    first.checked_sub(copying).filter(|_| groups > 1).map(shared)
}

/// Lets each thread of a group have so many registers from here on.
fn change_registers(b: &mut Builder, change: &str, registers: u32) {
    statement(b, &format!("setmaxnreg.{change}.sync.aligned.u32 {registers};"), "~{memory}", &[], &[]);
}

/// The most tensor maps that are asked for ahead: the addresses of four cost attention, which is long, registers that it has not.
const PREFETCHED: usize = 3;

impl Gpu<'_> {
    /// Runs `consume` in the program's warps, and copies in the one beside them.
    pub(in crate::gpu::emit) fn with_pipeline(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        consume: impl FnOnce(&mut Self, &mut Builder),
    ) {
        self.set_up(b, pipeline);
        self.await_predecessor(b);
        let warp = self.uniform(b, self.block_warp);
        let num_warps = self.plan.distributed.num_warps;
        let consumers = b.int(Ty::I32, i64::from(num_warps));
        let beside = b.icmp(IntPredicate::Uge, warp, consumers);
        let most = self.plan.limit.and_then(Limit::registers);
        let multiplying = |copying| multiplying_registers(num_warps / WARPGROUP_WARPS, most, copying);
        let mut copying = COPYING_REGISTERS[usize::from(self.most_held() >= MANY_HELD)];
        let registers = multiplying(copying);
        // More where they are of no use to the others.
        while registers.is_some() && multiplying(copying + REGISTER_STEP) == registers {
            copying += REGISTER_STEP;
        }
        let mut consume = Some(consume);
        b.branch(beside, &[], |b, arm| {
            match arm {
                BranchArm::Then => {
                    registers.iter().for_each(|_| change_registers(b, "dec", copying));
                    let copies = b.icmp(IntPredicate::Eq, warp, consumers);
                    b.if_then(copies, |b| {
                        let text =
                            "{\n.reg .pred chosen;\nelect.sync _|chosen, -1;\nselp.b32 $0, 1, 0, chosen;\n}";
                        let chosen = statement(b, text, "=r", &[], &[Ty::I32])[0];
                        let zero = b.int(Ty::I32, 0);
                        let chosen = b.icmp(IntPredicate::Ne, chosen, zero);
                        b.if_then(chosen, |b| {
                            self.scope(|gpu| {
                                gpu.announced_programs(b, pipeline);
                            });
                        });
                    });
                }
                BranchArm::Else => {
                    registers.iter().for_each(|&registers| change_registers(b, "inc", registers));
                    let consume = consume.take().expect("each arm is built once");
                    if self.alternates() {
                        self.take_turns(b, MmaOrder::First);
                    }
                    self.scope(|gpu| gpu.programs(b, pipeline, consume));
                    self.await_departure(b);
                }
            }
            self.sync_cluster(b);
            vec![]
        });
    }

    /// The most words of a left factor that a thread may hold.
    fn most_held(&self) -> u32 {
        let mut most = 0;
        self.func.body.walk(&mut |op| {
            if let Kind::WarpGroupDot(dot) = &op.kind
                && let OperandA::Staged(staged) = &dot.a
                && self.plan.pipeline().find(&staged.window).0.is_none()
            {
                let words = self.words_to_hold(staged, self.func.ty(op.results[0]).shape[0]);
                most = most.max(words.unwrap_or(0));
            }
        });
        most
    }

    /// Makes the barrier objects, in each list those of what came followed by as many of what was used, and asks for the tensor maps where
    /// they are few: the first copy by one would wait for it.
    fn set_up(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let warps = self.plan.distributed.num_warps;
        let base = self.smem_base();
        self.read_cluster_size(b, pipeline);
        // Where they start, how many say what came, and how many of those that say what was used are made here.
        let rings = pipeline.rings.iter().map(|ring| {
            let count = ring.stages * ring.lots().len() as u32;
            (ring.signals, count, if ring.has_multicast() { 0 } else { count })
        });
        let once = pipeline.parts * pipeline.once.len() as u32;
        let own = (pipeline.signals, once, once);
        let announced = (pipeline.announcements + ANNOUNCED * pipeline.announcement(), ANNOUNCED, ANNOUNCED);
        let signals = rings.chain([own, announced]).flat_map(|(start, count, let_go)| {
            let came = (0..count).map(move |i| (start + i * MBARRIER_BYTES, 1));
            came.chain((0..let_go).map(move |i| (start + (count + i) * MBARRIER_BYTES, warps)))
        });
        let all = self.plan.threads() / 32;
        let first = self.first_of(b, 31, all.next_power_of_two() - 1);
        let maps = if self.tensor_maps.len() <= PREFETCHED { self.tensor_maps.clone() } else { vec![] };
        b.guarded(first, |b| {
            for map in maps {
                statement(b, "prefetch.tensormap [$0];", "l,~{memory}", &[map], &[]);
            }
            for ring in &pipeline.rings {
                self.init_empty_barriers(b, ring, warps);
            }
            init_mbarriers(b, base, signals);
        });
        block_barrier(b);
        self.sync_cluster(b);
    }
}
