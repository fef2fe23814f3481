//! Emission: distributed tile IR as the MLIR of one GPU thread.
//!
//! A tile is a list of machine values, one for each register of its layout; a scalar is one value, uniform over the
//! threads of a program. A block runs one or several programs side by side, each on consecutive warps, with its own
//! barrier and its own part of shared memory. Or a cluster of blocks runs one program: each thread then writes shared
//! results to every block of the cluster, and each block reads its own copy.

mod arguments;
mod atomic;
mod barrier;
mod bounds_check;
mod control;
mod convert;
mod coordinates;
mod cse;
mod debug;
mod division;
mod dot;
mod dsmem;
mod histogram;
mod indices;
mod longest_first;
mod memory;
mod offset_address;
mod operation;
mod packed_cast;
pub(crate) mod pdl;
mod plan;
mod program;
mod random;
mod rearrange;
mod reduce;
mod redux;
mod rotated_rows;
mod scan;
mod schedule;
mod smem_tile;
mod special_register;
mod threads;
mod value_facts;
mod warp_shuffle;

use std::collections::HashMap;
use std::rc::Rc;

use tile_ir::ir::axis_info::AxisInfo;
use tile_ir::ir::{Block, Func, ParamId, Storage, Value};

use crate::gpu::emit::arguments::{KernelEntry, SliceArg, arguments};
use crate::gpu::emit::cse::CommonValues;
use crate::gpu::emit::program::RunningProgram;
use crate::gpu::emit::schedule::{AsyncOperations, SmemAddresses};
use crate::gpu::emit::threads::ThreadIndices;
use crate::gpu::emit::value_facts::ValueFacts;
use crate::gpu::emit::warp_shuffle::ShuffleMode;
use crate::gpu::layout::Layout;
use crate::gpu::schedule::smem_alloc::Interval;
use crate::mlir::builder::{Builder, IntPredicate, Val};
use crate::mlir::session::{EntryKind, ModuleBuilder};
use crate::mlir::types::{Space, Ty};
use crate::mlir::{Asm, Machine, machine, report};

pub use crate::gpu::schedule::smem_alloc::{SmemOverflow, SmemRequest};
pub use operation::{GpuEmit, emitter};
pub use plan::{BlockShape, GpuPlan};

/// The name of the block's shared memory.
const SHARED: &str = "shared";
/// The registers of a tile, or the one value of a scalar.
pub type Registers = Rc<Vec<Val>>;

/// The elements of a tile that a thread holds, in the order of this layout's registers.
struct TileRegisters<'a> {
    layout: &'a Layout,
    values: &'a [Val],
}

impl GpuPlan {
    /// Adds the kernel to a module under the name `entry`.
    pub fn emit<'a>(&'a self, module: &mut ModuleBuilder<'a>, entry: &str) {
        let func = &self.schedule.distributed.func;
        let arguments = arguments(func, self);
        let kind = EntryKind::Kernel { threads: self.threads(), blocks: self.blocks(), limit: self.limit };
        debug::declare_formats(module, func, entry);
        let entry_name = entry.to_string();
        module.function(entry, &arguments, &kind, move |b, args| {
            let entry = KernelEntry::read(self, &entry_name, b, args);
            Gpu::new(self, b, entry).run(b);
        });
    }
}

/// Declares what the kernels of a module share.
pub fn declare<'p>(module: &mut ModuleBuilder, plans: impl Iterator<Item = &'p GpuPlan> + Clone) {
    module.dynamic_shared(SHARED);
    let mut funcs = plans.map(|plan| &plan.schedule.distributed.func);
    if funcs.clone().any(report::reports) {
        module.global(report::GLOBAL, report::BYTES);
    }
    if funcs.any(debug::prints) {
        debug::declare_printf(module);
    }
}

/// The state of emitting one kernel.
pub struct Gpu<'a> {
    plan: &'a GpuPlan,
    func: &'a Func,
    entry: KernelEntry,
    values: HashMap<Value, Registers>,
    thread: ThreadIndices,
    program: RunningProgram,
    cse: CommonValues,
    facts: ValueFacts,
    smem: SmemAddresses,
    in_flight: AsyncOperations,
    /// The loops around, by the first arguments of their bodies, with the indices of their current iterations.
    iterations: Vec<(Value, Val)>,
}

impl<'a> Gpu<'a> {
    fn new(plan: &'a GpuPlan, b: &mut Builder, entry: KernelEntry) -> Gpu<'a> {
        let func = &plan.schedule.distributed.func;
        let scalars = entry.scalars.iter().map(|scalar| (scalar.value, Rc::new(vec![scalar.argument])));
        let values = scalars.collect();
        let mut thread = ThreadIndices::of_block(plan, b);
        let program = RunningProgram::of_block(plan, b, &mut thread);
        let cse = CommonValues::of_kernel(plan, b, entry.any_length());
        Gpu {
            plan,
            func,
            entry,
            values,
            thread,
            program,
            cse,
            facts: ValueFacts::of(func),
            smem: SmemAddresses::default(),
            in_flight: AsyncOperations::default(),
            iterations: vec![],
        }
    }

    fn run(&mut self, b: &mut Builder) {
        self.reorder_programs(b);
        let bytes = self.plan.schedule.smem.bytes();
        if bytes > 0 {
            let start = b.address_of(SHARED, Space::Shared);
            let bytes = b.int(Ty::I32, i64::from(bytes));
            let offset = b.mul(self.thread.program_in_block, bytes);
            self.smem.base = Some(if self.plan.programs == 1 { start } else { b.offset(start, offset, 1) });
        }
        let body = &self.func.body;
        if self.plan.programs == 1 {
            self.block(b, body);
        } else {
            // The last block may have room for more programs than are left.
            let inside = b.icmp(IntPredicate::Ult, self.program.coord[0], self.entry.grid[0]);
            b.if_then(inside, |b| self.scope(|gpu| gpu.block(b, body)));
        }
    }

    fn block(&mut self, b: &mut Builder, block: &Block) {
        block.ops.iter().for_each(|op| emitter(&op.kind).emit(self, b, op));
    }

    /// Runs `body` in a CSE scope of its own.
    fn scope<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.cse.open_region();
        let result = body(self);
        self.cse.close_region();
        result
    }

    /// Rematerializes values that depend on the thread, so that LLVM does not hoist them out of the loop around, where they
    /// would take registers from the dots.
    fn rematerialize<R>(&mut self, b: &mut Builder, body: impl FnOnce(&mut Self, &mut Builder) -> R) -> R {
        let before = self.thread;
        self.thread = before.rematerialize(b);
        let known = self.cse.forget();
        let result = body(self, b);
        self.cse.restore(known);
        self.thread = before;
        result
    }

    /// The index of the current iteration of a loop around, by the first argument of its body.
    fn iteration(&self, of: Value) -> Val {
        let found = self.iterations.iter().find(|(variable, _)| *variable == of);
        found.unwrap_or_else(|| panic!("{of:?} is of no loop around")).1
    }

    // ---- values

    fn registers(&self, value: Value) -> Registers {
        self.values.get(&value).cloned().unwrap_or_else(|| panic!("{value:?} was not emitted"))
    }

    fn scalar(&self, value: Value) -> Val {
        self.registers(value)[0]
    }

    fn define(&mut self, value: Value, registers: Vec<Val>) {
        debug_assert_eq!(registers.len(), self.register_count(value), "registers of {}", self.func.ty(value));
        self.values.insert(value, Rc::new(registers));
    }

    fn layout(&self, value: Value) -> &'a Layout {
        self.plan
            .schedule
            .distributed
            .layouts
            .get(&value)
            .unwrap_or_else(|| panic!("{value:?} has no layout"))
    }

    fn register_count(&self, value: Value) -> usize {
        let ty = self.func.ty(value);
        match ty.storage {
            Storage::Registers if ty.is_scalar() => 1,
            Storage::Registers => self.layout(value).register_count(),
            Storage::Words => self.word_types(value).len(),
            Storage::Pipe { .. } => 2,
            Storage::Slot { addresses } => addresses as usize,
            Storage::Smem { .. } | Storage::Mbarrier { .. } | Storage::Copies => 0,
        }
    }

    /// The machine type of a register of `value`.
    fn register_type(&self, value: Value) -> Ty {
        machine::scalar(self.func.ty(value).dtype, Machine::Nvptx)
    }

    fn slice(&self, param: ParamId) -> SliceArg {
        self.entry.slice(param)
    }

    /// The start of this program's shared memory.
    fn smem_base(&self) -> Val {
        self.smem.base.expect("scratch was planned")
    }

    /// The scratch memory of the operation that defines a value.
    fn scratch(&self, value: Value) -> Interval {
        self.plan.schedule.scratch(value).expect("scratch was planned")
    }

    /// The address of the scratch memory of the operation that defines a value.
    fn scratch_address(&self, b: &mut Builder, value: Value) -> Val {
        b.offset_bytes(self.smem_base(), self.scratch(value).start as i32)
    }

    /// The axis info of an integer value.
    fn info(&self, value: Value) -> AxisInfo {
        self.plan.schedule.info(value)
    }
}

/// A PTX statement with results and side effects.
fn statement(b: &mut Builder, text: &str, constraints: &str, operands: &[Val], results: &[Ty]) -> Vec<Val> {
    b.asm(text, constraints, operands, results, Asm::Effects)
}
