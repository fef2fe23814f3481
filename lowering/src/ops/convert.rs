//! Moving a tile's elements to other threads. Only `layout` makes these.

use super::{Operation, expect_types};
use crate::layout::assign::Spread;
use crate::tile::{Func, Value};

/// The same tile in another layout.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    pub value: Value,
}

impl Operation for Convert {
    fn name(&self) -> &'static str {
        "convert_layout"
    }

    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the result", func.ty(results[0]), func.ty(self.value))
    }

    fn spread(&self, _: &Func, _: &[Value]) -> Spread {
        Spread::Free
    }
}
