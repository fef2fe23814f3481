//! The same elements at other coordinates: how operand and result lie relative to each other.

use super::linear::Layout;
use crate::ir::layout_relation::Reindex;

impl Reindex {
    /// How the operand must lie for the result to lie as `result`.
    pub fn operand(&self, result: &Layout) -> Option<Layout> {
        match self {
            Reindex::Broadcast { from } => Some(result.before_broadcast(from)),
            Reindex::Expand { axis } | Reindex::Join { axis } => Some(result.without(&[*axis])),
            Reindex::Permute { order } => {
                let inverse: Vec<usize> =
                    (0..order.len()).filter_map(|axis| order.iter().position(|&from| from == axis)).collect();
                Some(result.permute(&inverse))
            }
            Reindex::Reshape { from, .. } => result.reshape(from),
        }
    }

    /// How the result lies when the operand lies as `operand`; `None` where the result has elements of its own to place.
    pub(super) fn result(&self, operand: &Layout) -> Option<Layout> {
        match self {
            Reindex::Broadcast { .. } => None,
            Reindex::Expand { axis } => Some(operand.expand(*axis)),
            Reindex::Join { axis } => Some(operand.join(*axis)),
            Reindex::Permute { order } => Some(operand.permute(order)),
            Reindex::Reshape { to, .. } => operand.reshape(to),
        }
    }

    /// Whether the operand's layout follows from any layout of the result.
    pub(super) fn is_invertible(&self) -> bool {
        !matches!(self, Reindex::Reshape { .. })
    }
}
