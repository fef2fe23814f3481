//! Emission of layout conversions, by the method that `layout::conversion` chose: registers, shuffles or shared memory.

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{Convert, Reshape};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::{load, store};
use crate::gpu::emit::{Builder, Gpu, ShuffleMode};
use crate::gpu::layout::conversion::Shuffle;
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::smem_tile::{SmemOffsets, SmemTile, vector, vector_along};
use crate::gpu::layout::{Conversion, Coord, Distributed, Layout, conversion};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// The addresses of a tile in shared memory.
pub(super) trait EmitSmemTile {
    /// The address of the element whose coordinate along each axis is `coord(b, axis)`.
    fn pointer(
        &self,
        b: &mut Builder,
        base: Val,
        dtype: DType,
        coord: impl FnMut(&mut Builder, usize) -> Val,
    ) -> Val;
}

impl EmitSmemTile for SmemTile {
    fn pointer(
        &self,
        b: &mut Builder,
        base: Val,
        dtype: DType,
        mut coord: impl FnMut(&mut Builder, usize) -> Val,
    ) -> Val {
        let mut offset = b.int(Ty::I32, 0);
        for (axis, &stride) in self.strides.iter().enumerate() {
            let coord = coord(b, axis);
            let scale = b.int(Ty::I32, i64::from(stride * dtype.bytes()));
            let term = b.mul_nsw(coord, scale);
            offset = b.add_nsw(offset, term);
            if let Some(padding) = self.padding.filter(|padding| padding.axis == axis) {
                let shift = b.int(Ty::I32, i64::from(padding.shift));
                let rows = b.lshr(coord, shift);
                let bytes = b.int(Ty::I32, i64::from(padding.elements * dtype.bytes()));
                let term = b.mul_nsw(rows, bytes);
                offset = b.add_nsw(offset, term);
            }
        }
        b.offset(base, offset, 1)
    }
}

fn layouts<'a>(distributed: &'a Distributed, operand: Value, op: &Op) -> (&'a Layout, &'a Layout) {
    (&distributed.layouts[&operand], &distributed.layouts[&op.results[0]])
}

impl GpuEmit for Convert {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let ty = gpu.func.ty(self.value).clone();
        let values = gpu.registers(self.value);
        let registers = match conversion(from, to) {
            Conversion::Registers(sources) => sources.into_iter().map(|source| values[source]).collect(),
            Conversion::Shuffle(shuffle) => gpu.convert_by_shuffles(b, &values, &shuffle),
            Conversion::Shared => {
                let tile = SmemTile::between(from, to, ty.dtype);
                gpu.convert_through_smem(b, op, self.value, [&tile, &tile])
            }
        };
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Reshape {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let (old, new) = (from.shape().clone(), to.shape().clone());
        if from.reshape(&new).as_ref() == Some(to) {
            return gpu.define_reindexed(op, self.value, |coord| coord.reshape(&new, &old));
        }
        let registers =
            gpu.convert_through_smem(b, op, self.value, [&SmemTile::dense(&old), &SmemTile::dense(&new)]);
        gpu.define(op.results[0], registers);
    }
}

impl Gpu<'_> {
    /// Moves elements within each warp.
    fn convert_by_shuffles(&mut self, b: &mut Builder, values: &[Val], shuffle: &Shuffle) -> Vec<Val> {
        let one = b.int(Ty::I32, 1);
        let bits: Vec<Val> = (0..LANE_BITS)
            .map(|bit| {
                let amount = b.int(Ty::I32, bit as i64);
                let shifted = b.lshr(self.thread.lane, amount);
                b.and(shifted, one)
            })
            .collect();
        // The bits of the source lane that depend on this lane.
        let mut varying = b.int(Ty::I32, 0);
        for (bit, &(_, lane)) in shuffle.lane_bits.iter().enumerate().filter(|(_, (_, lane))| *lane != 0) {
            let lane = b.int(Ty::I32, i64::from(lane));
            let term = b.mul(bits[bit], lane);
            varying = b.xor(varying, term);
        }
        (0..shuffle.constant.len())
            .map(|register| {
                let (source, lane) = shuffle.constant[register];
                let constant = b.int(Ty::I32, i64::from(lane));
                let lane = b.xor(varying, constant);
                let flips: Vec<(usize, Val)> = shuffle
                    .lane_bits
                    .iter()
                    .enumerate()
                    .filter(|(_, (flip, _))| *flip != 0)
                    .map(|(bit, &(flip, _))| (flip, bits[bit]))
                    .collect();
                self.shuffle_selected(b, values, source, &flips, lane)
            })
            .collect()
    }

    /// The value of the source register that this lane's bits select, read from `lane`.
    fn shuffle_selected(
        &self,
        b: &mut Builder,
        values: &[Val],
        source: usize,
        flips: &[(usize, Val)],
        lane: Val,
    ) -> Val {
        match flips {
            [] => self.shuffle(b, values[source], ShuffleMode::Index, lane),
            [(flip, bit), rest @ ..] => {
                let same = self.shuffle_selected(b, values, source, rest, lane);
                let flipped = self.shuffle_selected(b, values, source ^ flip, rest, lane);
                let zero = b.int(Ty::I32, 0);
                let is_zero = b.icmp(crate::gpu::emit::IntPredicate::Eq, *bit, zero);
                b.select(is_zero, same, flipped)
            }
        }
    }

    /// Converts through shared memory: the operand is written as `tiles[0]`, the result read as `tiles[1]`.
    fn convert_through_smem(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        tiles: [&SmemTile; 2],
    ) -> Vec<Val> {
        let base = self.write_to_scratch(b, op, operand, tiles[0]);
        self.read_smem_tile(b, op, base, tiles[1])
    }

    /// Writes a tile to the operation's scratch, for every thread to read; returns its address.
    pub(super) fn write_to_scratch(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        tile: &SmemTile,
    ) -> Val {
        self.exchange_through_scratch(b, op, |gpu, b, base| gpu.write_smem_tile(b, operand, tile, base))
    }

    /// Writes to the operation's scratch memory, and returns its address once all threads may read it.
    pub(super) fn exchange_through_scratch(
        &mut self,
        b: &mut Builder,
        op: &Op,
        write: impl FnOnce(&mut Self, &mut Builder, Val),
    ) -> Val {
        let base = self.scratch_address(b, op.results[0]);
        write(self, b, base);
        self.barrier(b);
        base
    }

    /// Writes a tile to shared memory from `base` on.
    pub(super) fn write_smem_tile(&mut self, b: &mut Builder, operand: Value, tile: &SmemTile, base: Val) {
        let dtype = self.func.ty(operand).dtype;
        let from = self.layout(operand);
        let values = self.registers(operand);
        let writer = self.writer(b, Some(from));
        self.write_registers(b, (from, &values, dtype), writer, (tile, base));
    }

    /// Writes registers of a layout where the condition holds.
    pub(super) fn write_registers(
        &mut self,
        b: &mut Builder,
        (from, values, dtype): (&Layout, &[Val], DType),
        writer: Option<Val>,
        (tile, base): (&SmemTile, Val),
    ) {
        let run = vector_along(from, dtype, tile.fast);
        let offsets = tile.offsets.unwrap_or_else(|| SmemOffsets::of(from, dtype, run));
        let pointers = self.smem_pointers(b, (from, run), (tile, base, dtype), offsets);
        let write = |b: &mut Builder| {
            for (chunk, &pointer) in values.chunks(run).zip(&pointers) {
                let align = run as u32 * dtype.bytes();
                let mut chunk = chunk.to_vec();
                if tile.swapped {
                    chunk.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                }
                self.for_each_cta(b, [pointer], |b, [pointer]| store(b, &chunk, dtype, pointer, align));
            }
        };
        b.guarded(writer, write);
    }

    /// The result's elements, read from a tile in shared memory.
    pub(super) fn read_smem_tile(
        &mut self,
        b: &mut Builder,
        op: &Op,
        base: Val,
        tile: &SmemTile,
    ) -> Vec<Val> {
        let to = self.layout(op.results[0]);
        let dtype = self.func.ty(op.results[0]).dtype;
        let run = vector(to, dtype);
        // A tile written in small vectors is read while the addresses of its stores are live.
        let from = op.kind.operation().operands().into_iter().find(|&value| !self.func.ty(value).is_scalar());
        let offsets = from.map_or(SmemOffsets::Computed, |from| {
            let from = self.layout(from);
            SmemOffsets::of(from, dtype, vector_along(from, dtype, tile.fast))
        });
        let pointers = self.smem_pointers(b, (to, run), (tile, base, dtype), offsets);
        pointers.into_iter().flat_map(|pointer| load(b, pointer, dtype, run)).collect()
    }

    /// The addresses of a thread's elements in shared memory: one for every `run` registers.
    fn smem_pointers(
        &mut self,
        b: &mut Builder,
        (layout, run): (&Layout, usize),
        (tile, base, dtype): (&SmemTile, Val, DType),
        offsets: SmemOffsets,
    ) -> Vec<Val> {
        let registers = (0..layout.register_count()).step_by(run);
        let swaps_lanes = tile.swapped && run == 1;
        let other_of_pair = |b: &mut Builder, coord: Val| {
            let one = b.int(Ty::I32, 1);
            b.xor(coord, one)
        };
        if offsets == SmemOffsets::Computed || !layout.is_disjoint() {
            let pointer = |r| {
                tile.pointer(b, base, dtype, |b, axis| {
                    let coord = self.coord(b, layout, r, axis);
                    if swaps_lanes && axis == tile.fast { other_of_pair(b, coord) } else { coord }
                })
            };
            return registers.map(pointer).collect();
        }
        let pair = Coord::along(tile.fast, 1);
        let in_registers = layout.register_bases().contains(&pair);
        let first = tile.pointer(b, base, dtype, |b, axis| {
            let coord = self.thread_coord(b, layout, axis);
            if swaps_lanes && !in_registers && axis == tile.fast { other_of_pair(b, coord) } else { coord }
        });
        let swap = if swaps_lanes && in_registers { pair } else { Coord::ZERO };
        let offset = |register| (tile.offset_of(layout.register(register).xor(swap)) * dtype.bytes()) as i32;
        registers.map(|register| b.offset_bytes(first, offset(register))).collect()
    }
}
