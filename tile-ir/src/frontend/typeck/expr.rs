//! Expressions.

use super::names::CastTo;
use super::warnings::WrittenBinary;
use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BinaryOp, Exit, Expr, ExprKind};
use crate::ops::{self, ConstantValue};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

impl Check<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Operand {
        self.depth += 1;
        let operand = self.expr_here(expr);
        self.depth -= 1;
        operand
    }

    fn expr_here(&mut self, expr: &Expr) -> Operand {
        let loc = expr.loc;
        match &expr.kind {
            ExprKind::Int { value, suffix } => {
                self.numeric_literal(ConstantValue::Int(*value), suffix.as_deref(), loc)
            }
            ExprKind::Float { value, suffix } => {
                self.numeric_literal(ConstantValue::Float(*value), suffix.as_deref(), loc)
            }
            ExprKind::Bool(value) => {
                Operand::new(Item::Literal(Literal::named(LiteralValue::Bool(*value))), loc)
            }
            ExprKind::Text(text) => Operand::new(Item::Text(text.clone()), loc),
            ExprKind::Path(path) => self.path(path, loc),
            ExprKind::Unary { op, operand } => self.unary(*op, operand, loc),
            ExprKind::Binary { op, op_loc, lhs, rhs } => {
                let result = self.written_binary(*op, *op_loc, [lhs, rhs]);
                Operand { loc, ..result }
            }
            ExprKind::Logic { and, op_loc, lhs, rhs } => {
                let (lhs, rhs) = (self.expr(lhs), self.expr(rhs));
                self.logic(*and, *op_loc, &lhs, &rhs, loc)
            }
            ExprKind::Cast { operand, ty } => {
                let operand = self.expr(operand);
                match self.cast_type(&operand, ty) {
                    Some(CastTo::Type(dtype)) => self.cast(&operand, dtype, loc),
                    Some(CastTo::Constant) => self.as_constant(operand, loc),
                    None => Operand::failed(loc),
                }
            }
            ExprKind::Call(call) => self.call(call, loc),
            ExprKind::Method { receiver, name, generics, args } => {
                self.method(receiver, name, generics, args, loc)
            }
            ExprKind::Tuple(parts) if parts.is_empty() => Operand::unit(loc),
            ExprKind::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.expr(part)).collect();
                Operand::new(Item::Tuple(parts), loc)
            }
            ExprKind::Part { tuple, index } => self.part(tuple, *index, loc),
            ExprKind::Field { base, name } => self.field(base, name, loc),
            ExprKind::Struct { path, fields, rest } => self.struct_value(path, fields, rest.as_deref(), loc),
            ExprKind::WithField { base, fields, op, value } => {
                let value = self.expr(value);
                let base = self.expr(base);
                self.with_field(&base, fields, *op, &value)
            }
            ExprKind::Index { base, index, usage } => self.indexed(base, index, *usage, loc),
            ExprKind::Reference(inner) => self.reference(inner, loc),
            ExprKind::Dereference { operand, usage } => self.dereference(operand, *usage, loc),
            ExprKind::Array(items) => {
                let items = items.iter().map(|item| self.expr(item)).collect();
                Operand::new(Item::List(items), loc)
            }
            ExprKind::If { condition, then, otherwise } => {
                self.conditional(condition, then, otherwise.as_deref(), loc)
            }
            ExprKind::Block(block) => {
                let value = self.block(block);
                Operand { loc, ..value }
            }
            ExprKind::Closure(closure) => self.closure(closure, loc),
            ExprKind::Exit(exit) => self.report_exit(exit, loc),
            ExprKind::Range { low, high, inclusive } => self.range(low, high, *inclusive, loc),
            ExprKind::OpenMatch(scrutinee) => match self.expr(scrutinee).item {
                Item::Failed => Operand::failed(loc),
                _ => self.error_help(
                    loc,
                    "this `match` does not cover every value",
                    "end it with an arm for the others: `_ => ..`",
                ),
            },
            ExprKind::Error => Operand::failed(loc),
        }
    }

    /// An operator with its operands, and what is likely a mistake about it.
    fn written_binary(&mut self, op: BinaryOp, op_loc: Loc, exprs: [&Expr; 2]) -> Operand {
        let operands = exprs.map(|expr| self.expr(expr));
        if super::branch::is_match_condition(exprs[0]) {
            // The comparison is ours: the user wrote a pattern.
            return self.scalar(ops::scalar::binary(op), "this pattern", op_loc, &operands);
        }
        let [lhs, rhs] = &operands;
        let result = self.binary(op, op_loc, lhs, rhs);
        let loc = Loc { start: exprs[0].loc.start, end: exprs[1].loc.end };
        let written = WrittenBinary { op, exprs, operands: [lhs, rhs], loc };
        self.warn_of_binary(&written, &result);
        result
    }

    /// `constant as usize`
    fn as_constant(&mut self, operand: Operand, loc: Loc) -> Operand {
        let item = match operand.item {
            Item::Literal(literal) => Item::Literal(Literal { division: None, ..literal }),
            item => item,
        };
        Operand { item, loc }
    }

    /// Reports an exit that the parser could not lower to a branch.
    fn report_exit(&mut self, exit: &Exit, loc: Loc) -> Operand {
        let keyword = match exit {
            Exit::Return(_) => "return",
            Exit::Break => "break",
            Exit::Continue => "continue",
        };
        let text = format!("`{keyword}` is part of an expression here");
        self.error_help(loc, text, "let it be a statement of its own, in a branch of an `if`")
    }

    fn numeric_literal(&mut self, value: ConstantValue, suffix: Option<&str>, loc: Loc) -> Operand {
        let dtype = match suffix {
            None | Some("usize" | "isize") => None,
            Some(suffix) => DType::parse(suffix),
        };
        if let (Some(dtype), ConstantValue::Int(value)) = (dtype, value)
            && dtype.is_integer()
            && !(dtype.range().0..=dtype.range().1).contains(&value)
            // The sign of `-128i8` is an operator of its own.
            && -value != dtype.range().0
        {
            return self.report_too_large(value, dtype, loc);
        }
        if let ConstantValue::Float(value) = value
            && value.is_infinite()
        {
            let largest = super::names::largest(DType::F64);
            let text = format!("this does not fit in f64, which holds up to {largest:e}");
            return self.error_help(loc, text, "infinity is `f32::INFINITY`");
        }
        Operand::new(Item::Literal(Literal::digits(value, dtype)), loc)
    }

    /// `tuple.index`
    fn part(&mut self, tuple: &Expr, index: usize, loc: Loc) -> Operand {
        let tuple = self.expr(tuple);
        match &tuple.item {
            Item::Tuple(parts) => match parts.get(index) {
                Some(part) => Operand { loc, ..part.clone() },
                None => {
                    let last = parts.len() - 1;
                    self.error(loc, format!("this tuple has the parts `.0` to `.{last}`, found `.{index}`"))
                }
            },
            Item::Failed => Operand::failed(loc),
            _ => {
                let text = format!("`.{index}` is a part of a tuple, found {}", self.describe(&tuple));
                let help = match tuple.item {
                    Item::Value(value) if !self.ty(value).is_scalar() => {
                        format!("one element of a tile is `tl::index(x, 0, {index})`")
                    }
                    _ => format!("leave out `.{index}`"),
                };
                self.error_help(loc, text, help)
            }
        }
    }

    fn range(&mut self, low: &Expr, high: &Expr, inclusive: bool, loc: Loc) -> Operand {
        let low = self.expr(low);
        let high = self.expr(high);
        let range = super::Range {
            low: Box::new(low),
            high: Box::new(high),
            step: None,
            closed: inclusive,
            unrolled: false,
            hints: ops::LoopHints::default(),
        };
        Operand::new(Item::Range(range), loc)
    }
}
