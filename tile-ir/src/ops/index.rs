//! The elements at one position along an axis.

use super::{Operation, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Type, Value};
use crate::ops::syntax::syntax;

/// The elements at one position along an axis, which goes away.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub value: Value,
    pub axis: usize,
    pub index: u32,
}

/// The greatest extent of an axis that kernels take apart, all of it: of a longer one they take one place.
const MAX_SPLIT: u32 = 8;

syntax!(Index: "index" value [axis] ["at" index]);

impl Operation for Index {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.value);
        if self.axis >= ty.shape.rank() || self.index >= ty.shape[self.axis] {
            return Err(format!("place {} along axis {} of {}", self.index, self.axis, ty.shape));
        }
        expect_types("the result", func.ty(results[0]), &Type::tile(ty.dtype, ty.shape.without(self.axis)))
    }

    fn layout_relation(&self, func: &Func, _: &[Value]) -> LayoutRelation {
        match func.ty(self.value).shape[self.axis] {
            ..=MAX_SPLIT => LayoutRelation::Index { axis: self.axis },
            _ => LayoutRelation::Reduce { axes: vec![self.axis] },
        }
    }
}
