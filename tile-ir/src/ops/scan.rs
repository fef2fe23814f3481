//! Scans: every element becomes the combination of all elements up to it along an axis.

use super::fold::{like_argument, tiles};
use super::typing::{Call, Operand, TypingCx};
use super::{Combination, Intrinsic, IntrinsicGeneric, Operation, Returns, optional, required};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::{Class, DType};

/// Combines all inputs along `axis`: an element of a result is the combination of the inputs' elements from the first
/// (the last, if `reverse`) up to its own, the one nearer to the start on the left. It need not commute.
#[derive(Clone, Debug)]
pub struct Scan {
    pub combination: Combination,
    pub axis: usize,
    pub reverse: bool,
}

syntax!(Scan: "scan" combination [axis] [reverse]);

impl Operation for Scan {
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
        if self.axis >= shape.rank() {
            return Err(format!("axis {} of a tile of shape {shape}", self.axis));
        }
        self.combination.verify(func, results, shape)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        self.combination.axis_info(env, results)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

const PARAMS: &[super::IntrinsicParam] = &[required("x"), optional("axis"), optional("reverse")];

macro_rules! cumulative {
    ($name:literal, $row:literal, $class:expr, $result:expr, $doc:literal) => {
        Intrinsic {
            name: $name,
            returns: Returns::Tile,
            example: concat!("let up_to_here = tl::", $name, "(tile);\nlet from_here = tl::", $name, "(tile, 0, true);"),
            generic: IntrinsicGeneric::None,
            params: PARAMS,
            doc: concat!($doc, " The axis may be left out where there is one. With `reverse` true it runs from the last element to the first. The order of combining is unspecified but fixed for a variant."),
            check: |cx, call| cumulative(cx, call, $row, $class, $result),
        }
    };
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "associative_scan",
        returns: Returns::Same,
        example: "let largest_so_far = tl::associative_scan(tile, 0, |a, b| if a > b { a } else { b });\nlet (_, h) = tl::associative_scan((tile * 0.5, tile), 0, |(a, b), (c, d)| (a * c, b * c + d));",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis"), required("combine"), optional("reverse")],
        doc: "Every element along `axis` becomes the combination of all elements up to it. `combine` is a closure, a `#[fuse_fn]` or a function of `tl::` that makes one element of two, the one nearer to the start first. `x` is a tile or a tuple of tiles, which are broadcast to one shape and combined together; `combine` then takes two tuples and gives one. Elements keep their types. With `reverse` true it runs from the last element to the first, and the later element comes first.\n\n`combine` is to be associative; it need not commute. It works on single elements: operators, `if`, casts, lanewise functions, its arguments and constants. Which elements meet first is unspecified, but fixed for a variant.",
        check: with_function,
    },
    cumulative!(
        "cumsum",
        "add",
        Class::Computed,
        super::reduce::accumulator,
        "The sum of all elements up to each one along `axis`. `f16` and `bf16` are added in `f32`, which is the result's type; `bool`, `i8` and `i16` give `i32`, `u8` and `u16` give `u32`."
    ),
    cumulative!(
        "cumprod",
        "mul",
        Class::Number,
        super::reduce::accumulator,
        "The product of all elements up to each one along `axis`. `f16` and `bf16` are multiplied in `f32`, which is the result's type; `i8` and `i16` give `i32`, `u8` and `u16` give `u32`."
    ),
    cumulative!(
        "cummax",
        "maximum",
        Class::Number,
        |dtype| dtype,
        "The largest of all elements up to each one along `axis`; NaN from the first NaN on."
    ),
    cumulative!(
        "cummin",
        "minimum",
        Class::Number,
        |dtype| dtype,
        "The smallest of all elements up to each one along `axis`; NaN from the first NaN on."
    ),
];

/// `tl::associative_scan`
fn with_function(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(inputs) = tiles(cx, call) else { return Operand::failed(call.loc) };
    let types: Vec<Type> = inputs.iter().map(|&input| cx.ty(input).clone()).collect();
    let along = scanned_axis(cx, call, [Some(&call.args[1]), call.args.get(3)], types[0].shape.rank());
    let elements: Vec<Type> = types.iter().map(|ty| Type::scalar(ty.dtype)).collect();
    let combine = cx.combine_region(&call.args[2], &elements);
    let (Some((axis, reverse)), Some(block)) = (along, combine) else { return Operand::failed(call.loc) };
    let scan = Scan { combination: Combination { inputs, block }, axis, reverse };
    let results = cx.push(scan, types, call.loc);
    let parts: Vec<Operand> = results.into_iter().map(|value| Operand::value(value, call.loc)).collect();
    like_argument(call, parts)
}

fn cumulative(
    cx: &mut dyn TypingCx,
    call: &Call,
    row: &str,
    class: Class,
    result: fn(DType) -> DType,
) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if !cx.takes(call, &ty, class) {
        return Operand::failed(call.loc);
    }
    let along = scanned_axis(cx, call, [call.args.get(1), call.args.get(2)], ty.shape.rank());
    let Some((axis, reverse)) = along else { return Operand::failed(call.loc) };
    let dtype = result(ty.dtype);
    let input = cx.convert(value, dtype, call.loc);
    let combination = Combination::by_row(cx, row, input, call.loc);
    cx.emit(Scan { combination, axis, reverse }, ty.with(dtype), call.loc)
}

/// The axis a scan of tiles of `rank` axes runs along and whether backwards, from its two optional arguments.
fn scanned_axis(
    cx: &mut dyn TypingCx,
    call: &Call,
    [axis, reverse]: [Option<&Operand>; 2],
    rank: usize,
) -> Option<(usize, bool)> {
    let axis = cx.axis_or_only(call, axis, rank);
    let reverse = reverse.map_or(Some(false), |operand| cx.flag(operand, "`reverse`"));
    Some((axis?, reverse?))
}
