//! `match` on integers and bools, as a chain of `if`. On a constant the chain is decided at build, and only the arm that
//! is taken is checked.

use std::rc::Rc;

use proc_macro2::Ident;

use super::ast::*;
use super::expr::Parser;
use crate::support::diagnostic::Loc;

/// A value or range that an arm compares with; an arm has alternatives.
enum Choice {
    Value(Expr),
    /// Both ends included.
    Range(Expr, Expr),
}

/// An arm; without choices it matches every other value.
struct MatchArm {
    choices: Vec<Choice>,
    body: Expr,
    loc: Loc,
}

impl MatchArm {
    /// Whether it compares with variants of enums: paths of two names.
    fn is_of_enum(&self) -> bool {
        let is_variant = |choice: &Choice| match choice {
            Choice::Value(Expr { kind: ExprKind::Path(path), .. }) => path.len() > 1,
            _ => false,
        };
        self.choices.iter().all(is_variant)
    }
}

/// The name of the value in the chain: a keyword, so that it hides no name of the user's.
const VALUE: &str = "match";

const GUARD: &str = "put an `if` into the arm; elements of a tile are chosen by `tl::select(mask, a, b)`";

/// The chain is as deep as it has arms, and later stages recurse.
const MAX_ARMS: usize = 256;

/// Whether a name is that of the value in a chain.
pub(crate) fn is_scrutinee(name: &Ident) -> bool {
    *name == VALUE
}

pub(super) fn parse(choice: &syn::ExprMatch, parser: &mut Parser) -> Expr {
    let loc = Loc::of(choice);
    let errors = parser.errors.len();
    let scrutinee = parser.expr(&choice.expr);
    let mut arms = vec![];
    for arm in &choice.arms {
        if let Some((_, guard)) = &arm.guard {
            parser.unsupported_help(guard, "a guard of an arm", GUARD);
        }
        let mut choices = vec![];
        let is_total = collect(&arm.pat, parser, &mut choices);
        let body = parser.arm(&arm.body);
        match is_total {
            Some(true) => arms.push(MatchArm { choices: vec![], body, loc: Loc::of(&arm.pat) }),
            Some(false) => arms.push(MatchArm { choices, body, loc: Loc::of(&arm.pat) }),
            None => {}
        }
    }
    if parser.errors.len() > errors {
        return Expr { kind: ExprKind::Error, loc };
    }
    if arms.len() > MAX_ARMS {
        parser.errors.push(arms[MAX_ARMS].loc, format!("a `match` has at most {MAX_ARMS} arms"));
        return Expr { kind: ExprKind::Error, loc };
    }
    close_bool_arms(&mut arms);
    let total = arms.iter().position(|arm| arm.choices.is_empty());
    match total {
        Some(total) if total + 1 == arms.len() => {}
        Some(total) => {
            parser
                .errors
                .push(arms[total + 1].loc, "this arm is never taken: the one before it takes everything");
            return Expr { kind: ExprKind::Error, loc };
        }
        None if arms.iter().all(MatchArm::is_of_enum) => {}
        None => {
            let loc = Loc::of(choice.match_token);
            return Expr { kind: ExprKind::OpenMatch(Box::new(scrutinee)), loc };
        }
    }
    let name = Ident::new(VALUE, choice.match_token.span);
    // Of an enum's constant one arm is taken: a variant that has none gets here.
    let uncovered = total.is_none().then(|| {
        let loc = Loc::of(choice.match_token);
        let value = Box::new(Expr { kind: ExprKind::Path(vec![name.clone()]), loc });
        Expr { kind: ExprKind::OpenMatch(value), loc }
    });
    let chain = arms.into_iter().rev().fold(uncovered, |otherwise, arm| Some(if_else(&name, arm, otherwise)));
    let bind = Stmt::Let {
        pattern: Pattern::Name { name, mutable: false },
        ty: None,
        init: Some(scrutinee),
        loc: Loc::of(choice.match_token),
    };
    let block = BlockExpr { items: Rc::default(), statements: vec![bind], value: chain.map(Box::new), loc };
    Expr { kind: ExprKind::Block(block.into()), loc }
}

/// Collects the choices of a pattern; returns whether it matches every value. `None` when it was reported.
fn collect(pat: &syn::Pat, parser: &mut Parser, found: &mut Vec<Choice>) -> Option<bool> {
    match pat {
        syn::Pat::Wild(_) => return Some(true),
        syn::Pat::Or(or) => {
            let parts: Vec<Option<bool>> = or.cases.iter().map(|pat| collect(pat, parser, found)).collect();
            let parts: Option<Vec<bool>> = parts.into_iter().collect();
            return parts.map(|parts| parts.contains(&true));
        }
        syn::Pat::Paren(inner) => return collect(&inner.pat, parser, found),
        syn::Pat::Lit(lit) => found.push(Choice::Value(parser.expr(&syn::Expr::Lit(lit.clone())))),
        syn::Pat::Path(path) => found.push(Choice::Value(parser.expr(&syn::Expr::Path(path.clone())))),
        syn::Pat::Ident(name) if name.subpat.is_none() && name.mutability.is_none() => {
            let (kind, loc) = (ExprKind::Path(vec![name.ident.clone()]), Loc::of(name));
            found.push(Choice::Value(Expr { kind, loc }));
        }
        syn::Pat::Range(syn::PatRange {
            start: Some(low),
            end: Some(high),
            limits: syn::RangeLimits::Closed(_),
            ..
        }) => {
            found.push(Choice::Range(parser.expr(low), parser.expr(high)));
        }
        other => {
            let help = "an arm is an integer, a bool, a constant's name, a range such as `1..=4`, or `_`";
            parser.unsupported_help(other, "this pattern", help);
            return None;
        }
    }
    Some(false)
}

/// Where both bools have an arm, the last of the two matches every other value.
fn close_bool_arms(arms: &mut [MatchArm]) {
    let is = |arm: &MatchArm, wanted: bool| {
        arm.choices.iter().any(
            |choice| matches!(choice, Choice::Value(Expr { kind: ExprKind::Bool(value), .. }) if *value == wanted),
        )
    };
    if arms.iter().any(|arm| is(arm, true))
        && arms.iter().any(|arm| is(arm, false))
        && let Some(last) = arms.last_mut()
    {
        last.choices.clear();
    }
}

/// `if match == a || match == b { body } else { otherwise }`
fn if_else(name: &Ident, arm: MatchArm, otherwise: Option<Expr>) -> Expr {
    let loc = arm.body.loc;
    let compared = arm.choices.into_iter().map(|choice| condition(name, choice, arm.loc));
    let joined = compared.reduce(|lhs, rhs| Expr {
        kind: ExprKind::Logic { and: false, op_loc: arm.loc, lhs: Box::new(lhs), rhs: Box::new(rhs) },
        loc: arm.loc,
    });
    let Some(joined) = joined else { return arm.body };
    let kind = ExprKind::If {
        condition: Box::new(joined),
        then: arm_block(arm.body),
        otherwise: otherwise.map(arm_block),
    };
    Expr { kind, loc }
}

/// What an arm computes, as a block.
pub(super) fn arm_block(value: Expr) -> Rc<BlockExpr> {
    let loc = value.loc;
    match value.kind {
        ExprKind::Block(block) => block,
        kind if is_exit(&kind) => {
            let statements = vec![Stmt::Expr(Expr { kind, loc })];
            Rc::new(BlockExpr { items: Rc::default(), statements, value: None, loc })
        }
        kind => {
            let value = Some(Box::new(Expr { kind, loc }));
            Rc::new(BlockExpr { items: Rc::default(), statements: vec![], value, loc })
        }
    }
}

/// Exits are statements.
fn is_exit(kind: &ExprKind) -> bool {
    matches!(kind, ExprKind::Exit(_))
}

fn condition(name: &Ident, choice: Choice, loc: Loc) -> Expr {
    let compare = |op: BinaryOp, rhs: Expr| {
        let mut name = name.clone();
        // Errors of a comparison are reported on the arm.
        name.set_span(loc.start);
        let lhs = Box::new(Expr { kind: ExprKind::Path(vec![name]), loc });
        Expr { kind: ExprKind::Binary { op, op_loc: loc, lhs, rhs: Box::new(rhs) }, loc }
    };
    match choice {
        Choice::Value(value) => compare(BinaryOp::Eq, value),
        Choice::Range(low, high) => {
            let (lhs, rhs) = (compare(BinaryOp::Ge, low), compare(BinaryOp::Le, high));
            let kind = ExprKind::Logic { and: true, op_loc: loc, lhs: Box::new(lhs), rhs: Box::new(rhs) };
            Expr { kind, loc }
        }
    }
}
