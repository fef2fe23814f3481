//! The second kernel of the norms' backward passes: it reduces partial sums over rows, one set for each program of the first
//! kernel. Rows too long for registers beside such sums are read once more for them, a block of columns at a time.
//!
//! The number of partial sums depends on the shape alone, beyond [`BLOCK_COLS`] columns also on whether there are clusters, and
//! they are added in one order: the same gradient to the bit, run after run.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::shape::longest;

/// The longest row beside which a cluster has registers for its partial sums; longer ones are read again for them.
pub const MAX_COLS: usize = 32768;

/// The longest row beside which one block has registers for its partial sums.
pub const BLOCK_COLS: usize = 8192;

/// Clusters of 4 SMs that an H200 runs concurrently.
pub(crate) const LARGEST_CLUSTERS: usize = 30;

/// The columns that a program of [`sum_partials`] handles.
const COLS: usize = 32;

/// The columns that a program of [`column_partials()`] handles.
pub const WIDE_COLS: usize = 1024;

/// The longest row beside which a program has registers for its partial sums, on this device or stream.
pub(crate) fn max_register_cols(on: impl LaunchOn) -> usize {
    longest(on, MAX_COLS, BLOCK_COLS)
}

/// The number of programs over the rows, where rows of up to `max_register_cols` elements stay in registers: as many as an H200 runs
/// concurrently, with 8192 columns on each of its 132 SMs. A cluster for the longest rows is within a GPC of 16 or 18 SMs, which
/// leaves room for 30.
pub(crate) fn programs(rows: usize, cols: usize, max_register_cols: usize) -> usize {
    if cols > max_register_cols {
        return rows.div_ceil(4).min((7 * 132 / cols.div_ceil(WIDE_COLS)).max(1));
    }
    let block = cols.next_power_of_two().clamp(1024, MAX_COLS);
    rows.min(if block == MAX_COLS { LARGEST_CLUSTERS } else { 132 * BLOCK_COLS / block })
}

/// The most that [`programs`] gives, wherever the kernels run.
pub(crate) fn max_programs(rows: usize, cols: usize) -> usize {
    programs(rows, cols, MAX_COLS).max(programs(rows, cols, BLOCK_COLS))
}

/// Reduces the partial sums of `COLS` columns: of `dgamma`, or of `dbeta` where the grid's second index is 1. Program `p` of the
/// first kernel wrote row `p * GRADS` for `dgamma` and the row after it for `dbeta`, which may be empty where `GRADS` is 1.
#[fuse_kernel(T = [f32, f16, bf16], GRADS = [1, 2], COLS = [32])]
pub fn sum_partials<T: LibraryFloat, const GRADS: usize, const COLS: usize>(
    partials: &[f32],
    dgamma: &mut [T],
    dbeta: &mut [T],
    programs: i32,
    n_cols: i32,
) {
    let grad = tl::program_id(1);
    let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
    let program_ids = tl::arange(0, 64);
    let mut sums = tl::zeros::<f32>([64, COLS]);
    for first in (0..programs).step_by(64) {
        let mask = (first + program_ids < programs).col() & (cols < n_cols).row();
        let offsets = (((first + program_ids) * GRADS + grad) * n_cols).col() + cols.row();
        sums += tl::load(partials + offsets, mask);
    }
    let gradient = tl::sum(sums, 0).to::<T>();
    if GRADS == 1 || grad == 0 {
        tl::store(dgamma + cols, gradient, cols < n_cols);
    } else {
        tl::store(dbeta + cols, gradient, cols < n_cols);
    }
}

/// The partial sums of `dgamma`, and of `dbeta` where `GRADS` is 2, for [`sum_partials()`]: program `(i, j)` takes fours of rows `i`, `i +
/// programs`, and so on of its columns. `stats` has each row's scale, and behind those the means of the rows
/// where `GRADS` is 2.
#[fuse_kernel(T = [f32, f16, bf16], GRADS = [1, 2], COLS = [1024], num_warps = 4)]
pub fn column_partials<T: LibraryFloat, const GRADS: usize, const COLS: usize>(
    dy: &[T],
    x: &[T],
    stats: &[f32],
    partials: &mut [f32],
    n_rows: i32,
    n_cols: i32,
) {
    let cols = tl::program_id(1) * COLS + tl::arange(0, COLS);
    let mut dgamma = tl::zeros::<f32>([COLS]);
    let mut dbeta = tl::zeros::<f32>([COLS]);
    for first in (tl::program_id(0) * 4..n_rows).step_by(tl::num_programs(0) * 4) {
        for r in tl::static_range(0, 4) {
            let row = first + r;
            let mask = (cols < n_cols) & (row < n_rows);
            let x = tl::load(x + row * n_cols + cols, mask).to::<f32>();
            let dy = tl::load(dy + row * n_cols + cols, mask).to::<f32>();
            let scale = tl::load(stats + row, row < n_rows);
            if GRADS == 2 {
                let mean = tl::load(stats + n_rows + row, row < n_rows);
                dgamma += dy * ((x - mean) * scale);
                dbeta += dy;
            } else {
                dgamma += dy * (x * scale);
            }
        }
    }
    let partial_row = tl::program_id(0) * GRADS;
    tl::store(partials + partial_row * n_cols + cols, dgamma, cols < n_cols);
    if GRADS == 2 {
        tl::store(partials + (partial_row + 1) * n_cols + cols, dbeta, cols < n_cols);
    }
}

/// Launches [`sum_partials`] for `dgamma` alone, or for it and `dbeta`, of as many elements.
pub(crate) fn reduce<T: LibraryFloat>(
    on: impl LaunchOn,
    partials: Slice<f32>,
    mut dgamma: SliceMut<T>,
    dbeta: Option<SliceMut<T>>,
) -> Result<()> {
    let (cols, grads) = (dgamma.len(), if dbeta.is_some() { 2 } else { 1 });
    let (programs, grid) = ((partials.len() / (grads * cols)) as i32, (cols.div_ceil(COLS), grads));
    let call = if grads == 2 { sum_partials::<T, 2, COLS> } else { sum_partials::<T, 1, COLS> };
    let (dgamma, empty) = dgamma.split_at_mut(cols);
    call(partials, dgamma, dbeta.unwrap_or(empty), programs, cols as i32).grid(grid).launch(on)
}
