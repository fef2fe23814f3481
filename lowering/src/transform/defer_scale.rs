//! Scales of tiles: one number for all elements, above 0.
//!
//! Of `s = x * scale` a softmax takes the maximum, subtracts it and raises to a power. A product with a number above 0 keeps the order
//! of what it rounds, so that the maximum of `x * scale` is that of `x` times `scale`, to the bit; and a difference, a multiple or a
//! multiply-add of `s` takes the factor in. An instruction for each element goes, which is a tenth of what attention does for a score.
//! Between the product and the maximum elements may be masked by infinities or zeros, by a selection or under a branch. Of several
//! scales one after the other, and quotients by such numbers, one product is made first.
//!
//! That scales are above 0 and far from the ends of what an `f32` holds the launcher checks of the parameters that they are made of.
//! Loops without a product of matrices are bound by memory, and gain nothing by it.

use std::collections::{HashMap, HashSet};

use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::{Guard, strongest};
use crate::ir::{Func, FuncBuilder, Op, Rewriter, Type, Value, cse_and_dce};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{For, If, Kind, Reduce, Splat};
use crate::support::dtype::DType;
use crate::transform::contract_floats::{number, product, uses};

/// A parameter in a scale lies between the power of two with this exponent and its reciprocal.
const PARAMETER: i8 = 40;
/// So does a product of scales.
const PRODUCT: i32 = 120;

/// Joins scales, and scales after maxima what is scaled before; gives what the launcher has to check.
pub fn defer_scale(func: &mut Func) -> Vec<Guard> {
    let mut facts = join_scales(func);
    facts.extend(scale_after_maxima(func));
    strongest(facts)
}

/// Visits what stands in loops of products.
fn in_products<'f>(func: &'f Func, visit: &mut dyn FnMut(&'f Op)) {
    func.body.walk(&mut |op| {
        if let Kind::For(For { body, .. }) = &op.kind
            && body.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)))
        {
            body.ops.iter().for_each(&mut *visit);
        }
    });
}

/// Makes one product of several with a scale each.
fn join_scales(func: &mut Func) -> Vec<Guard> {
    let (definitions, uses) = (func.cloned_definitions(), uses(func));
    let scales = Scales { func, definitions: &definitions };
    // What is scaled, and by which numbers, by the product.
    let mut scaled: HashMap<Value, (Value, Vec<Value>)> = HashMap::new();
    let (mut joined, mut facts) = (HashSet::new(), vec![]);
    in_products(func, &mut |op| {
        let Some((value, scale)) = op.results.first().and_then(|&result| scales.product(result)) else {
            return;
        };
        let mut own_facts = vec![];
        let Some(scale) = scales.resolved(scale, &mut own_facts) else { return };
        let is_one = number(&definitions, scale) == Some(1.0);
        let own = if is_one { vec![] } else { vec![scale] };
        let result = op.results[0];
        let inner = scaled.get(&value).filter(|_| uses.get(&value) == Some(&1)).cloned();
        let is_joined = inner.is_some() || is_one;
        let (value, mut factors) = inner.unwrap_or((value, vec![]));
        factors.extend(own);
        if scales.magnitude_of_all(&factors, &mut own_facts).is_some() {
            scaled.insert(result, (value, factors));
            if is_joined {
                joined.insert(result);
                facts.extend(own_facts);
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
        let (value, factors) = &scaled[&result];
        let value = rewriter.resolve(*value);
        let ty = builder.func.ty(result).clone();
        let scalar = Type::scalar(ty.dtype);
        let product = factors
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
    facts
}

/// Scales after maxima what is scaled before.
fn scale_after_maxima(func: &mut Func) -> Vec<Guard> {
    let definitions = func.cloned_definitions();
    let mut found = Scaled::default();
    let scales = Scales { func, definitions: &definitions };
    in_products(func, &mut |op| scales.find(op, &mut found));
    if found.users.is_empty() {
        return vec![];
    }
    Rewriter::default().run(func, &mut |_, builder, op| found.rewrite(builder, op));
    cse_and_dce(func);
    found.facts
}

/// What is not scaled any more.
#[derive(Default)]
struct Scaled {
    /// Selections and branches that lack a scale, and the scores.
    unscaled: HashSet<Value>,
    /// What stands for products with a scale.
    factors: HashMap<Value, Value>,
    /// The scale that scores lack, by what is made of these.
    users: HashMap<Value, (Value, ScoreUse)>,
    facts: Vec<Guard>,
}

/// What is made of scores.
#[derive(Clone, Copy)]
enum ScoreUse {
    Maximum,
    /// `s - b`
    Difference,
    /// `s * k` and `fma(s, k, b)`, with the scalar that `k` is.
    Multiple(Value),
}

/// What is known of scales.
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
    /// The scores that a maximum is taken of, if all that they are used for can do without their scale.
    fn find(&self, op: &Op, found: &mut Scaled) {
        let Some(scores) = maximum_of(op).filter(|scores| !found.unscaled.contains(scores)) else { return };
        let mut path = ScalePath::default();
        if self.func.ty(scores).dtype != DType::F32 || self.follow(scores, &mut path).is_none() {
            return;
        }
        let mut facts = vec![];
        if let Some(scale) = path.scale
            && self.magnitude_of_all(&[scale], &mut facts).is_some()
            && let Some(users) = self.users(scores, &path)
            && !found.overlaps(&path, &users)
        {
            found.unscaled.extend(path.inner);
            found.unscaled.insert(scores);
            found.factors.extend(path.products);
            found.users.extend(users.into_iter().map(|(result, made)| (result, (scale, made))));
            found.facts.extend(facts);
        }
    }

    /// From scores to the products that they are made of.
    fn follow(&self, value: Value, path: &mut ScalePath) -> Option<()> {
        let op = self.definitions.get(&value)?;
        if let Kind::If(If { then, otherwise, .. }) = &op.kind
            && op.results.len() == 1
        {
            path.inner.insert(value);
            self.follow_either(then.yields[0], otherwise.yields[0], path)?;
            // The maximum is scaled behind the branch.
            let defines = |scale: &Value| [then, otherwise].iter().any(|arm| arm.defined().contains(scale));
            return path.scale.filter(|scale| !defines(scale)).map(|_| ());
        }
        if let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind
            && row.algebra == ArithKind::Select
        {
            path.inner.insert(value);
            return self.follow_either(args[1], args[2], path);
        }
        let (unscaled, scale) = self.product(value)?;
        path.products.insert(value, unscaled);
        (*path.scale.get_or_insert(scale) == scale).then_some(())
    }

    /// Of two of which one is what a mask gives.
    fn follow_either(&self, one: Value, other: Value, path: &mut ScalePath) -> Option<()> {
        match [one, other].map(|value| self.is_kept(value)) {
            [true, false] => self.follow(other, path),
            [false, true] => self.follow(one, path),
            [false, false] => {
                self.follow(one, path)?;
                self.follow(other, path)
            }
            [true, true] => None,
        }
    }

    /// Whether all elements are a number that no scale changes.
    fn is_kept(&self, value: Value) -> bool {
        number(self.definitions, value).is_some_and(|number| number == 0.0 || number.is_infinite())
    }

    /// The scalar that all elements are.
    fn uniform(&self, value: Value) -> Option<Value> {
        let Kind::Splat(Splat { value }) = self.definitions.get(&value)?.kind else { return None };
        Some(value)
    }

    /// What a product with a scale is of, and the scale.
    fn product(&self, value: Value) -> Option<(Value, Value)> {
        let is_tile = !self.func.ty(value).is_scalar() && self.func.ty(value).dtype == DType::F32;
        let (unscaled, scale) = product(self.func, self.definitions, value).filter(|_| is_tile)?;
        Some((unscaled, self.uniform(scale)?))
    }

    /// Exponents of the powers of two that a number lies between, which is above 0 if the launcher finds some facts to hold.
    fn magnitude(&self, value: Value, facts: &mut Vec<Guard>) -> Option<(i32, i32)> {
        if let Some(number) = number(self.definitions, value) {
            let exponent = number.log2();
            return (number > 0.0 && number.is_finite())
                .then_some((exponent.floor() as i32, exponent.ceil() as i32));
        }
        let Some(op) = self.definitions.get(&value) else {
            let scalar =
                self.func.scalar_parameter(value).filter(|_| self.func.ty(value).dtype == DType::F32)?;
            facts.push(Guard::Magnitude { scalar, least: -PARAMETER, most: PARAMETER });
            return Some((-i32::from(PARAMETER), i32::from(PARAMETER)));
        };
        let Kind::Scalar(scalar) = &op.kind else { return None };
        match (scalar.op.algebra, &scalar.args[..]) {
            (ArithKind::Mul, &[one, other]) => {
                let (one, other) = (self.magnitude(one, facts)?, self.magnitude(other, facts)?);
                Some((one.0 + other.0, one.1 + other.1))
            }
            (ArithKind::Div, &[one, other]) => {
                let (one, other) = (self.magnitude(one, facts)?, self.magnitude(other, facts)?);
                Some((one.0 - other.1, one.1 - other.0))
            }
            (ArithKind::Select, _) => {
                let chosen = self.resolved(value, facts)?;
                (chosen != value).then(|| self.magnitude(chosen, facts))?
            }
            (_, &[magnitude]) if scalar.op.name == "abs" => self.magnitude(magnitude, facts),
            _ => None,
        }
    }

    fn magnitude_of_all(&self, factors: &[Value], facts: &mut Vec<Guard>) -> Option<()> {
        let add = |(low, high): (i32, i32), &factor: &Value| {
            let own = self.magnitude(factor, facts)?;
            Some((low + own.0, high + own.1))
        };
        let (low, high) = factors.iter().try_fold((0, 0), add)?;
        (-PRODUCT <= low && high <= PRODUCT).then_some(())
    }

    /// A number, where it is chosen by comparing a magnitude with one that it is known to be beyond or not.
    fn resolved(&self, mut value: Value, facts: &mut Vec<Guard>) -> Option<Value> {
        while let Some(Kind::Scalar(Scalar { op, args, .. })) =
            self.definitions.get(&value).map(|op| &op.kind)
            && op.algebra == ArithKind::Select
        {
            let Kind::Scalar(condition) = &self.definitions.get(&args[0])?.kind else { return None };
            let [left, right] = condition.args[..] else { return None };
            let (left, right) = (self.magnitude(left, facts)?, self.magnitude(right, facts)?);
            let [holds, fails] = match condition.op.algebra {
                ArithKind::Compare(BinaryOp::Lt) => [left.1 < right.0, left.0 >= right.1],
                ArithKind::Compare(BinaryOp::Gt) => [left.0 > right.1, left.1 <= right.0],
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

    /// What uses scores, if that can do without their scale, and nothing else uses what they are made of.
    fn users(&self, scores: Value, path: &ScalePath) -> Option<Vec<(Value, ScoreUse)>> {
        let (mut users, mut fits) = (vec![], true);
        let is_way = |value: &Value| {
            *value != scores && (path.inner.contains(value) || path.products.contains_key(value))
        };
        self.func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let on_path = op.results.first().is_some_and(|result| path.inner.contains(result));
            let operands = operation.operands();
            if operands.contains(&scores) {
                match self.made_of(op, scores) {
                    Some(made) => users.push((op.results[0], made)),
                    None => fits = false,
                }
            }
            let yields = || operation.blocks().into_iter().flat_map(|block| &block.yields);
            fits &= !yields().any(|value| *value == scores);
            fits &= on_path || !operands.iter().chain(yields()).any(is_way);
        });
        fits.then_some(users)
    }

    fn made_of(&self, op: &Op, scores: Value) -> Option<ScoreUse> {
        if maximum_of(op) == Some(scores) {
            return Some(ScoreUse::Maximum);
        }
        let Kind::Scalar(Scalar { op, args, .. }) = &op.kind else { return None };
        if args[0] != scores || args[1..].contains(&scores) {
            return None;
        }
        match op.algebra {
            ArithKind::Sub => Some(ScoreUse::Difference),
            ArithKind::Mul | ArithKind::MulAdd => self.uniform(args[1]).map(ScoreUse::Multiple),
            _ => None,
        }
    }
}

/// What an operation takes the maximum of.
fn maximum_of(op: &Op) -> Option<Value> {
    let Kind::Reduce(Reduce { combination, .. }) = &op.kind else { return None };
    let ([input], [Op { kind: Kind::Scalar(scalar), results, .. }]) =
        (&combination.inputs[..], &combination.block.ops[..])
    else {
        return None;
    };
    let is_maximum = scalar.op.algebra == ArithKind::Maximum
        && scalar.args == combination.block.args
        && *results == combination.block.yields;
    is_maximum.then_some(*input)
}

impl Scaled {
    /// Whether one product is both among what is made of scores and on the way to others: it is rewritten once.
    fn overlaps(&self, path: &ScalePath, users: &[(Value, ScoreUse)]) -> bool {
        path.products.keys().any(|product| self.users.contains_key(product))
            || users.iter().any(|(result, _)| self.factors.contains_key(result))
    }

    fn rewrite(&self, builder: &mut FuncBuilder, mut op: Op) {
        let Some(&result) = op.results.first() else { return builder.append(op) };
        if self.unscaled.contains(&result) {
            let operation = op.kind.operation_mut();
            let factor = |value: Value| self.factors.get(&value).copied().unwrap_or(value);
            operation.map(&mut |value| factor(value));
            for block in operation.blocks_mut() {
                block.yields.iter_mut().for_each(|value| *value = factor(*value));
            }
            return builder.append(op);
        }
        let Some(&(scale, made)) = self.users.get(&result) else { return builder.append(op) };
        op.kind.operation_mut().map(&mut |value| self.factors.get(&value).copied().unwrap_or(value));
        let ty = builder.func.ty(result).clone();
        let kind: Kind = match (made, op.kind) {
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
