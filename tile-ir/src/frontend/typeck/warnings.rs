//! Warnings about constants that are hardly meant: empty ranges, comparisons that always give the same, `^` for a power.
//!
//! Only what the source itself fixes is reported. A const parameter, a declared type, an argument of a call and an unrolled iteration
//! differ between variants, calls and iterations, and comparisons tell these apart. So may a comparison with a named constant, or with
//! an argument of a `macro_rules`.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BinaryOp, COUNT_DOWN, Expr, ExprKind, GenericParam};
use crate::ir::{Func, Op, Value};
use crate::ops::{ConstantValue, Kind, SpecialRegister};
use crate::support::diagnostic::Loc;
use crate::support::warning::Warning;

/// A binary operation as written, and its operands.
pub(super) struct WrittenBinary<'e> {
    pub op: BinaryOp,
    pub exprs: [&'e Expr; 2],
    pub operands: [&'e Operand; 2],
    pub loc: Loc,
}

/// What a constant expression is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Literals,
    /// Also named constants, which may be switches.
    Constants,
}

/// A comparison that is decided if `value` is never negative.
pub(super) struct SignTest {
    value: Value,
    holds: bool,
    loc: Loc,
}

impl Check<'_> {
    /// Whether the current expression is the user's, written for this kernel alone: not the library's nor a macro's.
    fn is_written_out(&self) -> bool {
        let is_generated =
            self.kernel.source.is_generated || self.frames.iter().any(super::Frame::is_generated);
        self.site.is_none() && !is_generated
    }

    /// Adds a warning, once.
    fn warn(&mut self, loc: Loc, kind: &'static str, text: String) {
        let warning = Warning { loc, kind, text };
        if self.is_written_out() && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What an expression is made of, if it has the same value wherever the kernel runs.
    fn source(&self, expr: &Expr) -> Option<Source> {
        match &expr.kind {
            ExprKind::Int { .. } | ExprKind::Float { .. } => Some(Source::Literals),
            ExprKind::Unary { operand, .. } | ExprKind::Cast { operand, .. } => self.source(operand),
            ExprKind::Binary { lhs, rhs, .. } => Some(self.source(lhs)?.max(self.source(rhs)?)),
            ExprKind::Path(path) => {
                let mut levels = self.item_scope.levels();
                let level =
                    levels.find(|level| level.items.constants.iter().any(|constant| constant.path == *path));
                let is_constant = match path.as_slice() {
                    // A const parameter hides a constant beside the kernel.
                    [name] => level
                        .is_some_and(|level| level.is_nested() || !self.scopes.is_bound(&name.to_string())),
                    _ => true,
                };
                is_constant.then_some(Source::Constants)
            }
            _ => None,
        }
    }

    // ---- ranges

    /// Warns of a loop whose range has nothing in it. Equal ends count only as literals: a named constant may be 0 on purpose.
    pub(super) fn warn_of_empty_range(&mut self, written: &Expr, operand: &Operand) {
        let Item::Range(range) = &operand.item else { return };
        let (Some(low), Some(high)) = (range.low.as_integer(), range.high.as_integer()) else { return };
        if low < high + i128::from(range.closed) {
            return;
        }
        let mut inner = written;
        while let ExprKind::Method { receiver, .. } = &inner.kind {
            inner = receiver;
        }
        let [start, end] = match &inner.kind {
            ExprKind::Range { low, high, .. } => [&**low, &**high],
            ExprKind::Call(call) if call.args.len() >= 2 => [&call.args[0], &call.args[1]],
            _ => return,
        };
        let (Some(start), Some(end)) = (self.source(start), self.source(end)) else { return };
        let help = match low.cmp(&high) {
            Ordering::Greater => COUNT_DOWN,
            _ if start.max(end) == Source::Constants => return,
            _ => "`start..end` ends before `end`, `start..=end` includes it",
        };
        self.warn(
            inner.loc,
            "empty_range",
            format!("this range is empty, so that the loop never runs; {help}"),
        );
    }

    // ---- operations

    /// Warns of what an operation hardly means.
    pub(super) fn warn_of_binary(&mut self, binary: &WrittenBinary, result: &Operand) {
        match binary.op {
            BinaryOp::Xor => self.warn_of_power(binary),
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                self.warn_of_comparison(binary, result);
            }
            _ => {}
        }
    }

    /// Warns of a comparison with NaN, of two literals, or of a value with a literal that all its values are on one side of.
    fn warn_of_comparison(&mut self, binary: &WrittenBinary, result: &Operand) {
        let &WrittenBinary { op, exprs, operands, loc } = binary;
        let sources = exprs.map(|expr| self.source(expr));
        if let Some(nan) = (0..2).find(|&side| sources[side].is_some() && is_nan(operands[side])) {
            let other = operands[1 - nan].loc.word().unwrap_or_else(|| "..".into());
            let (always, not) = if op == BinaryOp::Ne { ("always", "!") } else { ("never", "") };
            let text = format!("a comparison with NaN is {always} true: write `{not}tl::is_nan({other})`");
            return self.warn(loc, "comparison_with_nan", text);
        }
        let literal =
            |side: usize| operands[side].as_integer().filter(|_| sources[side] == Some(Source::Literals));
        match (&result.item, sources) {
            (
                Item::Literal(Literal { value: LiteralValue::Bool(holds), .. }),
                [Some(Source::Literals), Some(Source::Literals)],
            ) => {
                let text = format!("both sides are literals, so that this is {}", outcome(*holds));
                self.warn(loc, "constant_comparison", text + ": leave it out, or compare a variable");
            }
            _ => match (literal(0), literal(1)) {
                (None, Some(number)) => self.warn_of_bound(op, operands[0], number, loc),
                (Some(number), None) => self.warn_of_bound(mirrored(op), operands[1], number, loc),
                _ => {}
            },
        }
    }

    /// Warns of `operand op number` if the element type decides it; one that the sign decides is left to [`decided`].
    fn warn_of_bound(&mut self, op: BinaryOp, operand: &Operand, number: i128, loc: Loc) {
        let Item::Value(value) = operand.item else { return };
        let dtype = self.ty(value).dtype;
        if !dtype.is_integer() {
            return;
        }
        let (low, high) = dtype.range();
        match outcome_in(op, (low, high), number) {
            // Where types are parameters, another one may decide otherwise.
            Some(holds) if self.frames.iter().all(|frame| frame.fixes_type(dtype)) => {
                let name = if dtype.is_signed() { format!("an {dtype}") } else { format!("a {dtype}") };
                let (bound, help) = match number {
                    ..=0 if low == 0 => ("never negative".to_string(), "leave it out, or take a signed type"),
                    _ if number <= low => (format!("at least {low}"), "leave it out"),
                    _ => (format!("at most {high}"), "leave it out"),
                };
                let text = format!("{name} is {bound}, so that this is {}: {help}", outcome(holds));
                self.warn(loc, "constant_comparison", text);
            }
            Some(_) => {}
            None => {
                if let Some(holds) = outcome_in(op, (0, high), number)
                    && self.is_written_out()
                {
                    self.sign_tests.push(SignTest { value, holds, loc });
                }
            }
        }
    }

    /// Warns of `^` where a power was meant: `n ^ 2`, `n ^ 3` and `2 ^ n` of a signed scalar with a name or of a const parameter, and
    /// `2` or `10` to a literal. All literals are decimal, as those of bits seldom are. Tiles and unsigned numbers are left out:
    /// `lanes ^ 2` is the lane to exchange with, and `seed ^ 2` another seed.
    fn warn_of_power(&mut self, binary: &WrittenBinary) {
        let [base, exponent] = [0, 1].map(|side| decimal(binary.exprs[side]));
        let names = [0, 1].map(|side| self.signed_name(binary.exprs[side], binary.operands[side]));
        let help = match (base, exponent, names) {
            (Some(2), Some(exponent), _) => format!("a power of two is `1 << {exponent}`"),
            (Some(10), Some(exponent @ 0..=18), _) => {
                format!("this power of ten is `{}`", 10_i128.pow(exponent as u32))
            }
            (Some(2), None, [_, Some(name)]) => format!("a power of two is `1 << {name}`"),
            (None, Some(2), [Some(name), _]) => format!("a square is `{name} * {name}`"),
            (None, Some(3), [Some(name), _]) => format!("a cube is `{name} * {name} * {name}`"),
            _ => return,
        };
        self.warn(binary.loc, "xor_for_power", format!("`^` is exclusive or: {help}"));
    }

    /// The name of a signed scalar or const parameter.
    fn signed_name(&self, expr: &Expr, operand: &Operand) -> Option<String> {
        let ExprKind::Path(path) = &expr.kind else { return None };
        let [name] = path.as_slice() else { return None };
        let is_const =
            |generic: &GenericParam| matches!(generic, GenericParam::Const { name: own, .. } if own == name);
        let counts = match operand.item {
            Item::Value(value) => self.ty(value).is_scalar() && self.ty(value).dtype.is_signed(),
            _ => operand.as_integer().is_some() && self.kernel.generics.iter().any(is_const),
        };
        counts.then(|| name.to_string())
    }
}

/// An integer literal in decimal digits, without a suffix.
fn decimal(expr: &Expr) -> Option<i128> {
    match expr.kind {
        ExprKind::Int { value, suffix: None } => (expr.loc.word()? == value.to_string()).then_some(value),
        _ => None,
    }
}

fn is_nan(operand: &Operand) -> bool {
    matches!(
        operand.item,
        Item::Literal(Literal { value: LiteralValue::Number(ConstantValue::Float(value)), .. }) if value.is_nan()
    )
}

fn outcome(holds: bool) -> &'static str {
    if holds { "always true" } else { "never true" }
}

/// The comparison with its sides exchanged.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        other => other,
    }
}

/// The outcome of `x op number` if it is the same for every `x` from `low` to `high`.
fn outcome_in(op: BinaryOp, (low, high): (i128, i128), number: i128) -> Option<bool> {
    let decided = |holds: bool, fails: bool| (holds || fails).then_some(holds);
    match op {
        BinaryOp::Lt => decided(high < number, low >= number),
        BinaryOp::Le => decided(high <= number, low > number),
        BinaryOp::Gt => decided(low > number, high <= number),
        BinaryOp::Ge => decided(low >= number, high < number),
        BinaryOp::Eq => decided(false, !(low..=high).contains(&number)),
        BinaryOp::Ne => decided(!(low..=high).contains(&number), false),
        _ => None,
    }
}

/// Returns warnings about those of `tests` whose value is never negative, whatever the arguments and the program.
pub(super) fn decided(tests: &[SignTest], func: &Func) -> Vec<Warning> {
    if tests.is_empty() {
        return vec![];
    }
    let definitions = func.definitions();
    let mut found: Vec<Warning> = vec![];
    for &SignTest { value, holds, loc } in tests {
        if let Some(name) = never_negative(value, func, &definitions) {
            let text = format!("{name} is never negative, so that this is {}: leave it out", outcome(holds));
            let warning = Warning { loc, kind: "constant_comparison", text };
            if !found.contains(&warning) {
                found.push(warning);
            }
        }
    }
    found
}

/// What a value is, if that is never negative; moves of its axes are looked through.
fn never_negative(value: Value, func: &Func, definitions: &HashMap<Value, &Op>) -> Option<&'static str> {
    let op = definitions.get(&value)?;
    match &op.kind {
        Kind::ProgramId(_) => Some("`tl::program_id`"),
        Kind::NumPrograms(_) => Some("`tl::num_programs`"),
        Kind::ReadRegister(read) if read.register == SpecialRegister::SmId => Some("`tl::smid`"),
        Kind::Length(_) => Some("a length"),
        Kind::Arange(arange) if arange.start >= 0 => Some("this `tl::arange`"),
        kind => {
            kind.operation().axis_map(func)?;
            let &[inner] = kind.operation().operands().as_slice() else { return None };
            never_negative(inner, func, definitions)
        }
    }
}
