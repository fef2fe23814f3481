//! `while` loops that count up to a bound, as `for` loops.
//!
//! `while i < n { ..; i += STEP }` becomes `for i in (i..n).step_by(STEP)`, which a software pipeline can look ahead in and whose
//! accesses have bounds. Law: both take the same iterations, and leave the same values, unless `i` wraps at the end of its type.
//! A guard shows that it does not, `n + STEP - 1 <= MAX`, and another one that a step is at least 1. The condition may be `<`
//! or `<=`, written either way; bound and step are loop-invariant.

use std::collections::HashSet;

use super::invariant::InvariantCopier;
use super::strength_reduce::{increments, strength_reduce};
use crate::analysis::inequality::BoundSearch;
use crate::analysis::polynomial::Polynomials;
use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::{self, Guard};
use crate::ir::polynomial::Polynomial;
use crate::ir::{Block, Func, Op, Value, substitute_in};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{For, Kind, LoopHints, While};
use crate::support::dtype::DType;

/// Rewrites loops that count, and returns the guards under which the function computes what it computed.
pub fn counted_loops(func: &mut Func) -> Vec<Guard> {
    let mut guards: Vec<Guard> = vec![];
    // The bound of an inner loop may follow from the variable of an outer one.
    while let Some(found) = rewrite_outermost(func) {
        guards.extend(found);
        strength_reduce(func);
    }
    guard::strongest(guards)
}

/// Rewrites the outermost loops that count; `None` if there are none.
fn rewrite_outermost(func: &mut Func) -> Option<Vec<Guard>> {
    let mut has_while = false;
    func.body.walk(&mut |op| has_while |= matches!(op.kind, Kind::While(_)));
    if !has_while {
        return None;
    }
    let (polynomials, used) = (Polynomials::analyze(func), func.body.used());
    let mut body = std::mem::take(&mut func.body);
    let mut rewriter = CountedLoops { func, polynomials, used, guards: vec![], found: false };
    rewriter.block(&mut body);
    let CountedLoops { func, guards, found, .. } = rewriter;
    func.body = body;
    found.then_some(guards)
}

struct CountedLoops<'f> {
    func: &'f mut Func,
    polynomials: Polynomials,
    /// The values that something uses.
    used: HashSet<Value>,
    guards: Vec<Guard>,
    found: bool,
}

/// A counter among the values that a loop carries, and its bound.
struct CounterBound {
    /// The position of the counter.
    counter: usize,
    high: Value,
    closed: bool,
}

impl CountedLoops<'_> {
    fn block(&mut self, block: &mut Block) {
        for mut op in std::mem::take(&mut block.ops) {
            if let Kind::While(looped) = &op.kind
                && let Some((mut hoisted, range)) = self.as_range(looped)
            {
                self.found = true;
                block.ops.append(&mut hoisted);
                op.kind = range.into();
                self.drop_unused_counter(&mut op);
            } else {
                op.kind.operation_mut().blocks_mut().into_iter().for_each(|nested| self.block(nested));
            }
            block.ops.push(op);
        }
    }

    /// Returns a counting loop as a `for`, behind the operations that compute its ends.
    fn as_range(&mut self, looped: &While) -> Option<(Vec<Op>, For)> {
        let bound = bound(&looped.test)?;
        let (arg, end) = (looped.body.args[bound.counter], looped.body.yields[bound.counter]);
        let dtype = self.func.ty(arg).dtype;
        if !matches!(dtype, DType::I32 | DType::I64) {
            return None;
        }
        let [added] = increments(&looped.body, arg, end, 1)?[..] else { return None };
        if added.op != BinaryOp::Add {
            return None;
        }
        let guards = self.guards_of(&bound, added.value, dtype)?;
        let mut hoisted = looped.test.ops.clone();
        hoisted.retain(|op| op.results != looped.test.yields);
        let mut copier = InvariantCopier::new(self.func, &looped.body);
        let step = copier.copy(added.value)?;
        hoisted.append(&mut copier.built);
        let mut body = looped.body.clone();
        let variable = self.func.value(self.func.ty(arg).clone());
        substitute_in(&mut body, &|value| if value == arg { variable } else { value });
        body.args.insert(0, variable);
        self.guards.extend(guards);
        let CounterBound { counter, high, closed } = bound;
        let (low, inits) = (looped.inits[counter], looped.inits.clone());
        Some((hoisted, For { low, high, step, closed, inits, body, hints: LoopHints::default() }))
    }

    /// The guards under which a counter reaches its bound without wrapping.
    fn guards_of(&self, bound: &CounterBound, step: Value, dtype: DType) -> Option<Vec<Guard>> {
        let step = self.polynomials.get(step);
        let less_one = step.sub(&Polynomial::constant(1));
        let mut search = BoundSearch::unmasked(self.func, &self.polynomials);
        search.not_negative(&less_one)?;
        let high = self.polynomials.get(bound.high);
        // A comparison is exact, the end of a range is computed in its type.
        if high.as_atom().is_none() && high.as_constant().is_none() {
            search.not_negative(&high.sub(&Polynomial::constant(dtype.range().0)))?;
        }
        let last = search.upper(high.add(if bound.closed { &step } else { &less_one }))?;
        search.at_most(&last, &Polynomial::constant(dtype.range().1))?;
        Some(search.guards)
    }

    /// Drops carried values that nothing reads, as a counter is once the loop's variable has replaced it.
    fn drop_unused_counter(&self, op: &mut Op) {
        let Kind::For(range) = &mut op.kind else { return };
        for i in (0..op.results.len()).rev() {
            if !self.used.contains(&op.results[i]) && range.body.uses(range.body.args[i + 1]) == 0 {
                op.results.remove(i);
                range.drop_carried(i);
            }
        }
    }
}

/// Returns the counter that a condition compares with a bound, where nothing else in the condition depends on the iteration.
fn bound(test: &Block) -> Option<CounterBound> {
    let (compared, others) = test.ops.split_last()?;
    let Kind::Scalar(Scalar { op, args, .. }) = &compared.kind else { return None };
    let &[a, b] = &args[..] else { return None };
    let (counter, high, closed) = match op.arith {
        ArithKind::Compare(BinaryOp::Lt) => (a, b, false),
        ArithKind::Compare(BinaryOp::Le) => (a, b, true),
        ArithKind::Compare(BinaryOp::Gt) => (b, a, false),
        ArithKind::Compare(BinaryOp::Ge) => (b, a, true),
        _ => return None,
    };
    let is_invariant = |op: &Op| {
        let operation = op.kind.operation();
        operation.is_speculatable() && !operation.operands().iter().any(|operand| test.args.contains(operand))
    };
    let is_last = compared.results == test.yields && !test.args.contains(&high);
    let position = test.args.iter().position(|&arg| arg == counter)?;
    (is_last && others.iter().all(is_invariant)).then_some(CounterBound { counter: position, high, closed })
}
