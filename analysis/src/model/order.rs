//! Brings the operations of a file into an order in which each is behind those whose results it reads.

use std::collections::BTreeMap;

use super::file::Entry;

/// Places of operations in the file.
pub(super) struct Ordered {
    /// In order, without those of a cycle and those that need them.
    pub(super) indices: Vec<usize>,
    /// Those of one cycle, each reading from the one before it, the first from the last; none where there is no cycle.
    pub(super) cycle: Vec<usize>,
}

/// Those that read nothing that is still to be made come first, and of those the first in the file.
/// Nothing waits for what is `given`.
pub(super) fn sorted(entries: &[Entry], given: &[&str]) -> Ordered {
    let mut makers = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        for output in &entry.outputs {
            // A second maker is a mistake that the graph reports.
            makers.entry(output.as_str()).or_insert(index);
        }
    }
    let needs = |index: usize| {
        let inputs = entries[index].inputs.iter();
        let made = inputs.filter(|input| !given.contains(&input.as_str()));
        made.filter_map(|input| makers.get(input.as_str()).copied()).collect::<Vec<_>>()
    };
    let needed = (0..entries.len()).map(needs).collect::<Vec<_>>();
    let mut done = vec![false; entries.len()];
    let mut indices = Vec::with_capacity(entries.len());
    let ready = |done: &[bool]| {
        (0..done.len()).find(|&index| !done[index] && needed[index].iter().all(|&need| done[need]))
    };
    while let Some(index) = ready(&done) {
        done[index] = true;
        indices.push(index);
    }
    Ordered { indices, cycle: cycle(&needed, &done) }
}

/// Each of what is left needs something that is left: going back from need to need leads into a cycle.
fn cycle(needed: &[Vec<usize>], done: &[bool]) -> Vec<usize> {
    let Some(mut index) = done.iter().position(|done| !done) else { return Vec::new() };
    let mut path: Vec<usize> = Vec::new();
    loop {
        if let Some(begin) = path.iter().position(|&visited| visited == index) {
            let mut cycle = path.split_off(begin);
            cycle.reverse();
            return cycle;
        }
        path.push(index);
        let Some(&next) = needed[index].iter().find(|&&need| !done[need]) else { return Vec::new() };
        index = next;
    }
}
