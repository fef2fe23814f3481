//! Overlaps the chained dots of a loop, of which the second one reads what is computed from the first: attention,
//! say.
//!
//! The second dot (PV) of an iteration is issued in the next iteration, so that the first one (QK) of that iteration
//! runs at the same time, and so does the softmax of its result. The operations of an iteration are in stages: what
//! depends on the carried accumulator is in the PV stage, anything else in the QK stage. The QK stage of the first
//! iteration is the prologue, the PV stage of the last one the epilogue. A large accumulator is rescaled at the end
//! of the iteration before, so that PV follows QK at once.

use std::collections::HashSet;

use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Cast, Convert, Effect, For, Kind, OperandA, Scalar, WarpGroupDot};

use crate::gpu::emit::async_copy::IterationSpace;
use crate::gpu::emit::dot::wgmma;
use crate::gpu::emit::dot::wgmma_statement::AfterIssue;
use crate::gpu::emit::iteration_split::{LoopBranches, MainLoop};
use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::warp_specialize::{MmaOrder, PipelineState};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Registers, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::mlir::builder::{BranchArm, FloatPredicate, Val};
use crate::mlir::shared::loop_variable;
use crate::mlir::types::Ty;

/// Fewest registers of an accumulator for each scale, where it is tested first whether all scales are 1.
const MIN_ELEMENTS_PER_SCALE: usize = 16;

/// The stage of an operation of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChainStage {
    Qk,
    /// As QK, but after the PV dot of the iteration before is done: it writes the registers that the next one reads.
    Downcast,
    Pv,
}

/// The two dots of a loop, and the stages of its operations.
pub(super) struct ChainedDots {
    qk: usize,
    pv: usize,
    stages: Vec<ChainStage>,
    /// The carried value that PV adds to, as an argument of the body.
    acc: Value,
    /// What is carried of it: this value, or what PV of the next iteration adds to.
    carried_acc: Value,
    /// Values of the QK stage that the PV stage reads.
    live_across: Vec<Value>,
    /// Operands of the downcast.
    downcast_inputs: Vec<Value>,
}

/// The operands of an operation, with those of its blocks.
fn all_operands(op: &Op) -> Vec<Value> {
    let mut values = op.kind.operation().operands();
    for block in op.kind.operation().blocks() {
        values.extend(&block.yields);
        block.walk(&mut |op| values.extend(op.kind.operation().operands()));
    }
    values
}

/// The operands that an operation reads in registers.
fn register_operands(op: &Op) -> Vec<Value> {
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
        let &[(qk, qk_dot), (pv, pv_dot)] = &dots[..] else { return None };
        // The accumulator is carried, and its new value is the result of PV and has no other use.
        let result = ops[pv].results[0];
        let mut carried = body.body.yields.iter().zip(&body.body.args[1..]);
        let (_, &acc) = carried.find(|(yielded, _)| **yielded == result)?;
        let tile = pv_dot.tile()?;
        if body.body.uses(result) != 1 || qk_dot.acc.is_some() || qk_dot.promotes() {
            return None;
        }
        let mut stages = vec![ChainStage::Qk; ops.len()];
        let mut late = HashSet::from([acc]);
        for (i, op) in ops.iter().enumerate() {
            if all_operands(op).iter().any(|value| late.contains(value)) {
                let is_pure =
                    op.kind.operation().effect() == Effect::Pure && op.kind.operation().blocks().is_empty();
                if !is_pure || i > pv || i == qk {
                    return None;
                }
                stages[i] = ChainStage::Pv;
                late.extend(&op.results);
            }
        }
        let late_yields = body.body.yields.iter().filter(|value| late.contains(value)).count();
        if stages[pv] != ChainStage::Pv || late_yields != 1 {
            return None;
        }
        // Operations that only move elements for PV are in its stage, and the casts of its operand A come late.
        let mut wide_source = tile;
        for i in (0..pv).rev().filter(|&i| i != qk) {
            let op = &ops[i];
            let used: usize = op.results.iter().map(|&result| body.body.uses(result)).sum();
            let users = ops.iter().zip(&stages).filter(|(_, stage)| **stage != ChainStage::Qk);
            let late_uses = users
                .flat_map(|(user, _)| register_operands(user))
                .filter(|value| op.results.contains(value))
                .count();
            if stages[i] != ChainStage::Qk || op.results.is_empty() || used != late_uses {
                continue;
            }
            if op.results[0] == wide_source
                && let Kind::Cast(Cast { value }) | Kind::Convert(Convert { value }) = op.kind
            {
                (stages[i], wide_source) = (ChainStage::Downcast, value);
            } else if matches!(
                op.kind.operation().layout_relation(func, &op.results),
                LayoutRelation::View(_) | LayoutRelation::Source
            ) {
                stages[i] = ChainStage::Pv;
            }
        }
        let defined = |is: &dyn Fn(ChainStage) -> bool| {
            let own = ops.iter().zip(&stages).filter(|(_, stage)| is(**stage));
            own.flat_map(|(op, _)| op.results.iter().copied()).collect::<HashSet<Value>>()
        };
        let early = defined(&|stage| stage != ChainStage::Pv);
        let wide = defined(&|stage| stage == ChainStage::Qk);
        let wanted = |stage: ChainStage, among: &HashSet<Value>| {
            let users = ops.iter().zip(&stages).filter(|(_, own)| **own == stage);
            let mut list: Vec<Value> = users
                .flat_map(|(user, _)| register_operands(user))
                .filter(|value| among.contains(value))
                .collect();
            list.sort();
            list.dedup();
            list
        };
        let args: HashSet<Value> = body.body.args.iter().copied().filter(|&arg| arg != acc).collect();
        let live_across = wanted(ChainStage::Pv, &early.union(&args).copied().collect());
        let downcast_inputs = wanted(ChainStage::Downcast, &wide);
        Some(ChainedDots { qk, pv, stages, acc, carried_acc: acc, live_across, downcast_inputs })
    }

    /// The same with the accumulator rescaled at the end of an iteration, where it is rescaled, for PV of the next
    /// iteration. PV then reads no more than this and its operands.
    fn with_early_rescale(self, pv: &WarpGroupDot) -> ChainedDots {
        let (Some(carried_acc), Some(tile)) = (pv.acc.filter(|acc| *acc != self.acc), pv.tile()) else {
            return self;
        };
        ChainedDots { carried_acc, live_across: vec![tile], ..self }
    }

    /// Whether an operation is emitted before PV, in its iteration.
    fn is_before_pv(&self, index: usize) -> bool {
        self.carried_acc == self.acc && index != self.pv && self.stages[index] == ChainStage::Pv
    }
}

/// What an iteration hands to the next one.
struct StageResults {
    /// Registers of the carried values without the accumulator.
    carried: Vec<Val>,
    live_across: Vec<Val>,
}

impl Gpu<'_> {
    /// The chained dots of a loop, if it has them.
    pub(super) fn chained_dots(&self, body: &For) -> Option<ChainedDots> {
        let chain = ChainedDots::new(self.func, body)?;
        let [qk_op, pv_op] = [chain.qk, chain.pv].map(|index| &body.body.ops[index]);
        let (Kind::WarpGroupDot(qk), Kind::WarpGroupDot(pv)) = (&qk_op.kind, &pv_op.kind) else {
            return None;
        };
        // If operand A of QK is in registers, shared memory has bandwidth for PV, which may follow at once if no
        // large accumulator is rescaled between them. Elsewhere a longer end of an iteration costs more than that
        // saves.
        let a_in_registers =
            matches!(&qk.a, OperandA::Smem(staged) if self.preloaded_words(staged).is_some());
        let is_large = self.register_count(pv_op.results[0]) >= self.register_count(qk_op.results[0]);
        Some(if a_in_registers && is_large { chain.with_early_rescale(pv) } else { chain })
    }

    /// Emits a loop with overlapping iterations, and returns its results.
    pub(super) fn chained_loop(
        &mut self,
        b: &mut Builder,
        op: &Op,
        (body, chain): (&For, &ChainedDots),
        iterations: IterationSpace,
    ) -> Vec<Val> {
        let mut types = self.types(&op.results);
        types.extend([Ty::I32; 2]);
        let start = self.pipeline_state(body);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let runs = b.icmp(IntPredicate::Sgt, iterations.trip_count, zero);
        let mut results = b.branch(runs, &types, |b, arm| {
            if arm == BranchArm::Else {
                return self.flatten(&body.inits).into_iter().chain(start.flatten()).collect();
            }
            self.scope(|gpu| {
                let others: Vec<Value> = without_acc(body, chain, &body.inits);
                let inits = gpu.flatten(&others);
                gpu.chain_prologue(b, (body, chain), iterations, start, &inits);
                let own =
                    body.body.args[1..].iter().position(|arg| *arg == chain.acc).expect("a carried value");
                let acc = gpu.flatten(&[body.inits[own]]);
                let acc = gpu.end_acc(b, (body, chain), acc);
                let stage_results = gpu.end_qk(b, (body, chain));
                let counts = [stage_results.carried.len(), stage_results.live_across.len(), acc.len()];
                let next = gpu.next_pipeline_state(b, gpu.plan.pipeline(), body, start);
                let mut inits = stage_results.carried;
                inits.extend(stage_results.live_across);
                inits.extend(acc);
                inits.extend(start.flatten().into_iter().chain(next.flatten()));
                let run = |gpu: &mut Self, b: &mut Builder, [begin, end]: [Val; 2], inits: &[Val]| {
                    b.for_range([begin, end, one], inits, |b, index, carried| {
                        gpu.scope(|gpu| {
                            gpu.iteration = Some(index);
                            let (carried, rest) = carried.split_at(counts[0]);
                            let (live_across, rest) = rest.split_at(counts[1]);
                            let (acc, rest) = rest.split_at(counts[2]);
                            let [previous, current] = [&rest[..2], &rest[2..]].map(PipelineState::of);
                            let (stage_results, acc) = gpu.chain_iteration(
                                b,
                                (body, chain),
                                (iterations, index),
                                [previous, current],
                                (carried, live_across, acc),
                            );
                            let next = gpu.next_pipeline_state(b, gpu.plan.pipeline(), body, current);
                            let states = current.flatten().into_iter().chain(next.flatten());
                            stage_results
                                .carried
                                .into_iter()
                                .chain(stage_results.live_across)
                                .chain(acc)
                                .chain(states)
                                .collect()
                        })
                    })
                };
                let mut ends = inits;
                for (range, false_conditions) in gpu.iteration_ranges(b, body, iterations) {
                    gpu.false_conditions = false_conditions;
                    ends = run(gpu, b, range, &ends);
                }
                gpu.false_conditions = vec![];
                gpu.iteration = None;
                let (carried, rest) = ends.split_at(counts[0]);
                let (live_across, rest) = rest.split_at(counts[1]);
                let (acc, rest) = rest.split_at(counts[2]);
                let next = &rest[2..];
                gpu.set_pipeline_state(body, PipelineState::of(rest));
                gpu.begin_pv(b, chain, live_across, acc);
                for (i, op) in body.body.ops.iter().enumerate() {
                    if chain.is_before_pv(i) {
                        gpu.rescale_acc(b, op);
                    } else if i == chain.pv {
                        gpu.op(b, op);
                    }
                }
                let acc = gpu.flatten(&[body.body.ops[chain.pv].results[0]]);
                // In the order of the results.
                let mut rest = carried;
                let mut all = vec![];
                for (&result, &arg) in op.results.iter().zip(&body.body.args[1..]) {
                    if arg == chain.acc {
                        all.extend(&acc);
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
        self.set_pipeline_state(body, PipelineState::of(&end));
        results
    }

    /// Ranges of the iterations after the first one, each with the conditions that are false in it.
    fn iteration_ranges(
        &mut self,
        b: &mut Builder,
        body: &For,
        iterations: IterationSpace,
    ) -> Vec<([Val; 2], Vec<Value>)> {
        let one = b.int(Ty::I64, 1);
        let definitions = self.func.definitions();
        let Some(branches) = LoopBranches::new(self, body, &definitions) else {
            return vec![([one, iterations.trip_count], vec![])];
        };
        let MainLoop { first: begin, end } = self.find_main_loop(b, &branches, iterations, &definitions);
        let between = |b: &mut Builder, least: Val, iteration: Val| {
            let iteration = b.op("llvm.intr.smin", &[iteration, iterations.trip_count], Ty::I64);
            b.op("llvm.intr.smax", &[iteration, least], Ty::I64)
        };
        let mut ranges = vec![];
        let start = begin.map_or(one, |begin| between(b, one, begin));
        if begin.is_some() {
            ranges.push(([one, start], vec![]));
        }
        let stop = end.map_or(iterations.trip_count, |end| between(b, start, end));
        ranges.push(([start, stop], branches.conditions));
        if end.is_some() {
            ranges.push(([stop, iterations.trip_count], vec![]));
        }
        ranges
    }

    /// The QK stage of the first iteration.
    fn chain_prologue(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        iterations: IterationSpace,
        state: PipelineState,
        inits: &[Val],
    ) {
        let zero = b.int(Ty::I64, 0);
        self.iteration = Some(zero);
        self.begin_qk(b, (body, chain), (iterations, zero), state, inits);
        for (i, op) in body.body.ops.iter().enumerate() {
            if chain.stages[i] != ChainStage::Pv {
                self.op(b, op);
            }
        }
    }

    /// A QK stage and the PV stage of the iteration before.
    fn chain_iteration(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        (iterations, index): (IterationSpace, Val),
        [previous, current]: [PipelineState; 2],
        (carried, live_across, acc): (&[Val], &[Val], &[Val]),
    ) -> (StageResults, Vec<Val>) {
        let ops = &body.body.ops;
        let dot = |i: usize| match &ops[i].kind {
            Kind::WarpGroupDot(dot) => dot,
            kind => unreachable!("{kind:?} is no dot"),
        };
        let (qk_dot, pv_dot) = (dot(chain.qk), dot(chain.pv));
        self.begin_qk(b, (body, chain), (iterations, index), current, carried);
        for (op, _) in
            ops[..chain.qk].iter().zip(&chain.stages).filter(|(_, stage)| **stage == ChainStage::Qk)
        {
            self.op(b, op);
        }
        if self.uses_ping_pong() {
            self.order_mma(b, MmaOrder::Wait);
        }
        let mut qk = wgmma::issue(qk_dot, self, b, &ops[chain.qk], (None, AfterIssue::Continue));
        // The PV stage of the iteration before: its values replace those of this iteration meanwhile.
        let saved: Vec<(Value, Option<Registers>)> =
            chain.live_across.iter().map(|&value| (value, self.values.get(&value).cloned())).collect();
        self.set_pipeline_state(body, previous);
        self.begin_pv(b, chain, live_across, acc);
        for (_, op) in ops.iter().enumerate().filter(|(i, _)| chain.is_before_pv(*i)) {
            self.rescale_acc(b, op);
        }
        let mut pv = wgmma::issue(pv_dot, self, b, &ops[chain.pv], (None, AfterIssue::Continue));
        if self.uses_ping_pong() {
            self.order_mma(b, MmaOrder::Arrive);
        }
        for (value, registers) in saved {
            match registers {
                Some(registers) => self.values.insert(value, registers),
                None => self.values.remove(&value),
            };
        }
        self.set_pipeline_state(body, current);
        wgmma::wait_group(b, &mut qk, 1, &[]);
        wgmma::complete(qk_dot, self, b, &ops[chain.qk], &qk);
        for (op, _) in
            ops.iter().zip(&chain.stages).skip(chain.qk + 1).filter(|(_, stage)| **stage == ChainStage::Qk)
        {
            self.op(b, op);
        }
        // The downcast overwrites the registers that PV reads, so it waits.
        let wide = self.flatten(&chain.downcast_inputs);
        let wide = wgmma::wait_group(b, &mut pv, 0, &wide);
        self.define_all(&chain.downcast_inputs, &wide);
        self.set_pipeline_state(body, previous);
        wgmma::complete(pv_dot, self, b, &ops[chain.pv], &pv);
        self.set_pipeline_state(body, current);
        for (op, _) in ops.iter().zip(&chain.stages).filter(|(_, stage)| **stage == ChainStage::Downcast) {
            self.op(b, op);
        }
        let acc = self.flatten(&ops[chain.pv].results);
        let acc = self.end_acc(b, (body, chain), acc);
        (self.end_qk(b, (body, chain)), acc)
    }

    /// Whether warpgroups alternate (ping-pong): one issues its dots, while the others work on their results.
    pub(super) fn uses_ping_pong(&self) -> bool {
        let warpgroups = self.plan.distributed.num_warps / WARPGROUP_WARPS;
        warpgroups > 1
    }

    fn begin_qk(
        &mut self,
        b: &mut Builder,
        (body, chain): (&For, &ChainedDots),
        (iterations, index): (IterationSpace, Val),
        state: PipelineState,
        carried: &[Val],
    ) {
        let variable = body.body.args[0];
        self.set_pipeline_state(body, state);
        let own = loop_variable(b, index, iterations.lower, iterations.step);
        self.define(variable, vec![own]);
        let args = without_acc(body, chain, &body.body.args[1..]);
        self.define_all(&args, carried);
    }

    fn end_qk(&mut self, b: &mut Builder, (body, chain): (&For, &ChainedDots)) -> StageResults {
        let carried = self.flatten(&without_acc(body, chain, &body.body.yields));
        let words = |gpu: &Self, b: &mut Builder, value: Value| {
            let registers = gpu.registers(value);
            let dtype = gpu.func.ty(value).dtype;
            if dtype.is_half() { pack(b, &registers, dtype) } else { registers.to_vec() }
        };
        let live_across = chain.live_across.iter().flat_map(|&value| words(self, b, value)).collect();
        StageResults { carried, live_across }
    }

    /// Emits an operation on the accumulator between two dots. Where it multiplies rows by scales, a warp whose
    /// scales are all 1 skips it: most of the time the running maximum does not change.
    fn rescale_acc(&mut self, b: &mut Builder, op: &Op) {
        let Some([tile, scales]) = self.row_scales(op) else { return self.op(b, op) };
        let one = b.float(Ty::F32, 1.0);
        let mut rescales = b.int(Ty::I1, 0);
        for scale in scales {
            let differs = b.fcmp(FloatPredicate::Une, scale, one);
            rescales = b.or(rescales, differs);
        }
        let lanes = statement(b, "vote.sync.ballot.b32 $0, $1, -1;", "=r,b", &[rescales], &[Ty::I32])[0];
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

    /// The registers of a tile and the scales of its rows; `None` for one scale for all.
    fn row_scales(&self, op: &Op) -> Option<[Vec<Val>; 2]> {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return None };
        if row.arith != ArithKind::Mul || self.register_type(op.results[0]) != Ty::F32 {
            return None;
        }
        let operands: Vec<Vec<Val>> = args.iter().map(|&arg| self.registers(arg).to_vec()).collect();
        [[0, 1], [1, 0]].into_iter().find_map(|[tile, by]| {
            let mut known = HashSet::new();
            let scales = operands[by].iter().copied().filter(|scale| known.insert(scale.id()));
            let scales: Vec<Val> = scales.collect();
            let fits = scales.len() > 1 && scales.len() * MIN_ELEMENTS_PER_SCALE <= operands[tile].len();
            fits.then(|| [operands[tile].clone(), scales])
        })
    }

    /// What is carried of the accumulator.
    fn end_acc(&mut self, b: &mut Builder, (body, chain): (&For, &ChainedDots), acc: Vec<Val>) -> Vec<Val> {
        if chain.carried_acc == chain.acc {
            return acc;
        }
        self.define(chain.acc, acc);
        for (i, op) in body.body.ops.iter().enumerate() {
            if chain.stages[i] == ChainStage::Pv && i != chain.pv {
                self.op(b, op);
            }
        }
        self.flatten(&[chain.carried_acc])
    }

    /// Defines the operands of the PV stage.
    fn begin_pv(&mut self, b: &mut Builder, chain: &ChainedDots, live_across: &[Val], acc: &[Val]) {
        let mut rest = live_across;
        for &value in &chain.live_across {
            let (dtype, count) = (self.func.ty(value).dtype, self.register_count(value));
            let words = if dtype.is_half() { count.div_ceil(2) } else { count };
            let (own, others) = rest.split_at(words);
            let registers = if dtype.is_half() { unpack(b, own, dtype, count) } else { own.to_vec() };
            self.define(value, registers);
            rest = others;
        }
        self.define(chain.carried_acc, acc.to_vec());
    }
}

/// A list of carried values without the accumulator.
fn without_acc(body: &For, chain: &ChainedDots, list: &[Value]) -> Vec<Value> {
    let pairs = list.iter().zip(&body.body.args[1..]);
    pairs.filter(|(_, arg)| **arg != chain.acc).map(|(&value, _)| value).collect()
}
