//! Induction variables: offsets that a loop carries and moves on by the same amount each iteration, `ptr += BLOCK * stride`.
//!
//! They become their start and a multiple of the loop's variable. Bounds follow from that, and the places of later iterations can
//! be computed ahead.

use std::collections::{HashMap, HashSet};

use crate::frontend::syntax::BinaryOp;
use crate::ir::{Block, Func, Op, Type, Value, substitute_in};
use crate::ops::scalar::{ArithKind, Scalar, binary};
use crate::ops::{Cast, Constant, ConstantValue, Effect, For, Kind, Splat};
use crate::support::dtype::DType;

/// Replaces the induction variables that addresses and masks are made of.
pub fn strength_reduce(func: &mut Func) {
    let mut numbers = HashMap::new();
    let mut used = HashSet::new();
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        used.extend(operation.operands());
        used.extend(operation.blocks().into_iter().flat_map(|block| block.yields.iter().copied()));
        if let Kind::Constant(Constant { value: ConstantValue::Int(number) }) = op.kind {
            numbers.insert(op.results[0], number);
        }
    });
    let addresses = addresses(func);
    let mut body = std::mem::take(&mut func.body);
    InductionRewriter { func, numbers, used, addresses }.block(&mut body);
    func.body = body;
}

/// What offsets and masks are computed from.
fn addresses(func: &Func) -> HashSet<Value> {
    let definitions = func.definitions();
    let mut todo: Vec<Value> = vec![];
    func.body.walk(&mut |op| {
        todo.extend(op.kind.operation().place().into_iter().flat_map(|place| place.operands()));
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
    /// Integers that are known at build.
    numbers: HashMap<Value, i128>,
    /// What is used at all.
    used: HashSet<Value>,
    addresses: HashSet<Value>,
}

/// What is added in an iteration, or taken off.
#[derive(Clone, Copy)]
struct Increment {
    op: BinaryOp,
    value: Value,
}

impl InductionRewriter<'_> {
    fn block(&mut self, block: &mut Block) {
        for op in &mut block.ops {
            if let Kind::For(body) = &mut op.kind {
                self.carried(body, &mut op.results);
            }
            op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| self.block(nested));
        }
    }

    /// Replaces what a loop carries, and carries no longer what nothing uses behind it.
    fn carried(&mut self, body: &mut For, results: &mut Vec<Value>) {
        let Some(&step) = self.numbers.get(&body.step).filter(|&&step| step > 0) else { return };
        for number in (0..body.inits.len()).rev() {
            let (arg, end) = (body.body.args[number + 1], body.body.yields[number]);
            let integer = matches!(self.func.ty(arg).dtype, DType::I32 | DType::I64);
            if !integer || !self.addresses.contains(&arg) || end == arg {
                continue;
            }
            let Some(amounts) = amounts(&body.body, arg, end, MAX_AMOUNTS) else { continue };
            let Some((value, built)) = self.start_and_multiple(body, body.inits[number], step, &amounts)
            else {
                continue;
            };
            substitute_in(&mut body.body, &|old| if old == arg { value } else { old });
            body.body.ops.splice(0..0, built);
            if !self.used.contains(&results[number]) {
                results.remove(number);
                body.inits.remove(number);
                body.body.args.remove(number + 1);
                body.body.yields.remove(number);
            }
        }
    }

    /// `start + (variable - low) / step * amount ..`, and the operations that compute it.
    fn start_and_multiple(
        &mut self,
        body: &For,
        start: Value,
        step: i128,
        amounts: &[Increment],
    ) -> Option<(Value, Vec<Op>)> {
        let Type { dtype, .. } = self.func.ty(start).clone();
        let variable = body.body.args[0];
        let widens = match (self.func.ty(variable).dtype, dtype) {
            (DType::I32, DType::I64) => true,
            (of_loop, of_offset) if of_loop == of_offset => false,
            _ => return None,
        };
        let defined = body.body.defined();
        let numbers = &self.numbers;
        let mut copier =
            Copier { func: self.func, block: &body.body, defined, built: vec![], copies: HashMap::new() };
        let mut as_offset = |value: Value| {
            if widens { copier.push(Cast { value }, Type::scalar(dtype)) } else { value }
        };
        let mut iteration = as_offset(variable);
        if numbers.get(&body.low) != Some(&0) {
            let low = as_offset(body.low);
            iteration = copier.binary(BinaryOp::Sub, iteration, low);
        }
        let mut sum = start;
        for &Increment { op, value } in amounts {
            let distance = match copier.scalar_of(value).map(|amount| (amount, numbers.get(&amount))) {
                // By each step of the variable, as far as steps are whole parts of it.
                Some((_, Some(&amount))) if amount % step == 0 => {
                    let each = copier
                        .push(Constant { value: ConstantValue::Int(amount / step) }, Type::scalar(dtype));
                    copier.binary(BinaryOp::Mul, iteration, each)
                }
                Some((amount, _)) if step == 1 => {
                    let amount = copier.copy(amount)?;
                    copier.binary(BinaryOp::Mul, iteration, amount)
                }
                None if step == 1 => {
                    let amount = copier.copy(value)?;
                    let iteration = copier.like(iteration, amount);
                    copier.binary(BinaryOp::Mul, iteration, amount)
                }
                _ => return None,
            };
            let distance = copier.like(distance, start);
            sum = copier.binary(op, sum, distance);
        }
        Some((sum, copier.built))
    }
}

/// What is added to `arg` until it is `end`, in at most so many sums.
fn amounts(block: &Block, arg: Value, end: Value, most: usize) -> Option<Vec<Increment>> {
    if end == arg {
        return Some(vec![]);
    }
    let most = most.checked_sub(1)?;
    let Some(Kind::Scalar(Scalar { op, args, .. })) = block.definition(end) else { return None };
    let (op, sides) = match (op.algebra, &args[..]) {
        (ArithKind::Add, &[a, b]) => (BinaryOp::Add, vec![(a, b), (b, a)]),
        (ArithKind::Sub, &[a, b]) => (BinaryOp::Sub, vec![(a, b)]),
        _ => return None,
    };
    sides.into_iter().find_map(|(rest, value)| {
        let before = amounts(block, arg, rest, most)?;
        Some([Increment { op, value }].into_iter().chain(before).collect())
    })
}

/// The most sums in an iteration.
const MAX_AMOUNTS: usize = 4;

/// Builds what stands at the beginning of a loop's body, out of copies of what stands in it.
struct Copier<'a> {
    func: &'a mut Func,
    block: &'a Block,
    /// What the block defines.
    defined: HashSet<Value>,
    built: Vec<Op>,
    copies: HashMap<Value, Value>,
}

impl Copier<'_> {
    fn push(&mut self, kind: impl Into<Kind>, ty: Type) -> Value {
        let result = self.func.value(ty);
        self.built.push(Op { kind: kind.into(), results: vec![result], loc: self.func.loc });
        result
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a).clone();
        self.push(Scalar::new(binary(op), vec![a, b]), ty)
    }

    /// A scalar as a tile of the shape of another value.
    fn like(&mut self, scalar: Value, other: Value) -> Value {
        let ty = self.func.ty(other).clone();
        if ty.is_scalar() || self.func.ty(scalar) == &ty {
            scalar
        } else {
            self.push(Splat { value: scalar }, ty)
        }
    }

    /// The scalar that all elements of a value are, as far as the block says.
    fn scalar_of(&self, value: Value) -> Option<Value> {
        if let Some(Kind::Splat(Splat { value })) = self.block.definition(value) {
            return Some(*value);
        }
        self.func.ty(value).is_scalar().then_some(value)
    }

    /// A value that does not depend on the iteration, where nothing of the block has run yet.
    fn copy(&mut self, value: Value) -> Option<Value> {
        if !self.defined.contains(&value) {
            return Some(value);
        }
        if let Some(&known) = self.copies.get(&value) {
            return Some(known);
        }
        let op = self.block.ops.iter().find(|op| op.results == [value])?;
        let operation = op.kind.operation();
        if operation.effect() != Effect::Pure || operation.place().is_some() || !operation.blocks().is_empty()
        {
            return None;
        }
        let operands: Vec<Value> =
            operation.operands().into_iter().map(|operand| self.copy(operand)).collect::<Option<_>>()?;
        let (mut kind, mut operands) = (op.kind.clone(), operands.into_iter());
        kind.operation_mut().map(&mut |old| operands.next().unwrap_or(old));
        let ty = self.func.ty(value).clone();
        let copy = self.push(kind, ty);
        self.copies.insert(value, copy);
        Some(copy)
    }
}
