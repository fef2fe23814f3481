//! Addresses in tiles of slots, which dots read as matrices of 16-byte rows or as rows of elements.

use std::collections::HashMap;

use tile_ir::ir::Value;
use tile_ir::ops::schedule::{CHUNK_BYTES, OperandTile, Panels, RowBits};

use crate::gpu::emit::offset_address::OffsetAddress;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Space, Ty};

/// The offset of a coordinate that is only known at run time.
fn offset_in(tile: &OperandTile, b: &mut Builder, mut coord: impl FnMut(&mut Builder, usize) -> Val) -> Val {
    let mut offset = b.int(Ty::I32, 0);
    for (axis, &stride) in tile.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
        let mut coord = coord(b, axis);
        if let Some(panels) = tile.panels.filter(|panels| panels.axis == axis) {
            let panel = panel_offset(b, coord, panels);
            offset = b.add_nsw(offset, panel);
            let within = b.int(Ty::I32, i64::from(panels.extent - 1));
            coord = b.and(coord, within);
        }
        let stride = b.int(Ty::I32, i64::from(stride));
        let part = b.mul_nsw(coord, stride);
        offset = b.add_nsw(offset, part);
    }
    let Some(RowBits { shift, mask }) = tile.rows.filter(|rows| rows.mask > 0) else { return offset };
    let [shift, mask, chunk_bits] =
        [shift, mask, CHUNK_BYTES.ilog2()].map(|constant| b.int(Ty::I32, constant.into()));
    let row = b.lshr(offset, shift);
    let row = b.and(row, mask);
    let row = b.shl(row, chunk_bits);
    b.xor(offset, row)
}

/// Where the panel of a coordinate begins.
fn panel_offset(b: &mut Builder, coord: Val, panels: Panels) -> Val {
    let shift = b.int(Ty::I32, i64::from(panels.extent.ilog2()));
    let panel = b.lshr(coord, shift);
    let stride = b.int(Ty::I32, i64::from(panels.stride));
    b.mul_nsw(panel, stride)
}

/// The tile of a slot that dots read.
#[derive(Clone)]
pub(in crate::gpu::emit) struct SlotTileAddress {
    pub tile: OperandTile,
    pub fast: usize,
    /// Where it starts in shared memory.
    pub address: Val,
    /// The same, as ptxas knows it to be uniform.
    pub uniform: Val,
}

/// Addresses in a tile from a thread's first element on.
pub(in crate::gpu::emit) struct TileAddresses {
    tile: OperandTile,
    first: Val,
    /// The first address with each offset that was xored to it.
    known: HashMap<u32, Val>,
}

impl TileAddresses {
    pub fn new(tile: OperandTile, first: Val) -> TileAddresses {
        TileAddresses { tile, first, known: HashMap::from([(0, first)]) }
    }

    pub fn at(&mut self, b: &mut Builder, coord: Coord) -> OffsetAddress {
        let (within, beyond) = self.tile.distance(|axis| coord.get(axis));
        let first = self.first;
        let base = *self.known.entry(within).or_insert_with(|| {
            let within = b.int(Ty::I32, within.into());
            b.xor(first, within)
        });
        OffsetAddress { base, bytes: beyond as i32 }
    }
}

/// Where a thread's rows of an operand start, and bytes between elements along each axis.
pub(in crate::gpu::emit) struct SmemRowAddress {
    pub pointer: Val,
    pub strides: Vec<u32>,
}

impl Gpu<'_> {
    /// The axis of the matrix rows of an operand, if it is in shared memory.
    pub(in crate::gpu::emit) fn smem_fast_axis(&self, value: Value) -> Option<usize> {
        self.smem.slot_tiles.get(&value).map(|tile| tile.fast)
    }

    /// Where a thread's rows of an operand start: by the layout of the result, and from the first element along
    /// K, the axis `inner`.
    pub(in crate::gpu::emit) fn smem_rows(
        &mut self,
        b: &mut Builder,
        value: Value,
        result: &Layout,
        inner: usize,
    ) -> Option<SmemRowAddress> {
        let SlotTileAddress { tile, address, .. } = self.smem.slot_tiles.get(&value)?.clone();
        let zero = b.int(Ty::I32, 0);
        let offset =
            offset_in(
                &tile,
                b,
                |b, axis| if axis == inner { zero } else { self.thread_coord(b, result, axis) },
            );
        let first = b.add(address, offset);
        let pointer = b.op("llvm.inttoptr", &[first], Ty::scalar(Elem::Ptr(Space::Shared)));
        Some(SmemRowAddress { pointer, strides: tile.strides })
    }

    /// Addresses of the fragments of an operand, by the layout of the row addresses of lanes.
    pub(in crate::gpu::emit) fn smem_fragments(
        &mut self,
        b: &mut Builder,
        value: Value,
        lanes: &Layout,
    ) -> TileAddresses {
        let SlotTileAddress { tile, address, .. } = self.smem.slot_tiles[&value].clone();
        self.tile_addresses(b, tile, address, lanes)
    }

    /// Addresses in a tile that starts at an address, by the layout of what is there.
    pub(super) fn tile_addresses(
        &mut self,
        b: &mut Builder,
        tile: OperandTile,
        address: Val,
        layout: &Layout,
    ) -> TileAddresses {
        let offset = offset_in(&tile, b, |b, axis| self.thread_coord(b, layout, axis));
        let first = b.add(address, offset);
        TileAddresses::new(tile, first)
    }
}
