//! Layouts of tiles that are scanned along another axis than that of their vectors. A thread holds contiguous elements
//! along the scan axis, which it scans by itself; lanes are distributed over the other axes as long as there are
//! elements.

use tile_ir::ir::{Func, Shape};
use tile_ir::ops::Kind;
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use super::layout_graph::LayoutGraph;
use super::linear::LANE_BITS;

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

/// The widest vectors along `fast` that leave no lanes for the scan axis, of elements that have at least so many bytes.
pub(super) fn max_vector(shape: &Shape, fast: usize, bytes: Option<u32>) -> u32 {
    let least = (MIN_ASYNC_COPY_BYTES / bytes.unwrap_or(MIN_ASYNC_COPY_BYTES)).max(1);
    (shape[fast].next_power_of_two() >> LANE_BITS).max(least)
}
