//! `out = act(alpha * a · b + bias) + residual`: the matmul of an `m x k` and a `k x n` matrix, or of batches of them, with an
//! epilogue: a scale, a bias for each column, an activation of [`crate::activation`] and a residual. A linear layer in one pass.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `residual` and `out` of `[m, n]`, with any strides, or each
//! with an axis before these that counts matrices of a batch; all matrices of `a` may be multiplied by one `b`. Operands are
//! fast in either order: row-major, or column-major as a linear layer keeps its weights, `weights.permute([1, 0])`. Where lines begin
//! at multiples of 16 bytes a GPU reads them as they are; other 16-bit floats it first copies to aligned lines where that pays.
//!
//! **Work.** `2 * m * n * k` operations for each matrix. A program computes a tile of the result from a band of rows of
//! `a` and one of columns of `b`. Tiles are swizzled in groups of sixteen rows of them, so that concurrent programs share reads
//! in the cache. The tile, and the split of K, whose partial sums a second kernel reduces, are chosen for each launch: see
//! [`crate::matmul_heuristic`]. Partial sums and copies take temporary memory. The result is written once, after its epilogue.
//!
//! **Rounding.** Products of 16-bit floats are exact and are added in `f32`, those of `f32` are added in `f32` with one
//! rounding each; the sum is within `(k + 2) * 2^-23` of the sum of the products' magnitudes, or better. The scale, the
//! bias, the activation and the residual are computed in `f32`, the first two within `2^-23` of the scaled products'
//! magnitudes and of what the activation takes, and the result is rounded to `T` once.
//!
//! [`Matmul::tf32`] multiplies `f32` in TF32: operands are rounded to eleven digits, halves to even; the rest is as stated, of the
//! rounded operands. [`crate::matmul_tiles`] has its kernels.
//!
//! **Source.** Tiles and their order: Tillet, Kung, Cox, *Triton*, 2019, doi:10.1145/3315508.3329973.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result, trace_choice};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::form::Form;
use crate::linear_combination::LinearCombination;
use crate::matmul_block::Block;
pub use crate::matmul_block::TileShape;
use crate::matmul_dispatch::{CHECKS, EPILOGUE, MatmulOperands, in_block, problem};
use crate::matmul_heuristic::{Config, LARGE, LARGEST, Problem, SMALL, WIDE};
pub use crate::matmul_operands::{Matrices, MatricesMut};
use crate::matmul_operands::{SECTOR, copies_of};
use crate::matmul_tf32;
use crate::matmul_tiles::{
    gemv, matmul, matmul_f32, matmul_small, matmul_split_k, matmul_warp_split_k, reduce_split_k,
};
use crate::reference::{Expected, unit_roundoff};
use crate::split_matmul::{self, REDUCE, REDUCE_SMALL_N, SKINNY_N16, SMALL_N, gemv_block};

/// The extents of a matmul: `m` rows, `k` terms for each element, `n` columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// Rows of operand A and of the result.
    pub m: usize,
    /// Columns of operand A and rows of operand B.
    pub k: usize,
    /// Columns of operand B and of the result.
    pub n: usize,
}

/// The matmul of two matrices, or of two batches of as many:
/// `Matmul::new(a.view([m, k])?, b.view([k, n])?).bias(&bias).activation(Activation::Gelu)`.
#[derive(Clone, Copy)]
pub struct Matmul<'a, T: LibraryFloat> {
    a: View<'a, T, 3>,
    b: View<'a, T, 3>,
    alpha: f32,
    bias: Option<Slice<'a, T>>,
    activation: Activation,
    residual: Option<View<'a, T, 3>>,
    tf32: bool,
}

impl Matmul<'_, f32> {
    /// Multiplies in TF32, by tensor cores: operands are rounded to eleven digits, halves to even.
    pub fn tf32(self) -> Self {
        Matmul { tf32: true, ..self }
    }
}

impl<'a, T: LibraryFloat> Matmul<'a, T> {
    /// The matmul without an epilogue. All of a batch may be multiplied by one matrix `b`.
    pub fn new(a: impl Matrices<'a, T>, b: impl Matrices<'a, T>) -> Self {
        let (a, b, activation) = (a.matrices(), b.matrices(), Activation::Identity);
        Matmul { a, b, alpha: 1.0, bias: None, activation, residual: None, tf32: false }
    }

    /// Scales the accumulator, before anything is added.
    pub fn alpha(self, alpha: f32) -> Self {
        Matmul { alpha, ..self }
    }

    /// Adds a bias to each column, before the activation.
    pub fn bias(self, bias: impl Into<Slice<'a, T>>) -> Self {
        Matmul { bias: Some(bias.into()), ..self }
    }

    /// Applies the identity, ReLU, GELU or SiLU.
    pub fn activation(self, activation: Activation) -> Self {
        Matmul { activation, ..self }
    }

    /// Adds a matrix like the result, behind the activation.
    pub fn residual(self, residual: impl Matrices<'a, T>) -> Self {
        Matmul { residual: Some(residual.matrices()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit together; if there is no kernel with the activation; if there are more rows or columns than an `i32`
    /// counts; if there is too little memory for partial sums and copies; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl MatricesMut<'o, T>) -> Result<()> {
        let out = out.matrices();
        let Some(of) = self.operands(out.shape())? else { return Ok(()) };
        let config = config(on, &of, out.shape());
        of.launch(on, config, out)
    }

    /// The same with a configuration of the caller's, on any device.
    ///
    /// # Errors
    /// Those of [`Matmul::launch`]; if there is no such block for these elements, or none with this epilogue; if `split_k` is
    /// more than 32.
    pub fn launch_with<'o>(
        &self,
        on: impl LaunchOn,
        out: impl MatricesMut<'o, T>,
        config: Config,
    ) -> Result<()> {
        let out = out.matrices();
        if config.split_k > split_matmul::MAX_SPLIT_K {
            return Err(CHECKS.error(format!(
                "a split of K in {}, the most is {}",
                config.split_k,
                split_matmul::MAX_SPLIT_K
            )));
        }
        let Some(of) = self.operands(out.shape())? else { return Ok(()) };
        of.launch(on, config, out)
    }

    /// Computes into a matrix, and adds a residual: in a launch of its own where [`adds_separately`] says so, which rounds the matmul
    /// first.
    pub(crate) fn launch_with_residual(
        &self,
        on: impl LaunchOn,
        residual: Slice<'_, T>,
        mut out: SliceMut<'_, T>,
    ) -> Result<()> {
        let ([_, rows, _], [_, _, columns], b) = (self.a.shape(), self.b.shape(), self.b.matrix(0));
        let shape = [rows, columns];
        let form = if adds_separately(on, rows, b) { Form::Separate } else { Form::Fused };
        trace_choice("matmul", format_args!("{form:?}: a residual behind {rows} rows of {columns}"));
        match form {
            Form::Fused => self.residual(residual.view(shape)?).launch(on, out.view_mut(shape)?),
            Form::Separate => {
                let mut unadded = on.temporary::<T>(rows * columns)?;
                self.launch(on, unadded.slice_mut().view_mut(shape)?)?;
                LinearCombination::new(1.0, unadded.slice()).y(1.0, residual).launch(on, out)
            }
        }
    }

    /// The checked operands; nothing if the result has no elements.
    fn operands(&self, out: [usize; 3]) -> Result<Option<MatmulOperands<'a, T>>> {
        let ([batches, m, k], [b_batches, inner, n]) = (self.a.shape(), self.b.shape());
        self.activation.check(CHECKS, &EPILOGUE)?;
        CHECKS.extents("b", [inner, n], [k, n])?;
        let [count, rows, cols] = out;
        CHECKS.extents("out", [rows, cols], [m, n])?;
        CHECKS.batches("out", count, batches)?;
        if b_batches != 1 {
            CHECKS.batches("b", b_batches, batches)?;
        }
        if let Some(bias) = &self.bias {
            CHECKS.same(("bias", bias.len()), ("n", n))?;
        }
        if let Some(residual) = &self.residual {
            let [count, rows, cols] = residual.shape();
            CHECKS.extents("residual", [rows, cols], [m, n])?;
            CHECKS.batches("residual", count, batches)?;
        }
        // Indices past the edges, in the last tiles and splits, are counted too.
        let most = i32::MAX as usize - split_matmul::MAX_OVERSHOOT;
        if let Some(extent) = [m, k, n].into_iter().find(|&extent| extent > most) {
            return Err(CHECKS.error(format!("an extent is {extent}, the most is {most}")));
        }
        if batches * m * n == 0 {
            return Ok(None);
        }
        let empty = self.a.slice(1, ..0).slice(2, ..0);
        let bias = match self.bias {
            Some(bias) => bias.view([1, n])?,
            None => empty.matrix(0),
        };
        let residual = self.residual.unwrap_or(empty);
        // One matrix that is repeated is copied as one, now that the counts are known to agree.
        let is_broadcast = b_batches > 1 && self.b.strides()[0] == 0;
        let b = if is_broadcast { self.b.slice(0, ..1) } else { self.b };
        let Matmul { a, alpha, activation, tf32, .. } = *self;
        Ok(Some(MatmulOperands { a, b, bias, residual, alpha, activation, tf32 }))
    }
}

/// Whether the residual of a matmul of so many contiguous rows with `weight` is faster in a launch of its own: tiles that have
/// registers for it are smaller.
pub(crate) fn adds_separately<T: LibraryFloat>(
    on: impl LaunchOn,
    rows: usize,
    weight: View<'_, T, 2>,
) -> bool {
    let ([k, n], bytes) = (weight.shape(), size_of::<T>());
    let lines = [(k * bytes).is_multiple_of(16), !(k * bytes).is_multiple_of(SECTOR)];
    let problem = problem([1, rows, n], lines, &weight.matrices(), true);
    bytes == 2 && rows * n > 0 && on.has_wgmma() && problem.adds_separately(on.parallelism())
}

/// Rows cut into slices along K, which are the second axis.
fn sliced<T: Element>(rows: View<'_, T, 3>, slices: usize) -> Result<View<'_, T, 4>> {
    let [batches, count, k] = rows.shape();
    Ok(rows.reshape([batches, count, slices, k / slices])?.permute([0, 2, 1, 3]))
}

/// The K slices of [`matmul_warp_split_k`], and `BLOCK_K` of the skinny tiles.
const K_SLICES: usize = 4;
const SKINNY_K: usize = 128;

/// The configuration for these operands.
fn config<T: LibraryFloat>(on: impl LaunchOn, of: &MatmulOperands<'_, T>, out: [usize; 3]) -> Config {
    let problem = of.problem(out);
    if size_of::<T>() == 4 {
        return match of.tf32 {
            true if on.has_wgmma() => matmul_tf32::config(on, of, out),
            true => problem.without_wgmma(on, [LARGE, SMALL].map(|block| Block { k: 32, ..block })),
            // The largest tiles have no registers for an activation either.
            false => {
                Problem { has_residual: problem.has_residual || of.has_activation(), ..problem }.by_fma(on)
            }
        };
    }
    let whole = |block: Block| Config { block, split_k: 1, copies: [false; 2] };
    if of.is_gemv(on, out) {
        whole(gemv_block(of.a.shape()[2]))
    } else if let Some(tile) = of.skinny_tile(on, out) {
        whole(Block { tile, k: SKINNY_K })
    } else if on.has_wgmma() {
        problem.fastest(on.parallelism())
    } else {
        problem.without_wgmma(on, [if problem.has_residual { LARGE } else { LARGEST }, SMALL])
    }
}

impl<T: LibraryFloat> MatmulOperands<'_, T> {
    /// Launches the matmul in a configuration.
    fn launch(self, on: impl LaunchOn, config: Config, out: ViewMut<'_, T, 3>) -> Result<()> {
        let (given, to_transpose) = ([self.a, self.b], matmul_tf32::to_transpose(&self));
        let transposed = [0, 1].map(|operand| self.tf32 && to_transpose == Some(operand));
        let copies = copies_of(on, given, config.copies, transposed)?;
        let [a, b] = copies.operands(given)?;
        let of = MatmulOperands { a, b, ..self };
        let launched = if config.split_k > 1 {
            of.launch_split_k(on, config, out)
        } else {
            of.launch_whole(on, config.block, out)
        };
        in_block(CHECKS, launched, config.block)
    }

    /// Launches the kernel of a block.
    fn launch_whole(self, on: impl LaunchOn, block: Block, out: ViewMut<'_, T, 3>) -> Result<()> {
        let MatmulOperands { a, b, bias, residual, alpha, activation, tf32 } = self;
        let (shape, act) = (out.shape(), activation as i32);
        let (programs, has_residual) = (block.tile.count(shape), residual.shape()[1] > 0);
        match block {
            _ if size_of::<T>() == 4 => {
                matmul_f32(a, b, bias, residual, out, alpha, act, block, tf32).grid(programs).launch(on)
            }
            Block { tile: TileShape { rows: 1, .. }, .. } if shape[0] * shape[1] == 1 => {
                let (a, weight) = (a.matrix(0), b.matrix(0).permute([1, 0]));
                gemv(a, weight, bias, residual, out, alpha, act, block).grid(programs).launch(on)
            }
            LARGEST | WIDE if !has_residual => {
                matmul(a, b, bias, out, activation, alpha, block).grid(programs).launch(on)
            }
            Block { tile: SKINNY_N16, k: SKINNY_K } => {
                let (a, b) = (sliced(a, K_SLICES)?, sliced(b.permute([0, 2, 1]), K_SLICES)?);
                matmul_warp_split_k(a, b, bias, residual, out, alpha, act, block, K_SLICES)
                    .grid(programs)
                    .launch(on)
            }
            _ => matmul_small(a, b, bias, residual, out, alpha, act, block).grid(programs).launch(on),
        }
    }

    /// Launches split-K with its reduction.
    fn launch_split_k(self, on: impl LaunchOn, config: Config, out: ViewMut<'_, T, 3>) -> Result<()> {
        let MatmulOperands { a, b, bias, residual, alpha, activation, tf32 } = self;
        let (result, Config { block, split_k, .. }) = (out.shape(), config);
        let [batches, m, n] = result;
        let k_steps = a.shape()[2].div_ceil(split_k).div_ceil(block.k) as i32;
        let shape = [split_k, batches, m, n];
        let mut workspace = on.temporary::<f32>(shape.iter().product())?;
        let partials = ViewMut::new(workspace.slice_mut(), shape)?;
        matmul_split_k(a, b, partials, k_steps, block, tf32)
            .grid((block.tile.count(result), split_k))
            .launch(on)?;
        let tile = if n <= SMALL_N {
            REDUCE_SMALL_N
        } else if batches * m * n <= REDUCE.rows * REDUCE.cols * on.parallelism() {
            // More programs where rows are few.
            TileShape { rows: 1, ..REDUCE }
        } else {
            REDUCE
        };
        reduce_split_k(workspace.slice().view(shape)?, bias, residual, out, alpha, activation as i32, tile)
            .grid(tile.count(result))
            .launch(on)
    }
}

/// The epilogue of a matmul: a scale, a bias for each column, an activation, and a residual after it.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a, T> {
    /// The scale of the accumulator.
    pub alpha: f32,
    /// One for each column.
    pub bias: Option<&'a [T]>,
    /// The activation.
    pub activation: Activation,
    /// One for each element.
    pub residual: Option<&'a [T]>,
}

impl<T> Default for Epilogue<'_, T> {
    fn default() -> Self {
        Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity, residual: None }
    }
}

/// What the kernel computes of two matrices, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    [a, b]: [&[T]; 2],
    Extents { m, k, n }: Extents,
    Epilogue { alpha, bias, activation, residual }: Epilogue<'_, T>,
) -> Vec<Expected> {
    let unit = 2.0 * unit_roundoff(DType::F32);
    let wide = |of: &[T]| of.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let (a, b, alpha) = (wide(a), wide(b), f64::from(alpha));
    let mut expected = Vec::with_capacity(m * n);
    for row in 0..m {
        let mut sums_and_magnitudes = vec![(0.0, 0.0); n];
        for i in 0..k {
            let a = a[row * k + i];
            for ((sum, magnitude), b) in sums_and_magnitudes.iter_mut().zip(&b[i * n..(i + 1) * n]) {
                *sum += a * b;
                *magnitude += (a * b).abs();
            }
        }
        expected.extend(sums_and_magnitudes.into_iter().enumerate().map(|(column, (sum, magnitude))| {
            let value = alpha * sum + bias.map_or(0.0, |bias| bias[column].to_f64());
            let within = (k + 3) as f64 * unit * (alpha * magnitude).abs() + unit * value.abs();
            let added = residual.map_or(0.0, |residual| residual[row * n + column].to_f64());
            activation.propagated_sum(Expected { value, within }, added, T::DTYPE)
        }));
    }
    expected
}

/// The bytes that a matmul must move.
pub const fn traffic<T>(Extents { m, k, n }: Extents) -> usize {
    (m * k + k * n + m * n) * size_of::<T>()
}
