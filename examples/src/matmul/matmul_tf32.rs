//! [`crate::matmul`] of `f32` in TF32.
//!
//! `wgmma` takes operands of 32 bits from shared memory only where they are K-major, and operand A from registers in any order. For
//! row-major operands the transpose of the result is computed, from B in registers and A; where A is column-major and B row-major,
//! neither is K-major, and one is copied.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::matmul_block::{Block, Tile};
use crate::matmul_dispatch::{MatmulOperands, dispatch_block, launch_split_k};
use crate::matmul_heuristic::{Config, Problem};
use crate::matmul_operands::{copies_of, is_column_major};
use crate::matmul_tiles::{matmul_tf32, matmul_tf32_split_k, reduce_split_k};
use crate::split_matmul::{REDUCE, REDUCE_SMALL_N, SMALL_N};

/// The operand that must be copied because neither is K-major: the smaller one.
fn to_transpose<T: LibraryFloat>(of: &MatmulOperands<'_, T>) -> Option<usize> {
    let elements = |matrices: &View<'_, T, 3>| matrices.shape().iter().product::<usize>();
    let needs_copy = is_column_major(&of.a) && !is_column_major(&of.b);
    needs_copy.then(|| usize::from(elements(&of.b) < elements(&of.a)))
}

/// The configuration on a GPU with `wgmma`.
pub(crate) fn config<T: LibraryFloat>(
    on: impl LaunchOn,
    of: &MatmulOperands<'_, T>,
    out: [usize; 3],
) -> Config {
    let problem = of.problem(out);
    // The largest tiles have no registers for an activation either.
    let problem = Problem { has_residual: problem.has_residual || of.has_activation(), ..problem };
    match to_transpose(of) {
        Some(operand) => {
            let mut aligned = problem.aligned;
            aligned[operand] = false;
            Problem { aligned, ..problem }.fastest(on.parallelism())
        }
        None => problem.fastest(on.parallelism()),
    }
}

/// Launches the matmul.
pub(crate) fn multiply(
    on: impl LaunchOn,
    of: MatmulOperands<'_, f32>,
    config: Config,
    out: ViewMut<'_, f32, 3>,
) -> Result<()> {
    let transposed = to_transpose(&of);
    let given = [of.a, of.b];
    let copies = copies_of(on, given, config.copies, [0, 1].map(|operand| transposed == Some(operand)))?;
    let [a, b] = copies.operands(given)?;
    launch(on, MatmulOperands { a, b, ..of }, config, out)
}

fn launch(
    on: impl LaunchOn,
    of: MatmulOperands<'_, f32>,
    config: Config,
    out: ViewMut<'_, f32, 3>,
) -> Result<()> {
    let (programs, act) = (config.block.tile.count(out.shape()), of.activation as i32);
    if config.split_k > 1 {
        return launch_split_k!(f32, on, of, out, config, act = act, |block, a, b, partials, k_steps| {
            dispatch_block!(block, [64 x 128 x 32, 64 x 64 x 64], |M, N, K| {
                matmul_tf32_split_k::<M, N, K>(a, b, partials, k_steps).grid((programs, config.split_k)).launch(on)
            })
        });
    }
    let MatmulOperands { a, b, bias, residual, alpha, .. } = of;
    let has_epilogue = residual.shape()[1] > 0 || of.has_activation();
    match config.block {
        Block { tile: Tile { rows: 128, cols: 256 }, k: 32 } if !has_epilogue => {
            matmul_tf32::<128, 256, 32, false>(a, b, bias, residual, out, alpha, act)
                .grid(programs)
                .launch(on)
        }
        block => {
            dispatch_block!(block, [128 x 128 x 32, 64 x 128 x 32, 64 x 64 x 64, 64 x 64 x 32], |M, N, K| {
                matmul_tf32::<M, N, K, true>(a, b, bias, residual, out, alpha, act).grid(programs).launch(on)
            })
        }
    }
}
