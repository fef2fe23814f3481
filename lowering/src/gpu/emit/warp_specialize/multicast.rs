//! TMA loads that two blocks of a cluster issue for each other (multicast).
//!
//! L2 coalesces requests of several multiprocessors for one line, but not for parts of its 32-byte sectors. Views whose rows are
//! a multiple of 16 bytes and none of 32 apart therefore read twice as much out of L2 (docs/decisions/0137). The launcher runs
//! such a kernel in clusters of two blocks: each block loads half of the rows of a box that both programs take, into the shared
//! memory of both.
//!
//! The blocks of a cluster run programs with neighboring numbers, and loops with equally many iterations. The producer warp
//! computes the offsets of both programs to find the boxes they share. A stage's empty barrier waits for the consumer warps of
//! both blocks, shared or not, so that neither block is a whole ring ahead. The last of an odd number of programs has no peer: its
//! producer warp arrives for the peer.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::{Func, Op, Value};

use super::{MBARRIER_BYTES, Multicast, TmaLoad, TmaPipeline, TmaRing, depends_on, varies_by_program};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Registers, statement};
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::types::Ty;

/// Fewest results of a dot whose loads may be multicast. Smaller tiles are those of small dots: clusters seldom pay
/// for them, and their code takes 2 % of their time before the first load (docs/decisions/0136).
const LEAST_RESULTS: u64 = 128 * 128;

/// The mask of both blocks of a cluster.
const BOTH: u32 = 0b11;

/// Whether the block is in a cluster of two, read anew by consumer warps: they have no register to keep it.
const IF_CLUSTERED: &str = ".reg .pred paired;\n.reg .b32 blocks;\nmov.u32 blocks, %cluster_nctarank;\nsetp.eq.u32 paired, blocks, 2;\n";

/// What the producer warp knows of the program that the other block of the cluster runs.
pub(super) struct Peer {
    /// The launch has clusters, and this program has no peer.
    is_missing: Val,
    /// By the variable of a ring and the index of a load: whether the peer loads the same box.
    shared: HashMap<(Value, usize), Val>,
}

impl Peer {
    /// Whether both programs load this box, for loads that may be multicast.
    pub(super) fn shares(&self, ring: &TmaRing, load: usize) -> Option<Val> {
        self.shared.get(&(ring.variable, load)).copied()
    }
}

impl TmaRing {
    /// Whether a load of the ring may be multicast.
    pub(super) fn has_multicast(&self) -> bool {
        self.loads.iter().any(|load| load.multicast)
    }
}

impl TmaPipeline {
    /// Marks the loads that may be multicast: of large tiles, in loops with equally many iterations in all programs, by tensor maps of
    /// nothing else. Where a program also loads something once, as attention does, and for TF32 the producer warp has no registers for it.
    pub(super) fn mark_multicast(&mut self, func: &Func, definitions: &HashMap<Value, &Op>) {
        let results = |load: &TmaLoad| func.ty(load.last_use).shape.elements();
        let small = self.rings.iter().flat_map(|ring| &ring.loads).any(|load| results(load) < LEAST_RESULTS);
        if small || self.is_dynamic || !self.resident.is_empty() || self.maps.iter().any(|map| map.tf32) {
            return;
        }
        let same_for_peers = |load: &TmaLoad, variable| {
            !load.tile.offsets.iter().any(|&offset| {
                depends_on(offset, variable, definitions) && varies_by_program(offset, definitions)
            })
        };
        let ring_loads =
            self.rings.iter().flat_map(|ring| ring.loads.iter().map(|load| (ring.variable, load)));
        let (candidates, others): (Vec<_>, Vec<_>) =
            ring_loads.partition(|&(variable, load)| same_for_peers(load, variable));
        let others = others.into_iter().map(|(_, load)| load.map);
        let others: HashSet<usize> = others.chain(self.epilogue.maps()).collect();
        for (variable, load) in candidates.into_iter().filter(|(_, load)| !others.contains(&load.map)) {
            let moves = |offset: &Value| depends_on(*offset, variable, definitions);
            let axis =
                load.tile.offsets.iter().position(moves).expect("a ring loads another box in each iteration");
            let step = load.tile.extents[axis];
            self.maps[load.map].multicast = Some(Multicast { axis: axis as u32, step, bytes: load.bytes });
        }
        for load in self.rings.iter_mut().flat_map(|ring| &mut ring.loads) {
            load.multicast = self.maps[load.map].multicast.is_some();
        }
    }

    pub(super) fn has_multicast(&self) -> bool {
        self.rings.iter().any(TmaRing::has_multicast)
    }
}

impl Gpu<'_> {
    /// Reads whether the launch has clusters of two blocks, for kernels with multicast loads.
    pub(super) fn read_cluster_size(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        if pipeline.has_multicast() {
            let blocks = b.op("nvvm.read.ptx.sreg.cluster.nctarank", &[], Ty::I32);
            let two = b.int(Ty::I32, 2);
            self.clustered = Some(b.icmp(IntPredicate::Eq, blocks, two));
        }
    }

    /// Initializes a ring's empty barriers: the consumer warps of all blocks of the cluster arrive at them.
    pub(super) fn init_empty_barriers(&self, b: &mut Builder, ring: &TmaRing, warps: u32) {
        let Some(clustered) = self.clustered.filter(|_| ring.has_multicast()) else { return };
        let [one, both] = [1, 2].map(|blocks| b.int(Ty::I32, i64::from(blocks * warps)));
        let arrivals = b.select(clustered, both, one);
        let count = ring.stages * ring.barrier_groups().len() as u32;
        for coord in count..2 * count {
            let barrier = b.offset_bytes(self.smem_base(), (ring.barriers + coord * MBARRIER_BYTES) as i32);
            statement(
                b,
                "mbarrier.init.shared::cta.b64 [$0], $1;",
                "l,r,~{memory}",
                &[barrier, arrivals],
                &[],
            );
        }
    }

    /// Waits for the other block of the cluster: until it has started, and before this one ends, whose shared memory the other writes.
    pub(super) fn sync_cluster(&self, b: &mut Builder) {
        if self.clustered.is_some() {
            let text = format!(
                "{{\n{IF_CLUSTERED}@paired barrier.cluster.arrive;\n@paired barrier.cluster.wait;\n}}"
            );
            statement(b, &text, "~{memory}", &[], &[]);
        }
    }

    /// What the program with this index, of so many, shares with its peer. `values` are those of any program.
    pub(super) fn peer_of(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        [index, all]: [Val; 2],
        values: &HashMap<Value, Registers>,
        definitions: &HashMap<Value, &Op>,
    ) -> Option<Peer> {
        let clustered = self.clustered?;
        let one = b.int(Ty::I32, 1);
        let peer = b.xor(index, one);
        let exists = b.icmp(IntPredicate::Ult, peer, all);
        let missing = b.not(exists);
        let (both, is_missing) = (b.and(clustered, exists), b.and(clustered, missing));
        let loads: Vec<(&TmaRing, usize)> = pipeline
            .rings
            .iter()
            .flat_map(|ring| (0..ring.loads.len()).map(move |load| (ring, load)))
            .filter(|&(ring, load)| ring.loads[load].multicast)
            .collect();
        let flags = b.branch(both, &vec![Ty::I1; loads.len()], |b, arm| {
            let BranchArm::Then = arm else {
                let never = b.int(Ty::I1, 0);
                return vec![never; loads.len()];
            };
            let coords = [index, peer].map(|index| self.program_at(b, index));
            let [own, other] = coords.map(|coord| {
                let program = std::mem::replace(&mut self.program, coord);
                let saved = std::mem::replace(&mut self.values, values.clone());
                let offsets: Vec<Vec<Val>> = self.scope(|gpu| {
                    let of = |&(ring, load): &(&TmaRing, usize)| {
                        let offsets = &ring.loads[load].tile.offsets;
                        let fixed =
                            offsets.iter().filter(|&&offset| !depends_on(offset, ring.variable, definitions));
                        fixed.map(|&offset| gpu.evaluate(b, offset, definitions)).collect()
                    };
                    loads.iter().map(of).collect()
                });
                (self.program, self.values) = (program, saved);
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
        let names = loads.into_iter().map(|(ring, load)| (ring.variable, load));
        Some(Peer { is_missing, shared: names.zip(flags).collect() })
    }

    /// Arrives at an empty barrier for a missing peer's consumer warps.
    pub(super) fn arrive_for_missing(
        &self,
        b: &mut Builder,
        peer: &Peer,
        ring: &TmaRing,
        [empty, iteration]: [Val; 2],
    ) {
        // Stages that earlier programs filled were released by a peer.
        let first = b.int(Ty::I64, i64::from(ring.stages));
        let own = b.icmp(IntPredicate::Sge, iteration, first);
        let arrives = b.and(peer.is_missing, own);
        let text =
            format!("@$1 mbarrier.arrive.shared::cta.b64 _, [$0], {};", self.plan.distributed.num_warps);
        statement(b, &text, "l,b,~{memory}", &[empty, arrives], &[]);
    }

    /// Releases the same stage of the other block of the cluster.
    pub(super) fn arrive_at_peer(&self, b: &mut Builder, empty: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = format!(
            "{{\n.reg .b32 other;\n.reg .b64 far;\n{IF_CLUSTERED}and.pred paired, paired, $1;\nmov.u32 other, %cluster_ctarank;\n\
             xor.b32 other, other, 1;\n@paired mapa.shared::cluster.u64 far, $0, other;\n\
             @paired mbarrier.arrive.shared::cluster.b64 _, [far];\n}}"
        );
        statement(b, &text, "l,b,~{memory}", &[empty, first], &[]);
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
