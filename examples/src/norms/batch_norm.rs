//! `out = (x - mean[c]) / sqrt(var[c] + eps) * gamma[c] + beta[c]` for each channel `c` of images `x` of shape `[images, channels, pixels]`,
//! in row-major order (NCHW), or of a matrix `[images, channels]`; and then a residual added and ReLU, where asked for. In training
//! the mean and the variance are those of the channel over all images and pixels, the variance biased; in inference they are given.
//!
//! Training also moves running statistics, `running += momentum * (own - running)`, the variance among them unbiased, and leaves
//! the mean and `1 / sqrt(var + eps)` of each channel for a backward pass.
//!
//! **Traffic.** Inference reads `x` (and the residual) and writes `out` once: `2 * elements * size_of::<T>()` bytes. Training reads `x`
//! once more, for the statistics, of which programs write partial results to `scratch`: [`n_partials`] of them for each channel, so that a few
//! channels occupy all SMs. Their number depends on the shape alone, and they are combined in one order: the same result to
//! the bit, run after run.
//!
//! **Rounding.** In `f32`, rounded to `T` once; the variance from deviations from a mean, by Welford's method and Chan's (never `E[x^2] -
//! E[x]^2`, which cancels). With `a = (8 + sqrt(images * pixels)) * 2^-24` and `m` the channel's mean of `|x|`: before the last rounding a result of
//! training is within `a * ((|x_hat| + m / deviation) * |gamma| + |beta| + |residual|)` of the exact one, the mean within `a * m`, the variance
//! within `2 a * (var + a * m^2)`; a result of inference within `8 * 2^-24 * (|x_hat * gamma| + |beta| + |residual|)`.
//!
//! **Source.** Ioffe, Szegedy, *Batch Normalization*, 2015, arXiv:1502.03167, algorithm 1; running statistics as PyTorch's
//! `torch.nn.BatchNorm2d` has them; Chan, Golub, LeVeque, 1983, for combining partial variances.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

pub use crate::batch_norm_kernels::{
    batch_norm, batch_norm_columns, channel_statistics, column_statistics, join_statistics,
};
use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, along_rows, tile_width};

/// The elements of a tile that is normalized.
const TILE: usize = 4096;

/// The lanes that take statistics of a channel.
const LANES: usize = 1024;

/// The channels of a program that takes statistics where they are columns, and the rows that it takes at a time.
const COLUMNS: usize = 128;
const ROWS: usize = 16;

/// The fewest and the most programs that take statistics: 2 and 8 for each of an H200's 132 SMs.
const PROGRAMS: [usize; 2] = [2 * 132, 8 * 132];

/// The pieces of a channel that a program handles, where that leaves enough programs: they amortize its fixed cost.
const PIECES: usize = 4;

/// Normalizes channels. `T` is `f32`, `f16` or `bf16`; statistics are `f32`.
#[derive(Clone, Copy)]
pub struct BatchNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    residual: Option<Slice<'a, T>>,
    pixels: usize,
    eps: f32,
    relu: bool,
}

/// The outputs for statistics of training, of as many elements as there are channels.
pub struct Statistics<'o> {
    /// Each channel's mean.
    pub mean: SliceMut<'o, f32>,
    /// Each channel's `1 / sqrt(var + eps)`.
    pub rstd: SliceMut<'o, f32>,
    /// The running statistics to update.
    pub running: Option<Running<'o>>,
    /// Workspace of [`scratch_len`] floats.
    pub scratch: SliceMut<'o, f32>,
}

/// The statistics of inference, which training moves.
pub struct Running<'o> {
    /// Each channel's running mean.
    pub mean: SliceMut<'o, f32>,
    /// Each channel's running variance.
    pub var: SliceMut<'o, f32>,
    /// How far they move: PyTorch's is 0.1.
    pub momentum: f32,
}

/// How many programs share a channel's images, and its pixels.
fn program_splits([images, channels, pixels]: [usize; 3]) -> (usize, usize) {
    let target_programs = |pieces: usize, sets: usize| {
        let [fewest, most] = PROGRAMS.map(|programs| programs / sets.max(1));
        (pieces / PIECES).clamp(fewest, most).max(1)
    };
    if pixels == 1 {
        let pieces = images.div_ceil(ROWS);
        return (pieces.min(target_programs(pieces, channels.div_ceil(COLUMNS))), 1);
    }
    let width = tile_width([64, 256, LANES], pixels);
    let (down, across) = (images.div_ceil(LANES / width), pixels.div_ceil(width));
    let target_programs = target_programs(down * across, channels);
    let down = down.min(target_programs);
    (down, across.min((target_programs / down.max(1)).max(1)))
}

/// How many partial statistics each channel has, for images of this shape.
pub fn n_partials([images, channels, pixels]: [usize; 3]) -> usize {
    let (down, across) = program_splits([images, channels, pixels]);
    down * across
}

/// The length of training's workspace for images of this shape.
pub fn scratch_len([images, channels, pixels]: [usize; 3]) -> usize {
    3 * n_partials([images, channels, pixels]) * channels
}

impl<'a, T: LibraryFloat> BatchNorm<'a, T> {
    /// Images of as many channels as `gamma` and `beta` have elements; one pixel a channel and an `eps` of 1e-5 by
    /// default.
    pub fn new(
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        let (x, gamma, beta) = (x.into(), gamma.into(), beta.into());
        BatchNorm { x, gamma, beta, residual: None, pixels: 1, eps: 1e-5, relu: false }
    }

    /// How many pixels a channel of an image has.
    pub fn pixels(self, pixels: usize) -> Self {
        BatchNorm { pixels, ..self }
    }

    /// What is added to the variance, so that a constant channel does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        BatchNorm { eps, ..self }
    }

    /// What is added after the norm, as long as `x`.
    pub fn residual(self, residual: impl Into<Slice<'a, T>>) -> Self {
        BatchNorm { residual: Some(residual.into()), ..self }
    }

    /// Negative results become 0, last of all.
    pub fn relu(self) -> Self {
        BatchNorm { relu: true, ..self }
    }

    /// Computes into `out` with the running mean and variance of each channel, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn infer<'s, 'o>(
        &self,
        on: impl LaunchOn,
        running_mean: impl Into<Slice<'s, f32>>,
        running_var: impl Into<Slice<'s, f32>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (mean, var, out) = (running_mean.into(), running_var.into(), out.into());
        let (checks, channels) = (Checks("batch_norm"), self.gamma.len());
        let images = self.images(out.len())?;
        checks.same(("gamma", channels), ("the running mean", mean.len()))?;
        checks.same(("gamma", channels), ("the running variance", var.len()))?;
        self.normalize(on, images, ChannelAffine { mean, scale: var, scale_is_variance: 1 }, out)
    }

    /// Computes into `out` with the mean and variance of each channel of `x`, and leaves and moves `statistics`, on a device or
    /// stream. Without an image nothing is written.
    ///
    /// # Errors
    /// If the lengths do not fit each other, or a running variance is to move by one value's; those of a launch.
    pub fn train<'o>(
        &self,
        on: impl LaunchOn,
        statistics: Statistics<'o>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (out, Statistics { mut mean, mut rstd, running, mut scratch }) = (out.into(), statistics);
        let (checks, channels) = (Checks("batch_norm"), self.gamma.len());
        let images = self.images(out.len())?;
        let shape = [images, channels, self.pixels];
        checks.same(("gamma", channels), ("the mean", mean.len()))?;
        checks.same(("gamma", channels), ("rstd", rstd.len()))?;
        checks.same(("scratch", scratch.len()), ("what it should be", scratch_len(shape)))?;
        let size = images * self.pixels;
        if size > i32::MAX as usize {
            let most = i32::MAX;
            return Err(checks.error(format!("a channel has {size} values, {most} are the most")));
        }
        if let Some(running) = &running {
            checks.same(("gamma", channels), ("the running mean", running.mean.len()))?;
            checks.same(("gamma", channels), ("the running variance", running.var.len()))?;
            if size == 1 {
                let reason =
                    "a channel has one value, which has no unbiased variance to move the running one by";
                return Err(checks.error(reason.into()));
            }
        }
        if images == 0 {
            return Ok(());
        }
        self.measure(on, shape, scratch.reborrow())?;
        let scratch = scratch.slice(..);
        self.combine(
            on,
            shape,
            CombinedStatistics { scratch, mean: mean.reborrow(), rstd: rstd.reborrow(), running },
        )?;
        self.normalize(
            on,
            images,
            ChannelAffine { mean: mean.slice(..), scale: rstd.slice(..), scale_is_variance: 0 },
            out,
        )
    }

    /// Computes each channel's partial statistics.
    fn measure(&self, on: impl LaunchOn, shape: [usize; 3], scratch: SliceMut<f32>) -> Result<()> {
        let ([images, channels, pixels], n_partials) = (shape, n_partials(shape));
        let [n_images, n_channels, n_pixels] = shape.map(|extent| extent as i32);
        if pixels == 1 {
            let call = column_statistics::<T, COLUMNS>(self.x, scratch, n_images, n_channels);
            return call.grid((channels.div_ceil(COLUMNS), n_partials)).launch(on);
        }
        let across = n_partials / program_splits([images, channels, pixels]).0;
        let call = channel_statistics::<T>(self.x, scratch, n_images, n_channels, n_pixels, across as i32);
        call.grid((channels, n_partials)).launch(on)
    }

    /// Combines the partial statistics.
    fn combine(
        &self,
        on: impl LaunchOn,
        shape: [usize; 3],
        combined: CombinedStatistics<'_, '_>,
    ) -> Result<()> {
        let CombinedStatistics { scratch, mean, rstd, running } = combined;
        let ([images, channels, pixels], n_partials) = (shape, n_partials(shape) as i32);
        let (running_mean, running_var, momentum) = match running {
            Some(Running { mean, var, momentum }) => (mean, var, momentum),
            None => ((&mut []).into(), (&mut []).into(), 0.0),
        };
        let (n_channels, size, eps) = (channels as i32, (images * pixels) as i32, self.eps);
        let call = join_statistics::<32>(
            scratch,
            mean,
            rstd,
            running_mean,
            running_var,
            n_partials,
            n_channels,
            size,
            momentum,
            eps,
        );
        call.grid(channels.div_ceil(32)).launch(on)
    }

    /// Normalizes with these means and scales.
    fn normalize(
        &self,
        on: impl LaunchOn,
        images: usize,
        affine: ChannelAffine<'_>,
        out: SliceMut<T>,
    ) -> Result<()> {
        if images == 0 {
            return Ok(());
        }
        let (x, gamma, beta, eps) = (self.x, self.gamma, self.beta, self.eps);
        let ChannelAffine { mean, scale, scale_is_variance } = affine;
        let (residual_values, add_residual) =
            (self.residual.unwrap_or(x), i32::from(self.residual.is_some()));
        let lower_bound = if self.relu { 0.0 } else { f32::NEG_INFINITY };
        let (channels, pixels) = (gamma.len(), self.pixels);
        let (n_channels, n_pixels) = (channels as i32, pixels as i32);
        if pixels == 1 {
            let width = tile_width([128, 1024], channels);
            let call = batch_norm_columns::<T>(
                x,
                gamma,
                beta,
                mean,
                scale,
                residual_values,
                out,
                add_residual,
                images as i32,
                n_channels,
                scale_is_variance,
                eps,
                lower_bound,
            );
            return call.grid(along_rows(channels.div_ceil(width), images.div_ceil(TILE / width))).launch(on);
        }
        let (planes, width) = (images * channels, tile_width([64, 256, 1024, TILE], pixels));
        let call = batch_norm::<T>(
            x,
            gamma,
            beta,
            mean,
            scale,
            residual_values,
            out,
            add_residual,
            planes as i32,
            n_pixels,
            n_channels,
            scale_is_variance,
            eps,
            lower_bound,
        );
        call.grid(along_rows(pixels.div_ceil(width), planes.div_ceil(TILE / width))).launch(on)
    }

    /// How many images there are.
    fn images(&self, out: usize) -> Result<usize> {
        let (checks, channels) = (Checks("batch_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("out", out))?;
        checks.same(("gamma", channels), ("beta", self.beta.len()))?;
        if let Some(residual) = self.residual {
            checks.same(("x", self.x.len()), ("residual", residual.len()))?;
        }
        // Rows that kernels can count: of an image's channel, and of an image.
        checks.rows(("x", self.x.len()), self.pixels)?;
        checks.rows(("x", self.x.len()), channels * self.pixels)
    }
}

/// What channels are normalized with: scales, or variances where `scale_is_variance` is 1.
struct ChannelAffine<'s> {
    mean: Slice<'s, f32>,
    scale: Slice<'s, f32>,
    scale_is_variance: i32,
}

/// The outputs of combined statistics.
struct CombinedStatistics<'s, 'o> {
    scratch: Slice<'s, f32>,
    mean: SliceMut<'s, f32>,
    rstd: SliceMut<'s, f32>,
    running: Option<Running<'o>>,
}

/// The mean and the variance of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its mean.
    pub mean: Expected,
    /// Its biased variance.
    pub var: Expected,
    /// The mean of its magnitudes.
    pub magnitude: f64,
}

/// The statistics of each channel in `f64`, and the bounds that the module's documentation states.
pub fn statistics<T: Float>(x: &[T], channels: usize, pixels: usize) -> Vec<Channel> {
    let size = x.len().checked_div(channels).unwrap_or(0);
    let a = arithmetic(size);
    let of_channel = |c: usize| {
        let images = x.chunks(channels * pixels);
        let values =
            || images.clone().flat_map(move |image| &image[c * pixels..(c + 1) * pixels]).map(|x| x.to_f64());
        let mean = values().sum::<f64>() / size as f64;
        let magnitude = values().map(f64::abs).sum::<f64>() / size as f64;
        let var = values().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
        Channel {
            mean: Expected { value: mean, within: a * magnitude },
            var: Expected { value: var, within: 2.0 * a * (var + a * magnitude * magnitude) },
            magnitude,
        }
    };
    (0..channels).map(of_channel).collect()
}

/// The error of a sum over a channel and of what follows, relative to the mean of its terms' sizes.
fn arithmetic(size: usize) -> f64 {
    (8.0 + (size as f64).sqrt()) * unit_roundoff(DType::F32)
}

/// The inputs that [`train_reference`] and [`infer_reference`] share.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a, T> {
    /// The images.
    pub x: &'a [T],
    /// What each channel is multiplied by.
    pub gamma: &'a [T],
    /// What is added to each channel.
    pub beta: &'a [T],
    /// What is added to each element.
    pub residual: Option<&'a [T]>,
    /// How many pixels a channel of an image has.
    pub pixels: usize,
    /// Whether negative results become 0.
    pub relu: bool,
}

impl<T: Float> Host<'_, T> {
    /// With each channel's mean, what scales it, and the bound of the result before the last rounding: of `|x_hat|`, and of the sum of
    /// the other sizes.
    fn normalized(self, of: impl Fn(usize) -> (f64, f64, [f64; 2])) -> Vec<Expected> {
        let exact = |(i, x): (usize, &T)| {
            let channel = i / self.pixels % self.gamma.len();
            let (gamma, beta) = (self.gamma[channel].to_f64(), self.beta[channel].to_f64());
            let (mean, scale, [relative, magnitude]) = of(channel);
            let residual_values = self.residual.map_or(0.0, |residual| residual[i].to_f64());
            let x_hat = (x.to_f64() - mean) * scale;
            let value = x_hat * gamma + beta + residual_values;
            let within =
                relative * ((x_hat.abs() + magnitude) * gamma.abs() + beta.abs() + residual_values.abs());
            let value = if self.relu && value < 0.0 { 0.0 } else { value };
            Expected { value, within }.rounded(T::DTYPE)
        };
        self.x.iter().enumerate().map(exact).collect()
    }
}

/// What training computes, in `f64`, and the bound that the module's documentation states.
pub fn train_reference<T: Float>(host: Host<'_, T>, eps: f32) -> Vec<Expected> {
    let statistics = statistics(host.x, host.gamma.len(), host.pixels);
    let a = arithmetic(host.x.len().checked_div(host.gamma.len()).unwrap_or(0));
    host.normalized(|channel| {
        let Channel { mean, var, magnitude } = statistics[channel];
        let scale = 1.0 / (var.value + f64::from(eps)).sqrt();
        (mean.value, scale, [a, magnitude * scale])
    })
}

/// What inference computes, in `f64`, and the bound that the module's documentation states.
pub fn infer_reference<T: Float>(host: Host<'_, T>, [mean, var]: [&[f32]; 2], eps: f32) -> Vec<Expected> {
    host.normalized(|channel| {
        let scale = 1.0 / (f64::from(var[channel]) + f64::from(eps)).sqrt();
        (f64::from(mean[channel]), scale, [8.0 * unit_roundoff(DType::F32), 0.0])
    })
}

/// The bytes that inference of so many elements must move; training moves half as many more.
pub const fn traffic<T>(elements: usize) -> usize {
    2 * elements * size_of::<T>()
}
