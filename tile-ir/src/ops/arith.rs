//! What arithmetic does to axis info and polynomials.

use super::scalar::ArithKind;
use crate::ir::axis_info::{self, AxisInfo};
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::{Type, Value};

impl ArithKind {
    /// The axis info of a result of type `ty`, not clipped to it.
    pub fn axis_info(self, args: &[AxisInfo], ty: &Type) -> AxisInfo {
        match (self, args) {
            (ArithKind::Add, [a, b]) => axis_info::add(a, b),
            (ArithKind::Sub, [a, b]) => axis_info::sub(a, b),
            (ArithKind::Neg, [a]) => axis_info::neg(a),
            (ArithKind::Mul, [a, b]) => axis_info::mul(a, b),
            (ArithKind::Div, [a, b]) => axis_info::div(a, b, ty),
            (ArithKind::Rem, [a, b]) => axis_info::rem(a, b, ty),
            (ArithKind::Shl, [a, b]) => axis_info::shl(a, b, ty),
            (ArithKind::Shr, [a, b]) => axis_info::shr(a, b, ty),
            (ArithKind::Minimum, [a, b]) => axis_info::minimum(a, b),
            (ArithKind::Maximum, [a, b]) => axis_info::maximum(a, b),
            (ArithKind::And, [a, b]) => axis_info::and(a, b, ty),
            (ArithKind::Compare(op), [a, b]) => axis_info::compare(op, a, b, ty),
            (ArithKind::Select, [condition, a, b]) if !ty.dtype.is_float() => {
                axis_info::select(condition, a, b)
            }
            _ => axis_info::equal_runs(args, ty),
        }
    }

    /// The polynomial of its result, if it is one. A remainder, a quotient or a clamped value is an atom that the analysis bounds.
    pub fn polynomial(self, env: &dyn PolynomialEnv, args: &[Value]) -> Option<Polynomial> {
        let arg = |i: usize| env.polynomial(args[i]);
        match self {
            ArithKind::Add => Some(arg(0).add(&arg(1))),
            ArithKind::Sub => Some(arg(0).sub(&arg(1))),
            ArithKind::Mul => Some(arg(0).mul(&arg(1))),
            ArithKind::Neg => Some(arg(0).scale(-1)),
            ArithKind::Shl => {
                let amount = arg(1).as_constant().filter(|amount| (0..31).contains(amount))?;
                Some(arg(0).scale(1 << amount))
            }
            ArithKind::CeilDiv => arg(0).ceil_div_of_arguments(&arg(1)),
            ArithKind::MulAdd
            | ArithKind::Div
            | ArithKind::Rem
            | ArithKind::Minimum
            | ArithKind::Maximum
            | ArithKind::And
            | ArithKind::Or
            | ArithKind::Shr
            | ArithKind::Select
            | ArithKind::Exp
            | ArithKind::Compare(_)
            | ArithKind::Other => None,
        }
    }
}
