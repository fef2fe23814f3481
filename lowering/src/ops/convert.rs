//! What only `layout` makes: moving a tile's elements to other threads, and holding on to a tile.

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

/// The same tile, computed on anew: what was made of it before is not what is made of it after. Keeps a narrow tile in
/// registers where its widened elements would take more.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub value: Value,
}

impl Operation for Hold {
    fn name(&self) -> &'static str {
        "hold"
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
        Spread::Lanewise { cheap: false }
    }
}
