//! What the safe functions check before they launch: lengths and shapes that must agree, rows that must be whole.

use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result, RowLayout};

/// An argument by its name, and its length in elements.
pub(crate) type Named<'n> = (&'n str, usize);

/// The checks of one operation, whose name their errors carry.
#[derive(Clone, Copy)]
pub(crate) struct Checks(pub &'static str);

impl Checks {
    /// An error in words.
    pub fn error(self, reason: String) -> Error {
        Error::Shape { operation: self.0, reason }
    }

    /// That two arguments are equally long.
    pub fn same(self, (name, len): Named, (other, found): Named) -> Result<()> {
        if len == found {
            return Ok(());
        }
        Err(self.error(format!("{name} has {len} elements and {other} has {found}")))
    }

    /// That a view has these extents.
    pub fn extents<const R: usize>(self, name: &str, shape: [usize; R], wanted: [usize; R]) -> Result<()> {
        if shape == wanted {
            return Ok(());
        }
        Err(self.error(format!("{name} has the shape {shape:?}, expected {wanted:?}")))
    }

    /// That a view has as many matrices as another.
    pub fn batches(self, name: &str, found: usize, wanted: usize) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(self.error(format!("{name} has {found} matrices and a has {wanted}")))
    }

    /// How many rows of `cols` elements an argument has: rows and columns that kernels can count.
    pub fn rows(self, (name, len): Named, cols: usize) -> Result<usize> {
        if len.checked_rem(cols).unwrap_or(len) != 0 {
            return Err(self.error(format!("{name} has {len} elements, which are no whole rows of {cols}")));
        }
        let rows = len.checked_div(cols).unwrap_or(0);
        if rows.max(cols) > i32::MAX as usize {
            let most = i32::MAX;
            return Err(
                self.error(format!("{name} has {rows} rows of {cols} columns, of each {most} are the most"))
            );
        }
        Ok(rows)
    }

    /// How many rows of `cols` elements a matrix has, and each of the others too.
    pub fn matrices<const N: usize>(
        self,
        (name, layout): (&str, RowLayout),
        others: [(&str, RowLayout); N],
        cols: usize,
    ) -> Result<usize> {
        for (other, found) in others {
            if let (RowLayout::Contiguous(len), RowLayout::Contiguous(found)) = (layout, found) {
                self.same((name, len), (other, found))?;
            }
        }
        let rows = self.matrix(name, layout, cols)?;
        others.into_iter().try_for_each(|other| self.as_many((name, rows), other, cols))?;
        Ok(rows)
    }

    /// That a matrix of `cols` columns has as many rows as another.
    fn as_many(self, (name, rows): Named, (other, layout): (&str, RowLayout), cols: usize) -> Result<()> {
        let found = self.matrix(other, layout, cols)?;
        if found == rows {
            return Ok(());
        }
        Err(self.error(format!("{name} has {rows} rows and {other} has {found}")))
    }

    /// How many rows of `2 * d` elements a matrix has, and another of `d` too.
    pub fn halves(
        self,
        (name, layout): (&str, RowLayout),
        half: (&str, RowLayout),
        d: usize,
    ) -> Result<usize> {
        let rows = self.matrix(name, layout, 2 * d)?;
        if let (RowLayout::Contiguous(len), RowLayout::Contiguous(found)) = (layout, half.1) {
            self.same((&format!("half of {name}"), len / 2), (half.0, found))?;
        }
        self.as_many((name, rows), half, d)?;
        Ok(rows)
    }

    /// How many rows of `cols` elements a matrix has: rows, columns and a distance that kernels can count.
    fn matrix(self, name: &str, layout: RowLayout, cols: usize) -> Result<usize> {
        let (shape, strides) = match layout {
            RowLayout::Contiguous(len) => return self.rows((name, len), cols),
            RowLayout::Strided(shape, strides) => (shape, strides),
        };
        self.extents(name, shape, [shape[0], cols])?;
        if cols > 1 && shape[0] > 0 && strides[1] != 1 {
            let stride = strides[1];
            return Err(
                self.error(format!("{name} has elements of a row {stride} apart, which must be contiguous"))
            );
        }
        // More rows or columns, or rows further apart, are beyond the kernels' integers.
        for (what, number) in
            [("rows", shape[0]), ("columns", cols), ("elements from row to row", strides[0])]
        {
            if number > i32::MAX as usize {
                return Err(self.error(format!("{name} has {number} {what}, the most is {}", i32::MAX)));
            }
        }
        Ok(shape[0])
    }

    /// That rows are not longer than `most`.
    pub fn most_columns(self, cols: usize, most: usize) -> Result<()> {
        if cols > most {
            return Err(self.error(format!("rows have {cols} columns, the most is {most}")));
        }
        Ok(())
    }
}

/// The distance between rows of `cols` elements, in elements.
pub(crate) fn row_stride(layout: RowLayout, cols: usize) -> i32 {
    match layout {
        RowLayout::Strided([rows, _], [stride, _]) if rows > 1 => stride as i32,
        _ => cols as i32,
    }
}

/// The most programs along the second or third axis of a grid.
pub(crate) const MAX_GRID_YZ: usize = 65_535;

/// A grid whose first axis counts tiles across rows, so that consecutive programs are along a row; rows, or tiles of several,
/// are along the second and third, with as small a third as a GPU's limit of the second allows.
pub(crate) fn along_rows(tiles: usize, rows: usize) -> (usize, usize, usize) {
    let grid_z = rows.div_ceil(MAX_GRID_YZ).max(1);
    (tiles, rows.div_ceil(grid_z), grid_z)
}

/// The first of these widths, which rise, that has room for a row; the last one if none has.
pub(crate) fn tile_width<const N: usize>(widths: [usize; N], cols: usize) -> usize {
    widths.into_iter().find(|&width| width >= cols).unwrap_or(widths[N - 1])
}

/// The longest row of which a program handles several.
pub(crate) const SHORT_ROW: usize = 768;

/// How many programs handle so many short rows: eight rows to a program, or four of more than 512 elements.
pub(crate) fn short_programs(rows: usize, cols: usize) -> usize {
    rows.div_ceil(if cols <= 512 { 8 } else { 4 })
}

/// Whether rows are so few that a program for each leaves most SMs idle: several blocks to a row then hide latency.
pub(crate) fn leaves_sms_idle(on: impl LaunchOn, rows: usize) -> bool {
    8 * rows <= on.parallelism()
}

/// The longest row for one block even where rows are few.
const SINGLE_BLOCK_COLS: usize = 6144;

/// Whether a cluster of blocks shares each of so few rows, where one block could hold it.
pub(crate) fn use_cluster(on: impl LaunchOn, rows: usize, cols: usize) -> bool {
    cols > SINGLE_BLOCK_COLS && on.has_clusters() && leaves_sms_idle(on, rows)
}

/// The longest row for the registers of one program on this device or stream: of a cluster of blocks, or of one block.
pub(crate) fn longest(on: impl LaunchOn, cluster: usize, block: usize) -> usize {
    if on.has_clusters() { cluster } else { block }
}
