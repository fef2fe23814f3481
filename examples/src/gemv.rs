//! Products of one row with a matrix (GEMV): what a model computes of a single token.
//!
//! `out = act(alpha * x · W + bias) + residual`. The host function is [`crate::matmul::Matmul`], which takes this kernel for one row and
//! K-major weights on a GPU. With a norm before it there is a launch for the norm: a kernel of both, and of a gate behind them, was slower
//! (docs/performance.md).
//!
//! **Work.** The time is that of reading `W`, K-major: a program reads a few of its columns, adds products element by element, and
//! reduces them once behind the loop. There is no `mma`, whose tiles would be empty but for one row.
//!
//! **Traffic.** `(k + k * n + n) * size_of::<T>()` bytes; all programs read `x`, which the first-level cache serves.
//!
//! **Rounding.** Products are added in `f32`, in another order than [`crate::matmul`] adds them: its bound holds, `k + 3` roundings of the
//! sum of magnitudes.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::matmul::Tile;
use crate::matmul_heuristic::Block;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    /// The activation of [`crate::activation`] with this index, or none.
    #[fuse_fn]
    fn activate<T: Float>(v: Tile<f32>, act: i32) -> Tile<f32> {
        if act == 1 {
            tl::relu(v)
        } else if act == 2 {
            tl::gelu::<T>(v)
        } else if act == 3 {
            tl::gelu_tanh::<T>(v)
        } else if act == 4 {
            tl::silu::<T>(v)
        } else {
            v
        }
    }

    /// A program computes `N` elements in steps of `K`; `weight` is `[n, k]`. Without a bias or a residual, they have no elements.
    #[fuse_kernel(T = [f16, bf16], configs = [{ N: 8, K: 512 }, { N: 2, K: 1024 }], num_warps = 4)]
    pub fn gemv<T: Float, const N: usize, const K: usize>(
        x: &View<T, 2>,
        weight: &View<T, 2>,
        bias: &View<T, 2>,
        residual: &View<T, 2>,
        out: &mut View<T, 2>,
        alpha: f32,
        act: i32,
    ) {
        let col = tl::program_id(0) * N;
        let mut acc = tl::zeros::<f32>([N, K]);
        for start in (0..x.shape(1)).step_by(K) {
            acc += weight.load::<N, K>(col, start).to::<f32>() * x.load::<1, K>(0, start).to::<f32>();
        }
        let dot = tl::sum(acc, 1).row();
        let v = if bias.shape(1) > 0 {
            tl::fma(dot, alpha, bias.load::<1, N>(0, col).to::<f32>())
        } else {
            dot * alpha
        };
        let y = activate::<T>(v, act);
        let y = if residual.shape(1) > 0 { y + residual.load::<1, N>(0, col).to::<f32>() } else { y };
        out.store(y.to::<T>(), 0, col);
    }
}

pub use kernels::gemv;

/// What a matmul's configuration calls [`gemv()`].
pub(crate) const GEMV: Block = Block { tile: Tile { rows: 1, cols: 2 }, k: 1024 };

/// The longest rows of which a program takes more columns in shorter steps, so that it has several steps to pipeline.
const SHORT_ROW: usize = 2048;

/// What [`gemv()`] reads: a row `[1, k]`, K-major weights `[n, k]`, a bias and a residual `[1, n]`, or without elements.
#[derive(Clone, Copy)]
pub(crate) struct Gemv<'a, T: Float> {
    pub(crate) x: View<'a, T, 2>,
    pub(crate) weight: View<'a, T, 2>,
    pub(crate) bias: View<'a, T, 2>,
    pub(crate) residual: View<'a, T, 2>,
    pub(crate) alpha: f32,
    pub(crate) act: i32,
}

macro_rules! launches {
    ($($T:ty),*) => {$(
        impl Gemv<'_, $T> {
            /// Launches [`gemv()`] into `[1, n]`.
            pub(crate) fn launch(self, on: impl LaunchOn, out: ViewMut<'_, $T, 2>) -> Result<()> {
                let Gemv { x, weight, bias, residual, alpha, act } = self;
                let [n, k] = weight.shape();
                if k <= SHORT_ROW {
                    gemv::<$T, 8, 512>(x, weight, bias, residual, out, alpha, act).grid(n.div_ceil(8)).launch(on)
                } else {
                    gemv::<$T, 2, 1024>(x, weight, bias, residual, out, alpha, act).grid(n.div_ceil(2)).launch(on)
                }
            }
        }
    )*};
}

launches!(f16, bf16);
