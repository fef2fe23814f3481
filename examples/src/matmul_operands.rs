//! The operands of [`crate::matmul`] as kernels read them fast: which are, and copies of those that are not.

use dsl_runtime::prelude::*;
use dsl_runtime::{Result, Temporary};

use crate::matmul::Tile;
use crate::matmul_tiles::{align_both, align_rows, transpose_rows};
use crate::split_matmul;

/// Whether rows or columns are contiguous and begin at multiples of 16 bytes, as far as strides say.
pub(crate) fn is_aligned<T: Float>(matrices: &View<'_, T, 3>) -> bool {
    let ([batches, rows, cols], [batch, row, col]) = (matrices.shape(), matrices.strides());
    let even =
        |extent: usize, stride: usize| extent == 1 || split_matmul::in_vectors([stride, 1], size_of::<T>());
    even(batches, batch) && (col == 1 && even(rows, row) || row == 1 && even(cols, col))
}

/// Whether the columns of an operand are contiguous and its rows are not.
pub(crate) fn is_column_major<T: Float>(matrices: &View<'_, T, 3>) -> bool {
    let [_, row, col] = matrices.strides();
    row == 1 && col != 1
}

/// An operand to copy to rows that begin at multiples of 16 bytes; of a column-major one its columns are the rows.
#[derive(Clone, Copy)]
pub(crate) struct Unaligned<'v, T: Float> {
    rows: View<'v, T, 3>,
    strides: [usize; 3],
    column_major: bool,
}

impl<'v, T: Float> Unaligned<'v, T> {
    pub(crate) fn new(of: View<'v, T, 3>) -> Self {
        let column_major = is_column_major(&of);
        let rows = if column_major { of.permute([0, 2, 1]) } else { of };
        let [_, count, len] = rows.shape();
        let line = len.next_multiple_of(split_matmul::VECTOR / size_of::<T>());
        Unaligned { rows, strides: [count * line, line, 1], column_major }
    }

    /// Memory for the copy.
    fn memory(&self, on: impl LaunchOn) -> Result<Temporary<T>> {
        on.temporary(self.rows.shape()[0] * self.strides[0])
    }

    /// The copy in its memory, as the factor is.
    pub(crate) fn copy<'t>(&self, memory: &'t Temporary<T>) -> Result<View<'t, T, 3>> {
        let view = memory.slice().view_strided(self.rows.shape(), self.strides)?;
        Ok(if self.column_major { view.permute([0, 2, 1]) } else { view })
    }

    /// Programs that copy `cols` columns each.
    fn programs(&self, cols: usize) -> usize {
        Tile { rows: COPIED_ROWS, cols }.count(self.rows.shape())
    }
}

/// Copies one or both operands; gives the memory of each copy.
pub(crate) fn copy_rows<T: Float>(
    on: impl LaunchOn,
    operands: [Option<Unaligned<'_, T>>; 2],
) -> Result<[Option<Temporary<T>>; 2]>
where
    align_rows::Choice<T, COPIED_ROWS, NARROW_COPY>: align_rows::Declared,
    align_rows::Choice<T, COPIED_ROWS, WIDE_COPY>: align_rows::Declared,
    align_both::Choice<T, COPIED_ROWS, NARROW_COPY>: align_both::Declared,
    align_both::Choice<T, COPIED_ROWS, WIDE_COPY>: align_both::Declared,
{
    let programs = |cols: usize| operands.iter().flatten().map(|rows| rows.programs(cols)).sum::<usize>();
    let wide = programs(WIDE_COPY) >= 2 * on.processors();
    let grid = programs(if wide { WIDE_COPY } else { NARROW_COPY });
    Ok(match operands {
        [Some(left), Some(right)] => {
            let (mut x_memory, mut y_memory) = (left.memory(on)?, right.memory(on)?);
            let (mut x_slice, mut y_slice) = (x_memory.slice_mut(), y_memory.slice_mut());
            let x = x_slice.view_strided_mut(left.rows.shape(), left.strides)?;
            let y = y_slice.view_strided_mut(right.rows.shape(), right.strides)?;
            if wide {
                align_both::<T, COPIED_ROWS, WIDE_COPY>(left.rows, x, right.rows, y).grid(grid).launch(on)?;
            } else {
                align_both::<T, COPIED_ROWS, NARROW_COPY>(left.rows, x, right.rows, y)
                    .grid(grid)
                    .launch(on)?;
            }
            [Some(x_memory), Some(y_memory)]
        }
        [None, None] => [None, None],
        [left, right] => {
            let rows = left.or(right).expect("there is one");
            let mut memory = rows.memory(on)?;
            let mut slice = memory.slice_mut();
            let out = slice.view_strided_mut(rows.rows.shape(), rows.strides)?;
            if wide {
                align_rows::<T, COPIED_ROWS, WIDE_COPY>(rows.rows, out).grid(grid).launch(on)?;
            } else {
                align_rows::<T, COPIED_ROWS, NARROW_COPY>(rows.rows, out).grid(grid).launch(on)?;
            }
            if left.is_some() { [Some(memory), None] } else { [None, Some(memory)] }
        }
    })
}

/// Copies an operand to where its other lines are contiguous and begin at multiples of 16 bytes; gives the memory of the copy.
pub(crate) fn copy_transposed(on: impl LaunchOn, of: &Transposed<'_>) -> Result<Temporary<f32>> {
    let mut memory = on.temporary::<f32>(of.lines.shape()[0] * of.strides[0])?;
    let [batches, count, len] = of.lines.shape();
    let mut slice = memory.slice_mut();
    let out = slice.view_strided_mut([batches, len, count], of.strides)?;
    let grid = TRANSPOSED.count(of.lines.shape());
    transpose_rows::<{ TRANSPOSED.rows }, { TRANSPOSED.cols }>(of.lines, out).grid(grid).launch(on)?;
    Ok(memory)
}

/// An operand whose copy lies in the other order: by columns if its rows are contiguous, by rows if its columns are.
#[derive(Clone, Copy)]
pub(crate) struct Transposed<'v> {
    /// Its contiguous lines.
    lines: View<'v, f32, 3>,
    /// Those of the copy's lines.
    strides: [usize; 3],
    column_major: bool,
}

impl<'v> Transposed<'v> {
    pub(crate) fn new(of: View<'v, f32, 3>) -> Self {
        let column_major = is_column_major(&of);
        let lines = if column_major { of.permute([0, 2, 1]) } else { of };
        let [_, count, len] = lines.shape();
        let line = count.next_multiple_of(split_matmul::VECTOR / size_of::<f32>());
        Transposed { lines, strides: [len * line, line, 1], column_major }
    }

    /// The copy in its memory, as the operand is.
    pub(crate) fn copy<'t>(&self, memory: &'t Temporary<f32>) -> Result<View<'t, f32, 3>> {
        let [batches, count, len] = self.lines.shape();
        let view = memory.slice().view_strided([batches, len, count], self.strides)?;
        Ok(if self.column_major { view } else { view.permute([0, 2, 1]) })
    }
}

/// What a program of [`transpose_rows`] copies.
const TRANSPOSED: Tile = Tile { rows: 64, cols: 64 };
/// What a program of [`align_rows`] copies.
const COPIED_ROWS: usize = 8;
const NARROW_COPY: usize = 256;
const WIDE_COPY: usize = 1024;
