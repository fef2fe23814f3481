//! Buffers in shared memory, and the TMA loads that fill their stages.
//!
//! A load may land at any time between its issue and the completion of its barrier's phase. Whether that is behind all reads of what
//! was in the stage, and before those of what it brings, is decided by vector clocks, so that a race is found in every run.

use std::ops::Range;
use std::rc::Rc;

use super::agent::{Datum, PipeState, Step};
use super::clock::{ClockEntry, VectorClock};
use super::machine::Cx;
use super::memory::ViewBlock;
use super::simulate::Simulate;
use super::tile::{Elements, TileValue, extents};
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::{Stage, stages};
use tile_ir::ops::{SmemAlloc, SmemLoadWords, StoreWait, TmaLoad};

/// Blocks of a cluster load halves of a stage for each other.
const HALVES: usize = 2;

/// A read of a stage by an agent.
#[derive(Clone, Debug)]
struct StageRead<'f> {
    id: u64,
    agent: usize,
    op: &'f Op,
    /// The agent's step at which it was done, if it is.
    ended: Option<u64>,
    /// The halves of the stage that have not been refilled since.
    halves: [bool; HALVES],
}

/// A stage of a buffer.
#[derive(Clone, Debug)]
pub struct StageState<'f> {
    elements: Elements,
    /// How many loads into each half were issued, and the last of them.
    loads: [u64; HALVES],
    last_load: Option<&'f Op>,
    landed: [bool; HALVES],
    reads: Vec<StageRead<'f>>,
}

/// A load that has been issued and has not landed.
#[derive(Clone, Debug)]
pub struct PendingLoad<'f> {
    ctas: Vec<usize>,
    halves: Range<usize>,
    block: ViewBlock,
    load: &'f TmaLoad,
    stage: usize,
    /// Bytes at the barrier of each block.
    bytes: u32,
    clock: VectorClock,
}

fn entry(cta: usize, buffer: Value, stage: usize, half: usize) -> ClockEntry {
    ClockEntry::Stage { cta, buffer, stage, half }
}

impl<'f> Cx<'_, 'f> {
    pub fn stage_state(
        &mut self,
        cta: usize,
        buffer: Value,
        stage: usize,
    ) -> Result<&mut StageState<'f>, String> {
        let name = self.shared.names.name(buffer);
        let of = self.shared.ctas[cta].buffers.get_mut(&buffer);
        of.and_then(|stages| stages.get_mut(stage)).ok_or_else(|| format!("{name} has no stage {stage} here"))
    }

    fn text(&self, op: &Op) -> String {
        self.shared.names.op(self.shared.func, op)
    }

    /// Begins to read a stage.
    pub fn begin_read(&mut self, from: Stage, op: &'f Op) -> Result<u64, String> {
        let PipeState { stage, .. } = self.pipe(from.pipe)?;
        let (cta, agent, id) = (self.agent.cta, self.agent.id, self.shared.next_read);
        self.shared.next_read += 1;
        let clock = self.agent.clock.clone();
        let state = self.stage_state(cta, from.buffer, stage)?;
        let missed =
            (0..HALVES).find(|&half| clock.get(entry(cta, from.buffer, stage, half)) != state.loads[half]);
        let last = state.last_load;
        state.reads.push(StageRead { id, agent, op, ended: None, halves: [true; HALVES] });
        let name = self.shared.names.name(from.buffer);
        match last {
            None => Err(format!("reads stage {stage} of {name}, into which nothing was loaded")),
            Some(last) if missed.is_some() => {
                let last = self.text(last);
                Err(format!("reads stage {stage} of {name} without having waited for `{last}`"))
            }
            Some(_) => Ok(id),
        }
    }

    /// What a stage holds.
    pub fn contents(&mut self, from: Stage) -> Result<TileValue, String> {
        let PipeState { stage, .. } = self.pipe(from.pipe)?;
        self.stage_contents(from.buffer, stage)
    }

    pub fn stage_contents(&mut self, buffer: Value, stage: usize) -> Result<TileValue, String> {
        let shape = extents(&self.shared.func.ty(buffer).shape);
        let name = self.shared.names.name(buffer);
        let state = self.stage_state(self.agent.cta, buffer, stage)?;
        if state.landed != [true; HALVES] {
            return Err(format!("stage {stage} of {name} is read before it has landed"));
        }
        Ok(TileValue { shape, elements: state.elements.clone() })
    }

    /// These reads are done.
    pub fn end_reads(&mut self, ids: &[u64]) {
        let time = self.agent.tick();
        for stage in self.shared.ctas[self.agent.cta].buffers.values_mut().flatten() {
            for read in stage.reads.iter_mut().filter(|read| ids.contains(&read.id)) {
                read.ended = Some(time);
            }
        }
    }

    /// Checks that nobody needs what is in halves of a stage any more.
    fn check_refill(&mut self, cta: usize, at: &PendingLoad<'f>) -> Result<(), String> {
        let clock = self.agent.clock.clone();
        let (buffer, stage) = (at.load.to.buffer, at.stage);
        let name = self.shared.names.name(buffer);
        let state = self.stage_state(cta, buffer, stage)?;
        let early = state.reads.iter().find(|read| {
            let is_known = |time| clock.get(ClockEntry::Agent(read.agent)) >= time;
            at.halves.clone().any(|half| read.halves[half]) && !read.ended.is_some_and(is_known)
        });
        let unordered =
            at.halves.clone().find(|&half| clock.get(entry(cta, buffer, stage, half)) != state.loads[half]);
        let (early, last) = (early.map(|read| (read.op, read.ended)), state.last_load);
        match (early, unordered.and(last)) {
            (Some((op, None)), _) => {
                Err(format!("refills stage {stage} of {name} while `{}` reads it", self.text(op)))
            }
            (Some((op, Some(_))), _) => Err(format!(
                "refills stage {stage} of {name} without having waited for its release behind `{}`",
                self.text(op)
            )),
            (None, Some(last)) => Err(format!(
                "refills stage {stage} of {name} though nobody has waited for `{}`",
                self.text(last)
            )),
            (None, None) => Ok(()),
        }
    }

    /// Marks halves of a stage as being loaded; gives what a reader must have waited for.
    fn begin_refill(&mut self, at: &PendingLoad<'f>, op: &'f Op) -> Result<VectorClock, String> {
        let mut clock = self.agent.clock.clone();
        for &cta in &at.ctas {
            self.check_refill(cta, at)?;
            let state = self.stage_state(cta, at.load.to.buffer, at.stage)?;
            state.last_load = Some(op);
            for half in at.halves.clone() {
                state.reads.iter_mut().for_each(|read| read.halves[half] = false);
                state.loads[half] += 1;
                state.landed[half] = false;
                clock.set(entry(cta, at.load.to.buffer, at.stage, half), state.loads[half]);
            }
            state.reads.retain(|read| read.halves != [false; HALVES]);
        }
        Ok(clock)
    }

    /// A load lands: its elements are in the stage, and its bytes count at the barriers.
    pub fn land(&mut self, load: PendingLoad<'f>) -> Result<(), String> {
        let tile = self.read_block(&load.block)?;
        let count = tile.elements.len() / HALVES;
        for &cta in &load.ctas {
            let state = self.stage_state(cta, load.load.to.buffer, load.stage)?;
            for half in load.halves.clone() {
                for position in half * count..(half + 1) * count {
                    state.elements.set(position, tile.elements.get(position));
                }
                state.landed[half] = true;
            }
            self.barrier(cta, load.load.signal, load.stage)?.land(load.bytes, &load.clock);
        }
        self.shared.events += 1;
        Ok(())
    }
}

impl Simulate for SmemAlloc {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let ty = cx.shared.func.ty(op.results[0]);
        let count = stages(cx.shared.func, op.results[0]).unwrap_or(1) as usize;
        let state = StageState {
            elements: Elements::zeros(ty.dtype, ty.shape.elements() as usize),
            loads: [0; HALVES],
            last_load: None,
            landed: [false; HALVES],
            reads: vec![],
        };
        cx.cta_mut().buffers.insert(op.results[0], vec![state; count]);
        Ok(Step::Next)
    }
}

impl Simulate for TmaLoad {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let PipeState { stage, .. } = cx.pipe(self.to.pipe)?;
        let shared = self.shared.map_or(Ok(false), |shared| Ok::<_, String>(cx.tile(shared)?.is_true()))?;
        let own = cx.agent.cta;
        let multicast = shared && cx.shared.launch.clusters;
        let (ctas, halves) =
            if multicast { (vec![own, own ^ 1], own % 2..own % 2 + 1) } else { (vec![own], 0..HALVES) };
        let ty = cx.shared.func.ty(self.to.buffer);
        let bytes = ty.shape.elements() as u32 * ty.dtype.bytes() / HALVES as u32 * halves.len() as u32;
        let (block, clock) = (cx.view_block(&self.tile)?, VectorClock::default());
        let mut load = PendingLoad { ctas, halves, block, load: self, stage, bytes, clock };
        load.clock = cx.begin_refill(&load, op)?;
        if cx.shared.is_early() {
            cx.land(load)?;
        } else {
            cx.shared.loads.push(load);
        }
        Ok(Step::Next)
    }
}

impl Simulate for SmemLoadWords {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let read = cx.begin_read(self.from, op)?;
        cx.agent.open_reads.push(read);
        let tile = cx.contents(self.from)?;
        cx.define_data(op, vec![Datum::Tile(Rc::new(tile))])
    }
}

impl Simulate for StoreWait {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        cx.agent.stores_in_flight = false;
        Ok(Step::Next)
    }
}

impl<'f> StageState<'f> {
    /// A load into it that no agent has waited for, by the clocks of all.
    pub fn load_without_wait(&self, known: impl Fn(usize) -> u64) -> Option<&'f Op> {
        let missed = (0..HALVES).any(|half| known(half) < self.loads[half]);
        self.last_load.filter(|_| missed)
    }
}
