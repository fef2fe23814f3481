//! What operations cost: the bytes that must move, the operations, the launches, and the time that they take at the ceilings of
//! a device.
//!
//! **Bytes.** Each input is read once and each output written once in a launch; in a launch of several operations what they make for
//! each other is neither, unless something else wants it. What goes over its input twice, as batch norm does, reads it twice, in two
//! launches. A free view costs nothing. Tiles of a matmul that are read again come from
//! the cache and are not counted.
//!
//! **Time** of a launch is the larger of `bytes / bandwidth` and `operations / peak`, and the overhead of a launch on top. Operations
//! of tensor cores and of ordinary units run side by side. A launch behind another one is made while that one runs: its overhead is
//! that of a following launch, where the device's is known. A matmul adds the time in which its first tiles arrive and its last ones leave. What an operation before it has just written is read at the bandwidth of the
//! last cache, where that is known and half of the cache holds it; with warm caches so are all activations. Weights come from memory.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Serialize;

use crate::device::{Device, operand_name};
use crate::graph::{Graph, Op, OpId, OpKind, Origin, TensorId};
use crate::kind::Pattern;
use crate::measurements::Cache;
use crate::units::ratio;

/// What one or more launches move and compute.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes that are read, each once a launch.
    pub read: u64,
    /// Bytes that are written.
    pub written: u64,
    /// Of the bytes that are read, those of parameters.
    pub weights: u64,
    /// Of the bytes that are read, those that other operations of the graph have just made.
    pub made: u64,
    /// Operations of matmuls, by the name of the ceiling that they run under.
    pub tensor_flops: BTreeMap<&'static str, f64>,
    /// All other operations.
    pub scalar_flops: f64,
    /// Kernels.
    pub launches: u32,
    /// The bytes of all tensors that a launch touches, the largest of the launches.
    pub working_set: u64,
}

impl Cost {
    /// Bytes that move.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }

    /// All operations.
    pub fn flops(&self) -> f64 {
        self.scalar_flops + self.tensor_flops.values().sum::<f64>()
    }

    /// Operations for each byte that moves; 0 where nothing moves.
    pub fn intensity(&self) -> f64 {
        ratio(self.flops(), self.bytes() as f64, 0.0)
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.read += other.read;
        self.written += other.written;
        self.weights += other.weights;
        self.made += other.made;
        for (unit, flops) in other.tensor_flops {
            *self.tensor_flops.entry(unit).or_default() += flops;
        }
        self.scalar_flops += other.scalar_flops;
        self.launches += other.launches;
        self.working_set = self.working_set.max(other.working_set);
    }
}

/// What the time of a launch is spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bytes.
    #[default]
    Memory,
    /// Operations.
    Compute,
    /// The launch.
    Launch,
}

impl Bound {
    /// As it is written in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Memory => "memory",
            Bound::Compute => "compute",
            Bound::Launch => "launch",
        }
    }
}

/// A predicted time with its parts, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Time {
    /// What the bytes take.
    pub memory: f64,
    /// What the operations take.
    pub compute: f64,
    /// What the launches take.
    pub launch: f64,
    /// Of this, what the first launch takes beyond a following one.
    pub start: f64,
    /// The larger of the first two for each launch, and the third.
    pub total: f64,
}

impl Time {
    /// The largest part.
    pub fn bound(&self) -> Bound {
        if self.launch > self.memory.max(self.compute) {
            Bound::Launch
        } else if self.compute > self.memory {
            Bound::Compute
        } else {
            Bound::Memory
        }
    }
}

/// One behind the other: only one of them starts.
impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        let once = self.start.min(other.start);
        self.memory += other.memory;
        self.compute += other.compute;
        self.launch += other.launch - once;
        self.start = self.start.max(other.start);
        self.total += other.total - once;
    }
}

/// What launches cost, and how long they take on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The cost.
    pub cost: Cost,
    /// The time.
    pub time: Time,
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Estimate) {
        self.cost += other.cost;
        self.time += other.time;
    }
}

/// Where operations run.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The device.
    pub device: &'a Device,
    /// What is in its cache.
    pub cache: Cache,
}

impl Context<'_> {
    /// Operations in one launch.
    pub fn fused(&self, ops: &[OpId]) -> Estimate {
        let cost = cost(self.graph, ops);
        let time = self.time(&cost);
        Estimate { cost, time }
    }

    /// Each group of operations in a launch of its own, and nothing before the first: what other operations make is in memory.
    pub fn sequence(&self, groups: &[Vec<OpId>]) -> Estimate {
        let mut sum = Estimate::default();
        for (index, group) in groups.iter().enumerate() {
            let is_near = |op: OpId| groups[..index].iter().any(|before| before.contains(&op));
            let cost = cost_near(self.graph, group, is_near);
            let time = self.time(&cost);
            sum += Estimate { cost, time };
        }
        sum
    }

    /// Each operation in a launch of its own.
    pub fn separate(&self, ops: &[OpId]) -> Estimate {
        let mut sum = Estimate::default();
        for &op in ops {
            sum += self.fused(&[op]);
        }
        sum
    }

    /// The time of the launch that a cost is of.
    pub fn time(&self, cost: &Cost) -> Time {
        let cached = self.cached_bytes(cost);
        let mut memory = (cost.bytes() - cached) as f64 / self.device.memory_bandwidth();
        if let Some(bandwidth) = self.l2_bandwidth() {
            memory += cached as f64 / bandwidth;
        }
        let (mut tensor, mut scalar) = (0.0, cost.scalar_flops / self.device.scalar_peak());
        for (&operands, flops) in &cost.tensor_flops {
            let has_cores = self.device.tensor.contains_key(operands);
            let seconds = flops / self.device.tensor_peak(operands);
            *if has_cores { &mut tensor } else { &mut scalar } += seconds;
        }
        let compute = f64::max(tensor, scalar);
        let (first, following) = (self.device.launch_seconds(), self.device.following_launch_seconds());
        let start = if cost.launches == 0 { 0.0 } else { first - following };
        let matmul = if cost.tensor_flops.is_empty() { 0.0 } else { self.device.matmul_seconds() };
        let launch = f64::from(cost.launches) * (following + matmul) + start;
        Time { memory, compute, launch, start, total: memory.max(compute) + launch }
    }

    fn l2_bandwidth(&self) -> Option<f64> {
        self.device.l2_bandwidth.as_ref()?.best()
    }

    /// The bytes that come from the last cache or stay in it.
    fn cached_bytes(&self, cost: &Cost) -> u64 {
        if self.l2_bandwidth().is_none() {
            return 0;
        }
        // The other half is for what is on its way in and out.
        let room = self.device.l2_bytes / 2;
        let activations = cost.bytes() - cost.weights;
        match self.cache {
            Cache::Warm if activations <= room => activations,
            Cache::Warm | Cache::Cold if cost.made <= room => cost.made,
            Cache::Warm | Cache::Cold => 0,
        }
    }
}

/// What operations move and compute as one kernel, which is one launch but for what goes over its input more than once.
pub fn cost(graph: &Graph, ops: &[OpId]) -> Cost {
    cost_near(graph, ops, |_| true)
}

/// The same where some operations have just run.
fn cost_near(graph: &Graph, ops: &[OpId], is_near: impl Fn(OpId) -> bool) -> Cost {
    let mut cost = Cost::default();
    let mut reads = Reads::default();
    let (mut made_elements, mut passes, mut read_again) = (0, 1, 0);
    for &id in ops {
        let op = graph.op(id);
        if op.is_free_view() {
            continue;
        }
        for index in 0..op.inputs.len() {
            reads.add(graph, (op, index), ops);
        }
        if let OpKind::Known(kind) = op.kind
            && kind.pass_count() > 1
        {
            passes = kind.pass_count().max(passes);
            read_again += u64::from(kind.pass_count() - 1) * graph.tensor(op.inputs[0]).ty.bytes();
        }
        for &output in &op.outputs {
            made_elements += graph.tensor(output).ty.elements();
            if graph.is_output(output) || graph.readers(output).iter().any(|reader| !ops.contains(reader)) {
                cost.written += graph.tensor(output).ty.bytes();
            }
        }
        count_flops(graph, op, ops, &mut cost);
    }
    for (&root, views) in &reads.0 {
        // Views of one tensor may overlap.
        let bytes = views.values().sum::<u64>().min(graph.tensor(root).ty.bytes());
        cost.read += bytes;
        match graph.tensor(root).origin {
            Origin::Weight => cost.weights += bytes,
            Origin::Made(op) if is_near(op) => cost.made += bytes,
            Origin::Made(_) | Origin::Input => {}
        }
    }
    // What has nothing to make is not launched.
    if made_elements == 0 {
        return Cost::default();
    }
    cost.launches = passes;
    cost.working_set = cost.bytes();
    cost.read += read_again;
    cost
}

/// The bytes that are read of each tensor, by the memory that it looks at.
#[derive(Default)]
struct Reads(BTreeMap<TensorId, BTreeMap<TensorId, u64>>);

impl Reads {
    /// Adds an input of an operation, unless one of `ops` makes it.
    fn add(&mut self, graph: &Graph, (op, index): (&Op, usize), ops: &[OpId]) {
        let input = op.inputs[index];
        if graph.producer(input).is_some_and(|producer| ops.contains(&producer)) {
            return;
        }
        let bytes = match op.kind {
            OpKind::Known(kind) => kind.read_bytes(&graph.operands(op), index),
            OpKind::Unknown => graph.tensor(input).ty.bytes(),
        };
        let read = self.0.entry(graph.root(input)).or_default().entry(input).or_default();
        *read = bytes.max(*read);
    }
}

fn count_flops(graph: &Graph, op: &Op, ops: &[OpId], cost: &mut Cost) {
    let OpKind::Known(kind) = op.kind else { return };
    let flops = kind.count_flops(&graph.operands(op));
    if kind.tensor_core {
        *cost.tensor_flops.entry(operand_unit(graph, op, ops)).or_default() += flops;
    } else {
        cost.scalar_flops += flops;
    }
}

/// The ceiling of a matmul: that of its operands' type; where both are dequantized in the same launch, that of the quantized
/// type, because scales of rows and columns can be applied to the accumulator.
fn operand_unit(graph: &Graph, op: &Op, ops: &[OpId]) -> &'static str {
    let quantized = |input: TensorId| {
        let producer = graph.producer(input).filter(|producer| ops.contains(producer))?;
        let producer = graph.op(producer);
        let is_dequantize = matches!(producer.kind, OpKind::Known(kind) if kind.name == "dequantize");
        is_dequantize.then(|| graph.tensor(producer.inputs[0]).ty.dtype)
    };
    let dtypes = op.inputs.iter().map(|&input| graph.tensor(input).ty.dtype);
    if op.pattern() == Pattern::Matmul
        && let [Some(a), Some(b)] = [quantized(op.inputs[0]), quantized(op.inputs[1])]
        && a == b
    {
        return operand_name(a, false);
    }
    dtypes.clone().next().map_or("f32", |dtype| operand_name(dtype, op.params.tf32))
}
