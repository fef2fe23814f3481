//! `out = act(x + bias)` for each row of a matrix, `bias` one for each column: the epilogue of a linear layer, for
//! each activation of [`crate::activation`].
//!
//! **Traffic.** Reads `x` and writes `out` once: `2 * rows * cols * size_of::<T>()` bytes; `bias` is read from memory once
//! and then found in the cache.
//!
//! **Rounding.** As [`crate::add_activation`]: in `f32`, rounded to `T` once.
//!
//! **Source.** Transformer blocks: Vaswani and others, 2017, arXiv:1706.03762, equation 2.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, along_rows, tile_width};

/// The elements that one program handles: of one row, or of several short ones.
const TILE: usize = 4096;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate};
    use crate::float::LibraryFloat;

    /// A program handles a tile of `COLS` columns and `4096 / COLS` rows; the grid's first axis counts tiles across, its second
    /// and third those down.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = n_cols.min(4096) in [128, 1024, 4096])]
    pub fn bias_activation<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        bias: &[T],
        out: &mut [T],
        activation: Activation,
        n_rows: i32,
        n_cols: i32,
    ) {
        let down = tl::program_id(2) * tl::num_programs(1) + tl::program_id(1);
        let rows = down * (4096 / COLS) + tl::arange(0, 4096 / COLS);
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let mask = (rows < n_rows).col() & (cols < n_cols).row();
        let offsets = (rows * n_cols).col() + cols.row();
        let x = tl::load(x + offsets, mask).to::<f32>();
        let bias = tl::load(bias + cols, cols < n_cols).to::<f32>();
        let v = x + bias.row();
        let y = activate::<T>(v, activation);
        tl::store(out + offsets, y.to::<T>(), mask);
    }
}

pub use kernels::bias_activation;

/// The activation of a matrix and a bias for each column: `BiasActivation::new(&x, &bias, Activation::Gelu)`.
#[derive(Clone, Copy)]
pub struct BiasActivation<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    bias: Slice<'a, T>,
    activation: Activation,
}

impl<'a, T: LibraryFloat> BiasActivation<'a, T> {
    /// The rows of `x`, each as long as `bias`.
    pub fn new(x: impl Into<Slice<'a, T>>, bias: impl Into<Slice<'a, T>>, activation: Activation) -> Self {
        BiasActivation { x: x.into(), bias: bias.into(), activation }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, cols) = (out.into(), Checks("bias_activation"), self.bias.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        let rows = checks.rows(("x", self.x.len()), cols)?;
        if rows == 0 {
            return Ok(());
        }
        let programs = programs(rows, cols);
        let (x, bias, n_rows, n_cols) = (self.x, self.bias, rows as i32, cols as i32);
        bias_activation::<T>(x, bias, out, self.activation, n_rows, n_cols).grid(programs).launch(on)
    }
}

/// The tiles that cover the matrix.
fn programs(rows: usize, cols: usize) -> (usize, usize, usize) {
    let across = tile_width([128, 1024, TILE], cols);
    along_rows(cols.div_ceil(across), rows.div_ceil(TILE / across))
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], bias: &[T], activation: Activation) -> Vec<Expected> {
    let exact = |(x, bias): (&T, &T)| {
        let value = x.to_f64() + bias.to_f64();
        activation
            .propagated_rounded(Expected { value, within: unit_roundoff(DType::F32) * value.abs() }, T::DTYPE)
    };
    x.iter().zip(bias.iter().cycle()).map(exact).collect()
}

/// The bytes that a matrix of `rows` rows of `cols` elements must move.
pub const fn traffic<T>(rows: usize, cols: usize) -> usize {
    (2 * rows + 1) * cols * size_of::<T>()
}
