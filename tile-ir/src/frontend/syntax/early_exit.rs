//! Lowers `return`, `break` and `continue` to branches, the only control flow that later stages know.
//!
//! Takes a body in which they are statements; gives an equivalent one without them. What follows a branch that
//! always exits moves into the other branch: `if c { a; return; } b` is `if c { a } else { b }`. Where only some paths
//! through a branch or a loop exit, a flag records whether they did, and what follows is under `if !flag`. A `for` that
//! was exited runs its remaining iterations without doing anything. A flag is named by its keyword, so that no name of
//! the user's can mean it. A constant flag is decided at build like any constant.

use std::rc::Rc;

use proc_macro2::{Ident, Span};

use super::ast::*;
use crate::support::diagnostic::{Errors, Loc};

/// Whether a body has a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyKind {
    /// It has no value.
    Unit,
    /// It ends with a value.
    Value,
}

/// The three exits, as keywords.
const RETURN: &str = "return";
const BREAK: &str = "break";
const CONTINUE: &str = "continue";

/// How many branches may nest around a statement.
const MAX_DEPTH: u32 = 256;

/// Replaces exits by branches. An exit inside an expression stays, for `typeck` to report.
pub(super) fn lower(body: BlockExpr, kind: BodyKind, errors: &mut Errors) -> BlockExpr {
    let mut body = body;
    report_outside(&mut body, errors);
    if !contains_exit(&body) {
        return body;
    }
    let returns = kind == BodyKind::Unit && needs_flag(&body, RETURN);
    let mut lowering = Lowering { errors, kind, loop_depth: 0, depth: 0, flags: ExitSet::default() };
    lowering.flags.returns = returns;
    let loc = body.loc;
    let mut lowered = match kind {
        BodyKind::Unit => lowering.unit(body),
        BodyKind::Value => lowering.value(body),
    };
    if returns {
        lowered.statements.insert(0, declare(RETURN, loc));
    }
    lowered
}

/// Reports each `break` and `continue` outside of a loop and removes it, so that the code around it is checked as if it
/// were not there.
fn report_outside(block: &mut BlockExpr, errors: &mut Errors) {
    for statement in &mut block.statements {
        if let Stmt::Expr(expr) = statement {
            report_outside_in(expr, errors);
        }
    }
    if let Some(value) = &mut block.value {
        report_outside_in(value, errors);
    }
}

fn report_outside_in(expr: &mut Expr, errors: &mut Errors) {
    match &mut expr.kind {
        ExprKind::Exit(exit @ (Exit::Break | Exit::Continue)) => {
            let keyword = if matches!(exit, Exit::Break) { BREAK } else { CONTINUE };
            errors.push(expr.loc, format!("`{keyword}` stands outside of a loop"));
            expr.kind = ExprKind::Error;
        }
        ExprKind::If { then, otherwise, .. } => {
            for block in [Some(then), otherwise.as_mut()].into_iter().flatten() {
                report_outside(Rc::make_mut(block), errors);
            }
        }
        ExprKind::Block(block) => report_outside(Rc::make_mut(block), errors),
        _ => {}
    }
}

// ---- the exits of code

/// The kinds of exit that some code has.
#[derive(Clone, Copy, Default)]
struct ExitSet {
    returns: bool,
    breaks: bool,
    continues: bool,
}

impl ExitSet {
    fn any(self) -> bool {
        self.returns || self.breaks || self.continues
    }

    fn or(self, other: ExitSet) -> ExitSet {
        ExitSet {
            returns: self.returns || other.returns,
            breaks: self.breaks || other.breaks,
            continues: self.continues || other.continues,
        }
    }

    fn has(self, keyword: &str) -> bool {
        match keyword {
            RETURN => self.returns,
            BREAK => self.breaks,
            _ => self.continues,
        }
    }
}

fn block_exits(block: &BlockExpr) -> ExitSet {
    let value = block.value.as_deref().map_or(ExitSet::default(), expr_exits);
    block.statements.iter().map(statement_exits).fold(value, ExitSet::or)
}

fn statement_exits(statement: &Stmt) -> ExitSet {
    match statement {
        // A loop takes its own `break` and `continue`.
        Stmt::For { body, .. } | Stmt::While { body, .. } => {
            ExitSet { returns: block_exits(body).returns, ..ExitSet::default() }
        }
        Stmt::Expr(expr) => expr_exits(expr),
        Stmt::Let { .. } | Stmt::Assign { .. } => ExitSet::default(),
    }
}

/// The exits of an expression that is a statement.
fn expr_exits(expr: &Expr) -> ExitSet {
    match &expr.kind {
        ExprKind::Exit(Exit::Return(_)) => ExitSet { returns: true, ..ExitSet::default() },
        ExprKind::Exit(Exit::Break) => ExitSet { breaks: true, ..ExitSet::default() },
        ExprKind::Exit(Exit::Continue) => ExitSet { continues: true, ..ExitSet::default() },
        ExprKind::If { then, otherwise, .. } => {
            block_exits(then).or(otherwise.as_deref().map_or(ExitSet::default(), block_exits))
        }
        ExprKind::Block(block) => block_exits(block),
        _ => ExitSet::default(),
    }
}

/// Whether any exit is a statement, in loops as well.
fn contains_exit(block: &BlockExpr) -> bool {
    let in_statement = |statement: &Stmt| match statement {
        Stmt::For { body, .. } | Stmt::While { body, .. } => contains_exit(body),
        Stmt::Expr(expr) | Stmt::Assign { value: expr, .. } => expr_contains_exit(expr),
        Stmt::Let { init, .. } => init.as_ref().is_some_and(expr_contains_exit),
    };
    block.statements.iter().any(in_statement) || block.value.as_deref().is_some_and(expr_contains_exit)
}

fn expr_contains_exit(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Exit(_) => true,
        ExprKind::If { then, otherwise, .. } => {
            contains_exit(then) || otherwise.as_deref().is_some_and(contains_exit)
        }
        ExprKind::Block(block) => contains_exit(block),
        _ => false,
    }
}

/// Whether every path through a block exits.
fn always_exits(block: &BlockExpr) -> bool {
    let in_statement = |statement: &Stmt| match statement {
        Stmt::Expr(expr) => expr_always_exits(expr),
        _ => false,
    };
    block.statements.iter().any(in_statement) || block.value.as_deref().is_some_and(expr_always_exits)
}

fn expr_always_exits(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Exit(_) => true,
        ExprKind::If { then, otherwise: Some(otherwise), .. } => {
            always_exits(then) && always_exits(otherwise)
        }
        ExprKind::Block(block) => always_exits(block),
        _ => false,
    }
}

/// Whether [`Lowering::unit`] asks for the flag of `keyword` in this block.
fn needs_flag(block: &BlockExpr, keyword: &str) -> bool {
    let count = block.statements.len() + usize::from(block.value.is_some());
    block.statements.iter().enumerate().any(|(i, statement)| match statement {
        Stmt::For { .. } | Stmt::While { .. } => statement_exits(statement).has(keyword),
        Stmt::Expr(expr) => expr_needs_flag(expr, keyword, i + 1 < count),
        Stmt::Let { .. } | Stmt::Assign { .. } => false,
    }) || block.value.as_deref().is_some_and(|value| expr_needs_flag(value, keyword, false))
}

fn expr_needs_flag(expr: &Expr, keyword: &str, followed: bool) -> bool {
    match &expr.kind {
        ExprKind::If { then, otherwise, .. } => {
            let partial = !always_exits(then) && !otherwise.as_deref().is_some_and(always_exits);
            followed && partial && expr_exits(expr).has(keyword)
                || needs_flag(then, keyword)
                || otherwise.as_deref().is_some_and(|block| needs_flag(block, keyword))
        }
        ExprKind::Block(block) => followed && block_exits(block).has(keyword) || needs_flag(block, keyword),
        _ => false,
    }
}

// ---- lowering to branches

struct Lowering<'e> {
    errors: &'e mut Errors,
    kind: BodyKind,
    /// How many loops are around the current statement.
    loop_depth: u32,
    /// How many branches are around it, those made from exits among them.
    depth: u32,
    /// The flags that are declared.
    flags: ExitSet,
}

impl Lowering<'_> {
    /// Lowers a block without a value.
    fn unit(&mut self, block: BlockExpr) -> BlockExpr {
        let BlockExpr { items, statements, value, loc } = block;
        let (value, last) = match value {
            Some(value) if expr_contains_exit(&value) => (None, Some(Stmt::Expr(*value))),
            value => (value, None),
        };
        let mut rest = statements.into_iter().chain(last);
        let mut done = vec![];
        while let Some(statement) = rest.next() {
            let exits = statement_exits(&statement);
            if !exits.any() {
                done.push(self.statement(statement));
                continue;
            }
            let rest = BlockExpr { items: Rc::default(), statements: rest.collect(), value, loc };
            self.lower_exit_limited(statement, exits, rest, &mut done);
            return BlockExpr { items, statements: done, value: None, loc };
        }
        BlockExpr { items, statements: done, value, loc }
    }

    /// Whether branches nest too deep: what follows an exit goes into a branch, and later stages recurse.
    fn report_depth(&mut self, loc: Loc) -> bool {
        if self.depth >= MAX_DEPTH {
            self.errors.push(loc, format!("a body has at most {MAX_DEPTH} early exits in a row"));
        }
        self.depth >= MAX_DEPTH
    }

    /// Lowers a statement with exits, and what follows it.
    fn lower_exit_limited(&mut self, statement: Stmt, exits: ExitSet, rest: BlockExpr, done: &mut Vec<Stmt>) {
        let loc = rest.loc;
        if self.report_depth(loc) {
            return;
        }
        self.depth += 1;
        self.lower_exit(statement, exits, rest, done);
        self.depth -= 1;
    }

    fn lower_exit(&mut self, statement: Stmt, exits: ExitSet, rest: BlockExpr, done: &mut Vec<Stmt>) {
        let loc = rest.loc;
        let expr = match statement {
            Stmt::Expr(expr) => expr,
            other => {
                done.push(self.statement(other));
                return self.skip_after_exit(exits, rest, done);
            }
        };
        match expr.kind {
            ExprKind::Exit(exit) => {
                let errors = self.errors.len();
                done.extend(self.exit(exit.clone(), expr.loc));
                if self.errors.len() == errors {
                    self.report_after(&exit, expr.loc, &rest);
                }
            }
            ExprKind::If { condition, then, otherwise } => {
                let then = owned(then);
                let otherwise = otherwise.map_or_else(|| empty(loc), owned);
                let (then, otherwise, rest) = if always_exits(&then) {
                    (then, sequence(otherwise, rest), None)
                } else if always_exits(&otherwise) {
                    (sequence(then, rest), otherwise, None)
                } else {
                    (then, otherwise, Some(rest))
                };
                let (then, otherwise) = (self.unit(then), self.unit(otherwise));
                let kind = ExprKind::If { condition, then: then.into(), otherwise: Some(otherwise.into()) };
                done.push(Stmt::Expr(Expr { kind, loc: expr.loc }));
                if let Some(rest) = rest {
                    self.skip_after_exit(exits, rest, done);
                }
            }
            ExprKind::Block(block) => {
                let kind = ExprKind::Block(self.unit(owned(block)).into());
                done.push(Stmt::Expr(Expr { kind, loc: expr.loc }));
                self.skip_after_exit(exits, rest, done);
            }
            _ => unreachable!("other expressions hold no exits"),
        }
    }

    /// Appends what runs only where none of these exits was taken.
    fn skip_after_exit(&mut self, exits: ExitSet, rest: BlockExpr, done: &mut Vec<Stmt>) {
        if rest.statements.is_empty() && rest.value.is_none() {
            return;
        }
        let loc = rest.loc;
        let rest = self.unit(rest);
        let rest = unless(self.declared_flags(exits), rest, loc);
        done.push(Stmt::Expr(Expr { kind: ExprKind::Block(rest.into()), loc }));
    }

    /// The declared flags among those of these exits.
    fn declared_flags(&self, exits: ExitSet) -> Vec<&'static str> {
        let known = |keyword: &&str| exits.has(keyword) && self.flags.has(keyword);
        [RETURN, BREAK, CONTINUE].into_iter().filter(known).collect()
    }

    /// The assignment that sets the flag of an exit, if anything reads the flag.
    fn exit(&mut self, exit: Exit, loc: Loc) -> Option<Stmt> {
        let keyword = match exit {
            Exit::Return(Some(value)) if self.kind == BodyKind::Unit => {
                self.errors.push_help(
                    value.loc,
                    "this returns a value from a body that gives none",
                    "write results into a `&mut [T]` parameter with `tl::store`, and `return;`",
                );
                return None;
            }
            Exit::Return(_) if self.kind == BodyKind::Value => {
                self.errors.push_help(
                    loc,
                    "a function that gives a value cannot return it from within a loop",
                    "assign it to a variable and `break`",
                );
                return None;
            }
            Exit::Return(_) => RETURN,
            Exit::Break => BREAK,
            Exit::Continue => CONTINUE,
        };
        let value = Expr { kind: ExprKind::Bool(true), loc };
        self.flags.has(keyword).then(|| Stmt::Assign { target: flag(keyword, loc), op: None, value })
    }

    fn report_after(&mut self, exit: &Exit, loc: Loc, rest: &BlockExpr) {
        let keyword = match exit {
            Exit::Return(_) => RETURN,
            Exit::Break => BREAK,
            Exit::Continue => CONTINUE,
        };
        if !rest.statements.is_empty() || rest.value.is_some() {
            self.errors.push(loc, format!("nothing after this `{keyword}` would ever run"));
        }
    }

    /// Lowers a statement none of whose exits lead beyond it, or a loop.
    fn statement(&mut self, statement: Stmt) -> Stmt {
        match statement {
            Stmt::For { var, range, body, loc } if contains_exit(&body) => {
                let (body, flags) = self.loop_body(body);
                let loop_exit_flags = self.loop_exit_flags(flags);
                let body = unless(loop_exit_flags, body, loc);
                with_break_flag(flags, Stmt::For { var, range, body, loc }, loc)
            }
            Stmt::While { condition, body, loc } if contains_exit(&body) => {
                let (body, flags) = self.loop_body(body);
                let condition = match none_of(self.loop_exit_flags(flags), loc) {
                    Some(running) => {
                        let (lhs, rhs) = (Box::new(running), Box::new(condition));
                        Expr { kind: ExprKind::Logic { and: true, op_loc: loc, lhs, rhs }, loc }
                    }
                    None => condition,
                };
                with_break_flag(flags, Stmt::While { condition, body, loc }, loc)
            }
            Stmt::Expr(Expr { kind: ExprKind::Block(block), loc }) if contains_exit(&block) => {
                let kind = ExprKind::Block(self.unit(owned(block)).into());
                Stmt::Expr(Expr { kind, loc })
            }
            Stmt::Expr(Expr { kind: ExprKind::If { condition, then, otherwise }, loc })
                if contains_exit(&then) || otherwise.as_deref().is_some_and(contains_exit) =>
            {
                let then = self.unit(owned(then)).into();
                let otherwise = otherwise.map(|block| self.unit(owned(block)).into());
                Stmt::Expr(Expr { kind: ExprKind::If { condition, then, otherwise }, loc })
            }
            Stmt::Let { pattern, ty, init, loc } => {
                Stmt::Let { pattern, ty, init: init.map(|init| self.nested(init)), loc }
            }
            Stmt::Assign { target, op, value } => Stmt::Assign { target, op, value: self.nested(value) },
            other => other,
        }
    }

    /// Lowers a loop's body; also returns the exits that its loop has to test.
    fn loop_body(&mut self, body: BlockExpr) -> (BlockExpr, ExitSet) {
        let exits = block_exits(&body);
        let continues = needs_flag(&body, CONTINUE);
        let flags = ExitSet { breaks: exits.breaks, continues, returns: self.flags.returns };
        let outer = std::mem::replace(&mut self.flags, flags);
        self.loop_depth += 1;
        let loc = body.loc;
        let mut body = self.unit(body);
        self.loop_depth -= 1;
        self.flags = outer;
        if continues {
            body.statements.insert(0, declare(CONTINUE, loc));
        }
        (body, ExitSet { continues: false, ..exits })
    }

    /// The flags that end a loop.
    fn loop_exit_flags(&self, exits: ExitSet) -> Vec<&'static str> {
        let broken = exits.breaks.then_some(BREAK);
        let returned = (exits.returns && self.flags.returns).then_some(RETURN);
        broken.into_iter().chain(returned).collect()
    }

    /// Lowers a block that ends with the function's value.
    fn value(&mut self, block: BlockExpr) -> BlockExpr {
        let BlockExpr { items, statements, value, loc } = block;
        let (value, last) = match value {
            Some(value) if expr_exits(&value).any() => (None, Some(Stmt::Expr(*value))),
            value => (value, None),
        };
        let mut rest = statements.into_iter().chain(last);
        let mut done = vec![];
        while let Some(statement) = rest.next() {
            let is_loop = matches!(statement, Stmt::For { .. } | Stmt::While { .. });
            let exits = statement_exits(&statement);
            if is_loop || !exits.any() {
                done.push(self.statement(statement));
                continue;
            }
            let rest = BlockExpr { items: Rc::default(), statements: rest.collect(), value, loc };
            let Stmt::Expr(expr) = statement else { unreachable!("other statements hold no exits") };
            if self.report_depth(expr.loc) {
                return BlockExpr { items, statements: done, value: None, loc };
            }
            self.depth += 1;
            let value = self.value_of(expr, rest);
            self.depth -= 1;
            return BlockExpr { items, statements: done, value: value.map(Box::new), loc };
        }
        let value = value.map(|value| Box::new(self.nested(*value)));
        BlockExpr { items, statements: done, value, loc }
    }

    /// Lowers an expression whose blocks contain loops with exits. Exits that lead beyond it stay, for `typeck` to report.
    fn nested(&mut self, expr: Expr) -> Expr {
        if !expr_contains_exit(&expr) || expr_exits(&expr).any() {
            return expr;
        }
        let kind = match expr.kind {
            ExprKind::If { condition, then, otherwise } => {
                let then = self.value(owned(then)).into();
                let otherwise = otherwise.map(|block| self.value(owned(block)).into());
                ExprKind::If { condition, then, otherwise }
            }
            ExprKind::Block(block) => ExprKind::Block(self.value(owned(block)).into()),
            other => other,
        };
        Expr { kind, ..expr }
    }

    /// The value of a statement that returns, and of what follows it.
    fn value_of(&mut self, expr: Expr, rest: BlockExpr) -> Option<Expr> {
        let loc = rest.loc;
        match expr.kind {
            ExprKind::Exit(Exit::Return(value)) => {
                self.report_after(&Exit::Return(None), expr.loc, &rest);
                if value.is_none() {
                    self.errors.push(expr.loc, "this returns nothing from a function that gives a value");
                }
                value.map(|value| *value)
            }
            ExprKind::Exit(exit) => {
                self.exit(exit, expr.loc);
                None
            }
            ExprKind::If { condition, then, otherwise } => {
                let then = owned(then);
                let otherwise = otherwise.map_or_else(|| empty(loc), owned);
                let last = rest.statements.is_empty() && rest.value.is_none();
                let (then, otherwise) = if always_exits(&then) {
                    (then, sequence(otherwise, rest))
                } else if always_exits(&otherwise) {
                    (sequence(then, rest), otherwise)
                } else if last {
                    (then, otherwise)
                } else {
                    self.errors.push_help(
                        expr.loc,
                        "only some of the ways through this `if` return",
                        "let a branch that returns do so on every way through it",
                    );
                    return Some(Expr { kind: ExprKind::Error, loc });
                };
                let (then, otherwise) = (self.value(then), self.value(otherwise));
                let kind = ExprKind::If { condition, then: then.into(), otherwise: Some(otherwise.into()) };
                Some(Expr { kind, loc: expr.loc })
            }
            ExprKind::Block(block) => {
                let followed = !rest.statements.is_empty() || rest.value.is_some();
                if followed && !always_exits(&block) {
                    self.errors.push_help(
                        expr.loc,
                        "only some of the ways through this block return",
                        "let `return` stand at the end of a branch of the function's own block",
                    );
                    return Some(Expr { kind: ExprKind::Error, loc });
                }
                let kind = ExprKind::Block(self.value(owned(block)).into());
                Some(Expr { kind, loc: expr.loc })
            }
            _ => unreachable!("other expressions hold no exits"),
        }
    }
}

// ---- trees

fn owned(block: Rc<BlockExpr>) -> BlockExpr {
    Rc::unwrap_or_clone(block)
}

fn empty(loc: Loc) -> BlockExpr {
    BlockExpr { items: Rc::default(), statements: vec![], value: None, loc }
}

/// `{ first } rest`, in one block.
fn sequence(first: BlockExpr, rest: BlockExpr) -> BlockExpr {
    if rest.statements.is_empty() && rest.value.is_none() {
        return first;
    }
    let loc = first.loc;
    let nothing = first.statements.is_empty() && first.value.is_none();
    let kind = ExprKind::Block(first.into());
    let first = (!nothing).then_some(Stmt::Expr(Expr { kind, loc }));
    let statements = first.into_iter().chain(rest.statements).collect();
    BlockExpr { items: Rc::default(), statements, value: rest.value, loc: rest.loc }
}

fn flag(keyword: &str, loc: Loc) -> Ident {
    let span: Span = loc.start;
    Ident::new(keyword, span)
}

/// `let mut flag = false;`
fn declare(keyword: &str, loc: Loc) -> Stmt {
    let pattern = Pattern::Name { name: flag(keyword, loc), mutable: true };
    Stmt::Let { pattern, ty: None, init: Some(Expr { kind: ExprKind::Bool(false), loc }), loc }
}

/// `!(a || b)`
fn none_of(flags: Vec<&'static str>, loc: Loc) -> Option<Expr> {
    let named = flags.into_iter().map(|keyword| Expr { kind: ExprKind::Path(vec![flag(keyword, loc)]), loc });
    let any = named.reduce(|lhs, rhs| {
        let (lhs, rhs) = (Box::new(lhs), Box::new(rhs));
        Expr { kind: ExprKind::Logic { and: false, op_loc: loc, lhs, rhs }, loc }
    })?;
    Some(Expr { kind: ExprKind::Unary { op: UnaryOp::Not, operand: Box::new(any) }, loc })
}

/// `{ if !(a || b) { block } }`, or the block itself where no flag is read.
fn unless(flags: Vec<&'static str>, block: BlockExpr, loc: Loc) -> BlockExpr {
    let Some(condition) = none_of(flags, loc) else { return block };
    let kind = ExprKind::If { condition: Box::new(condition), then: block.into(), otherwise: None };
    BlockExpr { statements: vec![Stmt::Expr(Expr { kind, loc })], ..empty(loc) }
}

/// A loop with the flag that its `break` sets.
fn with_break_flag(exits: ExitSet, statement: Stmt, loc: Loc) -> Stmt {
    if !exits.breaks {
        return statement;
    }
    let block = BlockExpr { statements: vec![declare(BREAK, loc), statement], ..empty(loc) };
    Stmt::Expr(Expr { kind: ExprKind::Block(block.into()), loc })
}
