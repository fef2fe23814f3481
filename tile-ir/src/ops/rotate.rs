//! A rotated range, which only [`crate::transform::rotate_rows`] makes: its indices in another order.

use super::{Operation, expect_types};
use crate::ir::axis_info::{Axis, AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// The indices `0, 1, ..` below a tile's extent `n`, in an order for which a row that starts `by` elements behind a multiple of `limit`
/// has aligned vectors.
///
/// Where rows are read in pieces they are wrapped: element `i` is `i - by`, plus the extent where that is negative, so that one
/// vector is split.
///
/// Where a tile is a row it is cut. Its whole vectors come first: element `i` is `head + i` below `cut.whole`. The rest of the row
/// is its head, in the elements from `n - 2 * limit` on, and its tail behind the whole vectors, in those from `n - limit` on. The
/// elements between and at the end have the indices left over, all of them beyond the bound where the extent is not.
#[derive(Clone, Copy, Debug)]
pub struct Rotate {
    /// The range, an `i32` tile of rank 1 that starts at 0.
    pub range: Value,
    /// A power of two, of which two fit the extent.
    pub limit: u32,
    pub order: RangeOrder,
}

/// The order of a range's indices.
#[derive(Clone, Copy, Debug)]
pub enum RangeOrder {
    /// By an `i32` scalar, from 0 to below the limit.
    Wrapped {
        by: Value,
    },
    Cut(RowCut),
}

impl RangeOrder {
    fn scalars_mut(&mut self) -> Vec<&mut Value> {
        match self {
            RangeOrder::Wrapped { by } => vec![by],
            RangeOrder::Cut(RowCut { head, whole, bound }) => vec![head, whole, bound],
        }
    }
}

impl FieldText for RangeOrder {
    fn write(&self, out: &mut TextWriter) {
        match self {
            RangeOrder::Wrapped { by } => out.attribute("by", by),
            RangeOrder::Cut(RowCut { head, whole, bound }) => {
                out.attribute("head", head);
                out.attribute("whole", whole);
                out.attribute("bound", bound);
            }
        }
    }

    fn read(input: &mut TextReader) -> Result<RangeOrder, ParseError> {
        if input.begins("by") {
            return Ok(RangeOrder::Wrapped { by: input.attribute("by")? });
        }
        let head = input.attribute("head")?;
        let (whole, bound) = (input.attribute("whole")?, input.attribute("bound")?);
        Ok(RangeOrder::Cut(RowCut { head, whole, bound }))
    }
}

/// Where a row is cut: three `i32` scalars.
#[derive(Clone, Copy, Debug)]
pub struct RowCut {
    /// The elements before the first whole vector, below `limit`.
    pub head: Value,
    /// The elements of whole vectors, a multiple of `limit` up to `n - 2 * limit`: as many as lie between the head and the bound.
    pub whole: Value,
    /// The upper bound of the row's indices, exclusive.
    pub bound: Value,
}

syntax!(Rotate: "rotate" range [limit] order);

impl Operation for Rotate {
    fn operands(&self) -> Vec<Value> {
        let scalars: Vec<Value> = { self.order }.scalars_mut().into_iter().map(|scalar| *scalar).collect();
        std::iter::once(self.range).chain(scalars).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.range = change(self.range);
        self.order.scalars_mut().into_iter().for_each(|scalar| *scalar = change(*scalar));
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.range);
        expect_types("the element type", ty.dtype, DType::I32)?;
        expect_types("the rank", ty.shape.rank(), 1)?;
        expect_types("the result", func.ty(results[0]), ty)?;
        for scalar in self.operands().into_iter().skip(1) {
            expect_types("a scalar of the row", func.ty(scalar), &Type::scalar(DType::I32))?;
        }
        if 2 * self.limit <= ty.shape[0] { Ok(()) } else { Err("the extent is less than two vectors".into()) }
    }

    /// One pair of neighbors is not contiguous: runs are unknown.
    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        let axis = Axis { contiguity: 1, divisibility: 1, constancy: 1 };
        vec![AxisInfo { axes: vec![axis], divisor: 1, range: env.info(self.range).range }]
    }

    /// That of the range: the same indices, in one order for everything computed from them.
    fn polynomial(&self, env: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
        Some(env.polynomial(self.range))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: true }
    }
}
