//! Blocks of views.

use dsl_runtime::prelude::*;

// ANCHOR: kernel
#[fuse_kernel(T = [f32], ROWS = [32], COLS = [64])]
pub fn transpose<T: Float, const ROWS: usize, const COLS: usize>(x: &View<T, 2>, out: &mut View<T, 2>) {
    let (row, col) = (tl::program_id(0) * ROWS, tl::program_id(1) * COLS);
    out.store(tl::trans(x.load::<ROWS, COLS>(row, col)), col, row);
}
// ANCHOR_END: kernel

// ANCHOR: launch
/// The transpose of columns `from..` of a matrix.
pub fn transpose_from(
    device: &Device,
    matrix: &Buffer<f32>,
    shape: [usize; 2],
    from: usize,
) -> dsl_runtime::Result<Vec<f32>> {
    let x = matrix.view(shape)?.slice(1, from..);
    let [rows, cols] = x.shape();
    let mut out = device.zeros::<f32>(rows * cols)?;
    transpose::<f32, 32, 64>(x, out.view_mut([cols, rows])?)
        .grid((rows.div_ceil(32), cols.div_ceil(64)))
        .launch(device)?;
    out.download()
}
// ANCHOR_END: launch
