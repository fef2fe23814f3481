//! Induction variables: offsets that a loop carries and increments by an invariant, `ptr += BLOCK * stride`.
//!
//! They become their start plus a multiple of the loop's variable. Bounds follow from that, and a software pipeline can compute
//! the offsets of later iterations.

use std::collections::{HashMap, HashSet};

use super::invariant::InvariantCopier;
use crate::frontend::syntax::BinaryOp;
use crate::ir::{Block, Func, Op, Type, Value, substitute_in};
use crate::ops::scalar::{ArithKind, Scalar, binary};
use crate::ops::{Cast, Constant, ConstantValue, For, Kind, Splat};
use crate::support::dtype::DType;

/// Replaces the induction variables that addresses and masks are computed from.
pub fn strength_reduce(func: &mut Func) {
    let (mut constants, mut outermost) = (HashMap::new(), HashMap::new());
    for op in &func.body.ops {
        if let (Kind::Cast(_) | Kind::Scalar(_), &[result]) = (&op.kind, &op.results[..]) {
            outermost.insert(result, op.kind.clone());
        }
    }
    let used = func.body.used();
    func.body.walk(&mut |op| {
        if let Kind::Constant(Constant { value: ConstantValue::Int(constant) }) = op.kind {
            constants.insert(op.results[0], constant);
        }
    });
    let addresses = addresses(func);
    let mut body = std::mem::take(&mut func.body);
    InductionRewriter { func, constants, outermost, used, addresses }.block(&mut body);
    func.body = body;
}

/// The values that offsets and masks are computed from.
fn addresses(func: &Func) -> HashSet<Value> {
    let definitions = func.definitions();
    let mut todo: Vec<Value> = vec![];
    func.body.walk(&mut |op| {
        todo.extend(op.kind.operation().access().into_iter().flat_map(|place| place.operands()));
    });
    let mut found = HashSet::new();
    while let Some(value) = todo.pop() {
        if found.insert(value)
            && let Some(op) = definitions.get(&value)
            && op.kind.operation().blocks().is_empty()
        {
            todo.extend(op.kind.operation().operands());
        }
    }
    found
}

struct InductionRewriter<'f> {
    func: &'f mut Func,
    /// Integer constants.
    constants: HashMap<Value, i128>,
    /// The arithmetic outside of all loops.
    outermost: HashMap<Value, Kind>,
    /// All used values.
    used: HashSet<Value>,
    addresses: HashSet<Value>,
}

/// What an iteration adds or subtracts.
#[derive(Clone, Copy)]
pub(super) struct Increment {
    pub op: BinaryOp,
    pub value: Value,
}

impl InductionRewriter<'_> {
    fn block(&mut self, block: &mut Block) {
        for op in &mut block.ops {
            if let Kind::For(body) = &mut op.kind {
                self.replace_carried(body, &mut op.results);
            }
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| self.block(nested));
        }
    }

    /// Replaces loop-carried induction variables, and drops those that nothing uses after the loop.
    fn replace_carried(&mut self, body: &mut For, results: &mut Vec<Value>) {
        let Some(&step) = self.constants.get(&body.step).filter(|&&step| step > 0) else { return };
        for i in (0..body.inits.len()).rev() {
            let (arg, end) = (body.body.args[i + 1], body.body.yields[i]);
            let integer = matches!(self.func.ty(arg).dtype, DType::I32 | DType::I64);
            if !integer || !self.addresses.contains(&arg) || end == arg {
                continue;
            }
            let Some(increments) = increments(&body.body, arg, end, MAX_INCREMENTS) else { continue };
            let Some((value, built)) = self.start_and_multiple(body, body.inits[i], step, &increments) else {
                continue;
            };
            substitute_in(&mut body.body, &|old| if old == arg { value } else { old });
            body.body.ops.splice(0..0, built);
            if !self.used.contains(&results[i]) {
                results.remove(i);
                body.drop_carried(i);
            }
        }
    }

    /// `start + (variable - low) / step * amount ..`, and the operations that compute it.
    fn start_and_multiple(
        &mut self,
        body: &For,
        start: Value,
        step: i128,
        increments: &[Increment],
    ) -> Option<(Value, Vec<Op>)> {
        let Type { dtype, .. } = self.func.ty(start).clone();
        let variable = body.body.args[0];
        let widens = match (self.func.ty(variable).dtype, dtype) {
            (DType::I32, DType::I64) => true,
            (of_loop, of_offset) if of_loop == of_offset => false,
            _ => return None,
        };
        let constants = &self.constants;
        let mut copier = Copier {
            invariants: InvariantCopier::new(self.func, &body.body),
            block: &body.body,
            constants,
            outermost: &self.outermost,
        };
        let mut as_offset = |value: Value| {
            if widens { copier.invariants.push(Cast::new(value), Type::scalar(dtype)) } else { value }
        };
        let mut iteration = as_offset(variable);
        if constants.get(&body.low) != Some(&0) {
            let low = as_offset(body.low);
            iteration = copier.binary(BinaryOp::Sub, iteration, low);
        }
        let mut sum = start;
        for &Increment { op, value } in increments {
            let amount = copier.scalar_of(value).unwrap_or(value);
            let each = copier.quotient(amount, step)?;
            let iteration = copier.like(iteration, each);
            let distance = copier.binary(BinaryOp::Mul, iteration, each);
            let distance = copier.like(distance, start);
            sum = copier.binary(op, sum, distance);
        }
        Some((sum, copier.invariants.built))
    }
}

/// The increments from `arg` to `end`, at most so many.
pub(super) fn increments(block: &Block, arg: Value, end: Value, most: usize) -> Option<Vec<Increment>> {
    if end == arg {
        return Some(vec![]);
    }
    let most = most.checked_sub(1)?;
    let Some(Kind::Scalar(Scalar { op, args, .. })) = block.definition(end) else { return None };
    let (op, operands) = match (op.arith, &args[..]) {
        (ArithKind::Add, &[a, b]) => (BinaryOp::Add, vec![(a, b), (b, a)]),
        (ArithKind::Sub, &[a, b]) => (BinaryOp::Sub, vec![(a, b)]),
        _ => return None,
    };
    operands.into_iter().find_map(|(rest, value)| {
        let before = increments(block, arg, rest, most)?;
        Some([Increment { op, value }].into_iter().chain(before).collect())
    })
}

/// The most increments in an iteration.
const MAX_INCREMENTS: usize = 4;

/// Builds operations at the start of a loop's body out of copies of operations in it.
struct Copier<'a> {
    invariants: InvariantCopier<'a>,
    block: &'a Block,
    /// Integer constants.
    constants: &'a HashMap<Value, i128>,
    /// The arithmetic outside of all loops.
    outermost: &'a HashMap<Value, Kind>,
}

impl Copier<'_> {
    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.invariants.func.ty(a).clone();
        self.invariants.push(Scalar::new(binary(op), vec![a, b]), ty)
    }

    /// A scalar as a tile of the shape of another value.
    fn like(&mut self, scalar: Value, other: Value) -> Value {
        let ty = self.invariants.func.ty(other).clone();
        if ty.is_scalar() || self.invariants.func.ty(scalar) == &ty {
            scalar
        } else {
            self.invariants.push(Splat { value: scalar }, ty)
        }
    }

    /// The scalar that a value is a splat of, as far as the block defines it.
    fn scalar_of(&self, value: Value) -> Option<Value> {
        if let Some(Kind::Splat(Splat { value })) = self.block.definition(value) {
            return Some(*value);
        }
        self.invariants.func.ty(value).is_scalar().then_some(value)
    }

    /// A loop-invariant value divided by a constant; `None` where a factor does not show that the quotient is exact.
    fn quotient(&mut self, value: Value, divisor: i128) -> Option<Value> {
        if divisor == 1 {
            return self.invariants.copy(value);
        }
        if let Some(&constant) = self.constants.get(&value) {
            let ty = self.invariants.func.ty(value).clone();
            let quotient = Constant { value: ConstantValue::Int(constant / divisor) };
            return (constant % divisor == 0).then(|| self.invariants.push(quotient, ty));
        }
        let ty = self.invariants.func.ty(value).clone();
        let definition = self.block.definition(value).or_else(|| self.outermost.get(&value))?.clone();
        if let Kind::Cast(Cast { value, exact: true }) = definition {
            let value = self.quotient(value, divisor)?;
            return Some(self.invariants.push(Cast { value, exact: true }, ty));
        }
        let Kind::Scalar(scalar) = definition else { return None };
        let (ArithKind::Mul, &[a, b]) = (scalar.op.arith, &scalar.args[..]) else { return None };
        let (quotient, other) = match self.quotient(a, divisor) {
            Some(quotient) => (quotient, b),
            None => (self.quotient(b, divisor)?, a),
        };
        let other = self.invariants.copy(other)?;
        Some(self.binary(BinaryOp::Mul, quotient, other))
    }
}
