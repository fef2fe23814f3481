//! Float formats as numbers: rounding, units in the last place, distances.

use dsl_runtime::{DType, Element, bf16, f8e4m3, f8e5m2, f16};

/// A binary format of IEEE 754's kind, or `f8e4m3`, whose exponents end earlier and which has no infinity.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    dtype: DType,
    /// Bits of the fraction.
    pub fraction: u32,
    /// The largest exponent of a number.
    max_exponent: i32,
}

impl Format {
    pub fn of(dtype: DType) -> Format {
        let (fraction, max_exponent) = match dtype {
            DType::F8E4M3 => (3, 7),
            DType::F8E5M2 => (2, 15),
            DType::F16 => (10, 15),
            DType::BF16 => (7, 127),
            DType::F32 => (23, 127),
            DType::F64 => (52, 1023),
            other => panic!("{other} is not a float"),
        };
        Format { dtype, fraction, max_exponent }
    }

    pub fn sign(self) -> u64 {
        1 << (8 * self.dtype.bytes() - 1)
    }

    /// The bits behind those of the largest number: infinity, where there is one.
    pub fn infinity(self) -> u64 {
        if self.dtype == DType::F8E4M3 {
            return 0x7f;
        }
        (self.exponents() + 1) << self.fraction
    }

    pub fn smallest_normal(self) -> u64 {
        1 << self.fraction
    }

    /// The largest exponent field of a number.
    pub fn exponents(self) -> u64 {
        if self.dtype == DType::F8E4M3 {
            return 15;
        }
        2 * self.max_exponent as u64
    }

    /// The bits with another exponent field.
    pub fn with_exponent(self, bits: u64, exponent: u64) -> u64 {
        bits & (self.sign() | (self.smallest_normal() - 1)) | exponent << self.fraction
    }

    /// The nearest number of the format, ties to even. Done here: `half` drops the low bits of an `f64` before it rounds.
    /// An 8-bit float saturates, except that an infinity that there is stays one: a conversion takes it away before.
    pub fn round(self, value: f64) -> u64 {
        match self.dtype {
            DType::F8E4M3 => return f8e4m3::from_f64(value).to_bits().into(),
            DType::F8E5M2 if value.is_infinite() => {
                return self.infinity() | if value < 0.0 { self.sign() } else { 0 };
            }
            DType::F8E5M2 => return f8e5m2::from_f64(value).to_bits().into(),
            _ => {}
        }
        if self.dtype == DType::F64 || value.is_nan() || value.is_infinite() {
            return self.exact(value);
        }
        let unit = self.unit(value);
        let rounded = (value / unit).round_ties_even() * unit;
        self.exact(if rounded.abs() >= power(self.max_exponent + 1) {
            f64::INFINITY.copysign(value)
        } else {
            rounded
        })
    }

    /// The bits of a number that the format has.
    fn exact(self, value: f64) -> u64 {
        match self.dtype {
            DType::F16 => f16::from_f64(value).to_bits().into(),
            DType::BF16 => bf16::from_f64(value).to_bits().into(),
            DType::F32 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        }
    }

    /// The number that bits stand for.
    pub fn value(self, bits: u64) -> f64 {
        match self.dtype {
            DType::F8E4M3 => f8e4m3::from_bits(bits as u8).to_f64(),
            DType::F8E5M2 => f8e5m2::from_bits(bits as u8).to_f64(),
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F32 => f32::from_bits(bits as u32).into(),
            _ => f64::from_bits(bits),
        }
    }

    /// The spacing of the format's numbers at a finite value: that of subnormals near zero.
    pub fn unit(self, value: f64) -> f64 {
        let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        let exponent = exponent.clamp(1 - self.max_exponent, self.max_exponent);
        power(exponent - self.fraction as i32)
    }

    /// The distance of two numbers, in units at the second. Infinity counts as the number after the largest one, so
    /// that an operation that is a unit off may overflow a unit early.
    pub fn distance(self, found: f64, wanted: f64) -> f64 {
        let limit = if self.dtype == DType::F64 { f64::MAX } else { power(self.max_exponent + 1) };
        let beyond = |value: f64| value.clamp(-limit, limit);
        if found == wanted {
            return 0.0;
        }
        (beyond(found) - beyond(wanted)).abs() / self.unit(wanted)
    }
}

/// 2 to the power `exponent`, subnormal powers included.
fn power(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}
