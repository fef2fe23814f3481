//! Which programs a block runs: one after the other, the first by its own number.
//!
//! Blocks of programs that take equally long pass over as many programs as there are blocks. Otherwise the thread that
//! copies takes the next number from a counter in global memory, as soon as it begins with a program. A block counts
//! once for each program that it runs, so the counter has wrapped to 0 when the last one ends. Without a counter there
//! is a block for each program.
//!
//! That thread is ahead of the warps that multiply, so it announces each program to them: its number, its place in the
//! grid, and quotients that the kernel computes from these. The number behind the last program ends them all.

use std::collections::HashMap;

use super::barriers::{BarrierPair, PipelineProgress, PipelineState};
use super::{MBARRIER_BYTES, TmaPipeline, differs};
use crate::gpu::emit::barrier::warp_barrier;
use crate::gpu::emit::{Gpu, IntPredicate, statement};
use crate::gpu::opt::select_wgmma::is_scalar_arithmetic;
use crate::ir::{Func, Op, Value};
use crate::mlir::builder::{BranchArm, Builder, LoopPart, Val};
use crate::mlir::lanes;
use crate::mlir::types::{Elem, Ty};
use crate::ops::scalar::ArithKind;
use crate::ops::{Kind, Scalar};

/// Programs that are announced ahead.
pub(super) const ANNOUNCED: u32 = 2;
/// Bytes of a program's number and place.
const PLACE: u32 = 16;
/// Bytes that a scalar takes.
const SCALAR: u32 = 8;

/// The quotients and remainders among a kernel's own scalars that differ between programs.
pub(super) fn quotients(func: &Func, definitions: &HashMap<Value, &Op>) -> Vec<Value> {
    let ops = func.body.ops.iter().filter(|op| {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return false };
        let (result, ty) = (op.results[0], func.ty(op.results[0]));
        let by_constant =
            || matches!(definitions.get(&args[1]), Some(op) if matches!(op.kind, Kind::Constant(_)));
        matches!(row.algebra, ArithKind::Div | ArithKind::Rem)
            && ty.is_scalar()
            && ty.dtype.is_integer()
            && ty.dtype.bytes() >= 4
            && !by_constant()
            && differs(result, definitions)
            && is_scalar_arithmetic(func, definitions, result, None)
    });
    ops.map(|op| op.results[0]).collect()
}

/// A program as it is announced.
struct WorkTile {
    number: Val,
    place: [Val; 3],
    told: Vec<Val>,
}

impl WorkTile {
    fn flat(self) -> Vec<Val> {
        [self.number].into_iter().chain(self.place).chain(self.told).collect()
    }

    fn of(flat: &[Val]) -> WorkTile {
        WorkTile { number: flat[0], place: [flat[1], flat[2], flat[3]], told: flat[4..].to_vec() }
    }
}

impl TmaPipeline {
    /// Bytes of an announcement.
    pub(super) fn announcement(&self) -> u32 {
        (PLACE + SCALAR * self.told.len() as u32).next_multiple_of(16)
    }

    /// Where the number that the counter gave last is kept: behind the announcements and their barrier objects.
    fn counted_number(&self) -> u32 {
        self.announcements + ANNOUNCED * (self.announcement() + 2 * MBARRIER_BYTES)
    }

    /// The end of all this.
    pub(super) fn announcing_end(&self) -> u32 {
        self.counted_number() + if self.counted { MBARRIER_BYTES } else { 0 }
    }
}

impl Gpu<'_> {
    /// How many programs there are; the runtime sees to it that an `i32` counts them.
    fn all_programs(&self, b: &mut Builder) -> Val {
        let [x, y, z] = self.grid;
        let row = b.mul(x, y);
        b.mul(row, z)
    }

    /// Runs the block's programs in the warps that multiply.
    pub(super) fn programs(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        run: impl FnOnce(&mut Self, &mut Builder),
    ) {
        let all = self.all_programs(b);
        let start = pipeline.start(b, false);
        let slot = PipelineState::first(b, false);
        let announced = self.heard(b, pipeline, slot).flat();
        let (counts, values) = (announced.len(), self.values.clone());
        let next = slot.next(b, ANNOUNCED).flat();
        let inits: Vec<Val> = announced.into_iter().chain(next).chain(pipeline.flat(&start)).collect();
        let mut run = Some(run);
        b.while_loop(&inits, |b, part, carried| {
            let (announced, rest) = carried.split_at(counts);
            let WorkTile { number, place, told } = WorkTile::of(announced);
            if part == LoopPart::Test {
                return vec![b.icmp(IntPredicate::Ult, number, all)];
            }
            let (slot, progress) = (PipelineState::of(&rest[..2]), pipeline.progress(&rest[2..]));
            let run = run.take().expect("the body is built once");
            self.scope(|gpu| {
                let own = std::mem::replace(&mut gpu.program, place);
                gpu.progress = progress;
                for (&value, own) in pipeline.told.iter().zip(told) {
                    gpu.define(value, vec![own]);
                }
                gpu.rematerialize(b, |gpu, b| run(gpu, b));
                if gpu.smem.is_scratch_used() {
                    gpu.barrier(b);
                }
                gpu.next_program(b, pipeline);
                gpu.program = own;
                let next = slot.next(b, ANNOUNCED).flat();
                let announced = gpu.heard(b, pipeline, slot).flat();
                announced.into_iter().chain(next).chain(pipeline.flat(&gpu.progress)).collect()
            })
        });
        self.values = values;
    }

    /// Copies for the block's programs, and announces them.
    pub(super) fn announced_programs(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let all = self.all_programs(b);
        let step = b.op("nvvm.read.ptx.sreg.nctaid.x", &[], Ty::I32);
        let start = pipeline.start(b, true);
        let slot = PipelineState::first(b, true);
        let (own, values) = (self.program, self.values.clone());
        let definitions = self.func.definitions();
        let inits: Vec<Val> = [own[0]].into_iter().chain(slot.flat()).chain(pipeline.flat(&start)).collect();
        let ends = b.while_loop(&inits, |b, part, carried| {
            let number = carried[0];
            if part == LoopPart::Test {
                return vec![b.icmp(IntPredicate::Ult, number, all)];
            }
            let (slot, progress) = (PipelineState::of(&carried[1..3]), pipeline.progress(&carried[3..]));
            self.scope(|gpu| {
                let counted = gpu.count_program(b, number, all);
                let place = gpu.place_of(b, number);
                (gpu.program, gpu.progress) = (place, progress);
                let told = gpu.told(b, pipeline, &definitions);
                gpu.announce(b, pipeline, slot, WorkTile { number, place, told });
                let peer = gpu.peer_of(b, pipeline, [number, all], &values, &definitions);
                gpu.produce(b, pipeline, peer.as_ref(), &definitions);
                gpu.values = values.clone();
                gpu.next_program(b, pipeline);
                let next = gpu.next_number(b, pipeline, (number, counted), step);
                let slot = slot.next(b, ANNOUNCED).flat();
                [next].into_iter().chain(slot).chain(pipeline.flat(&gpu.progress)).collect()
            })
        });
        let zero = b.int(Ty::I32, 0);
        let told = pipeline.told.iter().map(|&value| b.zero(self.register_type(value))).collect();
        let end = WorkTile { number: ends[0], place: [zero; 3], told };
        self.announce(b, pipeline, PipelineState::of(&ends[1..3]), end);
        self.program = own;
    }

    /// The place in the grid of the program with this number. Grids of one axis, and small ones, need no division; those of programs that
    /// are counted have more.
    pub(super) fn place_of(&self, b: &mut Builder, number: Val) -> [Val; 3] {
        if self.tile_counter.is_some() {
            return self.longest_first(b, number);
        }
        let in_first_row = b.icmp(IntPredicate::Ult, number, self.grid[0]);
        let place = b.branch(in_first_row, &[Ty::I32; 3], |b, arm| match arm {
            BranchArm::Then => {
                let zero = b.int(Ty::I32, 0);
                vec![number, zero, zero]
            }
            BranchArm::Else => self.row_by_row(b, number).to_vec(),
        });
        [place[0], place[1], place[2]]
    }

    /// The quotients and remainders that a program is told: one division for each pair of operands.
    pub(super) fn told(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        definitions: &HashMap<Value, &Op>,
    ) -> Vec<Val> {
        let mut known: HashMap<[Value; 2], Val> = HashMap::new();
        for &value in &pipeline.told {
            let Kind::Scalar(Scalar { op: row, args, .. }) = &definitions[&value].kind else {
                unreachable!("quotients are scalar operations");
            };
            let operands = [args[0], args[1]];
            let quotient = match known.get(&operands) {
                Some(&quotient) => quotient,
                None => {
                    let quotient = self.quotient(b, operands, definitions);
                    known.insert(operands, quotient);
                    quotient
                }
            };
            let [dividend, divisor] = operands.map(|operand| self.scalar(operand));
            let result = if row.algebra == ArithKind::Rem {
                let whole = b.mul(quotient, divisor);
                b.sub(dividend, whole)
            } else {
                quotient
            };
            self.define(value, vec![result]);
        }
        pipeline.told.iter().map(|&value| self.scalar(value)).collect()
    }

    /// A quotient of scalars. A division takes a thread a hundred clocks and more, before its first copy: where the dividend is the
    /// smaller, as a tile's number is in the first group of tiles, there is none.
    fn quotient(&mut self, b: &mut Builder, operands: [Value; 2], definitions: &HashMap<Value, &Op>) -> Val {
        let [dividend, divisor] = operands.map(|operand| self.evaluated(b, operand, definitions));
        let dtype = self.func.ty(operands[0]).dtype;
        let [natural, positive] =
            [(0, 0), (1, 1)].map(|(i, least): (usize, i128)| self.info(operands[i]).range.0 >= least);
        let (zero, ty) = (b.int(dividend.ty, 0), dividend.ty);
        let less = if dtype.is_signed() { IntPredicate::Slt } else { IntPredicate::Ult };
        let mut smaller = b.icmp(less, dividend, divisor);
        if dtype.is_signed() && !natural {
            let not_negative = b.icmp(IntPredicate::Sge, dividend, zero);
            smaller = b.and(smaller, not_negative);
        }
        let quotient = b.branch(smaller, &[ty], |b, arm| match arm {
            BranchArm::Then => vec![zero],
            BranchArm::Else if natural && positive => vec![b.udiv(dividend, divisor)],
            BranchArm::Else => vec![lanes::div(b, &[dividend, divisor], dtype)],
        });
        quotient[0]
    }

    /// The places of what is copied once for the program after this one.
    fn next_program(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let PipelineProgress { once, .. } = &mut self.progress;
        *once = once.map(|turn| turn.next(b, pipeline.parts));
    }

    /// Takes the next number from the counter, if there is one.
    fn count_program(&self, b: &mut Builder, number: Val, all: Val) -> Option<Val> {
        let counter = self.tile_counter?;
        let one = b.int(Ty::I32, 1);
        let last = b.sub(all, one);
        let text = "{\n.reg .pred counts;\nsetp.ne.b64 counts, $1, 0;\nmov.b32 $0, $3;\n@counts atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;\n}";
        let counted = statement(b, text, "=&r,l,r,r,~{memory}", &[counter, last, number], &[Ty::I32]);
        Some(counted[0])
    }

    /// The number of the block's program after this one. Each block's first program is its own; those behind are counted.
    fn next_number(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        (number, counted): (Val, Option<Val>),
        step: Val,
    ) -> Val {
        let Some(counted) = counted else { return b.add(number, step) };
        // `ptxas` waits for the counter where a register of a whole warp takes what it gives, which is right behind it.
        // Memory takes it from a thread's own register: by then all copies of this program are under way.
        let place = b.offset_bytes(self.smem_base(), pipeline.counted_number() as i32);
        let text = "st.volatile.shared.b32 [$1], $2;\nld.volatile.shared.b32 $0, [$1];";
        let before = statement(b, text, "=r,l,r,~{memory}", &[place, counted], &[Ty::I32])[0];
        b.add(before, step)
    }

    fn announcement_signals(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        slot: PipelineState,
    ) -> BarrierPair {
        let first = pipeline.announcements + ANNOUNCED * pipeline.announcement();
        let full = self.at(b, first, slot.part, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, (ANNOUNCED * MBARRIER_BYTES) as i32) }
    }

    fn announce(&self, b: &mut Builder, pipeline: &TmaPipeline, slot: PipelineState, program: WorkTile) {
        let BarrierPair { full, empty } = self.announcement_signals(b, pipeline, slot);
        self.await_phase(b, empty, slot.parity);
        let to = self.at(b, pipeline.announcements, slot.part, pipeline.announcement());
        let WorkTile { number, place: [x, y, z], told } = program;
        let text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};";
        statement(b, text, "l,r,r,r,r,~{memory}", &[to, number, x, y, z], &[]);
        for (i, value) in told.into_iter().enumerate() {
            let (suffix, letter) = word(value.ty);
            let text = format!("st.shared.{suffix} [$0 + {}], $1;", PLACE + SCALAR * i as u32);
            statement(b, &text, &format!("l,{letter},~{{memory}}"), &[to, value], &[]);
        }
        statement(b, "mbarrier.arrive.shared::cta.b64 _, [$0];", "l,~{memory}", &[full], &[]);
    }

    /// The program that is announced next.
    fn heard(&mut self, b: &mut Builder, pipeline: &TmaPipeline, slot: PipelineState) -> WorkTile {
        let BarrierPair { full, empty } = self.announcement_signals(b, pipeline, slot);
        self.await_phase(b, full, slot.parity);
        let from = self.at(b, pipeline.announcements, slot.part, pipeline.announcement());
        let text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];";
        let mut flat = statement(b, text, "=r,=r,=r,=r,l,~{memory}", &[from], &[Ty::I32; 4]);
        for (i, &value) in pipeline.told.iter().enumerate() {
            let ty = self.register_type(value);
            let (suffix, letter) = word(ty);
            let text = format!("ld.shared.{suffix} $0, [$1 + {}];", PLACE + SCALAR * i as u32);
            flat.extend(statement(b, &text, &format!("={letter},l,~{{memory}}"), &[from], &[ty]));
        }
        let flat: Vec<Val> = flat.into_iter().map(|value| self.uniform(b, value)).collect();
        warp_barrier(b);
        self.arrive(b, empty);
        WorkTile::of(&flat)
    }
}

/// How PTX names a word of this type, and the letter of its registers.
fn word(ty: Ty) -> (&'static str, &'static str) {
    if ty.elem == Elem::I64 { ("b64", "l") } else { ("b32", "r") }
}
