//! [`crate::matmul`] of `f32` in TF32.
//!
//! `wgmma` takes operands of 32 bits from shared memory only where they are K-major, and operand A from registers in any order. For
//! row-major operands the transpose of the result is computed, from B in registers and A; where A is column-major and B row-major,
//! neither is K-major, and one is copied.

use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::matmul_dispatch::MatmulOperands;
use crate::matmul_heuristic::{Config, Problem};
use crate::matmul_operands::is_column_major;

/// The operand that must be copied because neither is K-major: the smaller one.
pub(crate) fn to_transpose<T: LibraryFloat>(of: &MatmulOperands<'_, T>) -> Option<usize> {
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
