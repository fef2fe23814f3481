//! Guards that widen accesses: what integer arguments must divide by, and which signs they must have.

use std::collections::{HashMap, HashSet};

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::analysis::non_negative::Signs;
use tile_ir::ir::guard::Guard;
use tile_ir::ir::{Block, Func, Op, ParamKind, Value, backward_slice};
use tile_ir::ops::{Kind, MemAccess, has_own_dot};
use tile_ir::support::limits::MAX_ACCESS_BYTES;
use tile_ir::transform::unit_stride::{integers, large_accesses};

use super::axes::Widened;
use crate::gpu::layout::access;
use crate::gpu::layout::access::Alignment;

/// Whether an access is one that guards widen.
fn includes(widened: Widened, place: &MemAccess, in_dot_loop: bool) -> bool {
    match widened {
        Widened::All | Widened::AndQuotients | Widened::ForAnyArguments => true,
        Widened::InDotLoops => in_dot_loop,
        Widened::OfOperand(_, param) => in_dot_loop && place.param == param,
    }
}

/// The assumptions, with the signs of divisors of tiles, those of dividends where they widen an access, and the guards of these.
pub fn needed_signs(
    func: &Func,
    assumed: LaunchAssumptions,
    widened: Widened,
) -> (LaunchAssumptions, Vec<Guard>) {
    let signs = Signs::analyze(func);
    if signs.is_empty() {
        return (assumed, vec![]);
    }
    let with = assumed.clone().with_signs(&signs);
    let at_best = |assumptions: &LaunchAssumptions| {
        let multiples = multiples_of_vectors(func, assumptions, &[]);
        Sharing::of(func, &LaunchAssumptions { multiples, ..assumptions.clone() }, widened)
    };
    if at_best(&with) != at_best(&assumed) {
        return (with, signs.guards());
    }
    let divisors = signs.of_divisors();
    let mut least = assumed.least.clone();
    least.extend(divisors.least());
    (LaunchAssumptions { least, ..assumed }, divisors.guards())
}

/// Returns every integer argument as a multiple of any vector, and each scalar that is `loaded`, up to what the user states.
pub fn multiples_of_vectors(
    func: &Func,
    assumed: &LaunchAssumptions,
    loaded: &[Value],
) -> HashMap<Value, u64> {
    let smallest = func
        .params
        .iter()
        .filter_map(|param| match param.kind {
            ParamKind::Slice { elem, .. } => Some(elem.bytes()),
            ParamKind::Scalar { .. } => None,
        })
        .min()
        .unwrap_or(MAX_ACCESS_BYTES);
    let by = u64::from(MAX_ACCESS_BYTES / smallest.min(MAX_ACCESS_BYTES));
    let stated = func.stated_multiple.map_or(by, |stated| by.min(stated.into()));
    let of_loaded = loaded.iter().map(|&value| (value, stated));
    integers(func).map(|value| (value, by.max(assumed.multiple(value)))).chain(of_loaded).collect()
}

/// Adds to the assumptions the integer arguments whose divisibility widens an access or lengthens a run of quotients, and by what they must
/// divide; likewise scalars that the kernel has `loaded`.
pub fn needed_multiples(
    func: &Func,
    assumed: LaunchAssumptions,
    widened: Widened,
    loaded: &[Value],
) -> LaunchAssumptions {
    if widened == Widened::ForAnyArguments {
        return assumed;
    }
    let with = |multiples| LaunchAssumptions { multiples, ..assumed.clone() };
    let mut needed = multiples_of_vectors(func, &assumed, loaded);
    let best = Sharing::of(func, &with(needed.clone()), widened);
    for value in integers(func).chain(loaded.iter().copied()) {
        // The smallest divisor that serves as well as the largest.
        let mut divisor = needed.remove(&value).unwrap_or(1);
        while divisor > assumed.multiple(value) {
            let mut fewer = needed.clone();
            fewer.insert(value, divisor / 2);
            if Sharing::of(func, &with(fewer), widened) != best {
                break;
            }
            divisor /= 2;
        }
        if divisor > 1 {
            needed.insert(value, divisor);
        }
    }
    with(needed)
}

/// The widths of accesses and the lengths of runs of quotients under some assumptions.
#[derive(PartialEq)]
struct Sharing {
    widths: Vec<u32>,
    /// Empty where quotients are not asked for.
    quotients: Vec<u64>,
}

impl Sharing {
    fn of(func: &Func, assumptions: &LaunchAssumptions, widened: Widened) -> Sharing {
        let with_quotients = widened == Widened::AndQuotients;
        let quotients = if with_quotients { quotient_runs(func, assumptions) } else { vec![] };
        Sharing { widths: widths(func, assumptions, widened), quotients }
    }
}

/// Neighboring elements that share a quotient: longer runs would leave less than a quarter of the divisions, for fewer shapes.
const QUOTIENT_RUN: u64 = 4;

/// For each quotient or remainder of a tile by what is not a constant, the number of neighboring elements that are equal or follow one another,
/// up to [`QUOTIENT_RUN`].
fn quotient_runs(func: &Func, assumptions: &LaunchAssumptions) -> Vec<u64> {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let run = |value| {
        let info = axes.get(func, value).axes;
        info.iter().map(|axis| axis.constancy.max(axis.contiguity).min(QUOTIENT_RUN)).max().unwrap_or(1)
    };
    let mut runs = vec![];
    func.body.walk(&mut |op| runs.extend(by_variable_divisor(func, &axes, op).map(run)));
    runs
}

/// Returns the result of an operation that divides a tile of integers by what is not a constant.
fn by_variable_divisor(func: &Func, axes: &AxisInfoMap, op: &Op) -> Option<Value> {
    let (Kind::Scalar(scalar), &[result]) = (&op.kind, &op.results[..]) else { return None };
    let of_tile = scalar.divides_integers(func) && !func.ty(result).is_scalar();
    (of_tile && axes.get(func, scalar.args[1]).single().is_none()).then_some(result)
}

/// Whether tiles of integers are divided by what is not a constant.
pub fn divides_tiles(func: &Func) -> bool {
    let (mut found, axes) = (false, AxisInfoMap::analyze(func, &LaunchAssumptions::default()));
    func.body.walk(&mut |op| found |= by_variable_divisor(func, &axes, op).is_some());
    found
}

/// The widths of the accesses that are worth a guard.
pub fn widths(func: &Func, assumptions: &LaunchAssumptions, widened: Widened) -> Vec<u32> {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let width = |place| access::width(func, &axes, place, Alignment::Checked).elements;
    large_accesses(func, accesses(func, widened)).into_iter().map(width).collect()
}

/// The accesses of tiles that ask for guards.
pub fn accesses(func: &Func, widened: Widened) -> Vec<&MemAccess> {
    fn collect_accesses<'f>(
        func: &'f Func,
        block: &'f Block,
        in_dot_loop: bool,
        found: &mut Vec<(&'f MemAccess, bool)>,
    ) {
        for op in &block.ops {
            if let Some(place) = op.kind.operation().access()
                && !func.ty(place.offset).is_scalar()
            {
                found.push((place, in_dot_loop));
            }
            let is_loop = matches!(op.kind, Kind::For(_) | Kind::While(_));
            for block in op.kind.operation().blocks() {
                collect_accesses(func, block, in_dot_loop || is_loop && has_own_dot(block), found);
            }
        }
    }
    let mut found = vec![];
    collect_accesses(func, &func.body, false, &mut found);
    found
        .into_iter()
        .filter(|&(place, in_dot_loop)| includes(widened, place, in_dot_loop))
        .map(|(place, _)| place)
        .collect()
}

/// The scalar arguments that masks come from.
pub fn extents(func: &Func) -> HashSet<u32> {
    let definitions = func.definitions();
    let mut found = HashSet::new();
    func.body.walk(&mut |op| {
        let mask = op.kind.operation().access().and_then(|place| place.mask);
        let made = mask.map(|mask| backward_slice(mask, &definitions)).unwrap_or_default();
        found.extend(made.into_iter().filter_map(|value| func.scalar_parameter(value)));
    });
    found
}
