//! `out = act(a · b + bias)`: the product of an `m x k` and a `k x n` matrix, with a bias for each column and an activation
//! of [`crate::activation`] in the same pass: a linear layer.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `out` of `[m, n]`, with any strides. Fast on a GPU are rows side by side,
//! or for `b` columns, which is how a linear layer keeps its weights: `weights.permute([1, 0])`. The other strides of the
//! three are then multiples of 16 bytes, and so are `n` and the addresses.
//!
//! **Work.** `2 * m * n * k` operations. A program makes a tile of the result from a band of rows of `a` and one of columns
//! of `b`. Programs that run at once make tiles near each other, eight rows of them at a time, and so find what they share
//! in the cache. Tiles are smaller where there would be too few of them for the processors. The result is written once, and no sum
//! without its bias reaches memory.
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

/// A program makes a tile of `M x N` elements in steps of `K`; the grid counts tiles. With `TB` the columns of `b` are the rows
/// of what is handed over. Where there is no bias, `bias` has no elements.
#[fuse_kernel(
    ACT = [0, 1, 2, 4], TB = [false, true], num_warps = M / 16,
    configs = [
        { T: f16, M: 128, N: 256, K: 64 }, { T: f16, M: 64, N: 128, K: 64 },
        { T: bf16, M: 128, N: 256, K: 64 }, { T: bf16, M: 64, N: 128, K: 64 },
        { T: f32, M: 128, N: 128, K: 32 }, { T: f32, M: 64, N: 128, K: 32 },
    ],
)]
pub fn matmul<T: Float, const ACT: usize, const TB: bool, const M: usize, const N: usize, const K: usize>(
    a: &View<T, 2>,
    b: &View<T, 2>,
    bias: &View<T, 2>,
    out: &mut View<T, 2>,
) {
    // Eight rows of tiles, column by column, then the next eight: neighbours share what they read.
    let down = tl::cdiv(out.shape(0).to::<i32>(), M);
    let across = tl::cdiv(out.shape(1).to::<i32>(), N);
    let group = tl::program_id(0) / (8 * across);
    let place = tl::program_id(0) % (8 * across);
    let height = tl::minimum(down - 8 * group, 8);
    let row = (8 * group + place % height) * M;
    let col = place / height * N;
    let mut sum = tl::zeros::<f32>([M, N]);
    for start in (0..a.shape(1)).step_by(K) {
        let right = if TB { tl::trans(b.load::<N, K>(col, start)) } else { b.load::<K, N>(start, col) };
        sum = tl::dot(a.load::<M, K>(row, start), right, sum);
    }
    let v = sum + bias.load::<1, N>(0, col).to::<f32>();
    let y = if ACT == 1 {
        tl::relu(v)
    } else if ACT == 2 {
        tl::gelu::<T>(v)
    } else if ACT == 4 {
        tl::silu::<T>(v)
    } else {
        v
    };
    out.store(y.to::<T>(), row, col);
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

/// Rows and columns that a program makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub cols: usize,
}

impl Tile {
    /// How many of these a result of `m x n` elements has.
    pub fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows) * n.div_ceil(self.cols)
    }

    /// The tile for a result of `m x n` elements, of a large and a small one: the large one where a small one has not all of
    /// the rows or columns, and where three of four processors get one.
    pub fn of([large, small]: [Tile; 2], [m, n]: [usize; 2], processors: usize) -> Tile {
        let fills = m > small.rows && n > small.cols && 4 * large.count(m, n) >= 3 * processors;
        if fills { large } else { small }
    }
}

/// The product of two matrices: `Matmul::<bf16, GELU>::new(a.view([m, k])?, b.view([k, n])?).bias(&bias)`. `T` is `f16`, `bf16`
/// or `f32`; `ACT` is `IDENTITY`, `RELU`, `GELU` or `SILU`.
#[derive(Clone, Copy)]
pub struct Matmul<'a, T: Float, const ACT: usize> {
    a: View<'a, T, 2>,
    b: View<'a, T, 2>,
    bias: Option<Slice<'a, T>>,
}

impl<'a, T: Float, const ACT: usize> Matmul<'a, T, ACT> {
    /// The product without a bias.
    pub fn new(a: impl Into<View<'a, T, 2>>, b: impl Into<View<'a, T, 2>>) -> Self {
        Matmul { a: a.into(), b: b.into(), bias: None }
    }

    /// Adds a number to each column.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        Matmul { bias: Some(bias.into()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit together; if there are more rows or columns than an `i32` counts; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<ViewMut<'o, T, 2>>) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let (out, checks) = (out.into(), Checks("matmul"));
        let ([m, k], [inner, n]) = (self.a.shape(), self.b.shape());
        checks.extents("b", [inner, n], [k, n])?;
        checks.extents("out", out.shape(), [m, n])?;
        if let Some(bias) = &self.bias {
            checks.same(("bias", bias.len()), ("n", n))?;
        }
        // Places behind the edges, in the last tiles, are counted too.
        let most = i32::MAX as usize - 256;
        if let Some(extent) = [m, k, n].into_iter().find(|&extent| extent > most) {
            return Err(checks.error(format!("an extent is {extent}, the most is {most}")));
        }
        if m * n == 0 {
            return Ok(());
        }
        let bias = match self.bias {
            Some(bias) => bias.view([1, n])?,
            None => self.a.slice(0, ..0).slice(1, ..0),
        };
        T::multiply(on, Factors { a: self.a, b: self.b, bias }, out)
    }
}

/// What a product is made of, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Factors<'a, T: Float> {
    a: View<'a, T, 2>,
    b: View<'a, T, 2>,
    bias: View<'a, T, 2>,
}

/// The element types of products with the activation `ACT`, each with its tiles.
pub trait Multiply<const ACT: usize>: Float {
    /// Launches the kernel with the tile for the product's extents.
    #[doc(hidden)]
    fn multiply(on: impl LaunchOn, of: Factors<'_, Self>, out: ViewMut<'_, Self, 2>) -> Result<()>;
}

/// Rows, columns and steps of the large and the small tile of an element type.
macro_rules! tiles {
    ($($T:ty: [$M:literal, $N:literal, $K:literal], [$m:literal, $n:literal, $k:literal];)*) => {$(
        impl<const ACT: usize> Multiply<ACT> for $T
        where
            matmul::Choice<$T, ACT, false, $M, $N, $K>: matmul::Declared,
            matmul::Choice<$T, ACT, true, $M, $N, $K>: matmul::Declared,
            matmul::Choice<$T, ACT, false, $m, $n, $k>: matmul::Declared,
            matmul::Choice<$T, ACT, true, $m, $n, $k>: matmul::Declared,
        {
            fn multiply(on: impl LaunchOn, of: Factors<'_, $T>, out: ViewMut<'_, $T, 2>) -> Result<()> {
                let (Factors { a, b, bias }, [rows, cols]) = (of, out.shape());
                let large = Tile { rows: $M, cols: $N };
                let tile = Tile::of([large, Tile { rows: $m, cols: $n }], [rows, cols], on.processors());
                let programs = tile.count(rows, cols);
                let columns = b.permute([1, 0]);
                match (tile == large, b.strides()[1] != 1 && columns.strides()[1] == 1) {
                    (true, false) => matmul::<$T, ACT, false, $M, $N, $K>(a, b, bias, out).grid(programs).launch(on),
                    (true, true) => matmul::<$T, ACT, true, $M, $N, $K>(a, columns, bias, out).grid(programs).launch(on),
                    (false, false) => matmul::<$T, ACT, false, $m, $n, $k>(a, b, bias, out).grid(programs).launch(on),
                    (false, true) => matmul::<$T, ACT, true, $m, $n, $k>(a, columns, bias, out).grid(programs).launch(on),
                }
            }
        }
    )*};
}

tiles! {
    f16: [128, 256, 64], [64, 128, 64];
    bf16: [128, 256, 64], [64, 128, 64];
    f32: [128, 128, 32], [64, 128, 32];
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
