//! Turns of a loop in which its branches are not taken: a loop over these alone has none, and what stands before and
//! behind a branch is scheduled together.
//!
//! A branch is on one or several comparisons of the loop's variable with what does not change, of which any will do:
//! the turns between the last of those that hold at first and the first of those that hold at last.

use std::collections::{HashMap, HashSet};

use crate::frontend::syntax::BinaryOp;
use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::warp_specialize::varies;
use crate::gpu::emit::{Builder, Gpu};
use crate::ir::{Op, Value};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};
use crate::ops::scalar::ArithKind;
use crate::ops::{Cast, Effect, For, Kind, Scalar};

/// Numbers beyond this are left alone, and more terms than these: no sum of them overflows.
const LIMIT: i128 = 1 << 60;
const MAX_TERMS: usize = 4;
/// The most comparisons of a loop's branches.
const MAX_COMPARISONS: usize = 16;

/// A comparison that holds from some number on, or until one.
struct SplitCondition {
    /// Whether it holds for larger numbers.
    rises: bool,
    /// The variable with these, with their signs, is compared with 0 or the number next to it.
    terms: Vec<(bool, Value)>,
    strict: bool,
}

/// The conditions of a loop's branches, and what they come down to.
pub(super) struct LoopBranches {
    pub conditions: Vec<Value>,
    comparisons: Vec<SplitCondition>,
}

/// The turns in which no branch is taken: from the first number, 0 where there is none, to the one before the second.
pub(super) struct MainLoop {
    pub first: Option<Val>,
    pub end: Option<Val>,
}

impl LoopBranches {
    /// `None` where there are none, or some that are not of this kind.
    pub fn new(gpu: &Gpu, body: &For, definitions: &HashMap<Value, &Op>) -> Option<LoopBranches> {
        let mut branches = LoopBranches { conditions: vec![], comparisons: vec![] };
        let walk = SplitWalk { gpu, variable: body.body.args[0], inner: body.body.defined(), definitions };
        for op in &body.body.ops {
            if let Kind::If(branch) = &op.kind {
                branches.conditions.push(branch.condition);
                walk.condition(branch.condition, &mut branches.comparisons)?;
            }
        }
        (!branches.conditions.is_empty() && walk.small(body.low)).then_some(branches)
    }
}

struct SplitWalk<'a, 'g> {
    gpu: &'a Gpu<'g>,
    variable: Value,
    /// What the loop defines.
    inner: HashSet<Value>,
    definitions: &'a HashMap<Value, &'a Op>,
}

impl SplitWalk<'_, '_> {
    fn condition(&self, value: Value, found: &mut Vec<SplitCondition>) -> Option<()> {
        let Kind::Scalar(Scalar { op, args, .. }) = &self.definitions.get(&value)?.kind else { return None };
        if op.algebra == ArithKind::Or {
            return args.iter().try_for_each(|&arg| self.condition(arg, found));
        }
        let ArithKind::Compare(comparison) = op.algebra else { return None };
        let (less, or_equal) = match comparison {
            BinaryOp::Lt => (true, false),
            BinaryOp::Le => (true, true),
            BinaryOp::Gt => (false, false),
            BinaryOp::Ge => (false, true),
            _ => return None,
        };
        let [left, right] = args[..] else { return None };
        // The variable less what it is compared with, or the other way around.
        let (own, rest, rises) = if varies(left, self.variable, self.definitions) {
            (left, right, !less)
        } else {
            (right, left, less)
        };
        let mut terms = vec![(false, rest)];
        self.sum(own, &mut terms)?;
        let plain = |&(_, term): &(bool, Value)| self.small(term) && self.is_fixed(term);
        let fits = terms.len() <= MAX_TERMS && terms.iter().all(plain);
        found.push(SplitCondition { rises, terms, strict: !or_equal });
        (fits && found.len() <= MAX_COMPARISONS).then_some(())
    }

    /// The variable and what is added to it, in numbers that do not wrap.
    fn sum(&self, value: Value, terms: &mut Vec<(bool, Value)>) -> Option<()> {
        if value == self.variable {
            return Some(());
        }
        let (func, kind) = (self.gpu.func, &self.definitions.get(&value)?.kind);
        let to = func.ty(value).dtype;
        if let Kind::Cast(Cast { value: inner }) = kind {
            let from = func.ty(*inner).dtype;
            let keeps = from.is_signed() && to.is_signed() && to.bytes() >= from.bytes();
            return if keeps { self.sum(*inner, terms) } else { None };
        }
        let Kind::Scalar(Scalar { op, args, .. }) = kind else { return None };
        let [left, right] = args[..] else { return None };
        let in_left = varies(left, self.variable, self.definitions);
        let (own, other) = if in_left { (left, right) } else { (right, left) };
        let adds = op.algebra == ArithKind::Add || op.algebra == ArithKind::Sub && in_left;
        if !adds || to.bytes() < 8 {
            return None;
        }
        terms.push((op.algebra == ArithKind::Add, other));
        self.sum(own, terms)
    }

    /// Whether a scalar is the same in all turns, and can be computed before them: nothing in it is carried or read.
    fn is_fixed(&self, value: Value) -> bool {
        let (mut seen, mut todo) = (HashSet::new(), vec![value]);
        while let Some(value) = todo.pop() {
            if !self.inner.contains(&value) || !seen.insert(value) {
                continue;
            }
            let Some(op) = self.definitions.get(&value) else { return false };
            let operation = op.kind.operation();
            if operation.effect() != Effect::Pure || !operation.blocks().is_empty() {
                return false;
            }
            todo.extend(operation.operands());
        }
        true
    }

    fn small(&self, value: Value) -> bool {
        let (low, high) = self.gpu.info(value).range;
        self.gpu.func.ty(value).dtype.is_signed() && low >= -LIMIT && high <= LIMIT
    }
}

impl Gpu<'_> {
    /// Finds the turns in which none of the branches is taken.
    pub(super) fn quiet_turns(
        &mut self,
        b: &mut Builder,
        branches: &LoopBranches,
        turns: IterationSpace,
        definitions: &HashMap<Value, &Op>,
    ) -> MainLoop {
        let values = self.values.clone();
        let mut quiet = MainLoop { first: None, end: None };
        let low = wide(b, turns.low);
        let step = wide(b, turns.step);
        for SplitCondition { rises, terms, strict } in &branches.comparisons {
            // The first number for which it holds, or does not hold any more.
            let mut number = b.int(Ty::I64, i64::from(*rises == *strict));
            for (plus, term) in terms {
                let term = self.evaluated(b, *term, definitions);
                let term = wide(b, term);
                number = if *plus { b.sub(number, term) } else { b.add(number, term) };
            }
            let distance = b.sub(number, low);
            let one = b.int(Ty::I64, 1);
            let zero = b.int(Ty::I64, 0);
            let distance = b.op("llvm.intr.smax", &[distance, zero], Ty::I64);
            let up = b.sub(step, one);
            let distance = b.add(distance, up);
            let turn = b.udiv(distance, step);
            let (place, joined) = if *rises {
                (&mut quiet.end, "llvm.intr.smin")
            } else {
                (&mut quiet.first, "llvm.intr.smax")
            };
            *place = Some(place.map_or(turn, |other| b.op(joined, &[other, turn], Ty::I64)));
        }
        self.values = values;
        quiet
    }
}

/// A signed number in 64 bits.
fn wide(b: &mut Builder, value: Val) -> Val {
    if value.ty.elem == Elem::I64 { value } else { b.sext(value, Elem::I64) }
}
