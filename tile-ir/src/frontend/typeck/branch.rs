//! `if`: evaluated at build for a constant, otherwise both branches and the variables that they assign.

use super::carried::CarriedValue;
use super::operand::wider;
use super::scope::Variable;
use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BlockExpr, Expr, ExprKind};
use crate::ir::{Type, Value};
use crate::ops::If;
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

impl Check<'_> {
    /// `if`, as a statement or a value.
    pub(super) fn conditional(
        &mut self,
        condition: &Expr,
        then: &BlockExpr,
        otherwise: Option<&BlockExpr>,
        loc: Loc,
    ) -> Operand {
        let origin = if is_match_condition(condition) { BranchOrigin::Match } else { BranchOrigin::If };
        let condition = self.expr(condition);
        match condition.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => {
                // Decided at build: the other branch is not part of this variant.
                return match (value, otherwise) {
                    (true, _) => Operand { loc, ..self.block(then) },
                    (false, Some(otherwise)) => Operand { loc, ..self.block(otherwise) },
                    (false, None) => Operand::unit(loc),
                };
            }
            Item::Failed => return self.unconditional(then, otherwise, loc),
            _ => {}
        }
        match self.scalar_condition(&condition, "if") {
            Some(value) => self.branch(BranchCondition { value, origin }, then, otherwise, loc),
            None => self.unconditional(then, otherwise, loc),
        }
    }

    /// Whether a `match` cannot compare its value, which is reported.
    pub(super) fn report_scrutinee(&mut self, operand: &Operand) -> bool {
        let found = self.describe(operand);
        match &operand.item {
            Item::Failed | Item::Literal(_) => return false,
            Item::Value(value) if self.ty(*value).is_scalar() => return false,
            Item::Value(_) => self.error_help(
                operand.loc,
                format!("`match` takes a scalar, found {found}"),
                "choose by element with `tl::select(mask, a, b)`",
            ),
            _ => self.error(operand.loc, format!("`match` takes a scalar, found {found}")),
        };
        true
    }

    /// The branches under a condition that was reported: they may still have mistakes of their own, and the variables
    /// that they assign are unknown.
    fn unconditional(&mut self, then: &BlockExpr, otherwise: Option<&BlockExpr>, loc: Loc) -> Operand {
        let slots = self.assigned_slots([Some(then), otherwise].into_iter().flatten());
        for block in [Some(then), otherwise].into_iter().flatten() {
            self.block(block);
            self.poison(&slots, loc);
        }
        Operand::failed(loc)
    }

    pub(super) fn scalar_condition(&mut self, operand: &Operand, keyword: &str) -> Option<Value> {
        if !matches!(operand.item, Item::Value(_) | Item::Literal(_) | Item::Failed) {
            let found = self.describe(operand);
            self.error(operand.loc, format!("the condition of `{keyword}` is a bool, found {found}"));
            return None;
        }
        let value = self.value(operand)?;
        let ty = self.ty(value).clone();
        if ty.dtype != DType::Bool {
            self.error_help(
                operand.loc,
                format!("the condition of `{keyword}` is a bool, found {ty}"),
                "compare: `x != 0`",
            );
            return None;
        }
        if !ty.is_scalar() {
            let help = match keyword {
                "while" => "`tl::any(mask)` says whether one of its elements holds",
                "if" => {
                    "choose by element with `tl::select(mask, a, b)`, or write where it holds: `tl::store(pointer, value, mask)`"
                }
                _ => "choose by element with `tl::select(mask, a, b)`",
            };
            let text = format!("the condition of `{keyword}` is a scalar, found a tile of type {ty}");
            self.error_help(operand.loc, text, help);
            return None;
        }
        Some(value)
    }

    fn branch(
        &mut self,
        BranchCondition { value: condition, origin }: BranchCondition,
        then: &BlockExpr,
        otherwise: Option<&BlockExpr>,
        loc: Loc,
    ) -> Operand {
        let slots = self.assigned_slots([Some(then), otherwise].into_iter().flatten());
        let before: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();

        self.begin_block(vec![]);
        let then_value = self.block(then);
        let after_then: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        // The block is reopened below to build the operations that its yields need.
        let then_block = self.end_block(vec![]);
        self.restore(&slots, &before);

        self.begin_block(vec![]);
        let else_value = match otherwise {
            Some(otherwise) => self.block(otherwise),
            None => Operand::unit(loc),
        };
        let after_else: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        let else_block = self.end_block(vec![]);
        self.restore(&slots, &before);

        // The results of the `if`: its value, then every variable that is assigned after both branches.
        let mut pairs = vec![];
        let value_pair = match (&then_value.item, &else_value.item) {
            (Item::Unit, _) | (_, Item::Unit) | (Item::Failed, _) | (_, Item::Failed) => None,
            _ => Some(BranchPair {
                what: origin.value().into(),
                values: [then_value.clone(), else_value.clone()],
                blame: Blame { branch_index: 1, loc: else_value.loc },
                elsewhere: origin.elsewhere(),
            }),
        };
        let value_is_missing = value_pair.is_none()
            && self.report_missing_value(&then_value, &else_value, otherwise.map(|_| origin));
        let has_value = value_pair.is_some();
        pairs.extend(value_pair);
        let names = self.slot_names(&slots, then, otherwise);
        for (i, (a, b)) in after_then.iter().zip(&after_else).enumerate() {
            if let (Some(then), Some(otherwise)) = (&a.operand, &b.operand) {
                let in_else = b.assigned != before[i].assigned;
                let in_both = in_else && a.assigned != before[i].assigned;
                let (branch_index, assigned) = if in_else { (1, b.assigned) } else { (0, a.assigned) };
                pairs.push(BranchPair {
                    what: format!("`{}`", names[i]),
                    values: [then.clone(), otherwise.clone()],
                    blame: Blame { branch_index, loc: assigned.unwrap_or(loc) },
                    elsewhere: if in_both { "in the other branch" } else { "before the `if`" },
                });
            }
        }
        let merged = self.merge(condition, [then_block, else_block], pairs, loc);
        let mut merged = merged.into_iter();
        let failed = |value: &Operand| matches!(value.item, Item::Failed);
        let value = if has_value {
            merged.next().unwrap_or_else(|| Operand::failed(loc))
        } else if value_is_missing || failed(&then_value) || failed(&else_value) {
            Operand::failed(loc)
        } else {
            Operand::unit(loc)
        };
        for (i, &slot) in slots.iter().enumerate() {
            let both = after_then[i].operand.is_some() && after_else[i].operand.is_some();
            let assigned = after_then[i].assigned.or(after_else[i].assigned);
            let variable = self.scopes.get_mut(slot);
            variable.assigned = assigned;
            variable.operand = if both { merged.next() } else { None };
        }
        Operand { loc, ..value }
    }

    /// Whether one branch has a value and the other none, which is reported.
    fn report_missing_value(
        &mut self,
        then: &Operand,
        otherwise: &Operand,
        origin: Option<BranchOrigin>,
    ) -> bool {
        let (with, without) = match (&then.item, &otherwise.item) {
            (Item::Unit, Item::Unit) | (Item::Failed, _) | (_, Item::Failed) => return false,
            (Item::Unit, _) => (otherwise, then),
            _ => (then, otherwise),
        };
        let found = self.describe(with);
        match origin {
            Some(BranchOrigin::If) => {
                let text = format!("one branch of this `if` gives {found}, the other nothing");
                self.error_help(
                    without.loc,
                    text,
                    "a branch's value is its last expression, without a semicolon behind it",
                )
            }
            Some(BranchOrigin::Match) => {
                self.error(without.loc, format!("this arm gives nothing, another one gives {found}"))
            }
            None => self.error_help(
                with.loc,
                format!("this gives {found}, but the `if` has no `else` that gives one as well"),
                "end it with `else { .. }`, or with a semicolon behind the value",
            ),
        };
        true
    }

    /// Joins pairs of operands behind an `if` whose blocks are built; reports pairs whose types differ.
    fn merge(
        &mut self,
        condition: Value,
        blocks: [crate::ir::Block; 2],
        pairs: Vec<BranchPair>,
        loc: Loc,
    ) -> Vec<Operand> {
        let mut wanted: Vec<Vec<CarriedValue>> = vec![];
        for pair in &pairs {
            let leaves = self.join(pair, &pair.values[0], &pair.values[1]);
            wanted.push(leaves.unwrap_or_default());
        }
        let [then, otherwise] = blocks;
        let close = |check: &mut Self, block: crate::ir::Block, branch_index: usize| {
            check.builder.begin_with(block.args);
            for op in block.ops {
                check.builder.append(op);
            }
            let mut yields = vec![];
            for (pair, leaves) in pairs.iter().zip(&wanted) {
                if !leaves.is_empty() {
                    yields.extend(check.yield_leaves(&pair.values[branch_index], leaves).unwrap_or_default());
                }
            }
            check.end_block(yields)
        };
        let then = close(self, then, 0);
        let otherwise = close(self, otherwise, 1);
        let types: Vec<Type> = wanted.iter().flatten().map(|leaf| leaf.ty.clone()).collect();
        if then.yields.len() != types.len() || otherwise.yields.len() != types.len() {
            // A literal that does not fit was reported while closing.
            return pairs.iter().map(|_| Operand::failed(loc)).collect();
        }
        let results = self.push(If::new(condition, then, otherwise), types, loc);
        let mut results = results.into_iter();
        pairs
            .iter()
            .zip(&wanted)
            .map(|(pair, leaves)| {
                let a = &pair.values[0];
                if leaves.is_empty() && !matches!(a.item, Item::Tuple(_) | Item::Struct(..)) {
                    return Operand::failed(a.loc);
                }
                let values: Vec<Value> = results.by_ref().take(leaves.len()).collect();
                self.rebuild(a, &mut values.into_iter())
            })
            .collect()
    }

    /// The leaves two branches agree on; a literal takes the other branch's type.
    fn join(&mut self, pair: &BranchPair, a: &Operand, b: &Operand) -> Option<Vec<CarriedValue>> {
        let parts = match (&a.item, &b.item) {
            (Item::Tuple(left), Item::Tuple(right)) if left.len() == right.len() => Some((left, right)),
            (Item::Struct(left_id, left), Item::Struct(right_id, right)) if left_id == right_id => {
                Some((left, right))
            }
            _ => None,
        };
        if let Some((left, right)) = parts {
            let mut leaves = vec![];
            for (a, b) in left.iter().zip(right) {
                leaves.extend(self.join(pair, a, b)?);
            }
            return Some(leaves);
        }
        let (left, right) = (self.leaves(a)?, self.leaves(b)?);
        let takes = |operand: &Operand, leaves: &[CarriedValue]| match (&operand.item, leaves) {
            (Item::Literal(literal), [leaf]) => {
                leaf.ty.is_scalar() && leaf.slice.is_none() && literal.can_be(leaf.ty.dtype)
            }
            _ => false,
        };
        if left == right || takes(b, &left) {
            return Some(left);
        }
        if takes(a, &right) {
            return Some(right);
        }
        let mut texts = [self.describe_leaves(&left), self.describe_leaves(&right)];
        texts.rotate_left(pair.blame.branch_index);
        let [here, there] = texts;
        let BranchPair { what, elsewhere, .. } = pair;
        let text = format!("{what} is {here} here and {there} {elsewhere}");
        let dtypes = [&left, &right].map(|leaves| match &leaves[..] {
            [leaf] if leaf.slice.is_none() => Some(leaf.ty.dtype),
            _ => None,
        });
        match dtypes {
            [Some(left), Some(right)] if left != right => {
                let wide = wider(left, right);
                self.error_help(pair.blame.loc, text, format!("convert one side: `.to::<{wide}>()`"))
            }
            [Some(_), Some(_)] => {
                let help = "give both one shape: `tl::broadcast_to(x, [M, N])`, or `tl::reshape(x, [M, N])`";
                self.error_help(pair.blame.loc, text, help)
            }
            _ => self.error(pair.blame.loc, text),
        };
        None
    }
}

/// The scalar condition of a branch that is taken at run time, and what the user wrote it in.
struct BranchCondition {
    value: Value,
    origin: BranchOrigin,
}

/// The source form: a `match` is lowered to a chain of `if`.
#[derive(Clone, Copy)]
enum BranchOrigin {
    If,
    Match,
}

impl BranchOrigin {
    /// How messages name its value.
    fn value(self) -> &'static str {
        match self {
            BranchOrigin::If => "the value of this `if`",
            BranchOrigin::Match => "the value of this `match`",
        }
    }

    fn elsewhere(self) -> &'static str {
        match self {
            BranchOrigin::If => "in the other branch",
            BranchOrigin::Match => "in the arm before",
        }
    }
}

/// Whether a condition compares the value of a `match`.
pub(super) fn is_match_condition(condition: &Expr) -> bool {
    match &condition.kind {
        ExprKind::Path(path) => path.len() == 1 && crate::frontend::syntax::is_scrutinee(&path[0]),
        ExprKind::Logic { lhs, .. } | ExprKind::Binary { lhs, .. } => is_match_condition(lhs),
        _ => false,
    }
}

/// One result of an `if`: its value, or a variable.
struct BranchPair {
    /// How messages name it.
    what: String,
    /// Its operand after the first branch, and after the other one.
    values: [Operand; 2],
    blame: Blame,
    /// Where it got its value in the branch that is not blamed.
    elsewhere: &'static str,
}

/// The branch that a difference is reported on, and the span of the value.
#[derive(Clone, Copy)]
struct Blame {
    branch_index: usize,
    loc: Loc,
}
