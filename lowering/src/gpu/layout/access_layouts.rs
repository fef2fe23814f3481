//! Layouts of accesses whose tile has another one.
//!
//! **Results of dots.** A thread holds two contiguous elements of a row of an accumulator at most. Stored in that layout, an instruction
//! moves a quarter of what it can, and the lanes of a warp are scattered over eight rows. Such a store takes its tile
//! in whole vectors along a row: the tile goes through shared memory once, and its addresses are computed for that
//! layout.
//!
//! **Transposes.** A tile that is read along one axis and written along another keeps the layout of its loads, and
//! is stored in the one that suits the store, unless a loop repeats it.
//!
//! **Scans.** A tile whose threads hold contiguous elements to scan, more than an access moves at once, is loaded and stored in the layout of
//! its accesses: see [`ScannedClass::contiguous_run`].

use std::collections::HashMap;

use tile_ir::analysis::repeated_access::repeated;
use tile_ir::ops::MemAccess;

use crate::gpu::layout::access;
use crate::gpu::layout::access::AccessWidth;
use crate::gpu::layout::layout_graph::LayoutGraph;
use crate::gpu::layout::linear::Layout;
use crate::gpu::layout::scan::ScannedClass;
use crate::gpu::layout::tile_access::{LayoutSite, moved_value};

/// The fewest elements of a tile for which a conversion is worth its two barriers.
const MIN_ELEMENTS: u64 = 1024;

/// Bytes of a sector, which memory moves as a whole.
const SECTOR_BYTES: u32 = 32;

/// The layouts of accesses whose tile has another one: for classes that follow from dots, which are `fragments`, and for
/// others among all classes.
pub(in crate::gpu) fn access_layouts(
    site: &LayoutSite,
    graph: &LayoutGraph,
    [fragments, classes]: [&HashMap<usize, Layout>; 2],
) -> HashMap<MemAccess, Layout> {
    let repeated = repeated(site.func);
    let mut found = HashMap::new();
    // In a cluster every CTA would write all of the tile.
    if site.num_ctas > 1 {
        return found;
    }
    site.func.body.walk(&mut |op| {
        let moved = moved_value(site, graph, op).map(|value| graph.class(value));
        if let (Some(&place), Some(class)) = (op.kind.operation().access(), moved) {
            let stores = op.results.is_empty();
            let layout = match (fragments.get(&class), classes.get(&class)) {
                (Some(current), _) => row_vectors(site, &place, current).filter(|_| stores),
                (None, Some(current)) => {
                    let of_store =
                        || transposed(site, &place, current).filter(|_| !repeated.contains(&place));
                    ScannedClass { site, graph, class }
                        .access_layout(&place, current)
                        .or_else(|| stores.then(of_store)?)
                }
                (None, None) => None,
            };
            found.extend(layout.map(|layout| (place, layout)));
        }
    });
    found
}

/// Whole vectors along a row, if this layout stores less than half of one at once.
fn row_vectors(site: &LayoutSite, place: &MemAccess, current: &Layout) -> Option<Layout> {
    let width = access::width(site.func, site.axes, place, site.alignment);
    let shape = current.shape();
    let is_row = width.axis + 1 == shape.rank();
    let layout = Layout::of_vectors(shape, width.axis, width.elements, current.num_warps());
    (is_row
        && 2 * current.thread_contiguity(width.axis)
            < layout.thread_contiguity(width.axis).min(width.elements))
    .then_some(layout)
}

/// Rows of vectors, if this layout stores contiguous elements far apart, since its warps are contiguous along another
/// axis.
fn transposed(site: &LayoutSite, place: &MemAccess, current: &Layout) -> Option<Layout> {
    let shape = current.shape();
    if shape.elements() < MIN_ELEMENTS {
        return None;
    }
    let AccessWidth { axis, elements, .. } = access::width(site.func, site.axes, place, site.alignment);
    let bytes = site.func.slice(place.param).0.bytes();
    let along = (0..shape.rank())
        .filter(|&other| other != axis && current.warp_contiguity(other) * bytes >= SECTOR_BYTES);
    let layout = Layout::of_vectors(shape, axis, elements, current.num_warps());
    let [current_run, best] = [current, &layout].map(|layout| layout.warp_contiguity(axis));
    (along.count() > 0 && current_run * bytes < SECTOR_BYTES && best >= 4 * current_run).then_some(layout)
}
