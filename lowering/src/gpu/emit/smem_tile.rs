//! Tiles in shared memory: where their elements are, and how threads write and read them.

use tile_ir::ir::{Op, Value};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::reduce::{load, store};
use crate::gpu::emit::{Builder, Gpu, TileRegisters};
use crate::gpu::layout::smem_tile::{SmemOffsets, SmemTile, vector_along};
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// A tile in shared memory: its strides, the type of its elements, and where it starts.
#[derive(Clone)]
pub(super) struct SmemTileAddress {
    pub tile: SmemTile,
    pub dtype: DType,
    pub address: Val,
}

impl SmemTileAddress {
    /// The address of the element whose coordinate along each axis is `coord(b, axis)`.
    pub fn pointer(&self, b: &mut Builder, mut coord: impl FnMut(&mut Builder, usize) -> Val) -> Val {
        let SmemTileAddress { tile, dtype, address } = self;
        let mut offset = b.int(Ty::I32, 0);
        for (axis, &stride) in tile.strides.iter().enumerate() {
            let coord = coord(b, axis);
            let scale = b.int(Ty::I32, i64::from(stride * dtype.bytes()));
            let term = b.mul_nsw(coord, scale);
            offset = b.add_nsw(offset, term);
            if let Some(padding) = tile.padding.filter(|padding| padding.axis == axis) {
                let shift = b.int(Ty::I32, i64::from(padding.shift));
                let rows = b.lshr(coord, shift);
                let bytes = b.int(Ty::I32, i64::from(padding.elements * dtype.bytes()));
                let term = b.mul_nsw(rows, bytes);
                offset = b.add_nsw(offset, term);
            }
        }
        b.offset(*address, offset, 1)
    }

    /// Registers of this layout that one instruction moves.
    fn vector(&self, layout: &Layout) -> usize {
        vector_along(layout, self.dtype, self.tile.fast)
    }

    /// How addresses are formed for registers of this layout, where the tile does not say.
    fn offsets_of(&self, layout: &Layout) -> SmemOffsets {
        SmemOffsets::of(layout, self.dtype, self.vector(layout))
    }
}

impl Gpu<'_> {
    /// A tile in the operation's scratch memory.
    pub(super) fn scratch_tile(
        &mut self,
        b: &mut Builder,
        op: &Op,
        tile: SmemTile,
        dtype: DType,
    ) -> SmemTileAddress {
        SmemTileAddress { tile, dtype, address: self.scratch_address(b, op.results[0]) }
    }

    /// Writes an operand to the operation's scratch memory, for every thread to read.
    pub(super) fn write_to_scratch(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        tile: SmemTile,
    ) -> SmemTileAddress {
        let tile = self.scratch_tile(b, op, tile, self.func.ty(operand).dtype);
        self.write_smem_tile(b, operand, &tile);
        self.barrier(b);
        tile
    }

    /// Writes a value to a tile in shared memory.
    pub(super) fn write_smem_tile(&mut self, b: &mut Builder, operand: Value, tile: &SmemTileAddress) {
        let layout = self.layout(operand);
        let values = self.registers(operand);
        let writer = self.writer(b, Some(layout));
        self.write_registers(b, TileRegisters { layout, values: &values }, writer, tile);
    }

    /// Writes registers where the condition holds.
    pub(super) fn write_registers(
        &mut self,
        b: &mut Builder,
        registers: TileRegisters,
        writer: Option<Val>,
        to: &SmemTileAddress,
    ) {
        let TileRegisters { layout, values } = registers;
        let run = to.vector(layout);
        let offsets = to.tile.offsets.unwrap_or_else(|| to.offsets_of(layout));
        let pointers = self.smem_pointers(b, layout, to, offsets);
        let write = |b: &mut Builder| {
            for (chunk, &pointer) in values.chunks(run).zip(&pointers) {
                let align = run as u32 * to.dtype.bytes();
                let mut chunk = chunk.to_vec();
                if to.tile.swapped {
                    chunk.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                }
                self.for_each_cta(b, [pointer], |b, [pointer]| store(b, &chunk, to.dtype, pointer, align));
            }
        };
        b.guarded(writer, write);
    }

    /// The result's elements, read from a tile in shared memory.
    pub(super) fn read_smem_tile(&mut self, b: &mut Builder, op: &Op, from: &SmemTileAddress) -> Vec<Val> {
        let layout = self.layout(op.results[0]);
        // A tile written in small vectors is read while the addresses of its stores are live.
        let operands = op.kind.operation().operands();
        let written = operands.into_iter().find(|&value| !self.func.ty(value).is_scalar());
        let offsets = written.map_or(SmemOffsets::Computed, |value| from.offsets_of(self.layout(value)));
        let run = from.vector(layout);
        let pointers = self.smem_pointers(b, layout, from, offsets);
        pointers.into_iter().flat_map(|pointer| load(b, pointer, from.dtype, run)).collect()
    }

    /// The addresses of a thread's elements: one for all registers that one instruction moves.
    fn smem_pointers(
        &mut self,
        b: &mut Builder,
        layout: &Layout,
        to: &SmemTileAddress,
        offsets: SmemOffsets,
    ) -> Vec<Val> {
        let SmemTileAddress { tile, dtype, .. } = to;
        let run = to.vector(layout);
        let registers = (0..layout.register_count()).step_by(run);
        let swaps_lanes = tile.swapped && run == 1;
        let other_of_pair = |b: &mut Builder, coord: Val| {
            let one = b.int(Ty::I32, 1);
            b.xor(coord, one)
        };
        if offsets == SmemOffsets::Computed || !layout.is_disjoint() {
            let pointer = |r| {
                to.pointer(b, |b, axis| {
                    let coord = self.coord(b, layout, r, axis);
                    if swaps_lanes && axis == tile.fast { other_of_pair(b, coord) } else { coord }
                })
            };
            return registers.map(pointer).collect();
        }
        let pair = Coord::along(tile.fast, 1);
        let in_registers = layout.register_bases().contains(&pair);
        let first = to.pointer(b, |b, axis| {
            let coord = self.thread_coord(b, layout, axis);
            if swaps_lanes && !in_registers && axis == tile.fast { other_of_pair(b, coord) } else { coord }
        });
        let swap = if swaps_lanes && in_registers { pair } else { Coord::ZERO };
        let offset = |register| (tile.offset_of(layout.register(register).xor(swap)) * dtype.bytes()) as i32;
        registers.map(|register| b.offset_bytes(first, offset(register))).collect()
    }
}
