//! `out = act(alpha * a · b + bias) + residual`: the product of an `m x k` and a `k x n` matrix, or of batches of them,
//! scaled, with a bias for each column, an activation of [`crate::activation`] and a matrix that is added behind it, in
//! the same pass: a linear layer.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `residual` and `out` of `[m, n]`, with any strides, or each
//! with an axis before these that counts matrices of a batch; all matrices of `a` may be multiplied by one `b`. Factors are
//! fast in either order: by rows, or by columns as a linear layer keeps its weights, `weights.permute([1, 0])`. Where these begin at
//! multiples of 16 bytes a GPU reads them as they are; of other 16-bit floats it copies those that are worth it to where they do.
//!
//! **Work.** `2 * m * n * k` operations for each matrix. A program makes a tile of the result from a band of rows of
//! `a` and one of columns of `b`. Programs that run at once make tiles near each other, sixteen rows of them at a time,
//! and so find what they share in the cache. How large tiles are, and whether programs share the steps of a tile and leave parts of
//! its sums, for a second kernel to add, is chosen for each launch: see [`crate::matmul_heuristic`]. Parts and copies take temporary
//! memory. The result is written once, and no sum without its bias reaches it.
//!
//! **Rounding.** Products of 16-bit floats are exact and are added in `f32`, those of `f32` are added in `f32` with one
//! rounding each; the sum is within `(k + 2) * 2^-23` of the sum of the products' magnitudes, or better. The scale, the
//! bias, the activation and the residual are computed in `f32`, the first two within `2^-23` of the scaled products'
//! magnitudes and of what the activation takes, and the result is rounded to `T` once.
//!
//! [`Matmul::tf32`] multiplies `f32` in TF32: factors are rounded to eleven digits, halves to even; the rest is as stated, of the rounded
//! factors. [`crate::matmul_tiles`] has its kernels.
//!
//! **Source.** Tiles and their order: Tillet, Kung, Cox, *Triton*, 2019, doi:10.1145/3315508.3329973.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Error, Result, trace_choice};

use crate::activation;
use crate::form::Form;
use crate::linear_combination::LinearCombination;
use crate::matmul_heuristic::{Block, Config, LARGE, LARGE_BY_FMA, LARGEST, Problem, SMALL, WIDE};
use crate::matmul_operands::{
    OperandCopy, SECTOR, copy_operands, is_aligned, is_column_major, is_within_sectors,
};
use crate::matmul_tf32;
use crate::matmul_tiles::{matmul, matmul_f32, matmul_narrow, matmul_parts, matmul_small, sum_parts};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;
use crate::split_matmul::{self, FLAT, LOW, NARROW, SUMMED, THIN, THIN_COLS};

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
    tf32: bool,
}

impl<const ACT: usize> Matmul<'_, f32, ACT> {
    /// Multiplies in TF32, by tensor cores: factors are rounded to eleven digits, halves to even.
    pub fn tf32(self) -> Self {
        Matmul { tf32: true, ..self }
    }
}

impl<'a, T: Float, const ACT: usize> Matmul<'a, T, ACT> {
    /// The product without a bias. All of a batch may be multiplied by one matrix `b`.
    pub fn new(a: impl Matrices<'a, T>, b: impl Matrices<'a, T>) -> Self {
        Matmul { a: a.matrices(), b: b.matrices(), alpha: 1.0, bias: None, residual: None, tf32: false }
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
    /// If the shapes do not fit together; if there are more rows or columns than an `i32` counts; if there is too little memory for
    /// what programs leave to others; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl MatricesMut<'o, T>) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let out = out.matrices();
        match self.factors(out.shape())? {
            Some(factors) => T::multiply(on, factors, T::config(on, &factors, out.shape()), out),
            None => Ok(()),
        }
    }

    /// The same with a configuration of the caller's, on any device.
    ///
    /// # Errors
    /// Those of [`Matmul::launch`]; if there is no such block for these elements, or none that takes what follows the product; if `split_k` is
    /// more than 32.
    pub fn launch_with<'o>(
        &self,
        on: impl LaunchOn,
        out: impl MatricesMut<'o, T>,
        config: Config,
    ) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let out = out.matrices();
        if config.split_k > split_matmul::MAX_PARTS {
            return Err(CHECKS.error(format!(
                "a split of K in {}, the most is {}",
                config.split_k,
                split_matmul::MAX_PARTS
            )));
        }
        match self.factors(out.shape())? {
            Some(factors) => T::multiply(on, factors, config, out),
            None => Ok(()),
        }
    }

    /// Computes into a matrix, and adds another one that is as large: in a launch of its own where [`adds_apart`] says so, of a product that
    /// is then rounded before.
    pub(crate) fn launch_adding(
        &self,
        on: impl LaunchOn,
        residual: Slice<'_, T>,
        mut out: SliceMut<'_, T>,
    ) -> Result<()>
    where
        T: Multiply<ACT>,
    {
        let ([_, rows, _], [_, _, columns], b) = (self.a.shape(), self.b.shape(), self.b.matrix(0));
        let shape = [rows, columns];
        let form = if adds_apart(on, rows, b) { Form::Separate } else { Form::Fused };
        trace_choice("matmul", format_args!("{form:?}: a residual behind {rows} rows of {columns}"));
        match form {
            Form::Fused => self.residual(residual.view(shape)?).launch(on, out.view_mut(shape)?),
            Form::Separate => {
                let mut product = on.temporary::<T>(rows * columns)?;
                self.launch(on, product.slice_mut().view_mut(shape)?)?;
                T::add(on, product.slice(), residual, out)
            }
        }
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
        Ok(Some(Factors { a: self.a, b, bias, residual, alpha: self.alpha, tf32: self.tf32 }))
    }
}

const CHECKS: Checks = Checks("matmul");

/// Whether a residual behind the product of so many contiguous rows with `weight` is added sooner by a launch of its own: tiles that have
/// registers for it are smaller.
pub(crate) fn adds_apart<T: Float>(on: impl LaunchOn, rows: usize, weight: View<'_, T, 2>) -> bool {
    let ([k, n], bytes) = (weight.shape(), size_of::<T>());
    let lines = [(k * bytes).is_multiple_of(16), !(k * bytes).is_multiple_of(SECTOR)];
    let problem = problem([1, rows, n], lines, &weight.matrices(), true);
    bytes == 2 && rows * n > 0 && on.has_clusters() && problem.adds_apart(on.processors())
}

/// What the choice of a configuration depends on: of operand A whether its lines are aligned and whether they begin within sectors, operand
/// B, and whether there is a matrix to add.
fn problem<T: Float>(
    out: [usize; 3],
    [is_a_aligned, is_a_within]: [bool; 2],
    b: &View<'_, T, 3>,
    adds: bool,
) -> Problem {
    let ([right_batches, k, _], bytes) = (b.shape(), size_of::<T>());
    Problem {
        out,
        k,
        right_batches,
        bytes,
        aligned: [is_a_aligned, is_aligned(b)],
        within_sectors: [is_a_within, is_within_sectors(b)],
        b_is_k_major: is_column_major(b),
        adds,
        odd_out: !(out[2] * bytes).is_multiple_of(16),
    }
}

/// What a product is made of, once it is known to fit together.
#[derive(Clone, Copy)]
pub struct Factors<'a, T: Float> {
    pub(crate) a: View<'a, T, 3>,
    pub(crate) b: View<'a, T, 3>,
    pub(crate) bias: View<'a, T, 2>,
    pub(crate) residual: View<'a, T, 3>,
    pub(crate) alpha: f32,
    pub(crate) tf32: bool,
}

impl<T: Float> Factors<'_, T> {
    /// What the choice of a configuration depends on.
    pub(crate) fn problem(&self, out: [usize; 3]) -> Problem {
        problem(out, [is_aligned(&self.a), is_within_sectors(&self.a)], &self.b, self.residual.shape()[1] > 0)
    }

    /// The tile of few rows, if what is summed over is contiguous in both factors, and if it is sooner done than parts of sums.
    fn few_rows(&self, on: impl LaunchOn, out: [usize; 3]) -> Option<Tile> {
        let ([_, _, k], bytes) = (self.a.shape(), size_of::<T>());
        let ([a_batch, row, inner], [b_batch, b_inner, col]) = (self.a.strides(), self.b.strides());
        let lines = [[row, inner], [col, b_inner], [a_batch, 1], [b_batch, 1], [out[2], 1]];
        let fits = lines.into_iter().all(|strides| split_matmul::in_vectors(strides, bytes));
        let tile = split_matmul::few_rows(on, out, k * bytes, &[NARROW, FLAT, LOW]).filter(|_| fits)?;
        (split_matmul::scratch_len(on, out, k, Some(tile), bytes) == 0).then_some(tile)
    }
}

/// Rows cut into slices of their elements, which are the second axis.
fn sliced<T: Element>(rows: View<'_, T, 3>, slices: usize) -> Result<View<'_, T, 4>> {
    let [batches, count, k] = rows.shape();
    Ok(rows.reshape([batches, count, slices, k / slices])?.permute([0, 2, 1, 3]))
}

/// The slices of [`matmul_narrow`], and `BLOCK_K` of the tiles of few rows.
const SLICES: usize = 4;
const FEW_K: usize = 128;

/// The activation with this number.
pub struct Activation<const ACT: usize>;

/// Activations that may follow a product: `IDENTITY`, `RELU`, `GELU` and `SILU` of [`crate::activation`].
#[diagnostic::on_unimplemented(message = "no product has this activation")]
pub trait FollowsProduct {}

impl FollowsProduct for Activation<{ activation::IDENTITY }> {}
impl FollowsProduct for Activation<{ activation::RELU }> {}
impl FollowsProduct for Activation<{ activation::GELU }> {}
impl FollowsProduct for Activation<{ activation::SILU }> {}

/// The element types of products with the activation `ACT`.
pub trait Multiply<const ACT: usize>: Float {
    /// The configuration of a product with these matrices.
    #[doc(hidden)]
    fn config(on: impl LaunchOn, of: &Factors<'_, Self>, out: [usize; 3]) -> Config;

    /// Launches a sum.
    #[doc(hidden)]
    fn add(on: impl LaunchOn, x: Slice<'_, Self>, y: Slice<'_, Self>, out: SliceMut<'_, Self>) -> Result<()>;

    /// Launches what computes the product.
    #[doc(hidden)]
    fn multiply(
        on: impl LaunchOn,
        of: Factors<'_, Self>,
        config: Config,
        out: ViewMut<'_, Self, 3>,
    ) -> Result<()>;
}

/// The choice of a block among those that are listed, for a kernel's launch.
macro_rules! by_block {
    ($block:expr, [$($M:literal x $N:literal x $K:literal),*], |$m:ident, $n:ident, $k:ident| $launch:expr) => {
        match ($block.tile.rows, $block.tile.cols, $block.k) {
            $(
                ($M, $N, $K) => {
                    const $m: usize = $M;
                    const $n: usize = $N;
                    const $k: usize = $K;
                    $launch
                }
            )*
            _ => Err($crate::matmul::no_block($block)),
        }
    };
}

pub(crate) use by_block;

pub(crate) fn no_block(Block { tile: Tile { rows, cols }, k }: Block) -> Error {
    CHECKS.error(format!("there is no kernel of {rows} x {cols} x {k} for this product"))
}

/// Parts of the sums and what adds them up, with blocks that are listed, or with this kernel.
macro_rules! launch_parts {
    ($T:ty, $on:ident, $of:ident, $out:ident, $config:ident, $blocks:tt, $act:expr) => {
        $crate::matmul::launch_parts!($T, $on, $of, $out, $config, act = $act, |block, a, b, sums, share| {
            by_block!(block, $blocks, |M, N, K| matmul_parts::<$T, M, N, K>(a, b, sums, share)
                .grid((block.tile.count($out.shape()), $config.split_k))
                .launch($on))
        })
    };
    ($T:ty, $on:ident, $of:ident, $out:ident, $config:ident, act = $act:expr,
     |$block:ident, $a:ident, $b:ident, $sums:ident, $share:ident| $launch:expr) => {{
        let Factors { a: $a, b: $b, bias, residual, alpha, .. } = $of;
        let ([batches, m, n], Config { block: $block, split_k, .. }) = ($out.shape(), $config);
        let $share = $a.shape()[2].div_ceil(split_k).div_ceil($block.k) as i32;
        let shape = [split_k, batches, m, n];
        let mut scratch = $on.temporary::<f32>(shape.iter().product())?;
        let $sums = ViewMut::new(scratch.slice_mut(), shape)?;
        $launch?;
        let (sums, act) = (scratch.slice().view(shape)?, $act);
        if n <= THIN_COLS {
            let programs = THIN.count($out.shape());
            sum_parts::<$T, { THIN.rows }, { THIN.cols }>(sums, bias, residual, $out, alpha, act)
                .grid(programs)
                .launch($on)
        } else if batches * m * n <= SUMMED.rows * SUMMED.cols * $on.processors() {
            // More programs where rows are few.
            let programs = Tile { rows: 1, ..SUMMED }.count($out.shape());
            sum_parts::<$T, 1, { SUMMED.cols }>(sums, bias, residual, $out, alpha, act)
                .grid(programs)
                .launch($on)
        } else {
            let programs = SUMMED.count($out.shape());
            sum_parts::<$T, { SUMMED.rows }, { SUMMED.cols }>(sums, bias, residual, $out, alpha, act)
                .grid(programs)
                .launch($on)
        }
    }};
}
pub(crate) use launch_parts;

macro_rules! multiply_halves {
    ($($T:ty),*) => {$(
        impl<const ACT: usize> Multiply<ACT> for $T
        where
            matmul::Choice<$T, ACT, 128, 256, 64>: matmul::Declared,
            matmul::Choice<$T, ACT, 128, 192, 64>: matmul::Declared,
        {
            fn config(on: impl LaunchOn, of: &Factors<'_, $T>, out: [usize; 3]) -> Config {
                if let Some(tile) = of.few_rows(on, out) {
                    return Config { block: Block { tile, k: FEW_K }, split_k: 1, copies: [false; 2] };
                }
                let problem = of.problem(out);
                if on.has_clusters() {
                    problem.fastest(on.processors())
                } else {
                    problem.without_wgmma(on, [if problem.adds { LARGE } else { LARGEST }, SMALL])
                }
            }

            fn add(on: impl LaunchOn, x: Slice<'_, $T>, y: Slice<'_, $T>, out: SliceMut<'_, $T>) -> Result<()> {
                LinearCombination::new(1.0, x).y(1.0, y).launch(on, out)
            }

            fn multiply(
                on: impl LaunchOn,
                of: Factors<'_, $T>,
                config: Config,
                out: ViewMut<'_, $T, 3>,
            ) -> Result<()> {
                let (shape, act) = (out.shape(), ACT as i32);
                let [left, right] = config.copies;
                let (left, right) =
                    (left.then(|| OperandCopy::new(of.a)), right.then(|| OperandCopy::new(of.b)));
                let copies = copy_operands(on, [left, right])?;
                let [a, b] = copies.operands([of.a, of.b])?;
                let of = Factors { a, b, ..of };
                if config.split_k > 1 {
                    return launch_parts!(
                        $T, on, of, out, config,
                        [128 x 192 x 64, 128 x 128 x 64, 64 x 128 x 64, 64 x 64 x 128], act
                    );
                }
                let (Factors { a, b, bias, residual, alpha, .. }, programs) =
                    (of, config.block.tile.count(shape));
                let adds = residual.shape()[1] > 0;
                match config.block {
                    LARGEST if !adds => {
                        matmul::<$T, ACT, 128, 256, 64>(a, b, bias, out, alpha).grid(programs).launch(on)
                    }
                    WIDE if !adds => {
                        matmul::<$T, ACT, 128, 192, 64>(a, b, bias, out, alpha).grid(programs).launch(on)
                    }
                    Block { tile: NARROW, k: FEW_K } => {
                        let (a, b) = (sliced(a, SLICES)?, sliced(b.permute([0, 2, 1]), SLICES)?);
                        matmul_narrow::<$T, SLICES, { NARROW.rows }, { NARROW.cols }, FEW_K>(
                            a, b, bias, residual, out, alpha, act,
                        )
                        .grid(programs)
                        .launch(on)
                    }
                    block => by_block!(
                        block,
                        [
                            128 x 128 x 64, 64 x 128 x 64, 64 x 64 x 128, 64 x 64 x 64, 64 x 32 x 128,
                            16 x 32 x 128
                        ],
                        |M, N, K| matmul_small::<$T, M, N, K>(a, b, bias, residual, out, alpha, act)
                            .grid(programs)
                            .launch(on)
                    ),
                }
            }
        }
    )*};
}

multiply_halves!(f16, bf16);

impl<const ACT: usize> Multiply<ACT> for f32
where
    Activation<ACT>: FollowsProduct,
{
    fn config(on: impl LaunchOn, of: &Factors<'_, f32>, out: [usize; 3]) -> Config {
        if of.tf32 && on.has_clusters() {
            return matmul_tf32::config(on, of, ACT as i32, out);
        }
        let problem = of.problem(out);
        if of.tf32 {
            return problem.without_wgmma(on, [LARGE, SMALL].map(|block| Block { k: 32, ..block }));
        }
        Problem { adds: problem.adds || ACT != activation::IDENTITY, ..problem }.by_fma(on)
    }

    fn add(on: impl LaunchOn, x: Slice<'_, f32>, y: Slice<'_, f32>, out: SliceMut<'_, f32>) -> Result<()> {
        LinearCombination::new(1.0, x).y(1.0, y).launch(on, out)
    }

    fn multiply(
        on: impl LaunchOn,
        of: Factors<'_, f32>,
        config: Config,
        out: ViewMut<'_, f32, 3>,
    ) -> Result<()> {
        let act = ACT as i32;
        if of.tf32 {
            return matmul_tf32::multiply(on, of, config, act, out);
        }
        if config.split_k > 1 {
            return launch_parts!(f32, on, of, out, config, [64 x 64 x 16, 32 x 32 x 16], act);
        }
        let (Factors { a, b, bias, residual, alpha, .. }, programs) =
            (of, config.block.tile.count(out.shape()));
        if config.block == LARGE_BY_FMA && residual.shape()[1] == 0 && ACT == activation::IDENTITY {
            let call = matmul_f32::<128, 128, 16, false>(a, b, bias, residual, out, alpha, act);
            return call.grid(programs).launch(on);
        }
        by_block!(config.block, [64 x 128 x 16, 64 x 64 x 16, 32 x 32 x 16], |M, N, K| {
            matmul_f32::<M, N, K, true>(a, b, bias, residual, out, alpha, act).grid(programs).launch(on)
        })
    }
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
