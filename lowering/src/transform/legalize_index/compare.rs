//! Comparisons that the type of their sides could get wrong.

use super::{BoundsPolicy, I32, Splitter, clamps, is_index, is_narrow, within};
use crate::frontend::syntax::BinaryOp;
use crate::ir::{Func, FuncBuilder, Type, Value};
use crate::ops::Cast;
use crate::ops::scalar::{self, Scalar};
use crate::support::dtype::DType;

impl Splitter {
    /// A comparison that the type of its sides could get wrong, done exactly; `None` leaves it as it is.
    pub(crate) fn comparison(
        &mut self,
        builder: &mut FuncBuilder,
        op: BinaryOp,
        scalar: &Scalar,
    ) -> Option<Value> {
        let [lhs, rhs] = scalar.args[..] else { return None };
        let ty = builder.func.ty(lhs).clone();
        if !is_index(&ty) {
            return None;
        }
        if ty.dtype == DType::I64 {
            return self.comparison_of_wide(builder, op, [lhs, rhs]);
        }
        let fits = |splitter: &Splitter, value| {
            if within(splitter.exact_range(builder.func, value), I32) {
                return Some(vec![]);
            }
            let checked = splitter.trust == BoundsPolicy::Guarded;
            checked.then(|| splitter.fits_if(builder.func, value)).flatten()
        };
        if let (Some(left), Some(right)) = (fits(self, lhs), fits(self, rhs)) {
            self.rely_on(left);
            self.rely_on(right);
            return None;
        }
        let (a, b) = (self.parts(builder, lhs), self.parts(builder, rhs));
        let zero = self.constant(builder, DType::I64, 0);
        let (left, right) = (a.uniform.unwrap_or(zero), b.uniform.unwrap_or(zero));
        let result = ty.with(DType::Bool);
        let compare = scalar::binary(op);
        if ty.is_scalar() {
            return Some(self.make(builder, Scalar::new(compare, vec![left, right]), result));
        }
        // left + va < right + vb becomes va - vb < right - left.
        let sub = scalar::binary(BinaryOp::Sub);
        let bound = self.exact(builder, sub, vec![right, left]);
        let varying = match self.combine(builder, &Scalar::new(sub, vec![]), a.varying, b.varying) {
            Some(varying) => varying,
            None => self.splat(builder, zero, &ty.shape),
        };
        let (varying, bound) = match clamps(self.exact_range(builder.func, varying)) {
            Some(limits)
                if is_narrow(builder.func.ty(varying)) && self.stays_narrow(builder.func, varying) =>
            {
                (varying, self.clamp(builder, bound, limits))
            }
            _ => (self.widened(builder, varying), bound),
        };
        let bound = self.splat(builder, bound, &ty.shape);
        Some(self.make(builder, Scalar::new(compare, vec![varying, bound]), result))
    }

    /// A 64-bit bound brought into 32 bits. Outside the limits the answer is the same for every element, so that the
    /// clamped bound decides alike.
    pub(crate) fn clamp(
        &mut self,
        builder: &mut FuncBuilder,
        bound: Value,
        (low, high): (i128, i128),
    ) -> Value {
        let row = |name| scalar::row(name).expect("a row of the table");
        let low = self.constant(builder, DType::I64, low);
        let high = self.constant(builder, DType::I64, high);
        let raised = self.exact(builder, row("maximum"), vec![bound, low]);
        let bound = self.exact(builder, row("minimum"), vec![raised, high]);
        self.make(builder, Cast { value: bound }, Type::scalar(DType::I32))
    }

    /// A comparison of numbers that were computed in 32 bits before they became `i64`.
    fn comparison_of_wide(
        &mut self,
        builder: &mut FuncBuilder,
        op: BinaryOp,
        sides: [Value; 2],
    ) -> Option<Value> {
        let func = &*builder.func;
        let wraps =
            |&side: &Value| self.rests_on_narrow(func, side) && !within(self.exact_range(func, side), I32);
        if !sides.iter().any(wraps) {
            return None;
        }
        let result = builder.func.ty(sides[0]).with(DType::Bool);
        let args = sides.map(|side| {
            if result.is_scalar() { self.wide(builder, side) } else { self.widened(builder, side) }
        });
        Some(self.make(builder, Scalar::new(scalar::binary(op), args.to_vec()), result))
    }

    /// Whether all that a varying part is made of fits in 32 bits.
    fn stays_narrow(&self, func: &Func, varying: Value) -> bool {
        let parts = self.arithmetic_of(func, varying);
        parts.into_iter().all(|part| within(self.exact_range(func, part), I32))
    }
}
