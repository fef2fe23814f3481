//! Element types of the language.

use std::fmt;

/// What one element of a tile, slice or scalar is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    /// 4 exponent bits, 3 fraction bits, no infinity.
    F8E4M3,
    /// 5 exponent bits, 2 fraction bits.
    F8E5M2,
    F16,
    BF16,
    F32,
    F64,
}

impl DType {
    pub const ALL: [DType; 15] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// The Rust name, which is also how messages and printed IR write it.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes an element takes in memory; a `bool` takes one.
    pub fn bytes(self) -> u32 {
        match self {
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        self.is_f8() || matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// The 8-bit floats: stored, moved and converted, never computed with.
    pub fn is_f8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// `f16` and `bf16`: stored and moved as they are, computed with in `f32`.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    pub fn is_integer(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    pub fn is_signed(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64) || self.is_float()
    }

    /// The values an integer type holds.
    pub fn range(self) -> (i128, i128) {
        let bits = self.bytes() * 8;
        if self == DType::Bool {
            (0, 1)
        } else if self.is_signed() {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        }
    }

    /// Whether a finite number becomes infinite in this type. The 8-bit floats end at their largest number instead.
    pub fn overflows(self, value: f64) -> bool {
        let infinite = match self {
            DType::F16 => to_f16(value).is_infinite(),
            DType::BF16 => to_bf16(value).is_infinite(),
            DType::F32 => (value as f32).is_infinite(),
            _ => false,
        };
        infinite && value.is_finite()
    }

    /// `value` brought into the type's range as two's complement does it.
    pub fn wrap(self, value: i128) -> i128 {
        let bits = self.bytes() * 8;
        let low = value & ((1i128 << bits) - 1);
        if self.is_signed() && low >> (bits - 1) != 0 { low - (1i128 << bits) } else { low }
    }
}

/// An 8-bit float format: fraction bits, exponent bias, and the largest number.
#[derive(Clone, Copy, Debug)]
pub struct Float8Format {
    pub fraction: u32,
    pub bias: i32,
    pub max: f64,
}

/// The bits of NaN in both formats.
pub const F8_NAN: u8 = 0x7f;

impl Float8Format {
    /// The format of an 8-bit element type.
    pub fn of(dtype: DType) -> Float8Format {
        match dtype {
            DType::F8E5M2 => Float8Format { fraction: 2, bias: 15, max: 57344.0 },
            _ => Float8Format { fraction: 3, bias: 7, max: 448.0 },
        }
    }

    /// The nearest value, ties to even; larger values, infinity included, saturate to the largest one.
    pub fn bits(self, value: f64) -> u8 {
        if value.is_nan() {
            return F8_NAN;
        }
        let magnitude = value.abs().min(self.max);
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        // In units of the last place: at most twice the implied bit, where rounding carries into the exponent.
        let units = (magnitude * 2f64.powi(self.fraction as i32 - exponent)).round_ties_even() as u32;
        let exponent = (exponent + self.bias - 1) as u32;
        (units + (exponent << self.fraction)) as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
    }
}

/// The nearest `f16`, ties to even.
pub fn to_f16(value: f64) -> half::f16 {
    half::f16::from_f32(to_odd(value))
}

/// The nearest `bf16`, ties to even.
pub fn to_bf16(value: f64) -> half::bf16 {
    half::bf16::from_f32(to_odd(value))
}

/// `value` cut to `f32`, the last bit set when anything was lost: rounding that to 16 bits is rounding once. (`half`
/// drops the low bits of an `f64`, and so takes a value just above a tie for the tie.)
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    let cut = if back.abs() > value.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(cut | 1)
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of element types an operation takes or a type parameter is bound by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Float,
    Integer,
    /// Integers and floats.
    Number,
    /// Signed integers and floats.
    Signed,
    /// Integers and `bool`.
    Bits,
    Bool,
    /// Numbers and `bool`: everything that is computed with.
    Computed,
    Any,
}

impl Class {
    pub fn contains(self, dtype: DType) -> bool {
        match self {
            Class::Float => dtype.is_float() && !dtype.is_f8(),
            Class::Integer => dtype.is_integer(),
            Class::Number => dtype != DType::Bool && !dtype.is_f8(),
            Class::Signed => dtype.is_signed() && !dtype.is_f8(),
            Class::Bits => !dtype.is_float(),
            Class::Bool => dtype == DType::Bool,
            Class::Computed => !dtype.is_f8(),
            Class::Any => true,
        }
    }

    pub fn members(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |dtype| self.contains(*dtype))
    }

    /// How a message names the set.
    pub fn describe(self) -> &'static str {
        match self {
            Class::Float => "floats",
            Class::Integer => "integers",
            Class::Number => "numbers",
            Class::Signed => "signed numbers",
            Class::Bits => "integers or bools",
            Class::Bool => "bools",
            Class::Computed => "numbers or bools",
            Class::Any => "any element type",
        }
    }
}
