//! What a scan along several warps keeps in shared memory: the totals of each warp.

use tile_ir::ops::Scan;
use tile_ir::support::dtype::DType;

use super::linear::{Coord, Layout};

/// The layout of the warps' totals in shared memory: for each group and each value of the thread bits outside the scan so
/// far, the totals of all warps are contiguous.
pub struct WarpTotals {
    /// Lane bits that were scanned, or are idle: of the lanes that differ in them one writes.
    pub same_total: u32,
    /// Lane bits that distinguish totals, and warp bits outside the segment.
    pub lanes: u32,
    pub others: u32,
    /// Warp bits of the segment.
    pub segment: u32,
    /// Contiguous totals: warps of the segment.
    pub warps: u32,
}

impl WarpTotals {
    pub fn new(layout: &Layout, axis: usize, segment: &[u32]) -> WarpTotals {
        let first = segment.iter().map(|&bit| layout.warp_bases()[bit as usize].get(axis)).min().unwrap_or(0);
        let scanned =
            layout.lane_bases().iter().enumerate().filter(|(_, basis)| (1..first).contains(&basis.get(axis)));
        let same_total = scanned.map(|(bit, _)| 1 << bit).sum::<u32>() | layout.replicated_lanes();
        let own: u32 = segment.iter().map(|bit| 1 << bit).sum();
        WarpTotals {
            same_total,
            lanes: 31 & !same_total,
            others: (layout.num_warps() - 1) & !own,
            segment: own,
            warps: 1 << segment.len(),
        }
    }

    /// Totals of one group.
    pub fn slots(&self) -> u32 {
        self.warps << (self.lanes.count_ones() + self.others.count_ones())
    }

    /// Bytes of the totals of so many groups, of one input with this type of elements.
    pub fn bytes(&self, dtype: DType, groups: u32) -> u32 {
        (groups * self.slots() * dtype.bytes()).next_multiple_of(16)
    }
}

/// How many groups a thread has when the coordinate bits below `first` are scanned.
pub fn group_count(scan: &Scan, layout: &Layout, first: u32) -> u32 {
    let mut keys: Vec<(Coord, u32)> =
        (0..layout.register_count()).map(|register| group_key(scan, layout, register, first)).collect();
    keys.sort();
    keys.dedup();
    keys.len() as u32
}

/// The group of a register's element then: its coordinates along the other axes, and the first one along the axis.
pub fn group_key(scan: &Scan, layout: &Layout, register: usize, first: u32) -> (Coord, u32) {
    let coord = layout.register(register);
    (coord.remove(scan.axis), coord.get(scan.axis) >> first << first)
}
