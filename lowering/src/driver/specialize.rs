//! The specializations of a variant: the same kernel compiled for what its arguments may turn out to be.
//!
//! The *aligned* specialization relies on guards that the launcher checks: addresses and the integers in them divide
//! evenly, no access leaves its slice, and elements along a view's last axis are contiguous. Where pointers are made
//! with strides,
//! *unit stride* specializations come before it: the same, with some of these strides taken for 1. Where several loops
//! read a row
//! in pieces, there is a *single iteration* one, for rows that fit in a piece. The *unaligned* specialization, also one
//! of a single
//! iteration, relies on the same but for what divides rows, and rotates them. For dots, *scalar epilogue*
//! specializations rely on
//! what loops need for their vectors, and move what is around them element by element; *scalar operand* ones move one
//! operand
//! so too. The *tensor* specialization relies on the same, and on what TMA asks of views; it takes the place of the
//! aligned one for dots of such tiles. The *general* specialization relies on nothing and compares every offset
//! with its slice's length; an *odd* one beside it relies on guards that make comparisons unnecessary, for tiles of
//! several axes.

mod many_programs;
mod names;
mod register_limit;
mod vector_width;

use std::collections::HashMap;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::analysis::reread::unpipeline_rereads;
use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::{Settings, Variant};
use tile_ir::ir::assumption::Assumption;
use tile_ir::ir::guard::{Guard, Symbol};
use tile_ir::ir::pass::{NamedPass, PassRunner};
use tile_ir::ir::{Func, ParamId, ParamKind};
use tile_ir::ops::{Kind, VectorStart};
use tile_ir::support::dtype::DType;
use tile_ir::transform::contract_floats::{contract_floats, contract_floats_under_guards};
use tile_ir::transform::defer_scale::defer_scale;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::read_unrotated::read_unrotated;
use tile_ir::transform::rotate_rows::rotate_rows;
use tile_ir::transform::single_iteration::single_iteration;
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::unit_stride::{assume_unit_strides, unit_strides};
use tile_ir::transform::view_strides::assume_contiguous;

use self::names::{ORDERS, ScalarNames, SpecializationNames, UNIT_STRIDES, UnitStrides};
use self::vector_width::{Widened, accesses, extents, needed_multiples, needed_signs};
use crate::gpu::emit::{GpuPlan, PlanRequest, SmemOverflow};
use crate::gpu::layout::Distributed;
use crate::gpu::layout::access::Alignment;
use crate::gpu::layout::assign::distribute;
use crate::gpu::layout::{ThreadConfig, dot};
use crate::gpu::opt::batch_reductions::batch_reductions;
use crate::gpu::opt::delay_fp8_upcast::delay_fp8_upcast;
use crate::gpu::opt::elide_selects::elide_selects;
use crate::gpu::opt::hoist_loads::hoist_loads;
use crate::gpu::opt::hoist_operand_conversion::hoist_operand_conversions;
use crate::gpu::opt::remat_narrow::remat_narrow;
use crate::gpu::opt::remat_ranges::remat_ranges;
use crate::gpu::opt::select_wgmma::select_wgmma;
use crate::gpu::opt::thread_local_reductions::keep_thread_local;
use crate::gpu::schedule::passes::DisabledPasses;
use crate::gpu::specialization::{Gpus, Specialization};
use crate::mlir::Limit;

/// The launch settings that the user asked for.
#[derive(Clone, Copy, Default, Debug)]
pub struct KernelRequests<'a> {
    pub num_warps: Option<u32>,
    pub num_ctas: Option<u32>,
    /// Iterations of a loop whose loads are in flight at once.
    pub num_stages: Option<u32>,
    /// The most registers of a thread, but for a general specialization that is beside another one: it needs more, and
    /// would spill.
    pub maxnreg: Option<u32>,
    /// Programs that share a block; chosen by the compiler unless it is measured.
    pub programs: Option<u32>,
    /// No bounds checks: the launcher is unsafe.
    pub unchecked: bool,
    /// Optional passes that are left out.
    pub disabled_passes: DisabledPasses,
    /// Who runs the passes, and tells of each of them.
    pub runner: PassRunner<'a>,
}

impl KernelRequests<'_> {
    /// The settings of a variant in its attribute.
    pub fn of(kernel: &Kernel, variant: &Variant) -> KernelRequests<'static> {
        let Settings { num_warps, num_ctas, num_stages, maxnreg } = variant.settings;
        let unchecked = kernel.options.unchecked;
        KernelRequests { num_warps, num_ctas, num_stages, maxnreg, unchecked, ..KernelRequests::default() }
    }

    /// Runs a pass unless it is turned off.
    pub fn run<T: AsRef<Func>, R: Default>(
        &self,
        name: &'static str,
        of: &mut T,
        pass: impl FnOnce(&mut T) -> R,
    ) -> R {
        if self.disabled_passes.contains(name) { R::default() } else { self.runner.run(name, of, pass) }
    }
}

/// The specializations of a kernel, for each GPU the one with the strongest guards first; the last one has none.
pub fn specializations(func: &Func, requests: KernelRequests) -> Result<Vec<Specialization>, SmemOverflow> {
    match requests.num_ctas {
        None | Some(1) => specializations_for(func, requests, Gpus::All),
        Some(num_ctas) => {
            let mut specializations = specializations_for(func, requests, Gpus::WithClusters)?;
            let num_warps = requests.num_warps.map(|warps| (warps * num_ctas).min(MAX_WARPS));
            let without_clusters = KernelRequests { num_warps, num_ctas: None, ..requests };
            specializations.extend(specializations_for(func, without_clusters, Gpus::WithoutClusters)?);
            Ok(specializations)
        }
    }
}

/// Warps of the largest block.
const MAX_WARPS: u32 = 32;

/// The number of accesses with bounds checks.
fn bounds_checks(plan: &GpuPlan) -> usize {
    let mut count = 0;
    plan.laid_out.body.walk(&mut |op| {
        count += usize::from(op.kind.operation().access().is_some_and(|place| place.bounded));
    });
    count
}

/// Whether tiles of several axes are loaded or stored by pointers. One comparison for a row does not bound their
/// elements, so a specialization for unaligned rows with guards is faster than the general one, which compares each
/// element.
fn accesses_matrices(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        found |= op.kind.operation().access().is_some_and(|place| func.ty(place.offset).shape.rank() > 1);
    });
    found
}

fn specializations_for(
    original: &Func,
    requests: KernelRequests,
    gpus: Gpus,
) -> Result<Vec<Specialization>, SmemOverflow> {
    let mut func = original.clone();
    let mut scale_guards = requests.run("defer_scale", &mut func, defer_scale);
    scale_guards.extend(requests.run("contract_floats", &mut func, contract_floats_under_guards));
    let mut specializations = guarded_specializations(&func, requests, gpus)?;
    specializations
        .iter_mut()
        .for_each(|specialization| specialization.guards.extend(scale_guards.iter().cloned()));
    let maxnreg =
        if specializations.is_empty() { requests.maxnreg } else { Some(register_limit::MAX_REGISTERS) };
    let mut func = original.clone();
    requests.run("contract_floats", &mut func, contract_floats);
    let plan = general(&func, KernelRequests { maxnreg, ..requests })?;
    specializations.push(Specialization { name: "general", plan, guards: vec![], gpus });
    Ok(specializations)
}

/// The specializations with guards.
fn guarded_specializations(
    func: &Func,
    requests: KernelRequests,
    gpus: Gpus,
) -> Result<Vec<Specialization>, SmemOverflow> {
    let mut specializations = vec![];
    let columns = if gpus == Gpus::All {
        requests.runner.derive("transpose_operands", func, transpose_operands)
    } else {
        vec![]
    };
    let mut orders: Vec<(&Func, SpecializationNames)> =
        std::iter::once(func).chain(&columns).zip(ORDERS).collect();
    if gpus == Gpus::All {
        let copied = tensor_specializations(&orders, requests, &mut specializations);
        // wgmma takes bytes in one order of operands alone.
        let bytes = has_dot(func, |elem| elem.bytes() == 1);
        orders.retain(|(_, names)| !bytes || copied.is_empty() || copied.contains(&names.tensor));
    }
    let others = if specializations.is_empty() { gpus } else { Gpus::WithoutWgmma };
    let strides = unit_strides(func, bounds_policy(requests, BoundsPolicy::Guarded));
    let by_pointers = specializations.is_empty() && !accesses(func, Widened::InDotLoops).is_empty();
    // Views of 16-bit floats are loaded by TMA, or copied to aligned rows.
    let of_f32_views = others == Gpus::All && !columns.is_empty() && has_dot(func, |elem| elem == DType::F32);
    // The aligned specialization, and those of dots that move vectors in part.
    let with_vectors = |func: &Func, name, scalar| -> Result<Vec<Specialization>, SmemOverflow> {
        let (plan, guards) = aligned(func.clone(), requests)?;
        let partly = if by_pointers || of_f32_views {
            partly_vectorized(func, requests, &guards, scalar, others)?
        } else {
            vec![]
        };
        let mut specializations = vec![Specialization { name, plan, guards, gpus: others }];
        specializations.extend(partly);
        Ok(specializations)
    };
    for (UnitStrides { aligned: name, scalar, odd }, strides) in UNIT_STRIDES.into_iter().zip(&strides) {
        let mut unit = func.clone();
        let equal = assume_unit_strides(&mut unit, strides);
        for mut specialization in with_vectors(&unit, name, scalar)? {
            specialization.guards.extend(equal.iter().cloned());
            specializations.push(specialization);
        }
        let (plan, mut guards) = unaligned(unit, requests)?;
        guards.extend(equal);
        specializations.push(Specialization { name: odd, plan, guards, gpus: others });
    }
    specializations.extend(single_iteration_specializations(func, requests, others)?);
    if strides.is_empty() {
        specializations.extend(many_programs::specialization(func, requests, others)?);
        let found = with_vectors(func, ORDERS[0].aligned, ORDERS[0].scalar)?;
        if !found[0].guards.is_empty() {
            specializations.extend(found);
            if let Some((plan, guards)) = rotated(func.clone(), requests)? {
                specializations.push(Specialization { name: "unaligned", plan, guards, gpus: others });
            } else if columns.is_empty()
                && (by_pointers || accesses_matrices(func) && !has_dot(func, |_| true))
            {
                let (plan, guards) = unaligned(func.clone(), requests)?;
                let compares_less = || Ok(bounds_checks(&plan) < bounds_checks(&general(func, requests)?));
                if !guards.is_empty() && (by_pointers || compares_less()?) {
                    specializations.push(Specialization { name: ORDERS[0].odd, plan, guards, gpus: others });
                }
            }
        }
    }
    for (func, names) in orders.iter().filter(|_| !columns.is_empty()) {
        if names.aligned != ORDERS[0].aligned {
            specializations.extend(with_vectors(func, names.aligned, names.scalar)?);
        }
        let (plan, guards) = unaligned((*func).clone(), requests)?;
        specializations.push(Specialization { name: names.odd, plan, guards, gpus });
    }
    Ok(specializations)
}

/// The specializations for rows that one iteration holds, aligned ones first.
fn single_iteration_specializations(
    func: &Func,
    requests: KernelRequests,
    gpus: Gpus,
) -> Result<Vec<Specialization>, SmemOverflow> {
    let straight = requests.runner.derive("single_iteration", func, single_iteration);
    let Some((straight, iteration_guards)) = straight else { return Ok(vec![]) };
    let (plan, mut guards) = aligned(straight.clone(), requests)?;
    guards.extend(iteration_guards.iter().cloned());
    let mut found = vec![Specialization { name: "single_iteration", plan, guards, gpus }];
    if let Some((plan, mut guards)) = rotated(straight, requests)? {
        guards.extend(iteration_guards);
        found.push(Specialization { name: "single_iteration_unaligned", plan, guards, gpus });
    }
    Ok(found)
}

/// Adds the specializations whose dots take tiles by TMA, first those that also store by TMA. Returns their names.
fn tensor_specializations(
    orders: &[(&Func, SpecializationNames)],
    requests: KernelRequests,
    specializations: &mut Vec<Specialization>,
) -> Vec<&'static str> {
    let (mut odd, mut found) = (vec![], vec![]);
    let dots = orders.first().map_or(0, |(func, _)| dot::dot_count(func));
    for (func, names) in orders {
        let Some((plan, guards)) = wgmma_plan(func, requests, &[DotResults::Tma, DotResults::Vectors]) else {
            continue;
        };
        // A row of the result of a single dot need not begin as rows of its operands do.
        if dots == 1
            && let Some((plan, guards)) = wgmma_plan(func, requests, &[DotResults::Elements])
        {
            odd.push(Specialization { name: names.tensor_odd, plan, guards, gpus: Gpus::WithWgmma });
        }
        specializations.push(Specialization { name: names.tensor, plan, guards, gpus: Gpus::WithWgmma });
        found.push(names.tensor);
    }
    specializations.append(&mut odd);
    found
}

/// How the results of dots are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DotResults {
    /// By TMA.
    Tma,
    Vectors,
    /// Element by element: their rows may begin anywhere.
    Elements,
}

/// The bounds policy, unless the caller answers for all accesses.
fn bounds_policy(requests: KernelRequests, otherwise: BoundsPolicy) -> BoundsPolicy {
    if requests.unchecked { BoundsPolicy::Unchecked } else { otherwise }
}

fn general(func: &Func, requests: KernelRequests) -> Result<GpuPlan, SmemOverflow> {
    let mut func = func.clone();
    let policy = bounds_policy(requests, BoundsPolicy::Masked);
    requests.runner.run("legalize_index", &mut func, |func| legalize_index(func, policy));
    let mut plan = plan(&func, Alignment::Element, requests, &LaunchAssumptions::default(), &[])?;
    // Where operands of bytes are gathered one by one, ptxas keeps 32 values in registers and spills the others unless
    // it knows how few blocks are enough.
    let bytes = has_dot(&func, |elem| elem == DType::I8);
    plan.limit = plan.limit.or_else(|| bytes.then_some(Limit::Blocks(1)));
    Ok(plan)
}

/// Whether there is a dot of such elements.
fn has_dot(func: &Func, of: impl Fn(DType) -> bool) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        found |= matches!(&op.kind, Kind::Dot(dot) if of(func.ty(dot.a).dtype));
    });
    found
}

/// The specialization whose dots take tiles by TMA; `None` where there are none, or where they do not fit. Its results
/// are stored in the first of these ways that fits.
fn wgmma_plan(
    func: &Func,
    requests: KernelRequests,
    results: &[DotResults],
) -> Option<(GpuPlan, Vec<Guard>)> {
    let with = |num_warps: u32, results: DotResults| {
        let requests = KernelRequests { num_warps: Some(num_warps), programs: Some(1), ..requests };
        let mut staged = func.clone();
        let stores = results == DotResults::Tma;
        let select = |func: &mut Func| select_wgmma(func, num_warps, stores);
        let tma_guards = requests.runner.run("select_wgmma", &mut staged, select);
        if tma_guards.is_empty() {
            return None;
        }
        let specialize = if results == DotResults::Elements { unaligned } else { aligned };
        let (plan, mut guards) = specialize(staged, requests).ok()?;
        guards.extend(tma_guards.into_iter().filter(|guard| !guards.contains(guard)).collect::<Vec<_>>());
        let runs = num_warps.is_power_of_two() || plan.allows_any_warp_count();
        (runs && plan.tensor_maps().len() <= MAX_TENSOR_MAPS).then_some((plan, guards))
    };
    let chosen = || [dot::odd_wgmma_warps(func), dot::wgmma_warps(func)].into_iter().flatten().collect();
    let warps: Vec<u32> = requests.num_warps.map_or_else(chosen, |warps| vec![warps]);
    warps.into_iter().find_map(|warps| results.iter().find_map(|&results| with(warps, results)))
}

/// The most tensor maps that a launch passes.
const MAX_TENSOR_MAPS: usize = 8;

/// With its guards.
fn aligned(func: Func, requests: KernelRequests) -> Result<(GpuPlan, Vec<Guard>), SmemOverflow> {
    vectorized(func, requests, Widened::All)
}

/// Specializations whose loops with dots move vectors, and what is around them elements, where that needs less than
/// `guards`: a row of results need not begin as rows of operands do. Where an extent is a multiple of a vector for one
/// of two operands alone, this one moves in vectors.
fn partly_vectorized(
    func: &Func,
    requests: KernelRequests,
    guards: &[Guard],
    names: ScalarNames,
    gpus: Gpus,
) -> Result<Vec<Specialization>, SmemOverflow> {
    let is_aligned = |guard: &Guard| matches!(guard, Guard::Aligned { .. });
    let (plan, in_loops) = vectorized(func.clone(), requests, Widened::InDotLoops)?;
    let mut found = vec![];
    if !in_loops.iter().any(is_aligned) {
        return Ok(found);
    }
    if !guards.iter().all(|guard| in_loops.contains(guard)) {
        found.push(Specialization { name: names.epilogue, plan, guards: in_loops.clone(), gpus });
    }
    // View tiles have masks once they are legalized to accesses by element.
    let mut by_element = func.clone();
    assume_contiguous(&mut by_element);
    legalize_index(&mut by_element, bounds_policy(requests, BoundsPolicy::Guarded));
    let mut operands: Vec<ParamId> =
        accesses(&by_element, Widened::InDotLoops).iter().map(|place| place.param).collect();
    operands.sort();
    operands.dedup();
    let extents = extents(&by_element);
    if let [a, b] = operands[..] {
        for (operand, name) in [a, b].into_iter().zip(names.operands) {
            let (plan, fewer) = vectorized(func.clone(), requests, Widened::Of(operand))?;
            let drops_extent = in_loops.iter().any(|guard| {
                let is_extent = matches!(guard, Guard::Divisible { value: Symbol::Scalar(scalar), .. } if extents.contains(scalar));
                is_extent && !fewer.contains(guard)
            });
            if drops_extent && fewer.iter().any(is_aligned) {
                found.push(Specialization { name, plan, guards: fewer, gpus });
            }
        }
    }
    Ok(found)
}

fn vectorized(
    mut func: Func,
    requests: KernelRequests,
    widened: Widened,
) -> Result<(GpuPlan, Vec<Guard>), SmemOverflow> {
    let (strides, bounds) = legalized(&mut func, requests);
    let assumed = LaunchAssumptions::of(&func).with_guards(&func, &bounds);
    let (assumed, signs) = needed_signs(&func, assumed, widened);
    let assumptions = needed_multiples(&func, assumed, widened);
    requests.run("delay_fp8_upcast", &mut func, |func| delay_fp8_upcast(func, &assumptions));
    let plan = plan(&func, Alignment::Checked, requests, &assumptions, &bounds)?;
    let mut guards = alignment_guards(&plan.laid_out);
    guards.extend(strides);
    for (position, param) in func.params.iter().enumerate() {
        if let ParamKind::Scalar { value, .. } = param.kind
            && let Some(&by) = assumptions.multiples.get(&value)
        {
            guards.push(Guard::Divisible { value: Symbol::Scalar(position as u32), by: by as u32 });
        }
    }
    let assumed =
        func.assumptions.iter().filter(|assumption| !matches!(assumption, Assumption::Multiple(..)));
    for guard in bounds.into_iter().chain(signs).chain(assumed.map(Assumption::guard)) {
        if !guards.contains(&guard) {
            guards.push(guard);
        }
    }
    Ok((plan, guards))
}

/// Makes accesses legal under guards: those of contiguous views, and those of bounds.
fn legalized(func: &mut Func, requests: KernelRequests) -> (Vec<Guard>, Vec<Guard>) {
    let strides = requests.runner.run("view_strides", func, assume_contiguous);
    let policy = bounds_policy(requests, BoundsPolicy::Guarded);
    (strides, requests.runner.run("legalize_index", func, |func| legalize_index(func, policy)))
}

/// The same without divisibility: rows are rotated, or elements move one by one, contiguous ones by adjacent threads.
fn unaligned(mut func: Func, requests: KernelRequests) -> Result<(GpuPlan, Vec<Guard>), SmemOverflow> {
    let (strides, bounds) = legalized(&mut func, requests);
    let assumptions = LaunchAssumptions::of(&func).with_guards(&func, &bounds);
    requests.runner.run("rotate_rows", &mut func, |func| rotate_rows(func, &assumptions));
    if !has_dot(&func, |_| true) {
        requests.runner.run("read_unrotated", &mut func, |func| read_unrotated(func, &assumptions));
    }
    let plan = plan(&func, Alignment::Element, requests, &assumptions, &bounds)?;
    let mut guards = alignment_guards(&plan.laid_out);
    guards.extend(strides);
    let assumed = func.assumptions.iter().map(Assumption::guard);
    for guard in bounds.into_iter().chain(assumed) {
        if !guards.contains(&guard) {
            guards.push(guard);
        }
    }
    Ok((plan, guards))
}

/// The same, if rows are rotated. It needs more registers than the aligned specialization, whose limit would have it
/// spill.
fn rotated(func: Func, requests: KernelRequests) -> Result<Option<(GpuPlan, Vec<Guard>)>, SmemOverflow> {
    let (plan, guards) =
        unaligned(func, KernelRequests { maxnreg: Some(register_limit::MAX_REGISTERS), ..requests })?;
    let mut rotates = false;
    plan.laid_out.body.walk(&mut |op| rotates |= matches!(op.kind, Kind::Rotate(_)));
    Ok(rotates.then_some((plan, guards)))
}

/// What `gpu::opt` does to a function with layouts, in this order.
const GPU_PASSES: [NamedPass<Distributed>; 7] = [
    ("hoist_operand_conversion", hoist_operand_conversions),
    ("batch_reductions", batch_reductions),
    ("hoist_loads", hoist_loads),
    ("remat_narrow", remat_narrow),
    ("elide_selects", elide_selects),
    ("thread_local_reductions", keep_thread_local),
    ("remat_ranges", remat_ranges),
];

fn plan(
    func: &Func,
    alignment: Alignment,
    requests: KernelRequests,
    assumptions: &LaunchAssumptions,
    guards: &[Guard],
) -> Result<GpuPlan, SmemOverflow> {
    let KernelRequests { num_warps, num_stages, disabled_passes, runner, .. } = requests;
    let num_ctas = requests.num_ctas.unwrap_or(1);
    let threads = ThreadConfig { num_warps, num_ctas, num_stages, alignment };
    let mut func = func.clone();
    if num_stages.is_none() {
        requests.runner.run("unpipeline_rereads", &mut func, unpipeline_rereads);
    }
    let axes = AxisInfoMap::analyze(&func, assumptions);
    let mut distributed = distribute(&func, threads, &axes);
    for (name, pass) in GPU_PASSES {
        requests.run(name, &mut distributed, pass);
    }
    let fitting = if distributed.num_warps == 1 { SMALL_PROGRAMS } else { 1 };
    let programs = requests.programs.unwrap_or(fitting);
    let limit = |distributed: &Distributed, threads| {
        register_limit::registers(requests.maxnreg, distributed, threads)
    };
    let limit = &limit;
    let request = PlanRequest { programs, assumptions, guards, limit, disabled_passes, runner };
    GpuPlan::new(distributed, request)
}

/// Programs of one warp that share a block: blocks launch at a limited rate. Larger programs have one block each, so
/// that a multiprocessor takes the next one as soon as its threads are free (docs/decisions/0003).
const SMALL_PROGRAMS: u32 = 4;

/// The alignment of each slice for the accesses that were chosen, and the multiple that its length must be: one
/// comparison then decides for a whole vector.
fn alignment_guards(func: &Func) -> Vec<Guard> {
    let mut bytes: HashMap<u32, u32> = HashMap::new();
    let mut whole: HashMap<u32, u32> = HashMap::new();
    func.body.walk(&mut |op| {
        if let Some(place) = op.kind.operation().access()
            && place.vector > 1
            && place.shift.is_none_or(|shift| shift.start == VectorStart::Aligned)
        {
            let needed = place.vector * func.slice(place.param).0.bytes();
            let known = bytes.entry(place.param.0).or_default();
            *known = needed.max(*known);
            if place.bounded && place.shift.is_none() {
                let known = whole.entry(place.param.0).or_default();
                *known = place.vector.max(*known);
            }
        }
    });
    let aligned = bytes.into_iter().map(|(param, bytes)| Guard::Aligned { param, bytes });
    let whole = whole.into_iter().map(|(param, by)| Guard::Divisible { value: Symbol::Length(param), by });
    let mut guards: Vec<Guard> = aligned.chain(whole).collect();
    guards.sort();
    guards
}
