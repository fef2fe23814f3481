//! The axes of specialization: what a body of a variant takes for granted of its arguments, one value on each axis.

use std::fmt;

use tile_ir::ir::ParamId;
use tile_ir::ops::DotOperand;

/// One value on each axis. It prints as the name of the specialization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axes {
    pub operands: OperandOrder,
    pub strides: UnitStrides,
    pub iterations: Iterations,
    pub programs: Programs,
    pub dots: DotsBy,
    pub movement: Movement,
}

/// The axes along which the operands of a dot by views are contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OperandOrder {
    #[default]
    Rows,
    /// Operand A is column-major.
    Tn,
    /// Operand B is column-major.
    Nt,
    Tt,
}

impl OperandOrder {
    /// All orders, those of `transpose_operands` after the one of rows.
    pub const ALL: [OperandOrder; 4] =
        [OperandOrder::Rows, OperandOrder::Tn, OperandOrder::Nt, OperandOrder::Tt];

    fn suffix(self) -> &'static str {
        match self {
            OperandOrder::Rows => "",
            OperandOrder::Tn => "_tn",
            OperandOrder::Nt => "_nt",
            OperandOrder::Tt => "_tt",
        }
    }
}

/// Which strides of pointers are 1.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum UnitStrides {
    #[default]
    Any,
    /// Those of one of the sets that [`unit_strides`](tile_ir::transform::unit_stride::unit_strides) finds, by its number.
    Set(usize),
}

/// How often loops over a row run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Iterations {
    #[default]
    Any,
    Single,
}

/// How many programs a launch has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Programs {
    #[default]
    Any,
    /// So many that they hide each other's latency.
    Many,
}

/// Who multiplies the tiles that threads copy to shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DotsBy {
    #[default]
    Warps,
    Warpgroups,
}

/// How tiles move between memory and registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Movement {
    /// Operands of dots by TMA.
    Tensor(DotResults),
    /// These accesses in vectors of whole rows that begin at multiples of a vector.
    Vectors(Widened),
    /// Rows begin anywhere, and are rotated to whole vectors.
    Rotated,
    /// Rows begin anywhere; elements move one by one.
    Elements,
    /// Element by element, each compared with the length of its slice: no guard holds.
    Checked,
}

/// How the results of dots by TMA are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DotResults {
    /// By TMA.
    Tma,
    Vectors,
    /// Element by element: their rows may begin anywhere.
    Elements,
}

/// The accesses that guards widen to vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widened {
    All,
    /// All; and divisors of tiles are such multiples that neighboring elements share quotients.
    AndQuotients,
    /// Those whose rows begin at multiples of a vector for any arguments, as rows of a constant extent do.
    ForAnyArguments,
    /// Those in loops with dots.
    InDotLoops,
    /// Those of one of two operands in such loops, A or B.
    OfOperand(DotOperand, ParamId),
}

impl Axes {
    /// Moves tiles as given, and assumes nothing on the other axes.
    pub const fn moving(movement: Movement) -> Axes {
        Axes {
            operands: OperandOrder::Rows,
            strides: UnitStrides::Any,
            iterations: Iterations::Any,
            programs: Programs::Any,
            dots: DotsBy::Warps,
            movement,
        }
    }

    /// Whether a launch checks guards.
    pub fn is_guarded(&self) -> bool {
        self.movement != Movement::Checked
    }

    pub fn uses_tma(&self) -> bool {
        matches!(self.movement, Movement::Tensor(_))
    }

    /// Whether warpgroups multiply what threads copy.
    pub fn copies_for_wgmma(&self) -> bool {
        self.dots == DotsBy::Warpgroups
    }

    /// The accesses that guards widen to vectors, if any.
    pub fn widened(&self) -> Option<Widened> {
        match self.movement {
            Movement::Vectors(widened) => Some(widened),
            Movement::Tensor(DotResults::Tma | DotResults::Vectors) => Some(Widened::All),
            Movement::Tensor(DotResults::Elements)
            | Movement::Rotated
            | Movement::Elements
            | Movement::Checked => None,
        }
    }

    pub fn has_vectors(&self) -> bool {
        self.widened().is_some()
    }

    /// Whether threads move vectors, operands of dots as well.
    pub fn moves_vectors(&self) -> bool {
        matches!(self.movement, Movement::Vectors(_))
    }

    /// Whether rows may begin anywhere.
    pub fn is_unaligned(&self) -> bool {
        self.is_guarded() && !self.has_vectors()
    }
}

impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.operands.suffix();
        let moved = match self.movement {
            Movement::Tensor(results) => {
                let odd = if results == DotResults::Elements { "_odd" } else { "" };
                write!(f, "tensor{order}{odd}")?;
                return match self.strides {
                    UnitStrides::Any => Ok(()),
                    UnitStrides::Set(set) => write!(f, "_unit_strides_{}", set + 1),
                };
            }
            Movement::Checked => return f.write_str("general"),
            Movement::Vectors(Widened::All) => "aligned",
            Movement::Vectors(Widened::AndQuotients) => "aligned_quotients",
            Movement::Vectors(Widened::ForAnyArguments) => "partly_aligned",
            Movement::Vectors(Widened::InDotLoops) => "scalar_epilogue",
            Movement::Vectors(Widened::OfOperand(DotOperand::A, _)) => "scalar_b",
            Movement::Vectors(Widened::OfOperand(DotOperand::B, _)) => "scalar_a",
            Movement::Rotated => "unaligned",
            Movement::Elements => "odd",
        };
        let strides = match self.strides {
            UnitStrides::Any => None,
            UnitStrides::Set(0) => Some("unit_strides".to_string()),
            UnitStrides::Set(set) => Some(format!("unit_strides_{}", set + 1)),
        };
        let iterations = (self.iterations == Iterations::Single).then(|| "single_iteration".to_string());
        let programs = (self.programs == Programs::Many).then(|| "many".to_string());
        let mut parts: Vec<String> = [strides, iterations, programs].into_iter().flatten().collect();
        // Rows are aligned where nothing else is said.
        if parts.is_empty() || moved != "aligned" {
            parts.push(moved.to_string());
        }
        parts.extend(self.copies_for_wgmma().then(|| "wgmma".to_string()));
        write!(f, "{}{order}", parts.join("_"))
    }
}
