//! Stores of what was made of products.
//!
//! A thread has two neighbours at most of a row of a product, so a store as it lies moves a quarter of what one instruction
//! can, and the lanes of a warp are scattered over eight rows. Such a store takes its tile in whole vectors along a row: the
//! narrow tile goes through shared memory once, and where it is stored to is computed for that layout. Only where this
//! happens once: a loop that multiplies needs its shared memory, and its time.

use std::collections::HashMap;

use super::access;
use super::assign::{Graph, Site, repeated};
use super::linear::Layout;
use crate::ops::Place;
use crate::tile::{Op, Value};

/// Bytes of a tile beyond which it is stored as it lies.
const MAX_BYTES: u64 = 64 * 1024;

/// The layouts in which stores take what lies otherwise; `fragments` are those of classes that follow from products.
pub(super) fn layouts(
    site: &Site,
    graph: &Graph,
    fragments: &HashMap<usize, Layout>,
) -> HashMap<Place, Layout> {
    let repeated = repeated(site.func);
    let mut found = HashMap::new();
    // In a cluster every block would write all of the tile.
    if site.num_ctas > 1 {
        return found;
    }
    site.func.body.walk(&mut |op| {
        if let Some(&place) = op.kind.operation().place()
            && !repeated.contains(&place)
            && let Some(lies) = stored(site, graph, op).and_then(|value| fragments.get(&graph.class(value)))
        {
            found.extend(wider(site, &place, lies).map(|layout| (place, layout)));
        }
    });
    found
}

/// What a store takes besides places that can be computed in any layout.
fn stored(site: &Site, graph: &Graph, op: &Op) -> Option<Value> {
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
fn wider(site: &Site, place: &Place, lies: &Layout) -> Option<Layout> {
    let width = access::width(site.func, site.axes, place, site.alignment);
    let shape = lies.shape();
    let is_row = width.axis + 1 == shape.rank();
    let layout = Layout::of_vectors(shape, width.axis, width.elements, lies.num_warps());
    (is_row && 2 * lies.run(width.axis) < layout.run(width.axis).min(width.elements)).then_some(layout)
}
