//! [`TensorType`]: the shape and the element type of a tensor.

use std::fmt;

use serde::Serialize;

use crate::dtype::DType;

/// The shape and the element type of a tensor. A shape without extents is a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorType {
    /// The extents, the slowest first.
    pub shape: Vec<u64>,
    /// The type of an element.
    pub dtype: DType,
}

impl TensorType {
    /// A tensor of this shape and type.
    pub fn new(shape: impl Into<Vec<u64>>, dtype: DType) -> TensorType {
        TensorType { shape: shape.into(), dtype }
    }

    /// How many elements there are: 0 where an extent is 0, 1 where there are no extents.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }

    /// The last extent, the length of a row; 1 where there are none.
    pub fn row_len(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The bytes, unless they are beyond 64 bits.
    pub(crate) fn checked_bytes(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(self.dtype.bytes(), |bytes, &extent| bytes.checked_mul(extent))
    }

    pub(crate) fn shape_text(&self) -> String {
        let extents = self.shape.iter().map(u64::to_string).collect::<Vec<_>>();
        format!("[{}]", extents.join(", "))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape_text(), self.dtype)
    }
}
