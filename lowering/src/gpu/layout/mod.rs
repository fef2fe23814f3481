//! Which thread holds which element, and the only place that moves elements between threads.
//!
//! - [`linear`]: the one type of layout: a map from register, lane and warp bits to coordinates.
//! - [`access`]: how wide a memory operation may be.
//! - [`assign`]: a layout for every tile value, with conversions where two meet.
//! - `copied`: tiles that lie in shared memory alone.
//! - [`defer`]: loops with products carry the sums of single lanes.
//! - [`dot`]: how what multiplies lies in the registers of its instructions.
//! - [`early`]: loads stand before reductions that they do not need.
//! - [`hold`]: narrow tiles that wait for a reduction stay narrow.
//! - [`hoist`]: what a loop multiplies by and does not change is made ready before it.
//! - `order`: the registers, lanes and warps along one axis.
//! - [`rounds`]: reductions that can share a barrier stand next to each other.
//! - `scanned`: how tiles lie whose columns are scanned.
//! - `store`: how stores take what was made of products.
//! - [`sink`]: branches in loops that multiply compute their ramps.
//! - [`unmask`]: what only masked-off elements would notice is left out.
//! - [`plan`]: how a conversion is done: nothing, registers, shuffles, shared memory.
//! - [`view`]: the same elements at other coordinates.
//! - `warps`: how many warps a program has, if the user does not say, and in how many blocks they are.

pub mod access;
pub mod assign;
mod bit_order;
mod coalesce_dot_stores;
pub mod conversion;
pub mod dot;
pub mod linear;
pub mod reindex;
mod scan;
mod smem_only;
pub mod warpgroup;
mod warps;

pub use assign::{Distributed, distribute};
pub use bit_order::Segment;
pub use conversion::{Conversion, conversion};
pub use linear::{Coord, Layout};
pub use smem_only::SmemOnlyTile;
pub use warps::ThreadConfig;
