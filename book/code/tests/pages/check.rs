//! Data that looks random, and the comparison of results with a reference.

use dsl_runtime::prelude::*;

/// Half the distance from 1 to the next `f32`, and to the next `bf16`.
pub const SINGLE: f64 = f32::EPSILON as f64 / 2.0;
pub const BRAIN: f64 = 1.0 / 256.0;

/// Numbers between -2 and 2, the same for the same seed.
pub fn numbers<T: Float>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        T::from_f64((state >> 33) as f64 / f64::from(1u32 << 29) - 2.0)
    };
    (0..len).map(next).collect()
}

pub fn to_f64<T: Float>(values: &[T]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

/// What an element should be, and how far from it rounding may take it.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub value: f64,
    pub within: f64,
}

/// Fails at the first element that is too far from what is expected.
pub fn assert_close<T: Float>(found: &[T], expected: &[Expected]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, &Expected { value, within })) in found.iter().zip(expected).enumerate() {
        let found = found.to_f64();
        // Written so that NaN fails.
        let is_close = (found - value).abs() <= within;
        assert!(is_close, "element {i} is {found}, expected {value} within {within:.1e}");
    }
}
