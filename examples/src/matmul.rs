//! `out = act(a · b + bias)`: the product of an `m x k` and a `k x n` matrix, with a bias for each column and an activation
//! of [`crate::activation`] in the same pass: a linear layer.
//!
//! **Work.** `2 * m * n * k` operations. A program makes a tile of the result from a band of rows of `a` and one of columns
//! of `b`; programs that run at once share columns, so that these are found in the cache. The result is written once, and
//! no sum without its bias reaches memory.
//!
//! **Rounding.** Products of 16-bit floats are exact and are added in `f32`, those of `f32` are added in `f32` with one
//! rounding each; the sum is within `(k + 2) * 2^-23` of the sum of the products' magnitudes, or better. The bias and the
//! activation are computed in `f32` and the result is rounded to `T` once.
//!
//! **Source.** Tiles and their order: Tillet, Kung, Cox, *Triton*, 2019, doi:10.1145/3315508.3329973.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation;
use crate::reference::Expected;
use crate::shape::Checks;

/// Rows and columns of the tile that a program makes, and its steps along the axis that is summed over.
const ROWS: usize = 128;
const COLS: usize = 128;
const STEP: usize = 32;

/// A program makes a tile of `M x N` elements in steps of `K`; the grid's first axis counts tiles along the rows.
#[fuse_kernel(
    T = [f16, bf16, f32], ACT = [0, 1, 2, 4], BIAS = [false, true], M = [128], N = [128], K = [32], num_warps = 8,
)]
pub fn matmul<
    T: Float,
    const ACT: usize,
    const BIAS: bool,
    const M: usize,
    const N: usize,
    const K: usize,
>(
    a: &[T],
    b: &[T],
    bias: &[T],
    out: &mut [T],
    m: i32,
    n: i32,
    k: i32,
) {
    let rows = tl::program_id(0) * M + tl::arange(0, M);
    let cols = tl::program_id(1) * N + tl::arange(0, N);
    let mut sum = tl::zeros::<f32>([M, N]);
    for start in (0..k).step_by(K) {
        let inner = start + tl::arange(0, K);
        let left = tl::load(a + rows.col() * k + inner.row(), (rows.col() < m) & (inner.row() < k));
        let right = tl::load(b + inner.col() * n + cols.row(), (inner.col() < k) & (cols.row() < n));
        sum = tl::dot(left, right, sum);
    }
    let v = if BIAS { sum + tl::load(bias + cols, cols < n).to::<f32>().row() } else { sum };
    let y = if ACT == 1 {
        tl::relu(v)
    } else if ACT == 2 {
        tl::gelu::<T>(v)
    } else if ACT == 4 {
        tl::silu::<T>(v)
    } else {
        v
    };
    tl::store(out + rows.col() * n + cols.row(), y.to::<T>(), (rows.col() < m) & (cols.row() < n));
}

/// The extents of a product: `m` rows, `k` products for each element, `n` columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// Rows of the left factor and of the result.
    pub m: usize,
    /// Columns of the left factor and rows of the right one.
    pub k: usize,
    /// Columns of the right factor and of the result.
    pub n: usize,
}

/// The product of two matrices in row-major order: `Matmul::<bf16, GELU>::new(&a, &b, Extents { m, k, n }).bias(&bias)`. `T`
/// is `f16`, `bf16` or `f32`; `ACT` is `IDENTITY`, `RELU`, `GELU` or `SILU`.
#[derive(Clone, Copy)]
pub struct Matmul<'a, T: Float, const ACT: usize> {
    a: Slice<'a, T>,
    b: Slice<'a, T>,
    extents: Extents,
    bias: Option<Slice<'a, T>>,
}

impl<'a, T: Float, const ACT: usize> Matmul<'a, T, ACT> {
    /// The product without a bias.
    pub fn new(a: impl Into<Slice<'a, T>>, b: impl Into<Slice<'a, T>>, extents: Extents) -> Self {
        Matmul { a: a.into(), b: b.into(), extents, bias: None }
    }

    /// Adds a number to each column.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        Matmul { bias: Some(bias.into()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths are not those of the extents; if a matrix has rows, columns or offsets beyond an `i32`; those of a
    /// launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()>
    where
        matmul::Choice<T, ACT, false, ROWS, COLS, STEP>: matmul::Declared,
        matmul::Choice<T, ACT, true, ROWS, COLS, STEP>: matmul::Declared,
    {
        let (out, checks, Extents { m, k, n }) = (out.into(), Checks("matmul"), self.extents);
        checks.same(("a", self.a.len()), ("m * k", m * k))?;
        checks.same(("b", self.b.len()), ("k * n", k * n))?;
        checks.same(("out", out.len()), ("m * n", m * n))?;
        if let Some(bias) = &self.bias {
            checks.same(("bias", bias.len()), ("n", n))?;
        }
        let most = i32::MAX as usize - ROWS;
        if let Some(extent) = [m, k, n].into_iter().find(|&extent| extent > most) {
            return Err(checks.error(format!("an extent is {extent}, the most is {most}")));
        }
        if m * n == 0 {
            return Ok(());
        }
        let programs = (m.div_ceil(ROWS), n.div_ceil(COLS));
        let (a, b, [m, n, k]) = (self.a, self.b, [m, n, k].map(|extent| extent as i32));
        match self.bias {
            Some(bias) => {
                matmul::<T, ACT, true, ROWS, COLS, STEP>(a, b, bias, out, m, n, k).grid(programs).launch(on)
            }
            // The kernel without a bias does not read it.
            None => {
                matmul::<T, ACT, false, ROWS, COLS, STEP>(a, b, b, out, m, n, k).grid(programs).launch(on)
            }
        }
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float, const ACT: usize>(
    [a, b]: [&[T]; 2],
    Extents { m, k, n }: Extents,
    bias: Option<&[T]>,
) -> Vec<Expected> {
    let unit = 2.0 * crate::reference::unit_roundoff(DType::F32);
    let wide = |of: &[T]| of.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let (a, b) = (wide(a), wide(b));
    let mut expected = Vec::with_capacity(m * n);
    for row in 0..m {
        // The sums of a row, and of their terms' magnitudes.
        let mut sums = vec![(0.0, 0.0); n];
        for i in 0..k {
            let left = a[row * k + i];
            for ((sum, magnitude), right) in sums.iter_mut().zip(&b[i * n..(i + 1) * n]) {
                *sum += left * right;
                *magnitude += (left * right).abs();
            }
        }
        expected.extend(sums.into_iter().enumerate().map(|(column, (sum, magnitude))| {
            let value = sum + bias.map_or(0.0, |bias| bias[column].to_f64());
            let within = (k + 2) as f64 * unit * magnitude + unit * value.abs();
            activation::rounded::<ACT>(Expected { value, within }, T::DTYPE)
        }));
    }
    expected
}

/// The bytes that a product must move.
pub const fn traffic<T>(Extents { m, k, n }: Extents) -> usize {
    (m * k + k * n + m * n) * size_of::<T>()
}
