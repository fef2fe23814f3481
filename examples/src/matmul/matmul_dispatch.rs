//! What the launches of every matmul share: its checked operands, the choice of a block's kernel, and split-K with its reduction.

use dsl_runtime::Error;
use dsl_runtime::prelude::*;

use crate::activation::Activation;
use crate::float::{LibraryFloat, SingleFloat};
use crate::matmul_block::{Block, Tile};
use crate::matmul_heuristic::Problem;
use crate::matmul_operands::{is_aligned, is_column_major, is_within_sectors};
use crate::shape::Checks;
use crate::split_matmul::{self, SKINNY_M64, SKINNY_N16, SKINNY_N32};

pub(crate) const CHECKS: Checks = Checks("matmul");

/// The activations that epilogues have.
pub(crate) const EPILOGUE: [Activation; 4] =
    [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu];

/// The problem of the heuristic: of operand A whether its lines are aligned and whether they begin within sectors, operand B, and
/// whether there is a residual.
pub(crate) fn problem<T: LibraryFloat>(
    out: [usize; 3],
    [is_a_aligned, is_a_within]: [bool; 2],
    b: &View<'_, T, 3>,
    has_residual: bool,
) -> Problem {
    let ([b_batches, k, _], bytes) = (b.shape(), size_of::<T>());
    Problem {
        out,
        k,
        b_batches,
        bytes,
        aligned: [is_a_aligned, is_aligned(b)],
        within_sectors: [is_a_within, is_within_sectors(b)],
        b_is_k_major: is_column_major(b),
        has_residual,
        unaligned_out: !(out[2] * bytes).is_multiple_of(16),
    }
}

/// The checked operands of a matmul and its epilogue.
#[derive(Clone, Copy)]
pub struct MatmulOperands<'a, T: LibraryFloat> {
    pub(crate) a: View<'a, T, 3>,
    pub(crate) b: View<'a, T, 3>,
    pub(crate) bias: View<'a, T, 2>,
    pub(crate) residual: View<'a, T, 3>,
    pub(crate) alpha: f32,
    pub(crate) activation: Activation,
    pub(crate) tf32: bool,
}

impl<T: LibraryFloat> MatmulOperands<'_, T> {
    /// The problem of the heuristic.
    pub(crate) fn problem(&self, out: [usize; 3]) -> Problem {
        problem(out, [is_aligned(&self.a), is_within_sectors(&self.a)], &self.b, self.residual.shape()[1] > 0)
    }

    /// Whether there is an activation but the identity.
    pub(crate) fn has_activation(&self) -> bool {
        self.activation != Activation::Identity
    }

    /// Whether it is a single row on a GPU with K-major weights that are read in vectors.
    pub(crate) fn is_gemv(&self, on: impl LaunchOn, out: [usize; 3]) -> bool {
        let ([_, _, a_inner], [_, b_inner, col]) = (self.a.strides(), self.b.strides());
        let is_row = out[0] == 1 && out[1] == 1 && self.b.shape()[0] == 1 && a_inner == 1;
        is_row && on.shared_bytes().is_some() && split_matmul::in_vectors([col, b_inner], size_of::<T>())
    }

    /// The tile of a skinny matmul, if both operands are K-major, and if it is faster than split-K.
    pub(crate) fn skinny_tile(&self, on: impl LaunchOn, out: [usize; 3]) -> Option<Tile> {
        let ([_, _, k], bytes) = (self.a.shape(), size_of::<T>());
        let ([a_batch, row, inner], [b_batch, b_inner, col]) = (self.a.strides(), self.b.strides());
        let lines = [[row, inner], [col, b_inner], [a_batch, 1], [b_batch, 1], [out[2], 1]];
        let fits = lines.into_iter().all(|strides| split_matmul::in_vectors(strides, bytes));
        let tile = split_matmul::skinny_tile(on, out, k * bytes, &[SKINNY_N16, SKINNY_N32, SKINNY_M64])
            .filter(|_| fits)?;
        (split_matmul::workspace_len(on, out, k, Some(tile), bytes) == 0).then_some(tile)
    }
}

impl<'a, T: SingleFloat> MatmulOperands<'a, T> {
    /// The operands where `T` is known to be `f32`.
    pub(crate) fn of_f32(self) -> MatmulOperands<'a, f32> {
        let MatmulOperands { a, b, bias, residual, alpha, activation, tf32 } = self;
        let [a, b, residual] = [a, b, residual].map(T::view);
        MatmulOperands { a, b, bias: T::view(bias), residual, alpha, activation, tf32 }
    }
}

/// Dispatches a block to the launch with its constants, among those that are listed.
macro_rules! dispatch_block {
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
            _ => Err($crate::matmul_dispatch::no_block($block)),
        }
    };
}

pub(crate) use dispatch_block;

pub(crate) fn no_block(Block { tile: Tile { rows, cols }, k }: Block) -> Error {
    CHECKS.error(format!("there is no kernel of {rows} x {cols} x {k} for this product"))
}

/// Split-K with its reduction, with blocks that are listed, or with this kernel.
macro_rules! launch_split_k {
    ($T:ty, $on:ident, $of:ident, $out:ident, $config:ident, $blocks:tt, $act:expr) => {
        $crate::matmul_dispatch::launch_split_k!(
            $T,
            $on,
            $of,
            $out,
            $config,
            act = $act,
            |block, a, b, out, steps| {
                dispatch_block!(block, $blocks, |M, N, K| matmul_split_k::<$T, M, N, K>(a, b, out, steps)
                    .grid((block.tile.count($out.shape()), $config.split_k))
                    .launch($on))
            }
        )
    };
    ($T:ty, $on:ident, $of:ident, $out:ident, $config:ident, act = $act:expr,
     |$block:ident, $a:ident, $b:ident, $partials:ident, $k_steps:ident| $launch:expr) => {{
        let MatmulOperands { a: $a, b: $b, bias, residual, alpha, .. } = $of;
        let ([batches, m, n], Config { block: $block, split_k, .. }) = ($out.shape(), $config);
        let $k_steps = $a.shape()[2].div_ceil(split_k).div_ceil($block.k) as i32;
        let shape = [split_k, batches, m, n];
        let mut workspace = $on.temporary::<f32>(shape.iter().product())?;
        let $partials = ViewMut::new(workspace.slice_mut(), shape)?;
        $launch?;
        let (partials, act) = (workspace.slice().view(shape)?, $act);
        if n <= SMALL_N {
            let programs = REDUCE_SMALL_N.count($out.shape());
            reduce_split_k::<$T, { REDUCE_SMALL_N.rows }, { REDUCE_SMALL_N.cols }>(
                partials, bias, residual, $out, alpha, act,
            )
            .grid(programs)
            .launch($on)
        } else if batches * m * n <= REDUCE.rows * REDUCE.cols * $on.parallelism() {
            // More programs where rows are few.
            let programs = Tile { rows: 1, ..REDUCE }.count($out.shape());
            reduce_split_k::<$T, 1, { REDUCE.cols }>(partials, bias, residual, $out, alpha, act)
                .grid(programs)
                .launch($on)
        } else {
            let programs = REDUCE.count($out.shape());
            reduce_split_k::<$T, { REDUCE.rows }, { REDUCE.cols }>(partials, bias, residual, $out, alpha, act)
                .grid(programs)
                .launch($on)
        }
    }};
}
pub(crate) use launch_split_k;
