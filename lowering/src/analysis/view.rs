//! What bodies take for granted of views.

use super::fact::Fact;
use crate::dtype::DType;
use crate::ops::{Constant, Number};
use crate::tile::{Func, Op, ParamId, ParamKind, Type, Value, substitute};

/// Lets neighbours along the last axis of every view be neighbours in memory, as far as blocks have neighbours there; gives
/// the facts that say so.
pub fn contiguous(func: &mut Func) -> Vec<Fact> {
    let strides = inner_strides(func);
    let facts = strides.iter().filter_map(|&stride| fact(func, stride)).collect();
    if !strides.is_empty() {
        let one = func.value(Type::scalar(DType::I64));
        let kind = Constant { value: Number::Int(1) }.into();
        func.body.ops.insert(0, Op { kind, results: vec![one], loc: func.loc });
        for stride in strides {
            substitute(func, stride, one);
        }
    }
    facts
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

fn fact(func: &Func, stride: Value) -> Option<Fact> {
    let is_own = |kind: &ParamKind| matches!(kind, ParamKind::Scalar { value, .. } if *value == stride);
    let position = func.params.iter().position(|param| is_own(&param.kind))?;
    Some(Fact::Equal { scalar: position as u32, value: 1 })
}
