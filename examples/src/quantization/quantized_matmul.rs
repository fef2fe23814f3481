//! `out = act(row_scales * (a · b) * col_scales + bias)` of 8-bit operands, as [`crate::quantize`] makes them: the
//! matmul of an `m x k` and a `k x n` matrix with a scale for each row of `a` and each column of `b`, or one for all,
//! a bias for each column and an activation of [`crate::activation`] as its epilogue. The result is in floats, or `i8`
//! again: divided by a scale for each row, or one for all, and rounded.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `out` of `[m, n]`, with any strides. A GPU reads K-major
//! operands as they are, which is how a linear layer keeps its weights: `weights.permute([1, 0])`, if their lines begin at multiples of
//! 16 bytes. Others it first copies to such lines where that pays.
//!
//! **Work.** `2 * m * n * k` operations, at twice the rate of 16-bit types. Tiles, in the order of [`crate::matmul`], and the split of K,
//! whose partial sums a second kernel reduces, are chosen for each launch: see [`crate::matmul_heuristic`], and for skinny matmuls
//! [`crate::split_matmul`]. Partial sums and copies take temporary memory.
//!
//! **Rounding.** Sums of `i8` are exact. Products of `f8e4m3` are exact, and their sum is within `(k + 2) * 2^-23` of
//! the sum of their magnitudes; a GPU of capability 9.0 may add `34 * 2^-13` of the largest of products and sums for
//! each 32 products (see `max_num_imprecise_acc`), and adds sums of 128 products in `f32`. Scales, the bias and the
//! activation are computed in `f32`: the first three are within `4 * 2^-24` of the value's magnitude without the bias,
//! and the result is rounded once. `i8` is within half a step and `4 * 2^-24` of what is rounded, halves go to the even
//! one, and the range saturates.
//!
//! **Source.** Dettmers and others, *LLM.int8()*, 2022, arXiv:2208.07339, section 2; DeepSeek-AI, *DeepSeek-V3*, 2024,
//! arXiv:2412.19437, section 3.3.2, for sums of 8-bit floats.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::Activation;
use crate::float::{Accumulator, LibraryElement, LibraryFloat, QuantizedElement};
use crate::matmul::{Extents, TileShape};
use crate::matmul_dispatch::in_block;
use crate::matmul_heuristic::{Block, Config, Problem};
use crate::matmul_operands::{are_lines_aligned, copies_of, is_column_major, is_within_sectors};
use crate::quantized_tiles::{
    quantized_matmul, quantized_skinny, quantized_split_k, quantized_warp_split_k, reduce_quantized_split_k,
};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;
use crate::split_matmul::{self, REDUCE, SKINNY_M64, SKINNY_N16, SKINNY_N32, SPLIT_K_TILE};

/// The largest K of `i8`, each of whose products is at most `2^14`.
pub const MAX_K_I8: usize = (1 << 17) - 1;

const CHECKS: Checks = Checks("quantized_matmul");

/// The tile where nothing else is chosen.
const LARGE: TileShape = TileShape::new(128, 128);
/// Terms of an iteration.
const BLOCK_K: usize = 128;
/// Those of skinny tiles whose warps do not split K.
const SKINNY_K: usize = 256;
/// The skinny tiles.
const SKINNY_TILES: [TileShape; 3] = [SKINNY_N16, SKINNY_N32, SKINNY_M64];

/// The element type of operands: `i8` or `f8e4m3`.
pub trait QuantizedOperand: QuantizedElement {
    /// What products are added in.
    type Accumulator: Accumulator;

    /// The largest K.
    const MAX_K: usize;

    /// The slices of K of the smallest tiles, one for each warp.
    #[doc(hidden)]
    const K_SLICES: usize;
}

impl QuantizedOperand for i8 {
    type Accumulator = i32;
    const MAX_K: usize = MAX_K_I8;
    const K_SLICES: usize = 4;
}

impl QuantizedOperand for f8e4m3 {
    type Accumulator = f32;
    // Indices past the end of the last split are counted too.
    const MAX_K: usize = i32::MAX as usize - split_matmul::MAX_SPLIT_K * BLOCK_K - 256;
    const K_SLICES: usize = 8;
}

/// The activations of a product of such operands and of such a result; none where there is no kernel.
fn activations(operands: DType, result: DType) -> &'static [Activation] {
    use Activation::{Gelu, Identity, Relu, Silu};
    match (operands, result) {
        (DType::I8, DType::F16 | DType::BF16) => &[Identity, Relu, Gelu, Silu],
        (DType::I8, DType::I8) => &[Identity, Relu, Gelu],
        (DType::I8, DType::F32) => &[Identity],
        (_, DType::F16 | DType::BF16) => &[Identity, Gelu, Silu],
        _ => &[],
    }
}

/// The matmul of two quantized matrices:
/// `QuantizedMatmul::new(a.view([m, k])?, &a_scales, b.view([k, n])?, &b_scales).activation(Activation::Gelu)`.
///
/// | operands | result | activations |
/// | --- | --- | --- |
/// | `i8` | `f16`, `bf16` | identity, ReLU, GELU, SiLU |
/// | `i8` | `f32` | identity |
/// | `i8` | `i8`, by [`QuantizedMatmul::requantize`] | identity, ReLU, GELU |
/// | `f8e4m3` | `f16`, `bf16` | identity, GELU, SiLU |
#[derive(Clone, Copy)]
pub struct QuantizedMatmul<'a, A: QuantizedOperand> {
    a: View<'a, A, 2>,
    b: View<'a, A, 2>,
    row_scales: Slice<'a, f32>,
    col_scales: Slice<'a, f32>,
    bias: Option<Slice<'a, f32>>,
    activation: Activation,
}

impl<'a, A: QuantizedOperand> QuantizedMatmul<'a, A> {
    /// The matmul without a bias, with a scale for each row of `a` and each column of `b`, or one for all of them.
    pub fn new(
        a: impl Into<View<'a, A, 2>>,
        row_scales: impl Into<Slice<'a, f32>>,
        b: impl Into<View<'a, A, 2>>,
        col_scales: impl Into<Slice<'a, f32>>,
    ) -> Self {
        let (a, b, row_scales, col_scales) = (a.into(), b.into(), row_scales.into(), col_scales.into());
        QuantizedMatmul { a, b, row_scales, col_scales, bias: None, activation: Activation::Identity }
    }

    /// Adds a bias to each column.
    pub fn bias(self, bias: impl Into<Slice<'a, f32>>) -> Self {
        QuantizedMatmul { bias: Some(bias.into()), ..self }
    }

    /// Applies an activation behind the bias.
    pub fn activation(self, activation: Activation) -> Self {
        QuantizedMatmul { activation, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit together; if there are more rows or columns than an `i32` counts, or a larger K than
    /// the accumulator of `i8` allows; if there is no kernel with the activation for these types; if there is too little memory for
    /// partial sums and copies; those of a launch.
    pub fn launch<'o, O: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, O, 2>>,
    ) -> Result<()> {
        self.multiply(on, out.into(), self.row_scales.view([0, 1])?, None)
    }

    /// The same with a configuration of the caller's, on any device.
    ///
    /// # Errors
    /// Those of [`QuantizedMatmul::launch`]; if there is no such block, or no split-K of it.
    pub fn launch_with<'o, O: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, O, 2>>,
        config: Config,
    ) -> Result<()> {
        self.multiply(on, out.into(), self.row_scales.view([0, 1])?, Some(config))
    }

    fn multiply<O: LibraryElement>(
        &self,
        on: impl LaunchOn,
        out: ViewMut<'_, O, 2>,
        out_scales: View<'_, f32, 2>,
        config: Option<Config>,
    ) -> Result<()> {
        let Some(of) = self.operands(out.shape(), out_scales)? else { return Ok(()) };
        let config = config.unwrap_or_else(|| of.config(on, &out));
        let (split_k, most) = (config.split_k, split_matmul::MAX_SPLIT_K);
        if split_k > most {
            return Err(CHECKS.error(format!("a split of K in {split_k}, the most is {most}")));
        }
        let activations = activations(A::DTYPE, O::DTYPE);
        if activations.is_empty() {
            let types = (A::DTYPE, O::DTYPE);
            let reason = format!("the result of {} is {}, expected f16 or bf16", types.0, types.1);
            return Err(CHECKS.error(reason));
        }
        self.activation.check(CHECKS, activations)?;
        in_block(CHECKS, of.launch(on, self.activation, config, out), config.block)
    }

    /// What the kernel takes, if it fits together; nothing if the result has no elements.
    fn operands<'s>(
        &self,
        out: [usize; 2],
        out_scales: View<'s, f32, 2>,
    ) -> Result<Option<QuantizedOperands<'s, A>>>
    where
        'a: 's,
    {
        let ([m, k], [inner, n]) = (self.a.shape(), self.b.shape());
        CHECKS.extents("b", [inner, n], [k, n])?;
        CHECKS.extents("out", out, [m, n])?;
        let row_scales = each_or_all("row_scales", self.row_scales, m)?;
        each_or_all("col_scales", self.col_scales, n)?;
        let col_scales = self.col_scales.view_strided([1, self.col_scales.len()], [0, 1])?;
        if let Some(bias) = &self.bias {
            CHECKS.same(("bias", bias.len()), ("n", n))?;
        }
        // Indices past the edges, in the last tiles, are counted too.
        let most = i32::MAX as usize - 256;
        if let Some(extent) = [m, n].into_iter().find(|&extent| extent > most) {
            return Err(CHECKS.error(format!("an extent is {extent}, the most is {most}")));
        }
        if k > A::MAX_K {
            let text =
                format!("k is {k}, the most products of {} that can be added are {}", A::DTYPE, A::MAX_K);
            return Err(CHECKS.error(text));
        }
        if m * n == 0 {
            return Ok(None);
        }
        let bias = match self.bias {
            Some(bias) => bias.view([1, n])?,
            None => self.row_scales.view([1, 0])?,
        };
        let b = self.b.permute([1, 0]);
        Ok(Some(QuantizedOperands { a: self.a, b, row_scales, col_scales, bias, out_scales }))
    }
}

impl<'a> QuantizedMatmul<'a, i8> {
    /// Computes `i8` into `out`, on a device or stream: the result divided by a scale for each row, or one for all of
    /// them.
    ///
    /// # Errors
    /// Those of [`QuantizedMatmul::launch`].
    pub fn requantize<'o, 's>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, i8, 2>>,
        scales: impl Into<Slice<'s, f32>>,
    ) -> Result<()> {
        self.launch_requantized(on, out.into(), scales.into(), None)
    }

    /// The same with a configuration of the caller's, on any device.
    ///
    /// # Errors
    /// Those of [`QuantizedMatmul::launch_with`].
    pub fn requantize_with<'o, 's>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, i8, 2>>,
        scales: impl Into<Slice<'s, f32>>,
        config: Config,
    ) -> Result<()> {
        self.launch_requantized(on, out.into(), scales.into(), Some(config))
    }

    fn launch_requantized(
        &self,
        on: impl LaunchOn,
        out: ViewMut<'_, i8, 2>,
        scales: Slice<'_, f32>,
        config: Option<Config>,
    ) -> Result<()> {
        let scales = each_or_all("scales", scales, out.shape()[0])?;
        self.multiply(on, out, scales, config)
    }
}

/// What the kernel takes, once it is known to fit together.
#[derive(Clone, Copy, Debug)]
struct QuantizedOperands<'a, A: QuantizedOperand> {
    a: View<'a, A, 2>,
    b: View<'a, A, 2>,
    row_scales: View<'a, f32, 2>,
    col_scales: View<'a, f32, 2>,
    bias: View<'a, f32, 2>,
    out_scales: View<'a, f32, 2>,
}

impl<A: QuantizedOperand> QuantizedOperands<'_, A> {
    /// Launches the product in a configuration.
    fn launch<O: LibraryElement>(
        self,
        on: impl LaunchOn,
        activation: Activation,
        Config { block, split_k, copies }: Config,
        out: ViewMut<'_, O, 2>,
    ) -> Result<()> {
        let QuantizedOperands { row_scales, col_scales, bias, out_scales, .. } = self;
        let given = [self.a.batch(), self.b.batch()];
        let copies = copies_of(on, given, copies, given.map(|operand| is_column_major(&operand)))?;
        let [a, b] = copies.operands(given)?.map(|operand| operand.matrix(0));
        let ([m, n], act) = (out.shape(), activation as i32);
        let programs = block.tile.count([1, m, n]);
        if split_k > 1 {
            let k_steps = a.shape()[1].div_ceil(split_k).div_ceil(block.k) as i32;
            let shape = [split_k, m, n];
            let mut partials = on.temporary::<A::Accumulator>(shape.iter().product())?;
            quantized_split_k(a, b, partials.slice_mut().view_mut(shape)?, k_steps, block)
                .grid((programs, split_k))
                .launch(on)?;
            let partials = partials.slice().view(shape)?;
            return reduce_quantized_split_k(
                partials, row_scales, col_scales, bias, out_scales, out, act, REDUCE,
            )
            .grid(REDUCE.count([1, m, n]))
            .launch(on);
        }
        match block {
            Block { tile: SKINNY_N16, k: SKINNY_K } => {
                let (a, b) = (sliced(a, A::K_SLICES)?, sliced(b, A::K_SLICES)?);
                let call = quantized_warp_split_k::<A, A::Accumulator, O>;
                let (tile, slices) = (SKINNY_N16, A::K_SLICES);
                call(a, b, row_scales, col_scales, bias, out_scales, out, act, tile, slices)
                    .grid(programs)
                    .launch(on)
            }
            Block { k: SKINNY_K, .. } => {
                let call = quantized_skinny::<A, A::Accumulator, O>;
                let call = call(a, b, row_scales, col_scales, bias, out_scales, out, act, block);
                call.grid(programs).launch(on)
            }
            _ => {
                let call = quantized_matmul::<A, A::Accumulator, O>;
                let call = call(a, b, row_scales, col_scales, bias, out_scales, out, activation, block);
                call.grid(programs).launch(on)
            }
        }
    }

    /// The configuration for a device.
    fn config<O: Element>(&self, on: impl LaunchOn, out: &ViewMut<'_, O, 2>) -> Config {
        let ([m, n], k) = (out.shape(), self.a.shape()[1]);
        let (shape, bytes) = ([1, m, n], size_of::<A>());
        let whole =
            |tile: TileShape, k: usize| Config { block: Block { tile, k }, split_k: 1, copies: [false; 2] };
        let skinny = skinny_tile(on, self.a, self.b);
        if let Some(tile) =
            skinny.filter(|&tile| split_matmul::workspace_len(on, shape, k, Some(tile), bytes) == 0)
        {
            return whole(tile, SKINNY_K);
        }
        if on.has_wgmma() {
            let unaligned_out = !split_matmul::in_vectors(out.strides(), size_of::<O>());
            let problem = Problem {
                out: shape,
                k,
                b_batches: 1,
                bytes,
                aligned: [self.a, self.b].map(|rows| are_lines_aligned::<A>(rows.shape()[0], rows.strides())),
                within_sectors: [self.a, self.b].map(|rows| is_within_sectors(&rows.batch())),
                b_is_k_major: true,
                // Threads that store element by element have no registers for more.
                has_residual: unaligned_out,
                unaligned_out,
            };
            return problem.fastest(on.parallelism());
        }
        match split_matmul::split_k(shape, k, on.parallelism()) {
            split_k if split_k > 1 && on.shared_bytes().is_some() => {
                Config { split_k, ..whole(SPLIT_K_TILE, BLOCK_K) }
            }
            _ => whole(LARGE, BLOCK_K),
        }
    }
}

/// The skinny tile for operand A and the columns of operand B, if both are K-major.
fn skinny_tile<A: QuantizedElement>(
    on: impl LaunchOn,
    a: View<'_, A, 2>,
    b: View<'_, A, 2>,
) -> Option<TileShape> {
    let ([m, k], [n, _]) = (a.shape(), b.shape());
    let fits = in_vectors(a) && in_vectors(b) && n.is_multiple_of(8);
    if fits { split_matmul::skinny_tile(on, [1, m, n], k * size_of::<A>(), &SKINNY_TILES) } else { None }
}

/// Whether rows are read as vectors.
fn in_vectors<A: QuantizedElement>(rows: View<'_, A, 2>) -> bool {
    split_matmul::in_vectors(rows.strides(), size_of::<A>())
}

/// Rows cut into slices along K, which are the first axis.
fn sliced<A: QuantizedElement>(rows: View<'_, A, 2>, slices: usize) -> Result<View<'_, A, 3>> {
    let [count, k] = rows.shape();
    Ok(rows.reshape([count, slices, k / slices])?.permute([1, 0, 2]))
}

/// A scale for each of so many, or one that is repeated.
fn each_or_all<'a>(name: &str, scales: Slice<'a, f32>, count: usize) -> Result<View<'a, f32, 2>> {
    match scales.len() {
        1 => scales.view_strided([count, 1], [0, 1]),
        len if len == count => scales.view([count, 1]),
        len => Err(CHECKS.error(format!("{name} has {len} elements, expected {count} or 1"))),
    }
}

/// The operands by their values, and the epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Quantized<'a> {
    /// Row by row.
    pub a: &'a [f64],
    /// Row by row.
    pub b: &'a [f64],
    /// One for each row of `a`, or one.
    pub row_scales: &'a [f32],
    /// One for each column of `b`, or one.
    pub col_scales: &'a [f32],
    /// One for each column.
    pub bias: Option<&'a [f32]>,
    /// Whether accumulation is exact.
    pub integers: bool,
}

/// What the kernel computes, in `f64`, before it is rounded, and the bound that the module's documentation states.
pub fn reference(of: Quantized<'_>, Extents { m, k, n }: Extents, activation: Activation) -> Vec<Expected> {
    let unit = unit_roundoff(DType::F32);
    let scale = |scales: &[f32], i: usize| f64::from(if scales.len() == 1 { scales[0] } else { scales[i] });
    let element = |i: usize| {
        let (row, column) = (i / n, i % n);
        let term = |j: usize| of.a[row * k + j] * of.b[j * n + column];
        let (sum, error) = reference_sum(k, term, of.integers);
        let scale = scale(of.row_scales, row) * scale(of.col_scales, column);
        let value = sum * scale + of.bias.map_or(0.0, |bias| f64::from(bias[column]));
        let within = error * scale.abs() + 4.0 * unit * ((sum * scale).abs() + value.abs());
        activation.propagated(Expected { value, within }, DType::F16)
    };
    (0..m * n).map(element).collect()
}

/// The sum of so many terms, and the error bound of an accumulator.
fn reference_sum(count: usize, term: impl Fn(usize) -> f64, integers: bool) -> (f64, f64) {
    let (mut sum, mut magnitude, mut error) = (0.0, 0.0, 0.0);
    for first in (0..count).step_by(128) {
        let mut partial = 0.0f64;
        for step in (first..count.min(first + 128)).step_by(32) {
            let products = (step..count.min(step + 32)).map(&term);
            let mut largest = partial.abs();
            for term in products {
                partial += term;
                magnitude += term.abs();
                largest = largest.max(term.abs());
            }
            error += 34.0 * 2f64.powi(-13) * largest.max(partial.abs());
        }
        sum += partial;
    }
    let rounded = (count + 2) as f64 * 2.0 * unit_roundoff(DType::F32) * magnitude;
    (sum, if integers { 0.0 } else { error + rounded })
}

/// A result after [`QuantizedMatmul::requantize`] with a scale.
pub fn requantized(result: Expected, scale: f32) -> Expected {
    let exact = result.value / f64::from(scale);
    let error = result.within / f64::from(scale).abs() + 4.0 * unit_roundoff(DType::F32) * exact.abs();
    Expected { value: exact.clamp(-128.0, 127.0), within: 0.5 + error }
}

/// The bytes that a matmul must move.
pub const fn traffic<A, O>(Extents { m, k, n }: Extents) -> usize {
    (m * k + k * n) * size_of::<A>() + m * n * size_of::<O>() + (m + n) * size_of::<f32>()
}
