//! What a kernel's author assumes of arguments with `tl::assume`: about one integer argument, or the grid.

use super::guard::{Guard, Symbol, SymbolicSum};

/// What is assumed of an integer argument, by its position, or of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assumption {
    /// It is a multiple of a power of two.
    Multiple(u32, u32),
    AtLeast(u32, i64),
    AtMost(u32, i64),
    /// The most programs along an axis of the grid.
    Programs(u8, i64),
}

impl Assumption {
    /// The guard that the launcher checks.
    pub fn guard(&self) -> Guard {
        let constant =
            |value: i64| SymbolicSum { terms: if value == 0 { vec![] } else { vec![(value, vec![])] } };
        let symbol = |symbol: Symbol| SymbolicSum { terms: vec![(1, vec![symbol])] };
        let at_most = |low, high| Guard::AtMost { low, high };
        match *self {
            Assumption::Multiple(scalar, by) => Guard::Divisible { value: Symbol::Scalar(scalar), by },
            Assumption::AtLeast(scalar, low) => at_most(constant(low), symbol(Symbol::Scalar(scalar))),
            Assumption::AtMost(scalar, high) => at_most(symbol(Symbol::Scalar(scalar)), constant(high)),
            Assumption::Programs(axis, most) => at_most(symbol(Symbol::Grid(axis)), constant(most)),
        }
    }
}
