//! The geometry of TMA stores: the chunks of a tile that a warpgroup writes to its epilogue buffers one after the other.
//!
//! Each warpgroup has buffers for two chunks, of as many rows as one wgmma has and as many columns as a swizzled row holds.

use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WGMMA_M, WarpGroupTiling};
use tile_ir::ir::{Func, ParamId};
use tile_ir::ops::TmaStore;

/// Bytes of a chunk.
pub const CHUNK_BYTES: u32 = WGMMA_M * SWIZZLE_ROW_BYTES;
/// Chunks that a warpgroup has buffers for.
pub const MAX_CHUNKS: usize = 2;
/// Shared memory of TMA stores, and their tensor maps.
#[derive(Clone, Default, Debug)]
pub struct EpilogueBuffers {
    /// The tensor maps of stored views.
    pub maps: Vec<(ParamId, usize)>,
    /// The buffers of all warpgroups.
    pub bytes: u32,
    pub start: u32,
}

impl EpilogueBuffers {
    /// The indices of the tensor maps.
    pub fn maps(&self) -> impl Iterator<Item = usize> {
        self.maps.iter().map(|&(_, map)| map)
    }
}

/// A tile in chunks.
pub struct StoreChunks {
    pub tiling: WarpGroupTiling,
    /// The first row and column of each chunk of the first warpgroup.
    pub origins: Vec<[u32; 2]>,
    /// Columns of a chunk.
    pub width: u32,
    /// Columns, of a transpose rows, of a warpgroup.
    pub share: u32,
}

/// Chunks side by side of a transpose: of the rows of a warpgroup's dot.
const TRANSPOSED_CHUNKS: u32 = WGMMA_M * 4 / SWIZZLE_ROW_BYTES;

impl StoreChunks {
    pub fn new(func: &Func, store: &TmaStore, num_warps: u32) -> StoreChunks {
        let ty = func.ty(store.value);
        let [rows, columns] = [ty.shape[0], ty.shape[1]];
        if store.transposed {
            return StoreChunks::of_transpose([rows, columns], num_warps);
        }
        let tiling = WarpGroupTiling::new(rows, num_warps);
        let (width, share) = (SWIZZLE_ROW_BYTES / ty.dtype.bytes(), columns / tiling.along_columns);
        let sets = (0..rows).step_by((WGMMA_M * tiling.along_rows) as usize);
        let columns = || (0..share).step_by(width as usize);
        let origins = sets.flat_map(|row| columns().map(move |column| [row, column])).collect();
        StoreChunks { tiling, origins, width, share }
    }

    fn of_transpose([rows, columns]: [u32; 2], num_warps: u32) -> StoreChunks {
        let tiling = WarpGroupTiling::new(columns, num_warps);
        let (width, share) = (WGMMA_M / TRANSPOSED_CHUNKS, rows / tiling.along_columns);
        let each = WGMMA_M as usize;
        let sets = (0..columns).step_by(each * tiling.along_rows as usize);
        let halves = |column: u32| (0..TRANSPOSED_CHUNKS).map(move |half| column + half * width);
        let rows = || (0..share).step_by(each);
        let origins =
            sets.flat_map(|set| rows().flat_map(move |row| halves(set).map(move |column| [row, column])));
        StoreChunks { tiling, origins: origins.collect(), width, share }
    }
}
