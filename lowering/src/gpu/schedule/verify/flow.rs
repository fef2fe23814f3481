//! What holds at each point of a role: which barriers were waited on, which stages were released, which dots are in flight.
//!
//! Facts are about a buffer or a barrier and a pipeline state, which is an SSA value: where a loop carries a state, what is known of
//! the state that it begins with and of the one that an iteration hands on is known of the argument.

use std::collections::{BTreeMap, BTreeSet};

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::Stage;

/// A buffer or barrier, and a pipeline state.
pub type StageKey = (Value, Value);

pub fn stage_key(stage: Stage) -> StageKey {
    (stage.buffer, stage.pipe)
}

/// The number of dots behind one that is complete: more than are ever in flight.
const COMPLETE: u32 = u32::MAX;

/// An operation that a fact is of.
#[derive(Clone, Copy)]
pub struct OpRef<'f>(pub &'f Op);

impl PartialEq for OpRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// What holds at a point.
#[derive(Clone, Default, PartialEq)]
pub struct FlowState<'f> {
    /// Barriers that were waited on, on all ways to here.
    pub waited: BTreeSet<StageKey>,
    /// Barriers that were arrived at, on some way to here, each with whether only under a condition.
    pub released: BTreeMap<StageKey, bool>,
    /// Bytes that are expected at a barrier and not loaded yet.
    pub expected: BTreeMap<StageKey, (i64, OpRef<'f>)>,
    /// Results of dots that were not waited for, each with the number of dots that were issued behind it at least.
    pub results: BTreeMap<Value, u32>,
    /// The same for stages that dots in flight read.
    pub reads: BTreeMap<StageKey, (u32, OpRef<'f>)>,
    /// Stages that lanes of a warp may still read.
    pub lane_reads: BTreeMap<StageKey, OpRef<'f>>,
    /// A TMA store that may still read shared memory.
    pub store: Option<OpRef<'f>>,
    /// Who sees the copies to slots that were waited for.
    pub copies: Visibility,
}

/// Who sees what threads have copied to shared memory and waited for.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Each thread its own.
    Threads,
    /// Each thread by both proxies.
    Fenced,
    /// All warps, and warpgroups in their dots.
    #[default]
    Warpgroups,
}

impl<'f> FlowState<'f> {
    /// A dot is issued, and all others are behind it by one more.
    pub fn issue(&mut self) {
        let results = self.results.values_mut();
        results.chain(self.reads.values_mut().map(|(behind, _)| behind)).for_each(|behind| {
            *behind = behind.saturating_add(1);
        });
    }

    /// All dots but the last ones issued are complete.
    pub fn complete(&mut self, pending: u32) {
        self.results.values_mut().filter(|behind| **behind >= pending).for_each(|behind| *behind = COMPLETE);
        self.reads.retain(|_, (behind, _)| *behind < pending);
    }

    /// What is known of a value, as if it were known of another one.
    fn of_value(&self, old: Value, new: Value) -> FlowState<'f> {
        let renamed = |key: &StageKey| (key.1 == old).then_some((key.0, new));
        FlowState {
            waited: self.waited.iter().filter_map(renamed).collect(),
            released: self.released.iter().filter_map(|(key, &own)| Some((renamed(key)?, own))).collect(),
            expected: BTreeMap::new(),
            results: self.results.get(&old).map(|&behind| (new, behind)).into_iter().collect(),
            reads: self.reads.iter().filter_map(|(key, &own)| Some((renamed(key)?, own))).collect(),
            lane_reads: self.lane_reads.iter().filter_map(|(key, &own)| Some((renamed(key)?, own))).collect(),
            store: None,
            copies: Visibility::default(),
        }
    }

    fn extend(&mut self, other: FlowState<'f>) {
        self.waited.extend(other.waited);
        self.released.extend(other.released);
        self.results.extend(other.results);
        self.reads.extend(other.reads);
        self.lane_reads.extend(other.lane_reads);
    }

    /// What is known of `old` values is known of `new` ones too.
    pub fn copy(&mut self, old: &[Value], new: &[Value]) {
        let pairs = old.iter().zip(new);
        let known: Vec<FlowState> = pairs.map(|(&old, &new)| self.of_value(old, new)).collect();
        known.into_iter().for_each(|known| self.extend(known));
    }

    /// Forgets what is known of these values.
    pub fn forget(&mut self, values: &BTreeSet<Value>) {
        let stays = |key: &StageKey| !values.contains(&key.1);
        self.waited.retain(stays);
        self.released.retain(|key, _| stays(key));
        self.expected.retain(|key, _| stays(key));
        self.results.retain(|value, _| !values.contains(value));
        self.reads.retain(|key, _| stays(key));
        self.lane_reads.retain(|key, _| stays(key));
    }

    /// At the end of a block: its own values are gone, and what it yields goes by these names.
    pub fn leave(&mut self, block: &Block, names: &[Value]) {
        let pairs = block.yields.iter().zip(names);
        let known: Vec<FlowState> = pairs.map(|(&old, &new)| self.of_value(old, new)).collect();
        self.forget(&block.defined().into_iter().collect());
        known.into_iter().for_each(|known| self.extend(known));
    }

    /// What holds where two ways meet.
    pub fn merge(&mut self, other: &FlowState<'f>) {
        self.waited.retain(|key| other.waited.contains(key));
        for (&key, &conditional) in &other.released {
            *self.released.entry(key).or_insert(conditional) |= conditional;
        }
        for (&value, &behind) in &other.results {
            let own = self.results.entry(value).or_insert(behind);
            *own = behind.min(*own);
        }
        for (&key, &(behind, op)) in &other.reads {
            let own = self.reads.entry(key).or_insert((behind, op));
            own.0 = behind.min(own.0);
        }
        for (&key, &op) in &other.lane_reads {
            self.lane_reads.entry(key).or_insert(op);
        }
        for (&key, &expected) in &other.expected {
            self.expected.entry(key).or_insert(expected);
        }
        self.store = self.store.or(other.store);
        self.copies = self.copies.min(other.copies);
    }
}
