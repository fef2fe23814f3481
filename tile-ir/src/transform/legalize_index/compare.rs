//! Index comparisons whose operands could overflow their type.

use super::{BoundsPolicy, I32, IndexLegalizer, clamps, is_index, is_narrow, within};
use crate::analysis::inequality::BoundSearch;
use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::Guard;
use crate::ir::polynomial::Polynomial;
use crate::ir::{Func, FuncBuilder, Type, Value};
use crate::ops::Cast;
use crate::ops::scalar::{self, Scalar};
use crate::support::dtype::DType;

impl IndexLegalizer {
    /// An exact form of a comparison whose operands could overflow their type; `None` leaves it as it is.
    pub(crate) fn comparison(
        &mut self,
        builder: &mut FuncBuilder,
        op: BinaryOp,
        scalar: &Scalar,
    ) -> Option<Value> {
        let [lhs, rhs] = scalar.args[..] else { return None };
        let ty = builder.func.ty(lhs).clone();
        if ty.dtype == DType::U64 {
            return self.comparison_of_unsigned(builder, op, [lhs, rhs]);
        }
        if !is_index(&ty) {
            return None;
        }
        if ty.dtype == DType::I64 {
            return self.comparison_of_wide(builder, op, [lhs, rhs]);
        }
        let fits = |legalizer: &IndexLegalizer, value| {
            if within(legalizer.exact_range(builder.func, value), I32) {
                return Some(vec![]);
            }
            let checked = legalizer.policy == BoundsPolicy::Guarded;
            checked.then(|| legalizer.result_fits_if(builder.func, value)).flatten()
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

    /// Guards under which an operand stays within 32 bits. Its parts may wrap: a sum that fits is right all the same.
    fn result_fits_if(&self, func: &Func, operand: Value) -> Option<Vec<Guard>> {
        let polynomial = self.polynomials.get(operand);
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        bound.lower_bound_not_negative(&polynomial.sub(&Polynomial::constant(I32.0)))?;
        let top = bound.upper(polynomial)?;
        bound.at_most(&top, &Polynomial::constant(I32.1))?;
        Some(bound.guards)
    }

    /// A 64-bit bound clamped to 32 bits. Outside the limits the comparison is uniform, so that the clamped bound has the same
    /// result.
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
        self.make(builder, Cast::new(bound), Type::scalar(DType::I32))
    }

    /// A comparison of `i64` operands that contain arithmetic in 32 bits.
    fn comparison_of_wide(
        &mut self,
        builder: &mut FuncBuilder,
        op: BinaryOp,
        operands: [Value; 2],
    ) -> Option<Value> {
        let func = &*builder.func;
        let wraps = |&operand: &Value| {
            self.contains_narrow(func, operand) && !within(self.exact_range(func, operand), I32)
        };
        if !operands.iter().any(wraps) {
            return None;
        }
        let result = builder.func.ty(operands[0]).with(DType::Bool);
        let args = operands.map(|operand| {
            if result.is_scalar() { self.wide(builder, operand) } else { self.widened(builder, operand) }
        });
        Some(self.make(builder, Scalar::new(scalar::binary(op), args.to_vec()), result))
    }

    /// Whether all arithmetic in a varying part fits in 32 bits.
    fn stays_narrow(&self, func: &Func, varying: Value) -> bool {
        let parts = self.arithmetic_of(func, varying);
        parts.into_iter().all(|part| within(self.exact_range(func, part.value), I32))
    }
}
