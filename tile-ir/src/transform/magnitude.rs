//! How large the scalars of loops with dots are: known from constants, or given guards on parameters.

use std::collections::HashMap;

use crate::ir::guard::Guard;
use crate::ir::{Func, Op, Value};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Constant, ConstantValue, For, Kind, has_own_dot};
use crate::support::dtype::DType;

/// A parameter lies between the power of two with this exponent and its reciprocal.
const PARAMETER_EXPONENT: i8 = 40;
/// So does a product of scalars.
const PRODUCT_EXPONENT: i32 = 120;

/// Finds magnitudes of scalars that are made of parameters and constants.
pub(crate) struct Magnitudes<'f> {
    pub func: &'f Func,
    pub definitions: &'f HashMap<Value, Op>,
}

impl Magnitudes<'_> {
    /// Returns exponents of the powers of two that a scalar lies between, which is above 0 given guards.
    pub fn of(&self, value: Value, guards: &mut Vec<Guard>) -> Option<(i32, i32)> {
        if let Some(constant) = float_constant(self.definitions, value) {
            let exponent = constant.log2();
            return (constant > 0.0 && constant.is_finite())
                .then_some((exponent.floor() as i32, exponent.ceil() as i32));
        }
        let Some(op) = self.definitions.get(&value) else {
            let scalar =
                self.func.scalar_parameter(value).filter(|_| self.func.ty(value).dtype == DType::F32)?;
            guards.push(Guard::Magnitude { scalar, least: -PARAMETER_EXPONENT, most: PARAMETER_EXPONENT });
            return Some((-i32::from(PARAMETER_EXPONENT), i32::from(PARAMETER_EXPONENT)));
        };
        let Kind::Scalar(Scalar { op, args, .. }) = &op.kind else { return None };
        if !matches!(op.arith, ArithKind::Mul | ArithKind::Div) {
            return None;
        }
        let (one, other) = (self.of(args[0], guards)?, self.of(args[1], guards)?);
        Some(match op.arith {
            ArithKind::Div => (one.0 - other.1, one.1 - other.0),
            _ => (one.0 + other.0, one.1 + other.1),
        })
    }

    /// Checks that a product of scalars, given guards, is above 0 and far from the ends of `f32`.
    pub fn of_product(&self, scales: &[Value], guards: &mut Vec<Guard>) -> Option<()> {
        let add = |(low, high): (i32, i32), &scale: &Value| {
            let own = self.of(scale, guards)?;
            Some((low + own.0, high + own.1))
        };
        let (low, high) = scales.iter().try_fold((0, 0), add)?;
        (-PRODUCT_EXPONENT <= low && high <= PRODUCT_EXPONENT).then_some(())
    }
}

/// Returns the float constant that a value is a splat of.
pub(crate) fn float_constant(definitions: &HashMap<Value, Op>, value: Value) -> Option<f64> {
    let kind = &definitions.get(&value)?.kind;
    if let Kind::Splat(splat) = kind {
        return float_constant(definitions, splat.value);
    }
    let Kind::Constant(Constant { value: ConstantValue::Float(constant) }) = kind else { return None };
    Some(*constant)
}

/// Visits the operations of dot loops.
pub(crate) fn in_dot_loops<'f>(func: &'f Func, visit: &mut dyn FnMut(&'f Op)) {
    func.body.walk(&mut |op| {
        if let Kind::For(For { body, .. }) = &op.kind
            && has_own_dot(body)
        {
            body.ops.iter().for_each(&mut *visit);
        }
    });
}
