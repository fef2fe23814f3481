//! Contraction of float formulas: `exp` to `exp2` with fma, and division to multiplication by a reciprocal.
//!
//! `exp` takes eight instructions for an exact argument, for it is exact to two units in the last place. An argument that was
//! rounded itself, such as a difference, has an error of half a unit, which is `|x|` half units of the result. There `exp(x)`
//! becomes `exp2(x * log2 e)`. For `a - b`, with `a` rounded as well and one `b` per row, that is
//! `exp2(fma(a, log2 e, -b * log2 e))`: one instruction per element beside the exponential, which absorbs the scale of an
//! `a = x * s` that has no other use. The error bound is documented for users at `exp` (`ops/scalar.rs`).
//!
//! A quotient by a constant becomes a product with its reciprocal, which stays within the bound of a quotient; so does one by a
//! scalar or a value per row, whose reciprocal is computed once.

use std::collections::HashMap;
use std::f64::consts::LOG2_E;

use crate::frontend::syntax::BinaryOp;
use crate::ir;
use crate::ir::{Func, FuncBuilder, Op, Rewriter, Type, Value};
use crate::ops::scalar::{ArithKind, Scalar, binary, row};
use crate::ops::{Broadcast, Constant, ConstantValue, ExpandDims, Kind, Splat};
use crate::support::dtype::DType;

/// The deepest nesting of selects and branches that is followed.
const MAX_CHOICES: u32 = 4;

/// Exponents of two: divisors beyond `FAR` are far from 1, and are scaled by `TOWARDS` towards it.
const FAR: f64 = 100.0;
const TOWARDS: f64 = 64.0;

/// The fewest dividend elements per divisor element: a thread has several of them.
const MIN_REUSE: u64 = 32;

/// Contracts the float formulas of a function.
pub fn contract_floats(func: &mut Func) {
    let definitions = func.cloned_definitions();
    let uses = uses(func);
    let mut changed = false;
    Rewriter::default().run(func, &mut |_, builder, op| {
        let Some(kind) = (FloatContraction { builder, definitions: &definitions, uses: &uses }).contract(&op)
        else {
            return builder.append(op);
        };
        changed = true;
        builder.append(Op { kind, ..op });
    });
    if changed {
        ir::cse_and_dce(func);
    }
}

/// How often each value is used.
pub(crate) fn uses(func: &Func) -> HashMap<Value, usize> {
    let mut uses = HashMap::new();
    let mut count = |values: &[Value]| values.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        count(&operation.operands());
        operation.blocks().into_iter().for_each(|block| count(&block.yields));
    });
    uses
}

/// The float constant that a value is a splat of.
pub(crate) fn float_constant(definitions: &HashMap<Value, Op>, value: Value) -> Option<f64> {
    let kind = &definitions.get(&value)?.kind;
    if let Kind::Splat(splat) = kind {
        return float_constant(definitions, splat.value);
    }
    let Kind::Constant(Constant { value: ConstantValue::Float(constant) }) = kind else { return None };
    Some(*constant)
}

/// `x` and `s` of `x * s` with a uniform `s`.
pub(crate) fn scaled_by_uniform(
    func: &Func,
    definitions: &HashMap<Value, Op>,
    value: Value,
) -> Option<(Value, Value)> {
    let Kind::Scalar(Scalar { op, args, .. }) = &definitions.get(&value)?.kind else { return None };
    let uniform = |value: Value| {
        let of_tile = matches!(definitions.get(&value)?.kind, Kind::Splat(_));
        (of_tile || func.ty(value).is_scalar()).then_some(value)
    };
    let &[a, b] = &args[..] else { return None };
    match (uniform(a), uniform(b)) {
        _ if op.arith != ArithKind::Mul => None,
        (_, Some(scale)) => Some((a, scale)),
        (Some(scale), None) => Some((b, scale)),
        (None, None) => None,
    }
}

struct FloatContraction<'b, 'f> {
    builder: &'b mut FuncBuilder<'f>,
    definitions: &'b HashMap<Value, Op>,
    uses: &'b HashMap<Value, usize>,
}

impl FloatContraction<'_, '_> {
    /// The contracted form of an operation.
    fn contract(&mut self, op: &Op) -> Option<Kind> {
        let Kind::Scalar(scalar) = &op.kind else { return None };
        let ty = self.ty(*op.results.first()?);
        if ty.dtype != DType::F32 {
            return None;
        }
        if scalar.op.arith == ArithKind::Exp {
            let exponent = self.exp2_argument(scalar.args[0])?;
            return Some(Scalar::new(row("exp2")?, vec![exponent]).into());
        }
        if scalar.op.arith != ArithKind::Div {
            return None;
        }
        let Some(divisor) = self.float_constant(scalar.args[1]) else {
            return self.by_reciprocal(scalar.args[0], scalar.args[1], &ty);
        };
        let reciprocal = f64::from((1.0 / divisor) as f32);
        let is_normal = |value: f64| (value.abs() as f32).is_normal();
        let reciprocal =
            (is_normal(divisor) && is_normal(reciprocal)).then(|| self.constant(&ty, reciprocal))?;
        Some(Scalar::new(row("mul")?, vec![scalar.args[0], reciprocal]).into())
    }

    /// A quotient by a divisor that many elements share: two products with its reciprocal and a power of two that keeps the
    /// reciprocal normal. Both are computed in the divisor's layout beside the dividend, so that threads exchange the divisor alone.
    fn by_reciprocal(&mut self, dividend: Value, divisor: Value, ty: &Type) -> Option<Kind> {
        let (Kind::Splat(Splat { value: few }) | Kind::Broadcast(Broadcast { value: few })) =
            self.definitions.get(&divisor)?.kind
        else {
            return None;
        };
        if self.ty(few).shape.elements() * MIN_REUSE > ty.shape.elements() {
            return None;
        }
        let repeated = |this: &mut Self, value: Value| {
            let kind: Kind =
                if this.ty(value).is_scalar() { Splat { value }.into() } else { Broadcast { value }.into() };
            this.builder.one(kind, ty.clone())
        };
        let (balance, one) = (self.balance(few), self.constant(&self.ty(few), 1.0));
        let balanced = self.lanewise("mul", vec![few, balance]);
        let reciprocal = self.lanewise("div", vec![one, balanced]);
        let reciprocal = repeated(self, reciprocal);
        let quotient = self.lanewise("mul", vec![dividend, reciprocal]);
        let power = repeated(self, balance);
        Some(Scalar::named("mul", vec![quotient, power]).into())
    }

    /// The power of two that scales a value towards 1, so that the reciprocal of their product is normal: 1 for nearly all.
    fn balance(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        let magnitude = self.lanewise("abs", vec![value]);
        let mut balance = self.constant(&ty, 1.0);
        for (comparison, bound, power) in [(BinaryOp::Lt, -FAR, TOWARDS), (BinaryOp::Gt, FAR, -TOWARDS)] {
            let [bound, power] = [bound, power].map(|exponent| self.constant(&ty, exponent.exp2()));
            let flags = Type::tile(DType::Bool, ty.shape.clone());
            let is_far = self.builder.one(Scalar::new(binary(comparison), vec![magnitude, bound]), flags);
            let args = vec![is_far, power, balance];
            balance = self.builder.one(Scalar::named("select", args), ty.clone());
        }
        balance
    }

    fn ty(&self, value: Value) -> Type {
        self.builder.func.ty(value).clone()
    }

    fn scalar(&self, value: Value) -> Option<&Scalar> {
        let Kind::Scalar(scalar) = &self.definitions.get(&value)?.kind else { return None };
        Some(scalar)
    }

    fn float_constant(&self, value: Value) -> Option<f64> {
        float_constant(self.definitions, value)
    }

    fn lanewise(&mut self, name: &str, args: Vec<Value>) -> Value {
        let ty = self.ty(args[0]);
        self.builder.one(Scalar::named(name, args), ty)
    }

    fn constant(&mut self, ty: &Type, value: f64) -> Value {
        let scalar = Type::scalar(ty.dtype);
        let constant = self.builder.one(Constant { value: ConstantValue::Float(value) }, scalar);
        if ty.is_scalar() { constant } else { self.builder.one(Splat { value: constant }, ty.clone()) }
    }

    /// The value times a constant, multiplied where it has fewest elements.
    fn scaled(&mut self, value: Value, by: f64) -> Value {
        if let Some(constant) = self.float_constant(value) {
            let ty = self.ty(value);
            return self.constant(&ty, f64::from(constant as f32) * by);
        }
        self.at_source(value, &mut |this, value| {
            let ty = this.ty(value);
            let by = this.constant(&ty, by);
            this.lanewise("mul", vec![value, by])
        })
    }

    /// Applies `change` to each element before splats and broadcasts.
    fn at_source(&mut self, value: Value, change: &mut dyn FnMut(&mut Self, Value) -> Value) -> Value {
        let ty = self.ty(value);
        let kind = self.definitions.get(&value).map(|op| op.kind.clone());
        if let Some(Kind::Splat(splat)) = kind {
            let value = change(self, splat.value);
            return self.builder.one(Splat { value }, ty);
        }
        if let Some(Kind::Broadcast(broadcast)) = kind {
            let value = self.at_source(broadcast.value, change);
            return self.builder.one(Broadcast { value }, ty);
        }
        if let Some(Kind::ExpandDims(ExpandDims { value, axis })) = kind {
            let value = self.at_source(value, change);
            return self.builder.one(ExpandDims { value, axis }, ty);
        }
        change(self, value)
    }

    /// Whether a value is a splat or broadcast of fewer elements.
    fn repeats(&self, value: Value) -> bool {
        let ty = self.builder.func.ty(value);
        let mut source = value;
        while let Some(
            Kind::Splat(Splat { value })
            | Kind::Broadcast(Broadcast { value })
            | Kind::ExpandDims(ExpandDims { value, .. }),
        ) = self.definitions.get(&source).map(|op| &op.kind)
        {
            source = *value;
        }
        ty.is_scalar() || self.builder.func.ty(source).shape.elements() < ty.shape.elements()
    }

    fn scaled_by_uniform(&self, value: Value) -> Option<(Value, Value)> {
        scaled_by_uniform(self.builder.func, self.definitions, value)
    }

    fn is_rounded(&self, value: Value) -> bool {
        self.is_rounded_within(value, MAX_CHOICES)
    }

    /// Whether a value was rounded when it was computed; a constant may replace it where a condition is false.
    fn is_rounded_within(&self, value: Value, choices: u32) -> bool {
        let either = |arms: [Value; 2]| {
            let known = arms.map(|arm| self.float_constant(arm).is_some());
            let rounded = arms.map(|arm| choices > 0 && self.is_rounded_within(arm, choices - 1));
            (0..2).all(|arm| known[arm] || rounded[arm]) && rounded.contains(&true)
        };
        let Some(op) = self.definitions.get(&value) else { return false };
        if let Kind::If(branch) = &op.kind {
            let position = op.results.iter().position(|&result| result == value);
            return position.is_some_and(|i| either([branch.then.yields[i], branch.otherwise.yields[i]]));
        }
        let Kind::Scalar(scalar) = &op.kind else { return false };
        let rounds = matches!(
            scalar.op.arith,
            ArithKind::Add | ArithKind::Sub | ArithKind::Mul | ArithKind::MulAdd | ArithKind::Div
        );
        rounds || scalar.op.arith == ArithKind::Select && either([scalar.args[1], scalar.args[2]])
    }

    /// `x * log2 e` of a value that was rounded when it was computed.
    fn exp2_argument(&mut self, x: Value) -> Option<Value> {
        if !self.is_rounded(x) {
            return None;
        }
        if let Some((unscaled, by)) = self.scaled_by_uniform(x) {
            let by = self.scaled(by, LOG2_E);
            return Some(self.lanewise("mul", vec![unscaled, by]));
        }
        let subtracted = self.scalar(x).filter(|scalar| scalar.op.arith == ArithKind::Sub);
        if let Some(&[a, b]) = subtracted.map(|scalar| &scalar.args[..])
            && self.repeats(b)
            && self.is_rounded(a)
        {
            let negative = self.scaled(b, -LOG2_E);
            let single = |value: &(Value, Value)| {
                self.uses.get(&a) == Some(&1) && self.float_constant(value.0).is_none()
            };
            let (unscaled, by) = match self.scaled_by_uniform(a).filter(single) {
                Some((unscaled, by)) => (unscaled, self.scaled(by, LOG2_E)),
                None => (a, self.constant(&self.ty(a), LOG2_E)),
            };
            return Some(self.lanewise("fma", vec![unscaled, by, negative]));
        }
        Some(self.scaled(x, LOG2_E))
    }
}
