//! Full tiles: iterations in which a mask is true everywhere.
//!
//! A dot loop that masks scores by a comparison of positions, `select(rows >= start + cols, scores, -inf)`, needs that on the
//! diagonal alone. The select varies under a branch on the extreme positions, one comparison of scalars; the emitter splits the
//! iterations by it into a main loop without the branch and the rest (`gpu/emit/iteration_split`). Loops without a dot are bound by
//! memory, and gain nothing by it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::frontend::syntax::BinaryOp;
use crate::ir::{Block, Func, FuncBuilder, Op, Rewriter, Type, Value, cse_and_dce};
use crate::ops::scalar::{ArithKind, Scalar, binary, row};
use crate::ops::{
    Arange, Broadcast, Cast, Constant, ConstantValue, ExpandDims, For, If, Kind, Splat, has_own_dot,
};
use crate::support::dtype::DType;

/// Moves selects that change nothing in most iterations under a branch.
pub fn split_full_tiles(func: &mut Func) {
    let mut found: HashMap<Value, Rc<EnclosingLoop>> = HashMap::new();
    func.body.walk(&mut |op| {
        if let Kind::For(For { body, .. }) = &op.kind
            && has_own_dot(body)
        {
            let enclosing = Rc::new(EnclosingLoop { variable: body.args[0], defined: body.defined() });
            let selects = body.ops.iter().filter(|op| is_select(op));
            found.extend(selects.map(|op| (op.results[0], enclosing.clone())));
        }
    });
    if found.is_empty() {
        return;
    }
    let definitions = func.cloned_definitions();
    let mut changed = false;
    Rewriter::default().run(func, &mut |_, builder, op| {
        let enclosing = op.results.first().and_then(|result| found.get(result));
        let kind = enclosing.and_then(|enclosing| {
            let mark = builder.mark();
            let kind = FullTileSplit { builder, definitions: &definitions, enclosing }.branch(&op);
            if kind.is_none() {
                builder.rewind(mark);
            }
            kind
        });
        changed |= kind.is_some();
        match kind {
            Some(kind) => builder.append(Op { kind, ..op }),
            None => builder.append(op),
        }
    });
    if changed {
        cse_and_dce(func);
    }
}

/// The loop that contains a select.
struct EnclosingLoop {
    variable: Value,
    /// What the body defines.
    defined: HashSet<Value>,
}

fn is_select(op: &Op) -> bool {
    matches!(&op.kind, Kind::Scalar(scalar) if scalar.op.arith == ArithKind::Select)
}

struct FullTileSplit<'b, 'f> {
    builder: &'b mut FuncBuilder<'f>,
    definitions: &'b HashMap<Value, Op>,
    enclosing: &'b EnclosingLoop,
}

/// An end of the range of a tile's elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeEnd {
    Least,
    Most,
}

impl RangeEnd {
    fn other(self) -> RangeEnd {
        match self {
            RangeEnd::Least => RangeEnd::Most,
            RangeEnd::Most => RangeEnd::Least,
        }
    }
}

/// A scalar of 64 bits, and whether it depends on the loop's variable.
#[derive(Clone, Copy)]
struct Scalar64 {
    value: Value,
    varies: bool,
}

impl FullTileSplit<'_, '_> {
    /// The select under a branch, if it chooses between a computed tile and a constant.
    fn branch(&mut self, op: &Op) -> Option<Kind> {
        let Kind::Scalar(scalar) = &op.kind else { return None };
        let ty = self.builder.func.ty(op.results[0]).clone();
        if ty.is_scalar() {
            return None;
        }
        let &[condition, one, other] = &scalar.args[..] else { return None };
        let (kept, holds) = match (self.is_constant(one), self.is_constant(other)) {
            (false, true) => (one, true),
            (true, false) => (other, false),
            _ => return None,
        };
        let mut varies = false;
        let partial = self.partial(condition, holds, &mut varies)?;
        if !varies {
            return None;
        }
        self.builder.begin_with(vec![]);
        let mut copies = HashMap::new();
        let condition = self.rematerialize(condition, &mut copies);
        let args = vec![condition, one, other];
        let selected = self.builder.one(Scalar { args, ..scalar.clone() }, ty);
        let then = self.builder.end(vec![selected]);
        let otherwise = Block { yields: vec![kept], ..Block::default() };
        Some(If::new(partial, then, otherwise).into())
    }

    fn kind(&self, value: Value) -> Option<&Kind> {
        self.definitions.get(&value).map(|op| &op.kind)
    }

    fn is_constant(&self, value: Value) -> bool {
        let Some(Kind::Splat(splat)) = self.kind(value) else { return false };
        matches!(self.kind(splat.value), Some(Kind::Constant(_)))
    }

    /// Rematerializes a tile of conditions in the branch.
    fn rematerialize(&mut self, value: Value, copies: &mut HashMap<Value, Value>) -> Value {
        if let Some(&copy) = copies.get(&value) {
            return copy;
        }
        let ty = self.builder.func.ty(value).clone();
        let Some(op) = self.definitions.get(&value).filter(|_| !ty.is_scalar()) else { return value };
        let repeatable = matches!(
            op.kind,
            Kind::Scalar(_)
                | Kind::Splat(_)
                | Kind::Broadcast(_)
                | Kind::ExpandDims(_)
                | Kind::Arange(_)
                | Kind::Cast(_)
        );
        if !repeatable {
            return value;
        }
        let mut kind = op.kind.clone();
        let operands: HashSet<Value> = kind.operation().operands().into_iter().collect();
        let copied: HashMap<Value, Value> =
            operands.into_iter().map(|operand| (operand, self.rematerialize(operand, copies))).collect();
        kind.operation_mut().map(&mut |operand| copied.get(&operand).copied().unwrap_or(operand));
        let copy = self.builder.one(kind, ty);
        copies.insert(value, copy);
        copy
    }

    /// A scalar condition that is true in every iteration in which a tile of conditions is not `holds` everywhere.
    fn partial(&mut self, condition: Value, holds: bool, varies: &mut bool) -> Option<Value> {
        let kind = self.kind(condition)?.clone();
        if let Kind::Broadcast(Broadcast { value }) | Kind::ExpandDims(ExpandDims { value, .. }) = kind {
            return self.partial(value, holds, varies);
        }
        let Kind::Scalar(scalar) = kind else { return None };
        let flag = Type::scalar(DType::Bool);
        match (scalar.op.arith, &scalar.args[..]) {
            (ArithKind::And, &[one, other]) if holds => {
                let (one, other) = (self.partial(one, holds, varies)?, self.partial(other, holds, varies)?);
                Some(self.builder.one(Scalar::new(row("or")?, vec![one, other]), flag))
            }
            (ArithKind::Or, &[one, other]) if !holds => {
                let (one, other) = (self.partial(one, holds, varies)?, self.partial(other, holds, varies)?);
                Some(self.builder.one(Scalar::new(row("or")?, vec![one, other]), flag))
            }
            (ArithKind::Compare(comparison), &[left, right]) => {
                // As `low < high` or `low <= high`; negated where it must not hold.
                let (low, high, strict) = match (comparison, holds) {
                    (BinaryOp::Lt, true) | (BinaryOp::Ge, false) => (left, right, true),
                    (BinaryOp::Le, true) | (BinaryOp::Gt, false) => (left, right, false),
                    (BinaryOp::Gt, true) | (BinaryOp::Le, false) => (right, left, true),
                    (BinaryOp::Ge, true) | (BinaryOp::Lt, false) => (right, left, false),
                    _ => return None,
                };
                let low = self.end(low, RangeEnd::Most, true)?;
                let high = self.end(high, RangeEnd::Least, true)?;
                if low.varies && high.varies {
                    return None;
                }
                *varies |= low.varies || high.varies;
                let fails = if strict { BinaryOp::Ge } else { BinaryOp::Gt };
                Some(self.builder.one(Scalar::new(binary(fails), vec![low.value, high.value]), flag))
            }
            _ => None,
        }
    }

    /// An end of the range of a signed integer tile, computed so that nothing wraps; `may_multiply` while no product contains it.
    fn end(&mut self, value: Value, end: RangeEnd, may_multiply: bool) -> Option<Scalar64> {
        let wide = Type::scalar(DType::I64);
        let ty = self.builder.func.ty(value).clone();
        if !ty.dtype.is_integer() || !ty.dtype.is_signed() {
            return None;
        }
        let combined = |this: &mut Self, name: &str, one: Scalar64, other: Scalar64| {
            let scalar = Scalar::new(row(name)?, vec![one.value, other.value]);
            let value = this.builder.one(scalar, wide.clone());
            Some(Scalar64 { value, varies: one.varies || other.varies })
        };
        let kind = self.kind(value).cloned();
        if let Some(Kind::Arange(Arange { start })) = kind {
            let last = i128::from(ty.shape.elements()) - 1;
            let constant = i128::from(start) + if end == RangeEnd::Most { last } else { 0 };
            let value = self.builder.one(Constant { value: ConstantValue::Int(constant) }, wide);
            return Some(Scalar64 { value, varies: false });
        }
        if let Some(
            Kind::Splat(Splat { value })
            | Kind::Broadcast(Broadcast { value })
            | Kind::ExpandDims(ExpandDims { value, .. }),
        ) = kind
        {
            return self.end(value, end, may_multiply);
        }
        if let Some(Kind::Cast(Cast { value: inner, .. })) = kind
            && self.widens(inner, ty.dtype)
        {
            return self.end(inner, end, may_multiply);
        }
        let Some(Kind::Scalar(Scalar { op, args, .. })) = kind else { return self.leaf(value, &ty) };
        match (op.arith, &args[..]) {
            (ArithKind::Add, &[one, other]) => {
                let one = self.end(one, end, may_multiply)?;
                let other = self.end(other, end, may_multiply)?;
                (!(one.varies && other.varies)).then_some(())?;
                combined(self, "add", one, other)
            }
            (ArithKind::Sub, &[one, other]) => {
                let one = self.end(one, end, may_multiply)?;
                let other = self.end(other, end.other(), may_multiply)?;
                (!other.varies).then_some(())?;
                combined(self, "sub", one, other)
            }
            (ArithKind::Mul, &[one, other]) if ty.is_scalar() && may_multiply => {
                let one = self.end(one, end, false)?;
                let other = self.end(other, end, false)?;
                (!(one.varies || other.varies)).then_some(())?;
                combined(self, "mul", one, other)
            }
            _ => self.leaf(value, &ty),
        }
    }

    fn widens(&self, inner: Value, to: DType) -> bool {
        let from = self.builder.func.ty(inner).dtype;
        from.is_integer() && from.is_signed() && to.bytes() >= from.bytes()
    }

    /// A scalar itself, if it is the loop's variable or loop-invariant, of 32 bits: its sums and products with a few others fit
    /// in 64.
    fn leaf(&mut self, value: Value, ty: &Type) -> Option<Scalar64> {
        if !ty.is_scalar() || ty.dtype.bytes() > DType::I32.bytes() {
            return None;
        }
        let varies = value == self.enclosing.variable;
        if !varies && self.enclosing.defined.contains(&value) {
            return None;
        }
        let value = self.builder.one(Cast::new(value), Type::scalar(DType::I64));
        Some(Scalar64 { value, varies })
    }
}
