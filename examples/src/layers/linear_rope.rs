//! `out = rope(x · W + bias)`: the linear layer that makes queries, keys and values of tokens, with rotary embedding of the queries and
//! keys in the same kernel.
//!
//! Columns of `W` are heads of `2 * half` elements; the first `rotated` columns, queries and then keys, are rotated as in [`crate::rope`]; values
//! behind them are not. Pairs are adjacent (interleaved, GPT-J). A layer whose pairs are halves of a head (NeoX, Llama) has its columns
//! permuted once, by [`interleave_pairs`]: queries and keys are then permuted alike, so scores are the same.
//!
//! **Forms.** [`Form::Fused`] rotates the accumulator in its epilogue, before it is rounded: pairs are in one thread, and nothing is written twice.
//! Registers for the angles leave none for the largest tiles of a matmul, so this pays while one wave of smaller tiles is enough;
//! [`LinearRope::launch`] takes it then, of weights as layers keep them, column by column. [`Form::Separate`] is a [`Matmul`] and a
//! rotation in place. `FUSE_TRACE=1` says which.
//!
//! **Traffic.** `(rows * k + k * n + rows * n) * size_of::<T>()` bytes and the angles, which are found in the cache; the separate form
//! reads and writes the rotated columns once more.
//!
//! **Rounding.** The matmul as [`crate::matmul`] states it, each pair then within `3 * 2^-24 * (|a| + |b|)` of its rotation, rounded
//! to `T` once. The separate form rounds the matmul to `T` first.
//!
//! **Source.** Su and others, *RoFormer*, 2021, arXiv:2104.09864, equation 34.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::float::LibraryFloat;
use crate::form::{Form, check_fused};
use crate::matmul::{Matmul, TileShape};
use crate::reference::{Expected, unit_roundoff};
use crate::rope::{Angles, HostAngles};
use crate::shape::Checks;
use crate::split_matmul::{SKINNY_M64, SKINNY_N32};

/// The columns of a program that rotates pairs in place.
const ROTATED_COLS: usize = 1024;

/// The elements that a program copies in an iteration.
const COPY_BLOCK: usize = 1024;

const CHECKS: Checks = Checks("linear_rope");

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::epilogues::rotate_columns;
    use crate::float::LibraryFloat;
    use crate::mainloop::matmul_mainloop;
    use crate::matmul_block::TileShape;

    /// A program computes `M x N` elements in steps of `K`; tiles are swizzled in groups of sixteen rows of them.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { M: 16, N: 32, K: 256, num_warps: 4, num_stages: 4 },
            { M: 64, N: 64, K: 128 },
            { M: 128, N: 128, K: 64 },
        ],
        when = tile == TileShape::new(M, N),
    )]
    pub fn linear_rope<T: LibraryFloat, const M: usize, const N: usize, const K: usize>(
        x: &View<T, 2>,
        weight: &View<T, 2>,
        bias: &View<T, 2>,
        positions: &[i32],
        cos: &[f32],
        sin: &[f32],
        out: &mut View<T, 2>,
        rotated: i32,
        half: i32,
        #[host] tile: TileShape,
    ) {
        let rows = out.shape::<i32>(0);
        let (grid_m, grid_n) = (tl::cdiv(rows, M), tl::cdiv(out.shape::<i32>(1), N));
        let (tile_row, tile_col) = tl::swizzle2d(0, tl::program_id(0), grid_m, grid_n, 16);
        let (row, col) = (tile_row * M, tile_col * N);
        let acc = matmul_mainloop::<T, i64, M, N, K, false>(x, weight, row, col, 0, x.shape(1));
        let biased = if bias.shape(1) > 0 { acc + bias.load::<1, N>(0, col).to::<f32>() } else { acc };
        let y = rotate_columns::<M, N>(biased, positions, cos, sin, rows, row, col, rotated, half);
        out.store(y.to::<T>(), row, col);
    }

    /// Rotates the first `rotated` of `row` columns of each token in place; program `(i, j)` takes the `j`th `BLOCK` of token `i`.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [1024], num_warps = 4)]
    pub fn rotate_pairs<T: LibraryFloat, const BLOCK: usize>(
        x: &mut [T],
        positions: &[i32],
        cos: &[f32],
        sin: &[f32],
        row: i32,
        rotated: i32,
        half: i32,
    ) {
        let token = tl::program_id(0);
        let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
        let pairs = tl::program_id(1) * (BLOCK / 2) + tl::arange(0, BLOCK / 2);
        let mask = cols < rotated;
        let v = tl::load(x + token * row + cols, mask).to::<f32>();
        let offsets = tl::load(positions + token) * half + pairs % half;
        let cos = tl::load(cos + offsets, 2 * pairs < rotated);
        let sin = tl::load(sin + offsets, 2 * pairs < rotated);
        let (a, b) = tl::split(tl::reshape(v, [BLOCK / 2, 2]));
        let y = tl::interleave(a * cos - b * sin, b * cos + a * sin);
        tl::store(x + token * row + cols, y.to::<T>(), mask);
    }

    /// Copies rows of `k` elements; of the first `rotated`, heads of `2 * half` rows, row `half + j` of a head comes behind row `j`.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [1024], num_warps = 4)]
    pub fn interleave_rows<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        out: &mut [T],
        k: i32,
        rotated: i32,
        half: i32,
    ) {
        let row = tl::program_id(0);
        let row_of_head = row % (2 * half);
        let source_row =
            if row < rotated { row - row_of_head + row_of_head % 2 * half + row_of_head / 2 } else { row };
        for first in (0..k).step_by(BLOCK) {
            let offsets = first + tl::arange(0, BLOCK);
            tl::store(
                out + row * k + offsets,
                tl::load(x + source_row * k + offsets, offsets < k),
                offsets < k,
            );
        }
    }
}

pub use kernels::{interleave_rows, linear_rope, rotate_pairs};

/// Permutes the rows of the weights of a linear layer, `[n, k]` row-major, so that pairs which were halves of a head are adjacent:
/// those of the first `rotated` rows, heads of `2 * half`. A bias is a matrix with one column.
///
/// # Errors
/// If the lengths do not fit each other; those of a launch.
pub fn interleave_pairs<'o, T: LibraryFloat>(
    on: impl LaunchOn,
    weight: Slice<'_, T>,
    [k, rotated, half]: [usize; 3],
    out: impl Into<SliceMut<'o, T>>,
) -> Result<()> {
    let out = out.into();
    CHECKS.same(("weight", weight.len()), ("out", out.len()))?;
    let n = CHECKS.rows(("weight", weight.len()), k)?;
    check_rotated(rotated, half, n)?;
    if weight.is_empty() {
        return Ok(());
    }
    let [k, rotated, half] = [k, rotated, half].map(|count| count as i32);
    interleave_rows::<T, COPY_BLOCK>(weight, out, k, rotated, half).grid(n).launch(on)
}

/// Whether the rotated columns are whole heads.
fn check_rotated(rotated: usize, half: usize, n: usize) -> Result<()> {
    if half == 0 || !rotated.is_multiple_of(2 * half) || rotated > n {
        let reason = format!("{rotated} of {n} columns turn, in heads of {}", 2 * half);
        return Err(CHECKS.error(reason));
    }
    Ok(())
}

/// A linear layer with rotary embedding behind it: `LinearRope::<bf16>::new(&x, weight, angles).rotated(queries_and_keys)`. `T` is `f32`,
/// `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct LinearRope<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    weight: View<'a, T, 2>,
    bias: Option<Slice<'a, T>>,
    angles: Angles<'a>,
    rotated: Option<usize>,
}

impl<'a, T: LibraryFloat> LinearRope<'a, T> {
    /// A row of `x` for each position, as long as the columns of `weight`, `[k, n]` with any strides. All columns are rotated.
    pub fn new(x: impl Into<Slice<'a, T>>, weight: View<'a, T, 2>, angles: Angles<'a>) -> Self {
        LinearRope { x: x.into(), weight, bias: None, angles, rotated: None }
    }

    /// Adds a bias to each column, before the rotation.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        LinearRope { bias: Some(bias.into()), ..self }
    }

    /// The number of rotated columns, the first ones: those of queries and keys, in whole heads.
    pub fn rotated(self, columns: usize) -> Self {
        LinearRope { rotated: Some(columns), ..self }
    }

    /// Computes into `out`, `n` elements for each row, on a device or stream, in the form that is faster there.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let ([k, n], rows) = (self.weight.shape(), self.angles.positions.len());
        // The fused form was measured for K-major weights, as layers keep them.
        let is_k_major = self.weight.strides()[0] == 1;
        let form = if is_k_major { form::<T>(on, rows, [k, n]) } else { Form::Separate };
        trace_choice("linear_rope", format_args!("{form:?}: {rows} rows of {k}, {n} columns"));
        self.launch_as(on, out, form)
    }

    /// The same in a form of the caller's.
    ///
    /// # Errors
    /// Those of [`LinearRope::launch`]; [`Form::Fused`] of `f32`, which has none.
    pub fn launch_as<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<SliceMut<'o, T>>,
        form: Form,
    ) -> Result<()> {
        let mut out = out.into();
        let ([k, n], Angles { positions, half, .. }) = (self.weight.shape(), self.angles);
        let (rows, rotated) = (positions.len(), self.rotated.unwrap_or(n));
        self.angles.check(CHECKS)?;
        check_rotated(rotated, half, n)?;
        CHECKS.extents("x", [self.x.len()], [rows * k])?;
        CHECKS.extents("out", [out.len()], [rows * n])?;
        if let Some(bias) = &self.bias {
            CHECKS.extents("bias", [bias.len()], [n])?;
        }
        if rows * n == 0 {
            return Ok(());
        }
        let x = self.x.view([rows, k])?;
        if form == Form::Fused {
            check_fused::<T>(CHECKS)?;
            let bias = self.bias.unwrap_or(self.x.slice(..0));
            let (bias, out) = (bias.view([1, bias.len()])?, out.view_mut([rows, n])?);
            let Angles { positions, cos, sin, .. } = self.angles;
            let tile = tile(on, [rows, n]).unwrap_or(LARGE);
            let [rotated, half] = [rotated, half].map(|count| count as i32);
            return linear_rope(x, self.weight, bias, positions, cos, sin, out, rotated, half, tile)
                .grid(tile.count([1, rows, n]))
                .launch(on);
        }
        let matmul_call = Matmul::new(x, self.weight);
        let matmul_call = self.bias.map_or(matmul_call, |bias| matmul_call.bias(bias));
        matmul_call.launch(on, out.view_mut([rows, n])?)?;
        rotate_in_place(on, self.angles, [n, rotated], out)
    }
}

/// Rotates the first columns of packed rows in place, adjacent pairs: the second kernel of [`Form::Separate`]. `of` has the columns of a
/// row, and the rotated ones.
///
/// # Errors
/// If the lengths do not fit each other; those of a launch.
pub fn rotate_in_place<'o, T: LibraryFloat>(
    on: impl LaunchOn,
    angles: Angles<'_>,
    of: [usize; 2],
    x: impl Into<SliceMut<'o, T>>,
) -> Result<()> {
    let (x, [row, rotated]) = (x.into(), of);
    angles.check(CHECKS)?;
    check_rotated(rotated, angles.half, row)?;
    CHECKS.extents("x", [x.len()], [angles.positions.len() * row])?;
    if x.len() * rotated == 0 {
        return Ok(());
    }
    let Angles { positions, cos, sin, half } = angles;
    let grid = (positions.len(), rotated.div_ceil(ROTATED_COLS));
    let [row, rotated, half] = [row, rotated, half].map(|count| count as i32);
    rotate_pairs::<T, ROTATED_COLS>(x, positions, cos, sin, row, rotated, half).grid(grid).launch(on)
}

/// The form that is faster for so many rows of a layer `[k, n]`.
pub(crate) fn form<T: LibraryFloat>(on: impl LaunchOn, rows: usize, [k, n]: [usize; 2]) -> Form {
    let in_vectors = [k, n].into_iter().all(|extent| extent.is_multiple_of(16 / size_of::<T>()));
    let fuses = on.shared_bytes().is_some() && in_vectors && tile(on, [rows, n]).is_some();
    if size_of::<T>() == 2 && fuses { Form::Fused } else { Form::Separate }
}

/// The largest tile that has registers for the angles.
const LARGE: TileShape = TileShape { rows: 128, cols: 128 };

/// The tile of a single wave, if there is one that leaves few SMs idle: with more waves a matmul has larger tiles, and the rotation is
/// a small part of it.
fn tile(on: impl LaunchOn, out: [usize; 2]) -> Option<TileShape> {
    let sm_count = on.parallelism();
    if out[0] <= SKINNY_N32.rows {
        return Some(SKINNY_N32);
    }
    let fits = |tile: TileShape, least: usize| (least..=sm_count).contains(&tile.count([1, out[0], out[1]]));
    let tiles = [(SKINNY_M64, 0), (LARGE, sm_count / 2)];
    tiles.into_iter().find(|&(tile, least)| on.has_wgmma() && fits(tile, least)).map(|(tile, _)| tile)
}

/// What either form computes of `x`, `[rows, k]`, and `weight`, `[k, n]`, in `f64`, and the bound that the module's documentation states
/// of the separate one.
pub fn reference<T: Float>(
    x: &[T],
    weight: &[T],
    bias: &[T],
    angles: HostAngles<'_>,
    rotated: usize,
) -> Vec<Expected> {
    let (rows, n, dim) = (angles.positions.len(), bias.len(), 2 * angles.half);
    let k = weight.len() / n.max(1);
    let unit = 2.0 * unit_roundoff(DType::F32);
    let mut expected = Vec::with_capacity(rows * n);
    for token in 0..rows {
        let row = &x[token * k..][..k];
        let biased_row = (0..n).map(|col| {
            let terms = row.iter().enumerate().map(|(i, x)| x.to_f64() * weight[i * n + col].to_f64());
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let value = sum + bias[col].to_f64();
            Expected { value, within: (k + 3) as f64 * unit * size + unit * value.abs() }.rounded(T::DTYPE)
        });
        let biased_row: Vec<Expected> = biased_row.collect();
        for (first, head) in biased_row.chunks(dim).enumerate().map(|(i, head)| (i * dim, head)) {
            if first < rotated {
                expected.extend(angles.rotate::<T>(token, head));
            } else {
                expected.extend_from_slice(head);
            }
        }
    }
    expected
}

/// The bytes that the fused form must move for `rows` rows of `k` elements and `n` columns, angles aside.
pub const fn traffic<T>(rows: usize, k: usize, n: usize) -> usize {
    (rows * k + k * n + rows * n) * size_of::<T>()
}
