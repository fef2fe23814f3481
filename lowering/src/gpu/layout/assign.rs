//! A layout for every tile value.
//!
//! Values that lanewise operations, memory accesses and loops tie together form a class and share one layout. The
//! accumulators of dots get theirs first, as [`super::dot`] says; then the class with the most elements: its memory
//! accesses choose, by the widest vector they can move. A layout propagates to adjacent classes through reductions,
//! broadcasts and other views. A class that is as large and has accesses of its own chooses for itself, unless threads
//! load it in a loop for a larger one. Cheap values made of ranges and scalars belong to no class: they are
//! rematerialized in every layout that is asked for. Where two layouts meet, a [`Convert`] is inserted.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::ir::layout_relation::{LayoutRelation, Reindex};
use tile_ir::ir::{Block, Func, FuncBuilder, Op, Shape, Value};
use tile_ir::ops::{Convert, MemAccess};

use super::access;
use super::conversion::{Conversion, conversion};
use super::distributed::Distributed;
use super::layout_graph::{LayoutGraph, LinkKind};
use super::linear::Layout;
use super::scan::ScannedClass;
use super::tile_access::{LayoutSite, TileAccess, accesses, by_class};
use super::warps::{ThreadConfig, choose_warps};
use super::{dot, scan};
use crate::gpu::layout::access_layouts;

/// The most elements of a thread that other threads load too (docs/decisions/0187).
const MAX_REPLICATED: usize = 4;

/// Gives every tile value a layout, inserting conversions.
pub fn distribute(func: &Func, threads: ThreadConfig, axes: &AxisInfoMap) -> Distributed {
    let graph = LayoutGraph::new(func);
    let accesses = accesses(func, threads.alignment, axes);
    let num_ctas = threads.num_ctas;
    let num_warps = num_ctas * threads.num_warps.unwrap_or_else(|| choose_warps(func, &accesses, threads));
    let site = LayoutSite { func, axes, alignment: threads.alignment, num_ctas };
    let chosen = Chooser {
        site,
        graph: &graph,
        accesses: by_class(func, &graph, &accesses),
        num_warps,
        max_following: 0,
        layouts: HashMap::new(),
    }
    .run();
    let (layouts, func) = rebuild(site, &graph, &chosen);
    let num_stages = threads.num_stages;
    let (sector_loads, smem_only, invariant_operands) = Default::default();
    Distributed {
        func,
        layouts,
        num_warps,
        num_ctas,
        num_stages,
        sector_loads,
        smem_only,
        invariant_operands,
    }
}

// ---- choosing

/// The layout of each class, and the layouts of accesses whose tile has another one.
struct ChosenLayouts {
    classes: HashMap<usize, Layout>,
    accesses: HashMap<MemAccess, Layout>,
    num_warps: u32,
}

struct Chooser<'a> {
    site: LayoutSite<'a>,
    graph: &'a LayoutGraph,
    /// The accesses that belong to each class.
    accesses: HashMap<usize, Vec<&'a TileAccess>>,
    num_warps: u32,
    /// A tile of at most so many elements takes the layout that propagates to it.
    max_following: u64,
    layouts: HashMap<usize, Layout>,
}

impl Chooser<'_> {
    fn run(mut self) -> ChosenLayouts {
        let mut classes: Vec<usize> = (0..self.site.func.value_count())
            .map(|index| self.site.func.value_at(index))
            .filter(|&value| self.graph.has_layout(self.site.func, value))
            .map(|value| self.graph.class(value))
            .collect();
        classes.sort_unstable();
        classes.dedup();
        // The accumulators of dots are bound to their instructions. With wgmma, small tiles made of an accumulator
        // follow its layout: warpgroups would have to wait for each other.
        let mut has_wgmma = false;
        self.site.func.body.walk(&mut |op| has_wgmma |= dot::is_warpgroup_dot(op));
        self.max_following = if has_wgmma { u64::from(32 * self.num_warps) } else { 0 };
        for (result, layout) in dot::layouts(self.site.func, self.num_warps) {
            self.assign(self.graph.class(result), layout);
        }
        self.max_following = 0;
        let fragments = self.layouts.clone();
        let weight = |class: &usize| {
            let traffic: u64 = self.accesses_of(*class).map(TileAccess::bytes).sum();
            (self.shape(*class).elements(), traffic)
        };
        classes.sort_by_key(|class| std::cmp::Reverse((weight(class), std::cmp::Reverse(*class))));
        // Classes with memory accesses first, then those that only compute.
        let (accessing, computing): (Vec<usize>, Vec<usize>) =
            classes.into_iter().partition(|&class| self.accesses_of(class).next().is_some());
        for class in accessing.into_iter().chain(computing) {
            if !self.layouts.contains_key(&class) {
                self.assign(class, self.choose(class));
            }
        }
        let accesses = access_layouts::access_layouts(&self.site, self.graph, [&fragments, &self.layouts]);
        ChosenLayouts { classes: self.layouts, accesses, num_warps: self.num_warps }
    }

    /// Assigns a layout to a class that has none, and propagates it.
    fn assign(&mut self, class: usize, layout: Layout) {
        if let Entry::Vacant(entry) = self.layouts.entry(class) {
            entry.insert(layout);
            self.propagate(class);
        }
    }

    fn shape(&self, class: usize) -> &Shape {
        &self.site.func.ty(self.site.func.value_at(class)).shape
    }

    fn accesses_of(&self, class: usize) -> impl Iterator<Item = &TileAccess> {
        self.accesses.get(&class).into_iter().flatten().copied()
    }

    /// Propagates a class's layout to the classes that follow from it.
    fn propagate(&mut self, from: usize) {
        let mut todo = vec![from];
        while let Some(class) = todo.pop() {
            let Some(layout) = self.layouts.get(&class).cloned() else { continue };
            for link in &self.graph.links {
                let (operand, result) = (self.graph.class(link.operand), self.graph.class(link.result));
                let (next, derived) = if operand == class && !self.layouts.contains_key(&result) {
                    let derived = match &link.kind {
                        LinkKind::View(view) => layout.after_reindex(view),
                        LinkKind::Reduce(axes) => Some(layout.without(axes)),
                        LinkKind::Index(axis) => Some(layout.with_axis_in_registers(*axis).without(&[*axis])),
                    };
                    (result, derived)
                } else if result == class && !self.layouts.contains_key(&operand) {
                    let derived = match &link.kind {
                        LinkKind::View(view) => layout.before_reindex(view),
                        LinkKind::Reduce(_) | LinkKind::Index(_) => None,
                    };
                    (operand, derived)
                } else {
                    continue;
                };
                let as_large = self.shape(next).elements() >= self.shape(class).elements();
                let follows = self.shape(next).elements() <= self.max_following;
                let chooses = as_large && !follows && self.accesses_of(next).next().is_some();
                if let Some(derived) = derived
                    && (!chooses || self.loads_as(from, next, &derived))
                {
                    self.layouts.insert(next, derived);
                    todo.push(next);
                }
            }
        }
    }

    /// Whether threads load a small tile in a loop as they use it, from the cache: the result of a conversion through shared memory would
    /// take as many loads of each thread, and a barrier.
    fn loads_as(&self, user: usize, class: usize, derived: &Layout) -> bool {
        self.shape(class).elements() < self.shape(user).elements()
            && self.accesses_of(class).all(|access| access.reads && access.repeats)
            && derived.register_count() <= MAX_REPLICATED
            && conversion(&self.choose(class), derived) == Conversion::Shared
    }

    /// The class's streaming accesses, and of them those that run most often; all where none does.
    fn streams(&self, class: usize) -> Vec<&TileAccess> {
        let mut streams: Vec<&TileAccess> = self.accesses_of(class).collect();
        for more in [|access: &TileAccess| access.streams, |access: &TileAccess| access.repeats] {
            if streams.iter().any(|access| more(access)) {
                streams.retain(|access| more(access));
            }
        }
        streams
    }

    /// A blocked layout for the class's accesses. If it would give the copies of a loaded element to several threads, one that gives
    /// them to the thread that loads it.
    fn choose(&self, class: usize) -> Layout {
        let own = self.blocked(class, self.shape(class));
        let Some((shape, views)) = self.repeated(class) else { return own };
        let before = |layout: Layout, view: &&Reindex| layout.before_reindex(view);
        let loaded = views.iter().try_fold(own.clone(), before);
        if loaded.is_none_or(|loaded| loaded.replicated_lanes() | loaded.replicated_warps() == 0) {
            return own;
        }
        let once = self.blocked(class, shape);
        views.iter().rev().try_fold(once, |layout, view| layout.after_reindex(view)).unwrap_or(own)
    }

    /// The shape of a loaded tile whose elements a class repeats, and the views from the class back to it.
    fn repeated(&self, class: usize) -> Option<(&Shape, Vec<&Reindex>)> {
        let links = || self.graph.links.iter();
        let halved = |class: usize| {
            links().filter(|merge| self.graph.class(merge.result) == class).find_map(|merge| {
                let mut halves = links().filter(|half| half.result == merge.operand);
                let [one, other] = [halves.next()?, halves.next()?];
                match (&merge.kind, &one.kind) {
                    (LinkKind::View(merged), LinkKind::View(joined @ Reindex::Join { .. }))
                        if one.operand == other.operand =>
                    {
                        Some((self.graph.class(one.operand), [merged, joined]))
                    }
                    _ => None,
                }
            })
        };
        let (mut class, mut views) = (class, vec![]);
        while let Some((half, steps)) = halved(class) {
            class = half;
            views.extend(steps);
        }
        let is_loaded = !views.is_empty() && self.accesses_of(class).next().is_some();
        is_loaded.then(|| (self.shape(class), views))
    }

    /// A blocked layout of this shape for the class's accesses.
    fn blocked(&self, class: usize, shape: &Shape) -> Layout {
        let streams = self.streams(class);
        // Of equals a read: a store that runs once can have a layout of its own.
        let leader = streams.iter().max_by_key(|a| (a.width.elements, a.bytes(), a.reads && !a.repeats));
        let fast = leader.map_or(shape.rank() - 1, |access| access.width.axis);
        // As many contiguous elements per thread as the widest element type lets one instruction move.
        let vector = streams
            .iter()
            .filter(|access| access.width.axis == fast && access.width.elements > 1)
            .map(|access| access.width.elements)
            .min()
            .unwrap_or(1);
        let narrowest = streams.iter().map(|access| access.elem_bytes).min();
        let scanned = ScannedClass { site: &self.site, graph: self.graph, class };
        let axis = match scanned.axis() {
            Some(axis) if axis != fast => axis,
            _ => {
                let run = scanned.contiguous_run(shape, vector, self.num_warps);
                return Layout::of_vectors(shape, fast, run.unwrap_or(vector), self.num_warps);
            }
        };
        let vector = vector.min(scan::max_vector(shape, fast, narrowest));
        Layout::for_scan(shape, fast, axis, vector, self.num_warps)
    }
}

// ---- rebuilding

/// Rebuilds the function with one layout for each value.
fn rebuild(site: LayoutSite, graph: &LayoutGraph, chosen: &ChosenLayouts) -> (HashMap<Value, Layout>, Func) {
    let func = site.func;
    let mut demands = Demands { func, graph, chosen, wanted: HashMap::new() };
    demands.block(&func.body);
    let wanted = demands.wanted;
    let mut copy = func.clone();
    let body = std::mem::take(&mut copy.body);
    let mut rebuilder = Rebuilder {
        conversions: vec![],
        graph,
        chosen,
        wanted,
        available: vec![HashMap::new()],
        layouts: HashMap::new(),
        site,
    };
    let mut builder = FuncBuilder::new(&mut copy);
    rebuilder.ops(&mut builder, body.ops);
    builder.finish();
    (rebuilder.layouts, copy)
}

/// The layouts that each cheap value is needed in, found from the last use to the first.
struct Demands<'a> {
    func: &'a Func,
    graph: &'a LayoutGraph,
    chosen: &'a ChosenLayouts,
    wanted: HashMap<Value, Vec<Layout>>,
}

impl Demands<'_> {
    fn block(&mut self, block: &Block) {
        for op in block.ops.iter().rev() {
            let operation = op.kind.operation();
            for (operand, layout) in self.operand_layouts(op) {
                self.want(operand, layout);
            }
            for nested in operation.blocks() {
                self.block(nested);
            }
        }
    }

    fn want(&mut self, value: Value, layout: Layout) {
        if !self.func.ty(value).is_scalar() && self.graph.is_cheap(value) {
            let list = self.wanted.entry(value).or_default();
            if !list.contains(&layout) {
                list.push(layout);
            }
        }
    }

    fn operand_layouts(&self, op: &Op) -> Vec<(Value, Layout)> {
        let results: Vec<Layout> = match op.results.first() {
            Some(&result) if self.graph.is_cheap(result) => {
                self.wanted.get(&result).cloned().unwrap_or_default()
            }
            _ => vec![],
        };
        if results.is_empty() {
            return operand_layouts(self.func, self.graph, self.chosen, op, None);
        }
        results
            .iter()
            .flat_map(|layout| operand_layouts(self.func, self.graph, self.chosen, op, Some(layout)))
            .collect()
    }
}

/// The layouts in which an operation needs its tile operands; `copy` is the layout of its result where that is a cheap
/// value.
fn operand_layouts(
    func: &Func,
    graph: &LayoutGraph,
    chosen: &ChosenLayouts,
    op: &Op,
    copy: Option<&Layout>,
) -> Vec<(Value, Layout)> {
    let classes = ClassLayouts { func, graph, chosen };
    let operation = op.kind.operation();
    let result = op.results.first().filter(|result| classes.is_tile(**result));
    let result = copy.cloned().or_else(|| result.and_then(|&result| classes.of(result)));
    let mut operands = operation.operands();
    operands.retain(|&operand| classes.is_tile(operand));
    let common = match operation.layout_relation(func, &op.results) {
        LayoutRelation::Source | LayoutRelation::Free => None,
        LayoutRelation::WarpGroup { transposed } => {
            let of_result = |value| {
                (value, dot::wgmma_result_layout(&func.ty(value).shape, transposed, chosen.num_warps))
            };
            return operands.into_iter().map(of_result).collect();
        }
        LayoutRelation::Dot { .. } => {
            return result.map(|layout| dot::required_layouts(func, op, &layout)).unwrap_or_default();
        }
        LayoutRelation::Lanewise { .. } => {
            // A store has no result: it takes the class layout of its operands, or any when all are cheap.
            let of_access = operation.access().and_then(|place| chosen.accesses.get(place)).cloned();
            of_access.or(result).or_else(|| classes.of_any(&operands))
        }
        LayoutRelation::View(view) => result.and_then(|result| result.before_reindex(&view)),
        LayoutRelation::Reduce { .. } => classes.of_any(&operands),
        LayoutRelation::Index { axis } => classes.with_axis_in_registers(&operands, axis),
        LayoutRelation::Tied(groups) => return classes.tied(&groups),
    };
    let Some(layout) = common else { return vec![] };
    operands.into_iter().map(|operand| (operand, layout.clone())).collect()
}

/// The layouts that the classes of values have.
struct ClassLayouts<'a> {
    func: &'a Func,
    graph: &'a LayoutGraph,
    chosen: &'a ChosenLayouts,
}

impl ClassLayouts<'_> {
    fn is_tile(&self, value: Value) -> bool {
        !self.func.ty(value).is_scalar()
    }

    fn of(&self, value: Value) -> Option<Layout> {
        self.chosen.classes.get(&self.graph.class(value)).cloned()
    }

    /// The layout of the first of these tiles that is not cheap.
    fn of_any(&self, values: &[Value]) -> Option<Layout> {
        let is_anchor = |value: &Value| self.is_tile(*value) && self.graph.has_layout(self.func, *value);
        values.iter().copied().find(is_anchor).and_then(|anchor| self.of(anchor))
    }

    /// The layout of the first of these tiles that is not cheap, with an axis in registers.
    fn with_axis_in_registers(&self, values: &[Value], axis: usize) -> Option<Layout> {
        Some(self.of_any(values)?.with_axis_in_registers(axis))
    }

    /// Those of groups whose values have one layout each. Operands, the first of each group, come first, in their order.
    fn tied(&self, groups: &[Vec<Value>]) -> Vec<(Value, Layout)> {
        let (mut operands, mut others) = (vec![], vec![]);
        for group in groups {
            let Some(layout) = self.of_any(group) else { continue };
            let mut pairs = group.iter().map(|&value| (value, layout.clone()));
            operands.extend(pairs.next());
            others.extend(pairs);
        }
        operands.into_iter().chain(others).collect()
    }
}

struct Rebuilder<'a> {
    site: LayoutSite<'a>,
    /// Conversions to append after the operation being rebuilt.
    conversions: Vec<Op>,
    graph: &'a LayoutGraph,
    chosen: &'a ChosenLayouts,
    wanted: HashMap<Value, Vec<Layout>>,
    /// Each value in each layout that exists, one table for each open block.
    available: Vec<HashMap<(Value, Layout), Value>>,
    layouts: HashMap<Value, Layout>,
}

impl Rebuilder<'_> {
    fn ops(&mut self, builder: &mut FuncBuilder, ops: Vec<Op>) {
        for op in ops {
            builder.loc = op.loc;
            self.op(builder, op);
        }
    }

    fn op(&mut self, builder: &mut FuncBuilder, op: Op) {
        let cheap = op
            .results
            .first()
            .is_some_and(|result| !self.site.func.ty(*result).is_scalar() && self.graph.is_cheap(*result));
        if cheap {
            for layout in self.wanted.get(&op.results[0]).cloned().unwrap_or_default() {
                self.copy(builder, &op, layout);
            }
            return;
        }
        let mut op = op;
        let layouts = operand_layouts(self.site.func, self.graph, self.chosen, &op, None);
        // Asked before the operands become values that the original function does not know.
        let relation = op.kind.operation().layout_relation(self.site.func, &op.results);
        let of_access =
            op.kind.operation().access().and_then(|place| self.chosen.accesses.get(place)).cloned();
        self.convert_operands(builder, &mut op, &layouts);
        let tied = matches!(relation, LayoutRelation::Tied(_));
        for block in op.kind.operation_mut().blocks_mut() {
            let taken = std::mem::take(block);
            builder.begin_with(taken.args.clone());
            self.available.push(HashMap::new());
            for &arg in &taken.args {
                self.define(arg);
            }
            self.ops(builder, taken.ops);
            let yields = taken
                .yields
                .iter()
                .map(|&value| match layouts.iter().find(|(other, _)| *other == value) {
                    Some((_, layout)) if tied => self.in_layout(builder, value, layout),
                    _ => value,
                })
                .collect();
            self.available.pop();
            *block = builder.end(yields);
        }
        builder.loc = op.loc;
        let natural = match relation {
            LayoutRelation::Reduce { axes } => self.layout_without(&op, &axes),
            LayoutRelation::Index { axis } => self.layout_without(&op, &[axis]),
            LayoutRelation::Dot { .. } => self.dot_layout(&op),
            _ => of_access,
        };
        for i in 0..op.results.len() {
            let result = op.results[i];
            self.define(result);
            // Such an operation has a natural result layout; the class may want another.
            if let Some(natural) = &natural
                && self.layouts.get(&result).is_some_and(|layout| layout != natural)
            {
                let value = builder.func.value(builder.func.ty(result).clone());
                self.layouts.insert(value, natural.clone());
                op.results[i] = value;
                self.conversions.push(Op {
                    kind: Convert { value }.into(),
                    results: vec![result],
                    loc: op.loc,
                });
            }
        }
        builder.append(op);
        for op in self.conversions.drain(..) {
            builder.append(op);
        }
    }

    /// The layout in which an operation that takes these axes away leaves its results.
    fn layout_without(&self, op: &Op, axes: &[usize]) -> Option<Layout> {
        let operand = op.kind.operation().operands()[0];
        Some(self.layouts.get(&operand)?.without(axes))
    }

    /// The layout in which a dot produces its result.
    fn dot_layout(&self, op: &Op) -> Option<Layout> {
        let layout = self.chosen.classes.get(&self.graph.class(op.results[0]))?;
        Some(dot::produced_layout(self.site.func, op, layout))
    }

    /// Records the class layout of a value that keeps its name.
    fn define(&mut self, value: Value) {
        if self.site.func.ty(value).is_scalar() {
            return;
        }
        if let Some(layout) = self.chosen.classes.get(&self.graph.class(value)) {
            self.layouts.insert(value, layout.clone());
            self.available.last_mut().expect("a table per block").insert((value, layout.clone()), value);
        }
    }

    /// A cheap operation, built again for one layout of its result.
    fn copy(&mut self, builder: &mut FuncBuilder, op: &Op, layout: Layout) {
        let mut copy = op.clone();
        let operands = operand_layouts(self.site.func, self.graph, self.chosen, op, Some(&layout));
        self.convert_operands(builder, &mut copy, &operands);
        let ty = builder.func.ty(op.results[0]).clone();
        let value = builder.one(copy.kind, ty);
        self.layouts.insert(value, layout.clone());
        self.available.last_mut().expect("a table per block").insert((op.results[0], layout), value);
    }

    fn convert_operands(&mut self, builder: &mut FuncBuilder, op: &mut Op, layouts: &[(Value, Layout)]) {
        let vector = op.kind.operation().access().and_then(|place| {
            let (_, layout) = layouts.iter().find(|(value, _)| *value == place.offset)?;
            let width = access::width(self.site.func, self.site.axes, place, self.site.alignment);
            let vector = layout.thread_contiguity(width.axis).min(width.elements);
            Some(access::legal_vector(self.site.func, place, vector))
        });
        // A value that is an operand twice may be needed in two layouts, one for each time.
        let mut available: HashMap<Value, VecDeque<Value>> = HashMap::new();
        for (value, layout) in layouts {
            // Yields of nested blocks are converted where the block ends.
            if op.kind.operation().operands().contains(value) {
                let converted = self.in_layout(builder, *value, layout);
                available.entry(*value).or_default().push_back(converted);
            }
        }
        op.kind.operation_mut().map(&mut |value| match available.get_mut(&value) {
            Some(queue) if queue.len() > 1 => queue.pop_front().unwrap_or(value),
            Some(queue) => queue.front().copied().unwrap_or(value),
            None => value,
        });
        if let Some(vector) = vector {
            op.kind.operation_mut().set_vector(vector);
        }
    }

    /// The value in a layout, converted if it has to be.
    fn in_layout(&mut self, builder: &mut FuncBuilder, value: Value, layout: &Layout) -> Value {
        let key = (value, layout.clone());
        if let Some(&available) = self.available.iter().rev().find_map(|table| table.get(&key)) {
            return available;
        }
        let ty = builder.func.ty(value).clone();
        let converted = builder.one(Convert { value }, ty);
        self.layouts.insert(converted, layout.clone());
        self.available.last_mut().expect("a table per block").insert(key, converted);
        converted
    }
}
