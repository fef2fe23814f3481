//! Buffers in shared memory, pipeline states, and tiles as words.

use crate::gpu::emit::dot::wgmma::StagedTile;
use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Machine};
use crate::gpu::layout::warpgroup::{WGMMA_M, WarpGroupTiling};
use crate::gpu::schedule::MBARRIER_BYTES;
use crate::mlir::builder::Val;
use crate::mlir::machine;
use crate::mlir::types::Ty;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::{Role, SmemPlace, Stage, StagedOperand, stages};
use tile_ir::ops::{MbarAlloc, Pack, PipeNext, PipeStart, Poison, SmemAlloc, SmemLoadWords, Unpack};

/// Where the first stage of a buffer, or of a list of barriers, starts in shared memory, and bytes from one stage to the next.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu::emit) struct SmemBufferAddress {
    pub start: u32,
    pub stride: u32,
}

/// The stage that is next, and the parity of the phase to wait for there.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct PipelineState {
    pub stage: Val,
    pub phase: Val,
}

impl PipelineState {
    pub fn flatten(self) -> [Val; 2] {
        [self.stage, self.phase]
    }

    pub fn of(values: &[Val]) -> PipelineState {
        PipelineState { stage: values[0], phase: values[1] }
    }

    /// The first state; the producer finds the stages empty.
    pub fn first(b: &mut Builder, role: Role) -> PipelineState {
        let phase = i64::from(role == Role::Producer);
        PipelineState { stage: b.int(Ty::I32, 0), phase: b.int(Ty::I32, phase) }
    }

    /// The state after it, in a ring of so many stages.
    pub fn next(self, b: &mut Builder, stages: u32) -> PipelineState {
        let [zero, one, stages] = [0, 1, stages].map(|index| b.int(Ty::I32, i64::from(index)));
        let after = b.add(self.stage, one);
        let around = b.icmp(IntPredicate::Eq, after, stages);
        let other = b.xor(self.phase, one);
        PipelineState { stage: b.select(around, zero, after), phase: b.select(around, other, self.phase) }
    }
}

impl Gpu<'_> {
    /// Where a buffer or a list of barriers is.
    pub(in crate::gpu::emit) fn buffer(&self, buffer: Value) -> SmemBufferAddress {
        self.smem.buffers[&buffer]
    }

    pub(super) fn pipe(&self, pipe: Value) -> PipelineState {
        PipelineState::of(&self.registers(pipe))
    }

    /// The address of a stage in shared memory.
    pub(super) fn stage_address(&self, b: &mut Builder, stage: Stage) -> Val {
        let SmemBufferAddress { start, stride } = self.buffer(stage.buffer);
        self.at(b, start, self.pipe(stage.pipe).stage, stride)
    }

    /// `start + index * bytes` in shared memory.
    pub(in crate::gpu::emit) fn at(&self, b: &mut Builder, start: u32, index: Val, bytes: u32) -> Val {
        let first = b.offset_bytes(self.smem_base(), start as i32);
        let bytes = b.int(Ty::I32, i64::from(bytes));
        let distance = b.mul_nsw(index, bytes);
        b.offset(first, distance, 1)
    }

    /// An operand in shared memory that a dot reads.
    pub(super) fn staged_operand(&self, b: &mut Builder, operand: StagedOperand) -> StagedTile {
        let address = match operand.place {
            SmemPlace::Stage(stage) => {
                let SmemBufferAddress { start, stride } = self.buffer(stage.buffer);
                let base = b.op("llvm.ptrtoint", &[self.smem_base()], Ty::I32);
                let [start, bytes] = [start, stride].map(|index| b.int(Ty::I32, i64::from(index)));
                let first = b.add(base, start);
                let distance = b.mul_nsw(self.pipe(stage.pipe).stage, bytes);
                b.add(first, distance)
            }
            SmemPlace::Slot(tile) => self.smem.slot_tiles[&tile].uniform,
        };
        StagedTile {
            address,
            lines: operand.lines(self.func),
            dtype: self.func.ty(operand.memory()).dtype,
            transposed: operand.transposed,
        }
    }

    /// The machine types of a tile's words: of a packed tile by its layout, of an operand A in shared memory by its shape.
    pub(in crate::gpu::emit) fn word_types(&self, value: Value) -> Vec<Ty> {
        let ty = self.func.ty(value);
        let count = match self.plan.schedule.layout(value) {
            Some(layout) => layout.register_count(),
            None if ty.shape.rank() == 0 => 1,
            None => self.operand_a_elements([ty.shape[0], ty.shape[1]]),
        };
        if !ty.dtype.is_half() {
            return vec![machine::scalar(ty.dtype, Machine::Nvptx); count];
        }
        let words = std::iter::repeat_n(Ty::I32, count / 2);
        words.chain((count % 2 == 1).then_some(Ty::I16)).collect()
    }

    /// Elements of an operand A that a thread has.
    fn operand_a_elements(&self, [rows, inner]: [u32; 2]) -> usize {
        let groups = WarpGroupTiling::new(rows, self.plan.schedule.distributed.num_warps);
        (rows / (WGMMA_M * groups.along_rows) * inner / 2) as usize
    }
}

impl GpuEmit for SmemAlloc {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let address = SmemBufferAddress { start: self.address, stride: self.stride };
        gpu.smem.buffers.insert(op.results[0], address);
    }
}

impl GpuEmit for MbarAlloc {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let address = SmemBufferAddress { start: self.address, stride: MBARRIER_BYTES };
        gpu.smem.buffers.insert(op.results[0], address);
    }
}

impl GpuEmit for PipeStart {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let first = PipelineState::first(b, self.role);
        gpu.define(op.results[0], first.flatten().to_vec());
    }
}

impl GpuEmit for PipeNext {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let stages = stages(gpu.func, self.pipe).expect("a pipeline state has stages");
        let next = gpu.pipe(self.pipe).next(b, stages);
        gpu.define(op.results[0], next.flatten().to_vec());
    }
}

impl GpuEmit for SmemLoadWords {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let from = StagedOperand { place: SmemPlace::Stage(self.from), transposed: false };
        let staged = gpu.staged_operand(b, from);
        let words = gpu.load_operand_words(b, &staged, self.rows);
        gpu.define(op.results[0], words.into_iter().flatten().flatten().collect());
    }
}

impl GpuEmit for Poison {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let result = op.results[0];
        let undefined = b.poison(gpu.register_type(result));
        gpu.define(result, vec![undefined; gpu.register_count(result)]);
    }
}

impl GpuEmit for Pack {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let registers = gpu.registers(self.value);
        let dtype = gpu.func.ty(self.value).dtype;
        let words = if dtype.is_half() { pack(b, &registers, dtype) } else { registers.to_vec() };
        gpu.define(op.results[0], words);
    }
}

impl GpuEmit for Unpack {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let words = gpu.registers(self.value);
        let dtype = gpu.func.ty(self.value).dtype;
        let count = gpu.register_count(op.results[0]);
        let registers = if dtype.is_half() { unpack(b, &words, dtype, count) } else { words.to_vec() };
        gpu.define(op.results[0], registers);
    }
}
