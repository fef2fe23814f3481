//! What a kernel should give, and how far from it a result may be: by the rounding of the element type and the
//! arithmetic in between, not by what happened to come out.

use dsl_runtime::{DType, Float};

/// An exact result, up to `f64`, and the error that rounding explains.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// The result in `f64`.
    pub value: f64,
    /// How far a result may be from it.
    pub within: f64,
}

impl Expected {
    /// The same after rounding to a type.
    pub fn rounded(self, dtype: DType) -> Expected {
        let Expected { value, within } = self;
        let (unit, subnormal) = (unit_roundoff(dtype), smallest_subnormal(dtype));
        Expected { value, within: within + unit * (value.abs() + within) + subnormal }
    }
}

/// How far results were from what was expected.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Deviation {
    /// The largest error of any element.
    pub max_error: f64,
    /// The largest share of its bound that an element's error took; at most 1.
    pub max_share: f64,
}

/// Half the distance from 1 to the next number: the largest relative error of rounding to the type. For an integer, 0.
pub const fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        DType::F32 => f32::EPSILON as f64 / 2.0,
        DType::F16 => 1.0 / 2048.0,
        DType::BF16 => 1.0 / 256.0,
        _ => 0.0,
    }
}

/// The smallest number above 0: rounding a number that is smaller than all normal ones errs by at most half of it.
pub fn smallest_subnormal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-1074),
        DType::F32 => 2f64.powi(-149),
        DType::F16 => 2f64.powi(-24),
        DType::BF16 => 2f64.powi(-133),
        _ => 0.0,
    }
}

/// The worst of all elements.
///
/// # Errors
/// In words, the first element that is NaN, infinite or too far away where it should not be; that the lengths differ.
pub fn compare<T: Float>(got: &[T], expected: &[Expected]) -> Result<Deviation, String> {
    if got.len() != expected.len() {
        return Err(format!("{} elements where {} were expected", got.len(), expected.len()));
    }
    let mut deviation = Deviation::default();
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let (got, rounded) = (got.to_f64(), T::from_f64(expected.value).to_f64());
        let special = !got.is_finite() || !rounded.is_finite();
        let same = got == rounded || got.is_nan() && rounded.is_nan();
        let error = if special { 0.0 } else { (got - expected.value).abs() };
        if special && !same || error > expected.within {
            return Err(format!(
                "element {i} is {got:e}, expected {:e} within {:.2e}",
                expected.value, expected.within
            ));
        }
        deviation.max_error = deviation.max_error.max(error);
        if error > 0.0 {
            deviation.max_share = deviation.max_share.max(error / expected.within);
        }
    }
    Ok(deviation)
}
