//! Assignments: to a variable, to a tuple of variables, and in an arm of a `match`.

use std::rc::Rc;

use proc_macro2::Ident;

use super::ast::{BinaryOp, BlockExpr, Expr, ExprKind, IndexUse, Pattern, Stmt};
use super::expr::Parser;
use crate::support::diagnostic::Loc;

impl Parser<'_> {
    pub(super) fn assignment(
        &mut self,
        target: &syn::Expr,
        op: Option<(BinaryOp, Loc)>,
        value: &syn::Expr,
    ) -> Option<Stmt> {
        let value = self.expr(value);
        self.assign(target, op, value)
    }

    fn assign(&mut self, target: &syn::Expr, op: Option<(BinaryOp, Loc)>, value: Expr) -> Option<Stmt> {
        match target {
            syn::Expr::Path(path) if path.path.get_ident().is_some() => {
                let target = path.path.get_ident().cloned()?;
                Some(Stmt::Assign { target, op, value })
            }
            syn::Expr::Tuple(parts) if op.is_none() => self.destructure(parts, value),
            syn::Expr::Field(field) if let Some((target, fields)) = place(field) => {
                let base =
                    Box::new(Expr { kind: ExprKind::Path(vec![target.clone()]), loc: Loc::of(&target) });
                let kind = ExprKind::WithField { base, fields, op, value: Box::new(value) };
                Some(Stmt::Assign { target, op: None, value: Expr { kind, loc: Loc::of(field) } })
            }
            // What to write instead follows from what is indexed.
            syn::Expr::Index(index) => {
                let loc = Loc::of(index);
                let usage = op.map_or(IndexUse::Written, |(op, _)| IndexUse::Changed(op));
                Some(misplaced(value, Expr { kind: self.index(index, usage), loc }))
            }
            syn::Expr::Unary(deref) if matches!(deref.op, syn::UnOp::Deref(_)) => {
                let loc = Loc::of(deref);
                let usage = op.map_or(IndexUse::Written, |(op, _)| IndexUse::Changed(op));
                let operand = Box::new(self.expr(&deref.expr));
                Some(misplaced(value, Expr { kind: ExprKind::Dereference { operand, usage }, loc }))
            }
            other => {
                self.unsupported_help(other, "this assignment", "assign to a variable");
                None
            }
        }
    }

    /// `(a, b) = value`. The value gets a name first, a keyword that hides none of the user's, so that `(a, b) = (b, a)`
    /// swaps.
    fn destructure(&mut self, targets: &syn::ExprTuple, value: Expr) -> Option<Stmt> {
        let loc = Loc::of(targets);
        let name = Ident::new("let", loc.start);
        let whole = Expr { kind: ExprKind::Path(vec![name.clone()]), loc };
        let mut assignments = vec![];
        let shape = self.targets(targets, &whole, &mut assignments)?;
        let bind = |pattern, init| Stmt::Let { pattern, ty: None, init: Some(init), loc };
        let mut statements = vec![bind(Pattern::Name { name, mutable: false }, value), bind(shape, whole)];
        statements.extend(assignments);
        let block = BlockExpr { items: Rc::default(), statements, value: None, loc };
        Some(Stmt::Expr(Expr { kind: ExprKind::Block(block.into()), loc }))
    }

    /// Assigns the elements of the tuple `whole`; returns the pattern that it must match.
    fn targets(
        &mut self,
        targets: &syn::ExprTuple,
        whole: &Expr,
        assignments: &mut Vec<Stmt>,
    ) -> Option<Pattern> {
        let mut parts = vec![];
        for (index, target) in targets.elems.iter().enumerate() {
            let loc = Loc::of(target);
            let value = Expr { kind: ExprKind::Part { tuple: Box::new(whole.clone()), index }, loc };
            parts.push(match target {
                syn::Expr::Tuple(inner) => self.targets(inner, &value, assignments)?,
                syn::Expr::Infer(_) => Pattern::Ignore(loc),
                target => {
                    assignments.extend(self.assign(target, None, value));
                    Pattern::Ignore(loc)
                }
            });
        }
        Some(Pattern::Tuple { parts, loc: Loc::of(targets) })
    }

    /// The body of an arm of a `match`, which may be a statement.
    pub(super) fn arm(&mut self, body: &syn::Expr) -> Expr {
        let assigns = match body {
            syn::Expr::Assign(_) | syn::Expr::ForLoop(_) | syn::Expr::While(_) => true,
            syn::Expr::Binary(binary) => compound(&binary.op).is_some(),
            _ => false,
        };
        if !assigns {
            return self.expr(body);
        }
        let loc = Loc::of(body);
        let statements = self.statement(body).into_iter().collect();
        let block = BlockExpr { items: Rc::default(), statements, value: None, loc };
        Expr { kind: ExprKind::Block(block.into()), loc }
    }
}

/// The variable that a place begins with, and the fields behind it: `state.softmax.m`.
fn place(field: &syn::ExprField) -> Option<(Ident, Vec<Ident>)> {
    let syn::Member::Named(name) = &field.member else { return None };
    let (target, mut fields) = match &*field.base {
        syn::Expr::Path(path) => (path.path.get_ident()?.clone(), vec![]),
        syn::Expr::Field(base) => place(base)?,
        _ => return None,
    };
    fields.push(name.clone());
    Some((target, fields))
}

/// Evaluates the value of an assignment, then its target, which is no variable.
fn misplaced(value: Expr, target: Expr) -> Stmt {
    let loc = target.loc;
    let statements = vec![Stmt::Expr(value), Stmt::Expr(target)];
    let block = BlockExpr { items: Rc::default(), statements, value: None, loc };
    Stmt::Expr(Expr { kind: ExprKind::Block(block.into()), loc })
}

/// Expressions that are statements by nature and never a block's value.
pub(super) fn is_statement(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Assign(_)
        | syn::Expr::ForLoop(_)
        | syn::Expr::While(_)
        | syn::Expr::If(_)
        | syn::Expr::Match(_)
        | syn::Expr::Block(_) => true,
        syn::Expr::Binary(binary) => compound(&binary.op).is_some(),
        _ => false,
    }
}

/// Whether the operator assigns, as `+=` does.
pub(super) fn is_assignment(op: &syn::BinOp) -> bool {
    compound(op).is_some()
}

pub(super) fn compound(op: &syn::BinOp) -> Option<BinaryOp> {
    Some(match op {
        syn::BinOp::AddAssign(_) => BinaryOp::Add,
        syn::BinOp::SubAssign(_) => BinaryOp::Sub,
        syn::BinOp::MulAssign(_) => BinaryOp::Mul,
        syn::BinOp::DivAssign(_) => BinaryOp::Div,
        syn::BinOp::RemAssign(_) => BinaryOp::Rem,
        syn::BinOp::BitAndAssign(_) => BinaryOp::And,
        syn::BinOp::BitOrAssign(_) => BinaryOp::Or,
        syn::BinOp::BitXorAssign(_) => BinaryOp::Xor,
        syn::BinOp::ShlAssign(_) => BinaryOp::Shl,
        syn::BinOp::ShrAssign(_) => BinaryOp::Shr,
        _ => return None,
    })
}
