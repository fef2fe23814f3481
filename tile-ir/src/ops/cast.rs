//! Conversion between element types.

use super::atomic::choice;
use super::typing::{Call, Operand, TypingCx};
use super::{
    Bitcast, ConstantValue, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, optional, required,
};
use crate::ir::axis_info::{self, AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::{Func, Value};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

/// Converts each element to the result's type, as Rust's `as` does where Rust has the pair.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    pub value: Value,
    /// Whether the result is an offset, whose arithmetic is exact ([`crate::transform::legalize_index`]).
    pub exact: bool,
}

syntax!(Cast: "cast" value [exact]);

impl Cast {
    pub fn new(value: Value) -> Cast {
        Cast { value, exact: false }
    }
}

impl Operation for Cast {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the operand's shape", &func.ty(self.value).shape, &func.ty(results[0]).shape)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let from = env.func().ty(self.value).dtype;
        vec![axis_info::cast(&env.info(self.value), from, env.func().ty(results[0]))]
    }

    /// Widening keeps the value; narrowing might not.
    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, result: Value) -> Option<Polynomial> {
        let (from, to) = (func.ty(self.value).dtype, func.ty(result).dtype);
        let ((low, high), (to_low, to_high)) = (from.range(), to.range());
        let is_widening = from.is_integer() && to_low <= low && to_high >= high;
        is_widening.then(|| env.polynomial(self.value))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: true }
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[Intrinsic {
    name: "cast",
    returns: Returns::Tile,
    example: "let short = tl::cast::<bf16>(tile, \"rtz\");",
    generic: IntrinsicGeneric::RequiredType,
    params: &[required("x"), optional("rounding")],
    doc: "Converts to another element type, as `x.to::<bf16>()`. Between floats `rounding` says what becomes of what the shorter type cannot hold: `\"rtne\"`, the default, rounds to the nearest number, halves to the even one; `\"rtz\"` toward zero, so that no magnitude grows and what is finite stays finite.",
    check: cast,
}];

pub(super) const METHODS: &[Intrinsic] = &[Intrinsic {
    name: "to",
    returns: Returns::Tile,
    example: "let wide = tile.to::<f64>();\nlet whole = tl::floor(tile).to::<i32>();",
    generic: IntrinsicGeneric::RequiredType,
    params: &[required("self")],
    doc: "Converts to another element type: `x.to::<f32>()`, the same as `x as f32`, or `tl::cast::<f32>(x)`. Float to integer truncates toward zero, saturates, and takes NaN to 0. Integer to integer wraps. To a float rounds to nearest even; an integer goes to `f16` and `bf16` through `f32`. To `f8e4m3` and `f8e5m2` it saturates too: what is beyond the largest number (448 and 57344), infinity included, becomes the largest number; NaN stays NaN. A `bool` is 0 or 1. Anything is `true` as a `bool` if it is not zero.",
    check: to,
}];

fn to(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    match cx.generic_type() {
        Some(dtype) => cx.cast(&call.args[0], dtype, call.loc),
        None => Operand::failed(call.loc),
    }
}

fn cast(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(dtype) = cx.generic_type() else { return Operand::failed(call.loc) };
    let Some(rounding) = call.args.get(1) else { return cx.cast(&call.args[0], dtype, call.loc) };
    let loc = rounding.loc;
    let toward_zero = choice(cx, call, &[("rtne", false), ("rtz", true)]);
    let source = cx.value(&call.args[0]);
    let (Some(toward_zero), Some(source)) = (toward_zero, source) else { return Operand::failed(call.loc) };
    let from = cx.ty(source).dtype;
    if !from.is_float() || !dtype.is_float() {
        let text = format!("{} rounds floats to floats, found {from} to {dtype}", call.what);
        return cx.error_help(loc, text, "leave the rounding out: there is one for these types");
    }
    let rounded = cx.convert(source, dtype, call.loc);
    // Every float is one of any longer type.
    if !toward_zero || from == dtype || dtype.bytes() > from.bytes() {
        return Operand::value(rounded, call.loc);
    }
    let result = truncate_magnitude(cx, rounded, source, call.loc);
    Operand::value(result, call.loc)
}

/// The floats of `rounded`, and where their magnitude is above that of `source`, the next ones below it.
fn truncate_magnitude(cx: &mut dyn TypingCx, rounded: Value, source: Value, loc: Loc) -> Value {
    let ty = cx.ty(rounded).clone();
    let wide = if cx.ty(source).dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let magnitudes = [rounded, source].map(|value| {
        let value = cx.convert(value, wide, loc);
        cx.row("abs", &[value], loc)
    });
    let grew = cx.row("gt", &magnitudes, loc);
    let bits = ty.with(match ty.dtype.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        _ => DType::U32,
    });
    // The bits of floats of one sign are in the order of their magnitudes.
    let ordinal = cx.push(Bitcast { value: rounded }, vec![bits.clone()], loc)[0];
    let one = cx.filled(ConstantValue::Int(1), &bits, loc);
    let below = cx.row("sub", &[ordinal, one], loc);
    let below = cx.push(Bitcast { value: below }, vec![ty], loc)[0];
    cx.row("select", &[grew, below, rounded], loc)
}
