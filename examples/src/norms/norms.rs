//! Norms of rows, and their means and variances, in one tile or in pieces: functions for kernels of any crate.
//!
//! Of a row in pieces, each lane of a tile keeps the mean of its own elements and the sum of their squared deviations from it, so that no digits cancel, as they
//! do in the difference of a sum of squares and the square of a sum.
//!
//! **Source.** Ba, Kiros, Hinton, *Layer Normalization*, 2016, arXiv:1607.06450; Zhang, Sennrich, *Root Mean Square Layer Normalization*, 2019,
//! arXiv:1910.07467; Welford, *Note on a method for calculating corrected sums of squares and products*, 1962; the lanes are combined as in Chan,
//! Golub, LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*, 1979.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    /// The sum of a row, `[N]`, where `AXIS` is 0; those of the rows of a matrix, `[M, N]`, as a column, `[M, 1]`, where it is 1.
    #[fuse_fn]
    pub fn row_sums<const AXIS: usize>(x: Tile<f32>) -> Tile<f32> {
        if AXIS == 0 { tl::sum(x, 0) } else { tl::sum(x, 1).col() }
    }

    /// `x` without the mean of each row, 0 where `mask` is false; the means, and the variances. A row has `n_cols` elements, and zeros past
    /// its end, where `mask` is false. `AXIS` is that of [`row_sums`].
    #[fuse_fn]
    pub fn center<const AXIS: usize>(
        x: Tile<f32>,
        mask: Tile<bool>,
        n_cols: i32,
    ) -> (Tile<f32>, Tile<f32>, Tile<f32>) {
        let mean = row_sums::<AXIS>(x) / n_cols as f32;
        let centered = tl::select(mask, x - mean, 0.0);
        (centered, mean, row_sums::<AXIS>(centered * centered) / n_cols as f32)
    }

    /// LayerNorm of each row of `x` where there is a `beta`, else RMSNorm: of one row, `[N]`, where `AXIS` is 0, or of the rows of a matrix, where
    /// it is 1. `cols` is the index of each column, of the shape of a row, which has `n_cols` elements. Past its end `x` is 0.
    #[fuse_fn]
    pub fn normalize<T: Float, const AXIS: usize>(
        x: Tile<f32>,
        gamma: &[T],
        beta: Option<&[T]>,
        cols: Tile<i32>,
        n_cols: i32,
        eps: f32,
    ) -> Tile<f32> {
        let mask = cols < n_cols;
        if let Some(beta) = beta {
            let (centered, _, var) = center::<AXIS>(x, mask, n_cols);
            let gamma = tl::load(gamma + cols, mask).to::<f32>();
            let beta = tl::load(beta + cols, mask).to::<f32>();
            centered * tl::rsqrt(var + eps) * gamma + beta
        } else {
            let gamma = tl::load(gamma + cols, mask).to::<f32>();
            x * tl::rsqrt(row_sums::<AXIS>(x * x) / n_cols as f32 + eps) * gamma
        }
    }

    /// The next means and sums of squared deviations of lanes, once each has taken its element of `x` where `mask` is true. It is the
    /// `n_seen`-th one of every lane that took one. All tiles have one shape.
    #[fuse_fn]
    pub fn welford(
        means: Tile<f32>,
        squares: Tile<f32>,
        x: Tile<f32>,
        mask: Tile<bool>,
        n_seen: f32,
    ) -> (Tile<f32>, Tile<f32>) {
        let delta = tl::select(mask, x - means, 0.0);
        let next = means + delta * (1.0 / n_seen);
        (next, squares + delta * (x - next))
    }

    /// The mean and the variance of `size` elements, of which each lane took so many as `counts` has; `means`, `squares` and `counts` are
    /// `[N]`.
    #[fuse_fn]
    pub fn mean_and_variance(
        means: Tile<f32>,
        squares: Tile<f32>,
        counts: Tile<f32>,
        size: i32,
    ) -> (Tile<f32>, Tile<f32>) {
        let mean = tl::sum(means * counts, 0) / size as f32;
        let mean_delta = tl::select(counts > 0.0, means - mean, 0.0);
        (mean, (tl::sum(squares, 0) + tl::sum(mean_delta * mean_delta * counts, 0)) / size as f32)
    }
}

pub use functions::{center, mean_and_variance, normalize, row_sums, welford};
