//! Emission of the operations of a schedule, one by one: each says where it stands and what it does, and nothing is decided here.
//!
//! A pipeline state is two registers, stage and phase. A tile of words is its words. Buffers in shared memory and `mbarrier` objects
//! have no registers: their addresses are constants.

mod async_operations;
mod barriers;
mod buffers;
mod cluster;
mod copies;
mod loops;
mod operand_tile;
mod rescale;
mod roles;
mod smem_addresses;
mod tma;
mod tma_store;
mod wgmma;
mod work_tiles;

pub(super) use async_operations::AsyncOperations;
pub(super) use buffers::{PipelineState, SmemBufferAddress};
pub(super) use copies::CopyInstruction;
pub(super) use operand_tile::{SlotTileAddress, SmemRowAddress, TileAddresses};
pub(super) use smem_addresses::SmemAddresses;
pub(super) use work_tiles::CurrentWorkTile;
