//! `out = act(alpha * a · b + bias) + residual`: the product of an `m x k` and a `k x n` matrix, or of batches of them,
//! scaled, with a bias for each column, an activation of [`crate::activation`] and a matrix that is added behind it, in
//! the same pass: a linear layer.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `residual` and `out` of `[m, n]`, with any strides, or each
//! with an axis before these that counts matrices of a batch; all matrices of `a` may be multiplied by one `b`. Fast on
//! a GPU are rows side by side, or for `b` columns, which is how a linear layer keeps its weights:
//! `weights.permute([1, 0])`. The other strides of the views are then multiples of 16 bytes, and so are `n` and the
//! addresses.
//!
//! **Work.** `2 * m * n * k` operations for each matrix. A program makes a tile of the result from a band of rows of
//! `a` and one of columns of `b`. Programs that run at once make tiles near each other, sixteen rows of them at a time,
//! and so find what they share in the cache. Tiles are smaller where there would be too few of them for the processors.
//! Of up to 64 rows, where each column of `b` lies side by side, they are smaller still. Where even these are too few and `k` is long,
//! [`Matmul::launch_split`] shares the steps among programs: see [`crate::split_matmul`] for both. The result is written once, and no
//! sum without its bias reaches memory.
//!
//! **Rounding.** Products of 16-bit floats are exact and are added in `f32`, those of `f32` are added in `f32` with one
//! rounding each; the sum is within `(k + 2) * 2^-23` of the sum of the products' magnitudes, or better. The scale, the
//! bias, the activation and the residual are computed in `f32`, the first two within `2^-23` of the scaled products'
//! magnitudes and of what the activation takes, and the result is rounded to `T` once.
//!
//! **Source.** Tiles and their order: Tillet, Kung, Cox, *Triton*, 2019, doi:10.1145/3315508.3329973.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation;
use crate::matmul_tiles::matmul;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;
use crate::split_matmul::{self, Split};

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
    /// How many of these results of `m x n` elements have.
    pub fn count(self, [batches, m, n]: [usize; 3]) -> usize {
        batches * m.div_ceil(self.rows) * n.div_ceil(self.cols)
    }

    /// The tile for results of `m x n` elements, of a large and a small one: the large one where a small one has not
    /// all of the rows or columns, and where three of four processors get one.
    pub fn of([large, small]: [Tile; 2], [batches, m, n]: [usize; 3], processors: usize) -> Tile {
        let fills = m > small.rows && n > small.cols && 4 * large.count([batches, m, n]) >= 3 * processors;
        if fills { large } else { small }
    }
}

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

/// The product of two matrices, or of two batches of as many:
/// `Matmul::<bf16, GELU>::new(a.view([m, k])?, b.view([k, n])?).bias(&bias)`. `T` is `f16`, `bf16` or `f32`; `ACT` is
/// `IDENTITY`, `RELU`, `GELU` or `SILU`.
#[derive(Clone, Copy)]
pub struct Matmul<'a, T: Float, const ACT: usize> {
    a: View<'a, T, 3>,
    b: View<'a, T, 3>,
    alpha: f32,
    bias: Option<Slice<'a, T>>,
    residual: Option<View<'a, T, 3>>,
}

impl<'a, T: Float, const ACT: usize> Matmul<'a, T, ACT> {
    /// The product without a bias. All of a batch may be multiplied by one matrix `b`.
    pub fn new(a: impl Matrices<'a, T>, b: impl Matrices<'a, T>) -> Self {
        Matmul { a: a.matrices(), b: b.matrices(), alpha: 1.0, bias: None, residual: None }
    }

    /// Multiplies the product, before anything is added.
    pub fn alpha(self, alpha: f32) -> Self {
        Matmul { alpha, ..self }
    }

    /// Adds a number to each column, before the activation.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        Matmul { bias: Some(bias.into()), ..self }
    }

    /// Adds a matrix like the result, behind the activation.
    pub fn residual(self, residual: impl Matrices<'a, T>) -> Self {
        Matmul { residual: Some(residual.matrices()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit together; if there are more rows or columns than an `i32` counts; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl MatricesMut<'o, T>) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let out = out.matrices();
        match self.factors(out.shape())? {
            Some(factors) => self.alone(on, factors, out),
            None => Ok(()),
        }
    }

    /// The same, with the steps along `k` shared among programs where there would be too few of them: in working memory
    /// of [`Matmul::scratch_len`] numbers.
    ///
    /// # Errors
    /// Those of [`Matmul::launch`]; if the working memory is not as long.
    pub fn launch_split<'o, 's>(
        &self,
        on: impl LaunchOn,
        out: impl MatricesMut<'o, T>,
        scratch: impl Into<SliceMut<'s, f32>>,
    ) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let (out, scratch) = (out.matrices(), scratch.into());
        let Some(factors) = self.factors(out.shape())? else { return Ok(()) };
        let wanted = self.scratch_len(on);
        CHECKS.same(("scratch", scratch.len()), ("what it should be", wanted))?;
        if wanted == 0 { self.alone(on, factors, out) } else { T::split(on, factors, ACT, out, scratch) }
    }

    /// The length of the working memory of [`Matmul::launch_split`] on a device or stream: 0 where nothing is shared.
    pub fn scratch_len(&self, on: impl LaunchOn) -> usize
    where
        T: Split,
    {
        let ([batches, m, k], [_, _, n]) = (self.a.shape(), self.b.shape());
        split_matmul::scratch_len(on, [batches, m, n], k, self.few_rows(on), size_of::<T>())
    }

    /// The product by programs that add up all of a tile.
    fn alone(&self, on: impl LaunchOn, factors: Factors<'_, T>, out: ViewMut<'_, T, 3>) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        match self.few_rows(on) {
            Some(tile) => T::few(on, factors, ACT, tile, out),
            None => T::multiply(on, factors, out),
        }
    }

    /// The tile of few rows, if both factors have what is summed over side by side.
    fn few_rows(&self, on: impl LaunchOn) -> Option<Tile>
    where
        T: Split,
    {
        let ([batches, m, k], [_, _, n]) = (self.a.shape(), self.b.shape());
        let ([a_batch, row, inner], [b_batch, b_inner, col]) = (self.a.strides(), self.b.strides());
        let lines = [[row, inner], [col, b_inner], [a_batch, 1], [b_batch, 1], [n, 1]];
        let fits = lines.into_iter().all(|strides| split_matmul::in_vectors(strides, size_of::<T>()));
        if fits { split_matmul::few_rows(on, [batches, m, n], k * size_of::<T>(), T::FEW) } else { None }
    }

    /// What is multiplied, if it fits together; nothing if the result has no elements.
    fn factors(&self, out: [usize; 3]) -> Result<Option<Factors<'a, T>>> {
        let ([batches, m, k], [others, inner, n]) = (self.a.shape(), self.b.shape());
        CHECKS.extents("b", [inner, n], [k, n])?;
        let [count, rows, cols] = out;
        CHECKS.extents("out", [rows, cols], [m, n])?;
        CHECKS.batches("out", count, batches)?;
        if others != 1 {
            CHECKS.batches("b", others, batches)?;
        }
        if let Some(bias) = &self.bias {
            CHECKS.same(("bias", bias.len()), ("n", n))?;
        }
        if let Some(residual) = &self.residual {
            let [count, rows, cols] = residual.shape();
            CHECKS.extents("residual", [rows, cols], [m, n])?;
            CHECKS.batches("residual", count, batches)?;
        }
        // Places behind the edges, in the last tiles and parts, are counted too.
        let most = i32::MAX as usize - split_matmul::BEHIND;
        if let Some(extent) = [m, k, n].into_iter().find(|&extent| extent > most) {
            return Err(CHECKS.error(format!("an extent is {extent}, the most is {most}")));
        }
        if batches * m * n == 0 {
            return Ok(None);
        }
        let nothing = self.a.slice(1, ..0).slice(2, ..0);
        let bias = match self.bias {
            Some(bias) => bias.view([1, n])?,
            None => nothing.matrix(0),
        };
        let residual = self.residual.unwrap_or(nothing);
        // One matrix that is repeated is copied as one, now that the counts are known to agree.
        let repeated = others > 1 && self.b.strides()[0] == 0;
        let b = if repeated { self.b.slice(0, ..1) } else { self.b };
        Ok(Some(Factors { a: self.a, b, bias, residual, alpha: self.alpha }))
    }
}

const CHECKS: Checks = Checks("matmul");

/// What a product is made of, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Factors<'a, T: Float> {
    pub(crate) a: View<'a, T, 3>,
    pub(crate) b: View<'a, T, 3>,
    pub(crate) bias: View<'a, T, 2>,
    pub(crate) residual: View<'a, T, 3>,
    pub(crate) alpha: f32,
}

impl<'a, T: Float> Factors<'a, T> {
    /// The right factor as the kernels take it: transposed if that puts what is summed over side by side, and whether
    /// it is.
    pub(crate) fn right(&self) -> (View<'a, T, 3>, bool) {
        let columns = self.b.permute([0, 2, 1]);
        if self.b.strides()[2] != 1 && columns.strides()[2] == 1 { (columns, true) } else { (self.b, false) }
    }
}

/// The element types of products with the activation `ACT`, each with its tiles.
pub trait Multiply<const ACT: usize>: Split {
    /// Launches the kernel with the tile for the product's extents.
    #[doc(hidden)]
    fn multiply(on: impl LaunchOn, of: Factors<'_, Self>, out: ViewMut<'_, Self, 3>) -> Result<()>;
}

/// The variant for a tile and an order of the right factor, among those that are listed as
/// `tile, steps, with a residual`.
macro_rules! launch {
    ($T:ty, $on:ident, $of:ident, $out:ident, $tile:ident, [$($M:literal, $N:literal, $K:literal, $ADD:literal;)*]) => {{
        let programs = $tile.count($out.shape());
        let ((b, transposed), Factors { a, bias, residual, alpha, .. }) = ($of.right(), $of);
        match ($tile.rows, $tile.cols, transposed) {
            $(
                ($M, $N, false) => {
                    let call = matmul::<$T, ACT, false, $M, $N, $K, $ADD>(a, b, bias, residual, $out, alpha);
                    call.grid(programs).launch($on)
                }
                ($M, $N, true) => {
                    let call = matmul::<$T, ACT, true, $M, $N, $K, $ADD>(a, b, bias, residual, $out, alpha);
                    call.grid(programs).launch($on)
                }
            )*
            _ => unreachable!("a tile is one of those"),
        }
    }};
}

/// Rows, columns and steps of the largest tile, of that with a residual, and of the small one.
macro_rules! tiles {
    ($($T:ty: [$($M:literal, $N:literal, $K:literal, $ADD:literal;)*], $largest:expr, $added:expr, $small:expr;)*) => {$(
        impl<const ACT: usize> Multiply<ACT> for $T
        where
            $(
                matmul::Choice<$T, ACT, false, $M, $N, $K, $ADD>: matmul::Declared,
                matmul::Choice<$T, ACT, true, $M, $N, $K, $ADD>: matmul::Declared,
            )*
        {
            fn multiply(on: impl LaunchOn, of: Factors<'_, $T>, out: ViewMut<'_, $T, 3>) -> Result<()> {
                let adds = of.residual.shape()[1] > 0;
                let tile =
                    if adds { $added } else { Tile::of([$largest, $small], out.shape(), on.processors()) };
                launch!($T, on, of, out, tile, [$($M, $N, $K, $ADD;)*])
            }
        }
    )*};
}

const LARGEST: Tile = Tile { rows: 128, cols: 256 };
const LARGE: Tile = Tile { rows: 128, cols: 128 };
const SMALL: Tile = Tile { rows: 64, cols: 128 };

tiles! {
    f16: [128, 256, 64, false; 128, 128, 64, true; 64, 128, 64, false;], LARGEST, LARGE, SMALL;
    bf16: [128, 256, 64, false; 128, 128, 64, true; 64, 128, 64, false;], LARGEST, LARGE, SMALL;
    f32: [128, 128, 32, true; 64, 128, 32, true;], LARGE, LARGE, SMALL;
}

/// What becomes of a product: a scale, a bias for each column, and after the activation a matrix that is added.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a, T> {
    /// What the product is multiplied by.
    pub alpha: f32,
    /// A number for each column.
    pub bias: Option<&'a [T]>,
    /// A number for each element.
    pub residual: Option<&'a [T]>,
}

impl<T> Default for Epilogue<'_, T> {
    fn default() -> Self {
        Epilogue { alpha: 1.0, bias: None, residual: None }
    }
}

/// What the kernel computes of two matrices, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float, const ACT: usize>(
    [a, b]: [&[T]; 2],
    Extents { m, k, n }: Extents,
    Epilogue { alpha, bias, residual }: Epilogue<'_, T>,
) -> Vec<Expected> {
    let unit = 2.0 * unit_roundoff(DType::F32);
    let wide = |of: &[T]| of.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let (a, b, alpha) = (wide(a), wide(b), f64::from(alpha));
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
            let value = alpha * sum + bias.map_or(0.0, |bias| bias[column].to_f64());
            let within = (k + 3) as f64 * unit * (alpha * magnitude).abs() + unit * value.abs();
            let added = residual.map_or(0.0, |residual| residual[row * n + column].to_f64());
            activation::added::<ACT>(Expected { value, within }, added, T::DTYPE)
        }));
    }
    expected
}

/// The bytes that a product must move.
pub const fn traffic<T>(Extents { m, k, n }: Extents) -> usize {
    (m * k + k * n + m * n) * size_of::<T>()
}
