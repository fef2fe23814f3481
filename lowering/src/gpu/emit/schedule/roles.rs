//! The roles of warps: consumer warpgroups, and more warps of which one thread of one warp is the producer.

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::BranchArm;
use crate::mlir::types::Ty;
use tile_ir::ir::Op;
use tile_ir::ops::WarpSpecialize;

/// Changes the registers of each thread of this warpgroup.
fn set_max_registers(b: &mut Builder, change: &str, registers: u32) {
    statement(b, &format!("setmaxnreg.{change}.sync.aligned.u32 {registers};"), "~{memory}", &[], &[]);
}

impl Gpu<'_> {
    /// Runs `consume` in the consumer warpgroups, and `produce` in one thread of the warps behind them, with so many registers of
    /// a producer's and of a consumer's thread.
    pub(in crate::gpu::emit) fn run_roles(
        &mut self,
        b: &mut Builder,
        registers: Option<[u32; 2]>,
        produce: impl FnOnce(&mut Self, &mut Builder),
        consume: impl FnOnce(&mut Self, &mut Builder),
    ) {
        let warp = self.uniform(b, self.thread.block_warp);
        let consumers = b.int(Ty::I32, i64::from(self.plan.schedule.distributed.num_warps));
        let is_producer = b.icmp(IntPredicate::Uge, warp, consumers);
        let (mut produce, mut consume) = (Some(produce), Some(consume));
        b.branch(is_producer, &[], |b, arm| {
            match arm {
                BranchArm::Then => {
                    registers.iter().for_each(|&[own, _]| set_max_registers(b, "dec", own));
                    let produce = produce.take().expect("each arm is built once");
                    let is_first_warp = b.icmp(IntPredicate::Eq, warp, consumers);
                    b.if_then(is_first_warp, |b| {
                        let text =
                            "{\n.reg .pred chosen;\nelect.sync _|chosen, -1;\nselp.b32 $0, 1, 0, chosen;\n}";
                        let chosen = statement(b, text, "=r", &[], &[Ty::I32])[0];
                        let zero = b.int(Ty::I32, 0);
                        let chosen = b.icmp(IntPredicate::Ne, chosen, zero);
                        b.if_then(chosen, |b| self.scope(|gpu| produce(gpu, b)));
                    });
                }
                BranchArm::Else => {
                    registers.iter().for_each(|&[_, own]| set_max_registers(b, "inc", own));
                    let consume = consume.take().expect("each arm is built once");
                    self.scope(|gpu| consume(gpu, b));
                }
            }
            self.sync_cluster(b);
            vec![]
        });
    }
}

impl GpuEmit for WarpSpecialize {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        gpu.run_roles(
            b,
            self.registers,
            |gpu, b| gpu.block(b, &self.producer),
            |gpu, b| gpu.block(b, &self.consumer),
        );
    }
}
