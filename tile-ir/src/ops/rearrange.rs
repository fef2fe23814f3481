//! Operations that bring distant elements together: pairs joined and split, positions swapped, elements gathered.

use super::typing::{Call, ErrorLoc, Item, Operand, TypingCx};
use super::{
    Arange, Broadcast, Index, Intrinsic, IntrinsicGeneric, Operation, Reshape, Returns, expect_types,
    required,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::layout_relation::Reindex;
use crate::ir::{Func, Shape, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

/// Two tiles side by side along a new axis of extent 2.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    pub left: Value,
    pub right: Value,
    pub axis: usize,
}

/// Element `i` along an axis is swapped with element `i ^ mask`; the extent is a power of two.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub value: Value,
    pub axis: usize,
    pub mask: u32,
}

/// Element `i` along an axis is the one of `value` at `index[i]` along it, or 0 where that is outside.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    pub value: Value,
    pub index: Value,
    pub axis: usize,
}

syntax!(Join: "join" left, right [axis]);

impl Operation for Join {
    fn operands(&self) -> Vec<Value> {
        vec![self.left, self.right]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.left = change(self.left);
        self.right = change(self.right);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.left);
        expect_types("the right tile", func.ty(self.right), ty)?;
        if self.axis > ty.shape.rank() {
            return Err(format!("axis {} beside {}", self.axis, ty.shape));
        }
        expect_types("the result", func.ty(results[0]), &Type::tile(ty.dtype, ty.shape.with(self.axis, 2)))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::View(Reindex::Join { axis: self.axis })
    }
}

syntax!(Exchange: "exchange" value [axis] ["by" mask]);

impl Operation for Exchange {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.value);
        if self.axis >= ty.shape.rank() || !ty.shape[self.axis].is_power_of_two() {
            return Err(format!("axis {} of {}", self.axis, ty.shape));
        }
        if self.mask >= ty.shape[self.axis] {
            return Err(format!(
                "{} is not below the extent of axis {} of {}",
                self.mask, self.axis, ty.shape
            ));
        }
        expect_types("the result", func.ty(results[0]), ty)
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

syntax!(Gather: "gather" value, index [axis]);

impl Operation for Gather {
    fn operands(&self) -> Vec<Value> {
        vec![self.value, self.index]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
        self.index = change(self.index);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (from, index) = (func.ty(self.value), func.ty(self.index));
        if !index.dtype.is_integer() {
            return Err(format!("indices are {}", index.dtype));
        }
        let fits = from.shape.rank() == index.shape.rank()
            && (0..from.shape.rank()).all(|axis| axis == self.axis || from.shape[axis] == index.shape[axis]);
        if self.axis >= from.shape.rank() || !fits {
            return Err(format!(
                "indices of shape {} into {} along axis {}",
                index.shape, from.shape, self.axis
            ));
        }
        expect_types("the result", func.ty(results[0]), &index.with(from.dtype))
    }

    fn layout_relation(&self, _: &Func, results: &[Value]) -> LayoutRelation {
        LayoutRelation::Tied(vec![vec![self.index, results[0]]])
    }
}

const PAIR: &[super::IntrinsicParam] = &[required("x"), required("y")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "join",
        returns: Returns::Tile,
        example: "let pairs = tl::join(tile, tile * 2.0);",
        generic: IntrinsicGeneric::None,
        params: PAIR,
        doc: "Two tiles side by side along a new last axis of extent 2: `[M]` and `[M]` become `[M, 2]`. Operands have one element type and broadcast to one shape. `tl::split` takes them apart.",
        check: |cx, call| match pair(cx, call) {
            Some((left, right)) => {
                let axis = cx.ty(left).shape.rank();
                joined(cx, call, [left, right], axis)
            }
            None => Operand::failed(call.loc),
        },
    },
    Intrinsic {
        name: "split",
        returns: Returns::Tuple(2),
        example: "let (even, odd) = tl::split(tl::reshape(tile, [BLOCK / 2, 2]));",
        generic: IntrinsicGeneric::None,
        params: &[required("x")],
        doc: "The two tiles that lie side by side along the last axis, whose extent is 2: what `tl::join` put together.",
        check: split,
    },
    Intrinsic {
        name: "interleave",
        returns: Returns::Tile,
        example: "let (even, odd) = tl::split(tl::reshape(tile, [BLOCK / 2, 2]));\nlet turned = tl::interleave(-odd, even);",
        generic: IntrinsicGeneric::None,
        params: PAIR,
        doc: "Elements of the two tiles in turn along the last axis: `x[0], y[0], x[1], y[1], ..`. Operands have one element type and broadcast to one shape.",
        check: interleave,
    },
    Intrinsic {
        name: "cat",
        returns: Returns::Tile,
        example: "let twice = tl::cat(tile, tile, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("y"), required("axis")],
        doc: "`y` behind `x` along `axis`; both have one element type and shape. Elements keep their order.",
        check: cat,
    },
    Intrinsic {
        name: "flip",
        returns: Returns::Tile,
        example: "let backwards = tl::flip(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis")],
        doc: "The elements in reverse order along `axis`.",
        check: flip,
    },
    Intrinsic {
        name: "gather",
        returns: Returns::Tile,
        example: "let every_other = tl::gather(tile, tl::arange(0, BLOCK / 2) * 2, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("index"), required("axis")],
        doc: "Element `i` along `axis` is `x`'s at `index[i]`, an integer tile that has `x`'s extents along all other axes. 0 where an index lies outside the axis.",
        check: gather,
    },
    Intrinsic {
        name: "slice",
        returns: Returns::Tile,
        example: "let upper = tl::slice(tile, 0, BLOCK / 2, BLOCK);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis"), required("start"), required("end")],
        doc: "The elements `start..end` along `axis`, constants; `end - start` is a legal extent.",
        check: slice,
    },
    Intrinsic {
        name: "index",
        returns: Returns::Tile,
        example: "let first = tl::index(tile, 0, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis"), required("place")],
        doc: "The elements at the constant `place` along `axis`, which goes away: of a tile of one axis a scalar.",
        check: index,
    },
];

/// [`pair`] of two tiles that have one shape without broadcasting.
fn same_shape(cx: &mut dyn TypingCx, call: &Call) -> Option<(Value, Value)> {
    let shapes = [&call.args[0], &call.args[1]].map(|operand| match operand.item {
        Item::Value(value) => Some(cx.ty(value).shape.clone()),
        _ => None,
    });
    if let [Some(left), Some(right)] = shapes
        && left != right
    {
        let text = format!("{} takes two tiles of one shape, found {left} and {right}", call.what);
        match right.broadcast(&left).as_ref() == Some(&left) {
            true => {
                let help = format!("`tl::broadcast_to(x, {left})` repeats elements");
                cx.error_help(call.args[1].loc, text, help)
            }
            false => cx.error(call.args[1].loc, text),
        };
        return None;
    }
    pair(cx, call)
}

/// Two operands of one element type, broadcast to one shape.
fn pair(cx: &mut dyn TypingCx, call: &Call) -> Option<(Value, Value)> {
    let operands: Vec<&Operand> = call.args[..2].iter().collect();
    let dtype = cx.common_type(&call.what, ErrorLoc::Operand, &operands)?;
    let left = cx.value_as(operands[0], dtype, "an operand")?;
    let right = cx.value_as(operands[1], dtype, "an operand")?;
    let mut values = [left, right];
    cx.common_shape(&call.what, call.loc, &mut values)?;
    Some((values[0], values[1]))
}

fn joined(cx: &mut dyn TypingCx, call: &Call, [left, right]: [Value; 2], axis: usize) -> Operand {
    let ty = cx.ty(left).clone();
    let Some(shape) = cx.legal(ty.shape.with(axis, 2), call.loc) else { return Operand::failed(call.loc) };
    cx.emit(Join { left, right, axis }, Type::tile(ty.dtype, shape), call.loc)
}

/// The value of an operand under another shape of as many elements.
fn reshaped(cx: &mut dyn TypingCx, operand: &Operand, shape: Shape) -> Operand {
    let Item::Value(value) = operand.item else { return operand.clone() };
    let dtype = cx.ty(value).dtype;
    cx.emit(Reshape { value }, Type::tile(dtype, shape), operand.loc)
}

/// The shape with axes `axis` and `axis + 1` as one.
fn merged(shape: &Shape, axis: usize) -> Shape {
    let extent = shape[axis] * shape[axis + 1];
    shape.without(axis + 1).without(axis).with(axis, extent)
}

fn split(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    let axis = ty.shape.rank() - 1;
    if ty.shape[axis] != 2 {
        return cx.error_help(
            call.args[0].loc,
            format!("{} takes a tile whose last axis has extent 2, found shape {}", call.what, ty.shape),
            "reshape it: `tl::reshape(x, [N / 2, 2])`",
        );
    }
    let parts = [0, 1].map(|index| indexed(cx, value, axis, index, call.loc));
    Operand::new(Item::Tuple(parts.to_vec()), call.loc)
}

fn indexed(cx: &mut dyn TypingCx, value: Value, axis: usize, index: u32, loc: Loc) -> Operand {
    let ty = cx.ty(value).clone();
    cx.emit(Index { value, axis, index }, Type::tile(ty.dtype, ty.shape.without(axis)), loc)
}

fn interleave(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((left, right)) = pair(cx, call) else { return Operand::failed(call.loc) };
    let shape = cx.ty(left).shape.clone();
    if shape.rank() == 0 {
        return cx.error(call.args[0].loc, format!("{} takes tiles, found scalars", call.what));
    }
    let axis = shape.rank();
    let pairs = joined(cx, call, [left, right], axis);
    reshaped(cx, &pairs, merged(&shape.with(axis, 2), axis - 1))
}

fn cat(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((left, right)) = same_shape(cx, call) else { return Operand::failed(call.loc) };
    let shape = cx.ty(left).shape.clone();
    let Some(axis) = cx.axis(&call.args[2], shape.rank()) else { return Operand::failed(call.loc) };
    let stacked = joined(cx, call, [left, right], axis);
    reshaped(cx, &stacked, merged(&shape.with(axis, 2), axis))
}

fn flip(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    let Some(axis) = cx.axis(&call.args[1], ty.shape.rank()) else { return Operand::failed(call.loc) };
    let extent = ty.shape[axis];
    if extent.is_power_of_two() {
        return cx.emit(Exchange { value, axis, mask: extent - 1 }, ty, call.loc);
    }
    let range = positions(cx, &ty.shape, axis, 0, call.loc);
    let index_type = ty.with(DType::I32);
    let last = cx.filled(super::ConstantValue::Int(i128::from(extent) - 1), &index_type, call.loc);
    let index = cx.row("sub", &[last, range], call.loc);
    cx.emit(Gather { value, index, axis }, ty, call.loc)
}

/// The coordinate along `axis` of every element of a tile of `shape`, plus `start`.
pub(super) fn positions(cx: &mut dyn TypingCx, shape: &Shape, axis: usize, start: i32, loc: Loc) -> Value {
    let extent = shape[axis];
    let range = Type::tile(DType::I32, Shape::new(vec![extent]));
    let mut value = cx.push(Arange { start }, vec![range], loc)[0];
    let mut from = Shape::new(vec![extent]);
    for before in 0..axis {
        from = from.with(before, 1);
        value = cx.push(
            super::ExpandDims { value, axis: before },
            vec![Type::tile(DType::I32, from.clone())],
            loc,
        )[0];
    }
    for after in axis + 1..shape.rank() {
        from = from.with(after, 1);
        value = cx.push(
            super::ExpandDims { value, axis: after },
            vec![Type::tile(DType::I32, from.clone())],
            loc,
        )[0];
    }
    if from != *shape {
        value = cx.push(Broadcast { value }, vec![Type::tile(DType::I32, shape.clone())], loc)[0];
    }
    value
}

fn gather(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let value = cx.tile(&call.args[0], &call.what);
    let index = cx.tile(&call.args[1], &call.what);
    let (Some(value), Some(index)) = (value, index) else { return Operand::failed(call.loc) };
    let (from, at) = (cx.ty(value).clone(), cx.ty(index).clone());
    let Some(axis) = cx.axis(&call.args[2], from.shape.rank()) else { return Operand::failed(call.loc) };
    if !at.dtype.is_integer() {
        let text = format!("the indices of {} are integers, found {at}", call.what);
        return cx.error_help(call.args[1].loc, text, "convert them: `.to::<i32>()`");
    }
    let fits = from.shape.rank() == at.shape.rank()
        && (0..from.shape.rank()).all(|other| other == axis || from.shape[other] == at.shape[other]);
    if !fits {
        return cx.error(
            call.args[1].loc,
            format!(
                "the indices of {} have the tile's extents along all axes but {axis}: the tile is {}, they are {}",
                call.what, from.shape, at.shape
            ),
        );
    }
    cx.emit(Gather { value, index, axis }, at.with(from.dtype), call.loc)
}

fn slice(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let shape = cx.ty(value).shape.clone();
    let axis = cx.axis(&call.args[1], shape.rank());
    let start = cx.constant(&call.args[2], "the start of a slice");
    let end = cx.constant(&call.args[3], "the end of a slice");
    let (Some(axis), Some(start), Some(end)) = (axis, start, end) else { return Operand::failed(call.loc) };
    let extent = i128::from(shape[axis]);
    if start < 0 || end > extent || start >= end {
        let loc = call.args[2].loc.to(call.args[3].loc);
        return cx
            .error(loc, format!("{start}..{end} is not a part of axis {axis}, which has extent {extent}"));
    }
    let (start, end) = (start as u32, end as u32);
    let part = shape.without(axis).with(axis, end - start);
    if cx.legal(part, call.args[2].loc.to(call.args[3].loc)).is_none() {
        return Operand::failed(call.loc);
    }
    sliced(cx, value, axis, [start, end], call.loc)
}

/// The elements from `start` to `end` along an axis: a whole part of it where the axis has such parts, else looked up.
pub(super) fn sliced(
    cx: &mut dyn TypingCx,
    value: Value,
    axis: usize,
    [start, end]: [u32; 2],
    loc: Loc,
) -> Operand {
    let ty = cx.ty(value).clone();
    let (extent, length) = (ty.shape[axis], end - start);
    if length == extent {
        return Operand::value(value, loc);
    }
    let parts = ty.shape.without(axis).with(axis, length).with(axis, extent / length);
    if extent.is_multiple_of(length) && start.is_multiple_of(length) && parts.rank() <= crate::ir::MAX_RANK {
        let value = cx.push(Reshape { value }, vec![Type::tile(ty.dtype, parts)], loc)[0];
        return indexed(cx, value, axis, start / length, loc);
    }
    let shape = ty.shape.without(axis).with(axis, length);
    let index = positions(cx, &shape, axis, start as i32, loc);
    cx.emit(Gather { value, index, axis }, Type::tile(ty.dtype, shape), loc)
}

fn index(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let shape = cx.ty(value).shape.clone();
    let axis = cx.axis(&call.args[1], shape.rank());
    let position = cx.constant(&call.args[2], "a place along an axis");
    let (Some(axis), Some(position)) = (axis, position) else { return Operand::failed(call.loc) };
    if !(0..i128::from(shape[axis])).contains(&position) {
        let text = format!("axis {axis} has places 0 to {}, found {position}", shape[axis] - 1);
        return cx.error(call.args[2].loc, text);
    }
    indexed(cx, value, axis, position as u32, call.loc)
}
