//! Splits the iterations of an overlapped loop into prologue, main loop and epilogue. The main loop takes none of the loop's branches,
//! so it has none, and the code before and after a branch is scheduled together.
//!
//! A branch may depend on several comparisons of the loop variable with invariants, any of which takes it. The main loop is between
//! the last iteration where one of the upper bounds holds and the first where one of the lower bounds does.
//!
//! Legal where
//! 1. the loop overlaps its iterations, and has a variable that begins and steps outside of it;
//! 2. each branch's condition is such a comparison, or an `or` of them;
//! 3. what is compared is the loop variable plus or minus invariants, computed in signed integers that do not wrap;
//! 4. the invariants can be computed before the loop: from no carried value and no memory;
//! 5. all of them are small enough that no sum of them overflows 64 bits.

use std::collections::{HashMap, HashSet};

use super::Schedule;
use super::copy::Copies;
use super::loops::{Definitions, LoopOp, definitions_around_loops, kind_of, replace_loops};
use tile_ir::ir::{Block, Op, Type, Value, substitute_in};
use tile_ir::ops::scalar::{ArithKind, Scalar};
use tile_ir::ops::{Cast, Effect, Induction, IterationBound, Kind, Loop};
use tile_ir::support::dtype::DType;
use tile_ir::support::operator::BinaryOp;

/// Larger constants are left alone, and so are more terms: no sum of them overflows.
const MAX_MAGNITUDE: i128 = 1 << 60;
const MAX_TERMS: usize = 4;
/// The most comparisons of a loop's branches.
const MAX_COMPARISONS: usize = 16;

/// Splits each overlapped loop with branches on its variable.
pub fn iteration_split(schedule: &mut Schedule) {
    let definitions = definitions_around_loops(schedule);
    replace_loops(schedule, &mut |schedule, body| {
        let branches = LoopBranches::new(schedule, body, &definitions)?;
        Some(Split { schedule, body }.run(&branches))
    });
}

/// A comparison that holds from some bound on, or up to one.
struct SplitCondition {
    /// Whether it holds for large values of the variable.
    is_upper_side: bool,
    /// The variable plus these terms, each with whether it is added, is compared with 0.
    terms: Vec<(bool, Value)>,
    strict: bool,
}

/// The conditions of the branches of a loop, and the comparisons in them.
struct LoopBranches {
    variable: Induction,
    conditions: HashSet<Value>,
    comparisons: Vec<SplitCondition>,
}

impl LoopBranches {
    /// `None` where there are none, or some that are not of this kind.
    fn new(schedule: &Schedule, body: LoopOp, definitions: &Definitions) -> Option<LoopBranches> {
        let index = body.body.body.args[0];
        let (value, variable) = body.ops().iter().find_map(|op| {
            let Kind::Induction(variable) = &op.kind else { return None };
            (variable.index == index).then_some((op.results[0], *variable))
        })?;
        let mut branches = LoopBranches { variable, conditions: HashSet::new(), comparisons: vec![] };
        let walk = SplitWalk { schedule, variable: value, inner: body.body.body.defined(), definitions };
        for op in body.ops() {
            if let Kind::If(branch) = &op.kind {
                branches.conditions.insert(branch.condition);
                walk.condition(branch.condition, &mut branches.comparisons)?;
            }
        }
        let is_split = body.body.overlapped && !branches.conditions.is_empty();
        let is_outside = !walk.inner.contains(&variable.low) && !walk.inner.contains(&variable.step);
        (is_split && is_outside && walk.is_small(variable.low)).then_some(branches)
    }
}

struct SplitWalk<'a> {
    schedule: &'a Schedule,
    variable: Value,
    /// What the loop defines.
    inner: HashSet<Value>,
    definitions: &'a Definitions,
}

impl SplitWalk<'_> {
    fn condition(&self, value: Value, found: &mut Vec<SplitCondition>) -> Option<()> {
        let Kind::Scalar(Scalar { op, args, .. }) = kind_of(self.definitions, value)? else { return None };
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
        let (own, rest, is_upper_side) =
            if self.varies(lhs) { (lhs, rhs, !is_less) } else { (rhs, lhs, is_less) };
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
        let kind = kind_of(self.definitions, value)?;
        let to = self.schedule.ty(value).dtype;
        if let Kind::Cast(Cast { value: inner, .. }) = kind {
            let from = self.schedule.ty(*inner).dtype;
            let is_widening = from.is_signed() && to.is_signed() && to.bytes() >= from.bytes();
            return if is_widening { self.linear_terms(*inner, terms) } else { None };
        }
        let Kind::Scalar(Scalar { op, args, .. }) = kind else { return None };
        let [lhs, rhs] = args[..] else { return None };
        let in_lhs = self.varies(lhs);
        let (own, other) = if in_lhs { (lhs, rhs) } else { (rhs, lhs) };
        let is_linear = op.arith == ArithKind::Add || op.arith == ArithKind::Sub && in_lhs;
        if !is_linear || to.bytes() < 8 {
            return None;
        }
        terms.push((op.arith == ArithKind::Add, other));
        self.linear_terms(own, terms)
    }

    /// Whether a value is computed from the loop variable.
    fn varies(&self, value: Value) -> bool {
        let (mut visited, mut todo) = (HashSet::new(), vec![value]);
        while let Some(value) = todo.pop() {
            if value == self.variable {
                return true;
            }
            if self.inner.contains(&value)
                && visited.insert(value)
                && let Some(op) = self.definitions.get(&value)
            {
                let operation = op.kind.operation();
                todo.extend(operation.operands());
                todo.extend(operation.blocks().into_iter().flat_map(|block| block.yields.iter().copied()));
            }
        }
        false
    }

    /// Whether a scalar is loop-invariant and can be computed before the loop: it depends on no carried value and no memory.
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
        let (low, high) = self.schedule.info(value).range;
        self.schedule.ty(value).dtype.is_signed() && low >= -MAX_MAGNITUDE && high <= MAX_MAGNITUDE
    }
}

/// The iterations in which no branch is taken: from `first`, where there is one, to the one before `end`.
#[derive(Default)]
struct MainLoop {
    first: Option<Value>,
    end: Option<Value>,
}

/// The splitting of a loop.
struct Split<'s, 'a> {
    schedule: &'s mut Schedule,
    body: LoopOp<'a>,
}

impl Split<'_, '_> {
    fn run(&mut self, branches: &LoopBranches) -> Vec<Op> {
        let LoopOp { op, body } = self.body;
        let mut ops = vec![];
        let main = self.find_main_loop(&mut ops, branches);
        let start = main.first.map_or(body.first, |first| self.between(&mut ops, body.first, first));
        let stop = main.end.map_or(body.end, |end| self.between(&mut ops, start, end));
        let quiet = without_branches(&body.body, &branches.conditions);
        let mut loops = vec![];
        if main.first.is_some() {
            loops.push(([body.first, start], &body.body));
        }
        loops.push(([start, stop], &quiet));
        if main.end.is_some() {
            loops.push(([stop, body.end], &body.body));
        }
        let count = loops.len();
        let mut inits = body.inits.clone();
        for (number, ([first, end], block)) in loops.into_iter().enumerate() {
            let block = Copies::default().block(self.schedule, block);
            let own = Loop { first, end, inits, body: block, ..*body };
            // What is carried holds for each iteration, and so does what is known of it.
            let carried = self.body.carried();
            let fresh = carried.iter().map(|&arg| self.schedule.copy_of(arg)).collect();
            inits = if number + 1 == count { op.results.clone() } else { fresh };
            ops.push(Op { kind: own.into(), results: inits.clone(), loc: op.loc });
        }
        ops
    }

    /// Computes the iterations of the main loop.
    fn find_main_loop(&mut self, ops: &mut Vec<Op>, branches: &LoopBranches) -> MainLoop {
        let mut main = MainLoop::default();
        let mut copies = Copies::default();
        let Induction { low, step, .. } = branches.variable;
        for SplitCondition { is_upper_side, terms, strict } in &branches.comparisons {
            for &(_, term) in terms {
                self.evaluate(ops, &mut copies, term);
            }
            // The first iteration for which it holds, or no longer holds.
            let terms = terms.iter().map(|&(plus, term)| (plus, copies.get(term))).collect();
            let bound = IterationBound { low, step, terms, strict: is_upper_side == strict };
            let loc = self.body.op.loc;
            let iteration = self.schedule.one(ops, loc, bound, Type::scalar(DType::I64));
            let slot = if *is_upper_side { &mut main.end } else { &mut main.first };
            let join = if *is_upper_side { "minimum" } else { "maximum" };
            *slot = Some(slot.map_or(iteration, |other| self.index(ops, join, [other, iteration])));
        }
        main
    }

    /// An iteration, or the nearest one of those from `least` to the end of the loop.
    fn between(&mut self, ops: &mut Vec<Op>, least: Value, iteration: Value) -> Value {
        let iteration = self.index(ops, "minimum", [iteration, self.body.body.end]);
        self.index(ops, "maximum", [iteration, least])
    }

    fn index(&mut self, ops: &mut Vec<Op>, row: &str, of: [Value; 2]) -> Value {
        let loc = self.body.op.loc;
        self.schedule.one(ops, loc, Scalar::named(row, of.to_vec()), Type::scalar(DType::I64))
    }

    /// Computes an invariant of the loop before it.
    fn evaluate(&mut self, ops: &mut Vec<Op>, copies: &mut Copies, value: Value) {
        let is_own = |op: &&Op| op.results.contains(&value);
        if copies.contains(value) {
            return;
        }
        let Some(op) = self.body.ops().iter().find(is_own) else { return };
        for operand in op.kind.operation().operands() {
            self.evaluate(ops, copies, operand);
        }
        ops.push(copies.op(self.schedule, op));
    }
}

/// The block with what the branches on these conditions do where they do not hold.
fn without_branches(block: &Block, conditions: &HashSet<Value>) -> Block {
    let mut block = block.clone();
    let mut known = HashMap::new();
    inline_otherwise(&mut block, conditions, &mut known);
    // A branch may give what another one gives.
    let resolve = |mut value: Value| {
        while let Some(&next) = known.get(&value) {
            value = next;
        }
        value
    };
    substitute_in(&mut block, &resolve);
    block
}

fn inline_otherwise(block: &mut Block, conditions: &HashSet<Value>, known: &mut HashMap<Value, Value>) {
    for mut op in std::mem::take(&mut block.ops) {
        for nested in op.kind.operation_mut().blocks_mut() {
            inline_otherwise(nested, conditions, known);
        }
        match op.kind {
            Kind::If(branch) if conditions.contains(&branch.condition) => {
                known.extend(op.results.iter().copied().zip(branch.otherwise.yields));
                block.ops.extend(branch.otherwise.ops);
            }
            kind => block.ops.push(Op { kind, ..op }),
        }
    }
}
