//! Agents: who runs operations in order. A producer is one agent, each consumer warpgroup is one, and so are all warps of a block
//! where they have no roles.
//!
//! Every warpgroup holds whole tiles and computes all of them: what one warpgroup holds of a tile does not matter for waits and
//! arrivals, and stores of equal values may be repeated.

use std::collections::HashMap;
use std::rc::Rc;

use super::clock::{ClockEntry, VectorClock};
use super::copies::{CopiedElement, CopyState, SlotIndex, TileInSlot};
use super::machine::Cx;
use super::number::Number;
use super::tile::TileValue;
use super::wgmma::IssuedDot;
use tile_ir::ir::{Block, Op, Value};

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is done.
    Next,
    /// One of its blocks runs now.
    Entered,
    /// It waits; the agent says for what.
    Blocked,
}

/// Which warps an agent stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentRole {
    AllWarps,
    Producer,
    Consumer { warpgroup: usize },
}

/// A pipeline state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeState {
    pub stage: usize,
    pub phase: u64,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Datum {
    Tile(Rc<TileValue>),
    Pipe(PipeState),
    /// The result of an asynchronous dot, by its index among the issued ones.
    InFlight(usize),
    /// A slot that threads copy to, a tile in one, and copies that are prepared.
    Slot(SlotIndex),
    TileInSlot(Rc<TileInSlot>),
    Copies(Rc<Vec<CopiedElement>>),
    /// A tile that nobody may read.
    Poison,
}

/// A block that runs.
pub struct BlockFrame<'f> {
    pub block: &'f Block,
    pub next: usize,
    /// The loop variable, or how often the block has run.
    pub iteration: i128,
}

pub struct Agent<'f> {
    pub id: usize,
    pub cta: usize,
    pub role: AgentRole,
    pub values: HashMap<Value, Datum>,
    pub frames: Vec<BlockFrame<'f>>,
    /// The index and the grid coordinates of the current program.
    pub index: u32,
    pub program: [u32; 3],
    /// The program behind this one, once it is known.
    pub next_index: Option<u32>,
    pub dots: Vec<IssuedDot<'f>>,
    /// How many of the dots are complete.
    pub complete_dots: usize,
    pub clock: VectorClock,
    /// Reads of shared memory by lanes of warps that have not met since.
    pub open_reads: Vec<u64>,
    /// Whether TMA stores may still read shared memory.
    pub stores_in_flight: bool,
    /// Whether the roles of the block have been started.
    pub forked: bool,
    /// The generation of a named barrier that it has arrived at and waits for.
    pub named_wait: Option<u64>,
    /// How many published work tiles it has taken.
    pub taken: usize,
    /// How often it has run each change of memory that must be done once.
    pub changes: HashMap<usize, usize>,
    /// Offsets of this program, while those of its peer are computed.
    pub offsets: Vec<i128>,
    pub copies: CopyState,
    /// What it waits for, and what had happened when it began to.
    pub blocked: Option<(u64, String)>,
}

impl<'f> Agent<'f> {
    pub fn new(id: usize, cta: usize, role: AgentRole, block: &'f Block) -> Agent<'f> {
        Agent {
            id,
            cta,
            role,
            values: HashMap::new(),
            frames: vec![BlockFrame { block, next: 0, iteration: 0 }],
            index: 0,
            program: [0; 3],
            next_index: None,
            dots: vec![],
            complete_dots: 0,
            clock: VectorClock::default(),
            open_reads: vec![],
            stores_in_flight: false,
            forked: false,
            named_wait: None,
            taken: 0,
            changes: HashMap::new(),
            offsets: vec![],
            copies: CopyState::default(),
            blocked: None,
        }
    }

    /// The same values in another role.
    pub fn fork(&self, id: usize, role: AgentRole, block: &'f Block) -> Agent<'f> {
        Agent {
            values: self.values.clone(),
            clock: self.clock.clone(),
            index: self.index,
            program: self.program,
            ..Agent::new(id, self.cta, role, block)
        }
    }

    pub fn name(&self) -> String {
        match self.role {
            AgentRole::AllWarps => "all warps".to_string(),
            AgentRole::Producer => "producer".into(),
            AgentRole::Consumer { warpgroup } => format!("consumer warpgroup {warpgroup}"),
        }
    }

    /// The operation that it is at: the next one, or the one whose block has ended.
    pub fn position(&self) -> Option<&'f Op> {
        let at = |frame: &BlockFrame<'f>| frame.block.ops.get(frame.next);
        let last = self.frames.last()?;
        at(last).or_else(|| at(self.frames.get(self.frames.len().checked_sub(2)?)?))
    }

    /// An event of this agent.
    pub fn tick(&mut self) -> u64 {
        self.clock.tick(ClockEntry::Agent(self.id))
    }

    /// Begins a block with these arguments.
    pub fn enter(&mut self, block: &'f Block, args: Vec<Datum>, iteration: i128) -> Step {
        self.values.extend(block.args.iter().copied().zip(args));
        self.frames.push(BlockFrame { block, next: 0, iteration });
        Step::Entered
    }

    /// Begins the running block again.
    pub fn repeat(&mut self, block: &'f Block, args: Vec<Datum>, iteration: i128) -> Step {
        self.frames.pop();
        self.enter(block, args, iteration)
    }

    fn is_in(&self, block: &Block) -> bool {
        std::ptr::eq(self.frame().block, block)
    }

    /// Begins a block for the first time, or again.
    pub fn enter_or_repeat(&mut self, block: &'f Block, args: Vec<Datum>) -> Step {
        if self.is_in(block) { self.repeat(block, args, 0) } else { self.enter(block, args, 0) }
    }

    pub fn leave_if_in(&mut self, block: &Block) -> Step {
        if self.is_in(block) { self.leave() } else { Step::Next }
    }

    /// Leaves the running block.
    pub fn leave(&mut self) -> Step {
        self.frames.pop();
        Step::Next
    }

    pub fn frame(&self) -> &BlockFrame<'f> {
        self.frames.last().expect("an agent that runs has a block")
    }
}

impl<'f> Cx<'_, 'f> {
    pub fn datum(&self, value: Value) -> Result<Datum, String> {
        let found = self.agent.values.get(&value).cloned();
        found.ok_or_else(|| format!("{} has no value here", self.shared.names.name(value)))
    }

    pub fn data(&self, values: &[Value]) -> Result<Vec<Datum>, String> {
        values.iter().map(|&value| self.datum(value)).collect()
    }

    /// A tile or scalar in registers.
    pub fn tile(&self, value: Value) -> Result<Rc<TileValue>, String> {
        let name = || self.shared.names.name(value);
        match self.datum(value)? {
            Datum::Tile(tile) => Ok(tile),
            Datum::TileInSlot(of) => Ok(Rc::new(self.tile_in_slot(value, &of)?)),
            Datum::Pipe(_) => Err(format!("{} is a pipeline state", name())),
            Datum::Slot(_) | Datum::Copies(_) => Err(format!("{} is no tile", name())),
            Datum::InFlight(dot) => {
                let dot = self.shared.names.op(self.shared.func, self.agent.dots[dot].op);
                Err(format!("reads {}, the result of `{dot}`, without a dot_wait behind it", name()))
            }
            Datum::Poison => Err(format!("reads {}, which is poison", name())),
        }
    }

    pub fn pipe(&self, value: Value) -> Result<PipeState, String> {
        match self.datum(value)? {
            Datum::Pipe(state) => Ok(state),
            Datum::Tile(_)
            | Datum::InFlight(_)
            | Datum::Slot(_)
            | Datum::TileInSlot(_)
            | Datum::Copies(_)
            | Datum::Poison => Err(format!("{} is no pipeline state", self.shared.names.name(value))),
        }
    }

    pub fn define(&mut self, op: &Op, results: Vec<TileValue>) -> Result<Step, String> {
        let data = results.into_iter().map(|tile| Datum::Tile(Rc::new(tile)));
        self.define_data(op, data.collect())
    }

    pub fn define_number(&mut self, op: &Op, number: Number) -> Result<Step, String> {
        let dtype = self.shared.func.ty(op.results[0]).dtype;
        self.define(op, vec![TileValue::scalar(dtype, number)])
    }

    pub fn define_data(&mut self, op: &Op, results: Vec<Datum>) -> Result<Step, String> {
        self.agent.values.extend(op.results.iter().copied().zip(results));
        Ok(Step::Next)
    }

    /// Leaves the running block of an operation, whose results are what it yields.
    pub fn leave_with_yields(&mut self, op: &Op) -> Result<Step, String> {
        let yields = self.data(&self.agent.frame().block.yields)?;
        self.define_data(op, yields)?;
        Ok(self.agent.leave())
    }

    pub fn blocked(&mut self, on: impl Into<String>) -> Result<Step, String> {
        self.agent.blocked = Some((self.shared.events, on.into()));
        Ok(Step::Blocked)
    }
}
