//! Distributed shared memory: what the blocks of a cluster that run one program store to each other, and how they
//! wait for it.
//!
//! A barrier of the cluster is slow, for it orders all memory and empties the L1 cache (docs/decisions/0009). Stores
//! that arrive at an `mbarrier` of the block they go to (`st.async`) order nothing else.

use crate::gpu::emit::threads::lowest_lanes;
use crate::gpu::emit::{Builder, Gpu, GpuPlan, IntPredicate, ShuffleMode, statement};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Space, Ty};

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
    let below = b.int(Ty::I32, i64::from(plan.schedule.distributed.warps_per_cta().ilog2()));
    let first = b.shl(rank, below);
    b.or(first, block_warp)
}

impl Gpu<'_> {
    /// Emits something for addresses in shared memory, and for the same addresses in the other blocks of the cluster.
    pub(super) fn for_each_cta<const N: usize>(
        &self,
        b: &mut Builder,
        pointers: [Val; N],
        mut emit: impl FnMut(&mut Builder, [Val; N]),
    ) {
        if self.plan.blocks() == 1 {
            return emit(b, pointers);
        }
        for block in 0..self.plan.blocks() {
            let block = b.int(Ty::I32, i64::from(block));
            let addresses = in_block(b, pointers, block);
            emit(b, addresses);
        }
    }

    /// Expects `bytes` bytes for each warp of this block; returns the token of the phase to wait for.
    pub(super) fn expect_remote(&self, b: &mut Builder, barrier: Val, bytes: u32) -> Val {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.thread.lane, zero);
        let text = format!("@$2 mbarrier.arrive.expect_tx.shared::cta.b64 $0, [$1], {bytes};");
        let phase_token = statement(b, &text, "=l,l,b,~{memory}", &[barrier, first], &[Ty::I64])[0];
        self.shuffle(b, phase_token, ShuffleMode::Index, zero)
    }

    /// Of lanes that hold the same value, as many bits as there are blocks in a cluster: each lane stores to one of
    /// them.
    pub(super) fn remote_store_lanes(&self, same: u32) -> Option<u32> {
        lowest_lanes(same, self.plan.blocks().ilog2())
    }

    /// Stores one value of four or eight bytes to the same address in this block of the cluster, or in every block,
    /// and arrives at its mbarrier.
    pub(super) fn remote_store(
        &self,
        b: &mut Builder,
        value: Val,
        [pointer, barrier]: [Val; 2],
        block: Option<Val>,
    ) {
        let bits = value.ty.elem.bits();
        let value = b.bitcast(value, value.ty.with(value.ty.elem.as_int()));
        let letter = if bits == 64 { "l" } else { "r" };
        let text = format!("st.async.shared::cluster.mbarrier::complete_tx::bytes.b{bits} [$0], $1, [$2];");
        let store = |b: &mut Builder, [address, barrier]: [Val; 2]| {
            statement(b, &text, &format!("l,{letter},l,~{{memory}}"), &[address, value, barrier], &[]);
        };
        match block {
            Some(block) => {
                let addresses = in_block(b, [pointer, barrier], block);
                store(b, addresses);
            }
            None => self.for_each_cta(b, [pointer, barrier], store),
        }
    }

    /// Waits until all expected bytes have arrived.
    pub(super) fn wait_remote(&self, b: &mut Builder, barrier: Val, phase_token: Val) {
        let text = "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.shared::cta.b64 done, [$0], $1;\n@!done bra again;\n}";
        statement(b, text, "l,l,~{memory}", &[barrier, phase_token], &[]);
    }
}

/// The same addresses in another block of the cluster.
fn in_block<const N: usize>(b: &mut Builder, pointers: [Val; N], block: Val) -> [Val; N] {
    let cluster = Ty::scalar(Elem::Ptr(Space::Cluster));
    pointers.map(|pointer| b.op("nvvm.mapa", &[pointer, block], cluster))
}
