//! What two blocks of a cluster do together: TMA loads that they issue for each other (multicast), and barriers at which both arrive.
//!
//! A program that has no peer, the last of an odd number, has a block beside it that does nothing.

use super::barriers::MbarrierList;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, statement};
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::types::Ty;
use tile_ir::ir::Op;
use tile_ir::ops::schedule::stages;
use tile_ir::ops::{MbarArriveForPeer, PeerShares};

/// The mask of both blocks of a cluster.
const BOTH: u32 = 0b11;

/// Whether the block is in a cluster of two, read anew by consumer warps: they have no register to keep it.
const IF_CLUSTERED: &str = ".reg .pred paired;\n.reg .b32 blocks;\nmov.u32 blocks, %cluster_nctarank;\nsetp.eq.u32 paired, blocks, 2;\n";

/// What the producer warp knows of the program that the other block of the cluster runs.
pub(in crate::gpu::emit) struct PeerFlags {
    /// The launch has clusters, and this program has no peer.
    pub is_missing: Val,
    /// Whether both programs load the same box, for each load.
    pub shared: Vec<Val>,
}

impl Gpu<'_> {
    /// Reads whether the launch has clusters of two blocks.
    pub(super) fn read_cluster_size(&mut self, b: &mut Builder) {
        let blocks = b.op("nvvm.read.ptx.sreg.cluster.nctarank", &[], Ty::I32);
        let two = b.int(Ty::I32, 2);
        self.program.clustered = Some(b.icmp(IntPredicate::Eq, blocks, two));
    }

    /// Initializes barriers at which both blocks of a cluster arrive, if there are clusters.
    pub(super) fn init_cluster_barriers(&self, b: &mut Builder, list: MbarrierList) {
        let clustered = self.program.clustered.expect("it was read before");
        let [one, both] = [1, 2].map(|blocks| b.int(Ty::I32, i64::from(blocks * list.arrivals)));
        let arrivals = b.select(clustered, both, one);
        for (address, _) in list.each() {
            let barrier = b.offset_bytes(self.smem_base(), address as i32);
            let text = "mbarrier.init.shared::cta.b64 [$0], $1;";
            statement(b, text, "l,r,~{memory}", &[barrier, arrivals], &[]);
        }
    }

    /// Waits for the other block of the cluster: until it has started, and before this one ends, whose shared memory the other writes.
    pub(super) fn sync_cluster(&self, b: &mut Builder) {
        if self.program.clustered.is_some() {
            let text = format!(
                "{{\n{IF_CLUSTERED}@paired barrier.cluster.arrive;\n@paired barrier.cluster.wait;\n}}"
            );
            statement(b, &text, "~{memory}", &[], &[]);
        }
    }

    /// What the program with this index, of so many, shares with its peer: those of the loads whose `offsets`, emitted for each
    /// program, are equal. There are so many loads as `loads`.
    pub(in crate::gpu::emit) fn peer_flags(
        &mut self,
        b: &mut Builder,
        [index, programs]: [Val; 2],
        loads: usize,
        offsets: &mut dyn FnMut(&mut Self, &mut Builder) -> Vec<Vec<Val>>,
    ) -> PeerFlags {
        let clustered = self.program.clustered.expect("barriers of a cluster were initialized");
        let one = b.int(Ty::I32, 1);
        let peer = b.xor(index, one);
        let exists = b.icmp(IntPredicate::Ult, peer, programs);
        let missing = b.not(exists);
        let (both, is_missing) = (b.and(clustered, exists), b.and(clustered, missing));
        let shared = b.branch(both, &vec![Ty::I1; loads], |b, arm| {
            let BranchArm::Then = arm else {
                let never = b.int(Ty::I1, 0);
                return vec![never; loads];
            };
            let coords = [index, peer].map(|index| self.program_at(b, index));
            let [own, other] = coords.map(|coord| {
                let program = std::mem::replace(&mut self.program.coord, coord);
                let offsets = self.scope(|gpu| offsets(gpu, b));
                self.program.coord = program;
                offsets
            });
            let same = own.into_iter().zip(other).map(|(own, other)| {
                let equal = own.into_iter().zip(other).fold(None, |all, (own, other)| {
                    let equal = b.icmp(IntPredicate::Eq, own, other);
                    b.both(all, Some(equal))
                });
                equal.unwrap_or_else(|| b.int(Ty::I1, 1))
            });
            same.collect()
        });
        PeerFlags { is_missing, shared }
    }

    /// Arrives at an empty barrier for a missing peer's consumer warps, in an iteration of a ring of so many stages.
    pub(in crate::gpu::emit) fn arrive_for_missing(
        &self,
        b: &mut Builder,
        is_missing: Val,
        stages: u32,
        [empty, iteration]: [Val; 2],
    ) {
        // Stages that earlier programs filled were released by a peer.
        let first = b.int(Ty::I64, i64::from(stages));
        let own = b.icmp(IntPredicate::Sge, iteration, first);
        let arrives = b.and(is_missing, own);
        let text = format!(
            "@$1 mbarrier.arrive.shared::cta.b64 _, [$0], {};",
            self.plan.schedule.distributed.num_warps
        );
        statement(b, &text, "l,b,~{memory}", &[empty, arrives], &[]);
    }

    /// Releases the same stage of the other block of the cluster.
    pub(in crate::gpu::emit) fn arrive_at_peer(&self, b: &mut Builder, empty: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.thread.lane, zero);
        let text = format!(
            "{{\n.reg .b32 other;\n.reg .b64 far;\n{IF_CLUSTERED}and.pred paired, paired, $1;\nmov.u32 other, %cluster_ctarank;\n\
             xor.b32 other, other, 1;\n@paired mapa.shared::cluster.u64 far, $0, other;\n\
             @paired mbarrier.arrive.shared::cluster.b64 _, [far];\n}}"
        );
        statement(b, &text, "l,b,~{memory}", &[empty, first], &[]);
    }
}

impl GpuEmit for MbarArriveForPeer {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let empty = gpu.stage_address(b, self.barrier);
        let stages = stages(gpu.func, self.barrier.buffer).expect("barriers have stages");
        let (missing, iteration) = (gpu.scalar(self.missing), gpu.scalar(self.iteration));
        gpu.arrive_for_missing(b, missing, stages, [empty, iteration]);
    }
}

impl GpuEmit for PeerShares {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let tile = gpu.program.work_tile.expect("a producer has a work tile");
        let flags = gpu.peer_flags(b, [tile.index, tile.programs], self.counts.len(), &mut |gpu, b| {
            gpu.block(b, &self.offsets);
            let mut rest = gpu.flatten(&self.offsets.yields).into_iter();
            self.counts.iter().map(|&count| rest.by_ref().take(count).collect()).collect()
        });
        let all = [flags.is_missing].into_iter().chain(flags.shared);
        op.results.iter().zip(all).for_each(|(&result, flag)| gpu.define(result, vec![flag]));
    }
}

/// Issues the TMA load of a box. `at` has its address in shared memory, the tensor map, the full barrier and the
/// coordinates, innermost first.
pub(super) fn load_box(b: &mut Builder, at: &[Val]) {
    let rank = at.len() - 3;
    let (load, constraints) = instruction(rank);
    let text = format!("{load} [$0], [$1, {{{}}}], [$2];", coordinates(rank, "$4"));
    statement(b, &text, &format!("{constraints},~{{memory}}"), at, &[]);
}

/// The same of a box of so many rows in a cluster: one half for both blocks, or both halves for this one. The statement computes what
/// differs: the producer warp has no registers to keep it.
pub(super) fn multicast_box(b: &mut Builder, shared: Val, at: &[Val], [rows, line]: [u32; 2]) {
    let rank = at.len() - 3;
    let (load, constraints) = instruction(rank);
    let (half, bytes, flag) = (rows / 2, rows / 2 * line, at.len());
    let names = coordinates(rank, "row");
    let text = format!(
        "{{\n.reg .b32 which, row;\n.reg .b64 to;\n.reg .b16 both;\nmov.b16 both, {BOTH};\n\
         mov.u32 which, %cluster_ctarank;\nselp.b32 which, which, 0, ${flag};\n\
         mad.lo.s32 row, which, {half}, $4;\nmad.wide.u32 to, which, {bytes}, $0;\n\
         @${flag} {load}.multicast::cluster [to], [$1, {{{names}}}], [$2], both;\n\
         @!${flag} {load} [to], [$1, {{{names}}}], [$2];\n\
         add.s32 row, $4, {half};\nadd.s64 to, $0, {bytes};\n\
         @!${flag} {load} [to], [$1, {{{names}}}], [$2];\n}}"
    );
    let operands: Vec<Val> = at.iter().copied().chain([shared]).collect();
    statement(b, &text, &format!("{constraints},b,~{{memory}}"), &operands, &[]);
}

/// The TMA load of views of so many axes, and its operand constraints.
fn instruction(rank: usize) -> (String, String) {
    let load = format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes");
    (load, format!("l,l,l{}", ",r".repeat(rank)))
}

/// The coordinates of a box as operands, with this for its first row.
fn coordinates(rank: usize, row: &str) -> String {
    let name = |axis: usize| if axis == 1 { row.to_string() } else { format!("${}", axis + 3) };
    (0..rank).map(name).collect::<Vec<String>>().join(", ")
}
