//! Loops of two products, of which the second takes what is made of the first: attention, say.
//!
//! The second product of a turn is done in the turn after it, so that the first one of that turn is under way at the same
//! time, and what is made of the first while the second one runs. A turn has two parts: what the carried accumulator goes
//! into is the second one's, anything else the first one's. The first part of the first turn stands before the loop, the
//! second part of the last turn behind it. A large sum is changed for the second product at the end of the turn before, so
//! that the second product follows the first one at once.

use std::collections::HashSet;

use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::dot::wgmma::AfterIssue;
use crate::gpu::emit::iteration_split::{LoopBranches, MainLoop};
use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::warp_specialize::{MmaOrder, PipelineState};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Registers, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Func, Op, Value};
use crate::mlir::builder::{BranchArm, FloatPredicate, Val};
use crate::mlir::shared::loop_variable;
use crate::mlir::types::Ty;
use crate::ops::scalar::ArithKind;
use crate::ops::{Cast, Convert, Effect, For, Kind, OperandA, Scalar, WarpGroupDot};

/// Registers that a row's number scales, at least, where it is asked first whether it is 1.
const LEAST_SCALED: usize = 16;

/// When an operation of the body is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChainStage {
    First,
    /// The first, but not before the product of the turn before it is done: it makes what the next one reads.
    Narrowing,
    Second,
}

/// A loop of this kind.
pub(super) struct ChainedDots {
    first: usize,
    second: usize,
    parts: Vec<ChainStage>,
    /// The carried value that the second product adds to, as an argument of the body.
    sum: Value,
    /// What a turn leaves of it: this value, or what the second product of the next turn adds to.
    left: Value,
    /// What the second part takes from the first.
    bridges: Vec<Value>,
    /// What narrowing takes.
    narrowed: Vec<Value>,
}

/// What an operation takes, those of its blocks included.
fn taken(op: &Op) -> Vec<Value> {
    let mut values = op.kind.operation().operands();
    for block in op.kind.operation().blocks() {
        values.extend(&block.yields);
        block.walk(&mut |op| values.extend(op.kind.operation().operands()));
    }
    values
}

/// What an operation takes in registers.
fn held(op: &Op) -> Vec<Value> {
    if let Kind::WarpGroupDot(dot) = &op.kind {
        return dot.tile().into_iter().chain(dot.acc).collect();
    }
    op.kind.operation().operands()
}

impl ChainedDots {
    pub fn new(func: &Func, body: &For) -> Option<ChainedDots> {
        let ops = &body.body.ops;
        let dots: Vec<(usize, &WarpGroupDot)> = ops
            .iter()
            .enumerate()
            .filter_map(|(i, op)| if let Kind::WarpGroupDot(dot) = &op.kind { Some((i, dot)) } else { None })
            .collect();
        let &[(first, one), (second, other)] = &dots[..] else { return None };
        // The sum is carried, and its new value is the product's and nobody else's.
        let result = ops[second].results[0];
        let mut carried = body.body.yields.iter().zip(&body.body.args[1..]);
        let (_, &sum) = carried.find(|(yielded, _)| **yielded == result)?;
        let tile = other.tile()?;
        if body.body.uses(result) != 1 || one.acc.is_some() || one.promotes() {
            return None;
        }
        let mut parts = vec![ChainStage::First; ops.len()];
        let mut late = HashSet::from([sum]);
        for (i, op) in ops.iter().enumerate() {
            if taken(op).iter().any(|value| late.contains(value)) {
                let plain =
                    op.kind.operation().effect() == Effect::Pure && op.kind.operation().blocks().is_empty();
                if !plain || i > second || i == first {
                    return None;
                }
                parts[i] = ChainStage::Second;
                late.extend(&op.results);
            }
        }
        let leaves = body.body.yields.iter().filter(|value| late.contains(value)).count();
        if parts[second] != ChainStage::Second || leaves != 1 {
            return None;
        }
        // What only moves elements for the second part belongs to it, and what narrows its factor comes late.
        let mut narrow = tile;
        for i in (0..second).rev().filter(|&i| i != first) {
            let op = &ops[i];
            let used: usize = op.results.iter().map(|&result| body.body.uses(result)).sum();
            let users = ops.iter().zip(&parts).filter(|(_, part)| **part != ChainStage::First);
            let late =
                users.flat_map(|(user, _)| held(user)).filter(|value| op.results.contains(value)).count();
            if parts[i] != ChainStage::First || op.results.is_empty() || used != late {
                continue;
            }
            if op.results[0] == narrow
                && let Kind::Cast(Cast { value }) | Kind::Convert(Convert { value }) = op.kind
            {
                (parts[i], narrow) = (ChainStage::Narrowing, value);
            } else if matches!(
                op.kind.operation().spread(func, &op.results),
                LayoutRelation::View(_) | LayoutRelation::Source
            ) {
                parts[i] = ChainStage::Second;
            }
        }
        let defined = |is: &dyn Fn(ChainStage) -> bool| {
            let own = ops.iter().zip(&parts).filter(|(_, part)| is(**part));
            own.flat_map(|(op, _)| op.results.iter().copied()).collect::<HashSet<Value>>()
        };
        let early = defined(&|part| part != ChainStage::Second);
        let wide = defined(&|part| part == ChainStage::First);
        let wanted = |part: ChainStage, among: &HashSet<Value>| {
            let users = ops.iter().zip(&parts).filter(|(_, own)| **own == part);
            let mut list: Vec<Value> =
                users.flat_map(|(user, _)| held(user)).filter(|value| among.contains(value)).collect();
            list.sort();
            list.dedup();
            list
        };
        let args: HashSet<Value> = body.body.args.iter().copied().filter(|&arg| arg != sum).collect();
        let bridges = wanted(ChainStage::Second, &early.union(&args).copied().collect());
        let narrowed = wanted(ChainStage::Narrowing, &wide);
        Some(ChainedDots { first, second, parts, sum, left: sum, bridges, narrowed })
    }

    /// The same with the sum changed at the end of a turn, where anything is done to it, for the second product of the
    /// next turn. That one takes no more than this and its factors then.
    fn early(self, other: &WarpGroupDot) -> ChainedDots {
        let (Some(left), Some(tile)) = (other.acc.filter(|acc| *acc != self.sum), other.tile()) else {
            return self;
        };
        ChainedDots { left, bridges: vec![tile], ..self }
    }

    /// Whether an operation is done in front of the second product, in its turn.
    fn precedes(&self, number: usize) -> bool {
        self.left == self.sum && number != self.second && self.parts[number] == ChainStage::Second
    }
}

/// What a turn leaves to the next one.
struct StageResults {
    /// Registers of the carried values, the sum left out.
    carried: Vec<Val>,
    bridges: Vec<Val>,
}

impl Gpu<'_> {
    /// The loop as such a chain, if it is one.
    pub(super) fn chain(&self, body: &For) -> Option<ChainedDots> {
        let chain = ChainedDots::new(self.func, body)?;
        let [one, other] = [chain.first, chain.second].map(|number| &body.body.ops[number]);
        let (Kind::WarpGroupDot(first), Kind::WarpGroupDot(second)) = (&one.kind, &other.kind) else {
            return None;
        };
        // A first product whose left factor is in registers leaves shared memory to the second one, which may follow at
        // once if no large sum is changed between them. Elsewhere a longer end of a turn costs more than that gives.
        let is_held = matches!(&first.a, OperandA::Staged(staged) if self.held_words(staged).is_some());
        let is_large = self.register_count(other.results[0]) >= self.register_count(one.results[0]);
        Some(if is_held && is_large { chain.early(second) } else { chain })
    }

    /// The results of a loop whose turns overlap.
    pub(super) fn chained(
        &mut self,
        b: &mut Builder,
        op: &Op,
        (body, chain): (&For, &ChainedDots),
        turns: IterationSpace,
    ) -> Vec<Val> {
        let mut types = self.types(&op.results);
        types.extend([Ty::I32; 2]);
        let start = self.present_turn(body);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let runs = b.icmp(IntPredicate::Sgt, turns.count, zero);
        let mut results = b.branch(runs, &types, |b, arm| {
            if arm == BranchArm::Else {
                return self.flatten(&body.inits).into_iter().chain(start.flat()).collect();
            }
            self.scope(|gpu| {
                let others: Vec<Value> = others(body, chain, &body.inits);
                let inits = gpu.flatten(&others);
                gpu.first_part_alone(b, (body, chain), turns, start, &inits);
                let own =
                    body.body.args[1..].iter().position(|arg| *arg == chain.sum).expect("a carried value");
                let sum = gpu.flatten(&[body.inits[own]]);
                let sum = gpu.leave_sum(b, (body, chain), sum);
                let left = gpu.leave_first(b, (body, chain));
                let counts = [left.carried.len(), left.bridges.len(), sum.len()];
                let next = gpu.next_turn(b, gpu.plan.pipeline(), body, start);
                let mut inits = left.carried;
                inits.extend(left.bridges);
                inits.extend(sum);
                inits.extend(start.flat().into_iter().chain(next.flat()));
                let run = |gpu: &mut Self, b: &mut Builder, [first, end]: [Val; 2], inits: &[Val]| {
                    b.for_range([first, end, one], inits, |b, index, carried| {
                        gpu.scope(|gpu| {
                            gpu.iteration = Some(index);
                            let (carried, rest) = carried.split_at(counts[0]);
                            let (bridges, rest) = rest.split_at(counts[1]);
                            let (sum, rest) = rest.split_at(counts[2]);
                            let [before, now] = [&rest[..2], &rest[2..]].map(PipelineState::of);
                            let (left, sum) = gpu.overlapped(
                                b,
                                (body, chain),
                                (turns, index),
                                [before, now],
                                (carried, bridges, sum),
                            );
                            let next = gpu.next_turn(b, gpu.plan.pipeline(), body, now);
                            let turns = now.flat().into_iter().chain(next.flat());
                            left.carried.into_iter().chain(left.bridges).chain(sum).chain(turns).collect()
                        })
                    })
                };
                let mut ends = inits;
                for (range, quiet) in gpu.ranges(b, body, turns) {
                    gpu.false_conditions = quiet;
                    ends = run(gpu, b, range, &ends);
                }
                gpu.false_conditions = vec![];
                gpu.iteration = None;
                let (carried, rest) = ends.split_at(counts[0]);
                let (bridges, rest) = rest.split_at(counts[1]);
                let (sum, rest) = rest.split_at(counts[2]);
                let next = &rest[2..];
                gpu.set_turn(body, PipelineState::of(rest));
                gpu.enter_second(b, chain, bridges, sum);
                for (i, op) in body.body.ops.iter().enumerate() {
                    if chain.precedes(i) {
                        gpu.change_sum(b, op);
                    } else if i == chain.second {
                        gpu.op(b, op);
                    }
                }
                let sum = gpu.flatten(&[body.body.ops[chain.second].results[0]]);
                // In the order of the results.
                let mut rest = carried;
                let mut all = vec![];
                for (&result, &arg) in op.results.iter().zip(&body.body.args[1..]) {
                    if arg == chain.sum {
                        all.extend(&sum);
                    } else {
                        let (own, others) = rest.split_at(gpu.register_count(result));
                        all.extend(own);
                        rest = others;
                    }
                }
                all.extend(next);
                all
            })
        });
        let end = results.split_off(results.len() - 2);
        self.set_turn(body, PipelineState::of(&end));
        results
    }

    /// The turns behind the first one in ranges, each with the conditions that do not hold in it.
    fn ranges(&mut self, b: &mut Builder, body: &For, turns: IterationSpace) -> Vec<([Val; 2], Vec<Value>)> {
        let one = b.int(Ty::I64, 1);
        let definitions = self.func.definitions();
        let Some(branches) = LoopBranches::new(self, body, &definitions) else {
            return vec![([one, turns.count], vec![])];
        };
        let MainLoop { first, end } = self.quiet_turns(b, &branches, turns, &definitions);
        let between = |b: &mut Builder, least: Val, turn: Val| {
            let turn = b.op("llvm.intr.smin", &[turn, turns.count], Ty::I64);
            b.op("llvm.intr.smax", &[turn, least], Ty::I64)
        };
        let mut ranges = vec![];
        let start = first.map_or(one, |first| between(b, one, first));
        if first.is_some() {
            ranges.push(([one, start], vec![]));
        }
        let stop = end.map_or(turns.count, |end| between(b, start, end));
        ranges.push(([start, stop], branches.conditions));
        if end.is_some() {
            ranges.push(([stop, turns.count], vec![]));
        }
        ranges
    }

    /// The first part of the first turn.
    fn first_part_alone(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        turns: IterationSpace,
        turn: PipelineState,
        inits: &[Val],
    ) {
        let zero = b.int(Ty::I64, 0);
        self.iteration = Some(zero);
        self.enter_first(b, (body, chain), (turns, zero), turn, inits);
        for (i, op) in body.body.ops.iter().enumerate() {
            if chain.parts[i] != ChainStage::Second {
                self.op(b, op);
            }
        }
    }

    /// A first part and the second part of the turn before it.
    fn overlapped(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        (turns, index): (IterationSpace, Val),
        [before, now]: [PipelineState; 2],
        (carried, bridges, sum): (&[Val], &[Val], &[Val]),
    ) -> (StageResults, Vec<Val>) {
        let ops = &body.body.ops;
        let dot = |i: usize| match &ops[i].kind {
            Kind::WarpGroupDot(dot) => dot,
            kind => unreachable!("{kind:?} is no product"),
        };
        let (one, other) = (dot(chain.first), dot(chain.second));
        self.enter_first(b, (body, chain), (turns, index), now, carried);
        for (op, _) in
            ops[..chain.first].iter().zip(&chain.parts).filter(|(_, part)| **part == ChainStage::First)
        {
            self.op(b, op);
        }
        if self.alternates() {
            self.take_turns(b, MmaOrder::Take);
        }
        let mut first = one.issue(self, b, &ops[chain.first], (None, AfterIssue::GoOn));
        // The second part of the turn before: its values stand aside for those of this turn.
        let kept: Vec<(Value, Option<Registers>)> =
            chain.bridges.iter().map(|&value| (value, self.values.get(&value).cloned())).collect();
        self.set_turn(body, before);
        self.enter_second(b, chain, bridges, sum);
        for (_, op) in ops.iter().enumerate().filter(|(i, _)| chain.precedes(*i)) {
            self.change_sum(b, op);
        }
        let mut second = other.issue(self, b, &ops[chain.second], (None, AfterIssue::GoOn));
        if self.alternates() {
            self.take_turns(b, MmaOrder::Pass);
        }
        for (value, registers) in kept {
            match registers {
                Some(registers) => self.values.insert(value, registers),
                None => self.values.remove(&value),
            };
        }
        self.set_turn(body, now);
        WarpGroupDot::settle(b, &mut first, 1, &[]);
        one.complete(self, b, &ops[chain.first], &first);
        for (op, _) in
            ops.iter().zip(&chain.parts).skip(chain.first + 1).filter(|(_, part)| **part == ChainStage::First)
        {
            self.op(b, op);
        }
        // What is narrowed takes the place of what the product reads, so it waits.
        let wide = self.flatten(&chain.narrowed);
        let wide = WarpGroupDot::settle(b, &mut second, 0, &wide);
        self.define_all(&chain.narrowed, &wide);
        self.set_turn(body, before);
        other.complete(self, b, &ops[chain.second], &second);
        self.set_turn(body, now);
        for (op, _) in ops.iter().zip(&chain.parts).filter(|(_, part)| **part == ChainStage::Narrowing) {
            self.op(b, op);
        }
        let sum = self.flatten(&ops[chain.second].results);
        let sum = self.leave_sum(b, (body, chain), sum);
        (self.leave_first(b, (body, chain)), sum)
    }

    /// Whether groups of warps multiply in turn, while the others make something of their products.
    pub(super) fn alternates(&self) -> bool {
        let groups = self.plan.distributed.num_warps / WARPGROUP_WARPS;
        groups > 1
    }

    fn enter_first(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        (turns, index): (IterationSpace, Val),
        turn: PipelineState,
        carried: &[Val],
    ) {
        let variable = body.body.args[0];
        self.set_turn(body, turn);
        let own = loop_variable(b, index, turns.low, turns.step);
        self.define(variable, vec![own]);
        let args = others(body, chain, &body.body.args[1..]);
        self.define_all(&args, carried);
    }

    fn leave_first(&mut self, b: &mut Builder, (body, chain): (&For, &ChainedDots)) -> StageResults {
        let carried = self.flatten(&others(body, chain, &body.body.yields));
        let words = |gpu: &Self, b: &mut Builder, value: Value| {
            let registers = gpu.registers(value);
            let dtype = gpu.func.ty(value).dtype;
            if dtype.is_half() { pack(b, &registers, dtype) } else { registers.to_vec() }
        };
        let bridges = chain.bridges.iter().flat_map(|&value| words(self, b, value)).collect();
        StageResults { carried, bridges }
    }

    /// An operation on the sum between two products. Where it is multiplied by a number for each row, a warp all of whose
    /// numbers are 1 leaves it as it is: ratios of a running maximum are, most of the time.
    fn change_sum(&mut self, b: &mut Builder, op: &Op) {
        let Some([tile, factors]) = self.few_factors(op) else { return self.op(b, op) };
        let one = b.float(Ty::F32, 1.0);
        let mut scales = b.int(Ty::I1, 0);
        for factor in factors {
            let differs = b.fcmp(FloatPredicate::Une, factor, one);
            scales = b.or(scales, differs);
        }
        let lanes = statement(b, "vote.sync.ballot.b32 $0, $1, -1;", "=r,b", &[scales], &[Ty::I32])[0];
        let zero = b.int(Ty::I32, 0);
        let any = b.icmp(IntPredicate::Ne, lanes, zero);
        let types = vec![Ty::F32; tile.len()];
        let scaled = |b: &mut Builder| {
            self.scope(|gpu| gpu.op(b, op));
            self.flatten(&op.results)
        };
        let changed = b.if_else(any, &types, scaled, |_| tile);
        self.define(op.results[0], changed);
    }

    /// The registers of a tile and the numbers that its rows are multiplied by; one number for all is none of these.
    fn few_factors(&self, op: &Op) -> Option<[Vec<Val>; 2]> {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return None };
        if row.algebra != ArithKind::Mul || self.register_type(op.results[0]) != Ty::F32 {
            return None;
        }
        let sides: Vec<Vec<Val>> = args.iter().map(|&arg| self.registers(arg).to_vec()).collect();
        [[0, 1], [1, 0]].into_iter().find_map(|[tile, by]| {
            let mut known = HashSet::new();
            let factors = sides[by].iter().copied().filter(|factor| known.insert(factor.id()));
            let factors: Vec<Val> = factors.collect();
            let fits = factors.len() > 1 && factors.len() * LEAST_SCALED <= sides[tile].len();
            fits.then(|| [sides[tile].clone(), factors])
        })
    }

    /// What a turn leaves of the sum.
    fn leave_sum(&mut self, b: &mut Builder, (body, chain): (&For, &ChainedDots), sum: Vec<Val>) -> Vec<Val> {
        if chain.left == chain.sum {
            return sum;
        }
        self.define(chain.sum, sum);
        for (i, op) in body.body.ops.iter().enumerate() {
            if chain.parts[i] == ChainStage::Second && i != chain.second {
                self.op(b, op);
            }
        }
        self.flatten(&[chain.left])
    }

    /// Defines what the second part takes.
    fn enter_second(&mut self, b: &mut Builder, chain: &ChainedDots, bridges: &[Val], sum: &[Val]) {
        let mut rest = bridges;
        for &value in &chain.bridges {
            let (dtype, count) = (self.func.ty(value).dtype, self.register_count(value));
            let words = if dtype.is_half() { count.div_ceil(2) } else { count };
            let (own, others) = rest.split_at(words);
            let registers = if dtype.is_half() { unpack(b, own, dtype, count) } else { own.to_vec() };
            self.define(value, registers);
            rest = others;
        }
        self.define(chain.left, sum.to_vec());
    }
}

/// The values of a list of carried ones without the sum's.
fn others(body: &For, chain: &ChainedDots, list: &[Value]) -> Vec<Value> {
    let pairs = list.iter().zip(&body.body.args[1..]);
    pairs.filter(|(_, arg)| **arg != chain.sum).map(|(&value, _)| value).collect()
}
