//! The shapes of `wgmma`, the matrix instruction of a warpgroup, and how warpgroups tile the result of a dot.

use tile_ir::support::dtype::DType;

/// Warps of a warpgroup.
pub const WARPGROUP_WARPS: u32 = 4;
/// M of a wgmma instruction.
pub const WGMMA_M: u32 = 64;
/// The largest N of a wgmma instruction.
pub const MAX_WGMMA_N: u32 = 256;
/// What N of a wgmma instruction is a multiple of.
const COLUMN_MULTIPLE: u32 = 8;
/// K of a wgmma instruction, in bytes.
pub const WGMMA_K_BYTES: u32 = 32;
/// Bytes of a swizzled row of shared memory; a longer row of a tile continues in the next block of rows.
pub const SWIZZLE_ROW_BYTES: u32 = 128;

/// How warpgroups tile a result: along its rows, and along its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarpGroupTiling {
    pub along_rows: u32,
    pub along_columns: u32,
}

impl WarpGroupTiling {
    /// For so many rows and warps: as many warpgroups along rows as tile them evenly.
    pub fn new(rows: u32, num_warps: u32) -> WarpGroupTiling {
        let warpgroups = num_warps / WARPGROUP_WARPS;
        let sets = (rows / WGMMA_M).max(1);
        let even =
            |along_rows: &u32| warpgroups.is_multiple_of(*along_rows) && sets.is_multiple_of(*along_rows);
        let along_rows = (1..=warpgroups).rev().find(even).unwrap_or(1);
        WarpGroupTiling { along_rows, along_columns: warpgroups / along_rows }
    }

    /// The columns of each warpgroup, of so many in all, if there is an instruction of that many.
    pub fn columns_of_each(&self, columns: u32) -> Option<u32> {
        // Warpgroups that are no power of two are along rows alone, and so are those of an N that is none: halves are of a power of
        // two.
        let even = self.along_columns == 1
            || self.along_columns.is_power_of_two()
                && columns.is_power_of_two()
                && columns >= self.along_columns;
        let each = columns / self.along_columns;
        (even && each.is_multiple_of(COLUMN_MULTIPLE) && each <= MAX_WGMMA_N).then_some(each)
    }
}

/// The most words of operand A that a thread preloads for a loop, and for how many warpgroups there are registers.
const MAX_PRELOADED_WORDS: u32 = 32;
const MAX_PRELOAD_WARPGROUPS: u32 = 2;

/// How many words a thread would preload of an operand A with these lines for a dot of so many rows; `None` where they are too many.
pub fn preload_word_count(dtype: DType, lines: [u32; 2], rows: u32, num_warps: u32) -> Option<u32> {
    let tiling = WarpGroupTiling::new(rows, num_warps);
    let [_, inner] = lines;
    let words = rows / (WGMMA_M * tiling.along_rows) * inner / 4;
    let few =
        words <= MAX_PRELOADED_WORDS && tiling.along_rows * tiling.along_columns <= MAX_PRELOAD_WARPGROUPS;
    (dtype.is_half() && few).then_some(words)
}
