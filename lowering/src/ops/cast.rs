//! Conversion between element types.

use super::{Function, Generic, Gives, Operation, expect_types, required};
use crate::analysis::axis::{self, Analysis, Info};
use crate::analysis::polynomial::{self, Polynomial, Polynomials};
use crate::check::{Call, Check, Operand};
use crate::layout::assign::Spread;
use crate::tile::{Func, Value};

/// Converts each element to the result's type, as Rust's `as` does where Rust has the pair.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    pub value: Value,
}

impl Operation for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the operand's shape", &func.ty(self.value).shape, &func.ty(results[0]).shape)
    }

    fn axes(&self, analysis: &mut Analysis, results: &[Value]) -> Vec<Info> {
        let from = analysis.func.ty(self.value).dtype;
        vec![axis::cast(&analysis.info(self.value), from, analysis.func.ty(results[0]))]
    }

    fn polynomial(&self, all: &Polynomials, func: &Func, result: Value) -> Option<Polynomial> {
        polynomial::cast(all, func, self.value, func.ty(result).dtype)
    }

    fn spread(&self, _: &Func, _: &[Value]) -> Spread {
        Spread::Lanewise { cheap: true }
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

pub(super) const FUNCTIONS: &[Function] = &[];

pub(super) const METHODS: &[Function] = &[Function {
    name: "to",
    gives: Gives::Tile,
    example: "let wide = tile.to::<f64>();\nlet whole = tl::floor(tile).to::<i32>();",
    generic: Generic::RequiredType,
    params: &[required("self")],
    doc: "Converts to another element type: `x.to::<f32>()`, the same as `x as f32`. Float to integer truncates toward zero, saturates, and takes NaN to 0. Integer to integer wraps. To a float rounds to nearest even; an integer goes to `f16` and `bf16` through `f32`. To `f8e4m3` and `f8e5m2` it saturates too: what is beyond the largest number (448 and 57344), infinity included, becomes the largest number; NaN stays NaN. A `bool` is 0 or 1. Anything is `true` as a `bool` if it is not zero.",
    check: to,
}];

fn to(check: &mut Check, call: &Call) -> Operand {
    match check.generic_type(call) {
        Some(dtype) => check.cast(&call.args[0], dtype, call.loc),
        None => check.failed(call.loc),
    }
}
