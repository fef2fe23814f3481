//! What bodies take for granted of views.

use crate::ir::guard::Guard;
use crate::ir::{Func, ParamId, Value};
use crate::transform::unit_stride::assume_unit_strides;

/// Lets neighbours along the last axis of every view be neighbours in memory, as far as blocks have neighbours there; gives
/// the facts that say so.
pub fn assume_contiguous(func: &mut Func) -> Vec<Guard> {
    let strides = inner_strides(func);
    assume_unit_strides(func, &strides)
}

/// The stride of the last axis of each view that is accessed in blocks of several elements along it.
pub fn inner_strides(func: &Func) -> Vec<Value> {
    let mut wide: Vec<ParamId> = vec![];
    func.body.walk(&mut |op| {
        if let Some(window) = op.kind.operation().window()
            && window.extents.last().is_some_and(|&extent| extent > 1)
            && !wide.contains(&window.memory)
        {
            wide.push(window.memory);
        }
    });
    let views = func.views.iter().filter(|view| wide.contains(&view.memory));
    views.filter_map(|view| view.strides.last().copied()).collect()
}
