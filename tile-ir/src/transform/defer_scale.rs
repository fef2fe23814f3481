//! Defers the scale of scores, a uniform above 0, until after the maxima and differences of an online softmax.
//!
//! A softmax takes the maximum of scores `s = x * scale`, subtracts a running maximum `m` and exponentiates. Here the maximum is that
//! of `x`, the running maximum is carried without the scale, and `exp(s - m)` becomes `exp2((x - m) * (scale * log2 e))`. That saves a
//! product per element, and one per row where the running maximum is used for nothing else.
//!
//! Laws:
//! 1. Rounding a product with a scale above 0 is monotone, so the maximum of scaled values is the scaled maximum, to the bit. So are
//!    a select, a branch and a carried value of scaled values. Infinities and 0 are what they are with or without a scale.
//! 2. A difference is deferred where all that uses it are exponentials: within the error of its operands it is the same, and 0
//!    where they are equal. Where it overflows without the scale, which is above 2^-120, the exponential is 0 or infinite either way.
//!    Where a product with the scale overflows, the written formula subtracts infinities; here the exponential is that of the scores.
//! 3. Guards on the parameters that scales are computed from ensure that scales are above 0 and far from the ends of `f32`.
//!
//! Between the product and the maximum, elements may be masked by infinities or zeros, by a select or under a branch. Loops
//! without a dot are bound by memory, and gain nothing by it.

use std::collections::{HashMap, HashSet};
use std::f64::consts::LOG2_E;

use crate::ir::guard::{Guard, strongest};
use crate::ir::{Block, Func, FuncBuilder, Op, Rewriter, Type, Value, cse_and_dce};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Broadcast, Constant, ConstantValue, ExpandDims, For, If, Kind, Reduce, Splat};
use crate::support::dtype::DType;
use crate::transform::magnitude::{Magnitudes, float_constant, in_dot_loops};

/// Moves scales after maxima and differences; returns the guards.
pub fn defer_scale(func: &mut Func) -> Vec<Guard> {
    let mut guards = vec![];
    let mut refused = HashSet::new();
    loop {
        let definitions = func.cloned_definitions();
        let scales = Scales { func, definitions: &definitions };
        let Some(deferral) = scales.find(&mut refused) else { break };
        guards.extend(deferral.guards.iter().cloned());
        Rewriter::default().run(func, &mut |_, builder, op| deferral.rewrite(builder, op));
        cse_and_dce(func);
    }
    strongest(guards)
}

/// What is deferred at once: scores with one chain of scales, and the running maxima of them.
struct Deferral<'d> {
    definitions: &'d HashMap<Value, Op>,
    /// The scalars that scores are multiplied by, one after the other.
    chain: Vec<Value>,
    scores: HashSet<Value>,
    /// Selects and branches between products and scores.
    inner: HashSet<Value>,
    /// The unscaled operand for each product with the scales.
    products: HashMap<Value, Value>,
    /// Maxima of scores and what is chosen or carried of them.
    maxima: HashSet<Value>,
    /// Differences between scores or maxima that only exponentials use.
    differences: HashSet<Value>,
    guards: Vec<Guard>,
}

/// How scores come from products: all have this chain of scales.
#[derive(Default)]
struct ScalePath {
    chain: Vec<Value>,
    products: HashMap<Value, Value>,
    inner: HashSet<Value>,
}

/// Analysis of scales.
struct Scales<'f, 'd> {
    func: &'f Func,
    definitions: &'d HashMap<Value, Op>,
}

impl<'d> Scales<'_, 'd> {
    /// Returns the first deferral that is possible; scores that allow none are added to `refused`.
    fn find(&self, refused: &mut HashSet<Value>) -> Option<Deferral<'d>> {
        let mut paths = vec![];
        in_dot_loops(self.func, &mut |op| {
            let scores = maximum_of(op).filter(|&scores| self.func.ty(scores).dtype == DType::F32);
            paths.extend(scores.and_then(|scores| Some((scores, self.path(scores)?))));
        });
        loop {
            paths.retain(|(scores, _)| !refused.contains(scores));
            let chain = paths.first()?.1.chain.clone();
            let mut guards = vec![];
            let group = || paths.iter().filter(|(_, path)| path.chain == chain);
            let magnitudes = Magnitudes { func: self.func, definitions: self.definitions };
            if magnitudes.of_product(&chain, &mut guards).is_none() {
                refused.extend(group().map(|(scores, _)| *scores));
                continue;
            }
            let scores: HashSet<Value> = group().map(|(scores, _)| *scores).collect();
            let mut inner = HashSet::new();
            let mut products = HashMap::new();
            for (_, path) in group() {
                inner.extend(&path.inner);
                products.extend(&path.products);
            }
            let maxima = self.maxima(&scores);
            let (chain, definitions, differences) = (chain.clone(), self.definitions, HashSet::new());
            let mut deferral =
                Deferral { definitions, chain, scores, inner, products, maxima, differences, guards };
            let uses = Uses::of(self.func);
            deferral.differences = self.differences(&deferral, &uses);
            // Scores that cannot take part leave, and with them maxima that depend on theirs.
            let unfit = group().find(|(scores, path)| !deferral.has_all_uses(*scores, path, &uses));
            match unfit {
                Some(&(scores, _)) => refused.insert(scores),
                None => return Some(deferral),
            };
        }
    }

    /// Returns how scores come from products, if they come from nothing else.
    fn path(&self, scores: Value) -> Option<ScalePath> {
        let mut path = ScalePath::default();
        self.follow(scores, &mut path)?;
        Some(path)
    }

    /// From scores to the products that they are computed from.
    fn follow(&self, value: Value, path: &mut ScalePath) -> Option<()> {
        let op = self.definitions.get(&value)?;
        if let Kind::If(If { then, otherwise, .. }) = &op.kind
            && op.results.len() == 1
        {
            path.inner.insert(value);
            return self.follow_either([then.yields[0], otherwise.yields[0]], path);
        }
        if let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind
            && row.arith == ArithKind::Select
        {
            path.inner.insert(value);
            return self.follow_either([args[1], args[2]], path);
        }
        let (mut unscaled, scale) = self.scaled(value)?;
        let mut chain = vec![scale];
        while let Some((inner, scale)) = self.scaled(unscaled) {
            chain.insert(0, scale);
            unscaled = inner;
        }
        path.products.insert(value, unscaled);
        if path.chain.is_empty() {
            path.chain.clone_from(&chain);
        }
        (path.chain == chain).then_some(())
    }

    /// Follows two values of which one may be a mask's constant.
    fn follow_either(&self, values: [Value; 2], path: &mut ScalePath) -> Option<()> {
        let [one, other] = values.map(|value| self.is_scale_invariant(value));
        if one && other {
            return None;
        }
        let scaled = values.into_iter().zip([one, other]).filter(|&(_, invariant)| !invariant);
        scaled.map(|(value, _)| self.follow(value, path)).collect()
    }

    /// Whether all elements are a constant that no scale changes.
    fn is_scale_invariant(&self, value: Value) -> bool {
        float_constant(self.definitions, value)
            .is_some_and(|constant| constant == 0.0 || constant.is_infinite())
    }

    /// Splits `x * scale`, a tile times a uniform, into `x` and the scalar.
    fn scaled(&self, value: Value) -> Option<(Value, Value)> {
        let Kind::Scalar(Scalar { op, args, .. }) = &self.definitions.get(&value)?.kind else { return None };
        if op.arith != ArithKind::Mul || self.func.ty(value).is_scalar() {
            return None;
        }
        let uniform = |value: Value| {
            let Kind::Splat(Splat { value }) = self.definitions.get(&value)?.kind else { return None };
            Some(value)
        };
        uniform(args[1]).map(|scale| (args[0], scale)).or_else(|| Some((args[1], uniform(args[0])?)))
    }

    /// Returns the differences between deferred values that only exponentials use.
    fn differences(&self, deferral: &Deferral, uses: &Uses) -> HashSet<Value> {
        let is_deferred = |value: &Value| deferral.scores.contains(value) || deferral.maxima.contains(value);
        let is_difference = |op: &Op| {
            let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return false };
            let result = op.results[0];
            row.arith == ArithKind::Sub
                && args.iter().all(is_deferred)
                && !uses.carried.contains(&result)
                && uses.by(result).iter().all(|user| is_power(user))
        };
        let mut differences = HashSet::new();
        self.func.body.walk(&mut |op| differences.extend(op.results.iter().filter(|_| is_difference(op))));
        differences
    }

    /// Returns the values that are scaled by the scores' scales to the bit, given that the maxima of `scores` are.
    fn maxima(&self, scores: &HashSet<Value>) -> HashSet<Value> {
        let mut carried = HashMap::new();
        let mut known = HashSet::new();
        self.func.body.walk(&mut |op| {
            if let Kind::For(For { body, inits, .. }) = &op.kind {
                for (i, &result) in op.results.iter().enumerate() {
                    let sources = [inits[i], body.yields[i]];
                    carried.insert(result, sources);
                    carried.insert(body.args[i + 1], sources);
                }
            }
            known.extend(maximum_of(op).filter(|input| scores.contains(input)).map(|_| op.results[0]));
        });
        let all = self.definitions.keys().chain(carried.keys()).copied();
        let sources: HashMap<Value, Vec<Value>> =
            all.filter_map(|value| Some((value, self.sources(value, &known, &carried)?))).collect();
        // All that may be, less what is chosen from other values or yielded among them.
        let mut maxima: HashSet<Value> = sources.keys().copied().collect();
        loop {
            let is_scaled = |value: &Value| maxima.contains(value) || self.is_scale_invariant(*value);
            let escaping = self.escaping(&maxima);
            let stays = |value: &Value| !escaping.contains(value) && sources[value].iter().all(is_scaled);
            let fewer: HashSet<Value> = maxima.iter().copied().filter(stays).collect();
            if fewer.len() == maxima.len() {
                break;
            }
            maxima = fewer;
        }
        // Of these, what comes from a maximum.
        let mut reached: HashSet<Value> = known.intersection(&maxima).copied().collect();
        loop {
            let from_reached = |value: &&Value| sources[*value].iter().any(|source| reached.contains(source));
            let more: Vec<Value> = maxima.iter().filter(from_reached).copied().collect();
            let before = reached.len();
            reached.extend(more);
            if reached.len() == before {
                return reached;
            }
        }
    }

    /// Returns the values that a value is chosen from, if it is some of them, element by element.
    fn sources(
        &self,
        value: Value,
        known: &HashSet<Value>,
        carried: &HashMap<Value, [Value; 2]>,
    ) -> Option<Vec<Value>> {
        if self.func.ty(value).dtype != DType::F32 {
            return None;
        }
        if known.contains(&value) {
            return Some(vec![]);
        }
        if let Some(sources) = carried.get(&value) {
            return Some(sources.to_vec());
        }
        let op = self.definitions.get(&value)?;
        if let Kind::If(If { then, otherwise, .. }) = &op.kind {
            let position = op.results.iter().position(|&result| result == value)?;
            return Some(vec![then.yields[position], otherwise.yields[position]]);
        }
        if let Kind::ExpandDims(ExpandDims { value, .. })
        | Kind::Broadcast(Broadcast { value })
        | Kind::Splat(Splat { value }) = op.kind
        {
            return Some(vec![value]);
        }
        let Kind::Scalar(Scalar { op, args, .. }) = &op.kind else { return None };
        match op.arith {
            ArithKind::Maximum => Some(args.clone()),
            ArithKind::Select => Some(args[1..].to_vec()),
            _ => None,
        }
    }

    /// Returns the values that a block yields for a result which is not one of `maxima`.
    fn escaping(&self, maxima: &HashSet<Value>) -> HashSet<Value> {
        let mut escaping = HashSet::new();
        self.func.body.walk(&mut |op| {
            for block in op.kind.operation().blocks() {
                for (i, value) in block.yields.iter().enumerate() {
                    let stays = op.results.get(i).is_some_and(|result| maxima.contains(result))
                        && matches!(op.kind, Kind::For(_) | Kind::If(_));
                    if !stays {
                        escaping.insert(*value);
                    }
                }
            }
        });
        escaping
    }
}

/// Whether an operation raises e or 2 to a power.
fn is_power(op: &Op) -> bool {
    matches!(&op.kind, Kind::Scalar(scalar) if scalar.op.arith == ArithKind::Exp || scalar.op.name == "exp2")
}

/// The users of each value.
struct Uses<'f> {
    by: HashMap<Value, Vec<&'f Op>>,
    /// Values that loops carry.
    carried: HashSet<Value>,
}

impl<'f> Uses<'f> {
    fn of(func: &'f Func) -> Uses<'f> {
        let mut uses = Uses { by: HashMap::new(), carried: HashSet::new() };
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            operation.operands().into_iter().for_each(|operand| uses.by.entry(operand).or_default().push(op));
            // A branch uses what its arms yield.
            for value in operation.blocks().into_iter().flat_map(|block: &Block| &block.yields) {
                uses.by.entry(*value).or_default().push(op);
                if !matches!(op.kind, Kind::If(_)) {
                    uses.carried.insert(*value);
                }
            }
        });
        uses
    }

    fn by(&self, value: Value) -> &[&'f Op] {
        self.by.get(&value).map_or(&[], Vec::as_slice)
    }
}

/// Returns the input of a maximum reduction.
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

impl Deferral<'_> {
    /// Whether all uses of scores are maxima and differences, and nothing else uses what is between them and their products.
    fn has_all_uses(&self, scores: Value, path: &ScalePath, uses: &Uses) -> bool {
        let is_inner = |op: &Op| op.results.iter().any(|result| self.inner.contains(result));
        let is_difference = |op: &Op| op.results.iter().any(|result| self.differences.contains(result));
        let fits = |user: &&Op| maximum_of(user) == Some(scores) || is_difference(user) || is_inner(user);
        let is_inside =
            |value: &Value| self.scores.contains(value) || uses.by(*value).iter().all(|user| is_inner(user));
        !uses.carried.contains(&scores)
            && uses.by(scores).iter().all(fits)
            && path.inner.iter().chain(path.products.keys()).all(is_inside)
    }

    fn rewrite(&self, builder: &mut FuncBuilder, mut op: Op) {
        let is_inner = |result: &Value| self.inner.contains(result) || self.differences.contains(result);
        if maximum_of(&op).is_some_and(|input| self.scores.contains(&input))
            || op.results.iter().any(is_inner)
        {
            let unscaled = |value: Value| self.products.get(&value).copied().unwrap_or(value);
            let operation = op.kind.operation_mut();
            operation.map(&mut |value| unscaled(value));
            for block in operation.blocks_mut() {
                block.yields.iter_mut().for_each(|value| *value = unscaled(*value));
            }
            return builder.append(op);
        }
        if op.results.iter().any(|result| self.maxima.contains(result)) && !matches!(op.kind, Kind::For(_)) {
            return builder.append(op);
        }
        if let Kind::Scalar(power) = &op.kind
            && self.differences.contains(&power.args[0])
        {
            let base = if power.op.arith == ArithKind::Exp { LOG2_E } else { 1.0 };
            let exponent = self.scaled_difference(builder, power.args[0], base);
            let kind = Scalar::named("exp2", vec![exponent]).into();
            return builder.append(Op { kind, ..op });
        }
        self.scale_operands(builder, &mut op);
        builder.append(op);
    }

    /// Hands scaled maxima to an operation; what a loop carries stays as it is.
    fn scale_operands(&self, builder: &mut FuncBuilder, op: &mut Op) {
        if let Kind::For(For { inits, .. }) = &mut op.kind {
            for (init, result) in inits.iter_mut().zip(&op.results) {
                if self.maxima.contains(init) && !self.maxima.contains(result) {
                    *init = self.scaled(builder, *init);
                }
            }
            return;
        }
        let mut operands = op.kind.operation().operands();
        operands.retain(|operand| self.maxima.contains(operand));
        let scaled: HashMap<Value, Value> =
            operands.into_iter().map(|value| (value, self.scaled(builder, value))).collect();
        op.kind.operation_mut().map(&mut |value| scaled.get(&value).copied().unwrap_or(value));
    }

    /// Multiplies a maximum by each scale, as its elements were.
    fn scaled(&self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        self.chain.iter().fold(value, |value, &scale| {
            let scale = self.computed(builder, scale);
            let scale = splat(builder, scale, &ty);
            builder.one(Scalar::named("mul", vec![value, scale]), ty.clone())
        })
    }

    /// Computes a scale, made of parameters and constants, where it is needed: its definition may be in a loop or a branch.
    fn computed(&self, builder: &mut FuncBuilder, scale: Value) -> Value {
        let Some(op) = self.definitions.get(&scale) else { return scale };
        let ty = builder.func.ty(scale).clone();
        let mut kind = op.kind.clone();
        kind.operation_mut().map(&mut |operand| self.computed(builder, operand));
        builder.one(kind, ty)
    }

    /// Multiplies a difference by the product of the scales and a constant.
    fn scaled_difference(&self, builder: &mut FuncBuilder, difference: Value, constant: f64) -> Value {
        let ty = builder.func.ty(difference).clone();
        let scalar = Type::scalar(ty.dtype);
        let product = |builder: &mut FuncBuilder, one, other| {
            builder.one(Scalar::named("mul", vec![one, other]), scalar.clone())
        };
        let mut factors: Vec<Value> = self.chain.iter().map(|&scale| self.computed(builder, scale)).collect();
        if constant != 1.0 {
            let value = ConstantValue::Float(constant);
            factors.push(builder.one(Constant { value }, Type::scalar(ty.dtype)));
        }
        let factor = factors.into_iter().reduce(|one, other| product(builder, one, other));
        let factor = splat(builder, factor.expect("scores have a scale"), &ty);
        builder.one(Scalar::named("mul", vec![difference, factor]), ty)
    }
}

/// Repeats a scalar in a tile, or returns it where a scalar is wanted.
fn splat(builder: &mut FuncBuilder, value: Value, ty: &Type) -> Value {
    if ty.is_scalar() { value } else { builder.one(Splat { value }, ty.clone()) }
}
