//! The named barriers of a block: the hardware has sixteen, of which 0 is that of all its threads.

use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;

/// A named barrier, for some of a block's warps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedBarrier {
    /// Of the warps that multiply, beside those that load.
    Consumers,
    /// Where a warpgroup waits for its place in the order of dots.
    MmaOrder(u32),
    /// Of the warps of a warpgroup that stores.
    Store(u32),
}

/// The warps of the largest block.
const MAX_WARPS: u32 = 32;
/// The most warpgroups that have barriers of their own: one of a block with roles loads.
const MAX_WARPGROUPS: u32 = MAX_WARPS / WARPGROUP_WARPS - 1;

impl NamedBarrier {
    /// Its number. Those of warpgroups follow one another.
    pub const fn number(self) -> u32 {
        match self {
            NamedBarrier::Consumers => 1,
            NamedBarrier::MmaOrder(warpgroup) => 2 + warpgroup,
            NamedBarrier::Store(warpgroup) => NamedBarrier::MmaOrder(MAX_WARPGROUPS).number() + warpgroup,
        }
    }
}

const _: () = assert!(NamedBarrier::Store(MAX_WARPGROUPS - 1).number() < 16);
