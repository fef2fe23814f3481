//! Products of one row with a matrix (GEMV): what a model computes of a single token.
//!
//! `out = act(alpha * x · W + bias) + residual`, with the norm of `x` before it, and with a gate, `out = act(g) * u` with
//! `[g, u] = norm(x) · W + bias`. The host functions are [`crate::matmul::Matmul`], [`crate::norm_linear::NormLinear`] and
//! [`crate::feed_forward::GatedFeedForward`], which take these kernels of one row on a GPU.
//!
//! **Work.** The time is that of reading `W`, K-major: a program reads a few of its columns, adds products element by element, and
//! reduces them once behind the loop. There is no `mma`, whose tiles would be empty but for one row.
//!
//! **Traffic.** `(k + k * n + n) * size_of::<T>()` bytes; all programs read `x`, which the first-level cache serves.
//!
//! **Rounding.** Products are added in `f32`, in another order than [`crate::matmul`] adds them: its bound holds, `k + 3` roundings of the
//! sum of magnitudes. With a norm, the bound of [`crate::norm_linear`]; with a gate, that of both halves in `f32` and a multiplication.

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

    /// As [`gemv()`], of the normalized row: by its mean square, or with `SUBTRACT_MEAN` by its mean and variance. With `GATED` the first
    /// half of `weight`'s rows, activated, is multiplied with the second one.
    #[fuse_kernel(
        T = [f16, bf16],
        configs = [
            { SUBTRACT_MEAN: false, GATED: false, N: 8, K: 512 },
            { SUBTRACT_MEAN: false, GATED: true, N: 4, K: 512 },
            { SUBTRACT_MEAN: true, GATED: false, N: 8, K: 512 },
            { SUBTRACT_MEAN: true, GATED: true, N: 4, K: 512 },
        ],
        num_warps = 4,
    )]
    pub fn norm_gemv<
        T: Float,
        const SUBTRACT_MEAN: bool,
        const GATED: bool,
        const N: usize,
        const K: usize,
    >(
        x: &View<T, 2>,
        weight: &View<T, 2>,
        weight_sums: &View<f32, 2>,
        bias: &View<f32, 2>,
        out: &mut View<T, 2>,
        act: i32,
        eps: f32,
    ) {
        let (col, k) = (tl::program_id(0) * N, x.shape(1));
        let gated = col + out.shape(1).to::<i32>();
        let count = k.to::<f32>();
        let mut acc = tl::zeros::<f32>([N, K]);
        let mut acc_gated = tl::zeros::<f32>([N, K]);
        let mut squares = tl::zeros::<f32>([1, K]);
        let mut deviations = tl::zeros::<f32>([1, K]);
        // Deviations from the first element: their squares do not cancel as those of elements far from 0 would.
        let origin = if SUBTRACT_MEAN { x.load::<1, 1>(0, 0).to::<f32>() } else { tl::zeros::<f32>([1, 1]) };
        for start in (0..k).step_by(K) {
            let wide = x.load::<1, K>(0, start).to::<f32>();
            acc += weight.load::<N, K>(col, start).to::<f32>() * wide;
            if GATED {
                acc_gated += weight.load::<N, K>(gated, start).to::<f32>() * wide;
            }
            if SUBTRACT_MEAN {
                let is_in_bounds = start.to::<i32>() + tl::arange(0, K) < k.to::<i32>();
                let deviation = tl::select(is_in_bounds.row(), wide - origin, 0.0);
                deviations += deviation;
                squares += deviation * deviation;
            } else {
                squares += wide * wide;
            }
        }
        let shift = tl::sum(deviations, 1) / count;
        let variance = tl::maximum(tl::sum(squares, 1) / count - shift * shift, 0.0);
        let (mean, rstd) = (shift.col() + origin, tl::rsqrt(variance + eps).col());
        let mut dot = tl::sum(acc, 1).row();
        if SUBTRACT_MEAN {
            dot -= mean * weight_sums.load::<1, N>(0, col);
        }
        let mut y = activate::<T>(dot * rstd + bias.load::<1, N>(0, col), act);
        if GATED {
            let mut dot = tl::sum(acc_gated, 1).row();
            if SUBTRACT_MEAN {
                dot -= mean * weight_sums.load::<1, N>(0, gated);
            }
            y *= dot * rstd + bias.load::<1, N>(0, gated);
        }
        out.store(y.to::<T>(), 0, col);
    }
}

pub use kernels::{gemv, norm_gemv};

/// What a matmul's configuration calls [`gemv()`].
pub(crate) const GEMV: Block = Block { tile: Tile { rows: 1, cols: 2 }, k: 1024 };

/// The longest rows of which a program takes more columns in shorter steps, so that it has several steps to pipeline.
const SHORT_ROW: usize = 2048;

/// What [`norm_gemv()`] reads: a row `[1, k]`, K-major weights `[n, k]`, their sums and constants `[1, n]`.
#[derive(Clone, Copy)]
pub(crate) struct NormGemv<'a, T: Float> {
    pub(crate) x: View<'a, T, 2>,
    pub(crate) weight: View<'a, T, 2>,
    pub(crate) weight_sums: View<'a, f32, 2>,
    pub(crate) bias: View<'a, f32, 2>,
    pub(crate) subtract_mean: bool,
    pub(crate) gated: bool,
    pub(crate) act: i32,
    pub(crate) eps: f32,
}

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

        impl NormGemv<'_, $T> {
            /// Launches [`norm_gemv()`] into `[1, n]`, or `[1, n / 2]` with a gate.
            pub(crate) fn launch(self, on: impl LaunchOn, out: ViewMut<'_, $T, 2>) -> Result<()> {
                let NormGemv { x, weight, weight_sums, bias, subtract_mean, gated, act, eps } = self;
                let columns = out.shape()[1];
                // Either reads eight rows of the weights.
                macro_rules! launch {
                    ($mean:literal, $gated:literal, $N:literal) => {
                        norm_gemv::<$T, $mean, $gated, $N, 512>(x, weight, weight_sums, bias, out, act, eps)
                            .grid(columns.div_ceil($N))
                            .launch(on)
                    };
                }
                match (subtract_mean, gated) {
                    (false, false) => launch!(false, false, 8),
                    (false, true) => launch!(false, true, 4),
                    (true, false) => launch!(true, false, 8),
                    (true, true) => launch!(true, true, 4),
                }
            }
        }
    )*};
}

launches!(f16, bf16);
