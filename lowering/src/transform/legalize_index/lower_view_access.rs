//! Blocks of views as accesses of elements.
//!
//! Where a block begins is one number for the whole program, in 64 bits. How far its elements lie from there varies, in
//! 32 bits where extents and strides allow it. An element takes part if its index lies inside the view's shape along
//! every axis; then it lies in the view's memory, which whoever made the view has checked, so that nothing is compared
//! with the memory's length.
//!
//! The comparison is safe whatever the offsets are: a block that begins so far from the view that the distance wraps in
//! 64 bits has no element that passes.

use super::{BoundsPolicy, I32, Splitter, clamps, within};
use crate::analysis::inequality::BoundSearch;
use crate::analysis::polynomial::Polynomial;
use crate::frontend::syntax::BinaryOp;
use crate::ir::{Func, FuncBuilder, Shape, Type, Value, View};
use crate::ops::scalar::{self, Scalar};
use crate::ops::{Arange, Broadcast, Cast, ExpandDims, MemAccess, ViewTile};
use crate::support::dtype::DType;

impl Splitter {
    /// Where the elements of a block are, and which of them take part.
    pub(crate) fn elements(&mut self, builder: &mut FuncBuilder, window: &ViewTile) -> MemAccess {
        let view = builder.func.view(window.memory).expect("a window is one of a view").clone();
        let offsets = window.offsets.iter().map(|&offset| self.signed(builder, offset)).collect();
        let window = ViewTile { offsets, ..window.clone() };
        MemAccess {
            param: window.memory,
            base: self.beginning(builder, &view, &window.offsets),
            offset: self.distances(builder, &view, &window.extents),
            mask: Some(self.taking_part(builder, &view, &window)),
            bounded: false,
            vector: 1,
            shift: None,
        }
    }

    /// Where a block that stays one begins along an axis, an `i64`.
    pub(crate) fn beginning_along(&mut self, builder: &mut FuncBuilder, offset: Value) -> Value {
        let offset = self.signed(builder, offset);
        self.wide(builder, offset)
    }

    /// An offset as a number that signed 64 bits hold: what is larger is as far outside as the largest.
    fn signed(&mut self, builder: &mut FuncBuilder, offset: Value) -> Value {
        if builder.func.ty(offset).dtype != DType::U64 {
            return offset;
        }
        let largest = self.constant(builder, DType::U64, i64::MAX.into());
        let minimum = scalar::row("minimum").expect("a row of the table");
        let value = self.exact(builder, minimum, vec![offset, largest]);
        let value = self.make(builder, Cast { value }, Type::scalar(DType::I64));
        self.ranges.insert(value, (0, i64::MAX.into()));
        value
    }

    fn number(&self, value: Value) -> Option<i128> {
        self.polynomials.get(value).as_constant()
    }

    /// The element that a block begins with, `None` for the first one. Along an axis whose index is out of the view this
    /// may wrap; no element is taken then.
    fn beginning(&mut self, builder: &mut FuncBuilder, view: &View, offsets: &[Value]) -> Option<Value> {
        let mut sum = None;
        for (&offset, &stride) in offsets.iter().zip(&view.strides) {
            let offset = self.wide(builder, offset);
            if self.number(offset) == Some(0) {
                continue;
            }
            let term = match self.number(stride) {
                Some(1) => offset,
                _ => self.exact(builder, scalar::binary(BinaryOp::Mul), vec![offset, stride]),
            };
            sum = Some(match sum {
                Some(sum) => self.exact(builder, scalar::binary(BinaryOp::Add), vec![sum, term]),
                None => term,
            });
        }
        sum
    }

    /// How far each element is from the first.
    fn distances(&mut self, builder: &mut FuncBuilder, view: &View, extents: &Shape) -> Value {
        let dtype = if self.is_near(builder.func, view, extents) { DType::I32 } else { DType::I64 };
        let mut sum = None;
        for axis in (0..extents.rank()).filter(|&axis| extents[axis] > 1) {
            let steps = self.steps(builder, extents[axis], view.strides[axis], dtype);
            let steps = self.along(builder, steps, axis, extents);
            sum = Some(match sum {
                Some(sum) => self.exact(builder, scalar::binary(BinaryOp::Add), vec![sum, steps]),
                None => steps,
            });
        }
        sum.unwrap_or_else(|| {
            let zero = self.constant(builder, DType::I32, 0);
            self.splat(builder, zero, extents)
        })
    }

    /// Whether the last element's distance fits in 32 bits; of a body that may rely on it, with the fact that it does.
    fn is_near(&mut self, func: &Func, view: &View, extents: &Shape) -> bool {
        let far = extents.iter().zip(&view.strides).filter(|(extent, _)| **extent > 1);
        let last = far.fold(Polynomial::default(), |last, (&extent, &stride)| {
            last.add(&self.polynomials.get(stride).scale(i128::from(extent) - 1))
        });
        if let Some(number) = last.as_constant() {
            return within((0, number), I32);
        }
        if self.trust != BoundsPolicy::Guarded {
            return false;
        }
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        let near = bound.at_most(&last, &Polynomial::constant(I32.1)).is_some();
        let facts = bound.facts;
        if near {
            self.rely_on(facts);
        }
        near
    }

    /// `0, stride, 2 * stride, ..`
    fn steps(&mut self, builder: &mut FuncBuilder, extent: u32, stride: Value, dtype: DType) -> Value {
        let mut ramp = self.ramp(builder, extent);
        let ty = builder.func.ty(ramp).with(dtype);
        if dtype == DType::I64 {
            ramp = self.make(builder, Cast { value: ramp }, ty.clone());
        }
        if self.number(stride) == Some(1) {
            return ramp;
        }
        let stride = match dtype {
            DType::I32 => self.make(builder, Cast { value: stride }, Type::scalar(dtype)),
            _ => stride,
        };
        let stride = self.splat(builder, stride, &ty.shape);
        self.exact(builder, scalar::binary(BinaryOp::Mul), vec![ramp, stride])
    }

    fn ramp(&mut self, builder: &mut FuncBuilder, extent: u32) -> Value {
        self.make(builder, Arange { start: 0 }, Type::tile(DType::I32, Shape::new([extent])))
    }

    /// A row as a tile in which it runs along one axis and is the same along the others.
    fn along(&mut self, builder: &mut FuncBuilder, row: Value, axis: usize, shape: &Shape) -> Value {
        let Type { dtype, shape: mut own } = builder.func.ty(row).clone();
        let mut value = row;
        for other in (0..shape.rank()).filter(|&other| other != axis) {
            own = own.with(other, 1);
            value = self.make(builder, ExpandDims { value, axis: other }, Type::tile(dtype, own.clone()));
        }
        if own == *shape {
            return value;
        }
        self.make(builder, Broadcast { value }, Type::tile(dtype, shape.clone()))
    }

    // ---- which elements take part

    fn taking_part(&mut self, builder: &mut FuncBuilder, view: &View, window: &ViewTile) -> Value {
        let extents = &window.extents;
        let mut single = None;
        for axis in (0..extents.rank()).filter(|&axis| extents[axis] == 1) {
            let inside = self.index_inside(builder, view.shape[axis], window.offsets[axis]);
            single = Some(self.both(builder, single, inside));
        }
        let mut mask = None;
        for axis in (0..extents.rank()).filter(|&axis| extents[axis] > 1) {
            // What the other axes say of the whole block is the first one's to say, which costs nothing per element.
            let row = self.row_inside(builder, (view, window), axis, single.take());
            let tile = self.along(builder, row, axis, extents);
            mask = Some(self.both(builder, mask, tile));
        }
        mask.unwrap_or_else(|| {
            let single = single.expect("a view has an axis");
            self.splat(builder, single, extents)
        })
    }

    fn both(&mut self, builder: &mut FuncBuilder, first: Option<Value>, second: Value) -> Value {
        match first {
            Some(first) => self.exact(builder, scalar::binary(BinaryOp::And), vec![first, second]),
            None => second,
        }
    }

    fn compare(&mut self, builder: &mut FuncBuilder, op: BinaryOp, [lhs, rhs]: [Value; 2]) -> Value {
        let ty = builder.func.ty(lhs).with(DType::Bool);
        self.make(builder, Scalar::new(scalar::binary(op), vec![lhs, rhs]), ty)
    }

    /// Whether one index lies inside an extent.
    fn index_inside(&mut self, builder: &mut FuncBuilder, extent: Value, offset: Value) -> Value {
        let index = self.wide(builder, offset);
        let below = self.compare(builder, BinaryOp::Lt, [index, extent]);
        if self.is_never_negative(builder.func, offset) {
            return below;
        }
        let zero = self.constant(builder, DType::I64, 0);
        let above = self.compare(builder, BinaryOp::Ge, [index, zero]);
        self.both(builder, Some(above), below)
    }

    /// Which elements of a block lie inside along one axis; none unless `condition` holds.
    fn row_inside(
        &mut self,
        builder: &mut FuncBuilder,
        (view, window): (&View, &ViewTile),
        axis: usize,
        condition: Option<Value>,
    ) -> Value {
        let (offset, extent) = (window.offsets[axis], window.extents[axis]);
        let first = self.wide(builder, offset);
        let limits = clamps((0, i128::from(extent) - 1)).expect("an extent is far below 32 bits");
        let ramp = self.ramp(builder, extent);
        let shape = builder.func.ty(ramp).shape.clone();
        // first + i < extent of the view becomes i < extent of the view - first.
        let room = match self.number(first) {
            Some(0) => view.shape[axis],
            _ => self.exact(builder, scalar::binary(BinaryOp::Sub), vec![view.shape[axis], first]),
        };
        let mut end = self.clamp(builder, room, limits);
        if let Some(condition) = condition {
            let none = self.constant(builder, DType::I32, 0);
            let select = scalar::row("select").expect("a row of the table");
            end =
                self.make(builder, Scalar::new(select, vec![condition, end, none]), Type::scalar(DType::I32));
        }
        let end = self.splat(builder, end, &shape);
        let below = self.compare(builder, BinaryOp::Lt, [ramp, end]);
        if self.is_never_negative(builder.func, offset) {
            return below;
        }
        let zero = self.constant(builder, DType::I64, 0);
        let missing = self.exact(builder, scalar::binary(BinaryOp::Sub), vec![zero, first]);
        let start = self.clamp(builder, missing, limits);
        let start = self.splat(builder, start, &shape);
        let above = self.compare(builder, BinaryOp::Ge, [ramp, start]);
        self.both(builder, Some(above), below)
    }

    /// Whether an offset, computed in 64 bits, is at least 0; of a body that may rely on it, with facts where needed.
    fn is_never_negative(&mut self, func: &Func, offset: Value) -> bool {
        let range = match func.ty(offset).dtype {
            DType::I32 | DType::I64 => self.exact_range(func, offset),
            dtype => self.ranges.get(&offset).copied().unwrap_or(dtype.range()),
        };
        if within(range, (0, i64::MAX.into())) {
            return true;
        }
        if self.trust != BoundsPolicy::Guarded {
            return false;
        }
        let polynomial = self.polynomials.get(offset);
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        let known = bound.fits(&polynomial).and_then(|()| bound.not_negative(&polynomial)).is_some();
        let facts = bound.facts;
        if known {
            self.rely_on(facts);
        }
        known
    }
}
