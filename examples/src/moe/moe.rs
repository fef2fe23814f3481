//! A mixture of experts in 8 bits: `out[t] = sum over j of w[t, j] * expert_e(x[t])`, `e = experts[t, j]`, of the `top_k`
//! experts that [`crate::gating`] chose for token `t`, where `expert_e(x) = (silu(x · Gate_e) * (x · Up_e)) · Down_e`. Weights
//! are `i8` with a scale for each output channel; rows of `x` and of the intermediate result are quantized on the way.
//!
//! **Shapes.** `x` and `out` have a row of `k` elements for each token, [`Experts`] has `[experts, 2 f, k]`, gates before the
//! up projections, and `[experts, k, f]`, and [`Routing`] has `top_k` experts and weights for each token. `k` is the hidden
//! size, `f` the intermediate size. No extent need be a multiple of anything; rows of multiples of 16 are read in vectors.
//!
//! **Forms.** [`Moe::launch`] takes floats and quantizes their rows. [`Moe::launch_quantized`] takes `i8` with a scale for each
//! row, as [`crate::quantize`] makes it, and [`Moe::requantize`] gives `i8` back, divided by a scale for each token:
//! dequantize, experts and quantize in one call.
//!
//! **Kernels.** Five, four of rows that are quantized, and none waits for the host:
//! 1. Rows of `x` become `i8` with a scale each.
//! 2. Choices, a token and an expert each, are grouped by expert, each group padded to whole tiles of 64 rows, or of 16 where
//!    experts have 16 tokens or fewer on average.
//! 3. A grouped matmul gathers its rows by that list, multiplies by gate and up, dequantizes, activates and requantizes.
//! 4. Another one gathers, multiplies, dequantizes and applies `w`.
//! 5. The choices of a token are added.
//!
//! An element of the result needs all intermediate columns of its row, which several programs compute, so the matmuls are two
//! kernels. A choice's position in the list follows from its index, and sums have one order: results are the same run after run.
//! The number of tiles is known on the device alone, so grids have room for the most there can be, and programs without a tile
//! end at once.
//!
//! **Scales of the intermediate result.** One for each row and 128 columns. A scale of the whole row would need the largest
//! element of all of its columns, the work of different programs: the rows would be written and read once more, in 16 bits and
//! with one more launch. A block of 128 columns is one program's, and one iteration of the second matmul, which multiplies the
//! exact sum of the block by its scale and adds in `f32`. Steps of smaller blocks are finer, too.
//!
//! **Traffic.** In bytes, with `c = tokens * top_k` choices and `e` experts chosen: `3 * e * f * k` bytes of weights, `2 * c * f` of
//! intermediate rows, `8 * c * k` of weighted rows in `f32`, and rows of `x` and `out`. [`Moe::cost`] counts launches and bytes
//! besides those of one kernel for each operation. Temporary memory is for the intermediate and the weighted rows.
//!
//! **Rounding.** Sums of products of `i8` are exact, of 131071 terms at most in the first product and of 128 in the second.
//! Quantization moves an element of `x` by half a step of its row, and one of the intermediate result by half a step of its
//! block: by at most `1 / 254` of the largest element. With `dx` the error of `x`, gate and up are within `|W| dx`, their gated
//! product within `1.13 * |W| dx` of one times the size of the other, and the result within the second weights' magnitudes
//! times that and the half step of the intermediate result ([`crate::moe_reference`] has the bound of each element). Arithmetic
//! in `f32` adds `(f / 128 + top_k + 8) * 2^-23` of the sum of magnitudes, and the result is rounded once; to `i8` within half
//! a step and `4 * 2^-24` of what is rounded, and the range saturates. Where the largest element of a block is below `1e-30`, its elements
//! count as 0.
//!
//! **Special cases.** An expert without tokens takes a program that ends; a choice whose expert is none of `0..experts` adds
//! nothing; a row of zeros gives zeros. A row of `x` with a NaN or an infinity makes results of its token meaningless,
//! and no other's.
//!
//! **Source.** Shazeer and others, 2017, arXiv:1701.06538; Dettmers and others, *LLM.int8()*, 2022, arXiv:2208.07339, section
//! 2; grouped matmuls over lists of rows as in vLLM's fused mixture of experts.

use dsl_runtime::prelude::*;
use dsl_runtime::{Result, Temporary, trace_choice};

use crate::float::LibraryFloat;
use crate::form::Cost;
use crate::moe_kernels::{
    BLOCK, LARGE_TILE_ROWS, MAX_EXPERTS, SMALL_TILE_ROWS, combine_choices, experts_down, experts_gate_up,
    group_by_expert,
};
use crate::quantize::Quantize;
use crate::quantized_matmul::MAX_K_I8;
use crate::shape::Checks;

const CHECKS: Checks = Checks("moe");
/// Elements of an iteration of the kernels that go along rows or choices, and of a program of the last sum.
const STEP: usize = 1024;

/// The weights of all experts, in `i8`, and a scale for each output channel.
#[derive(Clone, Copy)]
pub struct Experts<'a> {
    /// `[experts, 2 f, k]`: `f` channels of the gate, which are activated, and `f` of the up projection.
    pub gate_up: View<'a, i8, 3>,
    /// `[experts, 2 f]`
    pub gate_up_scales: View<'a, f32, 2>,
    /// `[experts, k, f]`
    pub down: View<'a, i8, 3>,
    /// `[experts, k]`
    pub down_scales: View<'a, f32, 2>,
}

/// The experts of each token and their weights, as [`crate::gating::TopkGating`] gives them.
#[derive(Clone, Copy)]
pub struct Routing<'a> {
    /// `top_k` for each token.
    pub experts: Slice<'a, i32>,
    /// As many.
    pub weights: Slice<'a, f32>,
    /// Experts of a token.
    pub top_k: usize,
}

/// Rows in `i8` with a scale each, as [`Quantize::to_i8`] gives them.
#[derive(Clone, Copy)]
pub struct QuantizedRows<'a> {
    /// `k` elements for each token.
    pub rows: Slice<'a, i8>,
    /// One for each token.
    pub scales: Slice<'a, f32>,
}

/// Extents that fit together.
#[derive(Clone, Copy)]
struct Sizes {
    experts: usize,
    tokens: usize,
    choices: usize,
    f: usize,
    k: usize,
}

impl Sizes {
    /// Rows of a tile.
    fn rows(self) -> usize {
        if self.choices <= SMALL_TILE_ROWS * self.experts { SMALL_TILE_ROWS } else { LARGE_TILE_ROWS }
    }

    /// The most tiles of so many rows that experts can fill.
    fn tiles(self, rows: usize) -> usize {
        (self.choices + (rows - 1) * self.experts.min(self.choices)) / rows
    }

    /// Scales of an intermediate row.
    fn blocks(self) -> usize {
        self.f.div_ceil(BLOCK)
    }

    /// Programs of the last sum.
    fn combining_programs(self) -> (usize, usize) {
        (self.tokens, self.k.div_ceil(STEP))
    }
}

/// Tokens through their experts: `Moe::new(experts, routing)`.
#[derive(Clone, Copy)]
pub struct Moe<'a> {
    experts: Experts<'a>,
    routing: Routing<'a>,
}

impl<'a> Moe<'a> {
    /// These experts, and which of them each token goes to.
    pub fn new(experts: Experts<'a>, routing: Routing<'a>) -> Self {
        Moe { experts, routing }
    }

    /// Computes `out` of rows `x`, both `k` elements for each token, on a device or stream.
    ///
    /// # Errors
    /// If shapes or lengths do not fit each other; if there are no experts or more than [`MAX_EXPERTS`]; if `k` is
    /// more than an `i32` adds products of, or for 16-bit types more than [`crate::quantize::MAX_COLS`]; if there is too little
    /// temporary memory; those of a launch.
    pub fn launch<'x, 'o, T: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'x, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into());
        let sizes = self.sizes(x.len(), out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let (mut rows, mut scales) = (on.temporary::<i8>(x.len())?, on.temporary::<f32>(sizes.tokens)?);
        Quantize::new(x, sizes.k).to_i8(on, rows.slice_mut(), scales.slice_mut())?;
        self.launch_quantized(on, QuantizedRows { rows: rows.slice(), scales: scales.slice() }, out)
    }

    /// The same of rows that are quantized already.
    ///
    /// # Errors
    /// Those of [`Moe::launch`].
    pub fn launch_quantized<'o, T: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        x: QuantizedRows<'_>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let out = out.into();
        let Some((sizes, weighted_rows)) = self.weighted_rows(on, x, out.len())? else { return Ok(()) };
        let (rows, experts, nothing) = (weighted_rows.slice(), self.routing.experts, x.scales.slice(..0));
        let [n_experts, top_k, n_cols] = [sizes.experts, self.routing.top_k, sizes.k].map(|n| n as i32);
        combine_choices::<T, STEP>(rows, experts, nothing, out, n_experts, top_k, n_cols)
            .grid(sizes.combining_programs())
            .launch(on)
    }

    /// The same with a result in `i8`, divided by a scale for each token.
    ///
    /// # Errors
    /// Those of [`Moe::launch`].
    pub fn requantize<'o, 's>(
        &self,
        on: impl LaunchOn,
        x: QuantizedRows<'_>,
        out: impl Into<SliceMut<'o, i8>>,
        scales: impl Into<Slice<'s, f32>>,
    ) -> Result<()> {
        let (out, scales) = (out.into(), scales.into());
        CHECKS.same(("the scales of x", x.scales.len()), ("those of out", scales.len()))?;
        let Some((sizes, weighted_rows)) = self.weighted_rows(on, x, out.len())? else { return Ok(()) };
        let (rows, experts) = (weighted_rows.slice(), self.routing.experts);
        let [n_experts, top_k, n_cols] = [sizes.experts, self.routing.top_k, sizes.k].map(|n| n as i32);
        combine_choices::<i8, STEP>(rows, experts, scales, out, n_experts, top_k, n_cols)
            .grid(sizes.combining_programs())
            .launch(on)
    }

    /// Computes the weighted row of each choice into temporary memory; nothing if the result has no elements.
    fn weighted_rows(
        &self,
        on: impl LaunchOn,
        x: QuantizedRows<'_>,
        out: usize,
    ) -> Result<Option<(Sizes, Temporary<f32>)>> {
        let sizes = self.sizes(x.rows.len(), out)?;
        CHECKS.extents("the scales of x", [x.scales.len()], [sizes.tokens])?;
        if out == 0 {
            return Ok(None);
        }
        let mut weighted_rows = on.temporary::<f32>(sizes.choices * sizes.k)?;
        self.launch_experts(on, sizes, x, weighted_rows.slice_mut())?;
        Ok(Some((sizes, weighted_rows)))
    }

    /// Computes the weighted row of each choice.
    fn launch_experts(
        &self,
        on: impl LaunchOn,
        sizes: Sizes,
        x: QuantizedRows<'_>,
        weighted_rows: SliceMut<'_, f32>,
    ) -> Result<()> {
        let (Experts { gate_up, gate_up_scales, down, down_scales }, routing) = (self.experts, self.routing);
        let Sizes { experts, choices, f, k, .. } = sizes;
        let (rows, blocks) = (sizes.rows(), sizes.blocks());
        let tiles = sizes.tiles(rows);
        let (n_choices, n_experts, top_k) = (choices as i32, experts as i32, routing.top_k as i32);
        trace_choice("moe", format_args!("tiles of {rows} rows: {choices} choices of {experts} experts"));
        let mut sorted = on.temporary::<i32>(tiles * rows)?;
        let (mut tile_experts, mut n_tiles) = (on.temporary::<i32>(tiles)?, on.temporary::<i32>(1)?);
        let mut intermediate = on.temporary::<i8>(choices * f)?;
        let mut scales = on.temporary::<f32>(choices * blocks)?;
        let is_small = rows == SMALL_TILE_ROWS;
        let group = if is_small {
            group_by_expert::<SMALL_TILE_ROWS, MAX_EXPERTS, STEP>
        } else {
            group_by_expert::<LARGE_TILE_ROWS, MAX_EXPERTS, STEP>
        };
        let [to_sorted, to_experts, to_count] =
            [&mut sorted, &mut tile_experts, &mut n_tiles].map(|memory| memory.slice_mut());
        group(routing.experts, to_sorted, to_experts, to_count, n_choices, n_experts)
            .grid(experts)
            .launch(on)?;
        let [sorted, tile_experts, n_tiles] = [&sorted, &tile_experts, &n_tiles].map(|memory| memory.slice());
        if f > 0 {
            let multiply = if is_small {
                experts_gate_up::<SMALL_TILE_ROWS, BLOCK, BLOCK>
            } else {
                experts_gate_up::<LARGE_TILE_ROWS, BLOCK, BLOCK>
            };
            multiply(
                x.rows,
                x.scales,
                gate_up.reshape([experts, 2, f, k])?,
                gate_up_scales.reshape([experts, 2, f])?,
                sorted,
                tile_experts,
                n_tiles,
                intermediate.slice_mut(),
                scales.slice_mut(),
                n_choices,
                top_k,
            )
            .grid(tiles * blocks)
            .launch(on)?;
        }
        let multiply = if is_small {
            experts_down::<SMALL_TILE_ROWS, BLOCK, BLOCK>
        } else {
            experts_down::<LARGE_TILE_ROWS, BLOCK, BLOCK>
        };
        multiply(
            intermediate.slice(),
            scales.slice(),
            down,
            down_scales,
            routing.weights,
            sorted,
            tile_experts,
            n_tiles,
            weighted_rows,
            n_choices,
        )
        .grid(tiles * k.div_ceil(BLOCK))
        .launch(on)
    }

    /// The extents, if all fits together.
    fn sizes(&self, x: usize, out: usize) -> Result<Sizes> {
        let (Experts { gate_up, gate_up_scales, down, down_scales }, routing) = (self.experts, self.routing);
        let ([experts, both, k], f) = (gate_up.shape(), gate_up.shape()[1] / 2);
        if !(1..=MAX_EXPERTS).contains(&experts) {
            let reason = format!("there are {experts} experts, from 1 to {MAX_EXPERTS} will do");
            return Err(CHECKS.error(reason));
        }
        CHECKS.extents("gate_up", gate_up.shape(), [experts, 2 * f, k])?;
        CHECKS.extents("gate_up_scales", gate_up_scales.shape(), [experts, both])?;
        CHECKS.extents("down", down.shape(), [experts, k, f])?;
        CHECKS.extents("down_scales", down_scales.shape(), [experts, k])?;
        if k > MAX_K_I8 {
            let reason = format!("k is {k}, the most products of i8 that can be added are {MAX_K_I8}");
            return Err(CHECKS.error(reason));
        }
        let choices = routing.experts.len();
        CHECKS.same(("routing.experts", choices), ("routing.weights", routing.weights.len()))?;
        let tokens = CHECKS.rows(("routing.experts", choices), routing.top_k)?;
        CHECKS.extents("x", [x], [tokens * k])?;
        CHECKS.extents("out", [out], [tokens * k])?;
        let (padded, most) = (choices + LARGE_TILE_ROWS * experts, i32::MAX as usize - STEP);
        if let Some(extent) = [padded, both].into_iter().find(|&extent| extent > most) {
            return Err(CHECKS.error(format!("an extent is {extent}, the most is {most}")));
        }
        Ok(Sizes { experts, tokens, choices, f, k })
    }

    /// Launches and bytes for rows of `T`: of [`Moe::launch`], and operation by operation with 16 bits in between, where rows
    /// are gathered, rows and weights dequantized, multiplied, gated, quantized, dequantized with the second weights,
    /// multiplied, weighted and added. As many experts are counted as choices can reach.
    pub fn cost<T>(&self) -> [Cost; 2] {
        let ([experts, both, k], size) = (self.experts.gate_up.shape(), size_of::<T>());
        let (c, f) = (self.routing.experts.len(), both / 2);
        let tokens = c / self.routing.top_k.max(1);
        let (e, scales) = (experts.min(c), f.div_ceil(BLOCK));
        let (list, scaled) = (4 * c, c * (f + 4 * scales));
        let quantize = Cost::of(1, crate::quantize::traffic::<T>(tokens, k));
        let group = Cost::of(1, 2 * list);
        let gate_up = Cost::of(1, tokens * (k + 4) + list + e * both * (k + 4) + scaled);
        let down = Cost::of(1, scaled + list + e * k * (f + 4) + list + 4 * c * k);
        let combine = Cost::of(1, 4 * c * k + list + tokens * k * size);
        let ours = quantize + group + gate_up + down + combine;

        let dequantize = |rows: usize, cols: usize| Cost::of(1, rows * (3 * cols + 4));
        let matmul = |terms: usize, cols: usize| Cost::of(2, c * terms + e * terms * cols + c * cols);
        let gather = Cost::of(1, tokens * (k + 4) + list + c * (k + 4));
        let first = gather + dequantize(c, k) + dequantize(e * both, k) + matmul(k, both);
        let gate_and_quantize = Cost::of(2, 3 * c * f) + Cost::of(1, c * (3 * f + 4));
        let second = dequantize(c, f) + dequantize(e * k, f) + matmul(f, k);
        let weigh_and_add = Cost::of(1, c * (4 * k + 4)) + Cost::of(1, 2 * c * k + tokens * k * size);
        [ours, quantize + group + first + gate_and_quantize + second + weigh_and_add]
    }
}
