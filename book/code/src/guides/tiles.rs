//! Tiles of two axes, and functions with closures.

use dsl_runtime::prelude::*;

// ANCHOR: rows
#[fuse_kernel(ROWS = [16], COLS = [64])]
pub fn center_rows<const ROWS: usize, const COLS: usize>(
    x: &[f32],
    out: &mut [f32],
    n_rows: i32,
    n_cols: i32,
) {
    let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS); // i32[16]
    let cols = tl::arange(0, COLS); // i32[64]
    let offsets = rows.col() * n_cols + cols.row(); // i32[16, 64]
    let mask = (rows < n_rows).col() & (cols < n_cols).row(); // bool[16, 64]
    let x = tl::load(x + offsets, mask); // f32[16, 64]
    let mean = tl::sum(x, 1) / n_cols as f32; // f32[16]
    tl::store(out + offsets, x - mean.col(), mask);
}
// ANCHOR_END: rows
