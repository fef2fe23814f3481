//! Names of specializations.

/// Names for an order of the operands of a dot: `tn` has A column-major, `nt` B.
#[derive(Clone, Copy)]
pub(super) struct SpecializationNames {
    pub(super) tensor: &'static str,
    /// For results with unaligned rows.
    pub(super) tensor_odd: &'static str,
    pub(super) aligned: &'static str,
    pub(super) scalar: ScalarNames,
    pub(super) odd: &'static str,
}

macro_rules! orders {
    ($($suffix:literal),*) => {
        [$(SpecializationNames {
            tensor: concat!("tensor", $suffix),
            tensor_odd: concat!("tensor", $suffix, "_odd"),
            aligned: concat!("aligned", $suffix),
            scalar: ScalarNames {
                epilogue: concat!("scalar_epilogue", $suffix),
                operands: [concat!("scalar_b", $suffix), concat!("scalar_a", $suffix)],
            },
            odd: concat!("odd", $suffix),
        }),*]
    };
}

/// One for each order.
pub(super) const ORDERS: [SpecializationNames; 4] = orders!["", "_tn", "_nt", "_tt"];

/// Names for dots that move a part of their accesses element by element.
#[derive(Clone, Copy)]
pub(super) struct ScalarNames {
    /// Accesses outside of the loops.
    pub(super) epilogue: &'static str,
    /// And those of one of two operands.
    pub(super) operands: [&'static str; 2],
}

/// Names for a set of strides that are 1.
pub(super) struct UnitStrides {
    /// For aligned rows.
    pub(super) aligned: &'static str,
    pub(super) scalar: ScalarNames,
    /// For unaligned rows.
    pub(super) odd: &'static str,
}

macro_rules! unit_strides {
    ($($name:literal),*) => {
        [$(UnitStrides {
            aligned: $name,
            scalar: ScalarNames {
                epilogue: concat!($name, "_scalar_epilogue"),
                operands: [concat!($name, "_scalar_b"), concat!($name, "_scalar_a")],
            },
            odd: concat!($name, "_odd"),
        }),*]
    };
}

/// Specializations of the same kind, for different strides that are 1.
pub(super) const UNIT_STRIDES: [UnitStrides; 4] =
    unit_strides!["unit_strides", "unit_strides_2", "unit_strides_3", "unit_strides_4"];
