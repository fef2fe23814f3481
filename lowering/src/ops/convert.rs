//! What only `layout` makes: moving a tile's elements to other threads, and holding on to a tile.

use super::{Operation, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Value};

macro_rules! same_tile {
    ($(#[doc = $doc:literal])+ $name:ident, $text:literal, $spread:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            pub value: Value,
        }

        impl Operation for $name {
            fn name(&self) -> &'static str {
                $text
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

            fn spread(&self, _: &Func, _: &[Value]) -> LayoutRelation {
                $spread
            }

            fn is_pointwise(&self) -> bool {
                $spread != LayoutRelation::Free
            }
        }
    };
}

same_tile! {
    /// The same tile in another layout.
    Convert, "convert_layout", LayoutRelation::Free
}

same_tile! {
    /// The same tile, computed on anew: what was made of it before is not what is made of it after. Keeps a narrow tile
    /// in registers where its widened elements would take more.
    Hold, "hold", LayoutRelation::Lanewise { cheap: false }
}
