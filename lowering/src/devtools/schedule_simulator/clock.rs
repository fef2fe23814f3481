//! Vector clocks: what has happened before an event, by what waits and arrivals guarantee and not by the order of one run.

use std::collections::BTreeMap;

use tile_ir::ir::Value;

/// Whose events are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClockEntry {
    /// The steps of an agent.
    Agent(usize),
    /// The loads into a half of a stage.
    Stage { cta: usize, buffer: Value, stage: usize, half: usize },
}

/// The last event of each kind that is known to have happened.
#[derive(Clone, Default, Debug)]
pub struct VectorClock {
    entries: BTreeMap<ClockEntry, u64>,
}

impl VectorClock {
    pub fn get(&self, entry: ClockEntry) -> u64 {
        self.entries.get(&entry).copied().unwrap_or(0)
    }

    pub fn set(&mut self, entry: ClockEntry, count: u64) {
        self.entries.insert(entry, count);
    }

    pub fn tick(&mut self, entry: ClockEntry) -> u64 {
        let count = self.entries.entry(entry).or_default();
        *count += 1;
        *count
    }

    /// Learns what another clock knows.
    pub fn join(&mut self, other: &VectorClock) {
        for (&entry, &count) in &other.entries {
            let own = self.entries.entry(entry).or_default();
            *own = count.max(*own);
        }
    }
}
