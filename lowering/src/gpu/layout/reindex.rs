//! Layouts through a [`Reindex`]: from the result's to the operand's and back.

use super::linear::Layout;
use crate::ir::layout_relation::Reindex;

impl Reindex {
    /// The operand's layout for this layout of the result.
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

    /// The result's layout for this layout of the operand; `None` where the result has elements that the operand lacks.
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
