//! Which values share a layout, and how the layouts of classes of values relate.

use std::collections::HashSet;

use tile_ir::ir::layout_relation::{LayoutRelation, Reindex};
use tile_ir::ir::{Block, Func, Value};
use tile_ir::ops::Effect;

/// Which values share a layout, and how classes relate.
pub(in crate::gpu) struct LayoutGraph {
    /// Union-find over value indices; `None` for scalars and for cheap values that are recomputed.
    parent: Vec<usize>,
    cheap: Vec<bool>,
    pub(super) links: Vec<LayoutLink>,
}

/// A relation between the layouts of two values.
pub(super) struct LayoutLink {
    pub(super) operand: Value,
    pub(super) result: Value,
    pub(super) kind: LinkKind,
}

pub(super) enum LinkKind {
    View(Reindex),
    Reduce(Vec<usize>),
    Index(usize),
}

impl LayoutGraph {
    pub(super) fn new(func: &Func) -> LayoutGraph {
        let count = func.value_count();
        let mut graph =
            LayoutGraph { parent: (0..count).collect(), cheap: vec![false; count], links: vec![] };
        graph.mark_cheap(func, &func.body, &HashSet::new());
        let pinned = graph.pinned(func);
        graph.cheap.fill(false);
        graph.mark_cheap(func, &func.body, &pinned);
        graph.connect(func, &func.body);
        // Path compression: later finds take one step.
        graph.parent = (0..count).map(|index| graph.find(index)).collect();
        graph
    }

    /// Cheap values that need one layout after all: the operand of a store or reduction that takes nothing else, the
    /// operand of a reshape, whose layout does not always follow from the result's, and the table of a gather.
    fn pinned(&self, func: &Func) -> HashSet<Value> {
        let mut pinned = HashSet::new();
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            let tiles = || operation.operands().into_iter().filter(|&operand| !func.ty(operand).is_scalar());
            let anchored = tiles().any(|operand| !self.cheap[operand.index()]);
            let first = |pins: bool| if pins { tiles().take(1).collect() } else { vec![] };
            let pins: Vec<Value> = match operation.layout_relation(func, &op.results) {
                LayoutRelation::Reduce { .. } | LayoutRelation::Index { .. } => first(!anchored),
                LayoutRelation::Lanewise { .. } => first(op.results.is_empty() && !anchored),
                LayoutRelation::View(view) => first(!view.is_invertible()),
                // What lies anyhow has to lie somehow.
                LayoutRelation::Tied(groups) => {
                    tiles().filter(|operand| !groups.iter().flatten().any(|value| value == operand)).collect()
                }
                LayoutRelation::Dot { acc } => tiles().filter(|operand| Some(*operand) != acc).collect(),
                LayoutRelation::WarpGroup { .. } | LayoutRelation::Free => tiles().collect(),
                LayoutRelation::Source => vec![],
            };
            pinned.extend(pins);
        });
        pinned
    }

    /// Whether the value is recomputed in every layout that is asked for.
    pub(super) fn is_cheap(&self, value: Value) -> bool {
        self.cheap[value.index()]
    }

    pub(in crate::gpu) fn has_layout(&self, func: &Func, value: Value) -> bool {
        !func.ty(value).is_scalar() && !self.cheap[value.index()]
    }

    fn find(&self, mut index: usize) -> usize {
        while self.parent[index] != index {
            index = self.parent[index];
        }
        index
    }

    pub(in crate::gpu) fn class(&self, value: Value) -> usize {
        self.find(value.index())
    }

    fn unite(&mut self, a: Value, b: Value) {
        let (a, b) = (self.class(a), self.class(b));
        self.parent[b.max(a)] = a.min(b);
    }

    fn mark_cheap(&mut self, func: &Func, block: &Block, pinned: &HashSet<Value>) {
        for op in &block.ops {
            let operation = op.kind.operation();
            for nested in operation.blocks() {
                self.mark_cheap(func, nested, pinned);
            }
            let recomputable = match operation.layout_relation(func, &op.results) {
                LayoutRelation::Source => true,
                LayoutRelation::Lanewise { cheap } => cheap,
                LayoutRelation::View(view) => view.is_invertible(),
                LayoutRelation::Reduce { .. }
                | LayoutRelation::Index { .. }
                | LayoutRelation::Tied(_)
                | LayoutRelation::Dot { .. }
                | LayoutRelation::WarpGroup { .. }
                | LayoutRelation::Free => false,
            };
            let from_cheap = operation
                .operands()
                .iter()
                .all(|&operand| func.ty(operand).is_scalar() || self.cheap[operand.index()]);
            if recomputable && from_cheap && operation.effect() == Effect::Pure {
                for result in op.results.iter().filter(|result| !pinned.contains(result)) {
                    self.cheap[result.index()] = true;
                }
            }
        }
    }

    fn connect(&mut self, func: &Func, block: &Block) {
        for op in &block.ops {
            let operation = op.kind.operation();
            for nested in operation.blocks() {
                self.connect(func, nested);
            }
            let tiles = |values: Vec<Value>, graph: &LayoutGraph| -> Vec<Value> {
                values.into_iter().filter(|&value| graph.has_layout(func, value)).collect()
            };
            match operation.layout_relation(func, &op.results) {
                LayoutRelation::Source | LayoutRelation::WarpGroup { .. } | LayoutRelation::Free => {}
                LayoutRelation::Lanewise { .. } => {
                    let all = operation.operands().into_iter().chain(op.results.iter().copied()).collect();
                    self.unite_all(&tiles(all, self));
                }
                LayoutRelation::Tied(groups) => {
                    for group in groups {
                        self.unite_all(&tiles(group, self));
                    }
                }
                LayoutRelation::Dot { acc } => {
                    self.unite_all(&tiles(acc.into_iter().chain(op.results.iter().copied()).collect(), self));
                }
                LayoutRelation::View(view) => {
                    for operand in tiles(operation.operands(), self) {
                        let kind = LinkKind::View(view.clone());
                        self.links.push(LayoutLink { operand, result: op.results[0], kind });
                    }
                }
                LayoutRelation::Index { axis } => {
                    for (operand, result) in
                        tiles(operation.operands(), self).into_iter().zip(tiles(op.results.clone(), self))
                    {
                        self.links.push(LayoutLink { operand, result, kind: LinkKind::Index(axis) });
                    }
                }
                LayoutRelation::Reduce { axes } => {
                    let inputs = tiles(operation.operands(), self);
                    self.unite_all(&inputs);
                    let results = tiles(op.results.clone(), self);
                    self.unite_all(&results);
                    if let (Some(&operand), Some(&result)) = (inputs.first(), results.first()) {
                        self.links.push(LayoutLink { operand, result, kind: LinkKind::Reduce(axes) });
                    }
                }
            }
        }
    }

    fn unite_all(&mut self, values: &[Value]) {
        for pair in values.windows(2) {
            self.unite(pair[0], pair[1]);
        }
    }
}
