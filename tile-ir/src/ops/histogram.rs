//! How often each integer occurs in a tile.

use super::bitcast::as_stored;
use super::typing::{Call, Operand, TypingCx};
use super::{
    ConstantValue, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, optional, required,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Shape, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// Counts of the integers from 0 on; others are not counted.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    /// `i32`.
    pub value: Value,
}

syntax!(Histogram: "histogram" value);

impl Operation for Histogram {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the integers", func.ty(self.value).dtype, DType::I32)?;
        let counts = func.ty(results[0]);
        expect_types("the counts", counts.dtype, DType::I32)?;
        expect_types("the rank of the counts", counts.shape.rank(), 1)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Free
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[Intrinsic {
    name: "histogram",
    returns: Returns::Tile,
    example: "let digits = tl::arange(0, BLOCK) % 10;\nlet counts = tl::histogram(digits, 16, tl::arange(0, BLOCK) < n);",
    generic: IntrinsicGeneric::None,
    params: &[required("x"), required("bins"), optional("mask")],
    doc: "How often each of the numbers `0..bins` occurs in an integer tile of any shape, as an `i32` tile of shape `[bins]`. Elements outside that range, and those where `mask` is false, are not counted. `bins` is a constant and a legal extent.",
    check: histogram,
}];

fn histogram(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let value = cx.tile(&call.args[0], &call.what);
    let bins = cx.constant(&call.args[1], "the number of bins");
    let (Some(value), Some(bins)) = (value, bins) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if !ty.dtype.is_integer() {
        let text = format!("{} counts integers, found {ty}", call.what);
        return cx.error_help(call.args[0].loc, text, "convert them: `.to::<i32>()`");
    }
    let Some(shape) = cx.legal_shape(&[bins], call.args[1].loc) else { return Operand::failed(call.loc) };
    let value = as_stored(cx, value, call.loc);
    // Compared in its own type, of which `bins` may be too large a number.
    let (low, high) = ty.dtype.range();
    let mut counted = vec![];
    if low < 0 {
        let zero = cx.filled(ConstantValue::Int(0), &ty, call.loc);
        counted.push(cx.row("ge", &[value, zero], call.loc));
    }
    if bins <= high {
        let end = cx.filled(ConstantValue::Int(bins), &ty, call.loc);
        counted.push(cx.row("lt", &[value, end], call.loc));
    }
    if let Some(operand) = call.args.get(2) {
        let Some(mask) = mask(cx, operand, &ty.shape) else { return Operand::failed(call.loc) };
        counted.push(mask);
    }
    let mut index = cx.convert(value, DType::I32, call.loc);
    let all = counted.into_iter().reduce(|one, other| cx.row("and", &[one, other], call.loc));
    if let Some(all) = all {
        let none = cx.filled(ConstantValue::Int(-1), &ty.with(DType::I32), call.loc);
        index = cx.row("select", &[all, index, none], call.loc);
    }
    cx.emit(Histogram { value: index }, Type::tile(DType::I32, shape), call.loc)
}

fn mask(cx: &mut dyn TypingCx, operand: &Operand, shape: &Shape) -> Option<Value> {
    let mask = cx.value_as(operand, DType::Bool, "a mask")?;
    let own = cx.ty(mask).shape.clone();
    if own.broadcast(shape).as_ref() != Some(shape) {
        cx.error(
            operand.loc,
            format!("the mask has shape {own}, which does not fit the tile's shape {shape}"),
        );
        return None;
    }
    Some(cx.broadcast(mask, shape, operand.loc))
}
