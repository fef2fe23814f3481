//! Lowers accesses of view tiles to accesses of elements.
//!
//! The base of a tile is uniform, in 64 bits. The offsets of its elements from there vary, in 32 bits where extents and
//! strides allow it. The mask of an element is true if its index is inside the view's shape along every axis. It is inside
//! the view's memory then, which the maker of the view has checked, so that nothing is compared with the memory's length.
//!
//! The comparison is safe whatever the offsets are: a tile so far from the view that the distance wraps in 64 bits has no
//! element whose mask is true.

use super::{BoundsPolicy, I32, IndexLegalizer, clamps, within};
use crate::analysis::inequality::BoundSearch;
use crate::frontend::syntax::BinaryOp;
use crate::ir::polynomial::Polynomial;
use crate::ir::{Func, FuncBuilder, Shape, Type, Value, View};
use crate::ops::scalar::{self, Scalar};
use crate::ops::{Arange, Broadcast, Cast, ExpandDims, MemAccess, ViewTile};
use crate::support::dtype::DType;

/// A tile along one axis of its view.
struct TileAxis {
    /// Where the tile begins.
    offset: Value,
    extent: u32,
    view_extent: Value,
}

impl TileAxis {
    fn new(view: &View, tile: &ViewTile, axis: usize) -> TileAxis {
        TileAxis { offset: tile.offsets[axis], extent: tile.extents[axis], view_extent: view.shape[axis] }
    }
}

impl IndexLegalizer {
    /// The element access of a view tile.
    pub(crate) fn lower_view_tile(&mut self, builder: &mut FuncBuilder, tile: &ViewTile) -> MemAccess {
        let view = builder.func.view(tile.memory).expect("a view tile has a view").clone();
        let offsets = tile.offsets.iter().map(|&offset| self.signed(builder, offset)).collect();
        let tile = ViewTile { offsets, ..tile.clone() };
        // 64 bits do from here on.
        let doubles = std::mem::take(&mut self.doubles);
        let access = MemAccess {
            param: tile.memory,
            base: self.tile_base(builder, &view, &tile.offsets),
            offset: self.element_offsets(builder, &view, &tile.extents),
            mask: Some(self.element_mask(builder, &view, &tile)),
            bounded: false,
            vector: 1,
            shift: None,
        };
        self.doubles = doubles;
        access
    }

    /// The `i64` offset along an axis of a view tile that stays one.
    pub(crate) fn tile_offset(&mut self, builder: &mut FuncBuilder, offset: Value) -> Value {
        let offset = self.signed(builder, offset);
        self.wide(builder, offset)
    }

    /// An offset as an `i64`: a larger `u64` saturates, since both are outside.
    fn signed(&mut self, builder: &mut FuncBuilder, offset: Value) -> Value {
        if builder.func.ty(offset).dtype == DType::U64 { self.wide(builder, offset) } else { offset }
    }

    /// The offset of the tile's first element, `None` for 0. Along an axis whose index is out of the view this may wrap; every
    /// mask is false then.
    fn tile_base(&mut self, builder: &mut FuncBuilder, view: &View, offsets: &[Value]) -> Option<Value> {
        let mut sum = None;
        for (&offset, &stride) in offsets.iter().zip(&view.strides) {
            let offset = self.wide(builder, offset);
            if self.constant_of(offset) == Some(0) {
                continue;
            }
            let term = match self.constant_of(stride) {
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

    /// The offset of each element from the first.
    fn element_offsets(&mut self, builder: &mut FuncBuilder, view: &View, extents: &Shape) -> Value {
        let dtype = if self.fits_32_bits(builder.func, view, extents) { DType::I32 } else { DType::I64 };
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

    /// Whether the last element's offset fits in 32 bits; under a policy that allows guards, with a guard that it does.
    fn fits_32_bits(&mut self, func: &Func, view: &View, extents: &Shape) -> bool {
        let strided = extents.iter().zip(&view.strides).filter(|(extent, _)| **extent > 1);
        let last = strided.fold(Polynomial::default(), |last, (&extent, &stride)| {
            last.add(&self.polynomials.get(stride).scale(i128::from(extent) - 1))
        });
        if let Some(constant) = last.as_constant() {
            return within((0, constant), I32);
        }
        if self.policy != BoundsPolicy::Guarded {
            return false;
        }
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        let fits = bound.at_most(&last, &Polynomial::constant(I32.1)).is_some();
        let guards = bound.guards;
        if fits {
            self.rely_on(guards);
        }
        fits
    }

    /// `0, stride, 2 * stride, ..`
    fn steps(&mut self, builder: &mut FuncBuilder, extent: u32, stride: Value, dtype: DType) -> Value {
        let mut range = self.range(builder, extent);
        let ty = builder.func.ty(range).with(dtype);
        if dtype == DType::I64 {
            range = self.make(builder, Cast::new(range), ty.clone());
        }
        if self.constant_of(stride) == Some(1) {
            return range;
        }
        let stride = match dtype {
            DType::I32 => self.make(builder, Cast::new(stride), Type::scalar(dtype)),
            _ => stride,
        };
        let stride = self.splat(builder, stride, &ty.shape);
        self.exact(builder, scalar::binary(BinaryOp::Mul), vec![range, stride])
    }

    fn range(&mut self, builder: &mut FuncBuilder, extent: u32) -> Value {
        self.make(builder, Arange { start: 0 }, Type::tile(DType::I32, Shape::new([extent])))
    }

    /// A row as a tile in which it runs along one axis and is the same along the others.
    fn along(&mut self, builder: &mut FuncBuilder, row: Value, axis: usize, shape: &Shape) -> Value {
        let Type { dtype, shape: mut own, .. } = builder.func.ty(row).clone();
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

    // ---- masks

    fn element_mask(&mut self, builder: &mut FuncBuilder, view: &View, tile: &ViewTile) -> Value {
        let extents = &tile.extents;
        let mut single = None;
        for axis in (0..extents.rank()).filter(|&axis| extents[axis] == 1) {
            let inside = self.index_inside(builder, &TileAxis::new(view, tile, axis));
            single = Some(self.both(builder, single, inside));
        }
        let mut mask = None;
        for axis in (0..extents.rank()).filter(|&axis| extents[axis] > 1) {
            // The first axis includes the uniform conditions of the axes of extent 1, which costs nothing per element.
            let row = self.row_inside(builder, &TileAxis::new(view, tile, axis), single.take());
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

    /// Whether the one index of a tile along an axis is inside.
    fn index_inside(&mut self, builder: &mut FuncBuilder, axis: &TileAxis) -> Value {
        let index = self.wide(builder, axis.offset);
        let below = self.compare(builder, BinaryOp::Lt, [index, axis.view_extent]);
        if self.is_never_negative(builder.func, axis.offset) {
            return below;
        }
        let zero = self.constant(builder, DType::I64, 0);
        let above = self.compare(builder, BinaryOp::Ge, [index, zero]);
        self.both(builder, Some(above), below)
    }

    /// Which elements of a tile are inside along one axis; none unless `condition` is true.
    fn row_inside(&mut self, builder: &mut FuncBuilder, axis: &TileAxis, condition: Option<Value>) -> Value {
        let &TileAxis { offset, extent, view_extent } = axis;
        let first = self.wide(builder, offset);
        let limits = clamps((0, i128::from(extent) - 1)).expect("an extent is far below 32 bits");
        let range = self.range(builder, extent);
        let shape = builder.func.ty(range).shape.clone();
        // first + i < extent of the view becomes i < extent of the view - first.
        let remaining = match self.constant_of(first) {
            Some(0) => view_extent,
            _ => self.exact(builder, scalar::binary(BinaryOp::Sub), vec![view_extent, first]),
        };
        let mut end = self.clamp(builder, remaining, limits);
        if let Some(condition) = condition {
            let none = self.constant(builder, DType::I32, 0);
            let select = scalar::row("select").expect("a row of the table");
            end =
                self.make(builder, Scalar::new(select, vec![condition, end, none]), Type::scalar(DType::I32));
        }
        let end = self.splat(builder, end, &shape);
        let below = self.compare(builder, BinaryOp::Lt, [range, end]);
        if self.is_never_negative(builder.func, offset) {
            return below;
        }
        let zero = self.constant(builder, DType::I64, 0);
        let missing = self.exact(builder, scalar::binary(BinaryOp::Sub), vec![zero, first]);
        let start = self.clamp(builder, missing, limits);
        let start = self.splat(builder, start, &shape);
        let above = self.compare(builder, BinaryOp::Ge, [range, start]);
        self.both(builder, Some(above), below)
    }

    /// Whether an offset, computed in 64 bits, is at least 0; under a policy that allows guards, with guards where needed.
    fn is_never_negative(&mut self, func: &Func, offset: Value) -> bool {
        let range = match func.ty(offset).dtype {
            DType::I32 | DType::I64 => self.exact_range(func, offset),
            dtype => self.ranges.get(&offset).copied().unwrap_or(dtype.range()),
        };
        if within(range, (0, i64::MAX.into())) {
            return true;
        }
        if self.policy != BoundsPolicy::Guarded {
            return false;
        }
        let polynomial = self.polynomials.get(offset);
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        let known = bound.fits(&polynomial).and_then(|()| bound.not_negative(&polynomial)).is_some();
        let guards = bound.guards;
        if known {
            self.rely_on(guards);
        }
        known
    }
}
