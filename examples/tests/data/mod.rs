//! What the tests run on: the devices there are, random data, and outputs with guarded ends.

use std::ops::Range;

use dsl_runtime::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

/// The CPU, and the first GPU where there is one.
pub fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::cuda(0) {
        Ok(gpu) => devices.push(gpu),
        Err(error) => eprintln!("on the CPU alone: {error}"),
    }
    devices
}

/// Normally distributed, the same for the same seed.
pub fn normal<T: Float>(len: usize, seed: u64) -> Vec<T> {
    let rng = StdRng::seed_from_u64(seed);
    StandardNormal.sample_iter(rng).take(len).map(|value: f64| T::from_f64(value)).collect()
}

/// Memory for an output: NaN in the middle, a value nobody computes on both sides of it.
pub struct Guarded<T: Float> {
    buffer: Buffer<T>,
    inner: Range<usize>,
}

const GUARD: f64 = -77.0;
const MARGIN: usize = 32;

impl<T: Float> Guarded<T> {
    /// An output of `len` elements that starts `shift` elements after a boundary of 64 bytes.
    pub fn new(device: Device, len: usize, shift: usize) -> Self {
        let inner = MARGIN + shift..MARGIN + shift + len;
        let mut content = vec![T::from_f64(GUARD); len + shift + 2 * MARGIN];
        content[inner.clone()].fill(T::from_f64(f64::NAN));
        Guarded { buffer: device.upload(&content).unwrap(), inner }
    }

    pub fn output(&mut self) -> SliceMut<'_, T> {
        self.buffer.slice_mut(self.inner.clone())
    }

    /// What was written, once it is sure that nothing was written beside it.
    pub fn content(&self) -> Vec<T> {
        let mut content = self.buffer.download().unwrap();
        let guard = T::from_f64(GUARD);
        let outside = (0..content.len()).filter(|i| !self.inner.contains(i));
        for i in outside {
            assert_eq!(content[i], guard, "element {i} is outside of the output {:?}", self.inner);
        }
        content.drain(self.inner.clone()).collect()
    }
}
