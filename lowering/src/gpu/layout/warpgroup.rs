//! The shapes of `wgmma`, the matrix instruction of a warpgroup, and how warpgroups share a dot's result.

/// Warps that multiply together.
pub const WARPGROUP_WARPS: u32 = 4;
/// Rows of the product that they take at once.
pub const WGMMA_M: u32 = 64;
/// The columns that they take at once, at most.
pub const MAX_WGMMA_N: u32 = 256;
/// Bytes of a row of the left factor that they take at once.
pub const WGMMA_K_BYTES: u32 = 32;
/// The bytes of a row of a block in shared memory; a longer row goes on behind the last one.
pub const SWIZZLE_ROW_BYTES: u32 = 128;

/// How groups of warps share a product: along its rows, and along its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarpGroupTiling {
    pub along_rows: u32,
    pub along_columns: u32,
}

impl WarpGroupTiling {
    /// Of so many warps, for so many rows: as many along rows as these can be dealt out to evenly.
    pub fn new(rows: u32, num_warps: u32) -> WarpGroupTiling {
        let groups = num_warps / WARPGROUP_WARPS;
        let sets = (rows / WGMMA_M).max(1);
        let even = |along_rows: &u32| groups.is_multiple_of(*along_rows) && sets.is_multiple_of(*along_rows);
        let along_rows = (1..=groups).rev().find(even).unwrap_or(1);
        WarpGroupTiling { along_rows, along_columns: groups / along_rows }
    }
}
