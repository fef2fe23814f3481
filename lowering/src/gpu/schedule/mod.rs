//! The schedule of a GPU kernel: which copies and dots are asynchronous, who waits for whom, which warp does what.
//!
//! Takes laid-out tile IR, gives the same IR with the operations of [`tile_ir::ops::schedule`] in it, which `gpu::emit` translates
//! one by one. `driver::pipeline` lists the passes in their order; kernels are right without the optional
//! ones.

pub mod async_dot;
pub mod cluster_wait;
pub mod copy;
pub mod dot_registers;
pub mod epilogue;
pub mod held_operands;
pub mod invariant_operand;
pub mod iteration_split;
mod loops;
pub mod membar;
pub mod multicast;
pub mod named_barrier;
pub mod overlap_chained_dots;
pub mod pdl;
pub mod ping_pong;
pub mod plan;
pub mod position_before_waits;
pub mod promotion;
pub mod reduce_batch;
pub mod scratch;
pub mod smem_alloc;
pub mod smem_limits;
pub mod smem_operand;
pub mod software_pipeline;
pub mod stage_operands;
pub mod tensor_map;
pub mod tile_scalars;
pub mod tma_pipeline;
pub mod verify;
pub mod warp_specialize;
pub mod work_tiles;

use std::collections::HashMap;
use std::fmt;

use crate::gpu::layout::{Distributed, Layout};
use tile_ir::analysis::alias::SliceAlias;
use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::ir::axis_info::AxisInfo;
use tile_ir::ir::guard::Guard;
use tile_ir::ir::{Func, Op, Type, Value, print};
use tile_ir::ops::schedule::PartialExchange;
use tile_ir::ops::{For, Kind};
use tile_ir::support::diagnostic::Loc;

use smem_alloc::{Interval, SmemAllocation};
pub use smem_limits::MAX_SHARED_BYTES;
use software_pipeline::ring::AllocatedRing;
pub use tensor_map::{Multicast, TensorMap};
use tma_pipeline::TmaPipeline;
pub use work_tiles::MBARRIER_BYTES;

/// A distributed function that is being scheduled.
#[derive(Debug)]
pub struct Schedule {
    pub distributed: Distributed,
    /// Axis info of the integers of the function before it was scheduled.
    pub axes: AxisInfoMap,
    /// For a copy of a value, the value of the function before it was scheduled.
    origins: HashMap<Value, Value>,
    /// The values of that function.
    original_values: usize,
    pub tensor_maps: Vec<TensorMap>,
    /// What TMA loads and stores, until a pass has made it so.
    pub pipeline: Option<TmaPipeline>,
    /// Shared memory for the copies of loops, by their variables, until a pass has pipelined them.
    pub rings: HashMap<Value, AllocatedRing>,
    /// Where scratch memory is, and the barriers of what uses it.
    pub smem: SmemAllocation,
    /// What a launch is checked for.
    pub guards: Vec<Guard>,
    /// Which accesses of slices are disjoint, from where on passes hide what that follows from.
    pub alias: Option<SliceAlias>,
    /// What the plan of a kernel says besides.
    pub setup: Setup,
}

/// What passes know of a kernel besides its function.
#[derive(Clone, Copy, Default, Debug)]
pub struct Setup {
    /// Registers of a thread when a block starts, if there is a limit.
    pub max_registers: Option<u32>,
    /// Whether it is launched while the kernel before it still runs.
    pub uses_pdl: bool,
}

/// An exchange of elements between warps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScratchExchange {
    /// The memory that they go through.
    pub interval: Interval,
    /// The loop whose even and odd iterations use different halves of it.
    pub parity: Option<Value>,
}

impl Schedule {
    pub fn new(distributed: Distributed, axes: AxisInfoMap) -> Schedule {
        let original_values = distributed.func.value_count();
        Schedule {
            distributed,
            axes,
            origins: HashMap::new(),
            original_values,
            tensor_maps: vec![],
            pipeline: None,
            rings: HashMap::new(),
            smem: SmemAllocation::default(),
            guards: vec![],
            alias: None,
            setup: Setup::default(),
        }
    }

    /// The value of the function before it was scheduled that this one is or is a copy of.
    pub fn origin(&self, value: Value) -> Option<Value> {
        let origin = self.origins.get(&value).copied();
        origin.or_else(|| (value.index() < self.original_values).then_some(value))
    }

    /// The scratch memory of the operation that defines a value, if it has any.
    pub fn scratch(&self, value: Value) -> Option<Interval> {
        self.smem.scratch(self.origin(value).unwrap_or(value))
    }

    /// The operation that defines a value has the scratch memory of another one.
    pub fn move_scratch(&mut self, from: Value, to: Value) {
        let from = self.origin(from).unwrap_or(from);
        self.smem.move_scratch(from, to);
    }

    /// The address of the `mbarrier` that the operation that defines a value waits at, if it has one.
    pub fn mbarrier(&self, value: Value) -> Option<u32> {
        self.smem.mbarrier(self.origin(value)?)
    }

    /// Whether the operation that defines a value has one buffer for even and one for odd iterations of the loop around it.
    pub fn is_double_buffered(&self, value: Value) -> bool {
        self.origin(value).is_some_and(|origin| self.smem.is_double_buffered(origin))
    }

    /// The scratch memory through which an operation exchanges elements; of a batch that of each of its reductions.
    pub fn exchanges(&self, op: &Op) -> Vec<ScratchExchange> {
        if let Kind::ReduceBatch(batch) = &op.kind {
            let of_reduction = |(index, op): (usize, &Op)| {
                let PartialExchange { parity, .. } = batch.exchange(index);
                Some(ScratchExchange { parity, ..self.scratch_exchange(op)? })
            };
            return batch.body.ops.iter().enumerate().filter_map(of_reduction).collect();
        }
        self.scratch_exchange(op).into_iter().collect()
    }

    fn scratch_exchange(&self, op: &Op) -> Option<ScratchExchange> {
        let interval = self.scratch(*op.results.first()?)?;
        Some(ScratchExchange { interval, parity: None })
    }

    /// Where the scratch memory of an operation is, as a comment on it.
    fn note(&self, op: &Op) -> Option<String> {
        let result = op.results.first().copied().filter(|_| !matches!(op.kind, Kind::ReduceBatch(_)))?;
        let Interval { start, bytes } = self.scratch(result)?;
        let buffers = if self.is_double_buffered(result) { ", two buffers" } else { "" };
        let mbarrier = self.mbarrier(result).map(|address| format!(", mbarrier {address}"));
        Some(format!("scratch {start}..{}{buffers}{}", start + bytes, mbarrier.unwrap_or_default()))
    }

    /// The axis info of an integer.
    pub fn info(&self, value: Value) -> AxisInfo {
        let func = &self.distributed.func;
        match self.origin(value) {
            Some(origin) => self.axes.get(func, origin),
            None => AxisInfo::unknown(func.ty(value)),
        }
    }

    /// Whether a loop is known to run at least once.
    pub fn runs(&self, body: &For) -> bool {
        let (first, end) = (self.info(body.low).range.1, self.info(body.high).range.0);
        if body.closed { first <= end } else { first < end }
    }

    pub fn ty(&self, value: Value) -> &Type {
        self.distributed.func.ty(value)
    }

    pub fn layout(&self, value: Value) -> Option<&Layout> {
        self.distributed.layouts.get(&value)
    }

    /// A fresh value; a tile needs a layout besides.
    pub fn value(&mut self, ty: Type) -> Value {
        self.distributed.func.value(ty)
    }

    /// A fresh value of the type and layout of another one, whose copy it is.
    pub fn copy_of(&mut self, value: Value) -> Value {
        let copy = self.value(self.ty(value).clone());
        if let Some(origin) = self.origin(value) {
            self.origins.insert(copy, origin);
        }
        if let Some(layout) = self.distributed.layouts.get(&value).cloned() {
            self.distributed.layouts.insert(copy, layout);
        }
        copy
    }

    /// Records that a value stands for one of the function before it was scheduled, whose axis info it has.
    pub fn set_origin(&mut self, value: Value, of: Value) {
        if let Some(origin) = self.origin(of) {
            self.origins.insert(value, origin);
        }
    }

    /// Appends an operation with results of the given types.
    pub fn push(&mut self, ops: &mut Vec<Op>, loc: Loc, kind: impl Into<Kind>, types: &[Type]) -> Vec<Value> {
        let results: Vec<Value> = types.iter().map(|ty| self.value(ty.clone())).collect();
        ops.push(Op { kind: kind.into(), results: results.clone(), loc });
        results
    }

    /// Appends an operation with one result.
    pub fn one(&mut self, ops: &mut Vec<Op>, loc: Loc, kind: impl Into<Kind>, ty: Type) -> Value {
        self.push(ops, loc, kind, &[ty])[0]
    }

    /// Appends an operation without a result.
    pub fn effect(&mut self, ops: &mut Vec<Op>, loc: Loc, kind: impl Into<Kind>) {
        self.push(ops, loc, kind, &[]);
    }
}

impl AsRef<Func> for Schedule {
    fn as_ref(&self) -> &Func {
        &self.distributed.func
    }
}

impl fmt::Display for Schedule {
    /// The tensor maps, then the function with the addresses of scratch memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let func = &self.distributed.func;
        for (index, TensorMap { memory, block, tf32, multicast, .. }) in self.tensor_maps.iter().enumerate() {
            let name = &func.params[memory.index()].name;
            write!(f, "map {index} = {name} {block:?}")?;
            let transposed = func.view(*memory).is_some_and(|view| view.transposed);
            let flags = [(transposed, "transposed"), (*tf32, "tf32"), (multicast.is_some(), "multicast")];
            flags.iter().filter(|(holds, _)| *holds).try_for_each(|(_, flag)| write!(f, " {flag}"))?;
            writeln!(f)?;
        }
        write!(f, "{}", print(func, &|op| self.note(op)))
    }
}
