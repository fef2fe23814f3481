//! Operations that only `gpu` makes: conversion to another layout, and a barrier that forces rematerialization.

use super::{Operation, expect_types};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Value};
use crate::ops::syntax::syntax;

macro_rules! same_tile {
    ($(#[doc = $doc:literal])+ $name:ident, $text:literal, $relation:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            pub value: Value,
        }

        syntax!($name: $text value);

        impl Operation for $name {
            fn operands(&self) -> Vec<Value> {
                vec![self.value]
            }

            fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
                self.value = change(self.value);
            }

            fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
                expect_types("the result", func.ty(results[0]), func.ty(self.value))
            }

            fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
                $relation
            }

            fn is_pointwise(&self) -> bool {
                $relation != LayoutRelation::Free
            }
        }
    };
}

same_tile! {
    /// The same tile in another layout.
    Convert, "convert_layout", LayoutRelation::Free
}

same_tile! {
    /// The same tile under a new name: values computed from it before the barrier are rematerialized after it. Keeps a
    /// narrow tile in registers where its widened elements would take more.
    RematBarrier, "remat_barrier", LayoutRelation::Lanewise { cheap: false }
}
