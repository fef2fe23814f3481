//! Reductions: axes of one or several tiles reduced by a function of two elements.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{Combination, ExpandDims, Intrinsic, IntrinsicGeneric, Operation, Returns, optional, required};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Shape, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::{Class, DType};

/// Reduces `axes` of all inputs together. The combination is commutative; the order of reduction is unspecified but fixed for
/// a variant.
#[derive(Clone, Debug)]
pub struct Reduce {
    pub combination: Combination,
    /// In rising order.
    pub axes: Vec<usize>,
}

impl Reduce {
    /// The operand's shape without the reduced axes.
    pub fn result_shape(&self, shape: &Shape) -> Shape {
        self.axes.iter().rev().fold(shape.clone(), |shape, &axis| shape.without(axis))
    }
}

syntax!(Reduce: "reduce" combination [axes]);

impl Operation for Reduce {
    fn result_count(&self) -> usize {
        self.combination.inputs.len()
    }

    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        self.combination.block_args(func)
    }

    fn operands(&self) -> Vec<Value> {
        self.combination.inputs.clone()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.combination.map(change);
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.combination.block]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.combination.block]
    }

    fn isolated(&self) -> bool {
        true
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let shape = self.combination.shape(func);
        if self.axes.is_empty()
            || !self.axes.is_sorted_by(|before, axis| before < axis)
            || self.axes.iter().any(|&axis| axis >= shape.rank())
        {
            return Err(format!("axes {:?} of a tile of shape {shape}", self.axes));
        }
        self.combination.verify(func, results, &self.result_shape(shape))
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        self.combination.axis_info(env, results)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Reduce { axes: self.axes.clone() }
    }
}

const PARAMS: &[super::IntrinsicParam] = &[required("x"), optional("axis"), optional("keep_dims")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "sum",
        returns: Returns::Tile,
        example: "let mean = tl::sum(tile) / n as f32;\nlet rows = tl::sum(tile.row() + tile.col(), 1, true);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The sum over `axis`, over a list of axes, or over all axes without it. `f16` and `bf16` are added in `f32`, which is the result's type; `bool`, `i8` and `i16` give `i32`, `u8` and `u16` give `u32`. With `keep_dims` true the folded axes stay with extent 1. The order of additions is unspecified but fixed for a variant.",
        check: |cx, call| reduce(cx, call, "add", Class::Computed, accumulator),
    },
    Intrinsic {
        name: "max",
        returns: Returns::Tile,
        example: "let largest = tl::max(tile);\nlet shifted = tl::exp(tile - largest);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The largest element over `axis`, over a list of axes, or over all axes without it; NaN if any is NaN. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "maximum", Class::Number, |dtype| dtype),
    },
    Intrinsic {
        name: "min",
        returns: Returns::Tile,
        example: "let smallest = tl::min(tile.row() + tile.col(), 0);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The smallest element over `axis`, over a list of axes, or over all axes without it; NaN if any is NaN. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "minimum", Class::Number, |dtype| dtype),
    },
    Intrinsic {
        name: "xor_sum",
        returns: Returns::Tile,
        example: "let parity = tl::xor_sum(tl::arange(0, BLOCK) & 1);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The exclusive or of the elements, integers or bools, over `axis`, over a list of axes, or over all axes without it. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "xor", Class::Bits, |dtype| dtype),
    },
    Intrinsic {
        name: "reduce_or",
        returns: Returns::Tile,
        example: "let flags = tl::reduce_or(tl::arange(0, BLOCK), 0);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The bitwise or of the elements, integers or bools, over `axis`, over a list of axes, or over all axes without it. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "or", Class::Bits, |dtype| dtype),
    },
    Intrinsic {
        name: "reduce_and",
        returns: Returns::Tile,
        example: "let common = tl::reduce_and(tl::arange(0, BLOCK), 0);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The bitwise and of the elements, integers or bools, over `axis`, over a list of axes, or over all axes without it. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "and", Class::Bits, |dtype| dtype),
    },
    Intrinsic {
        name: "any",
        returns: Returns::Tile,
        example: "if tl::any(tile > 0.0) { tl::store(out, 1.0); }",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "Whether any of the bools holds, over `axis`, over a list of axes, or over all axes without it. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "or", Class::Bool, |dtype| dtype),
    },
    Intrinsic {
        name: "all",
        returns: Returns::Tile,
        example: "let finite = tl::all(tl::abs(tile) < f32::INFINITY);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "Whether all of the bools hold, over `axis`, over a list of axes, or over all axes without it. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| reduce(cx, call, "and", Class::Bool, |dtype| dtype),
    },
];

/// The type a sum is accumulated in and returned as.
pub(super) fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => DType::F32,
        DType::Bool | DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        DType::I32 | DType::I64 | DType::U32 | DType::U64 | DType::F32 | DType::F64 => dtype,
    }
}

fn reduce(
    cx: &mut dyn TypingCx,
    call: &Call,
    row: &str,
    class: Class,
    result: fn(DType) -> DType,
) -> Operand {
    let elementwise = match row {
        "maximum" => Some(("larger", "maximum")),
        "minimum" => Some(("smaller", "minimum")),
        _ => None,
    };
    if let (Some((word, function)), Some(second)) = (elementwise, call.args.get(1))
        && !names_axes(cx, call, second)
    {
        let found = cx.describe(second);
        return cx.error_help(
            second.loc,
            format!("{} reduces along an axis, found {found}", call.what),
            format!("the {word} of two is `tl::{function}(a, b)`"),
        );
    }
    let value = cx.tile(&call.args[0], &call.what);
    let keep = keep_dims(cx, call, 2);
    let (Some(value), Some(keep)) = (value, keep) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if !cx.takes(call, &ty, class) {
        return Operand::failed(call.loc);
    }
    let Some(axes) = reduced_axes(cx, call.args.get(1), ty.shape.rank()) else {
        return Operand::failed(call.loc);
    };
    let dtype = result(ty.dtype);
    let input = cx.convert(value, dtype, call.loc);
    let combination = Combination::by_row(cx, row, input, call.loc);
    ReduceBuilder { combination, axes, keep_dims: keep }.build(cx, call)[0].clone()
}

/// Whether the second argument can be meant as axes: a constant integer or a list of them, beside a tile.
fn names_axes(cx: &dyn TypingCx, call: &Call, second: &Operand) -> bool {
    let is_tile = match &call.args[0].item {
        Item::Value(value) => !cx.ty(*value).is_scalar(),
        Item::Literal(_) => false,
        _ => true,
    };
    match &second.item {
        Item::Literal(literal) => is_tile && literal.is_integer(),
        Item::Value(_) => false,
        _ => true,
    }
}

/// The optional argument at `index`: whether reduced axes stay with extent 1.
pub(super) fn keep_dims(cx: &mut dyn TypingCx, call: &Call, index: usize) -> Option<bool> {
    call.args.get(index).map_or(Some(false), |operand| cx.flag(operand, "`keep_dims`"))
}

/// The axes to fold in ascending order: one, a list, or all of them.
pub(super) fn reduced_axes(
    cx: &mut dyn TypingCx,
    operand: Option<&Operand>,
    rank: usize,
) -> Option<Vec<usize>> {
    let Some(operand) = operand else { return Some((0..rank).collect()) };
    let Item::List(items) = &operand.item else { return Some(vec![cx.axis(operand, rank)?]) };
    if items.is_empty() {
        cx.error_help(operand.loc, "this list names no axis", "leave it out to fold all axes");
        return None;
    }
    let mut axes = vec![];
    for item in items {
        let axis = cx.axis(item, rank)?;
        if axes.contains(&axis) {
            cx.error(item.loc, format!("axis {axis} is named twice"));
            return None;
        }
        axes.push(axis);
    }
    axes.sort_unstable();
    Some(axes)
}

/// A reduction about to be built.
pub(super) struct ReduceBuilder {
    pub combination: Combination,
    pub axes: Vec<usize>,
    /// Whether reduced axes stay with extent 1.
    pub keep_dims: bool,
}

impl ReduceBuilder {
    /// The results, one for each input.
    pub fn build(self, cx: &mut dyn TypingCx, call: &Call) -> Vec<Operand> {
        let ReduceBuilder { combination, axes, keep_dims } = self;
        let dtypes: Vec<DType> = combination.inputs.iter().map(|&input| cx.ty(input).dtype).collect();
        let reduction = Reduce { combination, axes: axes.clone() };
        let reduced = reduction.result_shape(reduction.combination.shape(cx.func()));
        let types = dtypes.iter().map(|&dtype| Type::tile(dtype, reduced.clone())).collect();
        let results = cx.push(reduction, types, call.loc);
        let mut parts = vec![];
        for (mut value, dtype) in results.into_iter().zip(dtypes) {
            let mut shape = reduced.clone();
            for &axis in axes.iter().filter(|_| keep_dims) {
                shape = shape.with(axis, 1);
                value = expand(cx, value, axis, Type::tile(dtype, shape.clone()), call);
            }
            parts.push(Operand::value(value, call.loc));
        }
        parts
    }
}

/// Puts a reduced axis back with extent 1; a scalar becomes a tile of one element.
fn expand(cx: &mut dyn TypingCx, value: Value, axis: usize, ty: Type, call: &Call) -> Value {
    if cx.ty(value).is_scalar() {
        return cx.splat(value, &ty.shape, call.loc);
    }
    cx.push(ExpandDims { value, axis }, vec![ty], call.loc)[0]
}
