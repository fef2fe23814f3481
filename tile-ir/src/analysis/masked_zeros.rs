//! Loads that are masked, have no `other` and go into a maximum, a minimum or a product: the zeros of the elements that the mask
//! leaves out take part there.

use std::collections::HashMap;

use super::unordered_access::place;
use crate::ir::{Func, Op, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Kind, Load, Reduce};
use crate::support::dtype::DType;
use crate::support::warning::Warning;

/// Returns a warning for each such load.
pub(super) fn masked_zeros(func: &Func, definitions: &HashMap<Value, &Op>) -> Vec<Warning> {
    let mut found = vec![];
    func.body.walk(&mut |op| {
        let Kind::Reduce(reduce) = &op.kind else { return };
        let value = reduce.combination.inputs[0];
        let Some(fold) = Fold::of(reduce).filter(|fold| !fold.ignores_zeros(func.ty(value).dtype)) else {
            return;
        };
        let flow = Flow { func, definitions };
        if let Some(load) = flow.masked_load(value, &reduce.axes) {
            let (what, other) = fold.advice();
            let text = format!(
                "elements that the mask leaves out are 0 and take part in {what}: give what they are instead, `tl::load(pointer, mask, {other})`"
            );
            found.push(Warning { loc: load.loc, kind: "masked_zeros", text });
        }
    });
    found
}

/// A reduction that zeros change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    Maximum,
    Minimum,
    Product,
    /// An extreme element with its position.
    Position,
}

impl Fold {
    fn of(reduce: &Reduce) -> Option<Fold> {
        let inputs = reduce.combination.inputs.len();
        let ops = reduce.combination.block.ops.iter();
        let mut kinds = ops
            .filter_map(|op| if let Kind::Scalar(scalar) = &op.kind { Some(scalar.op.arith) } else { None });
        match (inputs, kinds.clone().collect::<Vec<_>>().as_slice()) {
            (1, [ArithKind::Maximum]) => Some(Fold::Maximum),
            (1, [ArithKind::Minimum]) => Some(Fold::Minimum),
            (1, [ArithKind::Mul]) => Some(Fold::Product),
            (2, _) => kinds.any(|arith| matches!(arith, ArithKind::Compare(_))).then_some(Fold::Position),
            _ => None,
        }
    }

    /// Whether no element is below zero, so that zeros are not seen.
    fn ignores_zeros(self, dtype: DType) -> bool {
        dtype == DType::Bool || self == Fold::Maximum && !dtype.is_signed()
    }

    /// What it computes, and an `other` that takes no part.
    fn advice(self) -> (&'static str, &'static str) {
        match self {
            Fold::Maximum => ("a maximum", "f32::NEG_INFINITY"),
            Fold::Minimum => ("a minimum", "f32::INFINITY"),
            Fold::Product => ("a product", "1.0"),
            Fold::Position => ("the search for an extreme", "f32::NEG_INFINITY"),
        }
    }
}

/// Where values come from.
struct Flow<'a> {
    func: &'a Func,
    definitions: &'a HashMap<Value, &'a Op>,
}

impl<'a> Flow<'a> {
    /// The masked load without `other` whose zeros are zeros of `value` too, if the mask differs along one of the axes.
    fn masked_load(&self, value: Value, axes: &[usize]) -> Option<&'a Op> {
        let op = *self.definitions.get(&value)?;
        match &op.kind {
            Kind::Load(Load { access, other: None, .. }) => {
                let mask = access.mask?;
                axes.iter().any(|&axis| self.differs(mask, axis)).then_some(op)
            }
            Kind::Cast(cast) => self.masked_load(cast.value, axes),
            Kind::Scalar(scalar) => match (scalar.op.arith, scalar.args.as_slice()) {
                (ArithKind::Neg, &[x]) => self.masked_load(x, axes),
                (ArithKind::Mul, &[x, y]) if x != y => {
                    let scaled = |x, by| self.masked_load(x, axes).filter(|_| self.is_factor(by, axes));
                    scaled(x, y).or_else(|| scaled(y, x))
                }
                (ArithKind::Div, &[x, by]) if self.is_factor(by, axes) => self.masked_load(x, axes),
                _ => None,
            },
            kind => {
                let operation = kind.operation();
                let moved = operation.axis_map(self.func)?;
                let &[inner] = operation.operands().as_slice() else { return None };
                let from = |(axis, to): (usize, &Option<usize>)| {
                    to.is_some_and(|to| axes.contains(&to)).then_some(axis)
                };
                let axes: Vec<usize> = moved.iter().enumerate().filter_map(from).collect();
                self.masked_load(inner, &axes)
            }
        }
    }

    /// Whether a factor is one number along the axes, or read from memory.
    fn is_factor(&self, value: Value, axes: &[usize]) -> bool {
        let is_load = self.definitions.get(&value).is_some_and(|op| place(op).is_some());
        is_load || axes.iter().all(|&axis| !self.differs(value, axis))
    }

    /// Whether elements along an axis may differ.
    fn differs(&self, value: Value, axis: usize) -> bool {
        let ty = self.func.ty(value);
        if ty.is_scalar() || ty.shape[axis] == 1 {
            return false;
        }
        let Some(op) = self.definitions.get(&value) else { return true };
        let operation = op.kind.operation();
        if operation.is_pointwise() {
            return operation.operands().into_iter().any(|operand| self.differs(operand, axis));
        }
        match (operation.axis_map(self.func), operation.operands().as_slice()) {
            (Some(moved), &[inner]) => match moved.iter().position(|to| *to == Some(axis)) {
                Some(from) => self.differs(inner, from),
                None => moved.contains(&None),
            },
            _ => !matches!(op.kind, Kind::Splat(_) | Kind::Constant(_)),
        }
    }
}
