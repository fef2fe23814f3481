//! Stores of what was made of products.
//!
//! A thread has two neighbours at most of a row of a product, so a store as it lies moves a quarter of what one instruction
//! can, and the lanes of a warp are scattered over eight rows. Such a store takes its tile in whole vectors along a row: the
//! narrow tile goes through shared memory once, and where it is stored to is computed for that layout. Only where this
//! happens once: a loop that multiplies needs its shared memory, and its time.
//!
//! Nor does a tile lie well that is read along one axis and written along another, as a transposition does: it lies as it is read,
//! and is written as it is best written.

use std::collections::HashMap;

use crate::analysis::repeated_access::repeated;
use crate::gpu::layout::access;
use crate::gpu::layout::access::AccessWidth;
use crate::gpu::layout::assign::{LayoutGraph, LayoutSite};
use crate::gpu::layout::linear::Layout;
use crate::ir::{Op, Value};
use crate::ops::MemAccess;

/// Bytes of a tile beyond which it is stored as it lies.
const MAX_BYTES: u64 = 64 * 1024;

/// Elements of a tile that is worth two barriers to turn.
const FEWEST: u64 = 1024;

/// The bytes of memory that move together.
const SECTOR: u32 = 32;

/// The layouts in which stores take what lies otherwise: of classes that follow from products, which are `fragments`, and of
/// others among all classes.
pub(in crate::gpu) fn store_layouts(
    site: &LayoutSite,
    graph: &LayoutGraph,
    [fragments, classes]: [&HashMap<usize, Layout>; 2],
) -> HashMap<MemAccess, Layout> {
    let repeated = repeated(site.func);
    let mut found = HashMap::new();
    // In a cluster every block would write all of the tile.
    if site.num_ctas > 1 {
        return found;
    }
    site.func.body.walk(&mut |op| {
        if let Some(&place) = op.kind.operation().place()
            && !repeated.contains(&place)
            && let Some(class) = stored(site, graph, op).map(|value| graph.class(value))
        {
            let layout = match (fragments.get(&class), classes.get(&class)) {
                (Some(lies), _) => row_vectors(site, &place, lies),
                (None, lies) => lies.and_then(|lies| transposed(site, &place, lies)),
            };
            found.extend(layout.map(|layout| (place, layout)));
        }
    });
    found
}

/// What a store takes besides places that can be computed in any layout.
fn stored(site: &LayoutSite, graph: &LayoutGraph, op: &Op) -> Option<Value> {
    let operands = op.kind.operation().operands();
    let mut held = operands.into_iter().filter(|&value| graph.has_layout(site.func, value));
    let value = held.next()?;
    let alone = held.next().is_none() && op.results.is_empty();
    let small = |value: Value| {
        let ty = site.func.ty(value);
        ty.shape.elements() * u64::from(ty.dtype.bytes()) <= MAX_BYTES
    };
    (alone && small(value)).then_some(value)
}

/// Whole vectors along a row, if a tile that lies so is stored in less than half of one.
fn row_vectors(site: &LayoutSite, place: &MemAccess, lies: &Layout) -> Option<Layout> {
    let width = access::width(site.func, site.axes, place, site.alignment);
    let shape = lies.shape();
    let is_row = width.axis + 1 == shape.rank();
    let layout = Layout::of_vectors(shape, width.axis, width.elements, lies.num_warps());
    (is_row
        && 2 * lies.thread_contiguity(width.axis) < layout.thread_contiguity(width.axis).min(width.elements))
    .then_some(layout)
}

/// Rows of vectors, if neighbours of a tile that lies so are stored far apart, since it lies along another axis.
fn transposed(site: &LayoutSite, place: &MemAccess, lies: &Layout) -> Option<Layout> {
    let shape = lies.shape();
    if shape.elements() < FEWEST {
        return None;
    }
    let AccessWidth { axis, elements, .. } = access::width(site.func, site.axes, place, site.alignment);
    let bytes = site.func.slice(place.param).0.bytes();
    let along =
        (0..shape.rank()).filter(|&other| other != axis && lies.warp_contiguity(other) * bytes >= SECTOR);
    let layout = Layout::of_vectors(shape, axis, elements, lies.num_warps());
    let [own, best] = [lies, &layout].map(|layout| layout.warp_contiguity(axis));
    (along.count() > 0 && own * bytes < SECTOR && best >= 4 * own).then_some(layout)
}
