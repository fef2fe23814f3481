//! Reductions that exchange partial results: each warpgroup writes those of its warps, waits, and reads those of all.
//!
//! What is computed does not depend on it, for every warpgroup holds whole tiles. Who reads and writes a buffer does: writes behind no
//! wait for the reads of what is there are a race.

use super::agent::{AgentRole, Step};
use super::clock::ClockEntry;
use super::machine::Cx;
use super::simulate::Simulate;
use crate::gpu::schedule::named_barrier::NamedBarrier;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::PartialExchange;
use tile_ir::ops::{Kind, ReduceBatch};

/// The last reads of a buffer of partial results: by whom, at which step.
#[derive(Default)]
pub struct PartialReads(Vec<(usize, u64)>);

impl Cx<'_, '_> {
    /// Whether the iteration of a loop is odd.
    fn is_odd(&self, of: Value) -> Result<bool, String> {
        let frames = &self.agent.frames;
        let index = frames.iter().rposition(|frame| frame.block.args.first() == Some(&of));
        let index = index.filter(|&index| index > 0);
        let index = index.ok_or_else(|| {
            format!("alternates by {}, which is of no loop around", self.shared.names.name(of))
        })?;
        let (around, body) = (&frames[index - 1], &frames[index]);
        let iteration = if let Some(Kind::For(op)) = around.block.ops.get(around.next).map(|op| &op.kind) {
            (body.iteration - self.tile(op.low)?.int()) / self.tile(op.step)?.int().max(1)
        } else {
            body.iteration
        };
        Ok(iteration % 2 != 0)
    }

    /// The buffer of a reduction in a batch, by its result and whether it is the second one.
    fn buffer_of(&self, batch: &ReduceBatch, index: usize) -> Result<(Value, bool), String> {
        let PartialExchange { parity, .. } = batch.exchange(index);
        let is_odd = parity.map_or(Ok(false), |of| self.is_odd(of))?;
        Ok((batch.body.ops[index].results[0], is_odd))
    }

    /// Partial results are written, which nobody may read any more.
    fn write_partials(&mut self, batch: &ReduceBatch) -> Result<(), String> {
        for index in 0..batch.body.ops.len() {
            let buffer = self.buffer_of(batch, index)?;
            let is_open = |&(agent, time): &(usize, u64)| {
                agent != self.agent.id && self.agent.clock.get(ClockEntry::Agent(agent)) < time
            };
            let reads = self.cta().partials.get(&buffer);
            if reads.is_some_and(|reads| reads.0.iter().any(is_open)) {
                let name = self.shared.names.name(buffer.0);
                return Err(format!("writes partial results of {name} where others may read earlier ones"));
            }
        }
        Ok(())
    }

    /// All partial results have been read.
    fn read_partials(&mut self, batch: &ReduceBatch) -> Result<(), String> {
        let (own, time) = (self.agent.id, self.agent.tick());
        for index in 0..batch.body.ops.len() {
            let buffer = self.buffer_of(batch, index)?;
            let reads = &mut self.cta_mut().partials.entry(buffer).or_default().0;
            reads.retain(|(agent, _)| *agent != own);
            reads.push((own, time));
        }
        Ok(())
    }

    /// Stores of all blocks arrive at a reduction's barrier.
    fn complete_exchange(&mut self, batch: &ReduceBatch, index: usize) -> Result<(), String> {
        let PartialExchange { parity, barrier: Some(barrier) } = batch.exchange(index) else { return Ok(()) };
        let stage = usize::from(parity.map_or(Ok(false), |of| self.is_odd(of))?);
        if self.cta().unseen.contains(&barrier) {
            let name = self.shared.names.name(barrier);
            return Err(format!("stores to blocks that may not have initialized {name}"));
        }
        let clock = self.agent.clock.clone();
        self.barrier(self.agent.cta, barrier, stage)?.complete(&clock)
    }
}

impl Simulate for ReduceBatch {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        // Once, though it may wait for others behind it.
        if cx.agent.named_wait.is_none() {
            cx.write_partials(self)?;
            (0..self.body.ops.len()).try_for_each(|index| cx.complete_exchange(self, index))?;
        }
        if matches!(cx.agent.role, AgentRole::Consumer { .. })
            && cx.meet(NamedBarrier::Consumers, cx.shared.warpgroups())? == Step::Blocked
        {
            return Ok(Step::Blocked);
        }
        Ok(cx.agent.enter(&self.body, vec![], 0))
    }

    fn end_block<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.read_partials(self)?;
        cx.leave_with_yields(op)
    }
}
