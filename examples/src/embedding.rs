//! `out[i] = table[ids[i]]`: a row of the table for each index.
//!
//! **Traffic.** Reads as many bytes of the table as it writes: `2 * ids * dim * size_of::<T>()` bytes, and 8 for each index; rows that are asked
//! for twice may come from the cache. No rounding.
//!
//! **Special indices.** One that is no row of the table gives a row of zeros.
//!
//! **Source.** `torch.nn.functional.embedding`.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::shape::Checks;

/// The elements of a row that a program handles.
const BLOCK: usize = 2048;

/// Program `(i, j)` copies the `j`th `BLOCK` elements of row `ids[i]`.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [2048])]
pub fn embedding<T: LibraryFloat, const BLOCK: usize>(
    table: &[T],
    ids: &[i64],
    out: &mut [T],
    n_rows: i64,
    dim: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let id = tl::load(ids + row);
    let is_row = (id >= 0) & (id < n_rows);
    let x = tl::load(table + id * dim.to::<i64>() + cols, (cols < dim) & is_row);
    tl::store(out + row * dim + cols, x, cols < dim);
}

/// Rows of a table by their indices. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Embedding<'a, T: LibraryFloat> {
    table: Slice<'a, T>,
    ids: Slice<'a, i64>,
    dim: usize,
}

impl<'a, T: LibraryFloat> Embedding<'a, T> {
    /// A table of rows of `dim` elements, and the indices of those wanted.
    pub fn new(table: impl Into<Slice<'a, T>>, ids: impl Into<Slice<'a, i64>>, dim: usize) -> Self {
        Embedding { table: table.into(), ids: ids.into(), dim }
    }

    /// Copies into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks) = (out.into(), Checks("embedding"));
        let n_rows = checks.rows(("the table", self.table.len()), self.dim)?;
        checks.same(("out", out.len()), ("all rows", self.ids.len() * self.dim))?;
        if out.is_empty() {
            return Ok(());
        }
        let call = embedding::<T, BLOCK>(self.table, self.ids, out, n_rows as i64, self.dim as i32);
        call.grid((self.ids.len(), self.dim.div_ceil(BLOCK))).launch(on)
    }
}

/// What the kernel writes, exactly.
pub fn reference<T: Float>(table: &[T], ids: &[i64], dim: usize) -> Vec<T> {
    let row = |id: &i64| {
        let found = usize::try_from(*id).ok().and_then(|id| table.chunks(dim.max(1)).nth(id));
        found.map_or_else(|| vec![T::default(); dim], <[T]>::to_vec)
    };
    ids.iter().flat_map(row).collect()
}

/// The bytes that so many rows must move.
pub const fn traffic<T>(ids: usize, dim: usize) -> usize {
    ids * (2 * dim * size_of::<T>() + 8)
}
