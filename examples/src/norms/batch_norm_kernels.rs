//! The kernels of [`crate::batch_norm`]: partial means and variances of each channel, their combination, and the normalization.

use dsl_runtime::prelude::*;

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;

    use crate::norms::welford;

    /// The lanes' means, the sums of squared deviations from them and the counts of elements, as one of each.
    #[fuse_fn]
    fn combine_lanes(means: Tile<f32>, squares: Tile<f32>, counts: Tile<f32>) -> (f32, f32, f32) {
        let count = tl::sum(tl::sum(counts, 1), 0);
        let mean = tl::sum(tl::sum(means * counts, 1), 0) / count;
        let mean_delta = tl::select(counts > 0.0, means - mean, 0.0);
        (mean, tl::sum(tl::sum(squares + mean_delta * mean_delta * counts, 1), 0), count)
    }

    /// Program `(c, j)` writes a partial mean, squared deviations and count of channel `c`: it takes `1024 / COLS` images and `COLS` of
    /// their pixels at a time, split `j % pixel_splits` of the pixels and `j / pixel_splits` of the images. Each lane keeps the mean of its
    /// elements and the sum of their squared deviations from it; those outside of the last piece had an element in each
    /// piece before it.
    #[fuse_kernel(
        T = [f32, f16, bf16], COLS = pixels.min(1024) in [64, 256, 1024], num_warps = 4,
    )]
    pub fn channel_statistics<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        partials: &mut [f32],
        images: i32,
        channels: i32,
        pixels: i32,
        pixel_splits: i32,
    ) {
        let (channel, split) = (tl::program_id(0), tl::program_id(1));
        let image_splits = tl::num_programs(1) / pixel_splits;
        let first_row = split / pixel_splits * (1024 / COLS);
        let first_col = split % pixel_splits * COLS;
        let (rows, cols) = (tl::arange(0, 1024 / COLS), tl::arange(0, COLS));
        let mut means = tl::zeros::<f32>([1024 / COLS, COLS]);
        let mut squares = tl::zeros::<f32>([1024 / COLS, COLS]);
        let mut n_seen = 0.0;
        for piece in (split % pixel_splits..tl::cdiv(pixels, COLS)).step_by(pixel_splits) {
            let col = piece * COLS;
            for row in (first_row..images).step_by(image_splits * (1024 / COLS)) {
                n_seen += 1.0;
                let mask = (row + rows < images).col() & (col + cols < pixels).row();
                let planes = (row + rows) * channels + channel;
                let x = tl::load(x + (planes * pixels).col() + (col + cols).row(), mask).to::<f32>();
                (means, squares) = welford(means, squares, x, mask, n_seen);
            }
        }
        let image_counts = tl::cdiv(images - first_row - rows, image_splits * (1024 / COLS));
        let pixel_counts = tl::cdiv(pixels - first_col - cols, pixel_splits * COLS);
        let counts = image_counts.to::<f32>().col() * pixel_counts.to::<f32>().row();
        let (mean, m2, count) = combine_lanes(means, squares, counts);
        tl::store(partials + split * 3 * channels + channel, mean);
        tl::store(partials + (split * 3 + 1) * channels + channel, m2);
        tl::store(partials + (split * 3 + 2) * channels + channel, count);
    }

    /// The same of a matrix whose columns are the channels: program `(i, j)` takes `COLS` of them, and split `j` of the rows, 16 at a
    /// time.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = [128], num_warps = 8)]
    pub fn column_statistics<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        partials: &mut [f32],
        n_rows: i32,
        n_cols: i32,
    ) {
        let (cols, split) = (tl::program_id(0) * COLS + tl::arange(0, COLS), tl::program_id(1));
        let rows = tl::arange(0, 16);
        let mut means = tl::zeros::<f32>([16, COLS]);
        let mut squares = tl::zeros::<f32>([16, COLS]);
        let mut n_seen = 0.0;
        for row in (split * 16..n_rows).step_by(tl::num_programs(1) * 16) {
            n_seen += 1.0;
            let mask = (row + rows < n_rows).col() & (cols < n_cols).row();
            let x = tl::load(x + ((row + rows) * n_cols).col() + cols.row(), mask).to::<f32>();
            (means, squares) = welford(means, squares, x, mask, n_seen);
        }
        let counts = tl::cdiv(n_rows - split * 16 - rows, tl::num_programs(1) * 16).to::<f32>();
        let count = tl::sum(counts, 0);
        let mean = tl::sum(means * counts.col(), 0) / count;
        let mean_delta = tl::select((counts > 0.0).col(), means - mean.row(), 0.0);
        let m2 = tl::sum(squares + mean_delta * mean_delta * counts.col(), 0);
        let mask = cols < n_cols;
        tl::store(partials + split * 3 * n_cols + cols, mean, mask);
        tl::store(partials + (split * 3 + 1) * n_cols + cols, m2, mask);
        tl::store(partials + (split * 3 + 2) * n_cols + cols, tl::broadcast_to(count, [COLS]), mask);
    }

    /// The mean and `rstd` of each of `COLS` channels, from `n_partials` partial statistics; and the running mean and
    /// variance moved towards its own, where there are such. A channel has `size` elements.
    #[fuse_kernel(COLS = [32])]
    pub fn join_statistics<const COLS: usize>(
        partials: &[f32],
        mean: &mut [f32],
        rstd: &mut [f32],
        running_mean: &mut [f32],
        running_var: &mut [f32],
        n_partials: i32,
        channels: i32,
        size: i32,
        momentum: f32,
        eps: f32,
    ) {
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let rows = tl::arange(0, 64);
        let mask = cols < channels;
        let mut sums = tl::zeros::<f32>([64, COLS]);
        for first in (0..n_partials).step_by(64) {
            let mask = (first + rows < n_partials).col() & mask.row();
            let offsets = ((first + rows) * 3 * channels).col() + cols.row();
            let counts = tl::load(partials + offsets + 2 * channels, mask, 0.0);
            sums += counts * tl::load(partials + offsets, mask, 0.0);
        }
        let center = tl::sum(sums, 0) / size as f32;
        let mut squares = tl::zeros::<f32>([64, COLS]);
        for first in (0..n_partials).step_by(64) {
            let mask = (first + rows < n_partials).col() & mask.row();
            let offsets = ((first + rows) * 3 * channels).col() + cols.row();
            let counts = tl::load(partials + offsets + 2 * channels, mask, 0.0);
            let mean_delta = tl::select(mask, tl::load(partials + offsets, mask, 0.0) - center.row(), 0.0);
            squares += tl::load(partials + offsets + channels, mask, 0.0) + counts * mean_delta * mean_delta;
        }
        let m2 = tl::sum(squares, 0);
        tl::store(mean + cols, center, mask);
        tl::store(rstd + cols, tl::rsqrt(m2 / size as f32 + eps), mask);
        if running_mean.len() > 0 {
            let previous = tl::load(running_mean + cols, mask, 0.0);
            tl::store(running_mean + cols, previous * (1.0 - momentum) + center * momentum, mask);
            let previous = tl::load(running_var + cols, mask, 0.0);
            let unbiased = m2 / (size as f32 - 1.0);
            tl::store(running_var + cols, previous * (1.0 - momentum) + unbiased * momentum, mask);
        }
    }

    /// A tile minus its channels' means, times their scales or the `rstd` of their variances where `scale_is_variance` is not 0, and shifted.
    #[fuse_fn]
    fn normalized<T: Float>(
        x: Tile<f32>,
        (gamma, beta, mean, scale): (&[T], &[T], &[f32], &[f32]),
        channel: Tile<i32>,
        is_in_bounds: Tile<bool>,
        scale_is_variance: i32,
        eps: f32,
    ) -> Tile<f32> {
        let given_scale = tl::load(scale + channel, is_in_bounds, 1.0);
        let scale = tl::select(scale_is_variance != 0, tl::rsqrt(given_scale + eps), given_scale);
        let scale = scale * tl::load(gamma + channel, is_in_bounds).to::<f32>();
        let shift = tl::load(beta + channel, is_in_bounds).to::<f32>();
        (x - tl::load(mean + channel, is_in_bounds)) * scale + shift
    }

    /// Normalizes a tile of `COLS` pixels of `4096 / COLS` images' channels. The grid's first axis counts tiles across, its second
    /// and third those down. `scale` has variances where `scale_is_variance` is not 0. `residual` is read and added where `add_residual` is not 0; results
    /// are clamped to `lower_bound`.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = pixels.min(4096) in [64, 256, 1024, 4096])]
    pub fn batch_norm<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        mean: &[f32],
        scale: &[f32],
        residual: &[T],
        out: &mut [T],
        add_residual: i32,
        planes: i32,
        pixels: i32,
        channels: i32,
        scale_is_variance: i32,
        eps: f32,
        lower_bound: f32,
    ) {
        let row_tile = tl::program_id(2) * tl::num_programs(1) + tl::program_id(1);
        let rows = row_tile * (4096 / COLS) + tl::arange(0, 4096 / COLS);
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let mask = (rows < planes).col() & (cols < pixels).row();
        let offsets = (rows * pixels).col() + cols.row();
        let x = tl::load(x + offsets, mask).to::<f32>();
        let residual_values = tl::load(residual + offsets, mask & (add_residual != 0), 0.0).to::<f32>();
        let (channel, is_in_bounds) = ((rows % channels).col(), (rows < planes).col());
        let y = normalized::<T>(x, (gamma, beta, mean, scale), channel, is_in_bounds, scale_is_variance, eps)
            + residual_values;
        tl::store(out + offsets, tl::maximum(y, lower_bound).to::<T>(), mask);
    }

    /// The same of a matrix whose columns are the channels.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = channels.min(1024) in [128, 1024])]
    pub fn batch_norm_columns<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        gamma: &[T],
        beta: &[T],
        mean: &[f32],
        scale: &[f32],
        residual: &[T],
        out: &mut [T],
        add_residual: i32,
        n_rows: i32,
        channels: i32,
        scale_is_variance: i32,
        eps: f32,
        lower_bound: f32,
    ) {
        let row_tile = tl::program_id(2) * tl::num_programs(1) + tl::program_id(1);
        let rows = row_tile * (4096 / COLS) + tl::arange(0, 4096 / COLS);
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let mask = (rows < n_rows).col() & (cols < channels).row();
        let offsets = (rows * channels).col() + cols.row();
        let x = tl::load(x + offsets, mask).to::<f32>();
        let residual_values = tl::load(residual + offsets, mask & (add_residual != 0), 0.0).to::<f32>();
        let (channel, is_in_bounds) = (cols.row(), (cols < channels).row());
        let y = normalized::<T>(x, (gamma, beta, mean, scale), channel, is_in_bounds, scale_is_variance, eps)
            + residual_values;
        tl::store(out + offsets, tl::maximum(y, lower_bound).to::<T>(), mask);
    }
}

pub use kernels::{batch_norm, batch_norm_columns, channel_statistics, column_statistics, join_statistics};
