//! `out = act(row_scales * (a · b) * col_scales + bias)` of 8-bit factors, as [`crate::quantize`] makes them: the
//! product of an `m x k` and a `k x n` matrix with a scale for each row of `a` and each column of `b`, or one for all,
//! a bias for each column and an activation of [`crate::activation`], in one pass. The result is in floats, or `i8`
//! again: divided by a scale for each row, or one for all, and rounded.
//!
//! **Shapes.** `a` is a view of `[m, k]`, `b` of `[k, n]`, `out` of `[m, n]`, with any strides. Fast on a GPU are rows
//! of `a` and columns of `b` whose elements are side by side, which is how a linear layer keeps its weights:
//! `weights.permute([1, 0])`. `k` and the strides between such rows and columns are then multiples of 16, and so are
//! the addresses.
//!
//! **Work.** `2 * m * n * k` operations, at twice the rate of 16-bit types. A program makes 128 rows and as many columns
//! of the result, or 192 where the processors are sooner done so, in the order of [`crate::matmul`]. Of up to 64 rows, read as
//! above, tiles are smaller. Where these are too few programs and `k` is long, [`QuantizedMatmul::launch_split`] shares the steps among
//! programs: see [`crate::split_matmul`] for both.
//!
//! **Rounding.** Sums of `i8` are exact. Products of `f8e4m3` are exact, and their sum is within `(k + 2) * 2^-23` of
//! the sum of their magnitudes; a GPU of capability 9.0 may add `34 * 2^-13` of the largest of products and sums for
//! each 32 products (see `max_num_imprecise_acc`), and adds sums of 128 products in `f32`. Scales, the bias and the
//! activation are computed in `f32`: the first three are within `4 * 2^-24` of the value's magnitude without the bias,
//! and the result is rounded once. `i8` is within half a step and `4 * 2^-24` of what is rounded, halves go to the even
//! neighbour, and what is beyond the range becomes its end.
//!
//! **Source.** Dettmers and others, *LLM.int8()*, 2022, arXiv:2208.07339, section 2; DeepSeek-AI, *DeepSeek-V3*, 2024,
//! arXiv:2412.19437, section 3.3.2, for sums of 8-bit floats.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation;
use crate::matmul::{Extents, Tile};
use crate::quantized_tiles::{
    quantized_few, quantized_matmul, quantized_narrow, quantized_parts, sum_quantized_parts,
};
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;
use crate::split_matmul::{self, FLAT, LOW, NARROW, SUMMED, TILE};

/// A type that can be multiplied.
pub trait Factor: Element {
    /// What products are added in.
    type Sum: Element;
    /// The longest sum.
    const MAX_TERMS: usize;
}

impl Factor for i8 {
    type Sum = i32;
    // Each product is at most 2^14.
    const MAX_TERMS: usize = (1 << 17) - 1;
}

impl Factor for f8e4m3 {
    type Sum = f32;
    // Places behind the end of the last part are counted too.
    const MAX_TERMS: usize = i32::MAX as usize - split_matmul::MAX_PARTS * STEPS - 256;
}

const CHECKS: Checks = Checks("quantized_matmul");

/// What a program makes in steps of [`STEPS`]; the wide one takes 7/5 of the time of the large one (docs/performance.md).
const LARGE: Tile = Tile { rows: 128, cols: 128 };
const WIDE: Tile = Tile { rows: 128, cols: 192 };
/// Terms that a program adds in a turn.
const STEPS: usize = 128;
/// Those of tiles of few rows that are not narrow.
const FEW_STEPS: usize = 256;
/// The tiles of few rows.
const FEW: [Tile; 3] = [NARROW, FLAT, LOW];

/// The factors whose products of few rows become `O`.
pub trait Few<O: Element>: Factor {
    /// Launches the kernel of few rows with one of [`FEW`].
    #[doc(hidden)]
    fn few(
        on: impl LaunchOn,
        of: Arguments<'_, Self>,
        act: i32,
        tile: Tile,
        out: ViewMut<'_, O, 2>,
    ) -> Result<()>;
}

/// The slices and steps of narrow tiles for each factor and result.
macro_rules! few {
    ($($A:ident, $O:ident, $ROUND:literal, $slices:literal x $steps:literal;)*) => {$(
        impl Few<$O> for $A {
            fn few(
                on: impl LaunchOn,
                of: Arguments<'_, $A>,
                act: i32,
                tile: Tile,
                out: ViewMut<'_, $O, 2>,
            ) -> Result<()> {
                let programs = tile.count([1, out.shape()[0], out.shape()[1]]);
                let Arguments { a, b, row_scales, col_scales, bias, out_scales } = of;
                macro_rules! few {
                    ($tile:ident) => {
                        quantized_few::<
                            $A, <$A as Factor>::Sum, $O, { $tile.rows }, { $tile.cols }, FEW_STEPS, $ROUND,
                        >(a, b, row_scales, col_scales, bias, out_scales, out, act)
                        .grid(programs)
                        .launch(on)
                    };
                }
                match tile {
                    NARROW => {
                        quantized_narrow::<
                            $A, <$A as Factor>::Sum, $O, $slices, { NARROW.rows }, { NARROW.cols }, $steps, $ROUND,
                        >(sliced(a, $slices)?, sliced(b, $slices)?, row_scales, col_scales, bias, out_scales, out, act)
                        .grid(programs)
                        .launch(on)
                    }
                    FLAT => few!(FLAT),
                    _ => few!(LOW),
                }
            }
        }
    )*};
}

few! {
    i8, f16, false, 4 x 256;
    i8, bf16, false, 4 x 256;
    i8, f32, false, 4 x 256;
    i8, i8, true, 4 x 256;
    f8e4m3, f16, false, 8 x 128;
    f8e4m3, bf16, false, 8 x 128;
}

/// The factors whose products become `O` after the activation `ACT`.
pub trait Multiply<O: Element, const ACT: usize>: Few<O> {
    /// Launches the kernel with the tile for the product's extents.
    #[doc(hidden)]
    fn multiply(on: impl LaunchOn, of: Arguments<'_, Self>, out: ViewMut<'_, O, 2>) -> Result<()>;

    /// Launches the kernels that share the steps, with working memory for as many parts as it holds.
    #[doc(hidden)]
    fn split(
        on: impl LaunchOn,
        of: Arguments<'_, Self>,
        out: ViewMut<'_, O, 2>,
        scratch: SliceMut<'_, Self::Sum>,
    ) -> Result<()>;
}

macro_rules! multiply {
    ($($A:ident, $O:ident, [$($ACT:literal),*], $ROUND:literal;)*) => {$($(
        impl Multiply<$O, $ACT> for $A {
            fn multiply(on: impl LaunchOn, of: Arguments<'_, $A>, out: ViewMut<'_, $O, 2>) -> Result<()> {
                let tile = of.tile(on, &out);
                if FEW.contains(&tile) {
                    return Self::few(on, of, $ACT, tile, out);
                }
                let programs = tile.count([1, out.shape()[0], out.shape()[1]]);
                let Arguments { a, b, row_scales, col_scales, bias, out_scales } = of;
                match tile {
                    WIDE => quantized_matmul::<
                        $A, <$A as Factor>::Sum, $O, $ACT, { WIDE.rows }, { WIDE.cols }, STEPS, $ROUND,
                    >(a, b, row_scales, col_scales, bias, out_scales, out)
                    .grid(programs)
                    .launch(on),
                    _ => quantized_matmul::<
                        $A, <$A as Factor>::Sum, $O, $ACT, { LARGE.rows }, { LARGE.cols }, STEPS, $ROUND,
                    >(a, b, row_scales, col_scales, bias, out_scales, out)
                    .grid(programs)
                    .launch(on),
                }
            }

            fn split(
                on: impl LaunchOn,
                of: Arguments<'_, $A>,
                out: ViewMut<'_, $O, 2>,
                mut scratch: SliceMut<'_, <$A as Factor>::Sum>,
            ) -> Result<()> {
                let Arguments { a, b, row_scales, col_scales, bias, out_scales } = of;
                let ([m, n], k) = (out.shape(), a.shape()[1]);
                let count = scratch.len() / (m * n);
                let share = k.div_ceil(count).div_ceil(STEPS) as i32;
                let shape = [count, m, n];
                quantized_parts::<$A, <$A as Factor>::Sum, { TILE.rows }, { TILE.cols }, STEPS>(
                    a, b, scratch.view_mut(shape)?, share,
                )
                .grid((TILE.count([1, m, n]), count))
                .launch(on)?;
                sum_quantized_parts::<<$A as Factor>::Sum, $O, { SUMMED.rows }, { SUMMED.cols }, $ROUND>(
                    scratch.slice(..).view(shape)?, row_scales, col_scales, bias, out_scales, out, $ACT,
                )
                .grid(SUMMED.count([1, m, n]))
                .launch(on)
            }
        }
    )*)*};
}

multiply! {
    i8, f16, [0, 1, 2, 4], false;
    i8, bf16, [0, 1, 2, 4], false;
    i8, f32, [0], false;
    i8, i8, [0, 1, 2], true;
    f8e4m3, f16, [0, 2, 4], false;
    f8e4m3, bf16, [0, 2, 4], false;
}

/// The product of two quantised matrices:
/// `QuantizedMatmul::<i8, GELU>::new(a.view([m, k])?, &a_scales, b.view([k, n])?, &b_scales)`. `A` is `i8` or `f8e4m3`.
///
/// | factors | result | activations |
/// | --- | --- | --- |
/// | `i8` | `f16`, `bf16` | `IDENTITY`, `RELU`, `GELU`, `SILU` |
/// | `i8` | `f32` | `IDENTITY` |
/// | `i8` | `i8`, by [`QuantizedMatmul::requantize`] | `IDENTITY`, `RELU`, `GELU` |
/// | `f8e4m3` | `f16`, `bf16` | `IDENTITY`, `GELU`, `SILU` |
#[derive(Clone, Copy)]
pub struct QuantizedMatmul<'a, A: Factor, const ACT: usize> {
    a: View<'a, A, 2>,
    b: View<'a, A, 2>,
    row_scales: Slice<'a, f32>,
    col_scales: Slice<'a, f32>,
    bias: Option<Slice<'a, f32>>,
}

impl<'a, A: Factor, const ACT: usize> QuantizedMatmul<'a, A, ACT> {
    /// The product without a bias, with a scale for each row of `a` and each column of `b`, or one for all of them.
    pub fn new(
        a: impl Into<View<'a, A, 2>>,
        row_scales: impl Into<Slice<'a, f32>>,
        b: impl Into<View<'a, A, 2>>,
        col_scales: impl Into<Slice<'a, f32>>,
    ) -> Self {
        let (row_scales, col_scales) = (row_scales.into(), col_scales.into());
        QuantizedMatmul { a: a.into(), b: b.into(), row_scales, col_scales, bias: None }
    }

    /// Adds a number to each column.
    pub fn bias(self, bias: impl Into<Slice<'a, f32>>) -> Self {
        QuantizedMatmul { bias: Some(bias.into()), ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit together; if there are more rows or columns than an `i32` counts, or more products of
    /// `i8` than it adds; those of a launch.
    pub fn launch<'o, O: Float>(&self, on: impl LaunchOn, out: impl Into<ViewMut<'o, O, 2>>) -> Result<()>
    where
        A: Multiply<O, ACT>,
    {
        let out = out.into();
        let nothing = self.row_scales.view([0, 1])?;
        match self.arguments(out.shape(), nothing)? {
            Some(arguments) => A::multiply(on, arguments, out),
            None => Ok(()),
        }
    }

    /// The same, with the steps along `k` shared among programs where there would be too few of them, as there are for few rows: in
    /// working memory of [`QuantizedMatmul::scratch_len`] numbers.
    ///
    /// # Errors
    /// Those of [`QuantizedMatmul::launch`]; if the working memory is not as long.
    pub fn launch_split<'o, 's, O: Float>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, O, 2>>,
        scratch: impl Into<SliceMut<'s, A::Sum>>,
    ) -> Result<()>
    where
        A: Multiply<O, ACT>,
    {
        let out = out.into();
        let nothing = self.row_scales.view([0, 1])?;
        self.split(on, self.arguments(out.shape(), nothing)?, out, scratch.into())
    }

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
    ) -> Result<()>
    where
        A: Multiply<i8, ACT>,
    {
        let out = out.into();
        let scales = each_or_all("scales", scales.into(), out.shape()[0])?;
        match self.arguments(out.shape(), scales)? {
            Some(arguments) => A::multiply(on, arguments, out),
            None => Ok(()),
        }
    }

    /// The same, with the steps along `k` shared among programs as by [`QuantizedMatmul::launch_split`].
    ///
    /// # Errors
    /// Those of [`QuantizedMatmul::launch_split`].
    pub fn requantize_split<'o, 's>(
        &self,
        on: impl LaunchOn,
        out: impl Into<ViewMut<'o, i8, 2>>,
        scales: impl Into<Slice<'s, f32>>,
        scratch: impl Into<SliceMut<'s, A::Sum>>,
    ) -> Result<()>
    where
        A: Multiply<i8, ACT>,
    {
        let out = out.into();
        let scales = each_or_all("scales", scales.into(), out.shape()[0])?;
        self.split(on, self.arguments(out.shape(), scales)?, out, scratch.into())
    }

    /// The length of the working memory of [`QuantizedMatmul::launch_split`] on a device or stream: 0 where nothing is shared.
    pub fn scratch_len(&self, on: impl LaunchOn) -> usize {
        let ([m, k], [_, n]) = (self.a.shape(), self.b.shape());
        let few = few_rows(on, self.a, self.b.permute([1, 0]));
        split_matmul::scratch_len(on, [1, m, n], k, few, size_of::<A>())
    }

    /// Shares the steps if there is working memory for it.
    fn split<O: Element>(
        &self,
        on: impl LaunchOn,
        of: Option<Arguments<'_, A>>,
        out: ViewMut<'_, O, 2>,
        scratch: SliceMut<'_, A::Sum>,
    ) -> Result<()>
    where
        A: Multiply<O, ACT>,
    {
        let Some(of) = of else { return Ok(()) };
        let wanted = self.scratch_len(on);
        CHECKS.same(("scratch", scratch.len()), ("what it should be", wanted))?;
        if wanted == 0 { A::multiply(on, of, out) } else { A::split(on, of, out, scratch) }
    }

    /// What the kernel takes, if it fits together; nothing if the result has no elements.
    fn arguments<'s>(&self, out: [usize; 2], out_scales: View<'s, f32, 2>) -> Result<Option<Arguments<'s, A>>>
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
        // Places behind the edges, in the last tiles, are counted too.
        let most = i32::MAX as usize - 256;
        if let Some(extent) = [m, n].into_iter().find(|&extent| extent > most) {
            return Err(CHECKS.error(format!("an extent is {extent}, the most is {most}")));
        }
        if k > A::MAX_TERMS {
            let text =
                format!("k is {k}, the most products of {} that can be added are {}", A::DTYPE, A::MAX_TERMS);
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
        Ok(Some(Arguments { a: self.a, b, row_scales, col_scales, bias, out_scales }))
    }
}

/// What the kernel takes, once it is known to fit together.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a, A: Factor> {
    a: View<'a, A, 2>,
    b: View<'a, A, 2>,
    row_scales: View<'a, f32, 2>,
    col_scales: View<'a, f32, 2>,
    bias: View<'a, f32, 2>,
    out_scales: View<'a, f32, 2>,
}

impl<A: Factor> Arguments<'_, A> {
    /// The tile with which all programs are done sooner.
    fn tile<O: Element>(&self, on: impl LaunchOn, out: &ViewMut<'_, O, 2>) -> Tile {
        if let Some(tile) = few_rows(on, self.a, self.b) {
            return tile;
        }
        let [m, n] = out.shape();
        let turns = |tile: Tile| tile.count([1, m, n]).div_ceil(on.processors());
        // Threads that multiply alone, or copy element by element, have no registers for more.
        let by_groups = on.has_clusters()
            && in_vectors(self.a)
            && in_vectors(self.b)
            && split_matmul::in_vectors(out.strides(), size_of::<O>());
        if by_groups && 7 * turns(WIDE) < 5 * turns(LARGE) { WIDE } else { LARGE }
    }
}

/// The tile of few rows for a left factor and the columns of a right one, if both have what is summed over side by side.
fn few_rows<A: Factor>(on: impl LaunchOn, a: View<'_, A, 2>, b: View<'_, A, 2>) -> Option<Tile> {
    let ([m, k], [n, _]) = (a.shape(), b.shape());
    let fits = in_vectors(a) && in_vectors(b) && n.is_multiple_of(8);
    if fits { split_matmul::few_rows(on, [1, m, n], k * size_of::<A>(), &FEW) } else { None }
}

/// Whether rows are read as vectors.
fn in_vectors<A: Factor>(rows: View<'_, A, 2>) -> bool {
    split_matmul::in_vectors(rows.strides(), size_of::<A>())
}

/// Rows cut into slices of their elements, which are the first axis.
fn sliced<A: Factor>(rows: View<'_, A, 2>, slices: usize) -> Result<View<'_, A, 3>> {
    let [count, k] = rows.shape();
    Ok(rows.reshape([count, slices, k / slices])?.permute([1, 0, 2]))
}

/// A number for each of so many, or one that is repeated.
fn each_or_all<'a>(name: &str, scales: Slice<'a, f32>, count: usize) -> Result<View<'a, f32, 2>> {
    match scales.len() {
        1 => scales.view_strided([count, 1], [0, 1]),
        len if len == count => scales.view([count, 1]),
        len => Err(CHECKS.error(format!("{name} has {len} elements, expected {count} or 1"))),
    }
}

/// The factors of a product by their values, and what their products are multiplied by and added to.
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
    /// Whether sums are exact.
    pub integers: bool,
}

/// What the kernel computes, in `f64`, before it is rounded, and the bound that the module's documentation states.
pub fn reference<const ACT: usize>(of: Quantized<'_>, Extents { m, k, n }: Extents) -> Vec<Expected> {
    let unit = unit_roundoff(DType::F32);
    let scale = |scales: &[f32], i: usize| f64::from(if scales.len() == 1 { scales[0] } else { scales[i] });
    let element = |i: usize| {
        let (row, column) = (i / n, i % n);
        let product = |j: usize| of.a[row * k + j] * of.b[j * n + column];
        let (sum, error) = summed(k, product, of.integers);
        let factor = scale(of.row_scales, row) * scale(of.col_scales, column);
        let value = sum * factor + of.bias.map_or(0.0, |bias| f64::from(bias[column]));
        let within = error * factor.abs() + 4.0 * unit * ((sum * factor).abs() + value.abs());
        activation::known::<ACT>(Expected { value, within }, DType::F16)
    };
    (0..m * n).map(element).collect()
}

/// The sum of so many products, and how far a sum may be from it.
fn summed(count: usize, product: impl Fn(usize) -> f64, integers: bool) -> (f64, f64) {
    let (mut sum, mut magnitude, mut error) = (0.0, 0.0, 0.0);
    for first in (0..count).step_by(128) {
        let mut partial = 0.0f64;
        for step in (first..count.min(first + 128)).step_by(32) {
            let products = (step..count.min(step + 32)).map(&product);
            let mut largest = partial.abs();
            for product in products {
                partial += product;
                magnitude += product.abs();
                largest = largest.max(product.abs());
            }
            error += 34.0 * 2f64.powi(-13) * largest.max(partial.abs());
        }
        sum += partial;
    }
    let rounded = (count + 2) as f64 * 2.0 * unit_roundoff(DType::F32) * magnitude;
    (sum, if integers { 0.0 } else { error + rounded })
}

/// What [`QuantizedMatmul::requantize`] makes of a result with a scale.
pub fn requantized(result: Expected, scale: f32) -> Expected {
    let exact = result.value / f64::from(scale);
    let moved = result.within / f64::from(scale).abs() + 4.0 * unit_roundoff(DType::F32) * exact.abs();
    Expected { value: exact.clamp(-128.0, 127.0), within: 0.5 + moved }
}

/// The bytes that a product must move.
pub const fn traffic<A, O>(Extents { m, k, n }: Extents) -> usize {
    (m * k + k * n) * size_of::<A>() + m * n * size_of::<O>() + (m + n) * size_of::<f32>()
}
