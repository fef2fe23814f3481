//! Smem operands: operands of dots that a loop copies to shared memory as it loads them.
//!
//! A load that only dots read is in no thread's registers. Its tile is in a ring that all threads of the program copy
//! to (`async_copy`), as matrices of 16-byte rows, from which they read fragments (`dot`). The 16-byte chunks of a
//! row are swizzled by the index of the row: eight rows of a matrix are in different banks, and so is what eight
//! threads copy. Rows whose length is no power of two have an odd number of chunks instead. FMA dots read contiguous
//! elements along a row in one step: these tiles are plain. Where the rows of memory are along another axis, elements
//! are copied one by one.

use std::collections::HashMap;

use tile_ir::ir::layout_relation::{LayoutRelation, Reindex};
use tile_ir::ir::{Block, Func, Op, Shape, Value};
use tile_ir::ops::schedule::{CHUNK_BYTES, LineOrder, OperandTile};
use tile_ir::ops::{Dot, DotOperand, DotUnit, For, Kind, Load, MemAccess, Permute, is_zero};
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use crate::gpu::layout::dot::{DotMethod, inner_axis, method, outer_axis, reads_matrices};
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WGMMA_K_BYTES, WGMMA_M, WarpGroupTiling};
use crate::gpu::layout::{Distributed, SmemOnlyTile};
use crate::gpu::schedule::software_pipeline::address_slice::AddressSlice;
use crate::gpu::schedule::software_pipeline::async_load::{can_copy_async, width};
use crate::gpu::schedule::software_pipeline::ring::AllocatedRing;

/// The tile of a load, in panels if warpgroups read tiles of its loop.
pub fn operand_tile(distributed: &Distributed, op: &Op, load: &Load, in_panels: bool) -> OperandTile {
    let (fast, order) = order(distributed, op, load);
    let order = if in_panels && order == LineOrder::Swizzled { LineOrder::Panels } else { order };
    OperandTile::new(distributed.func.ty(op.results[0]), fast, order)
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

/// What a load reads, as its elements are copied to its tile: by vectors, or one by one if the rows of memory are along another
/// axis.
pub fn copy_access(distributed: &Distributed, op: &Op, load: &Load) -> MemAccess {
    let (_, order) = order(distributed, op, load);
    let vector = if order == LineOrder::Transposed { 1 } else { load.access.vector };
    MemAccess { vector, ..load.access }
}

/// The axis along which a load's elements are contiguous in memory.
pub fn fast_axis(distributed: &Distributed, load: &Load, result: Value) -> usize {
    let layout = &distributed.layouts[&result];
    let along =
        (0..layout.shape().rank()).rev().find(|&axis| layout.thread_contiguity(axis) >= load.access.vector);
    along.expect("a vector runs along an axis")
}

/// Finds the smem operands of loops.
pub fn find(distributed: &Distributed) -> HashMap<Value, SmemOnlyTile> {
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
pub fn is_smem_dot(distributed: &Distributed, op: &Op) -> bool {
    let Kind::Dot(dot) = &op.kind else { return false };
    DotOperand::ALL.into_iter().any(|side| distributed.smem_only.contains_key(&dot.operand(side)))
}

/// Drops the smem operands of loops that have no ring.
pub fn drop_without_ring(distributed: &mut Distributed, rings: &HashMap<Value, AllocatedRing>) -> bool {
    let mut dropped = vec![];
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind
            && !rings.contains_key(&body.body.args[0])
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
                let by_chunks = width(func, load) == CHUNK_BYTES;
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
        can_copy_async(func, load)
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
                self.is_read_by_dot(dot, (value, op.results[0]), fast, lines).then_some(())?;
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

    /// Whether a dot reads a value as matrices, or as rows along `lines` whose elements threads read in one step, and as
    /// nothing else. `fast` is the axis of the rows of memory.
    fn is_read_by_dot(
        &self,
        dot: &Dot,
        (value, result): (Value, Value),
        fast: usize,
        lines: Option<usize>,
    ) -> bool {
        let ty = self.distributed.func.ty(value);
        let rank = ty.shape.rank();
        let takes = |side: DotOperand| match method(ty.dtype, dot.input) {
            _ if dot.unit.is_warpgroup() => {
                lines.is_none() && is_read_by_warpgroups(self.distributed, side, (value, result), fast)
            }
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

/// Whether warpgroups read a value whose rows of memory are along `fast`: along K for bytes. MN-major rows are whole swizzled
/// ones, and so are the columns of a warpgroup; a single shorter row is swizzled as a whole.
fn is_read_by_warpgroups(
    distributed: &Distributed,
    side: DotOperand,
    (value, result): (Value, Value),
    fast: usize,
) -> bool {
    let Distributed { func, num_warps, .. } = distributed;
    let ty = func.ty(value);
    let line = ty.shape[fast] * ty.dtype.bytes();
    if fast == inner_axis(2, side) {
        return line >= WGMMA_K_BYTES && (line.is_power_of_two() || line.is_multiple_of(SWIZZLE_ROW_BYTES));
    }
    if ty.dtype.bytes() == 1 {
        return false;
    }
    let shape = &func.ty(result).shape;
    let columns = WarpGroupTiling::new(shape[0], *num_warps).columns_of_each(shape[1]);
    let extent = if side == DotOperand::A { Some(WGMMA_M) } else { columns };
    extent.is_some_and(|extent| {
        let whole = line.is_multiple_of(SWIZZLE_ROW_BYTES)
            && (extent * ty.dtype.bytes()).is_multiple_of(SWIZZLE_ROW_BYTES);
        let single = extent == ty.shape[fast] && line.is_power_of_two() && line >= WGMMA_K_BYTES;
        whole || single
    })
}

/// An operand of a dot of warpgroups that threads store to a slot.
#[derive(Clone)]
pub struct StoredOperand {
    /// The dot's result.
    pub dot: Value,
    pub side: DotOperand,
    pub value: Value,
    pub tile: OperandTile,
    /// The axis of its rows.
    pub fast: usize,
    /// Whether it is the same in all iterations.
    pub is_invariant: bool,
    /// The value that it is a view of, and the tile as one of that.
    pub viewed: (Value, OperandTile),
}

impl StoredOperand {
    /// Whether its memory holds the same as that of another one.
    pub fn holds_same(&self, other: &StoredOperand) -> bool {
        self.is_invariant == other.is_invariant && self.viewed == other.viewed
    }
}

/// The operands that a loop's dots of warpgroups find in shared memory without being copied there; `None` if they cannot read one.
pub fn stored_operands(distributed: &Distributed, body: &For) -> Option<Vec<StoredOperand>> {
    let mut found = vec![];
    let inside = body.body.defined();
    for op in &body.body.ops {
        let Kind::Dot(dot) = &op.kind else { continue };
        let sides: &[DotOperand] = match dot.unit {
            DotUnit::Warp => &[],
            DotUnit::Wgmma => &DotOperand::ALL,
            DotUnit::WgmmaRs => &[DotOperand::B],
        };
        for &side in sides.iter().filter(|&&side| !distributed.smem_only.contains_key(&dot.operand(side))) {
            let operand = stored_operand(distributed, op.results[0], side, dot.operand(side))?;
            let viewed = viewed_tile(body, operand.value, operand.tile.clone());
            found.push(StoredOperand { is_invariant: !inside.contains(&operand.value), viewed, ..operand });
        }
    }
    Some(found)
}

/// Rows are along the axis along which a thread has more contiguous elements, then a warp, of those that warpgroups read.
fn stored_operand(
    distributed: &Distributed,
    dot: Value,
    side: DotOperand,
    value: Value,
) -> Option<StoredOperand> {
    let layout = distributed.layouts.get(&value)?;
    let readable = (0..2).filter(|&fast| is_read_by_warpgroups(distributed, side, (value, dot), fast));
    let runs = |fast: usize| (layout.thread_contiguity(fast), layout.warp_contiguity(fast));
    let fast = readable.max_by_key(|&fast| (runs(fast), fast == inner_axis(2, side)))?;
    let tile = OperandTile::new(distributed.func.ty(value), fast, LineOrder::Panels);
    let viewed = (value, tile.clone());
    Some(StoredOperand { dot, side, value, tile, fast, is_invariant: false, viewed })
}

/// What a value of a loop is the transpose of, with its tile in the order of that one's axes.
fn viewed_tile(body: &For, value: Value, tile: OperandTile) -> (Value, OperandTile) {
    let Some(Kind::Permute(Permute { value, order })) = body.body.definition(value) else {
        return (value, tile);
    };
    let along: Vec<Option<usize>> =
        (0..order.len()).map(|axis| order.iter().position(|&from| from == axis)).collect();
    viewed_tile(body, *value, tile.viewed(&along))
}

/// Whether all loops with dots of warpgroups have a ring for their operands.
pub fn has_wgmma_rings(distributed: &Distributed, rings: &HashMap<Value, AllocatedRing>) -> bool {
    let mut fits = true;
    distributed.func.body.walk(&mut |op| {
        if let Kind::For(body) = &op.kind {
            let is_copied = |op: &Op| matches!(&op.kind, Kind::Dot(dot) if dot.unit.is_warpgroup());
            fits &= rings.contains_key(&body.body.args[0]) || !body.body.ops.iter().any(is_copied);
        }
    });
    fits
}

/// The axes of a tile whose axes of extent 1 are added or removed; `None` for another change of shape.
fn reshaped(axes: &[Option<usize>], from: &Shape, to: &Shape) -> Option<Vec<Option<usize>>> {
    let kept = from.kept_axes(to)?;
    let find = |axis| kept.iter().position(|&new| new == Some(axis)).and_then(|old| axes[old]);
    Some((0..to.rank()).map(find).collect())
}
