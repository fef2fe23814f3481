//! Widths: which varying parts stay in 32 bits, by their range or by a guard, and which are widened.

use std::collections::HashSet;

use super::{BoundsPolicy, I32, IndexLegalizer, is_followed, is_narrow, within};
use crate::analysis::inequality::{BoundSearch, Inequality};
use crate::ir::guard::Guard;
use crate::ir::polynomial::Polynomial;
use crate::ir::{Func, FuncBuilder, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Cast, Constant, ConstantValue, Kind, Splat};
use crate::support::dtype::DType;

/// Arithmetic in an index, and the axes of the whole that its own are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct IndexPart {
    pub value: Value,
    axes: Vec<Option<usize>>,
}

impl IndexLegalizer {
    /// A varying part in the width it needs, exact for the elements of which these inequalities hold.
    pub(super) fn fit(&mut self, builder: &mut FuncBuilder, varying: Value, known: &[Inequality]) -> Value {
        if builder.func.ty(varying).dtype == DType::I64 {
            return self.widened(builder, varying);
        }
        let wide = self.wide_parts(builder.func, varying);
        if wide.as_ref().is_some_and(Vec::is_empty) {
            return varying;
        }
        if self.policy == BoundsPolicy::Guarded
            && let Some(wide) = wide
            && let Some(guards) =
                [&[], known].into_iter().find_map(|known| self.fit_if(builder.func, &wide, known))
        {
            self.rely_on(guards);
            return varying;
        }
        self.widened(builder, varying)
    }

    /// The range of an index without wrapping, from the ranges of its leaves.
    pub(super) fn exact_range(&self, func: &Func, value: Value) -> (i128, i128) {
        if let Some(&known) = self.exact_ranges.borrow().get(&value) {
            return known;
        }
        let range = self.range_of_definition(func, value);
        self.exact_ranges.borrow_mut().insert(value, range);
        range
    }

    fn range_of_definition(&self, func: &Func, value: Value) -> (i128, i128) {
        let leaf = || self.ranges.get(&value).copied().unwrap_or_else(|| func.ty(value).dtype.range());
        let Some(definition) = self.definitions.get(&value) else { return leaf() };
        match definition {
            Kind::Scalar(scalar) if is_followed(func.ty(value)) && self.follows(scalar) => {
                let args: Vec<(i128, i128)> =
                    scalar.args.iter().map(|&arg| self.exact_range(func, arg)).collect();
                if let Some(power) = self.power(scalar) {
                    return (args[0].0.saturating_mul(power), args[0].1.saturating_mul(power));
                }
                match (scalar.op.arith, args.as_slice()) {
                    (ArithKind::Add, [a, b]) => (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
                    (ArithKind::Sub, [a, b]) => (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0)),
                    (ArithKind::Neg, [a]) => (a.1.saturating_neg(), a.0.saturating_neg()),
                    (ArithKind::Mul, [a, b]) => {
                        let corners = [a.0, a.1].map(|x| [x.saturating_mul(b.0), x.saturating_mul(b.1)]);
                        let corners = corners.as_flattened();
                        (
                            corners.iter().copied().min().unwrap_or(0),
                            corners.iter().copied().max().unwrap_or(0),
                        )
                    }
                    _ => leaf(),
                }
            }
            Kind::Cast(Cast { value: inner, .. })
                if is_narrow(func.ty(*inner)) && self.keeps_number(func, *inner, func.ty(value)) =>
            {
                self.exact_range(func, *inner)
            }
            kind if kind.operation().axis_map(func).is_some() || matches!(kind, Kind::Splat(_)) => {
                let [inner] = kind.operation().operands()[..] else { return leaf() };
                self.exact_range(func, inner)
            }
            Kind::Constant(Constant { value: ConstantValue::Int(constant) }) => (*constant, *constant),
            _ => leaf(),
        }
    }

    /// The 32-bit arithmetic in a varying part, the whole first: an expression that fits may have subexpressions that do not, as
    /// `a + b - a` has.
    pub(super) fn arithmetic_of(&self, func: &Func, varying: Value) -> Vec<IndexPart> {
        let axes = (0..func.ty(varying).shape.rank()).map(Some).collect();
        let (mut found, mut todo) = (vec![], vec![IndexPart { value: varying, axes }]);
        let mut visited = HashSet::new();
        while let Some(part) = todo.pop() {
            let Some(kind) = self.definitions.get(&part.value) else { continue };
            let moved = kind.operation().axis_map(func);
            let operands = match kind {
                Kind::Scalar(scalar) if self.follows(scalar) => scalar.args.clone(),
                kind if moved.is_some() => kind.operation().operands(),
                _ => continue,
            };
            if is_narrow(func.ty(part.value)) && visited.insert(part.clone()) {
                let axes = match moved {
                    Some(moved) => {
                        moved.into_iter().map(|axis| axis.and_then(|axis| part.axes[axis])).collect()
                    }
                    None => part.axes.clone(),
                };
                todo.extend(operands.into_iter().map(|value| IndexPart { value, axes: axes.clone() }));
                found.push(part);
            }
        }
        found
    }

    /// The parts that do not fit 32 bits by their ranges, on the axes of the whole; `None` where one of them has none there.
    fn wide_parts(&self, func: &Func, varying: Value) -> Option<Vec<Polynomial>> {
        let parts = self.arithmetic_of(func, varying).into_iter();
        let wide = parts.filter(|part| !within(self.exact_range(func, part.value), I32));
        wide.map(|part| {
            self.polynomials.get(part.value).moved(func, |axis| part.axes.get(axis).copied().flatten())
        })
        .collect()
    }

    /// Guards under which all these parts stay within 32 bits where inequalities hold.
    fn fit_if(&self, func: &Func, parts: &[Polynomial], known: &[Inequality]) -> Option<Vec<Guard>> {
        let mut bound = BoundSearch::unmasked(func, &self.polynomials);
        bound.known = known;
        let mut fitting: Vec<&Polynomial> = vec![];
        for part in parts {
            if fitting.iter().any(|whole| whole.contains(part)) {
                continue;
            }
            bound.not_negative(part)?;
            let top = bound.upper(part.clone())?;
            bound.at_most(&top, &Polynomial::constant(I32.1))?;
            fitting.push(part);
        }
        Some(bound.guards)
    }

    /// The varying part with its arithmetic recomputed in 64 bits.
    pub(super) fn widened(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        if let Some(known) = self.widened.get(builder, value) {
            return known;
        }
        let widened = self.build_widened(builder, value);
        self.widened.insert(builder, value, widened);
        widened
    }

    fn build_widened(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        if ty.dtype == DType::I64 && !self.contains_narrow(builder.func, value) {
            return value;
        }
        match self.definitions.get(&value).cloned() {
            Some(Kind::Scalar(scalar)) if is_followed(&ty) && self.follows(&scalar) => {
                self.recompute(builder, &scalar, IndexLegalizer::widened)
            }
            Some(Kind::Cast(Cast { value: inner, .. })) if self.keeps_number(builder.func, inner, &ty) => {
                self.widened(builder, inner)
            }
            Some(Kind::Splat(Splat { value })) => {
                let wide = self.wide(builder, value);
                self.splat(builder, wide, &ty.shape)
            }
            Some(mut kind) if kind.operation().axis_map(builder.func).is_some() => {
                let [inner] = kind.operation().operands()[..] else { return self.widen(builder, value) };
                let inner = self.widened(builder, inner);
                kind.operation_mut().map(&mut |_| inner);
                self.make(builder, kind, ty.with(DType::I64))
            }
            _ => self.widen(builder, value),
        }
    }
}
