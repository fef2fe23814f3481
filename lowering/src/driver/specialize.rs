//! The specializations of a variant: the same kernel compiled for what its arguments may turn out to be.
//!
//! Each has a value on every axis of [`Axes`], and guards that a launch checks; the launcher takes the first one whose
//! guards hold. Most of them rely on all rows beginning at multiples of a vector, and on accesses that stay inside
//! their slices. Some rely on less: on what the loops with dots need for their vectors, or on bounds alone, for rows
//! that begin anywhere. Some rely on more, and are faster: dots of blocks that TMA loads, strides that are 1, rows that
//! one iteration holds, many programs. The last one relies on nothing, and compares every offset with its slice's length.

use tile_ir::analysis::axis_info::LaunchAssumptions;
use tile_ir::analysis::reread::has_rereads;
use tile_ir::ir::guard::{Guard, Symbol, SymbolicSum};
use tile_ir::ir::{Func, ParamId};
use tile_ir::ops::{DotOperand, Kind};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;
use tile_ir::transform::legalize_index::legalize_index;
use tile_ir::transform::single_iteration::single_iteration;
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::unit_stride::{assume_unit_strides, unit_strides};
use tile_ir::transform::view_strides::assume_contiguous;

use super::pipeline::axes::{
    Axes, DotResults, DotsBy, Iterations, Movement, OperandOrder, Programs, UnitStrides, Widened,
};
use super::pipeline::refusal::Refusal;
use super::pipeline::specialized_func::{SpecializedFunc, has_dot};
use super::pipeline::vector_width::{accesses, divides_tiles, extents, multiples_of_vectors, widths};
use super::pipeline::{NO_REGISTER_LIMIT, prepare, specialize};
use crate::gpu::emit::GpuPlan;
use crate::gpu::layout::dot;
use crate::gpu::opt::dot_refusal::DotRefusal;
use crate::gpu::opt::select_wgmma;
use crate::gpu::specialization::{Gpus, Specialization};

pub use super::pipeline::KernelRequests;

/// The specializations of a kernel, for each GPU the one with the strongest guards first; the last one has none.
pub fn specializations(func: &Func, requests: KernelRequests) -> Result<Vec<Specialization>, Refusal> {
    let num_warps = requests.num_warps.map(|warps| dot::warps_that_hold_accumulators(func, warps));
    let requests = KernelRequests { num_warps, ..requests };
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

fn specializations_for(
    func: &Func,
    requests: KernelRequests,
    gpus: Gpus,
) -> Result<Vec<Specialization>, Refusal> {
    let prepared = |movement| -> Result<SpecializedFunc, Refusal> {
        let mut body = SpecializedFunc::new(func.clone(), Axes::moving(movement), requests);
        prepare(&mut body)?;
        Ok(body)
    };
    let mut found = guarded(&prepared(ALIGNED)?, gpus)?;
    let mut general = prepared(Movement::Checked)?;
    if !found.is_empty() {
        general.requests.maxnreg = Some(NO_REGISTER_LIMIT);
    }
    let refused_dots = refused_dots(&general, &found);
    found.push(built(general, gpus)?);
    for specialization in &mut found {
        specialization.refused_dots = refused_dots.clone();
    }
    Ok(found)
}

/// The dots that warpgroups cannot do, and why; none where a specialization has warpgroups.
fn refused_dots(body: &SpecializedFunc, found: &[Specialization]) -> Vec<(Loc, DotRefusal)> {
    if found.iter().any(|specialization| specialization.gpus == Gpus::WithWgmma) {
        return vec![];
    }
    let warps = body.requests.num_warps.or_else(|| dot::wgmma_warps(&body.func));
    warps.map_or_else(Vec::new, |warps| select_wgmma::refused_dots(&body.func, warps))
}

const ALIGNED: Movement = Movement::Vectors(Widened::All);

/// The specialization of a body.
fn built(body: SpecializedFunc, gpus: Gpus) -> Result<Specialization, Refusal> {
    let (plan, body) = specialize(body)?;
    let guards = body.all_guards(&plan.laid_out);
    Ok(Specialization { name: body.axes.to_string(), plan, guards, gpus, refused_dots: vec![] })
}

/// The specializations with guards.
fn guarded(base: &SpecializedFunc, gpus: Gpus) -> Result<Vec<Specialization>, Refusal> {
    let runner = base.requests.runner;
    let columns = match gpus {
        Gpus::All => runner.derive("transpose_operands", &base.func, transpose_operands),
        _ => vec![],
    };
    let has_columns = !columns.is_empty();
    let funcs = std::iter::once(base.func.clone()).chain(columns);
    let ordered =
        |(func, operands)| SpecializedFunc { func, axes: Axes { operands, ..base.axes }, ..base.clone() };
    let mut orders: Vec<SpecializedFunc> = funcs.zip(OperandOrder::ALL).map(ordered).collect();
    let (mut found, by_tma) = if gpus == Gpus::All { tensor(&orders)? } else { (vec![], vec![]) };
    // wgmma takes bytes in one order of operands alone.
    if !found.is_empty() && has_dot(&base.func, |elem| elem.bytes() == 1) {
        orders.retain(|body| by_tma.contains(&body.axes.operands));
    }
    let others = if found.is_empty() { gpus } else { Gpus::WithoutWgmma };
    let has_pointers = found.is_empty() || base.func.views.is_empty();
    let by_pointers = has_pointers && !accesses(&base.func, Widened::InDotLoops).is_empty();
    // Views of 16-bit floats are loaded by TMA, or copied to aligned rows.
    let of_f32_views = others == Gpus::All && has_columns && has_dot(&base.func, |elem| elem == DType::F32);
    // The aligned specialization, and those of dots that move vectors in part.
    let with_vectors = |body: &SpecializedFunc, others| -> Result<Vec<Specialization>, Refusal> {
        let aligned = built(body.moving(ALIGNED), others)?;
        let partly =
            if by_pointers || of_f32_views { partly_vectorized(body, &aligned, others)? } else { vec![] };
        let mut found = vec![];
        for (widened, specialization) in std::iter::once((Widened::All, aligned)).chain(partly) {
            found.extend(with_warpgroups(body, Movement::Vectors(widened), specialization)?);
        }
        Ok(found)
    };
    let policy = base.bounds_policy();
    let strides = runner.derive("unit_strides", &base.func, |func| unit_strides(func, policy));
    for (set, strides) in strides.iter().enumerate().take(MAX_UNIT_STRIDES) {
        let mut unit = base.clone();
        unit.axes.strides = UnitStrides::Set(set);
        unit.guards.axes.extend(assume_unit_strides(&mut unit.func, strides));
        let by_tma = if others == Gpus::All { tensor(std::slice::from_ref(&unit))?.0 } else { vec![] };
        let by_others = if by_tma.is_empty() { others } else { Gpus::WithoutWgmma };
        found.extend(by_tma);
        found.extend(with_vectors(&unit, by_others)?);
        found.extend(elements_with_warpgroups(&unit, others)?);
    }
    found.extend(of_single_iterations(base, others)?);
    if strides.is_empty() {
        found.extend(of_many_programs(base, others)?);
        let vectors = with_vectors(base, others)?;
        if vectors[0].guards.len() > base.guards.prepared() {
            found.extend(of_shared_quotients(base, &vectors[0], others)?);
            let aligned = found.len();
            found.extend(vectors);
            if let Some(rotated) = rotated(base, others)? {
                found.push(rotated);
            } else if !has_columns {
                if !by_pointers {
                    let any = for_any_arguments(base, &found[aligned], others)?;
                    found.extend(any);
                }
                if let Some(elements) = of_elements(base, by_pointers, others)? {
                    found.extend(with_warpgroups(base, Movement::Elements, elements)?);
                }
            }
        }
    } else if !has_dot(&base.func, |_| true) {
        // Accesses of contiguous slices are vectors under any strides.
        let vectors = with_vectors(base, others)?;
        if vectors[0].guards.iter().any(|guard| matches!(guard, Guard::Aligned { .. })) {
            found.extend(vectors);
        }
    }
    for body in orders.iter().filter(|_| has_columns) {
        if body.axes.operands != OperandOrder::Rows {
            found.extend(with_vectors(body, others)?);
        }
        found.extend(elements_with_warpgroups(body, gpus)?);
    }
    Ok(found)
}

/// The most sets of strides with a specialization of their own.
const MAX_UNIT_STRIDES: usize = 4;

// ---- dots

/// The specializations whose dots take tiles by TMA, first those whose results have aligned rows, and the orders that have
/// one.
fn tensor(orders: &[SpecializedFunc]) -> Result<(Vec<Specialization>, Vec<OperandOrder>), Refusal> {
    let (mut found, mut odd, mut by_tma) = (vec![], vec![], vec![]);
    for body in orders {
        let Some(tensor) = first_tensor(body, &[DotResults::Tma, DotResults::Vectors])? else { continue };
        // A row of the result, or of what is loaded beside the operands, need not begin as rows of the operands do.
        let needs_less =
            |other: &Specialization| tensor.guards.iter().any(|guard| !other.guards.contains(guard));
        odd.extend(first_tensor(body, &[DotResults::Elements])?.filter(needs_less));
        found.push(tensor);
        by_tma.push(body.axes.operands);
    }
    found.extend(odd);
    Ok((found, by_tma))
}

/// The specialization by TMA with the first of these ways to store results that fits, if any does.
fn first_tensor(body: &SpecializedFunc, results: &[DotResults]) -> Result<Option<Specialization>, Refusal> {
    let chosen = || [dot::odd_wgmma_warps(&body.func), dot::wgmma_warps(&body.func)];
    let warps = body.requests.num_warps.map_or_else(chosen, |warps| [Some(warps), None]);
    for warps in warps.into_iter().flatten() {
        for &results in results {
            let mut tensor = body.moving(Movement::Tensor(results));
            tensor.requests = KernelRequests { num_warps: Some(warps), programs: Some(1), ..body.requests };
            match built(tensor, Gpus::WithWgmma) {
                Ok(specialization) => return Ok(Some(specialization)),
                Err(refusal @ Refusal::Invalid(_)) => return Err(refusal),
                Err(_) => {}
            }
        }
    }
    Ok(None)
}

/// A specialization without TMA, behind the one for GPUs whose warpgroups multiply what threads copy or store, if they can.
fn with_warpgroups(
    body: &SpecializedFunc,
    movement: Movement,
    mut by_warps: Specialization,
) -> Result<Vec<Specialization>, Refusal> {
    let chosen = || body.requests.num_warps.or_else(|| dot::wgmma_warps(&body.func));
    let may_have = by_warps.gpus == Gpus::All && has_dot(&body.func, |_| true);
    let Some(warps) = chosen().filter(|_| may_have) else { return Ok(vec![by_warps]) };
    let mut by_warpgroups = body.moving(movement);
    by_warpgroups.axes.dots = DotsBy::Warpgroups;
    by_warpgroups.requests.num_warps = Some(warps);
    match built(by_warpgroups, Gpus::WithWgmma) {
        Ok(found) => {
            by_warps.gpus = Gpus::WithoutWgmma;
            Ok(vec![found, by_warps])
        }
        Err(refusal @ Refusal::Invalid(_)) => Err(refusal),
        Err(_) => Ok(vec![by_warps]),
    }
}

/// The specialization that moves elements one by one, behind the one whose warpgroups multiply, if they can.
fn elements_with_warpgroups(body: &SpecializedFunc, gpus: Gpus) -> Result<Vec<Specialization>, Refusal> {
    let elements = built(body.moving(Movement::Elements), gpus)?;
    with_warpgroups(body, Movement::Elements, elements)
}

/// Specializations whose loops with dots move vectors, and what is around them elements, where that needs less than
/// the aligned one: a row of results need not begin as rows of operands do. Where an extent is a multiple of a vector
/// for one of two operands alone, this one moves in vectors.
fn partly_vectorized(
    body: &SpecializedFunc,
    aligned: &Specialization,
    gpus: Gpus,
) -> Result<Vec<(Widened, Specialization)>, Refusal> {
    let is_aligned = |guard: &Guard| matches!(guard, Guard::Aligned { .. });
    let moving = |widened| built(body.moving(Movement::Vectors(widened)), gpus);
    let in_loops = moving(Widened::InDotLoops)?;
    let mut found = vec![];
    if !in_loops.guards.iter().any(is_aligned) {
        return Ok(found);
    }
    let loops_need = in_loops.guards.clone();
    if !aligned.guards.iter().all(|guard| loops_need.contains(guard)) {
        found.push((Widened::InDotLoops, in_loops));
    }
    // View tiles have masks once they are legalized to accesses by element.
    let mut by_element = body.func.clone();
    assume_contiguous(&mut by_element);
    legalize_index(&mut by_element, body.bounds_policy());
    let mut operands: Vec<ParamId> =
        accesses(&by_element, Widened::InDotLoops).iter().map(|place| place.param).collect();
    operands.sort();
    operands.dedup();
    let extents = extents(&by_element);
    let is_extent = |guard: &Guard| matches!(guard, Guard::Divisible { value: Symbol::Scalar(scalar), .. } if extents.contains(scalar));
    if let [a, b] = operands[..] {
        for (operand, param) in [(DotOperand::A, a), (DotOperand::B, b)] {
            let widened = Widened::OfOperand(operand, param);
            let one = moving(widened)?;
            let mut dropped = loops_need.iter().filter(|guard| !one.guards.contains(guard));
            if dropped.any(is_extent) && one.guards.iter().any(is_aligned) {
                found.push((widened, one));
            }
        }
    }
    Ok(found)
}

// ---- rows

/// The specializations for rows that one iteration holds, aligned ones first.
fn of_single_iterations(base: &SpecializedFunc, gpus: Gpus) -> Result<Vec<Specialization>, Refusal> {
    let straight = base.requests.runner.derive("single_iteration", &base.func, single_iteration);
    let Some((func, guards)) = straight else { return Ok(vec![]) };
    let mut single = SpecializedFunc { func, ..base.clone() };
    single.axes.iterations = Iterations::Single;
    single.guards.axes.extend(guards);
    let aligned = built(single.moving(ALIGNED), gpus)?;
    Ok(std::iter::once(aligned).chain(rotated(&single, gpus)?).collect())
}

/// The specialization for rows that begin anywhere, if it rotates rows. It needs more registers than the aligned one,
/// whose limit would have it spill.
fn rotated(body: &SpecializedFunc, gpus: Gpus) -> Result<Option<Specialization>, Refusal> {
    let mut body = body.moving(Movement::Rotated);
    body.requests.maxnreg = Some(NO_REGISTER_LIMIT);
    let found = built(body, gpus)?;
    let mut rotates = false;
    found.plan.laid_out.body.walk(&mut |op| rotates |= matches!(op.kind, Kind::Rotate(_)));
    Ok(rotates.then_some(found))
}

/// The specialization for rows that begin anywhere, and whose elements move one by one, where it compares fewer offsets
/// than the general one: one comparison for a row does not bound the elements of a tile of several axes.
fn of_elements(
    base: &SpecializedFunc,
    by_pointers: bool,
    gpus: Gpus,
) -> Result<Option<Specialization>, Refusal> {
    let of_matrices = accesses_matrices(&base.func) && !has_dot(&base.func, |_| true);
    if !by_pointers && !of_matrices {
        return Ok(None);
    }
    let elements = built(base.moving(Movement::Elements), gpus)?;
    let general = || specialize(base.moving(Movement::Checked));
    let pays = elements.guards.len() > base.guards.prepared()
        && (by_pointers || bounds_checks(&elements.plan) < bounds_checks(&general()?.0));
    Ok(pays.then_some(elements))
}

/// The specialization whose vectors need nothing of an argument, where a few others do and would take all vectors along: a matrix of indices
/// whose rows have any length, say, beside rows of a constant extent.
fn for_any_arguments(
    base: &SpecializedFunc,
    aligned: &Specialization,
    gpus: Gpus,
) -> Result<Option<Specialization>, Refusal> {
    if !aligned.guards.iter().any(|guard| matches!(guard, Guard::Divisible { .. })) {
        return Ok(None);
    }
    let best = multiples_of_vectors(&base.func, &base.assumptions, &[]);
    let best = LaunchAssumptions { multiples: best, ..base.assumptions.clone() };
    let vectors = |assumptions: &LaunchAssumptions| {
        let widths = widths(&base.func, assumptions, Widened::All).into_iter();
        widths.filter(|&width| width > 1).count()
    };
    if 2 * vectors(&base.assumptions) <= vectors(&best) {
        return Ok(None);
    }
    let any = built(base.moving(Movement::Vectors(Widened::ForAnyArguments)), gpus)?;
    let needs_less = aligned.guards.iter().any(|guard| !any.guards.contains(guard));
    Ok(needs_less.then_some(any))
}

/// The specialization for divisors of tiles that are such multiples that neighboring elements share quotients and what is computed from
/// them: the row of an image that a flat index is in, say. `None` where that needs no other guards than the aligned one.
fn of_shared_quotients(
    base: &SpecializedFunc,
    aligned: &Specialization,
    gpus: Gpus,
) -> Result<Option<Specialization>, Refusal> {
    if !divides_tiles(&base.func) || has_dot(&base.func, |_| true) {
        return Ok(None);
    }
    let shared = built(base.moving(Movement::Vectors(Widened::AndQuotients)), gpus)?;
    let needs_more = shared.guards.iter().any(|guard| !aligned.guards.contains(guard));
    Ok(needs_more.then_some(shared))
}

/// Whether tiles of several axes are loaded or stored by pointers.
fn accesses_matrices(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        found |= op.kind.operation().access().is_some_and(|place| func.ty(place.offset).shape.rank() > 1);
    });
    found
}

/// The number of accesses with bounds checks.
fn bounds_checks(plan: &GpuPlan) -> usize {
    let mut count = 0;
    plan.laid_out.body.walk(&mut |op| {
        count += usize::from(op.kind.operation().access().is_some_and(|place| place.bounded));
    });
    count
}

// ---- programs

/// So many programs that several are resident wherever a GPU has room for one.
const MANY_PROGRAMS: i64 = 1024;

/// The specialization for many programs whose loops read again what an earlier loop has read. Where programs are few,
/// async copies are all that hides latency in the first of such loops. Where they are many, other programs do, and
/// what the copies' ring buffers would take is left to the L1 cache, which serves the later loops.
///
/// `None` where no loop reads again, or where the user chose stages or registers. There is none for unaligned rows:
/// their pieces are not prefetched, and more registers alone made them slower.
fn of_many_programs(base: &SpecializedFunc, gpus: Gpus) -> Result<Option<Specialization>, Refusal> {
    let chosen = base.requests.num_stages.is_some() || base.requests.maxnreg.is_some();
    if chosen || gpus != Gpus::All || !has_rereads(&base.func) {
        return Ok(None);
    }
    let mut many = base.moving(ALIGNED);
    many.requests.num_stages = Some(1);
    many.axes.programs = Programs::Many;
    many.guards.axes.push(Guard::AtMost {
        low: SymbolicSum { terms: vec![(MANY_PROGRAMS, vec![])] },
        high: SymbolicSum { terms: vec![(1, [0, 1, 2].map(Symbol::Grid).to_vec())] },
    });
    built(many, gpus).map(Some)
}
