//! The bits of the coordinate along one axis: in which order registers, lanes and warps hold them.

use super::linear::Layout;

/// A run of coordinate bits along an axis that one kind of index holds, from the lowest up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Bits of the register index, which hold coordinate bits from `first` on.
    Registers { first: u32, bits: u32 },
    /// Consecutive bits of the lane index, rising from `lane`.
    Lanes { first: u32, lane: u32, bits: u32 },
    /// Bits of the warp index, rising.
    Warps { first: u32, warps: Vec<u32> },
    /// The odd count of blocks, which registers hold.
    Blocks { first: u32 },
}

impl Layout {
    /// The segments of the coordinate along `axis`, lowest first. Every basis of a layout that `assign` makes is one bit
    /// of one axis, and every coordinate bit has one basis.
    pub fn segments(&self, axis: usize) -> Vec<Segment> {
        let power = self.shape()[axis].trailing_zeros();
        let mut segments: Vec<Segment> = vec![];
        for bit in 0..power {
            let next = self.source(axis, bit);
            match (segments.last_mut(), next) {
                (Some(Segment::Registers { bits, .. }), Segment::Registers { .. }) => *bits += 1,
                (Some(Segment::Lanes { lane, bits, .. }), Segment::Lanes { lane: own, .. })
                    if *lane + *bits == own =>
                {
                    *bits += 1;
                }
                (Some(Segment::Warps { warps, .. }), Segment::Warps { warps: own, .. })
                    if warps.last() < own.first() =>
                {
                    warps.extend(own);
                }
                (_, next) => segments.push(next),
            }
        }
        if self.shape()[axis] >> power > 1 {
            segments.push(Segment::Blocks { first: power });
        }
        segments
    }

    /// What holds one bit of the coordinate.
    fn source(&self, axis: usize, first: u32) -> Segment {
        let holds = |bases: &[super::Coord]| bases.iter().position(|basis| basis.get(axis) >> first & 1 == 1);
        if let Some(lane) = holds(self.lane_bases()) {
            return Segment::Lanes { first, lane: lane as u32, bits: 1 };
        }
        if let Some(warp) = holds(self.warp_bases()) {
            return Segment::Warps { first, warps: vec![warp as u32] };
        }
        debug_assert!(holds(self.register_bases()).is_some(), "every coordinate bit has a basis");
        Segment::Registers { first, bits: 1 }
    }
}
