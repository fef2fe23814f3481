//! Layouts: which thread holds which element of a tile. Takes tile IR, gives the same IR with a layout for every tile
//! value and a `Convert` where two layouts meet. Only conversions move elements between threads.
//!
//! - [`linear`]: the one layout type: a linear map from register, lane and warp bits to coordinates.
//! - [`access`]: how wide a memory access may be.
//! - `access_layouts`: layouts of loads and stores whose tile has another one.
//! - [`assign`]: a layout for every tile value, with conversions where two meet.
//! - `bit_order`: the order of registers, lanes and warps along one axis.
//! - [`conversion`]: how a conversion is done: not at all, by registers, shuffles or shared memory.
//! - `coord_bits`: which bits of a coordinate registers, lanes and warps hold.
//! - [`distributed`]: what all of this gives.
//! - [`dot`]: layouts of dot operands and accumulators, as mma and wgmma instructions take them.
//! - [`gather`]: gathers that stay within each warp.
//! - `known_elements`: elements that follow from their coordinates.
//! - `layout_graph`: which values share a layout.
//! - `reindex`: layouts through views, which hold the same elements at other coordinates.
//! - `scan`: layouts of tiles that are scanned along an axis.
//! - [`scratch_operands`]: operands of dots that go through shared memory.
//! - `smem_only`: tiles that are in shared memory alone.
//! - [`smem_tile`]: where an element of a tile in shared memory is.
//! - `tile_access`: the accesses by which layouts are chosen.
//! - [`warp_totals`]: what a scan along several warps keeps in shared memory.
//! - `warps`: how many warps a program has where the user does not say, and in how many CTAs they are.

pub mod access;
mod access_layouts;
pub mod assign;
mod bit_order;
pub mod conversion;
pub mod coord_bits;
pub mod distributed;
pub mod dot;
pub mod gather;
mod known_elements;
mod layout_graph;
pub mod linear;
pub mod reindex;
mod scan;
pub mod scratch_operands;
mod smem_only;
pub mod smem_tile;
mod tile_access;
pub mod warp_totals;
pub mod warpgroup;
mod warps;

pub use assign::distribute;
pub use bit_order::Segment;
pub use conversion::{Conversion, conversion};
pub use distributed::Distributed;
pub use linear::{Coord, Layout};
pub use smem_only::SmemOnlyTile;
pub use warps::ThreadConfig;
