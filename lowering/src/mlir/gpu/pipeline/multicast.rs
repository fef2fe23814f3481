//! Pairs of blocks that copy for each other.
//!
//! Multiprocessors that ask L2 for the same line at about the same time are served together, unless they ask for parts of its
//! 32-byte sectors: so do copies of matrices whose rows begin at multiples of 16 bytes that are none of 32, and the same product
//! takes half as long again (docs/performance.md, "Rows that begin within sectors"). The launcher then makes clusters of two
//! blocks. Of what both programs of such a pair take, each block copies half of the rows of each matrix to both (multicast).
//!
//! Blocks of a pair run programs with neighbouring numbers, and loops that take equally many turns. Where two programs have a
//! block of a view in common is known when they run: the thread that copies computes the offsets of both. A place of a ring is
//! free when the warps of both blocks have let go of it, whether they share or not, so that neither is further ahead than there
//! are places. The block with the last program of an odd number is alone: its copying thread arrives in the other's stead.

use std::collections::{HashMap, HashSet};

use super::{Multicast, Pipeline, Ring, SIGNAL, Transfer, differs, varies};
use crate::mlir::builder::{Arm, Val};
use crate::mlir::gpu::{Builder, Gpu, IntPredicate, Registers, statement};
use crate::mlir::types::Ty;
use crate::tile::{Op, Value};

/// Both blocks of a pair, as copies name them.
const BOTH: u32 = 0b11;

/// Whether the block is one of a pair, found anew by warps that multiply: they have no register to keep it.
const IF_PAIRED: &str = ".reg .pred paired;\n.reg .b32 blocks;\nmov.u32 blocks, %cluster_nctarank;\nsetp.eq.u32 paired, blocks, 2;\n";

/// What the thread that copies knows of the other block of its pair, for a program.
pub(super) struct Pair {
    /// There are pairs, and this program has no neighbour.
    alone: Val,
    /// The variable of a ring and the number of a copy, and whether the neighbour takes the same.
    shared: HashMap<(Value, usize), Val>,
}

impl Pair {
    /// Whether both programs take what is copied so, if that may be.
    pub(super) fn shares(&self, ring: &Ring, copy: usize) -> Option<Val> {
        self.shared.get(&(ring.variable, copy)).copied()
    }
}

impl Ring {
    /// Whether blocks of a pair may copy for each other.
    pub(super) fn is_paired(&self) -> bool {
        self.copies.iter().any(|copy| copy.multicast)
    }
}

impl Pipeline {
    /// Finds the copies that the blocks of a pair may have in common: in loops that take equally many turns in all programs, by maps of
    /// nothing else. Where something is copied once too, as for attention, and for TF32 the thread that copies has no registers for it.
    pub(super) fn pair(&mut self, definitions: &HashMap<Value, &Op>) {
        if self.counted || !self.once.is_empty() || self.maps.iter().any(|map| map.tf32) {
            return;
        }
        let neighbours = |copy: &Transfer, variable| {
            !copy
                .window
                .offsets
                .iter()
                .any(|&offset| varies(offset, variable, definitions) && differs(offset, definitions))
        };
        let ringed = self.rings.iter().flat_map(|ring| ring.copies.iter().map(|copy| (ring.variable, copy)));
        let (may, others): (Vec<_>, Vec<_>) =
            ringed.partition(|&(variable, copy)| neighbours(copy, variable));
        let others = others.into_iter().map(|(_, copy)| copy.map);
        let others: HashSet<usize> = others.chain(self.outgoing.maps()).collect();
        for (variable, copy) in may.into_iter().filter(|(_, copy)| !others.contains(&copy.map)) {
            let moves = |offset: &Value| varies(*offset, variable, definitions);
            let axis = copy.window.offsets.iter().position(moves).expect("a ring takes it anew in each turn");
            let step = copy.window.extents[axis];
            self.maps[copy.map].multicast = Some(Multicast { axis: axis as u32, step, bytes: copy.bytes });
        }
        for copy in self.rings.iter_mut().flat_map(|ring| &mut ring.copies) {
            copy.multicast = self.maps[copy.map].multicast.is_some();
        }
    }

    pub(super) fn is_paired(&self) -> bool {
        self.rings.iter().any(Ring::is_paired)
    }
}

impl Gpu<'_> {
    /// Finds whether the kernel was launched in pairs of blocks, if it may be.
    pub(super) fn find_pair(&mut self, b: &mut Builder, pipeline: &Pipeline) {
        if pipeline.is_paired() {
            let blocks = b.op("nvvm.read.ptx.sreg.cluster.nctarank", &[], Ty::I32);
            let two = b.int(Ty::I32, 2);
            self.paired = Some(b.icmp(IntPredicate::Eq, blocks, two));
        }
    }

    /// Makes the barrier objects of a ring's places that were let go of: in a pair, the warps of both blocks do.
    pub(super) fn init_paired(&self, b: &mut Builder, ring: &Ring, warps: u32) {
        let Some(paired) = self.paired.filter(|_| ring.is_paired()) else { return };
        let [one, both] = [1, 2].map(|blocks| b.int(Ty::I32, i64::from(blocks * warps)));
        let arrivals = b.select(paired, both, one);
        let count = ring.stages * ring.lots().len() as u32;
        for place in count..2 * count {
            let signal = b.offset_bytes(self.scratch(), (ring.signals + place * SIGNAL) as i32);
            statement(
                b,
                "mbarrier.init.shared::cta.b64 [$0], $1;",
                "l,r,~{memory}",
                &[signal, arrivals],
                &[],
            );
        }
    }

    /// Waits for the other block of a pair: until it has started, and before this one ends, whose memory the other writes to.
    pub(super) fn meet_other(&self, b: &mut Builder) {
        if self.paired.is_some() {
            let text =
                format!("{{\n{IF_PAIRED}@paired barrier.cluster.arrive;\n@paired barrier.cluster.wait;\n}}");
            statement(b, &text, "~{memory}", &[], &[]);
        }
    }

    /// What the program with this number, of so many, has in common with its neighbour. `values` are those of any program.
    pub(super) fn pair_of(
        &mut self,
        b: &mut Builder,
        pipeline: &Pipeline,
        [number, all]: [Val; 2],
        values: &HashMap<Value, Registers>,
        definitions: &HashMap<Value, &Op>,
    ) -> Option<Pair> {
        let paired = self.paired?;
        let one = b.int(Ty::I32, 1);
        let neighbour = b.xor(number, one);
        let exists = b.icmp(IntPredicate::Ult, neighbour, all);
        let missing = b.not(exists);
        let (both, alone) = (b.and(paired, exists), b.and(paired, missing));
        let copies: Vec<(&Ring, usize)> = pipeline
            .rings
            .iter()
            .flat_map(|ring| (0..ring.copies.len()).map(move |copy| (ring, copy)))
            .filter(|&(ring, copy)| ring.copies[copy].multicast)
            .collect();
        let flags = b.branch(both, &vec![Ty::I1; copies.len()], |b, arm| {
            let Arm::Then = arm else {
                let never = b.int(Ty::I1, 0);
                return vec![never; copies.len()];
            };
            let places = [number, neighbour].map(|number| self.place_of(b, number));
            let [own, other] = places.map(|place| {
                let program = std::mem::replace(&mut self.program, place);
                let kept = std::mem::replace(&mut self.values, values.clone());
                let offsets: Vec<Vec<Val>> = self.scope(|gpu| {
                    let of = |&(ring, copy): &(&Ring, usize)| {
                        let offsets = &ring.copies[copy].window.offsets;
                        let fixed =
                            offsets.iter().filter(|&&offset| !varies(offset, ring.variable, definitions));
                        fixed.map(|&offset| gpu.evaluated(b, offset, definitions)).collect()
                    };
                    copies.iter().map(of).collect()
                });
                (self.program, self.values) = (program, kept);
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
        let names = copies.into_iter().map(|(ring, copy)| (ring.variable, copy));
        Some(Pair { alone, shared: names.zip(flags).collect() })
    }

    /// Arrives in the stead of the warps of a neighbour that is missing, in this turn of a loop.
    pub(super) fn stand_in(&self, b: &mut Builder, pair: &Pair, ring: &Ring, [empty, turn]: [Val; 2]) {
        // Those that let go in turns of earlier programs had neighbours.
        let first = b.int(Ty::I64, i64::from(ring.stages));
        let own = b.icmp(IntPredicate::Sge, turn, first);
        let stands_in = b.and(pair.alone, own);
        let text =
            format!("@$1 mbarrier.arrive.shared::cta.b64 _, [$0], {};", self.plan.distributed.num_warps);
        statement(b, &text, "l,b,~{memory}", &[empty, stands_in], &[]);
    }

    /// Lets the other block of a pair know that this warp has let go of the same place there.
    pub(super) fn arrive_at_other(&self, b: &mut Builder, empty: Val) {
        let zero = b.int(Ty::I32, 0);
        let first = b.icmp(IntPredicate::Eq, self.lane, zero);
        let text = format!(
            "{{\n.reg .b32 other;\n.reg .b64 far;\n{IF_PAIRED}and.pred paired, paired, $1;\nmov.u32 other, %cluster_ctarank;\n\
             xor.b32 other, other, 1;\n@paired mapa.shared::cluster.u64 far, $0, other;\n\
             @paired mbarrier.arrive.shared::cluster.b64 _, [far];\n}}"
        );
        statement(b, &text, "l,b,~{memory}", &[empty, first], &[]);
    }
}

/// Starts the copy of a matrix: to shared memory, by a map, with what counts its bytes, from there on, the innermost axis first.
pub(super) fn copy_matrix(b: &mut Builder, at: &[Val]) {
    let rank = at.len() - 3;
    let (copy, constraints) = copy_of(rank);
    let text = format!("{copy} [$0], [$1, {{{}}}], [$2];", coordinates(rank, "$4"));
    statement(b, &text, &format!("{constraints},~{{memory}}"), at, &[]);
}

/// The same of a matrix of so many rows in a launch of pairs: of one half to both blocks, or of both halves to this one. What differs is
/// computed in the statement: the thread that copies has no registers to keep it.
pub(super) fn copy_halves(b: &mut Builder, shared: Val, at: &[Val], [rows, line]: [u32; 2]) {
    let rank = at.len() - 3;
    let (copy, constraints) = copy_of(rank);
    let (half, bytes, flag) = (rows / 2, rows / 2 * line, at.len());
    let names = coordinates(rank, "row");
    let text = format!(
        "{{\n.reg .b32 which, row;\n.reg .b64 to;\n.reg .b16 both;\nmov.b16 both, {BOTH};\n\
         mov.u32 which, %cluster_ctarank;\nselp.b32 which, which, 0, ${flag};\n\
         mad.lo.s32 row, which, {half}, $4;\nmad.wide.u32 to, which, {bytes}, $0;\n\
         @${flag} {copy}.multicast::cluster [to], [$1, {{{names}}}], [$2], both;\n\
         @!${flag} {copy} [to], [$1, {{{names}}}], [$2];\n\
         add.s32 row, $4, {half};\nadd.s64 to, $0, {bytes};\n\
         @!${flag} {copy} [to], [$1, {{{names}}}], [$2];\n}}"
    );
    let operands: Vec<Val> = at.iter().copied().chain([shared]).collect();
    statement(b, &text, &format!("{constraints},b,~{{memory}}"), &operands, &[]);
}

/// The instruction for matrices of views of so many axes, and what its operands are.
fn copy_of(rank: usize) -> (String, String) {
    let copy = format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes");
    (copy, format!("l,l,l{}", ",r".repeat(rank)))
}

/// The coordinates of a matrix as the instruction takes them, with this for its first row.
fn coordinates(rank: usize, row: &str) -> String {
    let name = |axis: usize| if axis == 1 { row.to_string() } else { format!("${}", axis + 3) };
    (0..rank).map(name).collect::<Vec<String>>().join(", ")
}
