//! The target of code, as far as a single operation depends on it, and the machine types of its elements.

use tile_ir::support::dtype::DType;

use super::types::{Elem, Ty};

/// The target of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// An NVIDIA GPU thread.
    Nvptx,
    Host(Vectors),
}

/// The vector extensions of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// Those of every CPU of the family.
    Baseline,
    /// With conversion of half precision and fused multiply-add.
    Fused,
    /// And with 32 registers of 64 bytes.
    Wide,
}

/// The register type of an element of `dtype`.
pub fn elem(dtype: DType, machine: Machine) -> Elem {
    match (dtype, machine) {
        (DType::Bool, _) => Elem::I1,
        (DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2, _) => Elem::I8,
        (DType::I16 | DType::U16, _) => Elem::I16,
        (DType::I32 | DType::U32, _) => Elem::I32,
        (DType::I64 | DType::U64, _) => Elem::I64,
        (DType::F16, Machine::Nvptx) => Elem::F16,
        (DType::BF16, Machine::Nvptx) => Elem::BF16,
        (DType::F16 | DType::BF16, Machine::Host(_)) => Elem::I16,
        (DType::F32, _) => Elem::F32,
        (DType::F64, _) => Elem::F64,
    }
}

/// The machine type of scalars of `dtype`.
pub fn scalar(dtype: DType, machine: Machine) -> Ty {
    Ty::scalar(elem(dtype, machine))
}
