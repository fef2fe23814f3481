//! The pipeline: every pass from a checked function to the plans of its code, in the order in which it runs.
//!
//! [`PASSES`] is the list. [`shared`], [`specialize`] and [`host_plan`] run it; a pass that is not in it does not run. A function is
//! verified after each pass. `FUSE_PASSES=-name` leaves out an optional one. What follows translates alone: `gpu::emit` and `cpu::emit`
//! write MLIR of a finished plan, and `backend` makes PTX and assembly of that.

pub mod axes;
pub mod loop_facts;
pub mod refusal;
mod register_limit;
mod requests;
pub mod specialized_func;
pub mod vector_width;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::guard::Guard;
use tile_ir::ir::{Func, verify};
use tile_ir::support::diagnostic::list;
use tile_ir::transform;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::unit_stride::{assume_unit_strides, unit_strides};
use tile_ir::transform::view_strides::assume_contiguous;

use self::axes::{Axes, Programs};
use self::refusal::{InvalidBehind, MAX_TENSOR_MAPS, Refusal};
pub use self::register_limit::NO_LIMIT as NO_REGISTER_LIMIT;
pub use self::requests::{DisabledPasses, KernelRequests};
use self::specialized_func::{SpecializedFunc, has_dot};
use crate::cpu::emit::CpuPlan;
use crate::gpu::emit::{BlockShape, GpuPlan};
use crate::gpu::layout::assign::distribute;
use crate::gpu::layout::{Distributed, ThreadConfig};
use crate::gpu::schedule::Schedule;
use crate::gpu::schedule::dot_registers::{leaves_room_for_producers, loads_beside_dots};
use crate::gpu::schedule::plan::plan;
use crate::gpu::schedule::smem_operand::has_wgmma_rings;
use crate::gpu::schedule::software_pipeline::async_load::sector_loads;
use crate::gpu::schedule::tma_pipeline::producer_warps;
use crate::gpu::schedule::verify::{verify_barriers, verify_schedule};
use crate::gpu::{opt, schedule};
use crate::mlir::Limit;

/// A pass: what it does, whether kernels are right without it, and for which specializations it runs.
pub struct Pass {
    pub name: &'static str,
    pub summary: &'static str,
    pub optional: bool,
    when: fn(&Axes) -> bool,
    pub run: Run,
}

/// What a pass changes.
#[derive(Clone, Copy)]
pub enum Run {
    /// The tile IR of a variant.
    Func(fn(&mut Func)),
    /// The tile IR of a variant for GPUs, from which its specializations begin.
    Prepared(SpecializedPass),
    /// The tile IR of a specialization.
    Specialized(SpecializedPass),
    Layouts(fn(&mut Distributed)),
    Schedule(fn(&mut Schedule)),
    /// Nothing: it makes functions or a plan of what there is.
    Derive,
}

/// A pass of tile IR that may find that there is no such specialization.
type SpecializedPass = fn(&mut SpecializedFunc) -> Result<(), Refusal>;

/// Declares the passes in their order; each is a function of its module, and both have its name.
macro_rules! define_passes {
    ($($need:ident $kind:ident $name:ident $(if $when:ident)?: $summary:literal,)*) => {
        /// All passes, in their order.
        pub static PASSES: &[Pass] = &[
            $(Pass {
                name: stringify!($name),
                summary: $summary,
                optional: define_passes!(@$need),
                when: define_passes!(@when $($when)?),
                run: define_passes!(@$kind $name),
            },)*
        ];
    };
    (@optional) => { true };
    (@required) => { false };
    (@when) => { |_| true };
    (@when $when:ident) => { Axes::$when };
    (@func $name:ident) => { Run::Func(transform::$name::$name) };
    (@prepared $name:ident) => { Run::Prepared(specialized_func::$name) };
    (@specialized $name:ident) => { Run::Specialized(specialized_func::$name) };
    (@layouts $name:ident) => { Run::Layouts(opt::$name::$name) };
    (@schedule $name:ident) => { Run::Schedule(schedule::$name::$name) };
    (@derive $name:ident) => { Run::Derive };
}

define_passes! {
    // Tile IR of a variant, which the CPU and all GPUs share.
    optional func strength_reduce: "induction variables as multiples of the loop's variable",
    optional func split_full_tiles: "selects under a branch, where iterations of full tiles do without them",
    optional func contract_products: "products that may be fused with the sum that uses them",

    // Tile IR of a variant on GPUs.
    optional prepared counted_loops if is_guarded: "a `while` that counts up to a bound as a loop over a range",
    optional prepared defer_scale if is_guarded: "scales of scores after their maximum",
    optional prepared contract_floats: "`exp` as `exp2`, a division as a product with the reciprocal",

    // A function for each value of an axis.
    required derive transpose_operands: "dot operands of views by columns",
    required derive unit_strides: "strides of pointers that are 1",
    required derive single_iteration: "loops that run once as straight-line code",

    // Tile IR of a specialization.
    optional specialized view_pointers if uses_tma: "operands that are loaded by pointers as blocks of views, which TMA loads (sm_90a)",
    required specialized select_wgmma if uses_tma: "dots by warpgroups, whose operands TMA loads (sm_90a)",
    required specialized view_strides if is_guarded: "views whose last axis is contiguous",
    required specialized legalize_index: "offsets that do not overflow, accesses that stay inside their slices",
    required specialized widen_accesses if has_vectors: "signs and divisors of arguments that make accesses vectors",
    optional specialized load_runs_once if has_vectors: "elements that neighbors read, loaded once and repeated in registers",
    optional specialized chain_divisions if has_vectors: "quotients by products as quotients of quotients",
    optional specialized version_loops if moves_vectors: "loops whose sizes or places are loaded, once for those that divide by a vector, once for others",
    required specialized select_copied_wgmma if copies_for_wgmma: "dots by warpgroups, whose operands threads copy or store (sm_90a)",
    optional specialized delay_fp8_upcast if has_vectors: "8-bit floats stay bytes until their fragments are read",
    required specialized rotate_rows if is_unaligned: "rows that begin anywhere, by whole vectors",
    required specialized read_unrotated if is_unaligned: "rows that are used once, by whole vectors without a rotation",
    required specialized unpipeline_rereads: "no copies ahead for a loop that reads what an earlier one has read",

    // Tile IR with layouts.
    required derive layout: "which thread holds which elements of a tile",
    optional layouts hoist_conversions: "conversions of what a loop does not change ahead of it",
    optional layouts batch_reductions: "independent reductions side by side, at one barrier",
    optional layouts hoist_loads: "loads ahead of reductions that they do not depend on",
    optional layouts remat_narrow: "upcasts again after a reduction, so that narrow tiles stay narrow",
    optional layouts elide_selects: "no selects that only masked-off elements would notice",
    optional layouts thread_local_reductions: "loop-carried sums as partial sums of each thread",
    optional layouts remat_ranges: "ranges again inside branches of loops with wgmma",

    // The schedule of a GPU.
    required derive plan_smem: "what goes to shared memory, and where it is there",
    required schedule warp_specialize: "a producer warp issues TMA loads, consumer warpgroups issue dots",
    optional schedule software_pipeline: "copy the loads of later iterations to shared memory while this one runs",
    optional schedule overlap_chained_dots: "issue the second of two chained dots in the next iteration, beside the first one",
    optional schedule ping_pong: "let warpgroups issue chained dots in turn",
    optional schedule async_dot: "issue the dot of the next iteration while that of this one runs",
    optional schedule iteration_split: "split overlapped loops into iterations with and without branches",
    required schedule stage_operands: "write what a loop's dots read and the loop does not change to shared memory before it",
    optional schedule position_before_waits: "find a warpgroup's position in a dot ahead of the waits for its operands",
    optional schedule reduce_batch: "let reductions exchange partial results side by side at one barrier, and in buffers by parity",
    required schedule pdl: "wait for the kernel before this one ahead of the first access of memory",
    required schedule cluster_wait: "initialize the barriers of a cluster, and wait until its blocks have started ahead of stores to them",
    required schedule membar: "put barriers where accesses of two threads may conflict",
    required derive verify_barriers: "each access of shared memory is ordered after those that it conflicts with",

    // Tile IR of the CPU.
    required derive host_versions: "a version for contiguous views, and for pointers with strides of 1",
    required derive host_legalize_index: "offsets that do not overflow, accesses that stay inside their slices",
}

/// The passes of the schedule, in their order.
pub fn schedule_passes() -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().filter(|pass| matches!(pass.run, Run::Schedule(_)))
}

impl DisabledPasses {
    /// Reads names of passes to leave out, such as `-overlap_chained_dots,-ping_pong`.
    pub fn parse(text: &str) -> Result<DisabledPasses, String> {
        let mut disabled = DisabledPasses::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let name = item.strip_prefix('-').map(str::trim).unwrap_or_default();
            let bit = DisabledPasses::bit(name);
            if bit == 0 {
                let known = PASSES.iter().filter(|pass| pass.optional).map(|pass| format!("-{}", pass.name));
                let known = known.collect::<Vec<_>>();
                let known = list(known.iter().map(String::as_str));
                return Err(format!("`{item}` turns off no pass: what can be turned off is {known}"));
            }
            disabled.0 |= bit;
        }
        Ok(disabled)
    }

    /// Turns off all optional passes of the schedule.
    pub fn whole_schedule() -> DisabledPasses {
        let optional = schedule_passes().filter(|pass| pass.optional);
        DisabledPasses(optional.fold(0, |set, pass| set | DisabledPasses::bit(pass.name)))
    }

    /// Whether the pass of this name is turned off.
    pub fn contains(self, name: &str) -> bool {
        self.0 & DisabledPasses::bit(name) != 0
    }

    /// Returns the bit of an optional pass; 0 for any other name.
    fn bit(name: &str) -> u64 {
        let mut optional = PASSES.iter().filter(|pass| pass.optional);
        optional.position(|pass| pass.name == name).map_or(0, |position| 1 << position)
    }
}

/// Runs the passes that all specializations and the CPU share.
pub fn shared(func: &mut Func, requests: KernelRequests) -> Result<(), InvalidBehind> {
    for pass in passes(requests) {
        if let Run::Func(run) = pass.run {
            requests.runner.run(pass.name, func, run);
            verified(pass, func)?;
        }
    }
    Ok(())
}

/// The passes that are not turned off.
fn passes(requests: KernelRequests) -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().filter(move |pass| !requests.disabled_passes.contains(pass.name))
}

fn verified(pass: &Pass, func: &Func) -> Result<(), InvalidBehind> {
    verify(func).map_err(|what| InvalidBehind { pass: pass.name, what })
}

// ---- GPUs

/// Runs the passes of a variant on GPUs that come before its specializations.
pub fn prepare(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    run_on(body, |run| if let Run::Prepared(pass) = run { Some(pass) } else { None })
}

/// Runs the passes of a specialization on a prepared body. Gives its plan; the body has its guards.
pub fn specialize(mut body: SpecializedFunc) -> Result<(GpuPlan, SpecializedFunc), Refusal> {
    run_on(&mut body, |run| if let Run::Specialized(pass) = run { Some(pass) } else { None })?;
    let requests = body.requests;
    let distributed = layout(&body)?;
    let by_pointers = body.func.views.iter().any(|view| view.computed.is_some());
    if by_pointers && loads_beside_dots(&distributed) {
        return Err(Refusal::LoadsBesideTma);
    }
    let (assumptions, guards) = (&body.assumptions, &body.guards.bounds);
    let mut plan = scheduled(distributed, &ScheduleRequest { assumptions, guards, requests })?;
    plan.limit = limit_of_axes(&body, &plan);
    if body.axes.uses_tma() {
        let (warps, maps) = (requests.num_warps.unwrap_or(0), plan.tensor_maps().len());
        if !warps.is_power_of_two() && !plan.allows_any_warp_count() {
            return Err(Refusal::WarpCount(warps));
        }
        if maps > MAX_TENSOR_MAPS {
            return Err(Refusal::TensorMaps(maps));
        }
    }
    Ok((plan, body))
}

/// Runs the passes that are chosen and that the axes ask for.
fn run_on(body: &mut SpecializedFunc, chosen: fn(Run) -> Option<SpecializedPass>) -> Result<(), Refusal> {
    let (axes, requests) = (body.axes, body.requests);
    for pass in passes(requests).filter(|pass| (pass.when)(&axes)) {
        if let Some(run) = chosen(pass.run) {
            requests.runner.run(pass.name, body, run)?;
            verified(pass, &body.func)?;
        }
    }
    Ok(())
}

/// Assigns layouts, and runs the passes on them.
fn layout(body: &SpecializedFunc) -> Result<Distributed, Refusal> {
    let KernelRequests { num_warps, num_ctas, num_stages, runner, .. } = body.requests;
    let threads =
        ThreadConfig { num_warps, num_ctas: num_ctas.unwrap_or(1), num_stages, alignment: body.alignment() };
    let axes = AxisInfoMap::analyze(&body.func, &body.assumptions);
    let mut distributed = runner.derive("layout", &body.func, |func| distribute(func, threads, &axes));
    distributed.sector_loads = sector_loads(&distributed.func, &body.assumptions);
    for pass in passes(body.requests) {
        if let Run::Layouts(run) = pass.run {
            runner.run(pass.name, &mut distributed, run);
            verified(pass, &distributed.func)?;
        }
    }
    Ok(distributed)
}

/// What a schedule is made for.
pub struct ScheduleRequest<'a> {
    pub assumptions: &'a LaunchAssumptions,
    /// The guards of accesses that need no comparison.
    pub guards: &'a [Guard],
    pub requests: KernelRequests<'a>,
}

/// Plans shared memory, and runs the passes of the schedule.
pub fn scheduled(distributed: Distributed, request: &ScheduleRequest) -> Result<GpuPlan, Refusal> {
    let ScheduleRequest { assumptions, guards, requests } = request;
    let fitting = if distributed.num_warps == 1 { SMALL_PROGRAMS } else { 1 };
    let pipelines_loops = !requests.disabled_passes.contains("software_pipeline");
    let mut schedule = plan(distributed, assumptions, pipelines_loops)?;
    if !has_wgmma_rings(&schedule.distributed, &schedule.rings) {
        return Err(Refusal::NoWarpGroupDot);
    }
    if let Some(pipeline) = &schedule.pipeline
        && !leaves_room_for_producers(&schedule.distributed, pipeline, schedule.smem.bytes())
    {
        return Err(Refusal::RoomForProducers);
    }
    schedule.guards = guards.to_vec();
    let programs = schedule.smem.programs(requests.programs.unwrap_or(fitting));
    let warps = schedule.distributed.warps_per_cta();
    let producers = if schedule.pipeline.is_some() { producer_warps(warps) } else { 0 };
    let threads = (warps * programs + producers) * 32;
    let limit = register_limit::registers(requests.maxnreg, &schedule.distributed, threads);
    schedule.setup.max_registers = limit.and_then(Limit::registers);
    let laid_out = schedule.distributed.func.clone();
    for pass in passes(*requests) {
        if let Run::Schedule(run) = pass.run {
            requests.runner.run(pass.name, &mut schedule, run);
            let Distributed { func, num_warps, .. } = &schedule.distributed;
            verified(pass, func)?;
            verify_schedule(func, *num_warps).map_err(|what| InvalidBehind { pass: pass.name, what })?;
        }
    }
    // As a pass, so that whoever measures them sees what it takes.
    let barriers =
        requests.runner.run("verify_barriers", &mut schedule, |schedule| verify_barriers(schedule));
    barriers.map_err(|what| InvalidBehind { pass: "membar", what })?;
    Ok(GpuPlan::new(schedule, laid_out, BlockShape { programs, threads }, limit))
}

/// Programs of one warp that share a block: blocks launch at a limited rate. Larger programs have one block each, so
/// that a multiprocessor takes the next one as soon as its threads are free (docs/decisions/0003).
const SMALL_PROGRAMS: u32 = 4;

/// The register limit for ptxas, where an axis has one of its own.
fn limit_of_axes(body: &SpecializedFunc, plan: &GpuPlan) -> Option<Limit> {
    if body.axes.programs == Programs::Many {
        // Without a limit ptxas saves registers by making loads late.
        return Some(register_limit::block_limit(NO_REGISTER_LIMIT, plan.threads()));
    }
    // Where operands are gathered one by one, ptxas keeps 32 values in registers and spills the others unless it knows how few blocks
    // are enough.
    let by_elements = !body.axes.has_vectors() && !body.axes.copies_for_wgmma();
    let gathers_operands = by_elements && has_dot(&body.func, |_| true);
    plan.limit.or_else(|| gathers_operands.then_some(Limit::Blocks(1)))
}

// ---- the CPU

/// A CPU plan of a kernel, and versions of it for contiguous elements where there are views, or pointers with strides.
/// Views that are operands of dots may be contiguous along either axis.
pub fn host_plan(func: &Func, bounds: BoundsPolicy) -> CpuPlan {
    let mut general = func.clone();
    legalize_index(&mut general, bounds);
    let mut plan = CpuPlan::new(general).noting_accesses();
    let first = unit_strides(func, BoundsPolicy::Masked).into_iter().next().unwrap_or_default();
    for mut unit in std::iter::once(func.clone()).chain(transpose_operands(func)) {
        let mut strides = assume_contiguous(&mut unit);
        strides.extend(assume_unit_strides(&mut unit, &first));
        if !strides.is_empty() {
            legalize_index(&mut unit, bounds);
            plan = plan.with_specialized(&strides, unit);
        }
    }
    plan
}
