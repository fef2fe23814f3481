//! Groups of operations that become one kernel each.

use std::collections::BTreeMap;

use crate::cost::Context;
use crate::graph::{OpId, OpKind, TensorId};
use crate::kind::Pattern;

/// What rules look at in a group.
pub(super) struct Profile {
    /// The pattern that spreads the whole group over programs: the most demanding of its operations'.
    pub(super) pattern: Pattern,
    /// The operation that it is of.
    pub(super) lead: OpId,
    /// The elements of a row that are needed at once, the longest; of an attention, of a head.
    pub(super) row: u64,
    /// Registers of a thread without accumulators.
    pub(super) live: u32,
    /// Registers that accumulators take.
    pub(super) accumulators: u32,
    /// Operations, without free views.
    pub(super) ops: usize,
    /// Row and column reductions.
    pub(super) reductions: usize,
    /// Kernels that go over the input one after the other.
    pub(super) passes: u32,
    /// Products and attentions.
    pub(super) heavy: usize,
    /// Whether something is computed before the lead, in its programs.
    pub(super) has_prologue: bool,
    /// The operations.
    pub(super) members: Vec<OpId>,
}

impl Profile {
    /// Of operations in the order of the graph; at least one.
    pub(super) fn of(cx: &Context<'_>, members: &[OpId]) -> Profile {
        let mut members = members.to_vec();
        members.sort();
        let mut profile = Profile {
            pattern: Pattern::View,
            lead: members[0],
            row: 0,
            live: 0,
            accumulators: 0,
            ops: members.len(),
            reductions: 0,
            passes: 1,
            heavy: 0,
            has_prologue: false,
            members: Vec::new(),
        };
        for &id in &members {
            let op = cx.graph.op(id);
            let pattern = op.pattern();
            if pattern > profile.pattern {
                (profile.pattern, profile.lead) = (pattern, id);
            }
            profile.reductions +=
                usize::from(matches!(pattern, Pattern::RowReduction | Pattern::ColumnReduction));
            profile.heavy += usize::from(matches!(pattern, Pattern::Matmul | Pattern::Attention));
            let OpKind::Known(kind) = op.kind else { continue };
            profile.live += kind.live;
            profile.passes = profile.passes.max(kind.pass_count());
            profile.accumulators = profile.accumulators.max(kind.accumulators);
            if matches!(pattern, Pattern::RowReduction | Pattern::Attention) {
                profile.row = profile.row.max(kind.reduced_row(&cx.graph.operands(op)));
            }
        }
        let needed = needed_by(cx, profile.lead, &members);
        profile.has_prologue = needed.iter().any(|&id| cx.graph.op(id).pattern() != Pattern::View);
        profile.members = members;
        profile
    }

    /// Whether results reach the lead, and not only what follows it.
    pub(super) fn lead_needs(&self, cx: &Context<'_>, results: &[TensorId]) -> bool {
        let mut readers = needed_by(cx, self.lead, &self.members);
        readers.push(self.lead);
        let read =
            |result: &TensorId| cx.graph.readers(*result).iter().any(|reader| readers.contains(reader));
        results.iter().any(read)
    }
}

/// Those of some operations whose results one of them needs, directly or through others.
fn needed_by(cx: &Context<'_>, op: OpId, members: &[OpId]) -> Vec<OpId> {
    let mut needed: Vec<OpId> = Vec::new();
    let mut open = vec![op];
    while let Some(op) = open.pop() {
        let makers = cx.graph.op(op).inputs.iter().filter_map(|&input| cx.graph.producer(input));
        for maker in makers.filter(|maker| members.contains(maker)) {
            if !needed.contains(&maker) {
                needed.push(maker);
                open.push(maker);
            }
        }
    }
    needed
}

/// All operations but free views, each in one group.
pub(super) struct Groups {
    /// Operations of each group, in the order of the graph. Merged ones are empty.
    members: Vec<Vec<OpId>>,
    /// The group of each operation.
    indices: BTreeMap<OpId, usize>,
}

impl Groups {
    /// Each operation in a group of its own.
    pub(super) fn single(cx: &Context<'_>) -> Groups {
        let ops = cx.graph.op_ids().filter(|&id| !cx.graph.op(id).is_free_view());
        let members = ops.map(|id| vec![id]).collect::<Vec<_>>();
        let indices = members.iter().enumerate().map(|(index, members)| (members[0], index)).collect();
        Groups { members, indices }
    }

    /// The groups, in the order of their first operations.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[OpId]> {
        self.members.iter().filter(|members| !members.is_empty()).map(Vec::as_slice)
    }

    /// The group of an operation.
    pub(super) fn of(&self, op: OpId) -> Option<usize> {
        self.indices.get(&op).copied()
    }

    /// The operations of a group.
    pub(super) fn members(&self, group: usize) -> &[OpId] {
        &self.members[group]
    }

    /// Makes one group of two.
    pub(super) fn merge(&mut self, first: usize, second: usize) {
        let added = std::mem::take(&mut self.members[second]);
        self.indices.extend(added.iter().map(|&op| (op, first)));
        self.members[first].extend(added);
        self.members[first].sort();
    }

    /// Pairs of groups of which the second reads what the first makes.
    pub(super) fn pairs(&self, cx: &Context<'_>) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (first, members) in self.members.iter().enumerate() {
            for reader in self.readers(cx, members) {
                if reader != first && !pairs.contains(&(first, reader)) {
                    pairs.push((first, reader));
                }
            }
        }
        pairs
    }

    fn readers(&self, cx: &Context<'_>, members: &[OpId]) -> Vec<usize> {
        let outputs = members.iter().flat_map(|&op| &cx.graph.op(op).outputs);
        let readers = outputs.flat_map(|&output| cx.graph.readers(output));
        readers.filter_map(|reader| self.of(reader)).collect()
    }

    /// The first operation of a group that stands on a way from `first` to `second`, which could not be one kernel then.
    pub(super) fn stands_between(&self, cx: &Context<'_>, first: usize, second: usize) -> Option<OpId> {
        let mut visited = vec![first, second];
        // A group with the one that a way through it begins at.
        let begins = self.readers(cx, &self.members[first]).into_iter();
        let mut open = begins.map(|group| (group, group)).collect::<Vec<_>>();
        while let Some((group, begin)) = open.pop() {
            if visited.contains(&group) {
                continue;
            }
            visited.push(group);
            for reader in self.readers(cx, &self.members[group]) {
                if reader == second {
                    return self.members[begin].first().copied();
                }
                open.push((reader, begin));
            }
        }
        None
    }
}
