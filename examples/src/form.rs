//! Whether operations are fused or separate kernels, and what either costs.

use std::ops::Add;

use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::shape::Checks;

/// One kernel, or one for each operation. Functions that have both choose by measurement, and say which in a line of
/// `FUSE_TRACE=1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One kernel: intermediates stay on the chip.
    Fused,
    /// A kernel for each operation, with memory between them.
    Separate,
}

/// Refuses the fused form of an operation on `f32`.
pub(crate) fn check_fused<T: LibraryFloat>(checks: Checks) -> Result<()> {
    match T::DTYPE {
        DType::F32 => Err(checks.error("there is no fused form of f32, only of f16 and bf16".to_string())),
        _ => Ok(()),
    }
}

/// What a chain of operations costs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Kernels that are launched.
    pub launches: usize,
    /// Bytes that are read and written, each operand of a kernel once.
    pub bytes: usize,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost { launches: self.launches + other.launches, bytes: self.bytes + other.bytes }
    }
}

impl Cost {
    /// One kernel that moves so many elements of `size` bytes.
    pub(crate) const fn of(size: usize, elements: usize) -> Cost {
        Cost { launches: 1, bytes: size * elements }
    }
}
