//! What an operation says of its operands' layouts: how operand and result are laid out relative to each other.
//!
//! Layouts themselves are the matter of `gpu/layout`, which solves these relations.

use super::{Shape, Value};

/// How an operation's tile operands and results lie relative to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutRelation {
    /// A result made of scalars or of nothing: it can be had in any layout.
    Source,
    /// All tiles lie alike. A cheap operation may be repeated in another layout.
    Lanewise { cheap: bool },
    /// The result holds the operands' elements at other coordinates.
    View(Reindex),
    /// Results lie as the operands do with some axes gone.
    Reduce { axes: Vec<usize> },
    /// The result lies as the accumulator, in a way that suits the multiplication; factors lie anyhow.
    Dot { acc: Option<Value> },
    /// Groups of values that lie alike; other operands lie anyhow.
    Tied(Vec<Vec<Value>>),
    /// The operand lies as the product of groups of warps does.
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
    /// A new axis of extent 2, one place for each of two operands.
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
