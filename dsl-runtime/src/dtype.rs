//! Element types of tiles, slices and scalar arguments.
//!
//! [`Element`] ties a Rust type to its [`DType`]; [`Number`], [`Integer`] and [`Float`] narrow it. All four are sealed:
//! the set of types is the language's, not the user's.

use std::fmt;

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};
pub use half::{bf16, f16};

pub use crate::f8::{f8e4m3, f8e5m2};

/// The type of an element, as data: what a variant declares and an artifact records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DType {
    /// `bool`: one byte, 0 or 1.
    Bool,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// [`f8e4m3`]: 4 exponent bits, 3 fraction bits, no infinity, numbers up to 448.
    F8E4M3,
    /// [`f8e5m2`]: 5 exponent bits, 2 fraction bits, numbers up to 57344.
    F8E5M2,
    /// IEEE half precision: 5 exponent bits, 10 fraction bits.
    F16,
    /// The upper half of an `f32`: 8 exponent bits, 7 fraction bits.
    BF16,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

impl DType {
    /// Every type, in the order declared.
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

    /// The name as Rust writes it.
    pub const fn name(self) -> &'static str {
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

    /// The size of an element in memory, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Whether it is one of the eight integer types; `bool` is not.
    pub const fn is_integer(self) -> bool {
        !matches!(self, DType::Bool) && !self.is_float()
    }

    /// Whether it is `f16`, `bf16`, `f32`, `f64`, or one of the 8-bit floats.
    pub const fn is_float(self) -> bool {
        self.is_f8() || matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether it is `f8e4m3` or `f8e5m2`, which kernels store and convert but do not compute with.
    pub const fn is_f8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// The integer that a scalar argument's bits stand for; a `bool` is 0 or 1, a float is none.
    pub(crate) const fn integer(self, bits: u64) -> Option<i128> {
        Some(match self {
            DType::Bool | DType::U8 => bits as u8 as i128,
            DType::U16 => bits as u16 as i128,
            DType::U32 => bits as u32 as i128,
            DType::U64 => bits as i128,
            DType::I8 => bits as i8 as i128,
            DType::I16 => bits as i16 as i128,
            DType::I32 => bits as i32 as i128,
            DType::I64 => bits as i64 as i128,
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
                return None;
            }
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait SealedElement {}
}

/// A Rust type that kernels can load, store and take by value.
///
/// All bits zero is its default value, and it has no padding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of kernels",
    label = "not an element type",
    note = "element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64"
)]
pub trait Element:
    sealed::SealedElement
    + Copy
    + Send
    + Sync
    + Default
    + PartialEq
    + fmt::Debug
    + DeviceRepr
    + ValidAsZeroBits
    + 'static
{
    /// The same type as data.
    const DTYPE: DType;

    /// The bits of the value in the low bytes, zeros above: how a scalar argument travels.
    fn bits(self) -> u64;

    /// The nearest `f64`; exact except for 64-bit integers beyond 2^53. `true` is 1.
    fn to_f64(self) -> f64;

    /// The nearest value: floats round to nearest, ties to even, 8-bit ones saturating; integers round towards zero and saturate, and take NaN
    /// as 0; a `bool` is whether the value is not zero.
    fn from_f64(value: f64) -> Self;
}

/// An element that arithmetic works on: everything but `bool` and the 8-bit floats.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number that kernels compute with",
    label = "not a number of kernels",
    note = "numbers are i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 and f64"
)]
pub trait Number: Element + PartialOrd {}

/// `i8` to `i64` and `u8` to `u64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer that kernels compute with",
    label = "not an integer of kernels",
    note = "integers are i8, i16, i32, i64, u8, u16, u32 and u64"
)]
pub trait Integer: Number + Eq + Ord + std::hash::Hash {}

/// `f16`, `bf16`, `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float that kernels compute with",
    label = "not a float of kernels",
    note = "floats are f16, bf16, f32 and f64"
)]
pub trait Float: Number {}

macro_rules! elements {
    ($trait:ident: $($type:ty = $dtype:ident, $bits:expr, $to:expr, $from:expr;)*) => {$(
        impl sealed::SealedElement for $type {}
        #[diagnostic::do_not_recommend]
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn bits(self) -> u64 {
                let bits: fn($type) -> u64 = $bits;
                bits(self)
            }

            fn to_f64(self) -> f64 {
                let to: fn($type) -> f64 = $to;
                to(self)
            }

            fn from_f64(value: f64) -> Self {
                let from: fn(f64) -> $type = $from;
                from(value)
            }
        }
        #[diagnostic::do_not_recommend]
        impl Number for $type {}
        #[diagnostic::do_not_recommend]
        impl $trait for $type {}
    )*};
}

elements! { Integer:
    i8 = I8, |v| v as u8 as u64, |v| v as f64, |v| v as i8;
    i16 = I16, |v| v as u16 as u64, |v| v as f64, |v| v as i16;
    i32 = I32, |v| v as u32 as u64, |v| v as f64, |v| v as i32;
    i64 = I64, |v| v as u64, |v| v as f64, |v| v as i64;
    u8 = U8, |v| v as u64, |v| v as f64, |v| v as u8;
    u16 = U16, |v| v as u64, |v| v as f64, |v| v as u16;
    u32 = U32, |v| v as u64, |v| v as f64, |v| v as u32;
    u64 = U64, |v| v, |v| v as f64, |v| v as u64;
}

/// `value` cut to `f32`, the last bit set when anything was lost: rounding that to 16 bits is rounding once, which the
/// conversions of `half` from `f64` are not.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    let cut = if back.abs() > value.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(cut | 1)
}

elements! { Float:
    f16 = F16, |v| v.to_bits() as u64, f16::to_f64, |v| f16::from_f32(to_odd(v));
    bf16 = BF16, |v| v.to_bits() as u64, bf16::to_f64, |v| bf16::from_f32(to_odd(v));
    f32 = F32, |v| v.to_bits() as u64, |v| v as f64, |v| v as f32;
    f64 = F64, f64::to_bits, |v| v, |v| v;
}

macro_rules! narrow_floats {
    ($($type:ident = $dtype:ident;)*) => {$(
        impl sealed::SealedElement for $type {}
        #[diagnostic::do_not_recommend]
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn bits(self) -> u64 {
                self.to_bits() as u64
            }

            fn to_f64(self) -> f64 {
                f64::from(self.to_f32())
            }

            fn from_f64(value: f64) -> Self {
                $type::from_f32(to_odd(value))
            }
        }
    )*};
}

narrow_floats! {
    f8e4m3 = F8E4M3;
    f8e5m2 = F8E5M2;
}

impl sealed::SealedElement for bool {}
#[diagnostic::do_not_recommend]
impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn bits(self) -> u64 {
        self as u64
    }

    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }

    fn from_f64(value: f64) -> Self {
        value != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(name: &str) {
        assert_eq!(T::DTYPE.name(), name);
        assert_eq!(T::DTYPE.bytes(), size_of::<T>(), "{name}");
        assert_eq!(T::default().bits(), 0, "{name}");
        assert_eq!(T::from_f64(1.0).to_f64(), 1.0, "{name}");
        if let Some(one) = T::DTYPE.integer(T::from_f64(1.0).bits()) {
            assert_eq!(one, 1, "{name}");
        }
    }

    #[test]
    fn every_element_agrees_with_its_dtype() {
        check::<bool>("bool");
        check::<i8>("i8");
        check::<i16>("i16");
        check::<i32>("i32");
        check::<i64>("i64");
        check::<u8>("u8");
        check::<u16>("u16");
        check::<u32>("u32");
        check::<u64>("u64");
        check::<f8e4m3>("f8e4m3");
        check::<f8e5m2>("f8e5m2");
        check::<f16>("f16");
        check::<bf16>("bf16");
        check::<f32>("f32");
        check::<f64>("f64");
        assert_eq!(DType::ALL.len(), 15);
    }

    #[test]
    fn negative_scalars_keep_their_sign() {
        assert_eq!(DType::I8.integer((-3i8).bits()), Some(-3));
        assert_eq!(DType::I32.integer(i32::MIN.bits()), Some(i32::MIN as i128));
        assert_eq!(DType::I64.integer((-1i64).bits()), Some(-1));
        assert_eq!(DType::U64.integer(u64::MAX.bits()), Some(u64::MAX as i128));
        assert_eq!(DType::F32.integer(1.0f32.bits()), None);
        assert_eq!((-1i16).bits(), 0xffff);
    }

    #[test]
    fn conversion_from_f64_rounds_and_saturates() {
        assert_eq!(u8::from_f64(-2.0), 0);
        assert_eq!(i8::from_f64(1e9), 127);
        assert_eq!(i32::from_f64(f64::NAN), 0);
        assert_eq!(<bf16 as Element>::from_f64(1.0 + 1.0 / 512.0).to_f64(), 1.0);
        assert_eq!(<f16 as Element>::from_f64(1e6), f16::INFINITY);
        let tie = 1.0 + 1.0 / 2048.0f64;
        assert_eq!(<f16 as Element>::from_f64(tie).to_f64(), 1.0);
        assert_eq!(<f16 as Element>::from_f64(tie.next_up()).to_f64(), 1.0 + 1.0 / 1024.0);
    }
}
