//! Blocks of a cluster that run one program: what one tells the others in their shared memory, and where it waits for them.
//!
//! A barrier of the cluster is slow, for it orders all memory and empties the first-level cache (docs/performance.md).
//! Stores that count themselves in at an `mbarrier` of the block they go to order nothing else.

use crate::gpu::emit::barrier::init_mbarriers;
use crate::gpu::emit::emitter;
use crate::gpu::emit::threads::lowest_lanes;
use crate::gpu::emit::{Builder, Gpu, GpuPlan, IntPredicate, ShuffleMode, statement};
use crate::gpu::layout::Distributed;
use crate::ir::{Block, Op};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Space, Ty};
use crate::ops::Effect;

/// Whether an operation writes what other blocks of the cluster may see, or waits for them.
fn meets_cluster(distributed: &Distributed, op: &Op) -> bool {
    let operation = op.kind.operation();
    let emit = emitter(&op.kind);
    emit.scratch(distributed, op) > 0
        || emit.ring(distributed).is_some()
        || operation.place().is_some() && operation.effect() == Effect::Write
        || operation.blocks().iter().any(|block| needs_cluster(distributed, block))
}

pub(super) fn needs_cluster(distributed: &Distributed, block: &Block) -> bool {
    block.ops.iter().any(|op| meets_cluster(distributed, op))
}

/// The number of a thread's warp among those of its program, by that in its block. `block` is the block's number, and becomes
/// the program's.
pub(super) fn warp_of(plan: &GpuPlan, b: &mut Builder, block_warp: Val, block: &mut Val) -> Val {
    let blocks = plan.blocks();
    if blocks == 1 {
        return block_warp;
    }
    let [mask, shift] = [blocks - 1, blocks.ilog2()].map(|number| b.int(Ty::I32, i64::from(number)));
    let rank = b.and(*block, mask);
    *block = b.lshr(*block, shift);
    let below = b.int(Ty::I32, i64::from(plan.distributed.warps_per_cta().ilog2()));
    let first = b.shl(rank, below);
    b.or(first, block_warp)
}

/// Waits for all threads of the cluster, and makes what they wrote visible.
pub(super) fn barrier(b: &mut Builder) {
    b.effect_with("nvvm.cluster.arrive", &[], &[("aligned", "unit")]);
    b.effect_with("nvvm.cluster.wait", &[], &[("aligned", "unit")]);
}

impl Gpu<'_> {
    /// Tells the other blocks of the cluster that this one has started.
    pub(super) fn enter_cluster(&mut self, b: &mut Builder) {
        self.set_up_signals(b);
        if self.cluster_wait_pending {
            b.effect_with("nvvm.cluster.arrive.relaxed", &[], &[("aligned", "unit")]);
        }
    }

    /// Stands before an operation that other blocks of the cluster may notice, for which all must have started.
    pub(super) fn await_cluster(&mut self, b: &mut Builder, op: &Op) {
        if self.cluster_wait_pending && meets_cluster(&self.plan.distributed, op) {
            b.effect_with("nvvm.cluster.wait", &[], &[("aligned", "unit")]);
            self.cluster_wait_pending = false;
        }
    }

    /// Does something to places in shared memory, and to the same places in the other blocks that run the program.
    pub(super) fn everywhere<const N: usize>(
        &self,
        b: &mut Builder,
        pointers: [Val; N],
        mut act: impl FnMut(&mut Builder, [Val; N]),
    ) {
        if self.plan.blocks() == 1 {
            return act(b, pointers);
        }
        for block in 0..self.plan.blocks() {
            let block = b.int(Ty::I32, i64::from(block));
            let places = in_block(b, pointers, block);
            act(b, places);
        }
    }

    /// Sets up the barrier objects in which stores of other blocks count themselves: in each turn every warp of this block
    /// arrives once.
    fn set_up_signals(&mut self, b: &mut Builder) {
        let places = self.smem.mbarriers();
        if places.is_empty() {
            return;
        }
        let (base, warps) = (self.smem_base(), self.plan.distributed.warps_per_cta());
        let first = self.first_of(b, 31, warps - 1);
        b.guarded(first, |b| {
            init_mbarriers(b, base, places.into_iter().map(|place| (place, warps)));
        });
    }

    /// Announces that each warp of this block is to be told of `bytes` bytes; gives what to wait for.
    pub(super) fn expect(&self, b: &mut Builder, signal: Val, bytes: u32) -> Val {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = format!("@$2 mbarrier.arrive.expect_tx.shared::cta.b64 $0, [$1], {bytes};");
        let turn = statement(b, &text, "=l,l,b,~{memory}", &[signal, first], &[Ty::I64])[0];
        self.shuffle(b, turn, ShuffleMode::Index, zero)
    }

    /// Of lanes that do the same, as many bits as number the blocks of a cluster: each tells one of them.
    pub(super) fn tellers(&self, same: u32) -> Option<u32> {
        lowest_lanes(same, self.plan.blocks().ilog2())
    }

    /// Stores one value of four or eight bytes to the same place in this block of the cluster, without one in every block, where it
    /// counts itself in.
    pub(super) fn tell(&self, b: &mut Builder, value: Val, [pointer, signal]: [Val; 2], block: Option<Val>) {
        let bits = value.ty.elem.bits();
        let value = b.bitcast(value, value.ty.with(value.ty.elem.as_int()));
        let letter = if bits == 64 { "l" } else { "r" };
        let text = format!("st.async.shared::cluster.mbarrier::complete_tx::bytes.b{bits} [$0], $1, [$2];");
        let store = |b: &mut Builder, [place, signal]: [Val; 2]| {
            statement(b, &text, &format!("l,{letter},l,~{{memory}}"), &[place, value, signal], &[]);
        };
        match block {
            Some(block) => {
                let places = in_block(b, [pointer, signal], block);
                store(b, places);
            }
            None => self.everywhere(b, [pointer, signal], store),
        }
    }

    /// Waits until all that was announced has come.
    pub(super) fn await_told(&mut self, b: &mut Builder, signal: Val, turn: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,l,~{memory}", &[signal, turn], &[]);
        self.membar.after_remote_wait();
    }
}

/// The same places in another block of the cluster.
fn in_block<const N: usize>(b: &mut Builder, pointers: [Val; N], block: Val) -> [Val; N] {
    let cluster = Ty::scalar(Elem::Ptr(Space::Cluster));
    pointers.map(|pointer| b.op("nvvm.mapa", &[pointer, block], cluster))
}
