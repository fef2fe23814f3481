//! Cheaper float formulas on a GPU: `exp` as `exp2`, and division as multiplication by a reciprocal.
//!
//! **`exp(x)` is `exp2(x * log2 e)`** where `x` was rounded when it was computed: a sum, difference, product or quotient. `exp` takes
//! eight instructions to be exact to two units in the last place, which an argument with an error of half a unit, `|x|` half units of
//! the result, does not deserve. Law: the result is 1 where `x` is 0, 0 or infinite where the exponential is, NaN where `x` is, and
//! otherwise within `3 + 2 * |x|` ULP of `exp(x)`, `|x|` being below 104. A difference is computed first, so that `exp(a - b)` is 1
//! where `a` is `b`, whatever their magnitude. A constant factor of `x` absorbs `log2 e`.
//!
//! **`x / d` is `x * low + x * high`, rounded once**, where `d` is a constant, a scalar or a value per row, and `high + low` is its
//! reciprocal within 2^-44: two or three instructions per element. Law: a quotient that is an `f32` comes out as that number, any other
//! one is within 1 ULP, or within 2 ULP where it is below 2^-100; zeros, infinities and NaN are those of the quotient. For the latter
//! `low` has the sign of `high` and is not 0: then `x * low` and `x * high` are infinities of one sign where `x` is one. A divisor that
//! is a power of two becomes one product.
//!
//! **Source.** Brisebarre, Muller and Raina, *Accelerating correctly rounded floating-point division when the divisor is known in
//! advance*, IEEE Transactions on Computers 53 (2004), for a quotient by two products.

use std::collections::{HashMap, HashSet};
use std::f64::consts::LOG2_E;

use crate::frontend::syntax::BinaryOp;
use crate::ir;
use crate::ir::guard::{Guard, strongest};
use crate::ir::{Func, FuncBuilder, Op, Rewriter, Type, Value};
use crate::ops::scalar::{ArithKind, Scalar, binary, row};
use crate::ops::{Broadcast, Constant, ConstantValue, Kind, Splat};
use crate::support::dtype::DType;
use crate::transform::magnitude::{Magnitudes, float_constant, in_dot_loops};

/// The deepest nesting of selects and branches that is followed.
const MAX_CHOICES: u32 = 4;

/// Exponents of two: divisors beyond `FAR` are far from 1, and are scaled by `TOWARDS` towards it.
const FAR: f64 = 100.0;
const TOWARDS: f64 = 64.0;

/// The first part of a reciprocal: below it by 2^-22, so that the second part has the same sign.
const HIGH_PART: f64 = 1.0 - 1.0 / (1u32 << 22) as f64;

/// The fewest dividend elements per divisor element: a thread has several of them.
const MIN_REUSE: u64 = 32;

/// Contracts the float formulas of a function.
pub fn contract_floats(func: &mut Func) {
    contract(func, None);
}

/// Contracts the float formulas of a function, given guards: in loops with dots a divisor that is made of arguments is not scaled.
pub fn contract_floats_under_guards(func: &mut Func) -> Vec<Guard> {
    let mut guards = vec![];
    contract(func, Some(&mut guards));
    strongest(guards)
}

fn contract(func: &mut Func, mut guards: Option<&mut Vec<Guard>>) {
    let definitions = func.cloned_definitions();
    let mut loops: HashSet<Value> = HashSet::new();
    in_dot_loops(func, &mut |op| loops.extend(&op.results));
    let mut changed = false;
    Rewriter::default().run(func, &mut |_, builder, op| {
        let is_in_loop = op.results.iter().any(|result| loops.contains(result));
        let guards = guards.as_deref_mut().filter(|_| is_in_loop);
        let Some(kind) = (FloatContraction { builder, definitions: &definitions, guards }).contract(&op)
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

/// Two numbers whose sum is the reciprocal of a divisor.
struct Reciprocal {
    high: Value,
    low: Value,
}

struct FloatContraction<'b, 'f> {
    builder: &'b mut FuncBuilder<'f>,
    definitions: &'b HashMap<Value, Op>,
    /// Guards that may be asked for.
    guards: Option<&'b mut Vec<Guard>>,
}

impl FloatContraction<'_, '_> {
    /// Returns the contracted form of an operation.
    fn contract(&mut self, op: &Op) -> Option<Kind> {
        let Kind::Scalar(scalar) = &op.kind else { return None };
        let ty = self.ty(*op.results.first()?);
        if ty.dtype != DType::F32 {
            return None;
        }
        match scalar.op.arith {
            ArithKind::Exp if self.is_rounded(scalar.args[0], MAX_CHOICES) => {
                let exponent = self.times_log2_e(scalar.args[0]);
                Some(Scalar::new(row("exp2")?, vec![exponent]).into())
            }
            ArithKind::Div => match self.float_constant(scalar.args[1]) {
                Some(divisor) => self.by_constant(scalar.args[0], divisor, &ty),
                None => self.by_reciprocal(scalar.args[0], scalar.args[1], &ty),
            },
            _ => None,
        }
    }

    /// Divides by a constant: one product with a power of two, or two products with the parts of the reciprocal.
    fn by_constant(&mut self, dividend: Value, divisor: f64, ty: &Type) -> Option<Kind> {
        let divisor = f64::from(divisor as f32);
        let reciprocal = 1.0 / divisor;
        if divisor.abs().log2().abs() > FAR {
            return None;
        }
        let exact = f64::from(reciprocal as f32);
        if exact * divisor == 1.0 {
            let exact = self.constant(ty, exact);
            return Some(Scalar::named("mul", vec![dividend, exact]).into());
        }
        let high = f64::from((reciprocal * HIGH_PART) as f32);
        let [high, low] = [high, reciprocal - high].map(|part| self.constant(ty, part));
        Some(self.quotient(dividend, Reciprocal { high, low }))
    }

    /// Divides by a divisor that many elements share. Dividend and divisor are scaled by a power of two that keeps the reciprocal
    /// normal. All is computed in the divisor's layout beside the dividend, so that threads exchange the divisor alone.
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
        let is_near_one = self.is_near_one(few);
        let (dividend, balanced) = if is_near_one {
            (dividend, few)
        } else {
            let balance = self.balance(few);
            let balanced = self.lanewise("mul", vec![few, balance]);
            let balance = repeated(self, balance);
            (self.lanewise("mul", vec![dividend, balance]), balanced)
        };
        let Reciprocal { high, low } = self.reciprocal(balanced);
        let [high, low] = [high, low].map(|value| repeated(self, value));
        Some(self.quotient(dividend, Reciprocal { high, low }))
    }

    /// Whether a scalar's reciprocal is normal given guards, which are then asked for.
    fn is_near_one(&mut self, value: Value) -> bool {
        let (func, definitions) = (&*self.builder.func, self.definitions);
        let Some(guards) = self.guards.as_deref_mut().filter(|_| func.ty(value).is_scalar()) else {
            return false;
        };
        let mut own = vec![];
        let is_near_one = Magnitudes { func, definitions }.of_product(&[value], &mut own).is_some();
        if is_near_one {
            guards.extend(own);
        }
        is_near_one
    }

    /// Returns the parts of `1 / value`. Where the reciprocal is zero or infinite, so are both.
    fn reciprocal(&mut self, value: Value) -> Reciprocal {
        let ty = self.ty(value);
        let [one, part] = [1.0, HIGH_PART].map(|constant| self.constant(&ty, constant));
        let whole = self.lanewise("div", vec![one, value]);
        let high = self.lanewise("mul", vec![whole, part]);
        let negative = self.lanewise("neg", vec![value]);
        let remainder = self.lanewise("fma", vec![negative, high, one]);
        let low = self.lanewise("mul", vec![remainder, whole]);
        let is_number = self.compare(BinaryOp::Eq, low, low);
        let low = self.lanewise_as(&ty, "select", vec![is_number, low, high]);
        Reciprocal { high, low }
    }

    fn quotient(&mut self, dividend: Value, Reciprocal { high, low }: Reciprocal) -> Kind {
        let small = self.lanewise("mul", vec![dividend, low]);
        Scalar::named("fma", vec![dividend, high, small]).into()
    }

    /// Returns the power of two that scales a value towards 1, so that the reciprocal of their product is normal: 1 for nearly all.
    fn balance(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        let magnitude = self.lanewise("abs", vec![value]);
        let mut balance = self.constant(&ty, 1.0);
        for (comparison, bound, power) in [(BinaryOp::Lt, -FAR, TOWARDS), (BinaryOp::Gt, FAR, -TOWARDS)] {
            let [bound, power] = [bound, power].map(|exponent| self.constant(&ty, exponent.exp2()));
            let is_far = self.compare(comparison, magnitude, bound);
            balance = self.lanewise_as(&ty, "select", vec![is_far, power, balance]);
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
        self.lanewise_as(&ty, name, args)
    }

    fn lanewise_as(&mut self, ty: &Type, name: &str, args: Vec<Value>) -> Value {
        self.builder.one(Scalar::named(name, args), ty.clone())
    }

    fn compare(&mut self, comparison: BinaryOp, a: Value, b: Value) -> Value {
        let flags = Type { dtype: DType::Bool, ..self.ty(a) };
        self.builder.one(Scalar::new(binary(comparison), vec![a, b]), flags)
    }

    fn constant(&mut self, ty: &Type, value: f64) -> Value {
        let scalar = Type::scalar(ty.dtype);
        let constant = self.builder.one(Constant { value: ConstantValue::Float(value) }, scalar);
        if ty.is_scalar() { constant } else { self.builder.one(Splat { value: constant }, ty.clone()) }
    }

    /// Whether a value was rounded when it was computed; a constant may replace it where a condition is false.
    fn is_rounded(&self, value: Value, choices: u32) -> bool {
        let either = |arms: [Value; 2]| {
            let known = arms.map(|arm| self.float_constant(arm).is_some());
            let rounded = arms.map(|arm| choices > 0 && self.is_rounded(arm, choices - 1));
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

    /// Returns `x * log2 e`; a constant that `x` is a multiple by absorbs the factor.
    fn times_log2_e(&mut self, x: Value) -> Value {
        let ty = self.ty(x);
        let product = self.scalar(x).filter(|scalar| scalar.op.arith == ArithKind::Mul);
        let constant_factor = product.and_then(|product| {
            let [a, b] = [product.args[0], product.args[1]];
            let either = |value, other| Some((value, self.float_constant(other)?));
            either(a, b).or_else(|| either(b, a))
        });
        let is_in_range = |factor: &f64| factor.abs().log2().abs() < FAR;
        let (x, factor) = match constant_factor {
            Some((unscaled, constant)) if is_in_range(&constant) => (unscaled, f64::from(constant as f32)),
            _ => (x, 1.0),
        };
        let factor = self.constant(&ty, factor * LOG2_E);
        self.lanewise("mul", vec![x, factor])
    }
}
