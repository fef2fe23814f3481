//! Layouts of tiles that are scanned.
//!
//! **Along another axis than that of their vectors.** A thread holds contiguous elements along the scan axis, which it scans by itself; lanes
//! are distributed over the other axes as long as there are elements.
//!
//! **Along the axis of their vectors.** Lanes exchange once for each run of contiguous elements that a thread has. Where its accesses are
//! narrow, as those of rows of any length are, a thread holds one run all the same if what it saves is more than what it costs to have all that is
//! loaded and stored go through shared memory.

use tile_ir::ir::{Shape, Value};
use tile_ir::ops::{Kind, MemAccess, Scan};
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

use super::access;
use super::layout_graph::LayoutGraph;
use super::linear::{LANE_BITS, Layout};
use super::tile_access::{LayoutSite, moved_value};

/// What a conversion's barriers cost, in instructions of a thread.
const BARRIER_COST: u32 = 16;

/// A class of values that may be scanned.
pub(super) struct ScannedClass<'a> {
    pub site: &'a LayoutSite<'a>,
    pub graph: &'a LayoutGraph,
    pub class: usize,
}

impl ScannedClass<'_> {
    fn scans(&self) -> Vec<&Scan> {
        let mut found = vec![];
        self.site.func.body.walk(&mut |op| {
            if let Kind::Scan(scan) = &op.kind
                && self.graph.class(op.results[0]) == self.class
            {
                found.push(scan);
            }
        });
        found
    }

    /// The one axis along which its elements are scanned.
    pub fn axis(&self) -> Option<usize> {
        let scans = self.scans();
        let axis = scans.first()?.axis;
        scans.iter().all(|scan| scan.axis == axis).then_some(axis)
    }

    /// The elements of a thread, where accesses along the axis of the scan move `vector` of them at once: it holds them in one run if
    /// that is worth conversions, and nothing but loads and stores ties the class to a layout.
    pub fn contiguous_run(&self, shape: &Shape, vector: u32, num_warps: u32) -> Option<u32> {
        let axis = self.axis().filter(|_| self.site.num_ctas == 1)?;
        let share = (shape.elements() / (32 * u64::from(num_warps))) as u32;
        let run = share.min(shape[axis]).next_power_of_two();
        // A step between lanes shuffles and selects each value, and combines them.
        let step =
            |scan: &&Scan| (2 * scan.combination.inputs.len() + scan.combination.block.ops.len()) as u32;
        let steps = LANE_BITS as u32 * (share / vector).saturating_sub(share / run.max(1));
        let saved = steps * self.scans().iter().map(step).sum::<u32>();
        let cost = self.moved_accesses()? * (2 * share + BARRIER_COST);
        (saved > cost).then_some(run)
    }

    /// How many loads and stores the class has; `None` if another access ties it to a layout.
    fn moved_accesses(&self) -> Option<u32> {
        let (mut count, mut others) = (0, 0);
        self.site.func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let mut values = operation.operands().into_iter().chain(op.results.iter().copied());
            if operation.access().is_some() && values.any(|value| self.contains(value)) {
                let moved = moved_value(self.site, self.graph, op);
                *(if moved.is_some() { &mut count } else { &mut others }) += 1;
            }
        });
        (others == 0).then_some(count)
    }

    fn contains(&self, value: Value) -> bool {
        self.graph.has_layout(self.site.func, value) && self.graph.class(value) == self.class
    }

    /// The layout of an access, where threads hold longer runs to scan than it moves.
    pub fn access_layout(&self, place: &MemAccess, current: &Layout) -> Option<Layout> {
        let width = access::width(self.site.func, self.site.axes, place, self.site.alignment);
        let is_narrower = current.thread_contiguity(width.axis) > width.elements;
        (is_narrower && self.axis() == Some(width.axis))
            .then(|| Layout::of_vectors(current.shape(), width.axis, width.elements, current.num_warps()))
    }
}

/// The widest vectors along `fast` that leave no lanes for the scan axis, of elements that have at least so many bytes.
pub(super) fn max_vector(shape: &Shape, fast: usize, bytes: Option<u32>) -> u32 {
    let least = (MIN_ASYNC_COPY_BYTES / bytes.unwrap_or(MIN_ASYNC_COPY_BYTES)).max(1);
    (shape[fast].next_power_of_two() >> LANE_BITS).max(least)
}
