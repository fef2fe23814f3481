//! Operations that move elements to other positions of a tile without changing them.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{Index, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, required};
use crate::ir::axis_info::{self, AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::layout_relation::Reindex;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::{Func, Shape, Type, Value};
use crate::ops::syntax::syntax;

/// Repeats a tile along the axes where it has extent 1.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast {
    pub value: Value,
}

/// Inserts an axis of extent 1.
#[derive(Clone, Copy, Debug)]
pub struct ExpandDims {
    pub value: Value,
    pub axis: usize,
}

/// The same elements in row-major order under another shape.
#[derive(Clone, Copy, Debug)]
pub struct Reshape {
    pub value: Value,
}

/// Reorders axes: result axis `i` is operand axis `order[i]`.
#[derive(Clone, Debug)]
pub struct Permute {
    pub value: Value,
    pub order: Vec<usize>,
}

syntax!(Broadcast: "broadcast" value);

impl Operation for Broadcast {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (from, to) = (func.ty(self.value), func.ty(results[0]));
        expect_types("the element type", to.dtype, from.dtype)?;
        expect_types("the rank", to.shape.rank(), from.shape.rank())?;
        let fits = from.shape.iter().zip(to.shape.iter()).all(|(&f, &t)| f == t || f == 1);
        if fits { Ok(()) } else { Err(format!("{from} does not broadcast to {to}")) }
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let (from, to) = (&env.func().ty(self.value).shape, &env.func().ty(results[0]).shape);
        vec![axis_info::broadcast(&env.info(self.value), from, to)]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, _: Value) -> Option<Polynomial> {
        env.polynomial(self.value).moved(func, Some)
    }

    fn axis_map(&self, func: &Func) -> Option<Vec<Option<usize>>> {
        Some((0..func.ty(self.value).shape.rank()).map(Some).collect())
    }

    fn layout_relation(&self, func: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::View(Reindex::Broadcast { from: func.ty(self.value).shape.clone() })
    }
}

syntax!(ExpandDims: "expand_dims" value [axis]);

impl Operation for ExpandDims {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let from = func.ty(self.value);
        if self.axis > from.shape.rank() {
            return Err(format!("axis {} beside {}", self.axis, from.shape));
        }
        expect_types(
            "the result",
            func.ty(results[0]),
            &Type::tile(from.dtype, from.shape.with(self.axis, 1)),
        )
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        vec![axis_info::expand_dims(&env.info(self.value), self.axis)]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, _: Value) -> Option<Polynomial> {
        env.polynomial(self.value).moved(func, |old| Some(old + usize::from(old >= self.axis)))
    }

    fn axis_map(&self, func: &Func) -> Option<Vec<Option<usize>>> {
        Some(
            (0..func.ty(self.value).shape.rank())
                .map(|old| Some(old + usize::from(old >= self.axis)))
                .collect(),
        )
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::View(Reindex::Expand { axis: self.axis })
    }
}

impl Reshape {
    /// As [`Shape::kept_axes`] has it, of the operand in the result.
    pub fn kept_axes(&self, func: &Func, result: Value) -> Option<Vec<Option<usize>>> {
        func.ty(self.value).shape.kept_axes(&func.ty(result).shape)
    }
}

syntax!(Reshape: "reshape" value);

impl Operation for Reshape {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let (from, to) = (func.ty(self.value), func.ty(results[0]));
        expect_types("the element type", to.dtype, from.dtype)?;
        expect_types("the number of elements", to.shape.elements(), from.shape.elements())
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        let (from, to) = (&env.func().ty(self.value).shape, &env.func().ty(results[0]).shape);
        vec![axis_info::reshape(&env.info(self.value), from, to)]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, _: Value) -> Option<Polynomial> {
        env.polynomial(self.value).moved(func, |_| None)
    }

    fn axis_map(&self, func: &Func) -> Option<Vec<Option<usize>>> {
        Some(vec![None; func.ty(self.value).shape.rank()])
    }

    fn layout_relation(&self, func: &Func, results: &[Value]) -> LayoutRelation {
        let (from, to) = (func.ty(self.value).shape.clone(), func.ty(results[0]).shape.clone());
        LayoutRelation::View(Reindex::Reshape { from, to })
    }
}

syntax!(Permute: "permute" value [order]);

impl Operation for Permute {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let from = func.ty(self.value);
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted != (0..from.shape.rank()).collect::<Vec<_>>() {
            return Err(format!("{:?} does not reorder {} axes", self.order, from.shape.rank()));
        }
        let shape: Vec<u32> = self.order.iter().map(|&axis| from.shape[axis]).collect();
        expect_types("the result", func.ty(results[0]), &Type::tile(from.dtype, Shape::new(shape)))
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        vec![axis_info::permute(&env.info(self.value), &self.order)]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, func: &Func, _: Value) -> Option<Polynomial> {
        env.polynomial(self.value).moved(func, |old| self.order.iter().position(|&axis| axis == old))
    }

    fn axis_map(&self, func: &Func) -> Option<Vec<Option<usize>>> {
        Some(
            (0..func.ty(self.value).shape.rank())
                .map(|old| self.order.iter().position(|&axis| axis == old))
                .collect(),
        )
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::View(Reindex::Permute { order: self.order.clone() })
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "expand_dims",
        returns: Returns::Tile,
        example: "let planes = tl::expand_dims(tile, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis")],
        doc: "Inserts an axis of extent 1 before `axis`: `[M]` becomes `[1, M]` for axis 0 and `[M, 1]` for axis 1.",
        check: expand_dims,
    },
    Intrinsic {
        name: "broadcast_to",
        returns: Returns::Tile,
        example: "let matrix = tl::broadcast_to(tile, [4, BLOCK]);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("shape")],
        doc: "Repeats a scalar or tile to the given shape by numpy's rules: aligned at the last axis, and an extent of 1 repeats.",
        check: broadcast_to,
    },
    Intrinsic {
        name: "reshape",
        returns: Returns::Tile,
        example: "let pairs = tl::reshape(tile, [BLOCK / 2, 2]);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("shape")],
        doc: "The same elements in row-major order under another shape with as many elements.",
        check: reshape,
    },
    Intrinsic {
        name: "ravel",
        returns: Returns::Tile,
        example: "let line = tl::ravel(tl::reshape(tile, [BLOCK / 2, 2]));",
        generic: IntrinsicGeneric::None,
        params: &[required("x")],
        doc: "The same elements in row-major order along one axis.",
        check: ravel,
    },
    Intrinsic {
        name: "squeeze",
        returns: Returns::Tile,
        example: "let line = tl::squeeze(tile.row(), 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("axis")],
        doc: "Takes away an axis of extent 1, as `tl::expand_dims` inserts one: `[1, N]` becomes `[N]` for axis 0, and `[1]` a scalar.",
        check: squeeze,
    },
    Intrinsic {
        name: "trans",
        returns: Returns::Tile,
        example: "let columns = tl::trans(tl::reshape(tile, [BLOCK / 2, 2]));",
        generic: IntrinsicGeneric::None,
        params: &[required("x")],
        doc: "The transpose: swaps the last two axes of a tile of rank 2 or more.",
        check: trans,
    },
    Intrinsic {
        name: "permute",
        returns: Returns::Tile,
        example: "let last_first = tl::permute(tl::reshape(tile, [BLOCK / 4, 2, 2]), [2, 0, 1]);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("order")],
        doc: "Reorders the axes: axis `i` of the result is axis `order[i]` of `x`.",
        check: permute,
    },
];

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "expand_dims",
        returns: Returns::Tile,
        example: "let planes = tile.expand_dims(0);",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("axis")],
        doc: "Inserts an axis of extent 1 before `axis`, as `tl::expand_dims`.",
        check: expand_dims,
    },
    Intrinsic {
        name: "row",
        returns: Returns::Tile,
        example: "let sums = tile.row() + tile.col();",
        generic: IntrinsicGeneric::None,
        params: &[required("self")],
        doc: "A tile of shape `[N]` as one row, `[1, N]`.",
        check: |cx, call| as_matrix(cx, call, 0),
    },
    Intrinsic {
        name: "col",
        returns: Returns::Tile,
        example: "let rows = tl::arange(0, 16).col() * n;",
        generic: IntrinsicGeneric::None,
        params: &[required("self")],
        doc: "A tile of shape `[M]` as one column, `[M, 1]`.",
        check: |cx, call| as_matrix(cx, call, 1),
    },
];

fn expand_dims(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let rank = cx.ty(value).shape.rank();
    let Some(axis) = cx.axis(&call.args[1], rank + 1) else { return Operand::failed(call.loc) };
    expand(cx, value, axis, call)
}

fn expand(cx: &mut dyn TypingCx, value: Value, axis: usize, call: &Call) -> Operand {
    let ty = cx.ty(value).clone();
    let Some(shape) = cx.legal(ty.shape.with(axis, 1), call.loc) else { return Operand::failed(call.loc) };
    cx.emit(ExpandDims { value, axis }, Type::tile(ty.dtype, shape), call.loc)
}

fn as_matrix(cx: &mut dyn TypingCx, call: &Call, axis: usize) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let shape = cx.ty(value).shape.clone();
    if shape.rank() != 1 {
        return cx.error_help(
            call.args[0].loc,
            format!("{} takes a tile of one axis, found shape {shape}", call.what),
            "`tl::expand_dims(x, axis)` inserts an axis into any tile",
        );
    }
    expand(cx, value, axis, call)
}

fn broadcast_to(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let value = cx.value(&call.args[0]);
    let shape = cx.shape(&call.args[1]);
    let (Some(value), Some(shape)) = (value, shape) else { return Operand::failed(call.loc) };
    let from = cx.ty(value).shape.clone();
    if from.broadcast(&shape).as_ref() != Some(&shape) {
        let text = format!("a tile of shape {from} does not broadcast to {shape}");
        return cx.error_help(call.args[1].loc, text, broadcast_help(&from, &shape));
    }
    let tile = cx.broadcast(value, &shape, call.loc);
    Operand::value(tile, call.loc)
}

fn reshape(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let value = cx.tile(&call.args[0], &call.what);
    if let Some(value) = value
        && report_open_extent(cx, value, &call.args[1])
    {
        return Operand::failed(call.loc);
    }
    let shape = cx.shape(&call.args[1]);
    let (Some(value), Some(shape)) = (value, shape) else { return Operand::failed(call.loc) };
    let from = cx.ty(value).clone();
    if from.shape.elements() != shape.elements() {
        let (elements, found) = (from.shape.elements(), shape.elements());
        let text = format!(
            "{} keeps the number of elements: {} has {elements}, {shape} has {found}",
            call.what, from.shape
        );
        return match fitting_shape(&from.shape, &shape) {
            Some(fitting) => cx.error_help(call.args[1].loc, text, format!("`{fitting}` has as many")),
            None => cx.error(call.args[1].loc, text),
        };
    }
    cx.emit(Reshape { value }, Type::tile(from.dtype, shape), call.loc)
}

/// The shape that is like `wanted` but for its last or else its first extent, and has as many elements as `from`.
fn fitting_shape(from: &Shape, wanted: &Shape) -> Option<String> {
    let elements = from.elements();
    [wanted.rank() - 1, 0].into_iter().find_map(|open| {
        let mut extents: Vec<u64> = wanted.iter().map(|&extent| extent.into()).collect();
        extents[open] = 1;
        let known: u64 = extents.iter().product();
        extents[open] = elements / known;
        let is_new = !extents.iter().copied().eq(from.iter().map(|&extent| extent.into()));
        let text: Vec<String> = extents.iter().map(u64::to_string).collect();
        (elements.is_multiple_of(known) && is_new).then(|| format!("[{}]", text.join(", ")))
    })
}

/// Whether one extent of a shape is -1, as NumPy leaves it open, which is reported with the number that is left.
fn report_open_extent(cx: &mut dyn TypingCx, value: Value, shape: &Operand) -> bool {
    let Item::List(items) = &shape.item else { return false };
    let extents: Option<Vec<i128>> = items.iter().map(Operand::as_integer).collect();
    let Some(extents) = extents else { return false };
    let open: Vec<usize> = (0..extents.len()).filter(|&i| extents[i] == -1).collect();
    let &[open] = &open[..] else { return false };
    let known: i128 = extents.iter().filter(|&&extent| extent != -1).product();
    let elements = cx.ty(value).shape.elements() as i128;
    let text = "every extent of a shape is written, found -1";
    match elements.checked_rem(known) {
        Some(0) => cx.error_help(items[open].loc, text, format!("write `{}`", elements / known)),
        Some(_) | None => cx.error(items[open].loc, text),
    };
    true
}

fn ravel(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    if ty.shape.rank() == 1 {
        return Operand::value(value, call.loc);
    }
    let line = Shape::new(vec![ty.shape.elements() as u32]);
    cx.emit(Reshape { value }, Type::tile(ty.dtype, line), call.loc)
}

fn squeeze(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    let Some(axis) = cx.axis(&call.args[1], ty.shape.rank()) else { return Operand::failed(call.loc) };
    if ty.shape[axis] != 1 {
        let text = format!(
            "{} takes an axis of extent 1, axis {axis} of {} has {}",
            call.what, ty.shape, ty.shape[axis]
        );
        return cx.error_help(call.args[1].loc, text, "`tl::index(x, axis, place)` picks one of several");
    }
    let without = Type::tile(ty.dtype, ty.shape.without(axis));
    if ty.shape.rank() == 1 {
        return cx.emit(Index { value, axis, index: 0 }, without, call.loc);
    }
    cx.emit(Reshape { value }, without, call.loc)
}

fn trans(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(value) = cx.tile(&call.args[0], &call.what) else { return Operand::failed(call.loc) };
    let rank = cx.ty(value).shape.rank();
    if rank < 2 {
        return cx.error_help(
            call.args[0].loc,
            format!("{} swaps the last two axes, found a tile of one axis", call.what),
            "`x.col()` makes a column of it, `x.row()` a row",
        );
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 2, rank - 1);
    permuted(cx, value, order, call)
}

fn permute(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let value = cx.tile(&call.args[0], &call.what);
    let order = cx.constants(&call.args[1], "the order of axes");
    let (Some(value), Some(order)) = (value, order) else { return Operand::failed(call.loc) };
    let rank = cx.ty(value).shape.rank();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank as i128).collect::<Vec<_>>() {
        return cx.error(
            call.args[1].loc,
            format!(
                "the order of a tile of {rank} axes names each of {} once",
                crate::support::diagnostic::list(0..rank)
            ),
        );
    }
    permuted(cx, value, order.into_iter().map(|axis| axis as usize).collect(), call)
}

fn permuted(cx: &mut dyn TypingCx, value: Value, order: Vec<usize>, call: &Call) -> Operand {
    let ty = cx.ty(value).clone();
    let shape: Vec<u32> = order.iter().map(|&axis| ty.shape[axis]).collect();
    cx.emit(Permute { value, order }, Type::tile(ty.dtype, Shape::new(shape)), call.loc)
}

/// What makes a shape broadcast to another one that it does not broadcast to.
pub fn broadcast_help(from: &Shape, to: &Shape) -> String {
    if from.rank() == 1 && to.rank() == 2 && from[0] == to[0] {
        return "shapes are aligned at the last axis: `x.col()` makes a column of a tile of one axis".into();
    }
    if from.rank() > to.rank() {
        return "a broadcast keeps every axis: `tl::sum(x, axis)` folds one, `tl::reshape` joins them".into();
    }
    "shapes are aligned at the last axis, and an extent of 1 repeats".into()
}
