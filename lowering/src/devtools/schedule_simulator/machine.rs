//! The simulated GPU: which agent goes on next, when loads land, and what is wrong when nobody can go on.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use super::agent::{Agent, AgentRole, Datum, Step};
use super::barrier::{MbarState, NamedBarrierState};
use super::clock::{ClockEntry, VectorClock};
use super::exchange::PartialReads;
use super::memory::{GlobalMemory, Launch, ViewBlock};
use super::simulate::simulator;
use super::smem::{PendingLoad, StageState};
use super::tile::TileValue;
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use tile_ir::ir::{Func, ParamId, Value, ValueNames};
use tile_ir::ops::Kind;

/// When something asynchronous happens that may happen early or late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// When it is issued.
    Early,
    /// When nobody can go on without it.
    Late,
    /// At any time.
    Random,
}

/// What a schedule does that it must not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleFault(pub String);

impl fmt::Display for ScheduleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A published work tile, or the end of them.
#[derive(Clone, Debug)]
pub struct PublishedTile {
    /// The program's index, and the scalars that are published with it.
    pub work: Option<(u32, Vec<Datum>)>,
    /// How many warpgroups have taken it.
    pub taken: usize,
    pub clock: VectorClock,
    pub released: VectorClock,
}

impl PublishedTile {
    pub fn new(work: Option<(u32, Vec<Datum>)>, clock: VectorClock) -> PublishedTile {
        PublishedTile { work, taken: 0, clock, released: VectorClock::default() }
    }
}

/// A block of threads.
pub struct CtaState<'f> {
    pub buffers: HashMap<Value, Vec<StageState<'f>>>,
    pub barriers: HashMap<Value, Vec<MbarState>>,
    pub initialized: bool,
    /// Those of the barriers that other blocks of the cluster see behind their wait for it.
    pub unseen: HashSet<Value>,
    pub partials: HashMap<(Value, bool), PartialReads>,
    /// Its named barriers, by their numbers.
    pub named_barriers: HashMap<u32, NamedBarrierState>,
    pub published: Vec<PublishedTile>,
    /// Agents of roles that have not ended.
    pub running: usize,
    /// Results of changes of memory that are done once, by the operation and how often it ran.
    pub changes: HashMap<(usize, usize), Rc<TileValue>>,
}

/// What all agents share.
pub struct Shared<'f> {
    pub func: &'f Func,
    pub launch: &'f Launch,
    pub names: ValueNames,
    pub memory: HashMap<ParamId, GlobalMemory>,
    pub ctas: Vec<CtaState<'f>>,
    pub loads: Vec<PendingLoad<'f>>,
    pub stores: Vec<(ViewBlock, Rc<TileValue>)>,
    /// Agents that were started and have not run.
    pub spawned: Vec<Agent<'f>>,
    pub next_agent: usize,
    pub next_read: u64,
    /// How often something has happened that somebody may wait for.
    pub events: u64,
    timing: Timing,
    random: Random64,
    counter: u32,
}

/// What an agent sees.
pub struct Cx<'m, 'f> {
    pub shared: &'m mut Shared<'f>,
    pub agent: &'m mut Agent<'f>,
}

impl<'f> Cx<'_, 'f> {
    pub fn cta(&self) -> &CtaState<'f> {
        &self.shared.ctas[self.agent.cta]
    }

    pub fn cta_mut(&mut self) -> &mut CtaState<'f> {
        &mut self.shared.ctas[self.agent.cta]
    }
}

/// SplitMix64.
struct Random64(u64);

impl Random64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

impl Shared<'_> {
    pub fn warpgroups(&self) -> usize {
        (self.launch.num_warps / WARPGROUP_WARPS).max(1) as usize
    }

    /// Whether something that is issued now happens now.
    pub fn is_early(&mut self) -> bool {
        match self.timing {
            Timing::Early => true,
            Timing::Late => false,
            Timing::Random => self.random.below(2) == 0,
        }
    }

    /// The next index of the tile scheduler's counter.
    pub fn count(&mut self) -> u32 {
        self.counter += 1;
        self.counter - 1
    }
}

/// Agents and what they share.
struct SimulatedGpu<'f> {
    shared: Shared<'f>,
    agents: Vec<Agent<'f>>,
    /// Each agent's inclination to go on before others, which a seed decides.
    weights: Vec<usize>,
}

/// Runs a kernel: a persistent one on the blocks of the launch, any other one with a block for each program. Gives the memory
/// behind it.
pub fn run(
    func: &Func,
    launch: &Launch,
    timing: Timing,
    seed: u64,
) -> Result<HashMap<ParamId, GlobalMemory>, ScheduleFault> {
    let mut persistent = false;
    func.body.walk(&mut |op| persistent |= matches!(op.kind, Kind::WorkTiles(_)));
    let shared = Shared {
        func,
        launch,
        names: ValueNames::new(func),
        memory: launch.memory.clone(),
        ctas: vec![],
        loads: vec![],
        stores: vec![],
        spawned: vec![],
        next_agent: 0,
        next_read: 0,
        events: 0,
        timing,
        random: Random64(seed),
        counter: 0,
    };
    let mut gpu = SimulatedGpu { shared, agents: vec![], weights: vec![] };
    if persistent {
        gpu.launch_blocks(0..launch.blocks)?;
    } else {
        for program in 0..launch.programs() {
            gpu.shared.ctas.clear();
            gpu.launch_blocks(program..program + 1)?;
        }
    }
    gpu.shared.finish_stores();
    Ok(gpu.shared.memory)
}

impl<'f> SimulatedGpu<'f> {
    /// Runs blocks side by side, each of which begins with the program of its index.
    fn launch_blocks(&mut self, indices: std::ops::Range<u32>) -> Result<(), ScheduleFault> {
        self.agents.clear();
        for (cta, index) in indices.enumerate() {
            self.shared.ctas.push(CtaState {
                buffers: HashMap::new(),
                barriers: HashMap::new(),
                initialized: false,
                unseen: HashSet::new(),
                partials: HashMap::new(),
                named_barriers: HashMap::new(),
                published: vec![],
                running: 0,
                changes: HashMap::new(),
            });
            let id = self.shared.next_agent;
            self.shared.next_agent += 1;
            let mut agent = Agent::new(id, cta, AgentRole::AllWarps, &self.shared.func.body);
            (agent.index, agent.program) = (index, self.shared.launch.coordinates(index));
            let scalars = self.shared.launch.scalars.iter().map(|(&value, &number)| {
                let scalar = TileValue::scalar(self.shared.func.ty(value).dtype, number);
                (value, Datum::Tile(Rc::new(scalar)))
            });
            agent.values.extend(scalars);
            self.shared.spawned.push(agent);
        }
        while self.advance()? {}
        self.check_end()
    }

    /// Lets somebody go on; whether anybody is left.
    fn advance(&mut self) -> Result<bool, ScheduleFault> {
        self.take_spawned();
        let lands = self.shared.timing == Timing::Random && self.shared.random.below(4) == 0;
        if lands && self.land_one()? {
            return Ok(true);
        }
        let events = self.shared.events;
        let can_go_on = |agent: &Agent| {
            !agent.frames.is_empty() && agent.blocked.as_ref().is_none_or(|(since, _)| *since != events)
        };
        let ready: Vec<usize> = (0..self.agents.len()).filter(|&i| can_go_on(&self.agents[i])).collect();
        let total: usize = ready.iter().map(|&i| self.weights[i]).sum();
        if total > 0 {
            let mut ticket = self.shared.random.below(total);
            let chosen = ready.into_iter().find(|&i| {
                let own = ticket < self.weights[i];
                ticket = ticket.saturating_sub(self.weights[i]);
                own
            });
            self.step(chosen.expect("a ticket belongs to an agent"))?;
            return Ok(true);
        }
        if self.agents.iter().all(|agent| agent.frames.is_empty()) {
            return Ok(false);
        }
        if self.land_one()? { Ok(true) } else { Err(self.deadlock()) }
    }

    fn take_spawned(&mut self) {
        for agent in std::mem::take(&mut self.shared.spawned) {
            self.agents.push(agent);
            // Some agents get far before others in some runs.
            let weight = 1 << (2 * self.shared.random.below(4));
            self.weights.push(weight);
        }
        self.weights.truncate(self.agents.len());
    }

    /// One of the loads lands, if there are any.
    fn land_one(&mut self) -> Result<bool, ScheduleFault> {
        if self.shared.loads.is_empty() {
            return Ok(false);
        }
        let which = self.shared.random.below(self.shared.loads.len());
        let load = self.shared.loads.remove(which);
        // Any agent will do: the stage and the barrier are the load's.
        let agent = &mut self.agents[0];
        let landed = Cx { shared: &mut self.shared, agent }.land(load);
        landed.map(|()| true).map_err(|what| ScheduleFault(format!("a load lands: {what}")))
    }

    /// The next operation of an agent, or the end of its block.
    fn step(&mut self, which: usize) -> Result<(), ScheduleFault> {
        let agent = &mut self.agents[which];
        let frame = agent.frames.last().expect("an agent that goes on has a block");
        let (block, next, depth) = (frame.block, frame.next, agent.frames.len());
        agent.blocked = None;
        let Some(op) = agent.position() else {
            agent.frames.clear();
            let cta = &mut self.shared.ctas[agent.cta];
            if agent.role != AgentRole::AllWarps {
                cta.running -= 1;
            }
            self.shared.events += 1;
            return self.check_end_of(which);
        };
        let mut cx = Cx { shared: &mut self.shared, agent };
        let stepped = match block.ops.get(next) {
            Some(op) => simulator(&op.kind).run(&mut cx, op),
            None => simulator(&op.kind).end_block(&mut cx, op),
        };
        let agent = &mut self.agents[which];
        match stepped {
            Ok(Step::Next) => {
                debug_assert!(agent.frames.len() <= depth);
                agent.frames.last_mut().expect("the block of the operation").next += 1;
                Ok(())
            }
            Ok(Step::Entered | Step::Blocked) => Ok(()),
            Err(what) => {
                let text = self.shared.names.op(self.shared.func, op);
                Err(ScheduleFault(format!("{}: `{text}` {what}", self.name(&self.agents[which]))))
            }
        }
    }

    /// The positions of all agents that wait.
    fn deadlock(&self) -> ScheduleFault {
        let waiting = self.agents.iter().filter(|agent| !agent.frames.is_empty());
        let roles = waiting.filter(|agent| !agent.forked).map(|agent| {
            let op = agent.position().map(|op| self.shared.names.op(self.shared.func, op));
            let on = agent.blocked.as_ref().map(|(_, on)| on.as_str()).unwrap_or_default();
            format!("\n{}: `{}` waits for {on}", self.name(agent), op.unwrap_or_default())
        });
        ScheduleFault(format!("deadlock{}", roles.collect::<String>()))
    }

    /// An agent by its role, and its block if there are several.
    fn name(&self, agent: &Agent) -> String {
        if self.shared.ctas.len() > 1 {
            format!("block {}, {}", agent.cta, agent.name())
        } else {
            agent.name()
        }
    }

    /// What an agent must not leave behind.
    fn check_end_of(&self, which: usize) -> Result<(), ScheduleFault> {
        let agent = &self.agents[which];
        let fault = |what: String| Err(ScheduleFault(format!("{}: ends {what}", self.name(agent))));
        if let Some(dot) = agent.dots.get(agent.complete_dots) {
            let text = self.shared.names.op(self.shared.func, dot.op);
            return fault(format!("while `{text}` is in flight"));
        }
        if agent.stores_in_flight && agent.role != AgentRole::AllWarps {
            return fault("while TMA stores read shared memory".into());
        }
        Ok(())
    }

    /// What a block must not leave behind: every load has been waited for.
    fn check_end(&self) -> Result<(), ScheduleFault> {
        for (cta, state) in self.shared.ctas.iter().enumerate() {
            for (&buffer, stages) in &state.buffers {
                for (stage, state) in stages.iter().enumerate() {
                    let known = |half| {
                        let entry = ClockEntry::Stage { cta, buffer, stage, half };
                        self.agents.iter().map(|agent| agent.clock.get(entry)).max().unwrap_or(0)
                    };
                    if let Some(load) = state.load_without_wait(known) {
                        let text = self.shared.names.op(self.shared.func, load);
                        return Err(ScheduleFault(format!(
                            "nobody has waited for `{text}` when the block ends"
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}
