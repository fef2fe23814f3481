//! `out = (x - mean) / sqrt(var + eps) * gamma[c] + beta[c]` for each group of contiguous channels of each image, mean and
//! variance over the group; `x` of shape `[images, channels, pixels]`, in row-major order (NCHW).
//!
//! **Traffic.** Reads `x` and writes `out` once: `2 * images * channels * pixels * size_of::<T>()` bytes. A group of up to
//! [`MAX_TILE`] elements stays in registers; a larger one is read a second time, from the cache.
//!
//! **Rounding.** As [`crate::layer_norm`], with the size of a group in place of a row's length.
//!
//! **Source.** Wu, He, *Group Normalization*, 2018, arXiv:1803.08494, equations 1, 2 and 7; one group is LayerNorm, one
//! channel a group is instance normalization.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::float::LibraryFloat;
use crate::layer_norm;
use crate::reference::Expected;
use crate::shape::{Checks, longest};

/// The largest group that the tile of a cluster holds; larger ones are read in pieces.
pub const MAX_TILE: usize = 81920;

/// The largest group that the tile of a block holds.
pub const BLOCK_TILE: usize = 20480;

/// One program for each group of each image: `size` elements, `pixels` for each of its channels, in rows of `RUN` elements.
/// `RUN` divides `pixels`: a row is in one channel, whose scale is read once for it. A cluster of blocks
/// shares the largest groups: of 16-bit elements eight of four warps each.
#[fuse_kernel(
    T = [f32, f16, bf16], RUN = [8, 1], BLOCK = size in [1024, 4096, 10240, 20480, 40960, 81920],
    when = pixels % RUN as i32 == 0,
    num_warps = if size_of::<T>() == 2 && RUN == 8 && BLOCK == 81920 { 4 }
        else { (BLOCK / 512 * (2 - RUN / 8)).next_power_of_two().max(size_of::<T>() * size_of::<T>() / 2).min(8) },
    num_ctas = if BLOCK < 40960 { 1 } else if BLOCK == 40960 { 4 - RUN / 4 } else if RUN == 8 { 16 / size_of::<T>() } else { 8 },
    maxnreg = if size_of::<T>() == 2 && RUN == 8 && BLOCK == 81920 { 96 } else { 255 },
)]
pub fn group_norm<T: LibraryFloat, const RUN: usize, const BLOCK: usize>(
    x: &[T],
    gamma: &[T],
    beta: &[T],
    out: &mut [T],
    groups: i32,
    size: i32,
    pixels: i32,
    eps: f32,
) {
    let group = tl::program_id(0);
    let rows = tl::arange(0, BLOCK / RUN) * RUN;
    let offsets = rows.col() + tl::arange(0, RUN).row();
    let mask = offsets < size;
    let x = tl::load(x + group * size + offsets, mask, 0.0).to::<f32>();
    let mean = tl::sum(tl::sum(x, 1), 0) / size as f32;
    let centered = tl::select(mask, x - mean, 0.0);
    let var = tl::sum(tl::sum(centered * centered, 1), 0) / size as f32;
    // Division in `f32` is exact here: a half is further from the next integer than the quotient's rounding.
    let channel = ((rows.to::<f32>() + 0.5) * (1.0 / pixels as f32)).to::<i32>();
    let channel = (group % groups * (size / pixels) + channel).col();
    let scale = tl::load(gamma + channel, rows.col() < size).to::<f32>() * tl::rsqrt(var + eps);
    let beta = tl::load(beta + channel, rows.col() < size).to::<f32>();
    let y = centered * scale + beta;
    tl::store(out + group * size + offsets, y.to::<T>(), mask);
}

/// One program for each group, which it reads twice, `ROWS` rows of `RUN` elements at a time. Each of `ROWS` lanes keeps the
/// mean of its elements and the sum of their squared deviations from it.
#[fuse_kernel(
    T = [f32, f16, bf16], configs = [{ RUN: 8, ROWS: 2048 }, { RUN: 1, ROWS: 4096 }], when = pixels % RUN as i32 == 0,
)]
pub fn group_norm_large<T: LibraryFloat, const RUN: usize, const ROWS: usize>(
    x: &[T],
    gamma: &[T],
    beta: &[T],
    out: &mut [T],
    groups: i32,
    size: i32,
    pixels: i32,
    eps: f32,
) {
    use crate::norms::mean_and_variance;

    let group = tl::program_id(0);
    let rows = tl::arange(0, ROWS) * RUN;
    let lane_offsets = rows.col() + tl::arange(0, RUN).row();
    let mut means = tl::zeros::<f32>([ROWS]);
    let mut squares = tl::zeros::<f32>([ROWS]);
    let mut n_seen = 0.0;
    for first in (0..size).step_by(ROWS * RUN) {
        let offsets = first + lane_offsets;
        let x = tl::load(x + group * size + offsets, offsets < size).to::<f32>();
        let mean = tl::sum(x, 1) * (1.0 / RUN as f32);
        let centered = x - mean.col();
        let delta = tl::select(first + rows < size, mean - means, 0.0);
        let n_before = n_seen;
        n_seen += 1.0;
        means += delta * (1.0 / n_seen);
        squares += tl::sum(centered * centered, 1) + delta * delta * (RUN as f32 * n_before / n_seen);
    }
    let counts = tl::cdiv(size - rows, ROWS * RUN).to::<f32>() * RUN as f32;
    let (mean, var) = mean_and_variance(means, squares, counts, size);
    let deviations = tl::rsqrt(var + eps);
    let first_channel = group % groups * (size / pixels);
    for first in (0..size).step_by(ROWS * RUN) {
        let offsets = first + lane_offsets;
        let x = tl::load(x + group * size + offsets, offsets < size).to::<f32>();
        let channel = (first_channel + (first + rows) / pixels).col();
        let scale = tl::load(gamma + channel, (first + rows < size).col()).to::<f32>() * deviations;
        let beta = tl::load(beta + channel, (first + rows < size).col()).to::<f32>();
        let y = (x - mean) * scale + beta;
        tl::store(out + group * size + offsets, y.to::<T>(), offsets < size);
    }
}

/// Normalizes groups of channels. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct GroupNorm<'a, T: LibraryFloat> {
    x: Slice<'a, T>,
    gamma: Slice<'a, T>,
    beta: Slice<'a, T>,
    groups: usize,
    pixels: usize,
    eps: f32,
}

impl<'a, T: LibraryFloat> GroupNorm<'a, T> {
    /// Images of as many channels as `gamma` and `beta` have elements; one group, one pixel a channel, and an `eps` of
    /// 1e-5 by default.
    pub fn new(
        x: impl Into<Slice<'a, T>>,
        gamma: impl Into<Slice<'a, T>>,
        beta: impl Into<Slice<'a, T>>,
    ) -> Self {
        GroupNorm { x: x.into(), gamma: gamma.into(), beta: beta.into(), groups: 1, pixels: 1, eps: 1e-5 }
    }

    /// How many groups the channels are divided into.
    pub fn groups(self, groups: usize) -> Self {
        GroupNorm { groups, ..self }
    }

    /// How many pixels a channel of an image has.
    pub fn pixels(self, pixels: usize) -> Self {
        GroupNorm { pixels, ..self }
    }

    /// What is added to the variance, so that a constant group does not divide by zero.
    pub fn eps(self, eps: f32) -> Self {
        GroupNorm { eps, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other or the channels are not divided evenly; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<SliceMut<'o, T>>) -> Result<()> {
        let (out, checks, channels) = (out.into(), Checks("group_norm"), self.gamma.len());
        checks.same(("x", self.x.len()), ("out", out.len()))?;
        checks.same(("gamma", channels), ("beta", self.beta.len()))?;
        if channels.checked_rem(self.groups) != Some(0) {
            return Err(checks.error(format!("{channels} channels are no {} groups", self.groups)));
        }
        let images = checks.rows(("x", self.x.len()), channels * self.pixels)?;
        if images == 0 {
            return Ok(());
        }
        let size = channels / self.groups * self.pixels;
        let (x, gamma, beta, programs) = (self.x, self.gamma, self.beta, images * self.groups);
        let (groups, pixels, eps) = (self.groups as i32, self.pixels as i32, self.eps);
        let fits = size <= longest(on, MAX_TILE, BLOCK_TILE);
        let kernel = if fits { group_norm::<T> } else { group_norm_large::<T> };
        kernel(x, gamma, beta, out, groups, size as i32, pixels, eps).grid(programs).launch(on)
    }
}

/// What the kernel computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(
    x: &[T],
    [gamma, beta]: [&[T]; 2],
    [groups, pixels]: [usize; 2],
    eps: f32,
) -> Vec<Expected> {
    let size = gamma.len() / groups * pixels;
    let spread = |values: &[T]| -> Vec<T> {
        values.iter().flat_map(|value| std::iter::repeat_n(*value, pixels)).collect()
    };
    let (gamma, beta) = (spread(gamma), spread(beta));
    let mut expected = Vec::with_capacity(x.len());
    for (i, group) in x.chunks(size.max(1)).enumerate() {
        let part = i % groups * size..(i % groups + 1) * size;
        expected.extend(layer_norm::reference(group, &gamma[part.clone()], &beta[part], eps));
    }
    expected
}

/// The bytes that `elements` elements must move.
pub const fn traffic<T>(elements: usize) -> usize {
    2 * elements * size_of::<T>()
}
