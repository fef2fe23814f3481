//! The same bits as another element type.

use super::typing::{Call, Operand, TypingCx};
use super::{Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, required};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Value};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::{Loc, list};
use crate::support::dtype::DType;

/// Reads each element's bits as the result's type, which is as wide.
#[derive(Clone, Copy, Debug)]
pub struct Bitcast {
    pub value: Value,
}

syntax!(Bitcast: "bitcast" value);

impl Operation for Bitcast {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (from, to) = (func.ty(self.value), func.ty(results[0]));
        expect_types("the operand's shape", &from.shape, &to.shape)?;
        if allowed(from.dtype, to.dtype) {
            return Ok(());
        }
        Err(format!("{} and {} are not of one size", from.dtype, to.dtype))
    }

    /// What is known of the operand, where its type stays.
    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let (from, to) = (env.func().ty(self.value).dtype, env.func().ty(results[0]).clone());
        vec![if from == to.dtype { env.info(self.value) } else { AxisInfo::unknown(&to) }]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: true }
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

/// A `bool` is 0 or 1 in memory, and a single bit elsewhere: it has no bits to read.
fn allowed(from: DType, to: DType) -> bool {
    from != DType::Bool && to != DType::Bool && from.bytes() == to.bytes()
}

/// A tile as the values of its type that a store would write, for operations that compare data: comparisons take sums and
/// products that do not fit for what they would be (`transform::legalize_index`).
pub(super) fn as_stored(cx: &mut dyn TypingCx, value: Value, loc: Loc) -> Value {
    let ty = cx.ty(value).clone();
    if !matches!(ty.dtype, DType::I32 | DType::I64 | DType::U64) {
        return value;
    }
    cx.push(Bitcast { value }, vec![ty], loc)[0]
}

pub(super) const METHODS: &[Intrinsic] = &[Intrinsic {
    name: "bitcast",
    returns: Returns::Tile,
    example: "let bits = tile.bitcast::<u32>();\nlet magnitude = (bits & 0x7fff_ffff).bitcast::<f32>();",
    generic: IntrinsicGeneric::RequiredType,
    params: &[required("self")],
    doc: "The same bits as another element type of the same size: `x.bitcast::<u32>()` of an `f32` tile is what `f32::to_bits` gives. Any element type but `bool`; a NaN keeps its payload.",
    check: bitcast,
}];

fn bitcast(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(to) = cx.generic_type() else { return Operand::failed(call.loc) };
    let Some(value) = cx.value(&call.args[0]) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if ty.dtype == to {
        return Operand::value(value, call.loc);
    }
    if !allowed(ty.dtype, to) {
        let text = format!("{} keeps the size of an element: {} cannot become {to}", call.what, ty.dtype);
        let fitting: Vec<DType> =
            DType::ALL.into_iter().filter(|&other| other != ty.dtype && allowed(ty.dtype, other)).collect();
        let help = if fitting.is_empty() {
            "make a number of it: `.to::<u8>()`".to_string()
        } else {
            format!("{} can become {}; `.to::<{to}>()` converts the value", ty.dtype, list(fitting))
        };
        return cx.error_help(call.name_loc, text, help);
    }
    cx.emit(Bitcast { value }, ty.with(to), call.loc)
}
