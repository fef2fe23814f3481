//! What forbids that two groups become one kernel, whatever it would save.

use serde::Serialize;

use super::group::Profile;
use crate::cost::{Bound, Context};
use crate::graph::{OpId, OpKind, TensorId};
use crate::kind::Pattern;
use crate::units;

/// The columns of a tile of a matmul: rows of its result that are no longer are in one tile whole.
pub const TILE_COLUMNS: u64 = 256;

/// As many rows of a matmul are in one tile of rows: programs that have them can still wait for each other.
pub const FEW_ROWS: u64 = 64;

/// A reason not to fuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObstacleKind {
    /// One of the operations is not known.
    Unknown,
    /// The operations are spread over programs in different ways.
    Parallelism,
    /// The intermediate result is wanted elsewhere.
    Reused,
    /// A matmul that is bound by compute would lose its tensor cores' efficiency.
    ComputeBound,
    /// The consumer needs whole rows that do not stay on chip.
    OnChip,
    /// More values are alive than a thread has registers.
    Registers,
    /// Another operation stands between the two.
    Between,
}

/// A reason not to fuse, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// Which one.
    pub kind: ObstacleKind,
    /// With the names of the operations.
    pub words: String,
}

fn obstacle(kind: ObstacleKind, words: String) -> Obstacle {
    Obstacle { kind, words }
}

/// Everything that forbids that `producer` and `consumer`, which reads what it makes, become one kernel.
pub(super) fn between(cx: &Context<'_>, producer: &[OpId], consumer: &[OpId]) -> Vec<Obstacle> {
    let pair = Pair {
        cx,
        first: Profile::of(cx, producer),
        second: Profile::of(cx, consumer),
        links: links(cx, producer, consumer),
    };
    let mut found = Vec::new();
    if let Some(unknown) = pair.unknown() {
        return vec![unknown];
    }
    found.extend(pair.parallelism());
    found.extend(pair.reused());
    found.extend(pair.on_chip());
    found.extend(registers(cx, &[producer, consumer].concat()));
    found
}

/// The tensors that one group makes and the other reads, by their memory.
pub(super) fn links(cx: &Context<'_>, producer: &[OpId], consumer: &[OpId]) -> Vec<TensorId> {
    let graph = cx.graph;
    let made = producer.iter().flat_map(|&op| &graph.op(op).outputs).copied();
    let read = |tensor: &TensorId| graph.readers(*tensor).iter().any(|reader| consumer.contains(reader));
    made.filter(read).collect()
}

/// That a kernel of these operations would have more values alive than registers.
pub(super) fn registers(cx: &Context<'_>, ops: &[OpId]) -> Option<Obstacle> {
    let profile = Profile::of(cx, ops);
    let (needed, there) = (profile.live + profile.accumulators, cx.device.registers_per_thread);
    let words = format!("about {needed} registers a thread, and there are {there}: it would spill");
    (needed > there).then(|| obstacle(ObstacleKind::Registers, words))
}

struct Pair<'a> {
    cx: &'a Context<'a>,
    first: Profile,
    second: Profile,
    links: Vec<TensorId>,
}

impl Pair<'_> {
    fn unknown(&self) -> Option<Obstacle> {
        let opaque = [&self.first, &self.second].into_iter().find(|side| side.pattern == Pattern::Opaque)?;
        let op = self.cx.graph.op(opaque.lead);
        let words = format!("`{}` is of kind `{}`, which is not known", op.name, op.kind_name);
        Some(obstacle(ObstacleKind::Unknown, words))
    }

    fn names(&self) -> (&str, &str) {
        let graph = self.cx.graph;
        (&graph.op(self.first.lead).name, &graph.op(self.second.lead).name)
    }

    fn parallelism(&self) -> Option<Obstacle> {
        use Pattern::{Attention, ColumnReduction, Elementwise, Gather, Matmul, Opaque, RowReduction, View};
        let (a, b) = self.names();
        let differ = |why: String| Some(obstacle(ObstacleKind::Parallelism, why));
        match (self.first.pattern, self.second.pattern) {
            (View, _) | (_, View) | (Opaque, _) | (_, Opaque) => None,
            (_, Gather) => differ(format!("`{b}` reads rows that other programs of `{a}` choose")),
            (Elementwise | Gather, Elementwise) => self.broadcast(),
            (Elementwise | Gather, RowReduction) => self.across(),
            (Elementwise | Gather, ColumnReduction) => self.second_pass(),
            (RowReduction, Elementwise) => self.across().or_else(|| self.broadcast()),
            (RowReduction, RowReduction) => self.across().or_else(|| self.rows_nest()),
            // The last pass of what normalizes columns is elementwise.
            (ColumnReduction, Elementwise) if self.first.passes > 1 => self.broadcast(),
            (ColumnReduction, _) => differ(format!(
                "`{a}` is a column reduction over all rows: `{b}` would wait for all programs"
            )),
            (RowReduction | Matmul | Attention, ColumnReduction) => differ(format!(
                "different parallelism: {} `{a}` and column reduction `{b}`",
                self.first.pattern.name()
            )),
            (Elementwise | RowReduction | Gather, Matmul | Attention) if !self.is_for_lead() => {
                self.epilogue_operand()
            }
            (Elementwise | RowReduction | Gather, Matmul | Attention) => self.prologue(),
            (Matmul | Attention, Elementwise) => self.broadcast(),
            (Matmul, RowReduction) => self.rows_of_product(),
            (Attention, RowReduction) => (self.second.row > self.first.row).then(|| {
                obstacle(
                    ObstacleKind::Parallelism,
                    format!(
                        "rows of `{b}` are {} elements, and a program of `{a}` has a head of {}",
                        self.second.row, self.first.row
                    ),
                )
            }),
            (Matmul | Attention, Matmul | Attention) if !self.is_for_lead() => {
                differ(format!("`{a}` and `{b}` have tiles of their own"))
            }
            (Attention, Matmul) => self.heads_into_product(),
            (Matmul, Matmul) => {
                differ(format!("`{b}` needs whole rows of `{a}`, which are in tiles of many programs"))
            }
            (Matmul | Attention, Attention) => differ(format!(
                "`{b}` needs all keys before it begins, and programs of `{a}` have tiles of them"
            )),
        }
    }

    /// A result that is smaller than what it meets in the consumer, and is not a scalar for each of its rows.
    fn broadcast(&self) -> Option<Obstacle> {
        let graph = self.cx.graph;
        let by_row = self.first.pattern == Pattern::RowReduction;
        for &link in &self.links {
            let made = graph.tensor(link);
            let elements = made.ty.elements();
            for reader in
                graph.readers(link).into_iter().filter(|reader| self.second.members.contains(reader))
            {
                let reader = graph.op(reader);
                let whole = reader.inputs.first().map_or(0, |&input| graph.tensor(input).ty.elements());
                let for_each_row = by_row && elements.saturating_mul(self.first.row) == whole;
                if elements < whole && !for_each_row && (elements > 1 || by_row) {
                    let (name, ty, other) = (&made.name, &made.ty, &reader.name);
                    let words =
                        format!("different parallelism: each row of `{other}` needs all of `{name}`, {ty}");
                    return Some(obstacle(ObstacleKind::Parallelism, words));
                }
            }
        }
        None
    }

    /// The consumer goes over its input twice, so that it would be computed twice.
    fn second_pass(&self) -> Option<Obstacle> {
        let (a, b) = self.names();
        let words = format!(
            "`{b}` goes over its input {} times, and would compute `{a}` each time",
            self.second.passes
        );
        (self.second.passes > 1).then(|| obstacle(ObstacleKind::OnChip, words))
    }

    /// A reduction goes along what was columns before a transpose.
    fn across(&self) -> Option<Obstacle> {
        let graph = self.cx.graph;
        let (a, b) = self.names();
        let transposed = graph.op_ids().any(|id| {
            let op = graph.op(id);
            let transposes = matches!(op.kind, OpKind::Known(kind) if kind.name == "transpose");
            let is_read = |&made: &TensorId| {
                graph.readers(made).iter().any(|reader| self.second.members.contains(reader))
            };
            let is_between =
                transposes && op.is_free_view() && self.links.contains(&graph.root(op.inputs[0]));
            is_between && op.outputs.iter().any(is_read)
        });
        let words = format!("different parallelism: rows of `{a}` are columns of `{b}` behind a transpose");
        transposed.then(|| obstacle(ObstacleKind::Parallelism, words))
    }

    fn rows_nest(&self) -> Option<Obstacle> {
        let (a, b) = self.names();
        let (long, short) = (self.first.row.max(self.second.row), self.first.row.min(self.second.row));
        let words =
            format!("rows of {} and of {} elements: `{a}` and `{b}`", self.first.row, self.second.row);
        let nests = short > 0 && long.is_multiple_of(short);
        (!nests && long > 0).then(|| obstacle(ObstacleKind::Parallelism, words))
    }

    /// Whether the lead of the consumer needs what the producer makes, and not only its epilogue.
    fn is_for_lead(&self) -> bool {
        self.second.lead_needs(self.cx, &self.links)
    }

    /// What an epilogue reads is computed there, if a tile has all that it needs.
    fn epilogue_operand(&self) -> Option<Obstacle> {
        let (a, b) = self.names();
        let words =
            format!("rows of `{a}` are {} elements, and a tile of `{b}` has {TILE_COLUMNS}", self.first.row);
        let is_beyond = self.first.pattern == Pattern::RowReduction && self.first.row > TILE_COLUMNS;
        if is_beyond { Some(obstacle(ObstacleKind::Parallelism, words)) } else { self.broadcast() }
    }

    /// What is computed for an operand of a matmul while it is loaded, in each of the programs that need it.
    fn prologue(&self) -> Option<Obstacle> {
        let graph = self.cx.graph;
        let (a, b) = self.names();
        let heavy = graph.op(self.second.lead);
        let scaled = |&input: &TensorId| {
            let producer = graph.producer(input).map(|producer| graph.op(producer).kind);
            matches!(producer, Some(OpKind::Known(kind)) if kind.name == "dequantize")
        };
        if self.second.pattern == Pattern::Matmul && heavy.inputs.iter().all(scaled) {
            // The matmul is of integers, and scales of rows and columns are applied to its accumulator.
            return None;
        }
        let alone = self.cx.fused(&[self.second.lead]);
        let words = format!(
            "`{b}` is bound by compute ({} operations a byte): `{a}` would be computed again for each of its tiles, and \
             the operand would go through registers; fuse where rows are few",
            units::three_digits(alone.cost.intensity())
        );
        self.compute_bound(self.second.lead).then(|| obstacle(ObstacleKind::ComputeBound, words))
    }

    fn rows_of_product(&self) -> Option<Obstacle> {
        let graph = self.cx.graph;
        let (a, b) = self.names();
        let row = self.second.row;
        let made = graph.op(self.first.lead).outputs.first();
        let rows = made.map_or(0, |&made| graph.tensor(made).ty.elements()) / row.max(1);
        if row <= TILE_COLUMNS {
            return None;
        }
        let tiles =
            format!("rows of {row} elements are in {} tiles of {TILE_COLUMNS}", row.div_ceil(TILE_COLUMNS));
        if self.compute_bound(self.first.lead) {
            let words = format!(
                "`{a}` is bound by compute and `{b}` by memory: {tiles}, and a tile that holds them would lose the \
                 efficiency of tensor cores"
            );
            return Some(obstacle(ObstacleKind::ComputeBound, words));
        }
        let words =
            format!("{tiles}, which are in different programs of `{a}`: `{b}` would wait for all of them");
        (rows > FEW_ROWS).then(|| obstacle(ObstacleKind::Parallelism, words))
    }

    fn heads_into_product(&self) -> Option<Obstacle> {
        let (a, b) = self.names();
        let words = format!(
            "`{b}` is bound by compute and needs all heads of a row, and a program of `{a}` has one: each would add its \
             share to all columns; fuse where rows are few"
        );
        self.compute_bound(self.second.lead).then(|| obstacle(ObstacleKind::ComputeBound, words))
    }

    fn compute_bound(&self, op: OpId) -> bool {
        self.cx.fused(&[op]).time.bound() == Bound::Compute
    }

    /// Elementwise operations and reductions may write a result for others besides, and only its reading is saved. A matmul
    /// would make it in every one of its programs.
    fn reused(&self) -> Option<Obstacle> {
        let graph = self.cx.graph;
        let heavy = matches!(self.second.pattern, Pattern::Matmul | Pattern::Attention) && self.is_for_lead();
        let members = [&self.first.members[..], &self.second.members[..]].concat();
        let link = self.links.iter().find(|&&link| wanted_elsewhere(self.cx, link, &members))?;
        let readers = graph.readers(*link).into_iter().filter(|reader| !members.contains(reader));
        let mut others = readers.map(|reader| format!("`{}`", graph.op(reader).name)).collect::<Vec<_>>();
        if others.is_empty() {
            others.push("what follows the graph".to_owned());
        }
        let name = &graph.tensor(*link).name;
        let words = format!("`{name}` is reused by {}: it has to be in memory anyway", others.join(" and "));
        heavy.then(|| obstacle(ObstacleKind::Reused, words))
    }

    fn on_chip(&self) -> Option<Obstacle> {
        let whole_rows = self.second.pattern == Pattern::RowReduction && self.first.pattern != Pattern::View;
        let (bytes, room) = (self.second.row.saturating_mul(4), self.cx.device.on_chip_bytes);
        let words = format!(
            "`{}` needs whole rows of {} elements: {} in f32, and {} stay on chip",
            self.names().1,
            self.second.row,
            units::bytes(bytes),
            units::bytes(room)
        );
        (whole_rows && bytes > room).then(|| obstacle(ObstacleKind::OnChip, words))
    }
}

/// Whether others than these operations want a result.
pub(super) fn wanted_elsewhere(cx: &Context<'_>, link: TensorId, inside: &[OpId]) -> bool {
    let graph = cx.graph;
    graph.is_output(link) || graph.readers(link).iter().any(|reader| !inside.contains(reader))
}
