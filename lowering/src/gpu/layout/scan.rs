//! Layouts of tiles that are scanned along another axis than that of their vectors. A thread holds contiguous elements
//! along the scan axis, which it scans by itself; lanes are distributed over the other axes as long as there are
//! elements.

use tile_ir::ir::{Func, Shape};
use tile_ir::ops::Kind;
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use super::layout_graph::LayoutGraph;
use super::linear::{LANE_BITS, Layout};

/// The one axis along which elements of a class are scanned.
pub(super) fn axis(func: &Func, graph: &LayoutGraph, class: usize) -> Option<usize> {
    let mut axes = vec![];
    func.body.walk(&mut |op| {
        if let Kind::Scan(scan) = &op.kind
            && graph.class(op.results[0]) == class
        {
            axes.push(scan.axis);
        }
    });
    axes.dedup();
    match axes[..] {
        [axis] => Some(axis),
        _ => None,
    }
}

/// The layout for a scan along `axis` of what memory moves as `vector` elements of `bytes` each along `fast`. Vectors
/// get narrower where wider ones would leave lanes for the scan axis.
pub(super) fn layout(
    shape: &Shape,
    (fast, vector): (usize, u32),
    axis: usize,
    bytes: Option<u32>,
    num_warps: u32,
) -> Layout {
    let least = (MIN_ASYNC_COPY_BYTES / bytes.unwrap_or(MIN_ASYNC_COPY_BYTES)).max(1);
    let narrow = (shape[fast].next_power_of_two() >> LANE_BITS).max(least);
    Layout::for_scan(shape, fast, axis, vector.min(narrow), num_warps)
}
