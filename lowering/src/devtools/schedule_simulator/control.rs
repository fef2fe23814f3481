//! Loops, branches and roles.

use std::rc::Rc;

use super::agent::{Agent, AgentRole, Datum, PipeState, Step};
use super::machine::{Cx, PublishedTile};
use super::number::Number;
use super::simulate::{Inputs, Simulate};
use super::tile::TileValue;
use crate::gpu::schedule::work_tiles::WORK_TILE_STAGES;
use tile_ir::ir::{Op, Type, Value};
use tile_ir::ops::schedule::Role;
use tile_ir::ops::{
    Assert, For, If, Induction, IterationBound, Loop, PeerShares, PipeNext, PipeStart, Poison, Print,
    Publish, TripCount, WarpSpecialize, While, WorkTiles,
};
use tile_ir::support::dtype::DType;

fn variable(body: &For, cx: &Cx, iteration: i128) -> Datum {
    let dtype = cx.shared.func.ty(body.low).dtype;
    Datum::Tile(Rc::new(TileValue::scalar(dtype, Number::Int(iteration))))
}

fn includes(body: &For, cx: &Cx, iteration: i128) -> Result<bool, String> {
    let high = cx.tile(body.high)?.int();
    Ok(iteration < high || body.closed && iteration == high)
}

impl Simulate for For {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let (low, inits) = (cx.tile(self.low)?.int(), cx.data(&self.inits)?);
        if !includes(self, cx, low)? {
            return cx.define_data(op, inits);
        }
        let args = std::iter::once(variable(self, cx, low)).chain(inits).collect();
        Ok(cx.agent.enter(&self.body, args, low))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let next = cx.agent.frame().iteration + cx.tile(self.step)?.int().max(1);
        if !includes(self, cx, next)? {
            return cx.leave_with_yields(op);
        }
        let args = std::iter::once(variable(self, cx, next)).chain(cx.data(&self.body.yields)?).collect();
        Ok(cx.agent.repeat(&self.body, args, next))
    }
}

impl Simulate for If {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let holds = cx.tile(self.condition)?.is_true();
        Ok(cx.agent.enter(if holds { &self.then } else { &self.otherwise }, vec![], 0))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.leave_with_yields(op)
    }
}

impl Simulate for While {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let inits = cx.data(&self.inits)?;
        Ok(cx.agent.enter(&self.test, inits, 0))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        if !std::ptr::eq(cx.agent.frame().block, &self.test) {
            let yields = cx.data(&self.body.yields)?;
            return Ok(cx.agent.repeat(&self.test, yields, 0));
        }
        let carried = cx.data(&self.test.args)?;
        if cx.tile(self.test.yields[0])?.is_true() {
            return Ok(cx.agent.repeat(&self.body, carried, 0));
        }
        cx.define_data(op, carried)?;
        Ok(cx.agent.leave())
    }
}

fn index_datum(iteration: i128) -> Datum {
    Datum::Tile(Rc::new(TileValue::scalar(DType::I64, Number::Int(iteration))))
}

impl Simulate for Loop {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let [first, end] = [cx.tile(self.first)?.int(), cx.tile(self.end)?.int()];
        if self.narrow && (first < 0 || end > i32::MAX.into()) {
            return Err(format!("counts {first}..{end} in 32 bits"));
        }
        let inits = cx.data(&self.inits)?;
        if first >= end {
            return cx.define_data(op, inits);
        }
        let args = std::iter::once(index_datum(first)).chain(inits).collect();
        Ok(cx.agent.enter(&self.body, args, first))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let next = cx.agent.frame().iteration + 1;
        if next >= cx.tile(self.end)?.int() {
            return cx.leave_with_yields(op);
        }
        let args = std::iter::once(index_datum(next)).chain(cx.data(&self.body.yields)?).collect();
        Ok(cx.agent.repeat(&self.body, args, next))
    }
}

impl Simulate for TripCount {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let [low, high, step] = [0, 1, 2].map(|operand: usize| inputs.operands[operand].int());
        let (step, end) = (step.max(1), high + i128::from(self.closed));
        let count = ((end - low + step - 1) / step).max(0);
        if self.runs && count == 0 {
            return Err("the loop does not run, though it is known to".into());
        }
        Ok(vec![TileValue::scalar(DType::I64, Number::Int(count))])
    }
}

impl Simulate for Induction {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let [index, low, step] = [0, 1, 2].map(|operand: usize| inputs.operands[operand].int());
        Ok(vec![TileValue::scalar(inputs.dtype(), Number::Int(low + index * step.max(1)))])
    }
}

impl Simulate for IterationBound {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let [low, step] = [0, 1].map(|operand: usize| inputs.operands[operand].int());
        let terms = self.terms.iter().zip(&inputs.operands[2..]);
        let sum =
            terms.map(|((plus, _), term)| if *plus { term.int() } else { -term.int() }).sum::<i128>() + low;
        let (step, missing) = (step.max(1), i128::from(self.strict) - sum);
        let first = ((missing + step - 1).div_euclid(step)).max(0);
        Ok(vec![TileValue::scalar(DType::I64, Number::Int(first))])
    }
}

impl Simulate for Poison {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.define_data(op, vec![Datum::Poison])
    }
}

impl Simulate for PipeStart {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let phase = u64::from(self.role == Role::Producer);
        cx.define_data(op, vec![Datum::Pipe(PipeState { stage: 0, phase })])
    }
}

impl Simulate for PipeNext {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let stages = tile_ir::ops::schedule::stages(cx.shared.func, self.pipe).unwrap_or(1) as usize;
        let PipeState { stage, phase } = cx.pipe(self.pipe)?;
        let next = (stage + 1) % stages;
        let phase = if next == 0 { phase ^ 1 } else { phase };
        cx.define_data(op, vec![Datum::Pipe(PipeState { stage: next, phase })])
    }
}

impl Simulate for WarpSpecialize {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        if cx.agent.forked {
            return if cx.cta().running == 0 { Ok(Step::Next) } else { cx.blocked("the roles run") };
        }
        cx.agent.forked = true;
        let warpgroups = cx.shared.warpgroups();
        let consumers = (0..warpgroups).map(|warpgroup| (AgentRole::Consumer { warpgroup }, &self.consumer));
        let roles: Vec<_> = std::iter::once((AgentRole::Producer, &self.producer)).chain(consumers).collect();
        cx.cta_mut().running = roles.len();
        for (role, block) in roles {
            let id = cx.shared.next_agent;
            cx.shared.next_agent += 1;
            let agent: Agent<'f> = cx.agent.fork(id, role, block);
            cx.shared.spawned.push(agent);
        }
        cx.blocked("the roles run")
    }
}

/// Begins a program in the producer, or publishes that there is none.
fn schedule<'f>(tiles: &'f WorkTiles, cx: &mut Cx<'_, 'f>, states: Vec<Datum>) -> Result<Step, String> {
    let index = cx.agent.index;
    if index >= cx.shared.launch.programs() {
        if !cx.publish(None) {
            return cx.blocked("a published work tile that consumers have not taken");
        }
        return Ok(cx.agent.leave_if_in(&tiles.body));
    }
    cx.agent.program = cx.shared.launch.coordinates(index);
    cx.agent.next_index = None;
    Ok(cx.agent.enter_or_repeat(&tiles.body, states))
}

/// Takes the next program in a consumer.
fn take<'f>(tiles: &'f WorkTiles, cx: &mut Cx<'_, 'f>, states: Vec<Datum>) -> Result<Step, String> {
    let Some(published) = cx.take_published() else {
        return cx.blocked("a work tile that is not published");
    };
    let Some((index, scalars)) = published.work else {
        return Ok(cx.agent.leave_if_in(&tiles.body));
    };
    cx.agent.index = index;
    cx.agent.program = cx.shared.launch.coordinates(index);
    let args = scalars.into_iter().chain(states).collect();
    Ok(cx.agent.enter_or_repeat(&tiles.body, args))
}

impl Simulate for WorkTiles {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let states = cx.data(&self.inits)?;
        match self.role {
            Role::Producer => {
                cx.agent.index = cx.agent.cta as u32;
                schedule(self, cx, states)
            }
            Role::Consumer => take(self, cx, states),
        }
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let states = cx.data(&self.body.yields)?;
        if self.role == Role::Consumer {
            return take(self, cx, states);
        }
        // Once, though publishing may have to wait.
        if cx.agent.next_index.is_none() {
            let step = cx.shared.launch.blocks;
            let next = if self.dynamic { step + cx.shared.count() } else { cx.agent.index + step };
            (cx.agent.next_index, cx.agent.index) = (Some(next), next);
        }
        schedule(self, cx, states)
    }
}

impl Simulate for Publish {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let scalars = cx.data(&self.scalars)?;
        let index = cx.agent.index;
        if cx.publish(Some((index, scalars))) {
            Ok(Step::Next)
        } else {
            cx.blocked("a published work tile that consumers have not taken")
        }
    }
}

impl Cx<'_, '_> {
    /// Publishes a work tile, or the end, where a stage is empty.
    fn publish(&mut self, work: Option<(u32, Vec<Datum>)>) -> bool {
        let consumers = self.shared.warpgroups();
        let clock = &mut self.agent.clock;
        let cta = &mut self.shared.ctas[self.agent.cta];
        if let Some(before) = cta.published.len().checked_sub(WORK_TILE_STAGES as usize) {
            let before = &cta.published[before];
            if before.taken < consumers {
                return false;
            }
            clock.join(&before.released);
        }
        cta.published.push(PublishedTile::new(work, clock.clone()));
        self.shared.events += 1;
        true
    }

    fn take_published(&mut self) -> Option<PublishedTile> {
        let published = self.shared.ctas[self.agent.cta].published.get_mut(self.agent.taken)?;
        self.agent.taken += 1;
        published.taken += 1;
        self.agent.clock.join(&published.clock);
        published.released.join(&self.agent.clock);
        let published = published.clone();
        self.shared.events += 1;
        Some(published)
    }
}

fn results(op: &Op, flags: Vec<bool>) -> Vec<TileValue> {
    debug_assert_eq!(flags.len(), op.results.len());
    flags.into_iter().map(|flag| TileValue::scalar(DType::Bool, Number::Int(flag.into()))).collect()
}

impl Simulate for PeerShares {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let launch = cx.shared.launch;
        let has_peer = cx.agent.index ^ 1 < launch.programs();
        if launch.clusters && has_peer {
            return Ok(cx.agent.enter(&self.offsets, vec![], 0));
        }
        let missing = std::iter::once(launch.clusters && !has_peer);
        let flags = missing.chain(self.counts.iter().map(|_| false)).collect();
        cx.define(op, results(op, flags))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let offsets: Result<Vec<i128>, String> =
            self.offsets.yields.iter().map(|&offset| Ok(cx.tile(offset)?.int())).collect();
        let (offsets, launch) = (offsets?, cx.shared.launch);
        if cx.agent.frame().iteration == 0 {
            cx.agent.offsets = offsets;
            cx.agent.program = launch.coordinates(cx.agent.index ^ 1);
            return Ok(cx.agent.repeat(&self.offsets, vec![], 1));
        }
        cx.agent.program = launch.coordinates(cx.agent.index);
        let (mut flags, mut start) = (vec![false], 0);
        for count in &self.counts {
            let range = start..start + count;
            flags.push(offsets[range.clone()] == cx.agent.offsets[range.clone()]);
            start = range.end;
        }
        cx.define(op, results(op, flags))?;
        Ok(cx.agent.leave())
    }
}

impl Simulate for Assert {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let holds = cx.tile(self.holds)?.elements.numbers().all(Number::is_true);
        if holds { Ok(Step::Next) } else { Err("the assertion does not hold".into()) }
    }
}

impl Simulate for Print {
    fn run<'f>(&'f self, _: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        Ok(Step::Next)
    }
}

/// 0 in a value's type.
pub(super) fn zero_datum(cx: &Cx, value: Value) -> Datum {
    let ty: &Type = cx.shared.func.ty(value);
    Datum::Tile(Rc::new(TileValue::zeros(ty)))
}
