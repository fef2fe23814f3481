//! Factors of products that a loop copies to shared memory as it loads them.
//!
//! A load whose elements nothing but products read is in no thread's registers. Its tile lies in a ring that all
//! threads of the program copy to (`ahead`), as matrices of 16-byte rows, from which they read fragments (`dot`).
//! Pieces of 16 bytes change places within their row by the number of the row: eight rows of a matrix are in different
//! banks, and so is what eight threads copy. Rows of other lengths than powers of two have an odd number of pieces for
//! that. Single threads that multiply read neighbours along a line of what they multiply in one step: these lie as they are. Where
//! memory has other lines, elements are copied one by one, each to its place.

use std::collections::HashMap;

use crate::gpu::emit::address_slice::AddressSlice;
use crate::gpu::emit::dot::{inner_axis, outer_axis, reads_matrices};
use crate::gpu::emit::smem_alloc::SmemAllocation;
use crate::gpu::emit::{Builder, Gpu};
use crate::gpu::layout::dot::{DotMethod, DotOperand, method};
use crate::gpu::layout::{Coord, Distributed, Layout, SmemOnlyTile};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::layout_relation::Reindex;
use crate::ir::{Block, Func, Op, Shape, Type, Value};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Space, Ty};
use crate::ops::{Dot, For, Kind, Load, MemAccess, is_zero};
use crate::support::limits::MIN_ASYNC_COPY_BYTES;

/// Bytes that one instruction copies, and those of a row of a matrix.
pub(super) const PIECE: u32 = 16;
/// All banks together.
const BANKS: u32 = 128;
/// Where a tile starts: a multiple of these, so that pieces change places within them.
pub(super) const ALIGNMENT: u32 = BANKS;

/// How lines follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineOrder {
    /// Pieces change places by the number of the line.
    Swizzled,
    /// As they are.
    Plain,
    /// Elements arrive one by one from lines across.
    Transposed,
}

/// A tile in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OperandTile {
    /// Bytes between neighbours along each axis.
    strides: Vec<u32>,
    bytes: u32,
    /// Which bits of a place tell its row, as a shift and a mask; none where rows have an odd number of pieces instead.
    rows: Option<(u32, u32)>,
}

impl OperandTile {
    /// Lines along `fast`, one after the other.
    pub fn new(Type { dtype, shape }: &Type, fast: usize, order: LineOrder) -> OperandTile {
        let line = shape[fast] * dtype.bytes();
        let swizzles = line.is_power_of_two() && order == LineOrder::Swizzled;
        let pieces = line.div_ceil(PIECE);
        // Of an odd number of pieces, neighbours across the lines are in different banks.
        let pitch = if swizzles || order == LineOrder::Plain { pieces } else { pieces | 1 } * PIECE;
        let mut strides = vec![dtype.bytes(); shape.rank()];
        let mut stride = pitch;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
        }
        let rows = swizzles.then(|| (line.max(BANKS).ilog2(), (line / PIECE).clamp(1, BANKS / PIECE) - 1));
        OperandTile { strides, bytes: stride.next_multiple_of(ALIGNMENT), rows }
    }

    /// The tile of a load.
    pub fn of(distributed: &Distributed, op: &Op, load: &Load) -> OperandTile {
        let (fast, order) = order(distributed, op, load);
        OperandTile::new(distributed.func.ty(op.results[0]), fast, order)
    }

    /// The same tile by the axes of what is seen of it.
    fn seen(&self, axes: &[Option<usize>]) -> OperandTile {
        let strides = axes.iter().map(|axis| axis.map_or(0, |axis| self.strides[axis])).collect();
        OperandTile { strides, ..self.clone() }
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Bytes from the first element to the one at this coordinate: what is exclusive-ored to the place of the thread's
    /// first element, and what is added then.
    pub fn distance(&self, coord: Coord) -> (u32, u32) {
        let place: u32 = self.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
        let Some((shift, mask)) = self.rows else { return (0, place) };
        let swizzled = place ^ ((place >> shift & mask) * PIECE);
        let within = mask * PIECE;
        (swizzled & within, swizzled & !within)
    }

    /// The same of a coordinate that is only known at run time.
    pub fn place(&self, b: &mut Builder, mut coord: impl FnMut(&mut Builder, usize) -> Val) -> Val {
        let mut place = b.int(Ty::I32, 0);
        for (axis, &stride) in self.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
            let coord = coord(b, axis);
            let stride = b.int(Ty::I32, i64::from(stride));
            let part = b.mul_nsw(coord, stride);
            place = b.add_nsw(place, part);
        }
        let Some((shift, mask)) = self.rows.filter(|(_, mask)| *mask > 0) else { return place };
        let [shift, mask, piece] = [shift, mask, PIECE.ilog2()].map(|number| b.int(Ty::I32, number.into()));
        let row = b.lshr(place, shift);
        let row = b.and(row, mask);
        let row = b.shl(row, piece);
        b.xor(place, row)
    }
}

/// The tile of a load in the present turn.
#[derive(Clone)]
pub(super) struct OperandStage {
    pub tile: OperandTile,
    pub fast: usize,
    /// Where it starts in shared memory.
    pub address: Val,
}

/// Places in a tile from a thread's first one on.
pub(super) struct TileAddresses {
    tile: OperandTile,
    first: Val,
    /// The first one with each number that was exclusive-ored to it.
    known: HashMap<u32, Val>,
}

impl TileAddresses {
    pub fn new(tile: OperandTile, first: Val) -> TileAddresses {
        TileAddresses { tile, first, known: HashMap::from([(0, first)]) }
    }

    /// An address, and the bytes behind it.
    pub fn at(&mut self, b: &mut Builder, coord: Coord) -> (Val, u32) {
        let (within, beyond) = self.tile.distance(coord);
        let first = self.first;
        let place = *self.known.entry(within).or_insert_with(|| {
            let within = b.int(Ty::I32, within.into());
            b.xor(first, within)
        });
        (place, beyond)
    }
}

/// The axis along which the lines of a load's tile lie, and how they follow each other.
fn order(distributed: &Distributed, op: &Op, load: &Load) -> (usize, LineOrder) {
    let memory = fast_axis(distributed, load, op.results[0]);
    match distributed.smem_only.get(&op.results[0]).and_then(|copied| copied.lines) {
        None => (memory, LineOrder::Swizzled),
        Some(lines) if lines == memory => (lines, LineOrder::Plain),
        Some(lines) => (lines, LineOrder::Transposed),
    }
}

/// A load as its elements are copied to its tile: by vectors, or one by one to lines across those of memory.
pub(super) fn as_copied(distributed: &Distributed, op: &Op, load: &Load) -> Load {
    let (_, order) = order(distributed, op, load);
    let vector = if order == LineOrder::Transposed { 1 } else { load.place.vector };
    Load { place: MemAccess { vector, ..load.place }, ..*load }
}

/// The axis along which a load's neighbours are neighbours in memory.
pub(super) fn fast_axis(distributed: &Distributed, load: &Load, result: Value) -> usize {
    let layout = &distributed.layouts[&result];
    let along =
        (0..layout.shape().rank()).rev().find(|&axis| layout.thread_contiguity(axis) >= load.place.vector);
    along.expect("a vector runs along an axis")
}

/// Finds what loops copy so.
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

/// Whether an operation multiplies a tile that a loop copies.
pub(super) fn is_product(distributed: &Distributed, op: &Op) -> bool {
    let Kind::Dot(dot) = &op.kind else { return false };
    DotOperand::ALL.into_iter().any(|side| distributed.smem_only.contains_key(&dot.operand(side)))
}

/// Leaves out what loops copy that have no ring.
pub(super) fn without_ring(distributed: &mut Distributed, shared: &SmemAllocation) -> bool {
    let mut homeless = vec![];
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind
            && shared.ring(body.body.args[0]).is_none()
        {
            homeless.extend(body.body.ops.iter().flat_map(|op| op.results.first().copied()));
        }
    });
    let before = distributed.smem_only.len();
    distributed.smem_only.retain(|_, copied| !homeless.contains(&copied.load));
    distributed.smem_only.len() < before
}

/// Who takes a value.
enum OperandUse<'a> {
    By(&'a Op),
    /// It leaves a block.
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
        let slicer = AddressSlice::new(self.distributed, body);
        for op in &body.body.ops {
            let Kind::Load(load) = &op.kind else { continue };
            let result = op.results[0];
            if self.copies(body, load, result) && slicer.slice(load).is_some() {
                let func = &self.distributed.func;
                let axes: Vec<Option<usize>> = (0..func.ty(result).shape.rank()).map(Some).collect();
                let fast = fast_axis(self.distributed, load, result);
                let by_pieces = crate::gpu::emit::async_copy::width(func, load) == PIECE;
                // Element by element there would be more copies than are saved, where there are others.
                let one_by_one = !by_pieces && func.ty(result).dtype.bytes() >= MIN_ASYNC_COPY_BYTES;
                let swizzled = by_pieces.then_some(None);
                let plain = axes.iter().copied().filter(|axis| one_by_one || *axis == Some(fast));
                let seen = swizzled.into_iter().chain(plain).find_map(|lines| {
                    self.seen(result, &SmemOnlyTile { load: result, axes: axes.clone(), lines }, fast)
                });
                self.found.extend(seen.unwrap_or_default());
            }
        }
    }

    /// Whether a load can be copied, to where its thread's part of the tile is.
    fn copies(&self, body: &For, load: &Load, result: Value) -> bool {
        let func = &self.distributed.func;
        // By what the loop or the function's own block says of it.
        let defined = |value| body.body.definition(value).or_else(|| func.body.definition(value));
        crate::gpu::emit::async_copy::can_copy_async(func, load)
            && load.other.is_none_or(|other| is_zero(defined, other))
            && self.distributed.layouts[&result].is_disjoint()
    }

    /// A value and what is seen of it at other coordinates; `None` if anything but products takes them. `fast` is the
    /// axis of the load along which matrices have their rows.
    fn seen(&self, value: Value, copied: &SmemOnlyTile, fast: usize) -> Option<Vec<(Value, SmemOnlyTile)>> {
        let mut seen = vec![(value, copied.clone())];
        for by in self.uses.get(&value)? {
            let OperandUse::By(op) = by else { return None };
            if let Kind::Dot(dot) = &op.kind {
                let along = |of: usize| copied.axes.iter().position(|&axis| axis == Some(of));
                let lines = match copied.lines {
                    Some(axis) => Some(along(axis)?),
                    None => None,
                };
                let fast = along(fast)?;
                self.multiplies(dot, value, (fast, lines)).then_some(())?;
                continue;
            }
            let result = *op.results.first()?;
            let LayoutRelation::View(view) = op.kind.operation().spread(&self.distributed.func, &op.results)
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
            seen.extend(self.seen(result, &SmemOnlyTile { axes, ..*copied }, fast)?);
        }
        Some(seen)
    }

    /// Whether a product takes a value as matrices, or as lines of what threads multiply in one step, and as nothing else.
    fn multiplies(&self, dot: &Dot, value: Value, (fast, lines): (usize, Option<usize>)) -> bool {
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

/// The axes of a tile whose axes of extent 1 come or go; `None` for another change of shape.
fn reshaped(axes: &[Option<usize>], from: &Shape, to: &Shape) -> Option<Vec<Option<usize>>> {
    let kept = from.kept_axes(to)?;
    let find = |axis| kept.iter().position(|&new| new == Some(axis)).and_then(|old| axes[old]);
    Some((0..to.rank()).map(find).collect())
}

impl Gpu<'_> {
    /// The axis along which a factor has the rows of its matrices, if the loop copies it.
    pub(super) fn copied_fast(&self, value: Value) -> Option<usize> {
        let copied = self.plan.distributed.smem_only.get(&value)?;
        copied.axes.iter().position(|&axis| axis == Some(self.operand_stages[&copied.load].fast))
    }

    /// Where a thread's lines of a factor begin in the present turn's tile, and bytes between neighbours along each axis: by the layout
    /// of the product, and from the first along the axis that is summed over.
    pub(super) fn copied_lines(
        &mut self,
        b: &mut Builder,
        value: Value,
        (result, inner): (&Layout, usize),
    ) -> Option<(Val, Vec<u32>)> {
        let copied = self.plan.distributed.smem_only.get(&value)?;
        let OperandStage { tile, address, .. } = self.operand_stages[&copied.load].clone();
        let tile = tile.seen(&copied.axes);
        let zero = b.int(Ty::I32, 0);
        let place =
            tile.place(b, |b, axis| if axis == inner { zero } else { self.thread_coord(b, result, axis) });
        let first = b.add(address, place);
        let pointer = b.op("llvm.inttoptr", &[first], Ty::scalar(Elem::Ptr(Space::Shared)));
        Some((pointer, tile.strides))
    }

    /// Where fragments of a factor are in the present turn's tile, by the layout of what the lanes point at.
    pub(super) fn copied_factor(&mut self, b: &mut Builder, value: Value, lanes: &Layout) -> TileAddresses {
        let copied = &self.plan.distributed.smem_only[&value];
        let OperandStage { tile, address, .. } = self.operand_stages[&copied.load].clone();
        let tile = tile.seen(&copied.axes);
        let place = tile.place(b, |b, axis| self.thread_coord(b, lanes, axis));
        let first = b.add(address, place);
        TileAddresses::new(tile, first)
    }
}
