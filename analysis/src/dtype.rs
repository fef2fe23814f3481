//! The types of elements.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// 8 bits with 4 of exponent and 3 of mantissa.
    F8e4m3,
    /// Signed 8-bit integers.
    I8,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
}

impl DType {
    /// Every type, in the order of the declaration.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F16, DType::Bf16, DType::F8e4m3, DType::I8, DType::I32, DType::I64];

    /// The bytes of an element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F8e4m3 | DType::I8 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }

    /// As it is written in model files.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8e4m3 => "f8e4m3",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(name: &str) -> Result<DType, String> {
        let known = DType::ALL.map(DType::name);
        let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
        found.ok_or_else(|| format!("no element type `{name}`: there are {}", known.join(", ")))
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
