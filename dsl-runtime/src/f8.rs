//! The 8-bit floats, as bits that convert to and from `f32`.
//!
//! Both saturate: what is larger than the largest number, infinity included, becomes the largest number, which is what
//! GPUs do when a value is quantized. NaN stays NaN.

use std::fmt;

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

/// A positive `value`, not NaN, in units of the format's bits: to nearest, ties to even, and no more than `largest`.
fn round(value: f32, fraction: u32, bias: i32, largest: u8) -> u8 {
    let exponent = (value.to_bits() >> 23) as i32 - 127;
    let unit = exponent.max(1 - bias) - fraction as i32;
    // The significand as an integer, whose last bit is 2^(exponent - 23); a subnormal `f32` is far below half a unit.
    let significand = u64::from(value.to_bits() & 0x007f_ffff | 0x0080_0000);
    let dropped = (unit - (exponent - 23)).min(40) as u32;
    let (whole, rest) = (significand >> dropped, significand & ((1 << dropped) - 1));
    let half = 1u64 << (dropped - 1);
    let units = whole + u64::from(rest > half || rest == half && whole & 1 == 1);
    let below = (exponent.max(1 - bias) + bias - 1) as u64;
    let bits = units + (below << fraction);
    bits.min(u64::from(largest)) as u8
}

/// The number that bits of a format without its specials stand for; exact.
fn value(bits: u8, fraction: u32, bias: i32) -> f32 {
    let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
    let (exponent, significand) = (i32::from(bits & 0x7f) >> fraction, bits & ((1 << fraction) - 1));
    let magnitude = match exponent {
        0 => f32::from(significand) * power(1 - bias - fraction as i32),
        _ => f32::from(significand | 1 << fraction) * power(exponent - bias - fraction as i32),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

macro_rules! float {
    (
        $(#[$doc:meta])* $name:ident, fraction $fraction:literal, bias $bias:literal,
        largest $largest:literal, smallest_normal $normal:literal
    ) => {
        $(#[$doc])*
        #[allow(non_camel_case_types, reason = "an element type is written as Rust writes its own")]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The largest number.
            pub const MAX: $name = $name($largest);
            /// The smallest number.
            pub const MIN: $name = $name($largest | 0x80);
            /// The smallest normal number above zero.
            pub const MIN_POSITIVE: $name = $name($normal);
            /// Not a number.
            pub const NAN: $name = $name(0x7f);

            /// The number of these bits.
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }

            /// The bits: the sign, the exponent, the fraction.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number, ties to even; what is larger than [`MAX`](Self::MAX), infinity included, is `MAX`.
            pub fn from_f32(value: f32) -> $name {
                if value.is_nan() {
                    return $name::NAN;
                }
                let sign = if value.is_sign_negative() { 0x80 } else { 0 };
                $name(round(value.abs(), $fraction, $bias, $largest) | sign)
            }

            /// The same number, exactly.
            pub fn to_f32(self) -> f32 {
                if self.is_nan() {
                    f32::NAN
                } else if self.0 & 0x7f > $largest {
                    if self.0 & 0x80 == 0 { f32::INFINITY } else { f32::NEG_INFINITY }
                } else {
                    value(self.0, $fraction, $bias)
                }
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        // SAFETY: a transparent wrapper of a byte.
        unsafe impl DeviceRepr for $name {}
        // SAFETY: every byte is a value.
        unsafe impl ValidAsZeroBits for $name {}
    };
}

float! {
    /// An 8-bit float of 4 exponent bits and 3 fraction bits, without infinity: numbers up to 448 in steps of an eighth
    /// (`e4m3fn` elsewhere). Kernels store it and convert it with `.to::<f32>()`.
    ///
    /// ```
    /// use dsl_runtime::f8e4m3;
    /// assert_eq!(f8e4m3::from_f32(1.06).to_f32(), 1.0);
    /// assert_eq!(f8e4m3::from_f32(f32::INFINITY), f8e4m3::MAX);
    /// ```
    f8e4m3, fraction 3, bias 7, largest 0x7e, smallest_normal 0x08
}

float! {
    /// An 8-bit float of 5 exponent bits and 2 fraction bits: the upper half of an [`f16`](crate::f16), with numbers up
    /// to 57344, infinities and NaN. Kernels store it and convert it with `.to::<f32>()`.
    ///
    /// ```
    /// use dsl_runtime::f8e5m2;
    /// assert_eq!(f8e5m2::from_f32(1.1).to_f32(), 1.0);
    /// assert_eq!(f8e5m2::from_f32(1e9), f8e5m2::MAX);
    /// ```
    f8e5m2, fraction 2, bias 15, largest 0x7b, smallest_normal 0x04
}

impl f8e5m2 {
    /// Positive infinity: read from memory, never the result of a conversion.
    pub const INFINITY: f8e5m2 = f8e5m2(0x7c);
    /// Negative infinity.
    pub const NEG_INFINITY: f8e5m2 = f8e5m2(0xfc);
}

macro_rules! is_nan {
    ($($name:ident above $last:literal),*) => {$(
        impl $name {
            /// Whether it is not a number.
            pub const fn is_nan(self) -> bool {
                self.0 & 0x7f > $last
            }
        }
    )*};
}

is_nan!(f8e4m3 above 0x7e, f8e5m2 above 0x7c);

#[cfg(test)]
mod tests {
    use half::f16;

    use super::{f8e4m3, f8e5m2};

    /// Bits that hold finite numbers from zero up, in order.
    fn ascending(largest: u8) -> impl Iterator<Item = u8> {
        0..=largest
    }

    #[test]
    fn every_f8e5m2_is_the_upper_half_of_an_f16() {
        for bits in 0..=255 {
            let (found, wanted) = (f8e5m2::from_bits(bits), f16::from_bits(u16::from(bits) << 8));
            assert_eq!(found.is_nan(), wanted.is_nan(), "{bits:#x}");
            assert!(found.is_nan() || found.to_f32().to_bits() == wanted.to_f32().to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn f8e4m3_is_as_published() {
        // The OCP specification's table of extremes.
        let known =
            [(0x7e, 448.0), (0x08, 2f32.powi(-6)), (0x07, 0.875 * 2f32.powi(-6)), (0x01, 2f32.powi(-9))];
        for (bits, number) in known {
            assert_eq!(f8e4m3::from_bits(bits).to_f32(), number);
            assert_eq!(f8e4m3::from_bits(bits | 0x80).to_f32(), -number);
        }
        assert!(f8e4m3::from_bits(0x7f).is_nan() && f8e4m3::from_bits(0xff).to_f32().is_nan());
        let numbers: Vec<f32> = ascending(0x7e).map(|bits| f8e4m3::from_bits(bits).to_f32()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Each number, what lies around each tie, and what lies beyond.
    fn check(largest: u8, number: fn(u8) -> f32, bits: fn(f32) -> u8) {
        for low in ascending(largest - 1) {
            let (a, b) = (number(low), number(low + 1));
            let tie = f32::midpoint(a, b);
            let even = if low & 1 == 0 { low } else { low + 1 };
            for (value, wanted) in
                [(a, low), (tie.next_down(), low), (tie, even), (tie.next_up(), low + 1), (b, low + 1)]
            {
                assert_eq!(bits(value), wanted, "{value:e}");
                assert_eq!(bits(-value), wanted | 0x80, "-{value:e}");
            }
        }
        let top = number(largest);
        for beyond in [top * 1.01, top * 1.5, top * 2.0, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!([bits(beyond), bits(-beyond)], [largest, largest | 0x80], "{beyond:e}");
        }
        assert_eq!([bits(1e-40), bits(-f32::MIN_POSITIVE), bits(f32::from_bits(1))], [0, 0x80, 0]);
        assert_eq!(bits(f32::NAN), 0x7f);
    }

    #[test]
    fn conversion_rounds_to_nearest_even_and_saturates() {
        check(0x7e, |bits| f8e4m3::from_bits(bits).to_f32(), |value| f8e4m3::from_f32(value).to_bits());
        check(0x7b, |bits| f8e5m2::from_bits(bits).to_f32(), |value| f8e5m2::from_f32(value).to_bits());
    }
}
