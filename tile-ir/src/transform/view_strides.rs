//! Views whose last axis a specialization takes for contiguous.

use crate::ir::guard::Guard;
use crate::ir::{Func, ParamId, Value};
use crate::transform::unit_stride::assume_unit_strides;

/// Takes the last axis of every view for contiguous (stride 1) where blocks have several elements along it; returns the guards
/// that say so.
pub fn assume_contiguous(func: &mut Func) -> Vec<Guard> {
    let strides = inner_strides(func);
    assume_unit_strides(func, &strides)
}

/// The stride of the last axis of each view that is accessed in blocks of several elements along it.
pub fn inner_strides(func: &Func) -> Vec<Value> {
    let mut vectorized: Vec<ParamId> = vec![];
    func.body.walk(&mut |op| {
        if let Some(tile) = op.kind.operation().view_tile()
            && tile.extents.last().is_some_and(|&extent| extent > 1)
            && !vectorized.contains(&tile.memory)
        {
            vectorized.push(tile.memory);
        }
    });
    let views = func.views.iter().filter(|view| vectorized.contains(&view.memory));
    views.filter_map(|view| view.strides.last().copied()).collect()
}
