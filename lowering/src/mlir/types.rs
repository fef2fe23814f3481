//! The machine types of emission: a scalar or a small vector of one element type.

use std::fmt;

/// An address space of the NVPTX back end; the host has only `Generic`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    Generic,
    Global,
    Shared,
    /// The shared memory of every block of a cluster.
    Cluster,
}

/// What one lane of a machine value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    Ptr(Space),
}

impl Elem {
    /// Bits a lane takes in a register; `i1` counts one.
    pub fn bits(self) -> u32 {
        match self {
            Elem::I1 => 1,
            Elem::I8 => 8,
            Elem::I16 | Elem::F16 | Elem::BF16 => 16,
            Elem::I32 | Elem::F32 => 32,
            Elem::I64 | Elem::F64 | Elem::Ptr(_) => 64,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Elem::F16 | Elem::BF16 | Elem::F32 | Elem::F64)
    }

    /// The integer element as wide as this one.
    pub fn as_int(self) -> Elem {
        match self.bits() {
            1 => Elem::I1,
            8 => Elem::I8,
            16 => Elem::I16,
            32 => Elem::I32,
            _ => Elem::I64,
        }
    }
}

/// A machine type: `lanes == 0` is a scalar, otherwise a vector of that many lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ty {
    pub elem: Elem,
    pub lanes: u16,
}

impl Ty {
    pub const I1: Ty = Ty::scalar(Elem::I1);
    pub const I8: Ty = Ty::scalar(Elem::I8);
    pub const I16: Ty = Ty::scalar(Elem::I16);
    pub const I32: Ty = Ty::scalar(Elem::I32);
    pub const I64: Ty = Ty::scalar(Elem::I64);
    pub const F32: Ty = Ty::scalar(Elem::F32);
    pub const F64: Ty = Ty::scalar(Elem::F64);

    pub const fn scalar(elem: Elem) -> Ty {
        Ty { elem, lanes: 0 }
    }

    pub const fn vector(elem: Elem, lanes: u16) -> Ty {
        Ty { elem, lanes }
    }

    /// The same lanes with another element.
    pub fn with(self, elem: Elem) -> Ty {
        Ty { elem, ..self }
    }

    pub fn is_vector(self) -> bool {
        self.lanes != 0
    }

    /// Lanes, a scalar counting as one.
    pub fn width(self) -> u16 {
        self.lanes.max(1)
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elem = match self.elem {
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::F16 => "f16",
            Elem::BF16 => "bf16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
            Elem::Ptr(Space::Generic) => "!llvm.ptr",
            Elem::Ptr(Space::Global) => "!llvm.ptr<1>",
            Elem::Ptr(Space::Shared) => "!llvm.ptr<3>",
            Elem::Ptr(Space::Cluster) => "!llvm.ptr<7>",
        };
        if self.is_vector() { write!(f, "vector<{}x{elem}>", self.lanes) } else { f.write_str(elem) }
    }
}
