//! Which bits of a coordinate registers, lanes and warps hold.

use super::bit_order::Segment;
use super::linear::Layout;

/// The bits of a coordinate along an axis: of registers, lanes and warps.
#[derive(Default)]
pub struct CoordBits {
    /// The bits that registers hold, blocks included.
    pub registers: u32,
    pub lanes: u32,
    pub warps: u32,
}

impl CoordBits {
    pub fn new(layout: &Layout, axis: usize, coord: u32) -> CoordBits {
        let mut bits = CoordBits::default();
        for segment in layout.segments(axis) {
            match segment {
                Segment::Registers { first, bits: count } => {
                    bits.registers |= coord & (((1 << count) - 1) << first);
                }
                Segment::Blocks { first } => bits.registers |= coord >> first << first,
                Segment::Lanes { first, lane, bits: count } => {
                    bits.lanes |= (coord >> first & ((1 << count) - 1)) << lane;
                }
                Segment::Warps { first, warps } => {
                    for (i, warp) in warps.iter().enumerate() {
                        bits.warps |= (coord >> first >> i & 1) << warp;
                    }
                }
            }
        }
        bits
    }

    /// All lanes and warps along the axis.
    pub fn all(layout: &Layout, axis: usize) -> CoordBits {
        CoordBits::new(layout, axis, u32::MAX)
    }
}
