//! What the launches of every matmul share: its checked operands, and what they ask of the heuristic.

use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::matmul_block::{Block, TileShape};
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
pub(crate) struct MatmulOperands<'a, T: LibraryFloat> {
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
    pub(crate) fn skinny_tile(&self, on: impl LaunchOn, out: [usize; 3]) -> Option<TileShape> {
        let ([_, _, k], bytes) = (self.a.shape(), size_of::<T>());
        let ([a_batch, row, inner], [b_batch, b_inner, col]) = (self.a.strides(), self.b.strides());
        let lines = [[row, inner], [col, b_inner], [a_batch, 1], [b_batch, 1], [out[2], 1]];
        let fits = lines.into_iter().all(|strides| split_matmul::in_vectors(strides, bytes));
        let tile = split_matmul::skinny_tile(on, out, k * bytes, &[SKINNY_N16, SKINNY_N32, SKINNY_M64])
            .filter(|_| fits)?;
        (split_matmul::workspace_len(on, out, k, Some(tile), bytes) == 0).then_some(tile)
    }
}

/// The same result, but that a kernel without a variant for this block is named by it.
pub(crate) fn in_block(
    checks: Checks,
    launched: Result<()>,
    Block { tile: TileShape { rows, cols }, k }: Block,
) -> Result<()> {
    launched.map_err(|error| match error {
        Error::NoVariant { .. } => {
            checks.error(format!("there is no kernel of {rows} x {cols} x {k} for this product"))
        }
        error => error,
    })
}
