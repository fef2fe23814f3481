//! The memory accesses of tiles, by which layouts are chosen.

use std::collections::{HashMap, HashSet};

use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::analysis::program_varying::{Across, varying};
use tile_ir::analysis::repeated_access::repeated;
use tile_ir::ir::{Func, Op, Shape, Value};
use tile_ir::ops::{Effect, Kind, MemAccess};

use super::access::{self, AccessWidth, Alignment};
use super::layout_graph::LayoutGraph;

/// Bytes of a tile beyond which its accesses have its own layout.
const MAX_BYTES: u64 = 64 * 1024;

/// The function whose layouts are chosen, with what is known about it.
#[derive(Clone, Copy)]
pub(in crate::gpu) struct LayoutSite<'a> {
    pub func: &'a Func,
    pub axes: &'a AxisInfoMap,
    pub alignment: Alignment,
    pub num_ctas: u32,
}

/// A memory access of a tile, by which a layout is chosen.
pub(in crate::gpu) struct TileAccess {
    /// Values whose class it belongs to: its data, offsets, mask and `other`.
    pub(in crate::gpu) values: Vec<Value>,
    pub(super) shape: Shape,
    pub(super) width: AccessWidth,
    pub(super) elem_bytes: u32,
    /// Whether its addresses differ between programs: streaming traffic, not a table that stays in the cache.
    pub(in crate::gpu) streams: bool,
    pub(in crate::gpu) reads: bool,
    /// Whether it is in a loop: it runs more often than others.
    pub(super) repeats: bool,
}

impl TileAccess {
    pub(in crate::gpu) fn bytes(&self) -> u64 {
        self.shape.elements() * u64::from(self.elem_bytes)
    }
}

pub(super) fn accesses(func: &Func, alignment: Alignment, axes: &AxisInfoMap) -> Vec<TileAccess> {
    let varying = varying(func, Across::ProgramsAndIterations);
    let mut found = vec![];
    let repeated = repeated(func);
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let tile = |place: &&MemAccess| !func.ty(place.offset).is_scalar();
        let Some(place) = operation.access().filter(tile) else { return };
        let shape = func.ty(place.offset).shape.clone();
        let values = operation.operands().into_iter().chain(op.results.iter().copied()).collect();
        let streams =
            varying.contains(&place.offset) || place.base.is_some_and(|base| varying.contains(&base));
        let width = access::width(func, axes, place, alignment);
        let elem_bytes = func.slice(place.param).0.bytes();
        let reads = operation.effect() != Effect::Write;
        let repeats = repeated.contains(place);
        found.push(TileAccess { values, shape, width, elem_bytes, streams, reads, repeats });
    });
    found
}

/// The accesses of each class of values.
pub(super) fn by_class<'a>(
    func: &Func,
    graph: &LayoutGraph,
    accesses: &'a [TileAccess],
) -> HashMap<usize, Vec<&'a TileAccess>> {
    let mut found: HashMap<usize, Vec<&TileAccess>> = HashMap::new();
    for access in accesses {
        let laid_out = access.values.iter().filter(|&&value| graph.has_layout(func, value));
        let classes: HashSet<usize> = laid_out.map(|&value| graph.class(value)).collect();
        for class in classes {
            found.entry(class).or_default().push(access);
        }
    }
    found
}

/// The value that a load or a store moves, if its addresses can be computed in any layout.
pub(super) fn moved_value(site: &LayoutSite, graph: &LayoutGraph, op: &Op) -> Option<Value> {
    let operands = op.kind.operation().operands();
    let loaded = op.results.iter().copied().filter(|_| matches!(op.kind, Kind::Load(_)));
    let mut tiles = operands.into_iter().chain(loaded).filter(|&value| graph.has_layout(site.func, value));
    let value = tiles.next()?;
    let only_value = tiles.next().is_none() && (op.results.is_empty() || op.results == [value]);
    let small = |value: Value| {
        let ty = site.func.ty(value);
        ty.shape.elements() * u64::from(ty.dtype.bytes()) <= MAX_BYTES
    };
    (only_value && small(value)).then_some(value)
}
