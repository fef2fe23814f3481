//! The tile IR of one specialization before it has layouts, and what its axes ask of the passes.

use std::collections::HashMap;

use tile_ir::analysis::axis_info::LaunchAssumptions;
use tile_ir::analysis::non_negative::Signs;
use tile_ir::analysis::reread;
use tile_ir::ir::assumption::Assumption;
use tile_ir::ir::guard::{Guard, Symbol};
use tile_ir::ir::{Func, ParamKind};
use tile_ir::ops::{Kind, VectorStart};
use tile_ir::support::dtype::DType;
use tile_ir::transform::legalize_index::BoundsPolicy;
use tile_ir::transform::{
    chain_divisions, contract_floats, counted_loops, defer_scale, legalize_index, load_runs_once,
    read_unrotated, rotate_rows, version_loops, view_strides,
};

use super::axes::{Axes, DotResults, Movement};
use super::loop_facts::versioned_region;
use super::refusal::Refusal;
use super::requests::KernelRequests;
use super::vector_width::{needed_multiples, needed_signs};
use crate::gpu::layout::access::Alignment;
use crate::gpu::opt;

/// The tile IR of a specialization.
#[derive(Clone)]
pub struct SpecializedFunc<'a> {
    pub func: Func,
    pub axes: Axes,
    pub requests: KernelRequests<'a>,
    /// What holds of the arguments of a launch.
    pub assumptions: LaunchAssumptions,
    pub guards: GuardsByReason,
}

/// The guards of a specialization by what relies on them, in the order in which a launch checks them.
#[derive(Clone, Default)]
pub struct GuardsByReason {
    /// Views whose last axis is contiguous.
    strides: Vec<Guard>,
    /// Accesses that need no comparison.
    pub bounds: Vec<Guard>,
    /// Dividends and divisors that are not negative.
    signs: Vec<Guard>,
    tensor_maps: Vec<Guard>,
    /// The values of axes.
    pub axes: Vec<Guard>,
    /// Counters that do not wrap.
    counters: Vec<Guard>,
    /// Scales and exponents that are moved.
    contractions: Vec<Guard>,
}

impl GuardsByReason {
    /// How many there are before the passes of a specialization.
    pub fn prepared(&self) -> usize {
        self.axes.len() + self.counters.len() + self.contractions.len()
    }
}

impl AsRef<Func> for SpecializedFunc<'_> {
    fn as_ref(&self) -> &Func {
        &self.func
    }
}

impl<'a> SpecializedFunc<'a> {
    pub fn new(func: Func, axes: Axes, requests: KernelRequests<'a>) -> SpecializedFunc<'a> {
        SpecializedFunc {
            func,
            axes,
            requests,
            assumptions: LaunchAssumptions::default(),
            guards: GuardsByReason::default(),
        }
    }

    /// This body with another way to move tiles.
    pub fn moving(&self, movement: Movement) -> SpecializedFunc<'a> {
        SpecializedFunc { axes: Axes { movement, ..self.axes }, ..self.clone() }
    }

    /// How accesses are kept inside their slices, unless the caller answers for all of them.
    pub fn bounds_policy(&self) -> BoundsPolicy {
        match self.axes.movement {
            _ if self.requests.unchecked => BoundsPolicy::Unchecked,
            Movement::Checked => BoundsPolicy::Masked,
            _ => BoundsPolicy::Guarded,
        }
    }

    /// What vectors of accesses are known to begin at.
    pub fn alignment(&self) -> Alignment {
        if self.axes.has_vectors() { Alignment::Checked } else { Alignment::Element }
    }

    /// The guards of all passes; those of vectors follow from the accesses of the function with layouts.
    pub fn all_guards(&self, laid_out: &Func) -> Vec<Guard> {
        if !self.axes.is_guarded() {
            return vec![];
        }
        let GuardsByReason { strides, bounds, signs, tensor_maps, axes, counters, contractions } =
            &self.guards;
        let mut guards = alignment_guards(laid_out);
        guards.extend(strides.iter().cloned());
        let widens = self.axes.has_vectors();
        if widens {
            guards.extend(self.divisors());
        }
        let is_divisor = |assumption: &&Assumption| matches!(assumption, Assumption::Multiple(..));
        let assumed = self.func.assumptions.iter().filter(|assumption| !(widens && is_divisor(assumption)));
        let assumed: Vec<Guard> = assumed.map(Assumption::guard).collect();
        for guard in bounds.iter().chain(signs).chain(&assumed).chain(tensor_maps) {
            if !guards.contains(guard) {
                guards.push(guard.clone());
            }
        }
        guards.extend(axes.iter().chain(counters).chain(contractions).cloned());
        guards
    }

    /// What integer arguments must divide by.
    fn divisors(&self) -> impl Iterator<Item = Guard> {
        self.func.params.iter().enumerate().filter_map(|(position, param)| {
            let ParamKind::Scalar { value, .. } = param.kind else { return None };
            let by = *self.assumptions.multiples.get(&value)? as u32;
            Some(Guard::Divisible { value: Symbol::Scalar(position as u32), by })
        })
    }
}

/// Whether there is a dot of such elements.
pub fn has_dot(func: &Func, of: impl Fn(DType) -> bool) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        found |= matches!(&op.kind, Kind::Dot(dot) if of(func.ty(dot.a).dtype));
    });
    found
}

// ---- passes

pub fn counted_loops(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    body.guards.counters = counted_loops::counted_loops(&mut body.func);
    Ok(())
}

pub fn defer_scale(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    body.guards.contractions.extend(defer_scale::defer_scale(&mut body.func));
    Ok(())
}

pub fn contract_floats(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    if body.axes.is_guarded() {
        let guards = contract_floats::contract_floats_under_guards(&mut body.func);
        body.guards.contractions.extend(guards);
    } else {
        contract_floats::contract_floats(&mut body.func);
    }
    Ok(())
}

pub fn view_pointers(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    body.guards.tensor_maps = opt::view_pointers::view_pointers(&mut body.func);
    Ok(())
}

pub fn select_wgmma(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    let stores = body.axes.movement == Movement::Tensor(DotResults::Tma);
    let warps = body.requests.num_warps.unwrap_or(0);
    let guards = opt::select_wgmma::select_wgmma(&mut body.func, warps, stores);
    // No thread knows the extents and strides of what pointers point to.
    let mut is_left = false;
    body.func.body.walk(&mut |op| {
        if let Kind::LoadView(load) = &op.kind {
            is_left |= body.func.view(load.tile.memory).is_some_and(|view| view.computed.is_some());
        }
    });
    if guards.is_empty() || is_left {
        return Err(Refusal::NoWarpGroupDot);
    }
    body.guards.tensor_maps.extend(guards);
    Ok(())
}

pub fn select_copied_wgmma(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    let warps = body.requests.num_warps.unwrap_or(0);
    let found = opt::select_copied_wgmma::select_copied_wgmma(&mut body.func, warps);
    if found { Ok(()) } else { Err(Refusal::NoWarpGroupDot) }
}

pub fn view_strides(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    body.guards.strides = view_strides::assume_contiguous(&mut body.func);
    Ok(())
}

pub fn legalize_index(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    let policy = body.bounds_policy();
    let guards = legalize_index::legalize_index(&mut body.func, policy);
    if body.axes.is_guarded() {
        body.guards.bounds = guards;
        // Guards of accesses show the signs of most dividends and divisors as well.
        let signs = Signs::analyze(&body.func).given(&body.guards.bounds);
        let assumed = LaunchAssumptions::of(&body.func).with_guards(&body.func, &body.guards.bounds);
        body.assumptions = assumed.with_signs(&signs);
    }
    Ok(())
}

pub fn widen_accesses(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    let Some(widened) = body.axes.widened() else { return Ok(()) };
    let (assumed, signs) = needed_signs(&body.func, std::mem::take(&mut body.assumptions), widened);
    body.assumptions = needed_multiples(&body.func, assumed, widened, &[]);
    body.guards.signs = signs;
    Ok(())
}

pub fn load_runs_once(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    let KernelRequests { num_warps, num_ctas, .. } = body.requests;
    // Where layouts choose the number of warps, tiles are large enough for several elements a thread.
    let threads = 32 * num_warps.unwrap_or(4) * num_ctas.unwrap_or(1);
    load_runs_once::load_runs_once(&mut body.func, &body.assumptions, threads);
    Ok(())
}

pub fn chain_divisions(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    chain_divisions::chain_divisions(&mut body.func, &mut body.assumptions);
    Ok(())
}

pub fn version_loops(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    if let Some(region) = versioned_region(&body.func, &body.assumptions) {
        let copies = version_loops::version_loops(&mut body.func, &region);
        let known = &mut body.assumptions.least;
        let of_copies = known.iter().filter_map(|(value, &least)| Some((*copies.get(value)?, least)));
        *known = known.clone().into_iter().chain(of_copies).collect();
    }
    Ok(())
}

pub fn delay_fp8_upcast(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    opt::delay_fp8_upcast::delay_fp8_upcast(&mut body.func, &body.assumptions);
    Ok(())
}

pub fn rotate_rows(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    rotate_rows::rotate_rows(&mut body.func, &body.assumptions);
    Ok(())
}

pub fn read_unrotated(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    if !has_dot(&body.func, |_| true) {
        read_unrotated::read_unrotated(&mut body.func, &body.assumptions);
    }
    Ok(())
}

pub fn unpipeline_rereads(body: &mut SpecializedFunc) -> Result<(), Refusal> {
    if body.requests.num_stages.is_none() {
        reread::unpipeline_rereads(&mut body.func);
    }
    Ok(())
}

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
