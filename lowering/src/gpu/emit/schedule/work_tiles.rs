//! The tile scheduler: the programs that a persistent block runs one after the other, the first by its own index.
//!
//! The next index is as many further as there are blocks, or comes from a counter in global memory, which the producer takes as soon as
//! it begins a program. A block counts once for each program that it runs, so the counter has wrapped to 0 when the last one ends.
//! Without a counter buffer there is a block for each program.
//!
//! The producer is ahead of the consumers, so it publishes each work tile to them: its index, its grid coordinates, and scalars that the
//! kernel computes from these. An index behind the last program ends the block.

use super::PipelineState;
use crate::gpu::emit::barrier::warp_barrier;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Gpu, IntPredicate, statement};
use crate::gpu::schedule::MBARRIER_BYTES;
use crate::gpu::schedule::work_tiles::{WORK_TILE_STAGES, WorkTileLayout};
use crate::mlir::builder::{BranchArm, Builder, LoopPart, Val};
use crate::mlir::lanes;
use crate::mlir::types::{Elem, Ty};
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::Role;
use tile_ir::ops::{Kind, Publish, TileQuotient, WorkTiles};

/// A program as it is published.
pub(in crate::gpu::emit) struct WorkTile {
    pub index: Val,
    pub coord: [Val; 3],
    pub scalars: Vec<Val>,
}

impl WorkTile {
    pub fn flatten(self) -> Vec<Val> {
        [self.index].into_iter().chain(self.coord).chain(self.scalars).collect()
    }

    pub fn of(flat: &[Val]) -> WorkTile {
        WorkTile { index: flat[0], coord: [flat[1], flat[2], flat[3]], scalars: flat[4..].to_vec() }
    }
}

/// The program that the producer is at.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct CurrentWorkTile {
    pub index: Val,
    /// How many programs there are.
    pub programs: Val,
    /// Where it is published.
    pub layout: WorkTileLayout,
    pub state: PipelineState,
}

impl Gpu<'_> {
    /// How many programs there are; the runtime sees to it that an `i32` counts them.
    pub(in crate::gpu::emit) fn program_count(&self, b: &mut Builder) -> Val {
        let [x, y, z] = self.entry.grid;
        let row = b.mul(x, y);
        b.mul(row, z)
    }

    /// The grid coordinates of the program with this index. Grids of one axis, and small ones, need no division; with
    /// a counter, grids have more.
    pub(in crate::gpu::emit) fn program_at(&self, b: &mut Builder, index: Val) -> [Val; 3] {
        if self.entry.tile_counter.is_some() {
            return self.longest_first(b, index);
        }
        let in_first_row = b.icmp(IntPredicate::Ult, index, self.entry.grid[0]);
        let coord = b.branch(in_first_row, &[Ty::I32; 3], |b, arm| match arm {
            BranchArm::Then => {
                let zero = b.int(Ty::I32, 0);
                vec![index, zero, zero]
            }
            BranchArm::Else => self.row_major(b, index).to_vec(),
        });
        [coord[0], coord[1], coord[2]]
    }

    /// A quotient of scalars. A division takes the producer a hundred clocks and more, before its first load: none
    /// where the dividend is the smaller, as a tile's index is in the first group of tiles.
    pub(in crate::gpu::emit) fn tile_quotient(&mut self, b: &mut Builder, operands: [Value; 2]) -> Val {
        let [dividend, divisor] = operands.map(|operand| self.scalar(operand));
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

    /// Takes the next index from the counter, if there is one.
    pub(in crate::gpu::emit) fn advance_counter(
        &self,
        b: &mut Builder,
        index: Val,
        programs: Val,
    ) -> Option<Val> {
        let counter = self.entry.tile_counter?;
        let one = b.int(Ty::I32, 1);
        let last = b.sub(programs, one);
        let text = "{\n.reg .pred counts;\nsetp.ne.b64 counts, $1, 0;\nmov.b32 $0, $3;\n@counts atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;\n}";
        let count = statement(b, text, "=&r,l,r,r,~{memory}", &[counter, last, index], &[Ty::I32]);
        Some(count[0])
    }

    /// The index of the block's program behind this one: by what was taken from the counter, if there is one. Each block's
    /// first program is its own index.
    pub(in crate::gpu::emit) fn next_index(
        &self,
        b: &mut Builder,
        tile: CurrentWorkTile,
        count: Option<Val>,
        step: Val,
    ) -> Val {
        let Some(count) = count else { return b.add(tile.index, step) };
        // `ptxas` waits for the counter where a uniform register takes its result, which is right behind it. Memory
        // takes it from a thread's own register: by then all loads of this program are in flight.
        let slot = b.offset_bytes(self.smem_base(), tile.layout.counter_slot() as i32);
        let text = "st.volatile.shared.b32 [$1], $2;\nld.volatile.shared.b32 $0, [$1];";
        let count = statement(b, text, "=r,l,r,~{memory}", &[slot, count], &[Ty::I32])[0];
        b.add(count, step)
    }

    /// The full and the empty barrier of a published work tile.
    fn work_tile_barriers(&self, b: &mut Builder, layout: WorkTileLayout, state: PipelineState) -> [Val; 2] {
        let full = self.at(b, layout.full_barriers(), state.stage, MBARRIER_BYTES);
        let distance = layout.empty_barriers() - layout.full_barriers();
        [full, b.offset_bytes(full, distance as i32)]
    }

    pub(in crate::gpu::emit) fn publish(
        &self,
        b: &mut Builder,
        layout: WorkTileLayout,
        state: PipelineState,
        tile: WorkTile,
    ) {
        let [full, empty] = self.work_tile_barriers(b, layout, state);
        self.wait_phase(b, empty, state.phase);
        let to = self.at(b, layout.address, state.stage, layout.tile_bytes());
        let WorkTile { index, coord: [x, y, z], scalars } = tile;
        let text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};";
        statement(b, text, "l,r,r,r,r,~{memory}", &[to, index, x, y, z], &[]);
        for (i, value) in scalars.into_iter().enumerate() {
            let (suffix, letter) = word(value.ty);
            let text = format!("st.shared.{suffix} [$0 + {}], $1;", WorkTileLayout::scalar_offset(i));
            statement(b, &text, &format!("l,{letter},~{{memory}}"), &[to, value], &[]);
        }
        statement(b, "mbarrier.arrive.shared::cta.b64 _, [$0];", "l,~{memory}", &[full], &[]);
    }

    /// The work tile that is published next, with scalars of these types.
    pub(in crate::gpu::emit) fn next_work(
        &mut self,
        b: &mut Builder,
        layout: WorkTileLayout,
        state: PipelineState,
        scalars: &[Ty],
    ) -> WorkTile {
        let [full, empty] = self.work_tile_barriers(b, layout, state);
        self.wait_phase(b, full, state.phase);
        let from = self.at(b, layout.address, state.stage, layout.tile_bytes());
        let text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];";
        let mut flat = statement(b, text, "=r,=r,=r,=r,l,~{memory}", &[from], &[Ty::I32; 4]);
        for (i, &ty) in scalars.iter().enumerate() {
            let (suffix, letter) = word(ty);
            let text = format!("ld.shared.{suffix} $0, [$1 + {}];", WorkTileLayout::scalar_offset(i));
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

fn layout(tiles: &WorkTiles) -> WorkTileLayout {
    WorkTileLayout { address: tiles.address, scalars: tiles.scalars.len() as u32 }
}

/// Runs the programs in the consumer warpgroups.
fn consume(tiles: &WorkTiles, gpu: &mut Gpu, b: &mut Builder) {
    let layout = layout(tiles);
    let types = gpu.types(tiles.published());
    let programs = gpu.program_count(b);
    let state = PipelineState::first(b, Role::Consumer);
    let work = gpu.next_work(b, layout, state, &types).flatten();
    let work_values = work.len();
    let next = state.next(b, WORK_TILE_STAGES).flatten();
    let inits: Vec<Val> = work.into_iter().chain(next).chain(gpu.flatten(&tiles.inits)).collect();
    b.while_loop(&inits, |b, part, carried| {
        let (work, rest) = carried.split_at(work_values);
        let WorkTile { index, coord, scalars } = WorkTile::of(work);
        if part == LoopPart::Test {
            return vec![b.icmp(IntPredicate::Ult, index, programs)];
        }
        gpu.scope(|gpu| {
            let own = std::mem::replace(&mut gpu.program.coord, coord);
            let state = PipelineState::of(&rest[..2]);
            gpu.define_all(tiles.states(), &rest[2..]);
            gpu.define_all(tiles.published(), &scalars);
            gpu.rematerialize(b, |gpu, b| gpu.block(b, &tiles.body));
            gpu.program.coord = own;
            let next = state.next(b, WORK_TILE_STAGES).flatten();
            let work = gpu.next_work(b, layout, state, &types).flatten();
            work.into_iter().chain(next).chain(gpu.flatten(&tiles.body.yields)).collect()
        })
    });
}

/// Schedules the programs in the producer, and publishes the end behind the last one.
fn produce(tiles: &WorkTiles, gpu: &mut Gpu, b: &mut Builder) {
    let layout = layout(tiles);
    let programs = gpu.program_count(b);
    let step = b.op("nvvm.read.ptx.sreg.nctaid.x", &[], Ty::I32);
    let state = PipelineState::first(b, Role::Producer);
    let (own, outer) = (gpu.program.coord, gpu.program.work_tile);
    let inits: Vec<Val> =
        [own[0]].into_iter().chain(state.flatten()).chain(gpu.flatten(&tiles.inits)).collect();
    let ends = b.while_loop(&inits, |b, part, carried| {
        let index = carried[0];
        if part == LoopPart::Test {
            return vec![b.icmp(IntPredicate::Ult, index, programs)];
        }
        let state = PipelineState::of(&carried[1..3]);
        gpu.scope(|gpu| {
            let count = gpu.advance_counter(b, index, programs);
            gpu.program.coord = gpu.program_at(b, index);
            let tile = CurrentWorkTile { index, programs, layout, state };
            gpu.program.work_tile = Some(tile);
            gpu.define_all(tiles.states(), &carried[3..]);
            gpu.block(b, &tiles.body);
            let next = gpu.next_index(b, tile, count, step);
            let state = state.next(b, WORK_TILE_STAGES).flatten();
            [next].into_iter().chain(state).chain(gpu.flatten(&tiles.body.yields)).collect()
        })
    });
    let zero = b.int(Ty::I32, 0);
    let scalars = published_types(tiles, gpu).into_iter().map(|ty| b.zero(ty)).collect();
    let end = WorkTile { index: ends[0], coord: [zero; 3], scalars };
    gpu.publish(b, layout, PipelineState::of(&ends[1..3]), end);
    (gpu.program.coord, gpu.program.work_tile) = (own, outer);
}

/// The machine types of the scalars that the producer's body publishes.
fn published_types(tiles: &WorkTiles, gpu: &Gpu) -> Vec<Ty> {
    let mut types = vec![];
    for op in &tiles.body.ops {
        if let Kind::Publish(publish) = &op.kind {
            types = gpu.types(&publish.scalars);
        }
    }
    types
}

impl GpuEmit for WorkTiles {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        match self.role {
            Role::Producer => produce(self, gpu, b),
            Role::Consumer => consume(self, gpu, b),
        }
    }
}

impl GpuEmit for Publish {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let CurrentWorkTile { index, layout, state, .. } =
            gpu.program.work_tile.expect("a producer has a work tile");
        let scalars = gpu.flatten(&self.scalars);
        gpu.publish(b, layout, state, WorkTile { index, coord: gpu.program.coord, scalars });
    }
}

impl GpuEmit for TileQuotient {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let quotient = gpu.tile_quotient(b, [self.dividend, self.divisor]);
        gpu.define(op.results[0], vec![quotient]);
    }
}
