//! The operands of [`crate::matmul`]: which are aligned, and aligned copies of those that are not.

use dsl_runtime::prelude::*;
use dsl_runtime::{Result, Temporary};

use crate::float::LibraryElement;
use crate::matmul_block::TileShape;
use crate::matmul_tiles::{align_both, align_rows, transpose_rows};
use crate::split_matmul::{self, SMALL_N};

/// A matrix, or a batch of matrices along a first axis.
pub trait Matrices<'a, T: Element> {
    /// The same with an axis that counts matrices.
    fn matrices(self) -> View<'a, T, 3>;
}

impl<'a, T: Element> Matrices<'a, T> for View<'a, T, 2> {
    fn matrices(self) -> View<'a, T, 3> {
        self.batch()
    }
}

impl<'a, T: Element> Matrices<'a, T> for View<'a, T, 3> {
    fn matrices(self) -> View<'a, T, 3> {
        self
    }
}

/// A matrix to write, or a batch of matrices along a first axis.
pub trait MatricesMut<'a, T: Element> {
    /// The same with an axis that counts matrices.
    fn matrices(self) -> ViewMut<'a, T, 3>;
}

impl<'a, T: Element> MatricesMut<'a, T> for ViewMut<'a, T, 2> {
    fn matrices(self) -> ViewMut<'a, T, 3> {
        self.batch()
    }
}

impl<'a, T: Element> MatricesMut<'a, T> for ViewMut<'a, T, 3> {
    fn matrices(self) -> ViewMut<'a, T, 3> {
        self
    }
}

/// Whether so many lines of elements are contiguous and begin at multiples of 16 bytes, as far as their strides say.
pub(crate) fn are_lines_aligned<T: Element>(count: usize, [line, element]: [usize; 2]) -> bool {
    element == 1 && (count == 1 || split_matmul::in_vectors([line, element], size_of::<T>()))
}

/// Whether rows or columns are contiguous and begin at multiples of 16 bytes, as far as strides say.
pub(crate) fn is_aligned<T: Element>(matrices: &View<'_, T, 3>) -> bool {
    let ([batches, rows, cols], [batch, row, col]) = (matrices.shape(), matrices.strides());
    are_lines_aligned::<T>(batches, [batch, 1])
        && (are_lines_aligned::<T>(rows, [row, col]) || are_lines_aligned::<T>(cols, [col, row]))
}

/// Whether contiguous rows or columns begin at others than multiples of 32 bytes, the sectors of memory, as far as strides say.
pub(crate) fn is_within_sectors<T: Element>(matrices: &View<'_, T, 3>) -> bool {
    let lines = if is_column_major(matrices) { matrices.permute([0, 2, 1]) } else { *matrices };
    let ([batches, count, _], [batch, line, _]) = (lines.shape(), lines.strides());
    let within =
        |extent: usize, stride: usize| extent > 1 && !(stride * size_of::<T>()).is_multiple_of(SECTOR);
    within(batches, batch) || within(count, line)
}

/// Whether the columns of an operand are contiguous and its rows are not.
pub(crate) fn is_column_major<T: Element>(matrices: &View<'_, T, 3>) -> bool {
    let [_, row, col] = matrices.strides();
    row == 1 && col != 1
}

/// The copy of an operand, whose rows, or columns if these are the contiguous ones, begin at cache lines.
#[derive(Clone, Copy)]
pub(crate) struct OperandCopy<'v, T: Element> {
    /// The contiguous rows or columns of the operand.
    lines: View<'v, T, 3>,
    column_major: bool,
    /// Whether the copy is transposed.
    transposed: bool,
}

impl<'v, T: Element> OperandCopy<'v, T> {
    /// In the operand's own order.
    pub(crate) fn new(of: View<'v, T, 3>) -> Self {
        let column_major = is_column_major(&of);
        let lines = if column_major { of.permute([0, 2, 1]) } else { of };
        OperandCopy { lines, column_major, transposed: false }
    }

    /// In the other order.
    fn transposed(of: View<'v, T, 3>) -> Self {
        OperandCopy { transposed: true, ..OperandCopy::new(of) }
    }

    /// The extents of the copy's lines, and its strides.
    fn layout(&self) -> ([usize; 3], [usize; 3]) {
        let [batches, count, len] = self.lines.shape();
        let [count, len] = if self.transposed { [len, count] } else { [count, len] };
        let line = len.next_multiple_of(CACHE_LINE / size_of::<T>());
        ([batches, count, len], [count * line, line, 1])
    }

    /// Memory for the copy.
    fn memory(&self, on: impl LaunchOn) -> Result<Temporary<T>> {
        let ([batches, _, _], [matrix, _, _]) = self.layout();
        on.temporary(batches * matrix)
    }

    /// The copy's lines in its memory, to be written.
    fn written<'t>(&self, memory: &'t mut SliceMut<'_, T>) -> Result<ViewMut<'t, T, 3>> {
        let (shape, strides) = self.layout();
        memory.view_strided_mut(shape, strides)
    }

    /// The copy in its memory, as the operand is.
    fn view<'t>(&self, memory: &'t Temporary<T>) -> Result<View<'t, T, 3>> {
        let (shape, strides) = self.layout();
        let view = memory.slice().view_strided(shape, strides)?;
        Ok(if self.column_major == self.transposed { view } else { view.permute([0, 2, 1]) })
    }

    /// Programs that copy a tile each.
    fn programs(&self, tile: TileShape) -> usize {
        tile.count(self.lines.shape())
    }
}

/// The memory of the copies of some operands.
pub(crate) struct Copies<'v, T: Element>([Option<(OperandCopy<'v, T>, Temporary<T>)>; 2]);

impl<T: Element> Copies<'_, T> {
    /// The operands, those as given that have no copy.
    pub(crate) fn operands<'t>(&'t self, given: [View<'t, T, 3>; 2]) -> Result<[View<'t, T, 3>; 2]> {
        let operand = |number: usize| match &self.0[number] {
            Some((copy, memory)) => copy.view(memory),
            None => Ok(given[number]),
        };
        Ok([operand(0)?, operand(1)?])
    }
}

/// Copies one, both or none of the operands in their own order, with one launch.
pub(crate) fn copy_operands<'v, T: LibraryElement>(
    on: impl LaunchOn,
    operands: [Option<OperandCopy<'v, T>>; 2],
) -> Result<Copies<'v, T>> {
    let programs = |tile: TileShape| operands.iter().flatten().map(|copy| copy.programs(tile)).sum::<usize>();
    let longest = operands.iter().flatten().map(|copy| copy.lines.shape()[2]).max().unwrap_or(0);
    let tile = if longest <= SMALL_N {
        SHORT_COPY
    } else if longest > COPY.cols && programs(LONG_COPY) >= 2 * on.parallelism() {
        LONG_COPY
    } else {
        COPY
    };
    let grid = programs(tile);
    Ok(Copies(match operands {
        [Some(a), Some(b)] => {
            let (mut a_memory, mut b_memory) = (a.memory(on)?, b.memory(on)?);
            let (mut a_slice, mut b_slice) = (a_memory.slice_mut(), b_memory.slice_mut());
            let (a_out, b_out) = (a.written(&mut a_slice)?, b.written(&mut b_slice)?);
            align_both(a.lines, a_out, b.lines, b_out, tile).grid(grid).launch(on)?;
            [Some((a, a_memory)), Some((b, b_memory))]
        }
        [None, None] => [None, None],
        [a, b] => {
            let copy = a.or(b).expect("there is one");
            let mut memory = copy.memory(on)?;
            let mut slice = memory.slice_mut();
            let out = copy.written(&mut slice)?;
            align_rows(copy.lines, out, tile).grid(grid).launch(on)?;
            if a.is_some() { [Some((copy, memory)), None] } else { [None, Some((copy, memory))] }
        }
    }))
}

/// Copies some of the operands, to their own order or to the other one.
pub(crate) fn copies_of<'v, T: LibraryElement>(
    on: impl LaunchOn,
    given: [View<'v, T, 3>; 2],
    copied: [bool; 2],
    transposed: [bool; 2],
) -> Result<Copies<'v, T>> {
    let own = |operand: usize| copied[operand] && !transposed[operand];
    let mut copies =
        copy_operands(on, [0, 1].map(|operand| own(operand).then(|| OperandCopy::new(given[operand]))))?;
    for operand in (0..2).filter(|&operand| copied[operand] && transposed[operand]) {
        copies.add_transposed(on, operand, given[operand])?;
    }
    Ok(copies)
}

impl<'v, T: LibraryElement> Copies<'v, T> {
    /// Copies one more operand, to the other order.
    fn add_transposed(&mut self, on: impl LaunchOn, operand: usize, of: View<'v, T, 3>) -> Result<()> {
        let copy = OperandCopy::transposed(of);
        let mut memory = copy.memory(on)?;
        let mut slice = memory.slice_mut();
        let grid = TRANSPOSED.count(copy.lines.shape());
        transpose_rows(copy.lines, copy.written(&mut slice)?, TRANSPOSED).grid(grid).launch(on)?;
        self.0[operand] = Some((copy, memory));
        Ok(())
    }
}

/// Bytes of a sector of memory.
pub(crate) const SECTOR: usize = 32;
/// Bytes of a line of L2.
const CACHE_LINE: usize = 128;
/// The tile of [`transpose_rows`].
const TRANSPOSED: TileShape = TileShape { rows: 64, cols: 64 };
/// The tiles of [`align_rows`]: of rows of at most [`SMALL_N`] elements, of others, and of many long ones.
const SHORT_COPY: TileShape = TileShape { rows: 64, cols: 32 };
const COPY: TileShape = TileShape { rows: 8, cols: 256 };
const LONG_COPY: TileShape = TileShape { rows: 8, cols: 1024 };
