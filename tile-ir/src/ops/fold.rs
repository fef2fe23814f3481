//! Reductions by a function of the user's, and those of values with their positions.

use super::reduce::{ReduceBuilder, keep_dims, reduced_axes};
use super::typing::{Call, Item, Operand, TypingCx};
use super::{Arange, Combination, Intrinsic, IntrinsicGeneric, Returns, optional, rearrange, required};
use crate::ir::{Shape, Type, Value};
use crate::support::dtype::{Class, DType};

const INDEX_PARAMS: &[super::IntrinsicParam] = &[required("x"), optional("axis"), optional("keep_dims")];
const PAIR_PARAMS: &[super::IntrinsicParam] = &[required("x"), required("axis"), optional("keep_dims")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "reduce",
        returns: Returns::Same,
        example: "let largest = tl::reduce(tile, 0, |a, b| if a > b { a } else { b });
let (sum, squares) = tl::reduce((tile, tile * tile), 0, |(s, q), (t, r)| (s + t, q + r));",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis"), required("combine"), optional("keep_dims")],
        doc: "Folds `axis`, or a list of axes, with `combine`: a closure, a `#[fuse_fn]` or a function of `tl::` that makes one element of two. `x` is a tile or a tuple of tiles, which are broadcast to one shape and folded together; `combine` then takes two tuples and gives one. Elements keep their types: what should be added in `f32` is converted first.

`combine` is to be associative and commutative: which elements meet is unspecified, but fixed for a variant, and the result is the same in every part of a program. It works on single elements: operators, `if`, casts, lanewise functions, its arguments and constants; no other value of the kernel. NaN is what `combine` makes of it. With `keep_dims` true the folded axes stay with extent 1.",
        check: with_function,
    },
    Intrinsic {
        name: "argmax",
        returns: Returns::Tile,
        example: "let place = tl::argmax(tile);\nlet rows = tl::argmax(tile.row() + tile.col(), 1);",
        generic: IntrinsicGeneric::None,
        params: INDEX_PARAMS,
        doc: "The position of the largest element along `axis`, as `i32`; without an axis, in the tile as it lies in memory. The first of equal elements counts, `-0.0` and `0.0` are equal, and NaN is larger than anything: the position of the first NaN, if there is one. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| arg_reduce(cx, call, "larger_first").map_or_else(|| Operand::failed(call.loc), |pair| pair[1].clone()),
    },
    Intrinsic {
        name: "argmin",
        returns: Returns::Tile,
        example: "let place = tl::argmin(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: INDEX_PARAMS,
        doc: "The position of the smallest element along `axis`, as `i32`; without an axis, in the tile as it lies in memory. The first of equal elements counts, `-0.0` and `0.0` are equal, and NaN is smaller than anything: the position of the first NaN, if there is one. With `keep_dims` true the folded axes stay with extent 1.",
        check: |cx, call| arg_reduce(cx, call, "smaller_first").map_or_else(|| Operand::failed(call.loc), |pair| pair[1].clone()),
    },
    Intrinsic {
        name: "max_index",
        returns: Returns::Tuple(2),
        example: "let (largest, place) = tl::max_index(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: PAIR_PARAMS,
        doc: "The largest element along `axis` and its position, as `tl::argmax` finds it: the element itself, so that its NaN or the sign of its zero is that of the first.",
        check: |cx, call| pair(cx, call, "larger_first"),
    },
    Intrinsic {
        name: "min_index",
        returns: Returns::Tuple(2),
        example: "let (smallest, place) = tl::min_index(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: PAIR_PARAMS,
        doc: "The smallest element along `axis` and its position, as `tl::argmin` finds it: the element itself, so that its NaN or the sign of its zero is that of the first.",
        check: |cx, call| pair(cx, call, "smaller_first"),
    },
];

/// `tl::reduce`
fn with_function(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let kept = keep_dims(cx, call, 3);
    let Some(inputs) = tiles(cx, call) else { return Operand::failed(call.loc) };
    let shape = cx.ty(inputs[0]).shape.clone();
    let axes = reduced_axes(cx, Some(&call.args[1]), shape.rank());
    let types: Vec<Type> = inputs.iter().map(|&input| Type::scalar(cx.ty(input).dtype)).collect();
    let combine = cx.combine_region(&call.args[2], &types);
    let (Some(keep_dims), Some(axes), Some(block)) = (kept, axes, combine) else {
        return Operand::failed(call.loc);
    };
    let parts = ReduceBuilder { combination: Combination { inputs, block }, axes, keep_dims }.build(cx, call);
    like_argument(call, parts)
}

/// The tiles of a call's first argument, a tile or a tuple of tiles, broadcast to one shape.
pub(super) fn tiles(cx: &mut dyn TypingCx, call: &Call) -> Option<Vec<Value>> {
    let operand = &call.args[0];
    let parts = match &operand.item {
        Item::Tuple(parts) => parts.as_slice(),
        _ => std::slice::from_ref(operand),
    };
    let values: Option<Vec<Value>> = parts.iter().map(|part| cx.value(part)).collect();
    let mut values = values?;
    let shape = cx.common_shape(&call.what, operand.loc, &mut values)?;
    if shape.rank() == 0 {
        let found = cx.describe(operand);
        cx.error(operand.loc, format!("{} takes a tile or a tuple of tiles, found {found}", call.what));
        return None;
    }
    Some(values)
}

/// The results of a call, a tuple if its first argument is one.
pub(super) fn like_argument(call: &Call, parts: Vec<Operand>) -> Operand {
    match (&call.args[0].item, parts.as_slice()) {
        (Item::Tuple(_), _) => Operand::new(Item::Tuple(parts), call.loc),
        (_, [one]) => one.clone(),
        _ => Operand::failed(call.loc),
    }
}

fn pair(cx: &mut dyn TypingCx, call: &Call, combine: &str) -> Operand {
    match arg_reduce(cx, call, combine) {
        Some(parts) => Operand::new(Item::Tuple(parts), call.loc),
        None => Operand::failed(call.loc),
    }
}

/// The element that is first in the order of a library function, and its position.
fn arg_reduce(cx: &mut dyn TypingCx, call: &Call, combine: &str) -> Option<Vec<Operand>> {
    let value = cx.tile(&call.args[0], &call.what);
    let kept = keep_dims(cx, call, 2);
    let (value, keep_dims) = (value?, kept?);
    let ty = cx.ty(value).clone();
    if !cx.takes(call, &ty, Class::Number) {
        return None;
    }
    let axes = match call.args.get(1) {
        None => (0..ty.shape.rank()).collect(),
        Some(operand) => vec![cx.axis(operand, ty.shape.rank())?],
    };
    let positions = positions(cx, &ty.shape, &axes, call);
    let function = cx.library_function(combine, call.loc);
    let types = [Type::scalar(ty.dtype), Type::scalar(DType::I32)];
    let block = cx.combine_region(&function, &types)?;
    let combination = Combination { inputs: vec![value, positions], block };
    Some(ReduceBuilder { combination, axes, keep_dims }.build(cx, call))
}

/// The position of each element among those that are reduced together.
fn positions(cx: &mut dyn TypingCx, shape: &Shape, axes: &[usize], call: &Call) -> Value {
    let count: u32 = axes.iter().map(|&axis| shape[axis]).product();
    if shape.rank() > 1 && axes.len() == shape.rank() {
        let flat = Type::tile(DType::I32, Shape::new(vec![count]));
        let value = cx.push(Arange { start: 0 }, vec![flat], call.loc)[0];
        let ty = Type::tile(DType::I32, shape.clone());
        return cx.push(super::Reshape { value }, vec![ty], call.loc)[0];
    }
    rearrange::positions(cx, shape, axes[0], 0, call.loc)
}
