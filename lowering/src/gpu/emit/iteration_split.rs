//! Splits the iterations of a loop into prologue, main loop and epilogue. The main loop takes none of the branches,
//! so it has none, and the code before and after a branch is scheduled together.
//!
//! A branch may depend on several comparisons of the loop variable with invariants, any of which takes it. The main
//! loop is between the last iteration where one of the upper bounds holds and the first where one of the lower bounds
//! does.

use std::collections::{HashMap, HashSet};

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Cast, Effect, For, Kind, Scalar};

use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::warp_specialize::depends_on;
use crate::gpu::emit::{Builder, Gpu};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

/// Larger constants are left alone, and so are more terms: no sum of them overflows.
const MAX_MAGNITUDE: i128 = 1 << 60;
const MAX_TERMS: usize = 4;
/// The most comparisons of a loop's branches.
const MAX_COMPARISONS: usize = 16;

/// A comparison that holds from some bound on, or up to one.
struct SplitCondition {
    /// Whether it holds for large values of the variable.
    is_upper_side: bool,
    /// The variable plus these terms, with their signs, is compared with 0 or its neighbor.
    terms: Vec<(bool, Value)>,
    strict: bool,
}

/// The conditions of the branches of a loop, and the comparisons in them.
pub(super) struct LoopBranches {
    pub conditions: Vec<Value>,
    comparisons: Vec<SplitCondition>,
}

/// The iterations in which no branch is taken: from `first`, 0 where there is none, to the one before `end`.
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
        (!branches.conditions.is_empty() && walk.is_small(body.low)).then_some(branches)
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
        if op.arith == ArithKind::Or {
            return args.iter().try_for_each(|&arg| self.condition(arg, found));
        }
        let ArithKind::Compare(comparison) = op.arith else { return None };
        let (is_less, or_equal) = match comparison {
            BinaryOp::Lt => (true, false),
            BinaryOp::Le => (true, true),
            BinaryOp::Gt => (false, false),
            BinaryOp::Ge => (false, true),
            _ => return None,
        };
        let [lhs, rhs] = args[..] else { return None };
        // The variable minus the other operand, or the other way around.
        let (own, rest, is_upper_side) = if depends_on(lhs, self.variable, self.definitions) {
            (lhs, rhs, !is_less)
        } else {
            (rhs, lhs, is_less)
        };
        let mut terms = vec![(false, rest)];
        self.linear_terms(own, &mut terms)?;
        let is_usable = |&(_, term): &(bool, Value)| self.is_small(term) && self.is_fixed(term);
        let fits = terms.len() <= MAX_TERMS && terms.iter().all(is_usable);
        found.push(SplitCondition { is_upper_side, terms, strict: !or_equal });
        (fits && found.len() <= MAX_COMPARISONS).then_some(())
    }

    /// The terms that are added to the variable, in integers that do not wrap.
    fn linear_terms(&self, value: Value, terms: &mut Vec<(bool, Value)>) -> Option<()> {
        if value == self.variable {
            return Some(());
        }
        let (func, kind) = (self.gpu.func, &self.definitions.get(&value)?.kind);
        let to = func.ty(value).dtype;
        if let Kind::Cast(Cast { value: inner }) = kind {
            let from = func.ty(*inner).dtype;
            let is_widening = from.is_signed() && to.is_signed() && to.bytes() >= from.bytes();
            return if is_widening { self.linear_terms(*inner, terms) } else { None };
        }
        let Kind::Scalar(Scalar { op, args, .. }) = kind else { return None };
        let [lhs, rhs] = args[..] else { return None };
        let in_lhs = depends_on(lhs, self.variable, self.definitions);
        let (own, other) = if in_lhs { (lhs, rhs) } else { (rhs, lhs) };
        let is_linear = op.arith == ArithKind::Add || op.arith == ArithKind::Sub && in_lhs;
        if !is_linear || to.bytes() < 8 {
            return None;
        }
        terms.push((op.arith == ArithKind::Add, other));
        self.linear_terms(own, terms)
    }

    /// Whether a scalar is loop-invariant and can be computed before the loop: it depends on no carried value and no
    /// memory.
    fn is_fixed(&self, value: Value) -> bool {
        let (mut visited, mut todo) = (HashSet::new(), vec![value]);
        while let Some(value) = todo.pop() {
            if !self.inner.contains(&value) || !visited.insert(value) {
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

    fn is_small(&self, value: Value) -> bool {
        let (low, high) = self.gpu.info(value).range;
        self.gpu.func.ty(value).dtype.is_signed() && low >= -MAX_MAGNITUDE && high <= MAX_MAGNITUDE
    }
}

impl Gpu<'_> {
    /// Computes the iterations of the main loop.
    pub(super) fn find_main_loop(
        &mut self,
        b: &mut Builder,
        branches: &LoopBranches,
        iterations: IterationSpace,
        definitions: &HashMap<Value, &Op>,
    ) -> MainLoop {
        let values = self.values.clone();
        let mut main_loop = MainLoop { first: None, end: None };
        let low = to_i64(b, iterations.lower);
        let step = to_i64(b, iterations.step);
        for SplitCondition { is_upper_side, terms, strict } in &branches.comparisons {
            // The first value for which it holds, or no longer holds.
            let mut bound = b.int(Ty::I64, i64::from(*is_upper_side == *strict));
            for (plus, term) in terms {
                let term = self.evaluate(b, *term, definitions);
                let term = to_i64(b, term);
                bound = if *plus { b.sub(bound, term) } else { b.add(bound, term) };
            }
            let distance = b.sub(bound, low);
            let one = b.int(Ty::I64, 1);
            let zero = b.int(Ty::I64, 0);
            let distance = b.op("llvm.intr.smax", &[distance, zero], Ty::I64);
            let up = b.sub(step, one);
            let distance = b.add(distance, up);
            let iteration = b.udiv(distance, step);
            let (slot, joined) = if *is_upper_side {
                (&mut main_loop.end, "llvm.intr.smin")
            } else {
                (&mut main_loop.first, "llvm.intr.smax")
            };
            *slot = Some(slot.map_or(iteration, |other| b.op(joined, &[other, iteration], Ty::I64)));
        }
        self.values = values;
        main_loop
    }
}

/// A signed integer in 64 bits.
fn to_i64(b: &mut Builder, value: Val) -> Val {
    if value.ty.elem == Elem::I64 { value } else { b.sext(value, Elem::I64) }
}
