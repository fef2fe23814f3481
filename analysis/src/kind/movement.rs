//! What moves elements or looks at them by another shape, and computes nothing.

use super::declaration::{Kind, Operands, Pattern};
use super::shapes::{self, count};
use crate::graph::TensorType;

/// Views and gathers. A view costs nothing, unless its parameter `materialize` says that it is copied where it is not fused.
pub(super) static KINDS: &[Kind] = &[
    Kind::new("split", "parts of rows; sizes, materialize", Pattern::View, shapes::parts),
    Kind::new("reshape", "another shape; sizes, materialize", Pattern::View, shapes::reshaped)
        .also(&["view"]),
    Kind::new("transpose", "the last two extents exchanged; materialize", Pattern::View, shapes::transposed),
    Kind::new("embedding", "table[ids]", Pattern::Gather, rows_of_a_table).live(5).gathering(),
];

fn rows_of_a_table(operands: &Operands<'_>, _: usize) -> Result<Vec<TensorType>, String> {
    count(operands, 2, 2)?;
    let ((name, table), (_, ids)) = (operands.inputs[0], operands.inputs[1]);
    let [_, width] = table.shape[..] else {
        return Err(format!("`{name}` is {table}: a table of rows is needed"));
    };
    Ok(vec![TensorType::new([&ids.shape[..], &[width]].concat(), table.dtype)])
}
