//! Defers the scale of scores, a uniform above 0, until after the maximum of an online softmax.
//!
//! A softmax takes the maximum of `s = x * scale`, subtracts it and exponentiates. Rounding a product with a scale above 0 is
//! monotone, so that the maximum of `x * scale` is that of `x` times `scale`, to the bit; and a difference, a multiple or a
//! multiply-add of `s` absorbs the scale. That saves an instruction per element, a tenth of what attention does for a score.
//! Between the product and the maximum, elements may be masked by infinities or zeros, by a select or under a branch. A chain of
//! scales, and of quotients by uniforms, becomes one product first.
//!
//! Guards on the parameters that scales are computed from ensure that they are above 0 and far from the ends of `f32`. Loops
//! without a dot are bound by memory, and gain nothing by it.

use std::collections::{HashMap, HashSet};

use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::{Guard, strongest};
use crate::ir::{Func, FuncBuilder, Op, Rewriter, Type, Value, cse_and_dce};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{For, If, Kind, Reduce, Splat};
use crate::support::dtype::DType;
use crate::transform::contract_floats::{float_constant, scaled_by_uniform, uses};

/// A parameter in a scale lies between the power of two with this exponent and its reciprocal.
const PARAMETER_EXPONENT: i8 = 40;
/// So does a product of scales.
const PRODUCT_EXPONENT: i32 = 120;

/// Joins scales, and moves them after maxima; returns the guards.
pub fn defer_scale(func: &mut Func) -> Vec<Guard> {
    let mut guards = join_scales(func);
    guards.extend(scale_after_maxima(func));
    strongest(guards)
}

/// Visits the operations of dot loops.
fn in_dot_loops<'f>(func: &'f Func, visit: &mut dyn FnMut(&'f Op)) {
    func.body.walk(&mut |op| {
        if let Kind::For(For { body, .. }) = &op.kind
            && body.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)))
        {
            body.ops.iter().for_each(&mut *visit);
        }
    });
}

/// Makes one product of a chain of products with a scale each.
fn join_scales(func: &mut Func) -> Vec<Guard> {
    let (definitions, uses) = (func.cloned_definitions(), uses(func));
    let scales = Scales { func, definitions: &definitions };
    // For each product, what is scaled, and by which scalars.
    let mut scaled: HashMap<Value, (Value, Vec<Value>)> = HashMap::new();
    let (mut joined, mut guards) = (HashSet::new(), vec![]);
    in_dot_loops(func, &mut |op| {
        let Some((value, scale)) = op.results.first().and_then(|&result| scales.scaled(result)) else {
            return;
        };
        let mut own_guards = vec![];
        let Some(scale) = scales.resolved(scale, &mut own_guards) else { return };
        let is_one = float_constant(&definitions, scale) == Some(1.0);
        let own = if is_one { vec![] } else { vec![scale] };
        let result = op.results[0];
        let inner = scaled.get(&value).filter(|_| uses.get(&value) == Some(&1)).cloned();
        let is_joined = inner.is_some() || is_one;
        let (value, mut chain) = inner.unwrap_or((value, vec![]));
        chain.extend(own);
        if scales.magnitude_of_all(&chain, &mut own_guards).is_some() {
            scaled.insert(result, (value, chain));
            if is_joined {
                joined.insert(result);
                guards.extend(own_guards);
            }
        }
    });
    if joined.is_empty() {
        return vec![];
    }
    Rewriter::default().run(func, &mut |rewriter, builder, op| {
        let Some(&result) = op.results.first().filter(|result| joined.contains(result)) else {
            return builder.append(op);
        };
        let (value, chain) = &scaled[&result];
        let value = rewriter.resolve(*value);
        let ty = builder.func.ty(result).clone();
        let scalar = Type::scalar(ty.dtype);
        let product = chain
            .iter()
            .copied()
            .reduce(|one, other| builder.one(Scalar::named("mul", vec![one, other]), scalar.clone()));
        match product {
            Some(product) => {
                let product = builder.one(Splat { value: product }, ty);
                builder.append(Op { kind: Scalar::named("mul", vec![value, product]).into(), ..op });
            }
            None => rewriter.replace(result, value),
        }
    });
    cse_and_dce(func);
    guards
}

/// Moves scales after maxima.
fn scale_after_maxima(func: &mut Func) -> Vec<Guard> {
    let definitions = func.cloned_definitions();
    let mut found = Scaled::default();
    let scales = Scales { func, definitions: &definitions };
    in_dot_loops(func, &mut |op| scales.find(op, &mut found));
    if found.users.is_empty() {
        return vec![];
    }
    Rewriter::default().run(func, &mut |_, builder, op| found.rewrite(builder, op));
    cse_and_dce(func);
    found.guards
}

/// Values whose scale is deferred.
#[derive(Default)]
struct Scaled {
    /// Selects and branches without a scale, and the scores.
    unscaled: HashSet<Value>,
    /// The unscaled operands that replace products with a scale.
    replacements: HashMap<Value, Value>,
    /// The deferred scale of scores, by the users of these.
    users: HashMap<Value, (Value, ScoreUse)>,
    guards: Vec<Guard>,
}

/// A use of scores.
#[derive(Clone, Copy)]
enum ScoreUse {
    Maximum,
    /// `s - b`
    Difference,
    /// `s * k` and `fma(s, k, b)`, with the scalar that `k` is.
    Multiple(Value),
}

/// Analysis of scales.
struct Scales<'f> {
    func: &'f Func,
    definitions: &'f HashMap<Value, Op>,
}

/// A scale, the products with it, and the values between these and the scores.
#[derive(Default)]
struct ScalePath {
    scale: Option<Value>,
    products: HashMap<Value, Value>,
    inner: HashSet<Value>,
}

impl Scales<'_> {
    /// The scores that a maximum is taken of, if all of their uses allow a deferred scale.
    fn find(&self, op: &Op, found: &mut Scaled) {
        let Some(scores) = maximum_of(op).filter(|scores| !found.unscaled.contains(scores)) else { return };
        let mut path = ScalePath::default();
        if self.func.ty(scores).dtype != DType::F32 || self.follow(scores, &mut path).is_none() {
            return;
        }
        let mut guards = vec![];
        if let Some(scale) = path.scale
            && self.magnitude_of_all(&[scale], &mut guards).is_some()
            && let Some(users) = self.users(scores, &path)
            && !found.overlaps(&path, &users)
        {
            found.unscaled.extend(path.inner);
            found.unscaled.insert(scores);
            found.replacements.extend(path.products);
            found.users.extend(users.into_iter().map(|(result, score_use)| (result, (scale, score_use))));
            found.guards.extend(guards);
        }
    }

    /// From scores to the products that they are computed from.
    fn follow(&self, value: Value, path: &mut ScalePath) -> Option<()> {
        let op = self.definitions.get(&value)?;
        if let Kind::If(If { then, otherwise, .. }) = &op.kind
            && op.results.len() == 1
        {
            path.inner.insert(value);
            self.follow_either(then.yields[0], otherwise.yields[0], path)?;
            // The maximum is scaled after the branch.
            let defines = |scale: &Value| [then, otherwise].iter().any(|arm| arm.defined().contains(scale));
            return path.scale.filter(|scale| !defines(scale)).map(|_| ());
        }
        if let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind
            && row.arith == ArithKind::Select
        {
            path.inner.insert(value);
            return self.follow_either(args[1], args[2], path);
        }
        let (unscaled, scale) = self.scaled(value)?;
        path.products.insert(value, unscaled);
        (*path.scale.get_or_insert(scale) == scale).then_some(())
    }

    /// Of two values of which one may be a mask's constant.
    fn follow_either(&self, one: Value, other: Value, path: &mut ScalePath) -> Option<()> {
        match [one, other].map(|value| self.is_scale_invariant(value)) {
            [true, false] => self.follow(other, path),
            [false, true] => self.follow(one, path),
            [false, false] => {
                self.follow(one, path)?;
                self.follow(other, path)
            }
            [true, true] => None,
        }
    }

    /// Whether all elements are a constant that no scale changes.
    fn is_scale_invariant(&self, value: Value) -> bool {
        float_constant(self.definitions, value)
            .is_some_and(|constant| constant == 0.0 || constant.is_infinite())
    }

    /// The scalar that a tile is a splat of.
    fn uniform(&self, value: Value) -> Option<Value> {
        let Kind::Splat(Splat { value }) = self.definitions.get(&value)?.kind else { return None };
        Some(value)
    }

    /// What a product with a scale is of, and the scale.
    fn scaled(&self, value: Value) -> Option<(Value, Value)> {
        let is_tile = !self.func.ty(value).is_scalar() && self.func.ty(value).dtype == DType::F32;
        let (unscaled, scale) = scaled_by_uniform(self.func, self.definitions, value).filter(|_| is_tile)?;
        Some((unscaled, self.uniform(scale)?))
    }

    /// Exponents of the powers of two that a scalar lies between, which is above 0 given guards.
    fn magnitude(&self, value: Value, guards: &mut Vec<Guard>) -> Option<(i32, i32)> {
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
        let Kind::Scalar(scalar) = &op.kind else { return None };
        match (scalar.op.arith, &scalar.args[..]) {
            (ArithKind::Mul, &[one, other]) => {
                let (one, other) = (self.magnitude(one, guards)?, self.magnitude(other, guards)?);
                Some((one.0 + other.0, one.1 + other.1))
            }
            (ArithKind::Div, &[one, other]) => {
                let (one, other) = (self.magnitude(one, guards)?, self.magnitude(other, guards)?);
                Some((one.0 - other.1, one.1 - other.0))
            }
            (ArithKind::Select, _) => {
                let chosen = self.resolved(value, guards)?;
                (chosen != value).then(|| self.magnitude(chosen, guards))?
            }
            (_, &[magnitude]) if scalar.op.name == "abs" => self.magnitude(magnitude, guards),
            _ => None,
        }
    }

    fn magnitude_of_all(&self, scales: &[Value], guards: &mut Vec<Guard>) -> Option<()> {
        let add = |(low, high): (i32, i32), &scale: &Value| {
            let own = self.magnitude(scale, guards)?;
            Some((low + own.0, high + own.1))
        };
        let (low, high) = scales.iter().try_fold((0, 0), add)?;
        (-PRODUCT_EXPONENT <= low && high <= PRODUCT_EXPONENT).then_some(())
    }

    /// The operand that a select chooses, where magnitudes decide its comparison.
    fn resolved(&self, mut value: Value, guards: &mut Vec<Guard>) -> Option<Value> {
        while let Some(Kind::Scalar(Scalar { op, args, .. })) =
            self.definitions.get(&value).map(|op| &op.kind)
            && op.arith == ArithKind::Select
        {
            let Kind::Scalar(condition) = &self.definitions.get(&args[0])?.kind else { return None };
            let [lhs, rhs] = condition.args[..] else { return None };
            let (lhs, rhs) = (self.magnitude(lhs, guards)?, self.magnitude(rhs, guards)?);
            let [holds, fails] = match condition.op.arith {
                ArithKind::Compare(BinaryOp::Lt) => [lhs.1 < rhs.0, lhs.0 >= rhs.1],
                ArithKind::Compare(BinaryOp::Gt) => [lhs.0 > rhs.1, lhs.1 <= rhs.0],
                _ => return None,
            };
            value = match (holds, fails) {
                (true, _) => args[1],
                (_, true) => args[2],
                _ => return None,
            };
        }
        Some(value)
    }

    /// The users of scores, if they allow a deferred scale and nothing else uses what scores are computed from.
    fn users(&self, scores: Value, path: &ScalePath) -> Option<Vec<(Value, ScoreUse)>> {
        let (mut users, mut fits) = (vec![], true);
        let is_on_path = |value: &Value| {
            *value != scores && (path.inner.contains(value) || path.products.contains_key(value))
        };
        self.func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let on_path = op.results.first().is_some_and(|result| path.inner.contains(result));
            let operands = operation.operands();
            if operands.contains(&scores) {
                match self.score_use(op, scores) {
                    Some(score_use) => users.push((op.results[0], score_use)),
                    None => fits = false,
                }
            }
            let yields = || operation.blocks().into_iter().flat_map(|block| &block.yields);
            fits &= !yields().any(|value| *value == scores);
            fits &= on_path || !operands.iter().chain(yields()).any(is_on_path);
        });
        fits.then_some(users)
    }

    fn score_use(&self, op: &Op, scores: Value) -> Option<ScoreUse> {
        if maximum_of(op) == Some(scores) {
            return Some(ScoreUse::Maximum);
        }
        let Kind::Scalar(Scalar { op, args, .. }) = &op.kind else { return None };
        if args[0] != scores || args[1..].contains(&scores) {
            return None;
        }
        match op.arith {
            ArithKind::Sub => Some(ScoreUse::Difference),
            ArithKind::Mul | ArithKind::MulAdd => self.uniform(args[1]).map(ScoreUse::Multiple),
            _ => None,
        }
    }
}

/// The input of a maximum reduction.
fn maximum_of(op: &Op) -> Option<Value> {
    let Kind::Reduce(Reduce { combination, .. }) = &op.kind else { return None };
    let ([input], [Op { kind: Kind::Scalar(scalar), results, .. }]) =
        (&combination.inputs[..], &combination.block.ops[..])
    else {
        return None;
    };
    let is_maximum = scalar.op.arith == ArithKind::Maximum
        && scalar.args == combination.block.args
        && *results == combination.block.yields;
    is_maximum.then_some(*input)
}

impl Scaled {
    /// Whether a product is both a use of scores and on the path to others: it is rewritten once.
    fn overlaps(&self, path: &ScalePath, users: &[(Value, ScoreUse)]) -> bool {
        path.products.keys().any(|product| self.users.contains_key(product))
            || users.iter().any(|(result, _)| self.replacements.contains_key(result))
    }

    fn rewrite(&self, builder: &mut FuncBuilder, mut op: Op) {
        let Some(&result) = op.results.first() else { return builder.append(op) };
        if self.unscaled.contains(&result) {
            let operation = op.kind.operation_mut();
            let replaced = |value: Value| self.replacements.get(&value).copied().unwrap_or(value);
            operation.map(&mut |value| replaced(value));
            for block in operation.blocks_mut() {
                block.yields.iter_mut().for_each(|value| *value = replaced(*value));
            }
            return builder.append(op);
        }
        let Some(&(scale, score_use)) = self.users.get(&result) else { return builder.append(op) };
        op.kind.operation_mut().map(&mut |value| self.replacements.get(&value).copied().unwrap_or(value));
        let ty = builder.func.ty(result).clone();
        let kind: Kind = match (score_use, op.kind) {
            (ScoreUse::Multiple(by), Kind::Scalar(mut scalar)) => {
                let by = builder.one(Scalar::named("mul", vec![by, scale]), Type::scalar(ty.dtype));
                scalar.args[1] = builder.one(Splat { value: by }, ty);
                scalar.into()
            }
            (ScoreUse::Difference, Kind::Scalar(scalar)) => {
                let scale = builder.one(Splat { value: scale }, ty.clone());
                let negative = builder.one(Scalar::named("neg", vec![scalar.args[1]]), ty);
                Scalar::named("fma", vec![scalar.args[0], scale, negative]).into()
            }
            (_, kind) => {
                let largest = builder.one(kind, ty.clone());
                let scale = if ty.is_scalar() { scale } else { builder.one(Splat { value: scale }, ty) };
                Scalar::named("mul", vec![largest, scale]).into()
            }
        };
        builder.append(Op { kind, ..op });
    }
}
