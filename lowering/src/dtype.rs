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
    F16,
    BF16,
    F32,
    F64,
}

impl DType {
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
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
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
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

    /// `value` brought into the type's range as two's complement does it.
    pub fn wrap(self, value: i128) -> i128 {
        let bits = self.bytes() * 8;
        let low = value & ((1i128 << bits) - 1);
        if self.is_signed() && low >> (bits - 1) != 0 { low - (1i128 << bits) } else { low }
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
/// drops the low bits of an `f64`, and so takes what lies just above a tie for the tie.)
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
    Any,
}

impl Class {
    pub fn contains(self, dtype: DType) -> bool {
        match self {
            Class::Float => dtype.is_float(),
            Class::Integer => dtype.is_integer(),
            Class::Number => dtype != DType::Bool,
            Class::Signed => dtype.is_signed(),
            Class::Bits => !dtype.is_float(),
            Class::Bool => dtype == DType::Bool,
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
            Class::Any => "any element type",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{to_bf16, to_f16};

    #[test]
    fn what_lies_beside_a_tie_rounds_to_its_own_side() {
        let tie = 1.0 + f64::from(half::f16::EPSILON) / 2.0;
        assert_eq!(
            [tie.next_down(), tie, tie.next_up()].map(|v| to_f16(v).to_bits()),
            [0x3c00, 0x3c00, 0x3c01]
        );
        let tie = 1.0 + f64::from(half::bf16::EPSILON) / 2.0;
        assert_eq!(
            [tie.next_down(), tie, -tie.next_up()].map(|v| to_bf16(v).to_bits()),
            [0x3f80, 0x3f80, 0xbf81]
        );
        assert_eq!([65519.99, 65520.0, 1e300].map(|v| to_f16(v).to_bits()), [0x7bff, 0x7c00, 0x7c00]);
        assert_eq!(
            [2f64.powi(-25), 2f64.powi(-25).next_up(), -1e-300].map(|v| to_f16(v).to_bits()),
            [0, 1, 0x8000]
        );
    }
}
