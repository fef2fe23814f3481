//! A gated linear recurrence along time: `h[t] = a[t] * h[t - 1] + b[t]` for each channel of each sequence, and `out[t] = h[t] *
//! silu(gate[t])`. Matrices of shape `[sequences, time, channels]`, in row-major order.
//!
//! **Traffic.** Reads `a`, `b` and `gate` and writes `out` once: `4 * sequences * time * channels * size_of::<T>()` bytes, and an `f32`
//! for each channel in and out: the state before and after, so that a sequence can be continued.
//!
//! **How.** A step is the pair `(a, b)`; one after another they are `(a1 * a2, b1 * a2 + b2)`, which is associative: 32 or 64 steps
//! are scanned at once, and the state is carried to the next ones. Where there are enough channels for all SMs, more of
//! them share a program; how many steps are scanned, and with it the last bits, depends on that.
//!
//! **Rounding.** In `f32`, rounded to `T` once. The state is within `(4 * time + 16) * 2^-24` times the sum of `|b|` and the first
//! state, each decayed by `|a|`; the output within that times the gate's SiLU, whose own bound (see [`crate::activation`]) and
//! two roundings come on top. A NaN stays in its
//! channel, from its step on.
//!
//! **Source.** Blelloch, *Prefix sums and their applications*, 1990, section 1.4.1; the recurrences of Gu, Dao, *Mamba*, 2023,
//! arXiv:2312.00752, and De and others, *Griffin*, 2024, arXiv:2402.19427, equation 4.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::Checks;

/// One program for each `CHANNELS` channels of each sequence, `STEPS` steps at a time. Without a `first` state it is 0. The next steps are prefetched
/// while these are scanned.
#[fuse_kernel(
    configs = [
        { T: f32, CHANNELS: 64, STEPS: 32, num_stages: 3, when: fills(device, CHANNELS, a.len(), n_steps, n_channels) },
        { T: f16, CHANNELS: 128, STEPS: 32, num_stages: 4, when: fills(device, CHANNELS, a.len(), n_steps, n_channels) },
        { T: bf16, CHANNELS: 128, STEPS: 32, num_stages: 4, when: fills(device, CHANNELS, a.len(), n_steps, n_channels) },
        { T: f32, CHANNELS: 32, STEPS: 64 },
        { T: f16, CHANNELS: 32, STEPS: 64, num_stages: 3 },
        { T: bf16, CHANNELS: 32, STEPS: 64, num_stages: 3 },
    ],
    num_warps = 4, num_stages = 2,
)]
pub fn recurrence<T: LibraryFloat, const CHANNELS: usize, const STEPS: usize>(
    a: &[T],
    b: &[T],
    gate: &[T],
    first: Option<&[f32]>,
    out: &mut [T],
    last: &mut [f32],
    n_steps: i32,
    n_channels: i32,
) {
    let sequence = tl::program_id(0);
    let channels = tl::program_id(1) * CHANNELS + tl::arange(0, CHANNELS);
    let is_channel = channels < n_channels;
    let steps = tl::arange(0, STEPS);
    let mut state = tl::zeros::<f32>([CHANNELS]);
    if let Some(first) = first {
        state = tl::load(first + sequence * n_channels + channels, is_channel);
    }
    for start in (0..n_steps).step_by(STEPS) {
        let mask = (start + steps < n_steps).col() & is_channel.row();
        let offsets = (steps * n_channels).col() + channels.row();
        let offset = (sequence * n_steps + start) * n_channels;
        // Steps past the end are the identity.
        let a = tl::load(a + offset + offsets, mask, 1.0).to::<f32>();
        let b = tl::load(b + offset + offsets, mask, 0.0).to::<f32>();
        let gate = tl::load(gate + offset + offsets, mask).to::<f32>();
        let (decay, b_scan) = tl::associative_scan((a, b), 0, |(a, b), (c, d)| (a * c, b * c + d));
        let h = tl::fma(decay, state.row(), b_scan);
        state = tl::index(h, 0, STEPS - 1);
        let y = h * tl::silu::<T>(gate);
        tl::store(out + offset + offsets, y.to::<T>(), mask);
    }
    tl::store(last + sequence * n_channels + channels, state, is_channel);
}

/// Whether programs of so many channels still occupy most SMs.
fn fills(device: impl LaunchOn, channels: usize, elements: usize, n_steps: i32, n_channels: i32) -> bool {
    let (n_steps, n_channels) = (n_steps as usize, n_channels as usize);
    let sequences = elements / (n_steps * n_channels).max(1);
    4 * sequences * n_channels.div_ceil(channels) >= 3 * device.parallelism()
}

/// A gated linear recurrence. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct Recurrence<'a, T: LibraryFloat> {
    a: Slice<'a, T>,
    b: Slice<'a, T>,
    gate: Slice<'a, T>,
    first: Option<Slice<'a, f32>>,
    channels: usize,
}

impl<'a, T: LibraryFloat> Recurrence<'a, T> {
    /// Sequences of so many channels, whose state is 0 at first; the number of sequences is that of the states after the
    /// last step.
    pub fn new(
        a: impl Into<Slice<'a, T>>,
        b: impl Into<Slice<'a, T>>,
        gate: impl Into<Slice<'a, T>>,
        channels: usize,
    ) -> Self {
        Recurrence { a: a.into(), b: b.into(), gate: gate.into(), first: None, channels }
    }

    /// The state of each channel before the first step.
    pub fn from(self, first: impl Into<Slice<'a, f32>>) -> Self {
        Recurrence { first: Some(first.into()), ..self }
    }

    /// Computes into `out`, and the state after the last step into `last`, on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        out: impl Into<SliceMut<'o, T>>,
        last: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        let (out, last, checks) = (out.into(), last.into(), Checks("recurrence"));
        for (name, len) in [("b", self.b.len()), ("gate", self.gate.len()), ("out", out.len())] {
            checks.same(("a", self.a.len()), (name, len))?;
        }
        if let Some(first) = self.first {
            checks.same(("first", first.len()), ("last", last.len()))?;
        }
        let sequences = checks.rows(("last", last.len()), self.channels)?;
        if sequences == 0 {
            return checks.same(("a", self.a.len()), ("last", 0));
        }
        let steps = checks.rows(("a", self.a.len()), sequences * self.channels)?;
        let &Recurrence { a, b, gate, first, channels } = self;
        recurrence::<T>(a, b, gate, first, out, last, steps as i32, channels as i32)
            .grid_by(|chosen| (sequences, channels.div_ceil(chosen.constant("CHANNELS"))))
            .launch(on)
    }
}

/// The matrices of a recurrence, for [`reference()`].
#[derive(Clone, Copy, Debug)]
pub struct HostSteps<'a, T> {
    /// What a state is multiplied by.
    pub a: &'a [T],
    /// What is added.
    pub b: &'a [T],
    /// What the output is gated by.
    pub gate: &'a [T],
    /// The state before the first step.
    pub first: &'a [f32],
}

/// What the kernel computes, in `f64`, and the bounds that the module's documentation states: the output, the last states.
pub fn reference<T: Float>(of: HostSteps<T>, channels: usize) -> [Vec<Expected>; 2] {
    let single = unit_roundoff(DType::F32);
    let steps = of.a.len().checked_div(of.first.len()).unwrap_or(0);
    let arithmetic = (4.0 * steps as f64 + 16.0) * single;
    let tiny = f64::from(f32::MIN_POSITIVE);
    let mut states: Vec<f64> = of.first.iter().map(|state| f64::from(*state)).collect();
    let mut sizes: Vec<f64> = states.iter().map(|state| state.abs()).collect();
    let mut out = vec![Expected { value: 0.0, within: 0.0 }; of.a.len()];
    for step in 0..steps {
        for (i, (state, size)) in states.iter_mut().zip(&mut sizes).enumerate() {
            let index = (i / channels * steps + step) * channels + i % channels;
            let (a, b, gate) = (of.a[index].to_f64(), of.b[index].to_f64(), of.gate[index].to_f64());
            *state = a * *state + b;
            *size = a.abs() * *size + b.abs();
            let silu = Activation::Silu.exact(gate, T::DTYPE);
            let value = *state * silu.value;
            let within = (arithmetic * *size + tiny) * (silu.value.abs() + silu.within)
                + 2.0 * single * value.abs()
                + silu.within * state.abs();
            out[index] = Expected { value, within }.rounded(T::DTYPE);
        }
    }
    let last = states
        .iter()
        .zip(&sizes)
        .map(|(state, size)| Expected { value: *state, within: arithmetic * size + tiny });
    [out, last.collect()]
}

/// The bytes that `elements` steps of channels must move, states aside.
pub const fn traffic<T>(elements: usize) -> usize {
    4 * elements * size_of::<T>()
}
