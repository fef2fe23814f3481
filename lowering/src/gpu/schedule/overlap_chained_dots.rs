//! Overlaps the chained dots of a loop, of which the second one reads what is computed from the first: attention, say.
//!
//! The second dot (PV) of an iteration is issued in the next iteration, so that the first one (QK) of that iteration runs at the same
//! time, and so does the softmax of its result. The operations of an iteration are in stages: what depends on the carried accumulator
//! is in the PV stage, anything else in the QK stage. The QK stage of the first iteration is the prologue, the PV stage of the last
//! one the epilogue. A large accumulator is rescaled at the end of the iteration before, so that PV follows QK at once.
//!
//! Legal where
//! 1. the loop has two dots and no more, both waited for at once;
//! 2. QK adds to nothing, and operand A of PV is in registers;
//! 3. PV adds to a value that the loop carries; its result is the next value and has no other use;
//! 4. what depends on that value before PV is pure and has no blocks, and nothing behind PV depends on it;
//! 5. no other carried value depends on it;
//! 6. the barriers and buffers of PV are those of pipeline states that the loop carries and moves on once, or come from outside;
//! 7. a ring whose buffer both dots read has more than one stage: PV releases it an iteration later; and copies of threads go to no
//!    slot of the iteration before;
//! 8. the first iteration is iteration 0.

use std::collections::HashSet;

use super::Schedule;
use super::copy::Copies;
use super::loops::{
    Definitions, DotGroup, LoopOp, RingPipe, constant, count_dots, definitions_around_loops, is_above,
    kind_of, replace_loops,
};
use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Op, Storage, Value};
use tile_ir::ops::scalar::{ArithKind, Scalar};
use tile_ir::ops::schedule::{AfterIssue, WgmmaOperandA};
use tile_ir::ops::{
    Cast, Convert, DotWait, Effect, If, Kind, Loop, Pack, RescaleRows, Unpack, Wgmma, is_zero,
};
use tile_ir::support::dtype::DType;

/// Fewest registers of an accumulator for each scale, where it is tested first whether all scales are 1.
const MIN_ELEMENTS_PER_SCALE: usize = 16;

/// The stage of an operation of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChainStage {
    Qk,
    /// As QK, but after the PV dot of the iteration before is done: it writes the registers that the next one reads.
    Downcast,
    Pv,
    /// As QK, but behind its dot: starts copies for later iterations.
    Copies,
    /// Moves a pipeline state on, behind all others.
    PipeNext,
}

/// The two dots of a loop, and the stages of its operations.
struct ChainedDots<'a> {
    body: LoopOp<'a>,
    qk: DotGroup,
    pv: DotGroup,
    stages: Vec<ChainStage>,
    pipes: Vec<RingPipe>,
    /// The carried value that PV adds to, as an argument of the body.
    acc: Value,
    /// What is carried of it: this value, or what PV of the next iteration adds to.
    carried_acc: Value,
    /// Values of the QK stage that the PV stage reads.
    live_across: Vec<Value>,
    /// Operands of the downcast.
    downcast_inputs: Vec<Value>,
}

/// Rewrites each loop with chained dots into a prologue, a loop and an epilogue.
pub fn overlap_chained_dots(schedule: &mut Schedule) {
    let definitions = definitions_around_loops(schedule);
    replace_loops(schedule, &mut |schedule, body| {
        let chain = ChainedDots::new(schedule, body, &definitions)?;
        Some(Overlap { schedule, chain: &chain }.run())
    });
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
    match &op.kind {
        Kind::Wgmma(dot) => {
            let a = match dot.a {
                WgmmaOperandA::Regs(value) | WgmmaOperandA::Words(value) => Some(value),
                WgmmaOperandA::Smem(_) => None,
            };
            a.into_iter().chain(dot.acc).collect()
        }
        Kind::MbarWait(_) | Kind::MbarArrive(_) | Kind::SlotTile(_) => vec![],
        kind => kind.operation().operands(),
    }
}

/// Operand A of a dot, if it is a tile in registers.
fn tile_of(dot: &Wgmma) -> Option<Value> {
    match dot.a {
        WgmmaOperandA::Regs(value) => Some(value),
        WgmmaOperandA::Words(_) | WgmmaOperandA::Smem(_) => None,
    }
}

impl<'a> ChainedDots<'a> {
    fn new(schedule: &Schedule, body: LoopOp<'a>, definitions: &Definitions) -> Option<ChainedDots<'a>> {
        let (ops, block) = (body.ops(), &body.body.body);
        let [qk, pv] = <[DotGroup; 2]>::try_from(DotGroup::all(ops)).ok()?;
        let waits = |dot: &Wgmma| dot.then == AfterIssue::Wait && dot.accumulates.is_none();
        let (qk_dot, pv_dot) = (qk.wgmma(ops), pv.wgmma(ops));
        let begins_at_zero = is_zero(|value| kind_of(definitions, value), body.body.first);
        if count_dots(block) != 2 || !waits(qk_dot) || !waits(pv_dot) || !begins_at_zero {
            return None;
        }
        // The accumulator is carried, and its new value is the result of PV and has no other use.
        let result = ops[pv.dot].results[0];
        let mut carried = block.yields.iter().zip(body.carried());
        let (_, &acc) = carried.find(|(yielded, _)| **yielded == result)?;
        let tile = tile_of(pv_dot)?;
        if block.uses(result) != 1 || qk_dot.acc.is_some() {
            return None;
        }
        let pipes = RingPipe::all(schedule, body.body);
        let stages = vec![ChainStage::Qk; ops.len()];
        let (live_across, downcast_inputs) = (vec![], vec![]);
        let mut chain =
            ChainedDots { body, qk, pv, stages, pipes, acc, carried_acc: acc, live_across, downcast_inputs };
        if chain.pipes.is_empty() || !chain.releases_later() {
            return None;
        }
        chain.find_pv_stage()?;
        chain.defer(schedule, tile);
        chain.find_live_values(schedule);
        // If operand A of QK is in registers, shared memory has bandwidth for PV, which may follow at once if no large accumulator
        // is rescaled between them. Elsewhere a longer end of an iteration costs more than that saves.
        let a_in_registers = !matches!(qk_dot.a, WgmmaOperandA::Smem(_));
        let [own, first] =
            [&chain.pv, &chain.qk].map(|group| register_count(schedule, ops[group.dot].results[0]));
        Some(if a_in_registers && own >= first { chain.with_early_rescale(pv_dot, tile) } else { chain })
    }

    /// Whether barriers and buffers of PV can be used in the next iteration.
    fn releases_later(&self) -> bool {
        if self.pipes.iter().any(|ring| ring.is_slot && !ring.lasts) {
            return false;
        }
        let ops = self.body.ops();
        let mut inside = self.body.body.body.defined();
        for own in ops[self.pv.range()].iter().flat_map(|op| &op.results) {
            inside.remove(own);
        }
        let ring_of = |pipe: Value| self.pipes.iter().find(|ring| ring.arg == pipe);
        let used = ops[self.pv.range()].iter().flat_map(|op| {
            let operands = op.kind.operation().operands();
            let registers = register_operands(op);
            operands.into_iter().filter(move |value| !registers.contains(value))
        });
        for value in used {
            if ring_of(value).is_none() && inside.contains(&value) {
                return false;
            }
        }
        let of_qk = self.qk.wgmma(ops).stages();
        let shared = self.pv.wgmma(ops).stages().into_iter().filter(|stage| of_qk.contains(stage));
        let mut rings = shared.filter_map(|stage| ring_of(stage.pipe));
        rings.all(|ring| ring.lasts)
    }

    /// Puts what depends on the accumulator in the PV stage.
    fn find_pv_stage(&mut self) -> Option<()> {
        let ops = self.body.ops();
        let yields = &self.body.body.body.yields;
        let mut late = HashSet::from([self.acc]);
        for (i, op) in ops.iter().enumerate() {
            if all_operands(op).iter().any(|value| late.contains(value)) {
                let operation = op.kind.operation();
                let is_pure = operation.effect() == Effect::Pure && operation.blocks().is_empty();
                if !(is_pure || i == self.pv.dot) || i > self.pv.dot || i == self.qk.dot {
                    return None;
                }
                self.stages[i] = ChainStage::Pv;
                late.extend(&op.results);
            }
        }
        let late_yields = yields.iter().filter(|value| late.contains(value)).count();
        if self.stages[self.pv.dot] != ChainStage::Pv || late_yields != 1 {
            return None;
        }
        self.stages[self.pv.range()].fill(ChainStage::Pv);
        for (stage, op) in self.stages.iter_mut().zip(ops) {
            if matches!(op.kind, Kind::AsyncGroup(_)) {
                *stage = ChainStage::Copies;
            }
        }
        for ring in &self.pipes {
            self.stages[ring.next] = ChainStage::PipeNext;
        }
        Some(())
    }

    /// Puts operations that only move elements for PV in its stage, and the casts of its operand A late in an iteration.
    fn defer(&mut self, schedule: &Schedule, tile: Value) {
        let ops = self.body.ops();
        let mut wide_source = tile;
        for (i, op) in ops[..self.pv.dot].iter().enumerate().rev().filter(|(i, _)| *i != self.qk.dot) {
            let used: usize = op.results.iter().map(|&result| self.body.body.body.uses(result)).sum();
            let users = ops.iter().zip(&self.stages).filter(|(_, stage)| **stage != ChainStage::Qk);
            let late_uses = users
                .flat_map(|(user, _)| register_operands(user))
                .filter(|value| op.results.contains(value))
                .count();
            let stays = matches!(op.kind, Kind::Induction(_));
            if self.stages[i] != ChainStage::Qk || op.results.is_empty() || used != late_uses || stays {
                continue;
            }
            let relation = op.kind.operation().layout_relation(&schedule.distributed.func, &op.results);
            if op.results[0] == wide_source
                && let Kind::Cast(Cast { value, .. }) | Kind::Convert(Convert { value }) = op.kind
            {
                (self.stages[i], wide_source) = (ChainStage::Downcast, value);
            } else if matches!(relation, LayoutRelation::View(_) | LayoutRelation::Source) {
                self.stages[i] = ChainStage::Pv;
            }
        }
    }

    fn find_live_values(&mut self, schedule: &Schedule) {
        let qk = self.defined_in(&[ChainStage::Qk]);
        let early = self.defined_in(&[ChainStage::Qk, ChainStage::Downcast]);
        let args = self.body.body.body.args.iter().copied().filter(|arg| *arg != self.acc);
        let across = early.into_iter().chain(args).collect();
        self.live_across = self.read_in(schedule, ChainStage::Pv, &across);
        self.downcast_inputs = self.read_in(schedule, ChainStage::Downcast, &qk);
    }

    fn defined_in(&self, stages: &[ChainStage]) -> HashSet<Value> {
        let own = self.body.ops().iter().zip(&self.stages).filter(|(_, stage)| stages.contains(stage));
        own.flat_map(|(op, _)| op.results.iter().copied()).collect()
    }

    /// What the operations of a stage read of these values, in the order of the function before it was scheduled.
    fn read_in(&self, schedule: &Schedule, stage: ChainStage, among: &HashSet<Value>) -> Vec<Value> {
        let users = self.body.ops().iter().zip(&self.stages).filter(|(_, own)| **own == stage);
        let read = users.flat_map(|(user, _)| register_operands(user));
        let mut list: Vec<Value> = read.filter(|value| among.contains(value)).collect();
        list.sort_by_key(|&value| (schedule.origin(value).unwrap_or(value), value));
        list.dedup();
        list
    }

    /// The same with the accumulator rescaled at the end of an iteration, where it is rescaled, for PV of the next iteration. PV then
    /// reads no more than this and its operands.
    fn with_early_rescale(self, pv: &Wgmma, tile: Value) -> ChainedDots<'a> {
        let Some(carried_acc) = pv.acc.filter(|acc| *acc != self.acc) else { return self };
        ChainedDots { carried_acc, live_across: vec![tile], ..self }
    }

    fn rescales_early(&self) -> bool {
        self.carried_acc != self.acc
    }

    /// The operations of a stage beside those of the dots.
    fn others(&self, stage: ChainStage) -> impl Iterator<Item = usize> {
        let is_own = move |i: &usize| {
            self.stages[*i] == stage && !self.qk.range().contains(i) && !self.pv.range().contains(i)
        };
        (0..self.stages.len()).filter(is_own)
    }

    /// A list of carried values without the accumulator and the pipeline states of rings.
    fn plain(&self, list: &[Value]) -> Vec<Value> {
        let is_pipe = |index: usize| self.pipes.iter().any(|ring| ring.index == index);
        let pairs = list.iter().zip(self.body.carried()).enumerate();
        let plain = pairs.filter(|(index, (_, arg))| **arg != self.acc && !is_pipe(*index));
        plain.map(|(_, (&value, _))| value).collect()
    }

    /// The pipeline states of rings in a list of carried values.
    fn pipes_in(&self, list: &[Value]) -> Vec<Value> {
        self.pipes.iter().map(|ring| list[ring.index]).collect()
    }

    fn pipe_args(&self) -> Vec<Value> {
        self.pipes_in(self.body.carried())
    }

    /// The accumulator in a list of carried values.
    fn acc_in(&self, list: &[Value]) -> Value {
        let own = self.body.carried().iter().position(|arg| *arg == self.acc);
        list[own.expect("the accumulator is carried")]
    }

    /// How many values tell the scales of a tile's rows apart, by the view that they are.
    fn scale_count(&self, schedule: &Schedule, mut scales: Value) -> usize {
        let ops = self.body.ops();
        let in_pv = |value: Value| {
            let index = ops.iter().position(|op| op.results.contains(&value))?;
            (self.stages[index] == ChainStage::Pv).then_some(&ops[index])
        };
        while let Some(op) = in_pv(scales) {
            let operation = op.kind.operation();
            match (
                operation.layout_relation(&schedule.distributed.func, &op.results),
                &operation.operands()[..],
            ) {
                (LayoutRelation::Source, _) => return 1,
                (LayoutRelation::View(_), &[value]) => scales = value,
                _ => break,
            }
        }
        schedule.layout(scales).map_or(1, |layout| layout.registers_by_coord().len())
    }

    /// The tile and the scales of its rows, if an operation multiplies them and has few scales: a warp then asks whether all are 1.
    fn row_scales(&self, schedule: &Schedule, op: &Op) -> Option<RescaleRows> {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return None };
        if row.arith != ArithKind::Mul || schedule.ty(op.results[0]).dtype != DType::F32 {
            return None;
        }
        [[0, 1], [1, 0]].into_iter().map(|order| order.map(|index| args[index])).find_map(|[tile, scales]| {
            let count = self.scale_count(schedule, scales);
            let fits = count > 1 && count * MIN_ELEMENTS_PER_SCALE <= register_count(schedule, tile);
            fits.then_some(RescaleRows { tile, scales })
        })
    }
}

fn register_count(schedule: &Schedule, value: Value) -> usize {
    schedule.layout(value).map_or(1, |layout| layout.register_count())
}

/// The rewriting of a loop.
struct Overlap<'s, 'a> {
    schedule: &'s mut Schedule,
    chain: &'a ChainedDots<'a>,
}

/// Operations that are being built, and what the values of the loop are in them.
#[derive(Default)]
struct Region {
    ops: Vec<Op>,
    copies: Copies,
}

/// What the overlapped loop carries.
struct OverlappedValues {
    /// Without the accumulator and the states of rings.
    carried: Vec<Value>,
    /// Words for [`ChainedDots::live_across`].
    live_across: Vec<Value>,
    acc: Value,
    /// The states of rings in the iteration before.
    previous: Vec<Value>,
    pipes: Vec<Value>,
}

impl OverlappedValues {
    fn all(&self) -> Vec<Value> {
        [&self.carried[..], &self.live_across, &[self.acc], &self.previous, &self.pipes].concat()
    }
}

impl Overlap<'_, '_> {
    fn run(&mut self) -> Vec<Op> {
        let LoopOp { op, body } = self.chain.body;
        let mut ops = vec![];
        let one = constant(self.schedule, &mut ops, op, 1);
        let condition = is_above(self.schedule, &mut ops, op, [body.end, body.first]);
        let then = self.overlapped(one);
        let otherwise = Block { yields: body.inits.clone(), ..Block::default() };
        let branch = If { condition, then, otherwise, overlapped: true };
        ops.push(Op { kind: branch.into(), results: op.results.clone(), loc: op.loc });
        ops
    }

    /// Prologue, loop and epilogue; gives the results of the loop.
    fn overlapped(&mut self, one: Value) -> Block {
        let chain = self.chain;
        let LoopOp { op, body } = chain.body;
        let mut region = Region::default();
        region.copies.insert(body.body.args[0], body.first);
        region.copies.extend(&chain.plain(chain.body.carried()), &chain.plain(&body.inits));
        let first = chain.pipes_in(&body.inits);
        region.copies.extend(&chain.pipe_args(), &first);
        for i in 0..body.body.ops.len() {
            if matches!(chain.stages[i], ChainStage::Qk | ChainStage::Copies | ChainStage::Downcast) {
                self.copy(&mut region, i);
            }
        }
        let inits = self.end_iteration(&mut region, chain.acc_in(&body.inits), &first);
        let block = self.iteration();
        let results = self.fresh(&mut Copies::default());
        let inner =
            Loop { first: one, end: body.end, inits, body: block, narrow: body.narrow, overlapped: true };
        region.ops.push(Op { kind: inner.into(), results: results.all(), loc: op.loc });
        self.epilogue(region, &results)
    }

    /// The body of the loop: a QK stage and the PV stage of the iteration before.
    fn iteration(&mut self) -> Block {
        let chain = self.chain;
        let ops = chain.body.ops();
        let mut region = Region::default();
        let index = region.copies.fresh(self.schedule, &chain.body.body.body.args[..1]);
        let args = self.fresh(&mut region.copies);
        let (before_qk, behind_qk): (Vec<usize>, Vec<usize>) =
            chain.others(ChainStage::Qk).partition(|&i| i < chain.qk.dot);
        self.copy_all(&mut region, before_qk);
        self.copy_all(&mut region, chain.qk.waits());
        self.issue(&mut region, chain.qk.dot, AfterIssue::Continue);
        self.copy_all(&mut region, chain.others(ChainStage::Copies));
        // The PV stage of the iteration before: its values replace those of this iteration meanwhile.
        let earlier = self.begin_pv(&mut region.ops, &args);
        let own = std::mem::replace(&mut region.copies, earlier);
        self.rescale(&mut region);
        self.copy_all(&mut region, chain.pv.waits());
        self.issue(&mut region, chain.pv.dot, AfterIssue::Continue);
        let earlier = std::mem::replace(&mut region.copies, own);
        let qk = region.copies.get(ops[chain.qk.dot].results[0]);
        let done = self.wait(&mut region.ops, vec![qk], 1);
        region.copies.insert(ops[chain.qk.dot].results[0], done[0]);
        self.copy_all(&mut region, chain.qk.releases());
        self.copy_all(&mut region, behind_qk);
        // The downcast overwrites the registers that PV reads, so it waits.
        let pv = earlier.get(ops[chain.pv.dot].results[0]);
        let wide = region.copies.all(&chain.downcast_inputs);
        let done = self.wait(&mut region.ops, [&[pv][..], &wide].concat(), 0);
        region.copies.extend(&chain.downcast_inputs, &done[1..]);
        let own = std::mem::replace(&mut region.copies, earlier);
        self.copy_all(&mut region, chain.pv.releases());
        region.copies = own;
        self.copy_all(&mut region, chain.others(ChainStage::Downcast));
        let yields = self.end_iteration(&mut region, done[0], &args.pipes);
        Block { args: [index, args.all()].concat(), ops: region.ops, yields }
    }

    /// The PV stage of the last iteration.
    fn epilogue(&mut self, mut region: Region, results: &OverlappedValues) -> Block {
        let chain = self.chain;
        region.copies = self.begin_pv(&mut region.ops, results);
        self.rescale(&mut region);
        self.copy_all(&mut region, chain.pv.range());
        let acc = region.copies.get(chain.body.ops()[chain.pv.dot].results[0]);
        let mut ends = Copies::default();
        ends.extend(&chain.plain(chain.body.carried()), &results.carried);
        ends.extend(&chain.pipe_args(), &results.pipes);
        ends.insert(chain.acc, acc);
        Block { args: vec![], yields: ends.all(chain.body.carried()), ops: region.ops }
    }

    /// Fresh values for what the overlapped loop carries; uses of what an iteration takes become uses of them.
    fn fresh(&mut self, copies: &mut Copies) -> OverlappedValues {
        let chain = self.chain;
        let carried = copies.fresh(self.schedule, &chain.plain(chain.body.carried()));
        let live_across = chain.live_across.iter().map(|&value| self.packed(value)).collect();
        let acc = self.schedule.copy_of(chain.carried_acc);
        let previous = chain.pipe_args().iter().map(|&arg| self.schedule.copy_of(arg)).collect();
        let pipes = copies.fresh(self.schedule, &chain.pipe_args());
        OverlappedValues { carried, live_across, acc, previous, pipes }
    }

    fn copy(&mut self, region: &mut Region, index: usize) {
        let copy = region.copies.op(self.schedule, &self.chain.body.ops()[index]);
        region.ops.push(copy);
    }

    fn copy_all(&mut self, region: &mut Region, indices: impl IntoIterator<Item = usize>) {
        indices.into_iter().for_each(|index| self.copy(region, index));
    }

    fn issue(&mut self, region: &mut Region, index: usize, then: AfterIssue) {
        self.copy(region, index);
        if let Some(Op { kind: Kind::Wgmma(dot), .. }) = region.ops.last_mut() {
            dot.then = then;
        }
    }

    /// Waits for a dot until so many later ones are in flight.
    fn wait(&mut self, ops: &mut Vec<Op>, values: Vec<Value>, pending: u32) -> Vec<Value> {
        let results: Vec<Value> = values.iter().map(|&value| self.schedule.copy_of(value)).collect();
        let loc = self.chain.body.ops()[self.chain.qk.dot].loc;
        let kind = DotWait { values, pending, issued_if: None }.into();
        ops.push(Op { kind, results: results.clone(), loc });
        results
    }

    /// What the operands of the PV stage are, from what the iteration before carries.
    fn begin_pv(&mut self, ops: &mut Vec<Op>, before: &OverlappedValues) -> Copies {
        let chain = self.chain;
        let mut copies = Copies::default();
        for (&value, &packed) in chain.live_across.iter().zip(&before.live_across) {
            if !self.schedule.ty(value).dtype.is_half() {
                copies.insert(value, packed);
                continue;
            }
            let result = copies.fresh(self.schedule, &[value]);
            let loc = chain.body.op.loc;
            ops.push(Op { kind: Unpack { value: packed }.into(), results: result, loc });
        }
        copies.insert(chain.carried_acc, before.acc);
        copies.extend(&chain.pipe_args(), &before.previous);
        copies
    }

    /// What of the PV stage stands between the two dots. A warp whose scales of rows are all 1 skips the multiplication: most of the
    /// time the running maximum does not change.
    fn rescale(&mut self, region: &mut Region) {
        let chain = self.chain;
        if chain.rescales_early() {
            return;
        }
        for i in chain.others(ChainStage::Pv) {
            let scales = chain.row_scales(self.schedule, &chain.body.ops()[i]);
            self.copy(region, i);
            if let (Some(RescaleRows { tile, scales }), Some(copy)) = (scales, region.ops.last_mut()) {
                let [tile, scales] = [tile, scales].map(|value| region.copies.get(value));
                copy.kind = RescaleRows { tile, scales }.into();
            }
        }
    }

    /// What an iteration hands to the next one, for which `acc` is the accumulator and `pipes` are its own states.
    fn end_iteration(&mut self, region: &mut Region, mut acc: Value, pipes: &[Value]) -> Vec<Value> {
        let chain = self.chain;
        if chain.rescales_early() {
            region.copies.insert(chain.acc, acc);
            self.copy_all(region, chain.others(ChainStage::Pv));
            acc = region.copies.get(chain.carried_acc);
        }
        let mut values = region.copies.all(&chain.plain(&chain.body.body.body.yields));
        for &value in &chain.live_across {
            let own = region.copies.get(value);
            if !self.schedule.ty(value).dtype.is_half() {
                values.push(own);
                continue;
            }
            let packed = self.packed(value);
            let loc = chain.body.op.loc;
            region.ops.push(Op { kind: Pack { value: own }.into(), results: vec![packed], loc });
            values.push(packed);
        }
        values.push(acc);
        values.extend(pipes);
        self.copy_all(region, chain.others(ChainStage::PipeNext));
        values.extend(region.copies.all(&chain.pipes_in(&chain.body.body.body.yields)));
        values
    }

    /// A fresh value for one that is carried to the next iteration: words of 16-bit elements.
    fn packed(&mut self, value: Value) -> Value {
        if !self.schedule.ty(value).dtype.is_half() {
            return self.schedule.copy_of(value);
        }
        let words = self.schedule.value(self.schedule.ty(value).stored(Storage::Words));
        if let Some(layout) = self.schedule.layout(value).cloned() {
            self.schedule.distributed.layouts.insert(words, layout);
        }
        words
    }
}
