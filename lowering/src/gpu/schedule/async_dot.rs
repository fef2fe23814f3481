//! Asynchronous dots: in a loop whose only dot adds to a carried accumulator, the dot of an iteration runs while that of the next one
//! is issued.
//!
//! In any other loop whose threads copy operands the copies are issued behind the first dot, and before the wait for it.
//!
//! The accumulator is in use from the first iteration to the last. An iteration's buffers are released when the next dot was issued
//! and all but that one have completed.
//!
//! Legal where
//! 1. the loop has one dot, which is waited for at once;
//! 2. the dot adds to a value that the loop carries, which has no other use;
//! 3. its result is the next value and has no other use;
//! 4. that value begins at 0: any other one would have to be in its registers before the first dot;
//! 5. no thread writes registers that the dot reads: operand A is in shared memory or is invariant words;
//! 6. the dot reads rings alone, and the stage of an iteration is not filled again before the next one has issued its dot.

use super::Schedule;
use super::loops::{
    Definitions, DotGroup, LoopOp, RingPipe, count_dots, definitions_around_loops, is_above, kind_of,
    replace_loops,
};
use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::{AfterIssue, WgmmaOperandA};
use tile_ir::ops::{DotWait, Kind, Loop, Poison, Wgmma, is_zero};
use tile_ir::support::dtype::DType;

/// Rewrites each loop with such a dot.
pub fn async_dot(schedule: &mut Schedule) {
    let definitions = definitions_around_loops(schedule);
    replace_loops(schedule, &mut |schedule, body| match AccumulatorLoop::new(schedule, body, &definitions) {
        Some(found) => Some(found.rewrite(schedule)),
        None => copies_beside_dot(schedule, body),
    });
}

/// A loop that waits for its dots: the copies that an iteration issues before its first dot are issued while that runs.
fn copies_beside_dot(schedule: &mut Schedule, body: LoopOp) -> Option<Vec<Op>> {
    let ops = body.ops();
    let copies = ops.iter().position(|op| matches!(op.kind, Kind::AsyncGroup(_)) && op.results.is_empty())?;
    let dot = ops.iter().position(|op| matches!(op.kind, Kind::Wgmma(_))).filter(|&dot| dot > copies)?;
    let Kind::Wgmma(own) = &ops[dot].kind else { return None };
    if own.then != AfterIssue::Wait {
        return None;
    }
    let in_flight = schedule.copy_of(ops[dot].results[0]);
    let issue = Wgmma { then: AfterIssue::Continue, ..own.clone() };
    let wait = DotWait { values: vec![in_flight], pending: 0, issued_if: None };
    let Op { results, loc, .. } = ops[dot].clone();
    let mut rewritten = ops.to_vec();
    rewritten[dot] = Op { kind: issue.into(), results: vec![in_flight], loc };
    rewritten.insert(dot + 1, Op { kind: wait.into(), results, loc });
    let group = rewritten.remove(copies);
    rewritten.insert(dot, group);
    let block = Block { ops: rewritten, ..body.body.body.clone() };
    let pipelined = Loop { body: block, ..body.body.clone() };
    Some(vec![Op { kind: pipelined.into(), ..body.op.clone() }])
}

/// A loop with such a dot.
struct AccumulatorLoop<'a> {
    body: LoopOp<'a>,
    group: DotGroup,
    /// The place of the accumulator among the carried values.
    acc_index: usize,
    /// The rings of which the dot releases a stage.
    rings: Vec<RingPipe>,
    /// Whether the loop is known to run.
    runs: bool,
}

impl<'a> AccumulatorLoop<'a> {
    fn new(schedule: &Schedule, body: LoopOp<'a>, definitions: &Definitions) -> Option<AccumulatorLoop<'a>> {
        let (ops, block) = (body.ops(), &body.body.body);
        let [group] = <[DotGroup; 1]>::try_from(DotGroup::all(ops)).ok()?;
        let (dot, result) = (group.wgmma(ops), ops[group.dot].results[0]);
        let acc_index = block.yields.iter().position(|&yielded| yielded == result)?;
        let acc = body.carried()[acc_index];
        let is_only_use = dot.acc == Some(acc) && block.uses(acc) == 1 && block.uses(result) == 1;
        let waits = dot.then == AfterIssue::Wait && dot.accumulates.is_none() && count_dots(block) == 1;
        let defined = |value: Value| kind_of(definitions, value);
        let begins_at_zero = is_zero(defined, body.body.inits[acc_index]);
        if !is_only_use || !waits || !begins_at_zero || !is_plain(schedule, dot) {
            return None;
        }
        let pipes = group.pipes(schedule, ops);
        let rings = RingPipe::all(schedule, body.body).into_iter().filter(|ring| pipes.contains(&ring.arg));
        let rings: Vec<RingPipe> = rings.collect();
        let is_ring = |pipe: Value| rings.iter().any(|ring| ring.arg == pipe);
        let releases_rings = ops[group.releases()]
            .iter()
            .all(|op| matches!(&op.kind, Kind::MbarArrive(arrive) if is_ring(arrive.barrier.pipe)));
        let fits = releases_rings && !rings.is_empty() && rings.iter().all(|ring| ring.lasts);
        let counted = matches!(defined(body.body.end), Some(Kind::TripCount(count)) if count.runs);
        let runs = counted && is_zero(defined, body.body.first);
        fits.then_some(AccumulatorLoop { body, group, acc_index, rings, runs })
    }

    fn rewrite(&self, schedule: &mut Schedule) -> Vec<Op> {
        let LoopOp { op, body } = self.body;
        let mut ops = vec![];
        let acc = body.inits[self.acc_index];
        let undefined = schedule.copy_of(acc);
        ops.push(Op { kind: Poison.into(), results: vec![undefined], loc: op.loc });
        let mut inits = body.inits.clone();
        inits[self.acc_index] = undefined;
        let starts: Vec<Value> = self.rings.iter().map(|ring| body.inits[ring.index]).collect();
        let block = self.iteration(schedule);
        let mut results = op.results.clone();
        let in_flight = schedule.copy_of(results[self.acc_index]);
        results[self.acc_index] = in_flight;
        let previous: Vec<Value> = self.rings.iter().map(|ring| schedule.copy_of(ring.arg)).collect();
        let overlapped = Loop {
            inits: self.with_previous(&inits, &starts),
            body: block,
            overlapped: true,
            ..body.clone()
        };
        let all = self.with_previous(&results, &previous);
        ops.push(Op { kind: overlapped.into(), results: all, loc: op.loc });
        let ran = (!self.runs).then(|| is_above(schedule, &mut ops, op, [body.end, body.first]));
        let wait = DotWait { values: vec![in_flight], pending: 0, issued_if: ran };
        ops.push(Op { kind: wait.into(), results: vec![op.results[self.acc_index]], loc: op.loc });
        self.release(&mut ops, &previous, ran);
        ops
    }

    /// The body: other operations, the dot, and the release of what the dot of the iteration before read.
    fn iteration(&self, schedule: &mut Schedule) -> Block {
        let LoopOp { op, body } = self.body;
        let (own, args) = (self.body.ops(), &body.body.args);
        let is_next = |index: usize| self.rings.iter().any(|ring| ring.next == index);
        let others = own.iter().enumerate().filter(|(i, _)| !self.group.range().contains(i) && !is_next(*i));
        let others = others.map(|(_, op)| op.clone());
        // Copies are issued while the dot runs.
        let (copies, mut ops): (Vec<Op>, Vec<Op>) =
            others.partition(|op| matches!(op.kind, Kind::AsyncGroup(_)));
        let accumulates = is_above(schedule, &mut ops, op, [args[0], body.first]);
        ops.extend_from_slice(&own[self.group.waits()]);
        let mut issue = own[self.group.dot].clone();
        if let Kind::Wgmma(dot) = &mut issue.kind {
            (dot.accumulates, dot.then) = (Some(accumulates), AfterIssue::Continue);
        }
        let result = issue.results[0];
        let in_flight = schedule.copy_of(result);
        let loc = issue.loc;
        ops.push(issue);
        ops.extend(copies);
        let wait = DotWait { values: vec![result], pending: 1, issued_if: None };
        ops.push(Op { kind: wait.into(), results: vec![in_flight], loc });
        let previous: Vec<Value> = self.rings.iter().map(|ring| schedule.copy_of(ring.arg)).collect();
        self.release(&mut ops, &previous, Some(accumulates));
        ops.extend(self.rings.iter().map(|ring| own[ring.next].clone()));
        let current: Vec<Value> = self.rings.iter().map(|ring| ring.arg).collect();
        let mut yields = body.body.yields.clone();
        yields[self.acc_index] = in_flight;
        let carried = self.with_previous(self.body.carried(), &previous);
        Block { args: [&args[..1], &carried].concat(), ops, yields: self.with_previous(&yields, &current) }
    }

    /// The releases behind the dot, of the stages of these states.
    fn release(&self, ops: &mut Vec<Op>, pipes: &[Value], only_if: Option<Value>) {
        for op in &self.body.ops()[self.group.releases()] {
            let mut op = op.clone();
            if let Kind::MbarArrive(arrive) = &mut op.kind {
                let ring = self.rings.iter().position(|ring| ring.arg == arrive.barrier.pipe);
                arrive.barrier.pipe = pipes[ring.expect("the dot releases stages of rings")];
                arrive.only_if = only_if;
            }
            ops.push(op);
        }
    }

    /// A list of carried values with the earlier states of the rings in front of the first state.
    fn with_previous(&self, list: &[Value], previous: &[Value]) -> Vec<Value> {
        let (before, behind) = list.split_at(self.rings[0].index);
        [before, previous, behind].concat()
    }
}

/// Whether the instructions find both operands by themselves, or as words that stay: threads write fragments of an operand A of `f32`
/// that is MN-major.
fn is_plain(schedule: &Schedule, dot: &Wgmma) -> bool {
    match &dot.a {
        WgmmaOperandA::Regs(_) => false,
        WgmmaOperandA::Words(_) => true,
        WgmmaOperandA::Smem(staged) => !staged.transposed || schedule.ty(staged.memory()).dtype != DType::F32,
    }
}
