//! Which operations should be one kernel.
//!
//! Every operation begins as a group of its own. Of the pairs of groups of which one reads what the other makes, the one that saves the
//! most time becomes one group, as long as its verdict is to fuse ([`verdict`]) and nothing forbids it ([`obstacle`]); of those that save
//! about as much, the one with the highest score. What is left are the kernels; pairs of them that stay apart are reported with their
//! reasons.

mod group;
pub mod obstacle;
mod online_softmax;
pub mod verdict;

use std::collections::BTreeMap;

use serde::Serialize;

use self::group::Groups;
use self::obstacle::{Obstacle, ObstacleKind};
use self::verdict::{Decision, Verdict};
use crate::cost::{Bound, Context, Estimate};
use crate::device::Device;
use crate::graph::{Graph, OpId};
use crate::kind::Pattern;
use crate::measurements::Cache;
use crate::model::Expectation;

/// Pairs that save so much of what the best one saves are as good as it: predictions are not more exact.
const ABOUT_THE_MOST: f64 = 0.95;

/// What to analyze, where.
#[derive(Clone, Copy, Debug)]
pub struct Analyzer<'a> {
    cx: Context<'a>,
    documents: &'a [Expectation],
}

/// An operation on its own.
#[derive(Clone, Debug, Serialize)]
pub struct OpReport {
    /// Its name.
    pub name: String,
    /// Its kind, as the graph names it.
    pub kind: String,
    /// How it is spread over programs.
    pub pattern: &'static str,
    /// What it makes: name, shape and type.
    pub outputs: Vec<String>,
    /// What it costs, and its time.
    pub estimate: Estimate,
    /// Operations for each byte.
    pub intensity: f64,
    /// What its time is spent on.
    pub bound: Bound,
}

/// Operations that are, or could be, one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The names of the operations, in order.
    pub ops: Vec<String>,
    /// The same by the kernels that they are in otherwise.
    pub kernels: Vec<Vec<String>>,
    /// The results that would not leave the kernel, or that are read where they are made.
    pub through: Vec<String>,
    /// Whether they should be.
    pub verdict: Verdict,
}

impl Candidate {
    /// The operations' names with ` + ` between them, and ` -> ` between kernels of more than one.
    pub fn name(&self) -> String {
        let is_single = self.kernels.iter().all(|kernel| kernel.len() == 1);
        let kernels = self.kernels.iter().map(|kernel| kernel.join(" + ")).collect::<Vec<_>>();
        kernels.join(if is_single { " + " } else { " -> " })
    }
}

/// What a document expects of operations, and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What is expected.
    pub expected: Expectation,
    /// What was found; nothing where the graph has no such operations.
    pub found: Option<Candidate>,
}

/// An operation of an unknown kind.
#[derive(Clone, Debug, Serialize)]
pub struct UnknownOp {
    /// Its name.
    pub name: String,
    /// The kind that is not known.
    pub kind: String,
    /// Whether the shape of its result is that of its first input for want of a declaration.
    pub assumed_shape: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The graph.
    pub graph: String,
    /// The device.
    pub device: String,
    /// What was assumed of its cache.
    pub cache: Cache,
    /// Operations, each on its own.
    pub ops: Vec<OpReport>,
    /// All operations, each in a kernel of its own.
    pub separate: Estimate,
    /// All kernels that are left.
    pub fused: Estimate,
    /// What should be one kernel, what saves the most time first.
    pub fusions: Vec<Candidate>,
    /// Pairs of the kernels that are left, what would have saved the most time first.
    pub kept_separate: Vec<Candidate>,
    /// What documents expect.
    pub documents: Vec<Comparison>,
    /// What was not analyzed.
    pub unknown: Vec<UnknownOp>,
}

impl<'a> Analyzer<'a> {
    /// Analyzes a graph on a device, its cache cold.
    pub fn new(graph: &'a Graph, device: &'a Device) -> Analyzer<'a> {
        Analyzer { cx: Context { graph, device, cache: Cache::Cold }, documents: &[] }
    }

    /// Says what is in the cache.
    pub fn cache(mut self, cache: Cache) -> Analyzer<'a> {
        self.cx.cache = cache;
        self
    }

    /// Says what documents expect, to put it beside what is found.
    pub fn documents(mut self, documents: &'a [Expectation]) -> Analyzer<'a> {
        self.documents = documents;
        self
    }

    /// Analyzes.
    pub fn run(&self) -> Analysis {
        let cx = &self.cx;
        let groups = self.merged();
        let single = Groups::single(cx);
        let ops = single.iter().flatten().copied().collect::<Vec<_>>();
        let mut fused = Estimate::default();
        for members in groups.iter() {
            fused += cx.fused(members);
        }
        let mut fusions =
            groups.iter().filter(|members| members.len() > 1).map(|ops| self.group(ops)).collect::<Vec<_>>();
        let mut kept_separate = groups
            .pairs(cx)
            .into_iter()
            .map(|(first, second)| self.pair(&groups, first, second))
            .collect::<Vec<_>>();
        by_time_saved(&mut fusions);
        by_time_saved(&mut kept_separate);
        Analysis {
            graph: cx.graph.name().to_owned(),
            device: cx.device.name.clone(),
            cache: cx.cache,
            separate: cx.separate(&ops),
            ops: ops.iter().map(|&op| self.op(op)).collect(),
            fused,
            fusions,
            kept_separate,
            documents: self.documents.iter().map(|expected| self.compare(expected)).collect(),
            unknown: self.unknown(),
        }
    }

    /// The verdict on operations as one kernel, whatever the rest of the graph does; each is one kernel before.
    pub fn judge(&self, ops: &[OpId]) -> Candidate {
        let mut ops = ops.to_vec();
        ops.sort();
        let obstacles = self.obstacles_of(&ops);
        self.candidate(&ops.iter().map(std::slice::from_ref).collect::<Vec<_>>(), obstacles)
    }

    /// Groups, merged as long as that saves time.
    fn merged(&self) -> Groups {
        let cx = &self.cx;
        let mut groups = Groups::single(cx);
        for chain in online_softmax::chains(cx) {
            let parts = chain.iter().map(std::slice::from_ref).collect::<Vec<_>>();
            let verdict = Verdict::of(cx, &parts, online_softmax::obstacles(cx, &chain));
            if verdict.decision == Decision::Fuse {
                merge_all(&mut groups, &chain);
            }
        }
        let mut judged = BTreeMap::new();
        while let Some((first, second)) = self.best_pair(&groups, &mut judged) {
            groups.merge(first, second);
            let is_new = |group| group == first || group == second;
            judged.retain(|&(first, second), _| !is_new(first) && !is_new(second));
        }
        groups
    }

    /// Of the pairs to fuse that save about the most time, the one with the highest score. What is judged already is not judged again.
    fn best_pair(
        &self,
        groups: &Groups,
        judged: &mut BTreeMap<(usize, usize), Verdict>,
    ) -> Option<(usize, usize)> {
        let mut found = Vec::new();
        for pair in groups.pairs(&self.cx) {
            let parts = [groups.members(pair.0), groups.members(pair.1)];
            let judge = || Verdict::of(&self.cx, &parts, obstacle::between(&self.cx, parts[0], parts[1]));
            let verdict = judged.entry(pair).or_insert_with(judge);
            let is_to_fuse = verdict.decision == Decision::Fuse;
            if is_to_fuse && groups.stands_between(&self.cx, pair.0, pair.1).is_none() {
                found.push((verdict.saving.seconds, verdict.score, pair));
            }
        }
        let most = found.iter().map(|(saved, ..)| *saved).fold(0.0, f64::max);
        found.retain(|(saved, ..)| *saved >= most * ABOUT_THE_MOST);
        // Of equal scores, the first in the order of the graph.
        let best = found.iter().map(|(_, score, _)| *score).fold(0.0, f64::max);
        found.iter().find(|(_, score, _)| *score >= best).map(|(.., pair)| *pair)
    }

    fn obstacles_between(&self, groups: &Groups, first: usize, second: usize) -> Vec<Obstacle> {
        let cx = &self.cx;
        let mut obstacles = obstacle::between(cx, groups.members(first), groups.members(second));
        if let Some(op) = groups.stands_between(cx, first, second) {
            let words = format!("`{}` stands between them", cx.graph.op(op).name);
            obstacles.push(Obstacle { kind: ObstacleKind::Between, words });
        }
        obstacles
    }

    /// What forbids one kernel, operation by operation in their order.
    fn obstacles_of(&self, ops: &[OpId]) -> Vec<Obstacle> {
        let cx = &self.cx;
        if online_softmax::is_chain(cx, ops) {
            return online_softmax::obstacles(cx, ops);
        }
        let mut obstacles = Vec::new();
        for index in 1..ops.len() {
            if obstacle::links(cx, &ops[..index], &ops[index..=index]).is_empty() {
                continue;
            }
            for obstacle in obstacle::between(cx, &ops[..index], &ops[index..=index]) {
                if !obstacles.contains(&obstacle) {
                    obstacles.push(obstacle);
                }
            }
        }
        obstacles
    }

    fn group(&self, ops: &[OpId]) -> Candidate {
        let parts = ops.iter().map(std::slice::from_ref).collect::<Vec<_>>();
        self.candidate(&parts, Vec::new())
    }

    fn pair(&self, groups: &Groups, first: usize, second: usize) -> Candidate {
        let obstacles = self.obstacles_between(groups, first, second);
        self.candidate(&[groups.members(first), groups.members(second)], obstacles)
    }

    fn candidate(&self, parts: &[&[OpId]], obstacles: Vec<Obstacle>) -> Candidate {
        let graph = self.cx.graph;
        let mut ops = parts.concat();
        ops.sort();
        let inside = ops.iter().flat_map(|&op| &graph.op(op).outputs);
        let names = |ops: &[OpId]| ops.iter().map(|&op| graph.op(op).name.clone()).collect::<Vec<_>>();
        let through = inside.filter(|&&made| graph.readers(made).iter().any(|reader| ops.contains(reader)));
        Candidate {
            through: through.map(|&made| graph.tensor(made).name.clone()).collect(),
            ops: names(&ops),
            kernels: parts.iter().map(|part| names(part)).collect(),
            verdict: Verdict::of(&self.cx, parts, obstacles),
        }
    }

    fn op(&self, id: OpId) -> OpReport {
        let graph = self.cx.graph;
        let op = graph.op(id);
        let outputs = op.outputs.iter().map(|&output| graph.tensor(output));
        let estimate = self.cx.fused(&[id]);
        OpReport {
            name: op.name.clone(),
            kind: op.kind_name.clone(),
            pattern: op.pattern().name(),
            outputs: outputs.map(|tensor| format!("{} {}", tensor.name, tensor.ty)).collect(),
            intensity: estimate.cost.intensity(),
            bound: estimate.time.bound(),
            estimate,
        }
    }

    fn compare(&self, expected: &Expectation) -> Comparison {
        let ids = expected.ops.iter().map(|name| self.cx.graph.find_op(name)).collect::<Option<Vec<_>>>();
        let found = ids.filter(|ids| !ids.is_empty()).map(|ids| self.judge(&ids));
        Comparison { expected: expected.clone(), found }
    }

    fn unknown(&self) -> Vec<UnknownOp> {
        let ops = self.cx.graph.op_ids().map(|id| self.cx.graph.op(id));
        let unknown = ops.filter(|op| op.pattern() == Pattern::Opaque);
        let report = |op: &crate::graph::Op| UnknownOp {
            name: op.name.clone(),
            kind: op.kind_name.clone(),
            assumed_shape: op.assumed,
        };
        unknown.map(report).collect()
    }
}

fn merge_all(groups: &mut Groups, ops: &[OpId]) {
    let Some(first) = ops.first().and_then(|&op| groups.of(op)) else { return };
    for &op in &ops[1..] {
        if let Some(other) = groups.of(op).filter(|&other| other != first) {
            groups.merge(first, other);
        }
    }
}

/// What saves the most time first; of equals, the order of the graph.
fn by_time_saved(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| b.verdict.saving.seconds.total_cmp(&a.verdict.saving.seconds));
}
