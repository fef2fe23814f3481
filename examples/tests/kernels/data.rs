//! What the tests run on: the devices there are, random data, outputs with guarded ends, and a launch with all of it.

use std::ops::Range;

use dsl_runtime::Result;
use dsl_runtime::prelude::*;
use fused_kernels::reference::{Expected, compare};
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

/// An input on `device` that starts `shift` elements after a boundary.
pub fn shifted<T: Element>(device: Device, values: &[T], shift: usize) -> Buffer<T> {
    let padded: Vec<T> = std::iter::repeat_n(T::default(), shift).chain(values.iter().copied()).collect();
    device.upload(&padded).unwrap()
}

/// On every device, with everything on a boundary and one element off it: launches, and compares each output.
#[track_caller]
pub fn check<T: Float>(
    what: &str,
    inputs: &[&[T]],
    expected: &[Vec<Expected>],
    launch: impl Fn(&Device, &[Slice<T>], &mut [SliceMut<T>]) -> Result<()>,
) {
    check_everywhere(what, inputs, expected, &launch);
}

/// How a test launches a kernel. Not a type of its own for each closure: what checks the results is compiled once for an element type.
pub type Launch<'l, T> = dyn Fn(&Device, &[Slice<T>], &mut [SliceMut<T>]) -> Result<()> + 'l;

#[track_caller]
fn check_everywhere<T: Float>(what: &str, inputs: &[&[T]], expected: &[Vec<Expected>], launch: &Launch<T>) {
    for device in devices() {
        for shift in [0, 1] {
            check_on(device, shift, what, inputs, expected, launch);
        }
    }
}

/// The same on one device with one shift; gives the outputs.
#[track_caller]
pub fn check_on<T: Float>(
    device: Device,
    shift: usize,
    what: &str,
    inputs: &[&[T]],
    expected: &[Vec<Expected>],
    launch: &Launch<T>,
) -> Vec<Vec<T>> {
    let buffers: Vec<Buffer<T>> = inputs.iter().map(|input| shifted(device, input, shift)).collect();
    let slices: Vec<Slice<T>> = buffers.iter().map(|buffer| buffer.slice(shift..)).collect();
    let mut outs: Vec<Guarded<T>> =
        expected.iter().map(|expected| Guarded::new(device, expected.len(), shift)).collect();
    let mut slots: Vec<SliceMut<T>> = outs.iter_mut().map(Guarded::output).collect();
    launch(&device, &slices, &mut slots).unwrap();
    drop(slots);
    let contents: Vec<Vec<T>> = outs.iter().map(Guarded::content).collect();
    for (i, (content, expected)) in contents.iter().zip(expected).enumerate() {
        if let Err(found) = compare(content, expected) {
            panic!("{what} of {} on {device}, shifted by {shift}, output {i}: {found}", T::DTYPE);
        }
    }
    contents
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

    /// The same, of an array that the operation changes.
    pub fn of(device: Device, values: &[T], shift: usize) -> Self {
        let mut guarded = Guarded::new(device, values.len(), shift);
        guarded.output().copy_from_host(values).unwrap();
        guarded
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
