//! The tile scheduler of persistent blocks: which programs a block runs one after the other, the first by its own
//! index.
//!
//! Programs of equal length are assigned statically: the next index is as many further as there are blocks. Otherwise
//! the scheduler is dynamic: the producer takes the next index from a counter in global memory, as soon as it begins
//! a program. A block counts once for each program that it runs, so the counter has wrapped to 0 when the last one
//! ends. Without a counter buffer there is a block for each program.
//!
//! The producer is ahead of the consumers, so it publishes each work tile to them: its index, its grid coordinates,
//! and quotients that the kernel computes from these. An index behind the last program ends the block.

use std::collections::HashMap;

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Kind, Scalar};

use super::barriers::{BarrierPair, PipelineProgress, PipelineState};
use super::{MBARRIER_BYTES, TmaPipeline, varies_by_program};
use crate::gpu::emit::barrier::warp_barrier;
use crate::gpu::emit::{Gpu, IntPredicate, statement};
use crate::gpu::opt::select_wgmma::is_scalar_arithmetic;
use crate::mlir::builder::{BranchArm, Builder, LoopPart, Val};
use crate::mlir::lanes;
use crate::mlir::types::{Elem, Ty};

/// Work tiles that are published before consumers take them.
pub(super) const WORK_TILE_STAGES: u32 = 2;
/// Bytes of a work tile's index and coordinates.
const COORD_BYTES: u32 = 16;
/// Bytes of a scalar.
const SCALAR_BYTES: u32 = 8;

/// The quotients and remainders among a kernel's own scalars that differ between programs.
pub(super) fn quotients(func: &Func, definitions: &HashMap<Value, &Op>) -> Vec<Value> {
    let ops = func.body.ops.iter().filter(|op| {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return false };
        let (result, ty) = (op.results[0], func.ty(op.results[0]));
        let by_constant =
            || matches!(definitions.get(&args[1]), Some(op) if matches!(op.kind, Kind::Constant(_)));
        matches!(row.arith, ArithKind::Div | ArithKind::Rem)
            && ty.is_scalar()
            && ty.dtype.is_integer()
            && ty.dtype.bytes() >= 4
            && !by_constant()
            && varies_by_program(result, definitions)
            && is_scalar_arithmetic(func, definitions, result, None)
    });
    ops.map(|op| op.results[0]).collect()
}

/// A program as it is published.
struct WorkTile {
    index: Val,
    coord: [Val; 3],
    scalars: Vec<Val>,
}

impl WorkTile {
    fn flatten(self) -> Vec<Val> {
        [self.index].into_iter().chain(self.coord).chain(self.scalars).collect()
    }

    fn of(flat: &[Val]) -> WorkTile {
        WorkTile { index: flat[0], coord: [flat[1], flat[2], flat[3]], scalars: flat[4..].to_vec() }
    }
}

impl TmaPipeline {
    /// Bytes of a published work tile.
    pub(super) fn work_tile_bytes(&self) -> u32 {
        (COORD_BYTES + SCALAR_BYTES * self.tile_scalars.len() as u32).next_multiple_of(16)
    }

    /// Where the counter's last index is stored: behind the work tiles and their barriers.
    fn counter_slot(&self) -> u32 {
        self.work_tiles + WORK_TILE_STAGES * (self.work_tile_bytes() + 2 * MBARRIER_BYTES)
    }

    /// The end of the shared memory of a kernel.
    pub(super) fn smem_end(&self) -> u32 {
        self.counter_slot() + if self.is_dynamic { MBARRIER_BYTES } else { 0 }
    }
}

impl Gpu<'_> {
    /// How many programs there are; the runtime sees to it that an `i32` counts them.
    fn program_count(&self, b: &mut Builder) -> Val {
        let [x, y, z] = self.grid;
        let row = b.mul(x, y);
        b.mul(row, z)
    }

    /// Runs the programs of a block in the consumer warpgroups.
    pub(super) fn run_work_tiles(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        run: impl FnOnce(&mut Self, &mut Builder),
    ) {
        let programs = self.program_count(b);
        let start = pipeline.initial_progress(b, false);
        let state = PipelineState::first(b, false);
        let work = self.next_work(b, pipeline, state).flatten();
        let (work_values, values) = (work.len(), self.values.clone());
        let next = state.next(b, WORK_TILE_STAGES).flatten();
        let inits: Vec<Val> = work.into_iter().chain(next).chain(pipeline.flatten(&start)).collect();
        let mut run = Some(run);
        b.while_loop(&inits, |b, part, carried| {
            let (work, rest) = carried.split_at(work_values);
            let WorkTile { index, coord, scalars } = WorkTile::of(work);
            if part == LoopPart::Test {
                return vec![b.icmp(IntPredicate::Ult, index, programs)];
            }
            let (state, progress) = (PipelineState::of(&rest[..2]), pipeline.progress(&rest[2..]));
            let run = run.take().expect("the body is built once");
            self.scope(|gpu| {
                let own = std::mem::replace(&mut gpu.program, coord);
                gpu.progress = progress;
                for (&value, own) in pipeline.tile_scalars.iter().zip(scalars) {
                    gpu.define(value, vec![own]);
                }
                gpu.rematerialize(b, |gpu, b| run(gpu, b));
                if gpu.smem.is_scratch_used() {
                    gpu.barrier(b);
                }
                gpu.advance_resident(b, pipeline);
                gpu.program = own;
                let next = state.next(b, WORK_TILE_STAGES).flatten();
                let work = gpu.next_work(b, pipeline, state).flatten();
                work.into_iter().chain(next).chain(pipeline.flatten(&gpu.progress)).collect()
            })
        });
        self.values = values;
    }

    /// Issues the loads of a block's programs, and publishes their work tiles.
    pub(super) fn schedule_work_tiles(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let programs = self.program_count(b);
        let step = b.op("nvvm.read.ptx.sreg.nctaid.x", &[], Ty::I32);
        let start = pipeline.initial_progress(b, true);
        let state = PipelineState::first(b, true);
        let (own, values) = (self.program, self.values.clone());
        let definitions = self.func.definitions();
        let inits: Vec<Val> =
            [own[0]].into_iter().chain(state.flatten()).chain(pipeline.flatten(&start)).collect();
        let ends = b.while_loop(&inits, |b, part, carried| {
            let index = carried[0];
            if part == LoopPart::Test {
                return vec![b.icmp(IntPredicate::Ult, index, programs)];
            }
            let (state, progress) = (PipelineState::of(&carried[1..3]), pipeline.progress(&carried[3..]));
            self.scope(|gpu| {
                let count = gpu.advance_counter(b, index, programs);
                let coord = gpu.program_at(b, index);
                (gpu.program, gpu.progress) = (coord, progress);
                let scalars = gpu.compute_tile_scalars(b, pipeline, &definitions);
                gpu.publish(b, pipeline, state, WorkTile { index, coord, scalars });
                let peer = gpu.peer_of(b, pipeline, [index, programs], &values, &definitions);
                gpu.produce(b, pipeline, peer.as_ref(), &definitions);
                gpu.values = values.clone();
                gpu.advance_resident(b, pipeline);
                let next = gpu.next_index(b, pipeline, (index, count), step);
                let state = state.next(b, WORK_TILE_STAGES).flatten();
                [next].into_iter().chain(state).chain(pipeline.flatten(&gpu.progress)).collect()
            })
        });
        let zero = b.int(Ty::I32, 0);
        let scalars = pipeline.tile_scalars.iter().map(|&value| b.zero(self.register_type(value))).collect();
        let end = WorkTile { index: ends[0], coord: [zero; 3], scalars };
        self.publish(b, pipeline, PipelineState::of(&ends[1..3]), end);
        self.program = own;
    }

    /// The grid coordinates of the program with this index. Grids of one axis, and small ones, need no division; with
    /// a counter, grids have more.
    pub(super) fn program_at(&self, b: &mut Builder, index: Val) -> [Val; 3] {
        if self.tile_counter.is_some() {
            return self.longest_first(b, index);
        }
        let in_first_row = b.icmp(IntPredicate::Ult, index, self.grid[0]);
        let coord = b.branch(in_first_row, &[Ty::I32; 3], |b, arm| match arm {
            BranchArm::Then => {
                let zero = b.int(Ty::I32, 0);
                vec![index, zero, zero]
            }
            BranchArm::Else => self.row_major(b, index).to_vec(),
        });
        [coord[0], coord[1], coord[2]]
    }

    /// The quotients and remainders of a work tile: one division for each pair of operands.
    pub(super) fn compute_tile_scalars(
        &mut self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        definitions: &HashMap<Value, &Op>,
    ) -> Vec<Val> {
        let mut known: HashMap<[Value; 2], Val> = HashMap::new();
        for &value in &pipeline.tile_scalars {
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
            let result = if row.arith == ArithKind::Rem {
                let whole = b.mul(quotient, divisor);
                b.sub(dividend, whole)
            } else {
                quotient
            };
            self.define(value, vec![result]);
        }
        pipeline.tile_scalars.iter().map(|&value| self.scalar(value)).collect()
    }

    /// A quotient of scalars. A division takes the producer a hundred clocks and more, before its first load: none
    /// where the dividend is the smaller, as a tile's index is in the first group of tiles.
    fn quotient(&mut self, b: &mut Builder, operands: [Value; 2], definitions: &HashMap<Value, &Op>) -> Val {
        let [dividend, divisor] = operands.map(|operand| self.evaluate(b, operand, definitions));
        let dtype = self.func.ty(operands[0]).dtype;
        let [is_natural, is_positive] =
            [(0, 0), (1, 1)].map(|(i, least): (usize, i128)| self.info(operands[i]).range.0 >= least);
        let (zero, ty) = (b.int(dividend.ty, 0), dividend.ty);
        let less = if dtype.is_signed() { IntPredicate::Slt } else { IntPredicate::Ult };
        let mut smaller = b.icmp(less, dividend, divisor);
        if dtype.is_signed() && !is_natural {
            let not_negative = b.icmp(IntPredicate::Sge, dividend, zero);
            smaller = b.and(smaller, not_negative);
        }
        let quotient = b.branch(smaller, &[ty], |b, arm| match arm {
            BranchArm::Then => vec![zero],
            BranchArm::Else if is_natural && is_positive => vec![b.udiv(dividend, divisor)],
            BranchArm::Else => vec![lanes::div(b, &[dividend, divisor], dtype)],
        });
        quotient[0]
    }

    /// Advances the resident buffers to the next program.
    fn advance_resident(&mut self, b: &mut Builder, pipeline: &TmaPipeline) {
        let PipelineProgress { resident, .. } = &mut self.progress;
        *resident = resident.map(|state| state.next(b, pipeline.resident_stages));
    }

    /// Takes the next index from the counter, if there is one.
    fn advance_counter(&self, b: &mut Builder, index: Val, programs: Val) -> Option<Val> {
        let counter = self.tile_counter?;
        let one = b.int(Ty::I32, 1);
        let last = b.sub(programs, one);
        let text = "{\n.reg .pred counts;\nsetp.ne.b64 counts, $1, 0;\nmov.b32 $0, $3;\n@counts atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;\n}";
        let count = statement(b, text, "=&r,l,r,r,~{memory}", &[counter, last, index], &[Ty::I32]);
        Some(count[0])
    }

    /// The index of the block's next program. Each block's first program is its own index; those behind come from the
    /// counter.
    fn next_index(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        (index, count): (Val, Option<Val>),
        step: Val,
    ) -> Val {
        let Some(count) = count else { return b.add(index, step) };
        // `ptxas` waits for the counter where a uniform register takes its result, which is right behind it. Memory
        // takes it from a thread's own register: by then all loads of this program are in flight.
        let slot = b.offset_bytes(self.smem_base(), pipeline.counter_slot() as i32);
        let text = "st.volatile.shared.b32 [$1], $2;\nld.volatile.shared.b32 $0, [$1];";
        let count = statement(b, text, "=r,l,r,~{memory}", &[slot, count], &[Ty::I32])[0];
        b.add(count, step)
    }

    fn work_tile_barriers(
        &self,
        b: &mut Builder,
        pipeline: &TmaPipeline,
        state: PipelineState,
    ) -> BarrierPair {
        let first = pipeline.work_tiles + WORK_TILE_STAGES * pipeline.work_tile_bytes();
        let full = self.at(b, first, state.stage, MBARRIER_BYTES);
        BarrierPair { full, empty: b.offset_bytes(full, (WORK_TILE_STAGES * MBARRIER_BYTES) as i32) }
    }

    fn publish(&self, b: &mut Builder, pipeline: &TmaPipeline, state: PipelineState, program: WorkTile) {
        let BarrierPair { full, empty } = self.work_tile_barriers(b, pipeline, state);
        self.wait_phase(b, empty, state.phase);
        let to = self.at(b, pipeline.work_tiles, state.stage, pipeline.work_tile_bytes());
        let WorkTile { index, coord: [x, y, z], scalars } = program;
        let text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};";
        statement(b, text, "l,r,r,r,r,~{memory}", &[to, index, x, y, z], &[]);
        for (i, value) in scalars.into_iter().enumerate() {
            let (suffix, letter) = word(value.ty);
            let text = format!("st.shared.{suffix} [$0 + {}], $1;", COORD_BYTES + SCALAR_BYTES * i as u32);
            statement(b, &text, &format!("l,{letter},~{{memory}}"), &[to, value], &[]);
        }
        statement(b, "mbarrier.arrive.shared::cta.b64 _, [$0];", "l,~{memory}", &[full], &[]);
    }

    /// The work tile that is published next.
    fn next_work(&mut self, b: &mut Builder, pipeline: &TmaPipeline, state: PipelineState) -> WorkTile {
        let BarrierPair { full, empty } = self.work_tile_barriers(b, pipeline, state);
        self.wait_phase(b, full, state.phase);
        let from = self.at(b, pipeline.work_tiles, state.stage, pipeline.work_tile_bytes());
        let text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];";
        let mut flat = statement(b, text, "=r,=r,=r,=r,l,~{memory}", &[from], &[Ty::I32; 4]);
        for (i, &value) in pipeline.tile_scalars.iter().enumerate() {
            let ty = self.register_type(value);
            let (suffix, letter) = word(ty);
            let text = format!("ld.shared.{suffix} $0, [$1 + {}];", COORD_BYTES + SCALAR_BYTES * i as u32);
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
