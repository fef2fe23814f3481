//! What the tests run on: the devices there are, random data, and outputs that contain NaN between guard elements.

use std::ops::Range;

use dsl_runtime::DType;
use dsl_runtime::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

/// Half the distance from 1 to the next `f32`.
pub const SINGLE: f64 = f32::EPSILON as f64 / 2.0;
/// The smallest normal `f32`.
pub const TINY: f64 = f32::MIN_POSITIVE as f64;

/// The CPU, and the first GPU where there is one.
pub fn devices() -> Vec<Device> {
    [Some(Device::cpu()), Device::cuda(0).ok()].into_iter().flatten().collect()
}

/// Normally distributed, the same for the same seed.
pub fn normal<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let rng = StdRng::seed_from_u64(seed);
    StandardNormal.sample_iter(rng).take(len).map(|value: f64| T::from_f64(value)).collect()
}

/// Integers of a range, the same for the same seed.
pub fn integers<T: Element>(len: usize, range: Range<i64>, seed: u64) -> Vec<T> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| T::from_f64(rng.random_range(range.clone()) as f64)).collect()
}

/// A matrix in row-major order as `f64`, with its number of columns.
pub struct Matrix {
    values: Vec<f64>,
    cols: usize,
}

impl Matrix {
    pub fn new<T: Element>(values: &[T], cols: usize) -> Self {
        Matrix { values: values.iter().map(|value| value.to_f64()).collect(), cols }
    }

    pub fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.cols + col]
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.cols..][..self.cols]
    }
}

/// An exact result, and the error that rounding explains.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub value: f64,
    pub within: f64,
}

impl Expected {
    /// A result known before the last rounding, to `T`, within an error.
    pub fn rounded<T: Element>(value: f64, within: f64) -> Self {
        let (unit, subnormal) = match T::DTYPE {
            DType::F16 => (1.0 / 2048.0, 2f64.powi(-24)),
            DType::BF16 => (1.0 / 256.0, 2f64.powi(-133)),
            DType::F32 => (SINGLE, 2f64.powi(-149)),
            other => panic!("no rounding to {other}"),
        };
        Expected { value, within: within + unit * (value.abs() + within) + subnormal }
    }

    /// A result that is exact.
    pub fn exact<T: Element>(value: T) -> Self {
        Expected { value: value.to_f64(), within: 0.0 }
    }
}

/// The sum of products of pairs, added in `f32`, and by how much the additions may move it.
pub fn inner_product(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let magnitudes: f64 = pairs.clone().map(|(a, b)| (a * b).abs()).sum();
    let count = pairs.clone().count() as f64;
    (pairs.map(|(a, b)| a * b).sum(), (count + 2.0) * 2.0 * SINGLE * magnitudes)
}

/// Memory for an output: NaN in the middle, or what a kernel changes, and a value that nobody computes on both sides.
pub struct Output<T: Element> {
    buffer: Buffer<T>,
    inner: Range<usize>,
}

const GUARD: f64 = -77.0;
const MARGIN: usize = 64;

impl<T: Element> Output<T> {
    pub fn poisoned(device: &Device, len: usize) -> Self {
        Output::of(device, &vec![T::from_f64(f64::NAN); len])
    }

    pub fn of(device: &Device, values: &[T]) -> Self {
        let inner = MARGIN..MARGIN + values.len();
        let mut content = vec![T::from_f64(GUARD); values.len() + 2 * MARGIN];
        content[inner.clone()].copy_from_slice(values);
        Output { buffer: device.upload(&content).unwrap(), inner }
    }

    pub fn slot(&mut self) -> SliceMut<'_, T> {
        self.buffer.slice_mut(self.inner.clone())
    }

    /// What was written, once it is sure that nothing was written beside it.
    pub fn content(&self) -> Vec<T> {
        let content = self.buffer.download().unwrap();
        for (i, value) in content.iter().enumerate().filter(|(i, _)| !self.inner.contains(i)) {
            assert_eq!(value.to_f64(), GUARD, "element {i} is outside of {:?}", self.inner);
        }
        content[self.inner.clone()].to_vec()
    }

    /// Compares each element.
    #[track_caller]
    pub fn check(&self, what: &str, expected: &[Expected]) {
        let content = self.content();
        assert_eq!(content.len(), expected.len(), "{what}: as many elements");
        for (i, (got, expected)) in content.iter().zip(expected).enumerate() {
            let error = (got.to_f64() - expected.value).abs();
            assert!(
                error <= expected.within,
                "{what}: element {i} is {got:?}, expected {:e} within {:.2e}",
                expected.value,
                expected.within
            );
        }
    }
}

/// The product of two matrices in `f64`, each result within what rounding to `T` explains: `left` and `right` give their elements
/// by row and column.
pub fn matmul<T: Element>(
    [m, n, k]: [usize; 3],
    left: impl Fn(usize, usize) -> f64,
    right: impl Fn(usize, usize) -> f64,
) -> Vec<Expected> {
    let at = |i: usize| inner_product((0..k).map(|j| (left(i / n, j), right(j, i % n))));
    (0..m * n).map(at).map(|(value, within)| Expected::rounded::<T>(value, within)).collect()
}
