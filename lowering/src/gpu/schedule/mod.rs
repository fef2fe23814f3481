//! The schedule of a GPU kernel: which copies and dots are asynchronous, who waits for whom, which warp does what.
//!
//! Takes laid-out tile IR, gives the same IR with the operations of [`tile_ir::ops::schedule`] in it, which `gpu::emit` translates
//! one by one. [`passes`] lists the passes and their order. Each is right without the optional ones.

pub mod async_dot;
pub mod copy;
pub mod epilogue;
pub mod iteration_split;
mod loops;
pub mod multicast;
pub mod overlap_chained_dots;
pub mod passes;
pub mod pdl;
pub mod ping_pong;
pub mod smem_limits;
pub mod smem_operand;
pub mod software_pipeline;
pub mod tensor_map;
pub mod tile_scalars;
pub mod tma_pipeline;
pub mod verify;
pub mod warp_specialize;
pub mod work_tiles;

use std::collections::HashMap;
use std::fmt;

use crate::gpu::layout::{Distributed, Layout};
use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::ir::axis_info::AxisInfo;
use tile_ir::ir::{Func, Op, Type, Value, print};
use tile_ir::ops::{For, Kind};
use tile_ir::support::diagnostic::Loc;

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
    /// What the plan of a kernel says besides.
    pub setup: Setup,
}

/// What passes know of a kernel besides its function.
#[derive(Clone, Copy, Default, Debug)]
pub struct Setup {
    /// Registers of a thread when a block starts, if there is a limit.
    pub max_registers: Option<u32>,
    /// Whether operations exchange elements through scratch memory.
    pub uses_scratch: bool,
    /// Whether it is launched while the kernel before it still runs.
    pub uses_pdl: bool,
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
            setup: Setup::default(),
        }
    }

    /// The value of the function before it was scheduled that this one is or is a copy of.
    pub fn origin(&self, value: Value) -> Option<Value> {
        let origin = self.origins.get(&value).copied();
        origin.or_else(|| (value.index() < self.original_values).then_some(value))
    }

    /// Copies, each with its origin.
    pub fn copies(&self) -> impl Iterator<Item = (Value, Value)> {
        self.origins.iter().map(|(&copy, &origin)| (copy, origin))
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
    /// The tensor maps, then the function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let func = &self.distributed.func;
        for (index, TensorMap { memory, block, transposed, tf32, multicast }) in
            self.tensor_maps.iter().enumerate()
        {
            let name = &func.params[memory.index()].name;
            write!(f, "map {index} = {name} {block:?}")?;
            let flags = [(*transposed, "transposed"), (*tf32, "tf32"), (multicast.is_some(), "multicast")];
            flags.iter().filter(|(holds, _)| *holds).try_for_each(|(_, flag)| write!(f, " {flag}"))?;
            writeln!(f)?;
        }
        write!(f, "{}", print(func, &|_| None))
    }
}
