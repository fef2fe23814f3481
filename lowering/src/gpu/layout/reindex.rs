//! Layouts and coordinates through a [`Reindex`]: from the result's to the operand's and back.

use tile_ir::ir::layout_relation::Reindex;

use super::linear::{Coord, Layout};

impl Coord {
    /// Returns the operand's coordinate of the element that the result has at this one.
    pub fn before_reindex(self, reindex: &Reindex) -> Coord {
        match reindex {
            Reindex::Broadcast { from } => self.clamp(from),
            Reindex::Expand { axis } | Reindex::Join { axis } => self.remove(*axis),
            Reindex::Permute { order } => self.unpermute(order),
            Reindex::Reshape { from, to } => self.reshape(to, from),
        }
    }
}

impl Layout {
    /// Whether threads keep their elements, in the order of their registers, if a tile of this layout is reshaped to one of that.
    pub fn keeps_elements_as(&self, reshaped: &Layout) -> bool {
        self.reshape(reshaped.shape()).as_ref() == Some(reshaped)
    }

    /// The operand's layout for this layout of the result.
    pub fn before_reindex(&self, reindex: &Reindex) -> Option<Layout> {
        match reindex {
            Reindex::Broadcast { from } => Some(self.before_broadcast(from)),
            Reindex::Expand { axis } | Reindex::Join { axis } => Some(self.without(&[*axis])),
            Reindex::Permute { order } => {
                let inverse: Vec<usize> =
                    (0..order.len()).filter_map(|axis| order.iter().position(|&from| from == axis)).collect();
                Some(self.permute(&inverse))
            }
            Reindex::Reshape { from, .. } => self.reshape(from),
        }
    }

    /// The result's layout for this layout of the operand; `None` where the result has elements that the operand lacks.
    pub(super) fn after_reindex(&self, reindex: &Reindex) -> Option<Layout> {
        match reindex {
            Reindex::Broadcast { .. } => None,
            Reindex::Expand { axis } => Some(self.expand(*axis)),
            Reindex::Join { axis } => Some(self.join(*axis)),
            Reindex::Permute { order } => Some(self.permute(order)),
            Reindex::Reshape { to, .. } => self.reshape(to),
        }
    }
}
