//! Smem operands: operands of dots that a loop copies to shared memory as it loads them.
//!
//! A load that only dots read is in no thread's registers. Its tile is in a ring that all threads of the program copy
//! to (`async_copy`), as matrices of 16-byte rows, from which they read fragments (`dot`). The 16-byte chunks of a
//! row are swizzled by the index of the row: eight rows of a matrix are in different banks, and so is what eight
//! threads copy. Rows whose length is no power of two have an odd number of chunks instead. FMA dots read contiguous
//! elements along a row in one step: these tiles are plain. Where the rows of memory are along another axis, elements
//! are copied one by one.

use std::collections::HashMap;

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::layout_relation::Reindex;
use tile_ir::ir::{Block, Func, Op, Shape, Type, Value};
use tile_ir::ops::{Dot, DotOperand, For, Kind, Load, MemAccess, is_zero};
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use crate::gpu::emit::address_slice::AddressSlice;
use crate::gpu::emit::dot::{inner_axis, outer_axis, reads_matrices};
use crate::gpu::emit::smem_alloc::SmemAllocation;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::dot::{DotMethod, method};
use crate::gpu::layout::{Coord, Distributed, Layout, SmemOnlyTile};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Space, Ty};

/// Bytes of a chunk: of one copy, and of a row of a matrix.
pub(super) const CHUNK_BYTES: u32 = 16;
/// Bytes of all banks.
const BANK_ROW_BYTES: u32 = 128;
/// Alignment of a tile, within which chunks are swizzled.
pub(super) const ALIGNMENT: u32 = BANK_ROW_BYTES;

/// How the rows of a tile are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineOrder {
    /// Chunks are swizzled by the index of the row.
    Swizzled,
    /// In order.
    Plain,
    /// Elements are copied one by one from rows along another axis.
    Transposed,
}

/// A tile in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OperandTile {
    /// Bytes between contiguous elements along each axis.
    strides: Vec<u32>,
    bytes: u32,
    /// The bits of an offset that are its row, as a shift and a mask; none where rows have an odd number of chunks
    /// instead.
    rows: Option<(u32, u32)>,
}

impl OperandTile {
    /// Rows along `fast`, one after the other.
    pub fn new(Type { dtype, shape, .. }: &Type, fast: usize, order: LineOrder) -> OperandTile {
        let line = shape[fast] * dtype.bytes();
        let is_swizzled = line.is_power_of_two() && order == LineOrder::Swizzled;
        let chunks = line.div_ceil(CHUNK_BYTES);
        // With an odd number of chunks, neighbors across the rows are in different banks.
        let pitch = if is_swizzled || order == LineOrder::Plain { chunks } else { chunks | 1 } * CHUNK_BYTES;
        let mut strides = vec![dtype.bytes(); shape.rank()];
        let mut stride = pitch;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
        }
        let rows = is_swizzled.then(|| {
            (
                line.max(BANK_ROW_BYTES).ilog2(),
                (line / CHUNK_BYTES).clamp(1, BANK_ROW_BYTES / CHUNK_BYTES) - 1,
            )
        });
        OperandTile { strides, bytes: stride.next_multiple_of(ALIGNMENT), rows }
    }

    /// The tile of a load.
    pub fn of(distributed: &Distributed, op: &Op, load: &Load) -> OperandTile {
        let (fast, order) = order(distributed, op, load);
        OperandTile::new(distributed.func.ty(op.results[0]), fast, order)
    }

    /// The same tile by the axes of a view of it.
    fn viewed(&self, axes: &[Option<usize>]) -> OperandTile {
        let strides = axes.iter().map(|axis| axis.map_or(0, |axis| self.strides[axis])).collect();
        OperandTile { strides, ..self.clone() }
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The offset of an element: what is xored to the offset of the thread's first element, and what is added then.
    pub fn distance(&self, coord: Coord) -> (u32, u32) {
        let offset: u32 =
            self.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
        let Some((shift, mask)) = self.rows else { return (0, offset) };
        let swizzled = offset ^ ((offset >> shift & mask) * CHUNK_BYTES);
        let within = mask * CHUNK_BYTES;
        (swizzled & within, swizzled & !within)
    }

    /// The offset of a coordinate that is only known at run time.
    pub fn offset_of(&self, b: &mut Builder, mut coord: impl FnMut(&mut Builder, usize) -> Val) -> Val {
        let mut offset = b.int(Ty::I32, 0);
        for (axis, &stride) in self.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
            let coord = coord(b, axis);
            let stride = b.int(Ty::I32, i64::from(stride));
            let part = b.mul_nsw(coord, stride);
            offset = b.add_nsw(offset, part);
        }
        let Some((shift, mask)) = self.rows.filter(|(_, mask)| *mask > 0) else { return offset };
        let [shift, mask, chunk_bits] =
            [shift, mask, CHUNK_BYTES.ilog2()].map(|constant| b.int(Ty::I32, constant.into()));
        let row = b.lshr(offset, shift);
        let row = b.and(row, mask);
        let row = b.shl(row, chunk_bits);
        b.xor(offset, row)
    }
}

/// The tile of a load in the current iteration.
#[derive(Clone)]
pub(super) struct OperandStage {
    pub tile: OperandTile,
    pub fast: usize,
    /// Where it starts in shared memory.
    pub address: Val,
}

/// Addresses in a tile from a thread's first element on.
pub(super) struct TileAddresses {
    tile: OperandTile,
    first: Val,
    /// The first address with each offset that was xored to it.
    known: HashMap<u32, Val>,
}

impl TileAddresses {
    pub fn new(tile: OperandTile, first: Val) -> TileAddresses {
        TileAddresses { tile, first, known: HashMap::from([(0, first)]) }
    }

    /// An address, and a byte offset.
    pub fn at(&mut self, b: &mut Builder, coord: Coord) -> (Val, u32) {
        let (within, beyond) = self.tile.distance(coord);
        let first = self.first;
        let address = *self.known.entry(within).or_insert_with(|| {
            let within = b.int(Ty::I32, within.into());
            b.xor(first, within)
        });
        (address, beyond)
    }
}

/// The axis of the rows of a load's tile, and their order.
fn order(distributed: &Distributed, op: &Op, load: &Load) -> (usize, LineOrder) {
    let memory = fast_axis(distributed, load, op.results[0]);
    match distributed.smem_only.get(&op.results[0]).and_then(|copied| copied.lines) {
        None => (memory, LineOrder::Swizzled),
        Some(lines) if lines == memory => (lines, LineOrder::Plain),
        Some(lines) => (lines, LineOrder::Transposed),
    }
}

/// A load as its elements are copied to its tile: by vectors, or one by one if the rows of memory are along another
/// axis.
pub(super) fn copy_load(distributed: &Distributed, op: &Op, load: &Load) -> Load {
    let (_, order) = order(distributed, op, load);
    let vector = if order == LineOrder::Transposed { 1 } else { load.access.vector };
    Load { access: MemAccess { vector, ..load.access }, ..*load }
}

/// The axis along which a load's elements are contiguous in memory.
pub(super) fn fast_axis(distributed: &Distributed, load: &Load, result: Value) -> usize {
    let layout = &distributed.layouts[&result];
    let along =
        (0..layout.shape().rank()).rev().find(|&axis| layout.thread_contiguity(axis) >= load.access.vector);
    along.expect("a vector runs along an axis")
}

/// Finds the smem operands of loops.
pub(super) fn find(distributed: &Distributed) -> HashMap<Value, SmemOnlyTile> {
    let mut finder = OperandFinder { distributed, uses: uses(&distributed.func), found: HashMap::new() };
    if distributed.num_ctas == 1 {
        distributed.func.body.walk(&mut |op| {
            if let Kind::For(body) = &op.kind {
                finder.in_loop(body);
            }
        });
    }
    finder.found
}

/// Whether an operation is a dot of a smem operand.
pub(super) fn is_smem_dot(distributed: &Distributed, op: &Op) -> bool {
    let Kind::Dot(dot) = &op.kind else { return false };
    DotOperand::ALL.into_iter().any(|side| distributed.smem_only.contains_key(&dot.operand(side)))
}

/// Drops the smem operands of loops that have no ring.
pub(super) fn drop_without_ring(distributed: &mut Distributed, shared: &SmemAllocation) -> bool {
    let mut dropped = vec![];
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind
            && shared.ring(body.body.args[0]).is_none()
        {
            dropped.extend(body.body.ops.iter().flat_map(|op| op.results.first().copied()));
        }
    });
    let before = distributed.smem_only.len();
    distributed.smem_only.retain(|_, copied| !dropped.contains(&copied.load));
    distributed.smem_only.len() < before
}

/// A use of a value.
enum OperandUse<'a> {
    By(&'a Op),
    /// It is yielded.
    Yielded,
}

fn uses(func: &Func) -> HashMap<Value, Vec<OperandUse<'_>>> {
    fn of_block<'a>(block: &'a Block, uses: &mut HashMap<Value, Vec<OperandUse<'a>>>) {
        for op in &block.ops {
            for operand in op.kind.operation().operands() {
                uses.entry(operand).or_default().push(OperandUse::By(op));
            }
            op.kind.operation().blocks().into_iter().for_each(|block| of_block(block, uses));
        }
        for &value in &block.yields {
            uses.entry(value).or_default().push(OperandUse::Yielded);
        }
    }
    let mut uses = HashMap::new();
    of_block(&func.body, &mut uses);
    uses
}

struct OperandFinder<'a> {
    distributed: &'a Distributed,
    uses: HashMap<Value, Vec<OperandUse<'a>>>,
    found: HashMap<Value, SmemOnlyTile>,
}

impl OperandFinder<'_> {
    fn in_loop(&mut self, body: &For) {
        if body.hints.num_stages.or(self.distributed.num_stages) == Some(1) {
            return;
        }
        let address_slice = AddressSlice::new(self.distributed, body);
        for op in &body.body.ops {
            let Kind::Load(load) = &op.kind else { continue };
            let result = op.results[0];
            if self.can_be_copied(body, load, result) && address_slice.slice(load).is_some() {
                let func = &self.distributed.func;
                let axes: Vec<Option<usize>> = (0..func.ty(result).shape.rank()).map(Some).collect();
                let fast = fast_axis(self.distributed, load, result);
                let by_chunks = crate::gpu::emit::cp_async::width(func, load) == CHUNK_BYTES;
                // Element by element there would be more copies than are saved, where there are others.
                let one_by_one = !by_chunks && func.ty(result).dtype.bytes() >= MIN_ASYNC_COPY_BYTES;
                let swizzled = by_chunks.then_some(None);
                let plain = axes.iter().copied().filter(|axis| one_by_one || *axis == Some(fast));
                let viewed = swizzled.into_iter().chain(plain).find_map(|lines| {
                    self.viewed(result, &SmemOnlyTile { load: result, axes: axes.clone(), lines }, fast)
                });
                self.found.extend(viewed.unwrap_or_default());
            }
        }
    }

    /// Whether a load can be copied to a tile, each thread its own part.
    fn can_be_copied(&self, body: &For, load: &Load, result: Value) -> bool {
        let func = &self.distributed.func;
        // By its definition in the loop or in the outermost block.
        let defined = |value| body.body.definition(value).or_else(|| func.body.definition(value));
        crate::gpu::emit::async_copy::can_copy_async(func, load)
            && load.other.is_none_or(|other| is_zero(defined, other))
            && self.distributed.layouts[&result].is_disjoint()
    }

    /// A value and its views; `None` if anything but dots reads them. `fast` is the axis of the rows of the load.
    fn viewed(&self, value: Value, copied: &SmemOnlyTile, fast: usize) -> Option<Vec<(Value, SmemOnlyTile)>> {
        let mut viewed = vec![(value, copied.clone())];
        for by in self.uses.get(&value)? {
            let OperandUse::By(op) = by else { return None };
            if let Kind::Dot(dot) = &op.kind {
                let along = |of: usize| copied.axes.iter().position(|&axis| axis == Some(of));
                let lines = match copied.lines {
                    Some(axis) => Some(along(axis)?),
                    None => None,
                };
                let fast = along(fast)?;
                self.is_read_by_dot(dot, value, (fast, lines)).then_some(())?;
                continue;
            }
            let result = *op.results.first()?;
            let LayoutRelation::View(view) =
                op.kind.operation().layout_relation(&self.distributed.func, &op.results)
            else {
                return None;
            };
            let axes = match view {
                Reindex::Permute { order } => order.iter().map(|&axis| copied.axes[axis]).collect(),
                Reindex::Reshape { from, to } => reshaped(&copied.axes, &from, &to)?,
                Reindex::Expand { axis } => {
                    let mut axes = copied.axes.clone();
                    axes.insert(axis, None);
                    axes
                }
                Reindex::Broadcast { .. } | Reindex::Join { .. } => return None,
            };
            viewed.extend(self.viewed(result, &SmemOnlyTile { axes, ..*copied }, fast)?);
        }
        Some(viewed)
    }

    /// Whether a dot reads a value as matrices, or as rows of elements that threads read in one step, and as nothing
    /// else.
    fn is_read_by_dot(&self, dot: &Dot, value: Value, (fast, lines): (usize, Option<usize>)) -> bool {
        let ty = self.distributed.func.ty(value);
        let rank = ty.shape.rank();
        let takes = |side: DotOperand| match method(ty.dtype, dot.input) {
            DotMethod::Fma => lines == Some(outer_axis(rank, side)),
            DotMethod::Mma(_) => {
                let along = [inner_axis(rank, side), outer_axis(rank, side)];
                lines.is_none() && along.contains(&fast) && reads_matrices(side, ty, fast)
            }
        };
        dot.acc != Some(value)
            && DotOperand::ALL.into_iter().filter(|&side| dot.operand(side) == value).all(takes)
    }
}

/// The axes of a tile whose axes of extent 1 are added or removed; `None` for another change of shape.
fn reshaped(axes: &[Option<usize>], from: &Shape, to: &Shape) -> Option<Vec<Option<usize>>> {
    let kept = from.kept_axes(to)?;
    let find = |axis| kept.iter().position(|&new| new == Some(axis)).and_then(|old| axes[old]);
    Some((0..to.rank()).map(find).collect())
}

impl Gpu<'_> {
    /// The axis of the matrix rows of an operand, if it is in shared memory.
    pub(super) fn smem_fast_axis(&self, value: Value) -> Option<usize> {
        let copied = self.plan.schedule.distributed.smem_only.get(&value)?;
        copied.axes.iter().position(|&axis| axis == Some(self.operand_stages[&copied.load].fast))
    }

    /// Where a thread's rows of an operand start in the current tile, and bytes between elements along each axis: by
    /// the layout of the result, and from the first element along K.
    pub(super) fn smem_rows(
        &mut self,
        b: &mut Builder,
        value: Value,
        (result, inner): (&Layout, usize),
    ) -> Option<(Val, Vec<u32>)> {
        let copied = self.plan.schedule.distributed.smem_only.get(&value)?;
        let OperandStage { tile, address, .. } = self.operand_stages[&copied.load].clone();
        let tile = tile.viewed(&copied.axes);
        let zero = b.int(Ty::I32, 0);
        let offset = tile
            .offset_of(b, |b, axis| if axis == inner { zero } else { self.thread_coord(b, result, axis) });
        let first = b.add(address, offset);
        let pointer = b.op("llvm.inttoptr", &[first], Ty::scalar(Elem::Ptr(Space::Shared)));
        Some((pointer, tile.strides))
    }

    /// Addresses of the fragments of an operand in the current tile, by the layout of the row addresses of lanes.
    pub(super) fn smem_fragments(&mut self, b: &mut Builder, value: Value, lanes: &Layout) -> TileAddresses {
        let copied = &self.plan.schedule.distributed.smem_only[&value];
        let OperandStage { tile, address, .. } = self.operand_stages[&copied.load].clone();
        let tile = tile.viewed(&copied.axes);
        let offset = tile.offset_of(b, |b, axis| self.thread_coord(b, lanes, axis));
        let first = b.add(address, offset);
        TileAddresses::new(tile, first)
    }
}
