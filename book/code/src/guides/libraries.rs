//! Functions, structs and constants that kernels of other modules and crates use.

use dsl_runtime::prelude::*;

// ANCHOR: library
#[fuse_module]
pub mod norms {
    use dsl_runtime::prelude::*;

    /// The elements of a row that a program reads at once.
    pub const PIECE: usize = 256;

    /// The sum of each lane's squares.
    #[fuse_struct]
    pub struct Squares {
        pub sums: Tile<f32>,
    }

    impl Squares {
        pub fn new<const LANES: usize>() -> Self {
            Squares { sums: tl::zeros::<f32>([LANES]) }
        }

        pub fn add(&mut self, x: Tile<f32>) {
            self.sums += x * x;
        }

        /// The reciprocal of the root of their mean over `n` elements.
        pub fn reciprocal_root(&self, n: i32, eps: f32) -> Tile<f32> {
            tl::rsqrt(tl::sum(self.sums, 0) / n as f32 + eps)
        }
    }

    /// Normalizes a program's row of `n` elements; `then` makes what is stored of the elements and their columns.
    #[fuse_fn]
    pub fn normalize_row<T: Float>(
        x: &[T],
        out: &mut [T],
        n: i32,
        eps: f32,
        then: impl Fn(Tile<f32>, Tile<i32>) -> Tile<f32>,
    ) {
        let row = tl::program_id(0) * n;
        let mut squares = Squares::new::<PIECE>();
        for first in (0..n).step_by(PIECE) {
            let cols = first + tl::arange(0, PIECE);
            squares.add(tl::load(x + row + cols, cols < n).to::<f32>());
        }
        let scale = squares.reciprocal_root(n, eps);
        for first in (0..n).step_by(PIECE) {
            let cols = first + tl::arange(0, PIECE);
            let y = tl::load(x + row + cols, cols < n).to::<f32>() * scale;
            tl::store(out + row + cols, then(y, cols).to::<T>(), cols < n);
        }
    }
}
// ANCHOR_END: library

// ANCHOR: kernels
#[fuse_module]
mod kernels {
    use super::norms::normalize_row;
    use dsl_runtime::prelude::*;

    /// RMSNorm with a weight for each column.
    #[fuse_kernel(T = [f32, f16])]
    pub fn rms_norm<T: Float>(x: &[T], gamma: &[T], out: &mut [T], n: i32, eps: f32) {
        normalize_row(x, out, n, eps, |y, cols| y * tl::load(gamma + cols, cols < n).to::<f32>());
    }

    /// RMSNorm and SiLU.
    #[fuse_kernel(T = [f32, f16])]
    pub fn rms_norm_silu<T: Float>(x: &[T], out: &mut [T], n: i32, eps: f32) {
        normalize_row(x, out, n, eps, |y, _| tl::silu(y));
    }
}
// ANCHOR_END: kernels

pub use kernels::{rms_norm, rms_norm_silu};

// ANCHOR: enum
#[fuse_module]
mod reductions {
    use dsl_runtime::prelude::*;

    /// What becomes of a row.
    #[derive(Clone, Copy)]
    pub enum Reduction {
        Sum,
        Maximum,
    }

    /// A number for each row of `x`, which is `[rows, n]`.
    #[fuse_kernel(BLOCK = n in [128, 1024])]
    pub fn reduced_rows<const BLOCK: usize>(x: &[f32], out: &mut [f32], reduction: Reduction, n: i32) {
        let (row, cols) = (tl::program_id(0), tl::arange(0, BLOCK));
        let neutral = match reduction {
            Reduction::Sum => 0.0,
            Reduction::Maximum => f32::NEG_INFINITY,
        };
        let x = tl::load(x + row * n + cols, cols < n, neutral);
        let reduced = match reduction {
            Reduction::Sum => tl::sum(x, 0),
            Reduction::Maximum => tl::max(x, 0),
        };
        tl::store(out + row, reduced);
    }
}
// ANCHOR_END: enum

pub use reductions::{Reduction, reduced_rows};

// ANCHOR: body
/// The sum of squares of a piece of a row.
#[fuse_kernel]
pub fn sum_of_squares(x: &[f32], out: &mut [f32]) {
    use norms::{PIECE, Squares};

    let mut squares = Squares::new::<PIECE>();
    squares.add(tl::load(x + tl::arange(0, PIECE)));
    tl::store(out, tl::sum(squares.sums, 0));
}
// ANCHOR_END: body
