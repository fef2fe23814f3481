//! Layout relations: constraints between the layouts of an operation's operands and results. `gpu/layout` solves them.

use super::{Shape, Value};

/// How the layouts of an operation's tile operands and results relate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutRelation {
    /// A result computed from scalars or from nothing: it can have any layout.
    Source,
    /// All tiles have one layout. A cheap operation may be rematerialized in another one.
    Lanewise { cheap: bool },
    /// The result has the operands' elements at other coordinates.
    View(Reindex),
    /// Results have the operands' layout without some axes.
    Reduce { axes: Vec<usize> },
    /// The result has the operand's layout without an axis, which a thread's registers hold as far as there are enough.
    Index { axis: usize },
    /// The result has the accumulator's layout, one of the mma; operands A and B have any.
    Dot { acc: Option<Value> },
    /// Groups of values with one layout each; other operands have any.
    Tied(Vec<Vec<Value>>),
    /// The operand has the layout of a warpgroup dot's result.
    WarpGroup { transposed: bool },
    /// Operand and result are unrelated.
    Free,
}

/// A change of coordinates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reindex {
    Broadcast {
        from: Shape,
    },
    Expand {
        axis: usize,
    },
    /// A new axis of extent 2, one index for each of two operands.
    Join {
        axis: usize,
    },
    Permute {
        order: Vec<usize>,
    },
    Reshape {
        from: Shape,
        to: Shape,
    },
}

impl Reindex {
    /// Whether the operand's layout follows from any layout of the result.
    pub fn is_invertible(&self) -> bool {
        !matches!(self, Reindex::Reshape { .. })
    }
}
