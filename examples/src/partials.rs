//! The second half of the norms' backward passes: sums over rows, of which each program of the first half left a part.
//!
//! The number of parts depends on the shape alone, not on the device, and parts are added in one order: the same
//! gradient to the bit, run after run.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

/// What the first half's programs handle at most, in columns.
pub const MAX_COLS: usize = 8192;

/// The columns that a program of [`sum_partials`] handles.
const COLS: usize = 32;

/// How many programs share the rows: enough to fill an H200, whose 132 multiprocessors hold 8192 columns each twice, few
/// enough that their parts are a small share of the traffic.
pub(crate) fn programs(rows: usize, cols: usize) -> usize {
    let block = cols.next_power_of_two().clamp(1024, MAX_COLS);
    rows.min(132 * 2 * MAX_COLS / block)
}

/// Adds the parts of `COLS` columns: of `dgamma`, or of `dbeta` where the grid's second index is 1. Program `p` of the
/// first half left row `p * kinds` for `dgamma` and the row after it for `dbeta`.
#[fuse_kernel(T = [f32, f16, bf16], COLS = [32])]
pub fn sum_partials<T: Float, const COLS: usize>(
    partials: &[f32],
    dgamma: &mut [T],
    dbeta: &mut [T],
    programs: i32,
    n_cols: i32,
) {
    let (kind, kinds) = (tl::program_id(1), tl::num_programs(1));
    let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
    let parts = tl::arange(0, 64);
    let mut sums = tl::zeros::<f32>([64, COLS]);
    for first in (0..programs).step_by(64) {
        let mask = (first + parts < programs).col() & (cols < n_cols).row();
        let places = (((first + parts) * kinds + kind) * n_cols).col() + cols.row();
        sums += tl::load(partials + places, mask);
    }
    let total = tl::sum(sums, 0).to::<T>();
    if kind == 0 {
        tl::store(dgamma + cols, total, cols < n_cols);
    } else {
        tl::store(dbeta + cols, total, cols < n_cols);
    }
}

/// Launches [`sum_partials`] for one or both gradients, each of `cols` elements.
pub(crate) fn sum<T: Float>(
    on: impl LaunchOn,
    partials: Slice<f32>,
    dgamma: SliceMut<T>,
    dbeta: Option<SliceMut<T>>,
) -> Result<()>
where
    sum_partials::Choice<T, COLS>: sum_partials::Declared,
{
    let (cols, kinds) = (dgamma.len(), 1 + usize::from(dbeta.is_some()));
    let programs = (partials.len() / (kinds * cols)) as i32;
    let mut dgamma = dgamma;
    let (dgamma, nothing) = dgamma.split_at_mut(cols);
    let dbeta = dbeta.unwrap_or(nothing);
    let call = sum_partials::<T, COLS>(partials, dgamma, dbeta, programs, cols as i32);
    call.grid((cols.div_ceil(COLS), kinds)).launch(on)
}
