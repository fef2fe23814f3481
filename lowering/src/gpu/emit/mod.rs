//! Laid-out tiles as the code of one GPU thread.
//!
//! A tile is a list of machine values, one for each register of its layout; a scalar is one value, the same in every
//! thread of a program. A block runs one or several programs side by side: consecutive groups of warps, each with its
//! own barrier and its own part of shared memory. Or a cluster of blocks runs one program: then shared memory that
//! several threads use is written in each of them, and read by each block in its own.

mod address_slice;
mod arguments;
pub(crate) mod async_copy;
mod async_mma;
mod atomic;
mod barrier;
mod bounds_check;
mod control;
pub(crate) mod convert;
mod coordinates;
mod debug;
mod dot;
mod dsmem;
mod emit;
mod histogram;
mod iteration_split;
mod lanes;
mod longest_first;
mod memory;
mod overlap_chained_dots;
mod packed_cast;
pub(crate) mod pdl;
mod random;
mod rearrange;
mod reduce;
mod rotated_rows;
mod scan;
mod smem_alloc;
pub(crate) mod smem_operand;
mod threads;
mod warp_specialize;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::analysis::axis_info::{AxisInfo, AxisInfoMap, LaunchAssumptions};
use crate::analysis::program_length::{LongestAxis, longest_axis};
use crate::gpu::layout::dot::DotOperand;
use crate::gpu::layout::{Distributed, Layout};
use crate::ir::guard::Guard;
use crate::ir::{Block, Func, Op, ParamKind, Value};
use crate::mlir::builder::{Builder, IntPredicate, Val};
use crate::mlir::cast;
use crate::mlir::session::{EntryKind, Limit, ModuleBuilder};
use crate::mlir::types::{Space, Ty};
use crate::mlir::{Asm, Machine, report};
use crate::ops::{EvictionPolicy, Kind};

use crate::gpu::emit::arguments::arguments;
use crate::gpu::emit::async_copy::{BufferSlot, PendingCopies, StartedLoop};
pub use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::lanes::ShuffleMode;
use crate::gpu::emit::smem_alloc::SmemPlan;
pub use crate::gpu::emit::smem_alloc::{SmemOverflow, SmemRequest};
use crate::gpu::emit::smem_operand::OperandStage;
pub use crate::gpu::emit::warp_specialize::{Multicast, TensorMap, registers_of_each};
use crate::gpu::emit::warp_specialize::{PipelineProgress, TmaPipeline};

/// The name of the block's shared memory.
const SHARED: &str = "shared";
/// Shared memory that a block may ask for on the supported architectures (sm_80: 163 KB, sm_90: 227 KB).
pub const MAX_SHARED_BYTES: u32 = 163 * 1024;
/// What a block may ask for on every GPU that runs this code (sm_86 and sm_89: 99 KB).
const LEAST_SHARED_BYTES: u32 = 99 * 1024;

/// The registers of a tile, or the one value of a scalar.
pub type Registers = Rc<Vec<Val>>;

/// A kernel body, ready to be emitted.
#[derive(Debug)]
pub struct GpuPlan {
    pub distributed: Distributed,
    /// Facts about the distributed function's integers.
    axes: AxisInfoMap,
    /// Programs that one block runs.
    pub programs: u32,
    /// What ptxas is told of registers.
    pub limit: Option<Limit>,
    /// Blocks of views that a warp of their own copies.
    pipeline: Option<TmaPipeline>,
    /// Shared memory of one program.
    shared: SmemPlan,
    /// Whether it may be launched while the kernel before it still runs, on GPUs that have that.
    follows: bool,
}

impl GpuPlan {
    pub fn new(
        mut distributed: Distributed,
        programs: u32,
        assumptions: &LaunchAssumptions,
        facts: &[Guard],
    ) -> Result<GpuPlan, SmemOverflow> {
        let mut pipeline = TmaPipeline::new(&distributed);
        if pipeline.is_none() {
            distributed.copied = smem_operand::find(&distributed);
            distributed.kept = dot::invariant_operand::find(&distributed);
        }
        let mut planned = SmemPlan::plan(&distributed, facts, pipeline.as_mut());
        if planned.is_err() && !distributed.kept.is_empty() {
            distributed.kept.clear();
            planned = SmemPlan::plan(&distributed, facts, None);
        }
        let mut shared = planned?;
        while smem_operand::without_ring(&mut distributed, &shared) {
            shared = SmemPlan::plan(&distributed, facts, None)?;
        }
        let axes = AxisInfoMap::analyze(&distributed.func, assumptions);
        // Programs that share a block share its memory and its sixteen barriers.
        let fitting = MAX_SHARED_BYTES.checked_div(shared.bytes()).unwrap_or(programs).max(1);
        let fitting = 1 << fitting.min(8).ilog2();
        let follows = pdl::follows(&distributed, pipeline.is_some());
        let programs = programs.min(fitting);
        Ok(GpuPlan { programs, limit: None, distributed, axes, pipeline, shared, follows })
    }

    /// Whether GPUs of other capabilities get other code.
    pub fn differs_by_capability(&self) -> bool {
        let func = &self.distributed.func;
        let mut differs = false;
        func.body.walk(&mut |op| differs |= op.kind.gpu().differs_by_capability(func, op));
        differs
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let beside = if self.pipeline.is_some() { warp_specialize::WARPS } else { 0 };
        (self.distributed.block_warps() * self.programs + beside) * 32
    }

    /// What it takes behind the grid's extents.
    pub fn maps(&self) -> &[TensorMap] {
        self.pipeline.as_ref().map_or(&[], |pipeline| &pipeline.maps)
    }

    /// Whether a block runs several programs, one after the other.
    pub fn persistent(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Whether they come from a counter, whose address stands behind the grid's extents.
    pub fn counted(&self) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.counted)
    }

    /// Whether it waits for the kernel before it, on GPUs that let it start earlier.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Whether its warps may be no power of two: they pass each other nothing but whole tiles that change their layout.
    pub fn runs_in_sets(&self) -> bool {
        let distributed = &self.distributed;
        let mut runs = true;
        distributed.func.body.walk(&mut |op| {
            let moves = matches!(op.kind, Kind::Convert(_) | Kind::Hold(_));
            let along_axis = matches!(
                op.kind,
                Kind::Scan(_) | Kind::Index(_) | Kind::Exchange(_) | Kind::Gather(_) | Kind::Histogram(_)
            );
            runs &= moves || !along_axis && op.kind.gpu().scratch(distributed, op) == 0;
        });
        runs
    }

    fn pipeline(&self) -> &TmaPipeline {
        self.pipeline.as_ref().expect("products of blocks come with copies")
    }

    /// Blocks that run one program.
    pub fn blocks(&self) -> u32 {
        self.distributed.num_ctas
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared.bytes() * self.programs
    }

    /// Adds the kernel to a module under the name `entry`.
    pub fn emit<'a>(&'a self, module: &mut ModuleBuilder<'a>, entry: &str) {
        let func = &self.distributed.func;
        let arguments = arguments(func, self);
        let kind = EntryKind::Kernel { threads: self.threads(), blocks: self.blocks(), limit: self.limit };
        debug::declare_formats(module, func, entry);
        let entry_name = entry.to_string();
        module.function(entry, &arguments, &kind, move |b, args| {
            let mut gpu = Gpu::new(self, b, args);
            gpu.entry = entry_name;
            gpu.run(b);
        });
    }
}

/// Declares what the kernels of a module share.
pub fn declare<'p>(module: &mut ModuleBuilder, plans: impl Iterator<Item = &'p GpuPlan> + Clone) {
    module.dynamic_shared(SHARED);
    let mut funcs = plans.map(|plan| &plan.distributed.func);
    if funcs.clone().any(report::reports) {
        module.global(report::GLOBAL, report::BYTES);
    }
    if funcs.any(debug::prints) {
        debug::declare_printf(module);
    }
}

/// A slice parameter in the kernel.
#[derive(Clone, Copy, Debug)]
struct SliceArg {
    pointer: Val,
    length: Val,
}

#[derive(Default)]
struct Built {
    /// This thread's coordinates, by layout and axis.
    threads: HashMap<(Layout, usize), Val>,
    joined: HashMap<(IndexJoin, usize, usize), Val>,
    pointers: HashMap<(usize, usize), Val>,
}

/// How two indices become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum IndexJoin {
    Sum,
    Difference,
}

/// The state of emitting one kernel.
pub struct Gpu<'a> {
    plan: &'a GpuPlan,
    /// The kernel's name in its module.
    entry: String,
    func: &'a Func,
    values: HashMap<Value, Registers>,
    slices: Vec<Option<SliceArg>>,
    maps: Vec<Val>,
    grid: [Val; 3],
    /// The address of what counts programs, or 0.
    counter: Option<Val>,
    program: [Val; 3],
    lane: Val,
    /// This thread's warp within its program.
    warp: Val,
    /// And among those of the program that are in its block.
    block_warp: Val,
    /// Which of the block's programs this is.
    group: Val,
    /// What was built once and serves many registers, one table for each open region: values built inside a branch are
    /// not to be had outside it.
    built: Vec<Built>,
    /// Values that are another one plus a constant, which then goes into the instruction instead of a register.
    displaced: HashMap<usize, (Val, i64)>,
    rows: rotated_rows::RotatedRows,
    /// Values that are 0 where a mask does not hold, with the mask and what they are elsewhere.
    masked: HashMap<usize, (Val, Val)>,
    shared: SmemPlan,
    base: Option<Val>,
    /// The number of the present turn of the loop around.
    turn: Option<Val>,
    /// Whether the other blocks of the cluster may not have started yet.
    awaited: bool,
    /// Whether the kernel before this one may still run.
    follows: bool,
    /// Whether the launch has clusters of two blocks, for kernels with multicast loads.
    clustered: Option<Val>,
    /// How far the copies of blocks are.
    progress: PipelineProgress,
    /// Conditions that do not hold in the present turns.
    quiet: Vec<Value>,
    /// Blocks that the program takes once, which have come before the loop that takes them.
    came: HashSet<usize>,
    /// Those of them that are left factors which lie in registers.
    held: HashMap<usize, dot::wgmma::OperandWords>,
    /// Whether the turns of the loop around overlap.
    overlaps: bool,
    /// Loads of the current turn of a loop that were made ahead.
    arrived: HashMap<Value, BufferSlot>,
    /// Those of them whose tiles products read.
    tiles: HashMap<Value, OperandStage>,
    /// Where factors start that a loop keeps in shared memory.
    kept: HashMap<(Value, DotOperand), Val>,
    /// Copies that are to be started.
    due: Option<PendingCopies>,
    /// Loops that were started ahead of what stands before them, by their variable.
    started: HashMap<Value, StartedLoop>,
    /// The cache policy of wide loads.
    policy: Val,
    /// That of accesses that ask to give way first, if there are any.
    passing_policy: Option<Val>,
    /// What moves the lower half of a word up, as a number that no compiler knows.
    upwards: Option<Val>,
    /// Programs that take longest.
    longest: Option<LongestAxis>,
}

impl<'a> Gpu<'a> {
    fn new(plan: &'a GpuPlan, b: &mut Builder, args: &[Val]) -> Gpu<'a> {
        let func = &plan.distributed.func;
        let mut values = HashMap::new();
        let mut slices = vec![];
        let mut rest = args.iter().copied();
        let mut next = || rest.next().expect("as many arguments as `arguments` listed");
        for param in &func.params {
            match param.kind {
                ParamKind::Slice { .. } => slices.push(Some(SliceArg { pointer: next(), length: next() })),
                ParamKind::Scalar { value, dtype } => {
                    let mut argument = next();
                    if dtype == crate::support::dtype::DType::Bool {
                        let zero = b.int(Ty::I8, 0);
                        argument = b.icmp(IntPredicate::Ne, argument, zero);
                    }
                    values.insert(value, Rc::new(vec![argument]));
                    slices.push(None);
                }
            }
        }
        let grid = [next(), next(), next()];
        let counter = plan.counted().then(&mut next);
        let maps = rest.collect();
        let thread = b.op("nvvm.read.ptx.sreg.tid.x", &[], Ty::I32);
        let (thirty_one, five) = (b.int(Ty::I32, 31), b.int(Ty::I32, 5));
        let lane = b.and(thread, thirty_one);
        let block_warp = b.lshr(thread, five);
        let zero = b.int(Ty::I32, 0);
        let num_warps = plan.distributed.num_warps;
        let (warp, group) = if plan.programs == 1 {
            (block_warp, zero)
        } else {
            let (mask, shift) =
                (b.int(Ty::I32, i64::from(num_warps - 1)), b.int(Ty::I32, i64::from(num_warps.ilog2())));
            (b.and(block_warp, mask), b.lshr(block_warp, shift))
        };
        let block_warp = if num_warps == 1 { zero } else { warp };
        let axes = ["x", "y", "z"].map(|axis| format!("nvvm.read.ptx.sreg.ctaid.{axis}"));
        let mut program =
            [b.op(&axes[0], &[], Ty::I32), b.op(&axes[1], &[], Ty::I32), b.op(&axes[2], &[], Ty::I32)];
        if plan.programs > 1 {
            let count = b.int(Ty::I32, i64::from(plan.programs));
            let first = b.mul_nsw(program[0], count);
            program[0] = b.add_nsw(first, group);
        }
        let warp = dsmem::warp_of(plan, b, block_warp, &mut program[0]);
        let policy = memory::reading_policy(b);
        let mut passes = false;
        func.body.walk(&mut |op| {
            passes |= op.kind.operation().cache().is_some_and(|cache| cache.keep == EvictionPolicy::First);
        });
        let passing_policy = passes.then(|| memory::passing_policy(b));
        let length = slices.iter().flatten().next().map(|slice| slice.length);
        let upwards = length.filter(|_| packed_cast::widens_many(&plan.distributed));
        let upwards = upwards.map(|length| packed_cast::upwards(b, length));
        Gpu {
            plan,
            entry: String::new(),
            func,
            values,
            slices,
            maps,
            grid,
            counter,
            program,
            lane,
            warp,
            block_warp,
            group,
            built: vec![Built::default()],
            displaced: HashMap::new(),
            rows: rotated_rows::RotatedRows::of(func),
            masked: HashMap::new(),
            shared: plan.shared.clone(),
            base: None,
            turn: None,
            clustered: None,
            progress: PipelineProgress::default(),
            quiet: vec![],
            came: HashSet::new(),
            held: HashMap::new(),
            overlaps: false,
            follows: plan.follows(),
            awaited: plan.blocks() > 1 && dsmem::needs_cluster(&plan.distributed, &func.body),
            arrived: HashMap::new(),
            tiles: HashMap::new(),
            kept: HashMap::new(),
            due: None,
            started: HashMap::new(),
            policy,
            passing_policy,
            upwards,
            longest: longest_axis(func),
        }
    }

    fn run(&mut self, b: &mut Builder) {
        self.begin_longest_first(b);
        if self.shared.bytes() > 0 {
            let start = b.address_of(SHARED, Space::Shared);
            let bytes = b.int(Ty::I32, i64::from(self.shared.bytes()));
            let offset = b.mul(self.group, bytes);
            self.base = Some(if self.plan.programs == 1 { start } else { b.offset(start, offset, 1) });
        }
        self.enter_cluster(b);
        let (body, plan) = (&self.func.body, self.plan);
        if let Some(pipeline) = &plan.pipeline {
            return self.with_pipeline(b, pipeline, |gpu, b| gpu.block(b, body));
        }
        if self.plan.programs == 1 {
            self.block(b, body);
        } else {
            // The last block may have more places than there are programs left.
            let inside = b.icmp(IntPredicate::Ult, self.program[0], self.grid[0]);
            b.if_then(inside, |b| self.scope(|gpu| gpu.block(b, body)));
        }
        self.await_predecessor(b);
    }

    fn block(&mut self, b: &mut Builder, block: &Block) {
        self.block_with(b, block, |_, _, _| ());
    }

    /// `after` is called behind each operation with its number.
    fn block_with(
        &mut self,
        b: &mut Builder,
        block: &Block,
        mut after: impl FnMut(&mut Self, &mut Builder, usize),
    ) {
        // The first loop's copies are under way while what stands before it is waited for.
        let early = async_copy::earliest(self, block);
        let mut next = 0;
        while next < block.ops.len() {
            let count = reduce::together(&self.shared, &block.ops[next..]);
            if count > 1 {
                self.await_cluster(b, &block.ops[next]);
                reduce::emit(self, b, &block.ops[next..next + count]);
            } else {
                self.op(b, &block.ops[next]);
            }
            for i in next..next + count {
                if let Some((last, body)) = early
                    && last == i
                {
                    self.await_predecessor(b);
                    let started = self.start(b, body);
                    self.started.insert(body.body.args[0], started);
                }
                after(self, b, i);
            }
            next += count;
        }
    }

    fn op(&mut self, b: &mut Builder, op: &Op) {
        self.await_predecessor_before(b, op);
        let told = self.plan.pipeline.as_ref().map_or(&[][..], |pipeline| &pipeline.told);
        let copied = &self.plan.distributed.copied;
        if op.results.first().is_some_and(|result| told.contains(result) || copied.contains_key(result)) {
            return;
        }
        self.await_cluster(b, op);
        op.kind.gpu().emit(self, b, op);
    }

    /// Runs `body` with coordinates of its own.
    fn scope<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.built.push(Built::default());
        let result = body(self);
        self.built.pop();
        result
    }

    /// Builds what depends on the thread anew, so that LLVM does not compute it before the loop around, where it would take
    /// registers from what multiplies.
    fn anew<R>(&mut self, b: &mut Builder, body: impl FnOnce(&mut Self, &mut Builder) -> R) -> R {
        let before = [self.lane, self.warp, self.block_warp];
        let same = |number| statement(b, "mov.b32 $0, $1;", "=r,r", &[number], &[Ty::I32])[0];
        [self.lane, self.warp, self.block_warp] = before.map(same);
        let known = std::mem::replace(&mut self.built, vec![Built::default()]);
        let result = body(self, b);
        self.built = known;
        [self.lane, self.warp, self.block_warp] = before;
        result
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
        self.plan.distributed.layouts.get(&value).unwrap_or_else(|| panic!("{value:?} has no layout"))
    }

    fn register_count(&self, value: Value) -> usize {
        if self.func.ty(value).is_scalar() { 1 } else { self.layout(value).register_count() }
    }

    /// The machine type of a register of `value`.
    fn register_type(&self, value: Value) -> Ty {
        cast::scalar(self.func.ty(value).dtype, Machine::Nvptx)
    }

    fn slice(&self, param: crate::ir::ParamId) -> SliceArg {
        self.slices[param.index()].expect("memory operations name slices")
    }

    fn newest(&mut self) -> &mut Built {
        self.built.last_mut().expect("the outermost region stays open")
    }

    /// `base + constant`, remembered as such.
    fn displace(&mut self, b: &mut Builder, base: Val, constant: i64) -> Val {
        if constant == 0 {
            return base;
        }
        let amount = b.int(base.ty, constant);
        let value = b.add_nsw(base, amount);
        self.displaced.insert(value.id(), (base, constant));
        value
    }

    /// A value as another one plus a constant.
    fn displacement(&self, value: Val) -> (Val, i64) {
        self.displaced.get(&value.id()).copied().unwrap_or((value, 0))
    }

    /// The sum of two indices, or their difference; what they are displaced by stays a constant.
    fn joined(&mut self, b: &mut Builder, join: IndexJoin, left: Val, right: Val) -> Val {
        let ((x, p), (y, q)) = (self.displacement(left), self.displacement(right));
        let key = (join, x.id(), y.id());
        let known = self.built.iter().rev().find_map(|built| built.joined.get(&key)).copied();
        let base = known.unwrap_or_else(|| {
            let base = match join {
                IndexJoin::Sum => b.add_nsw(x, y),
                IndexJoin::Difference => b.sub_nsw(x, y),
            };
            self.newest().joined.insert(key, base);
            base
        });
        let number = self.displace(b, base, if join == IndexJoin::Sum { p + q } else { p - q });
        if let Some(&is_head) = self.rows.heads.get(&left.id()).or_else(|| self.rows.heads.get(&right.id())) {
            self.rows.heads.insert(number.id(), is_head);
        }
        number
    }

    /// Where this program's part of shared memory starts.
    fn scratch(&self) -> Val {
        self.base.expect("scratch was planned")
    }

    /// What is known of an integer value.
    fn info(&self, value: Value) -> AxisInfo {
        self.plan.axes.get(self.func, value)
    }
}

/// A PTX statement with results, tied to nothing.
fn statement(b: &mut Builder, text: &str, constraints: &str, operands: &[Val], results: &[Ty]) -> Vec<Val> {
    b.asm(text, constraints, operands, results, Asm::Effects)
}
