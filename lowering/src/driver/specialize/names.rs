//! What bodies are called.

/// What bodies for an order of the factors of a product are called: `tn` has the first one by columns, `nt` the second.
#[derive(Clone, Copy)]
pub(super) struct SpecializationNames {
    pub(super) tensor: &'static str,
    /// Of results that begin anywhere.
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

/// What bodies of products that move a part of their accesses element by element are called.
#[derive(Clone, Copy)]
pub(super) struct ScalarNames {
    /// What is around the loops.
    pub(super) epilogue: &'static str,
    /// And one of two operands.
    pub(super) operands: [&'static str; 2],
}

/// What the bodies for a set of strides that are 1 are called.
pub(super) struct UnitStrides {
    /// Of rows that begin at multiples of a vector.
    pub(super) aligned: &'static str,
    pub(super) scalar: ScalarNames,
    /// Of rows that begin anywhere.
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

/// Bodies of the same kind, for different strides that are 1.
pub(super) const UNIT_STRIDES: [UnitStrides; 4] =
    unit_strides!["unit_strides", "unit_strides_2", "unit_strides_3", "unit_strides_4"];
