//! Which facts widen the accesses of a body: by what integer arguments must divide, and which signs.

use std::collections::{HashMap, HashSet};

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::non_negative::Signs;
use crate::gpu::layout::access;
use crate::gpu::layout::access::Alignment;
use crate::ir::guard::Guard;
use crate::ir::{Block, Func, ParamId, ParamKind, Value, backward_slice};
use crate::ops::{Kind, MemAccess};
use crate::support::limits::MAX_ACCESS_BYTES;
use crate::transform::unit_stride::integers;

/// Which accesses ask for facts that widen them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Widened {
    All,
    /// Those of loops that multiply.
    InProducts,
    /// Those of this slice there.
    Of(ParamId),
}

impl Widened {
    fn includes(self, place: &MemAccess, in_product: bool) -> bool {
        match self {
            Widened::All => true,
            Widened::InProducts => in_product,
            Widened::Of(param) => in_product && place.param == param,
        }
    }
}

/// What is promised, with the signs of what is divided where they widen an access, and the facts of these.
pub(super) fn needed_signs(
    func: &Func,
    promised: LaunchAssumptions,
    widened: Widened,
) -> (LaunchAssumptions, Vec<Guard>) {
    let signs = Signs::analyze(func);
    if signs.least.is_empty() {
        return (promised, vec![]);
    }
    let with = promised.clone().with_signs(&signs);
    let at_best = |assumptions: &LaunchAssumptions| {
        let multiples = even(func, assumptions);
        widths(func, &LaunchAssumptions { multiples, ..assumptions.clone() }, widened)
    };
    if at_best(&with) == at_best(&promised) { (promised, vec![]) } else { (with, signs.guards) }
}

/// Every integer argument as a multiple of any vector.
fn even(func: &Func, promised: &LaunchAssumptions) -> HashMap<Value, u64> {
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
    let least = |value: &Value| promised.multiples.get(value).copied().unwrap_or(1);
    integers(func).map(|value| (value, by.max(least(&value)))).collect()
}

/// What is promised, with the integer arguments whose divisibility widens an access, and by what they must divide.
pub(super) fn needed_multiples(
    func: &Func,
    promised: LaunchAssumptions,
    widened: Widened,
) -> LaunchAssumptions {
    let least = |value: &Value| promised.multiples.get(value).copied().unwrap_or(1);
    let with = |multiples| LaunchAssumptions { multiples, ..promised.clone() };
    let mut needed = even(func, &promised);
    let best = widths(func, &with(needed.clone()), widened);
    for value in integers(func) {
        // The smallest divisor that serves as well as the largest.
        let mut divisor = needed.remove(&value).unwrap_or(1);
        while divisor > least(&value) {
            let mut fewer = needed.clone();
            fewer.insert(value, divisor / 2);
            if widths(func, &with(fewer), widened) != best {
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

/// The widths of the accesses that matter: one number for each row beside a tile of rows is not worth a fact that the whole body
/// would hang on.
fn widths(func: &Func, assumptions: &LaunchAssumptions, widened: Widened) -> Vec<u32> {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let accesses = accesses(func, widened);
    let elements = |place: &MemAccess| func.ty(place.offset).shape.elements();
    let most = accesses.iter().map(|place| elements(place)).max().unwrap_or(0);
    accesses
        .into_iter()
        .filter(|place| elements(place) * SMALL_SHARE >= most)
        .map(|place| access::width(func, &axes, place, Alignment::Checked).elements)
        .collect()
}

/// The accesses of tiles that ask for facts.
pub(super) fn accesses(func: &Func, widened: Widened) -> Vec<&MemAccess> {
    fn gather<'f>(
        func: &'f Func,
        block: &'f Block,
        in_product: bool,
        found: &mut Vec<(&'f MemAccess, bool)>,
    ) {
        for op in &block.ops {
            if let Some(place) = op.kind.operation().place()
                && !func.ty(place.offset).is_scalar()
            {
                found.push((place, in_product));
            }
            let repeats = matches!(op.kind, Kind::For(_) | Kind::While(_));
            for block in op.kind.operation().blocks() {
                let multiplies = || block.ops.iter().any(|op| matches!(op.kind, Kind::Dot(_)));
                gather(func, block, in_product || (repeats && multiplies()), found);
            }
        }
    }
    let mut found = vec![];
    gather(func, &func.body, false, &mut found);
    found
        .into_iter()
        .filter(|&(place, in_product)| widened.includes(place, in_product))
        .map(|(place, _)| place)
        .collect()
}

/// An access of less than this share of the largest one's elements does not matter.
const SMALL_SHARE: u64 = 16;

/// The scalar arguments that masks come from.
pub(super) fn extents(func: &Func) -> HashSet<u32> {
    let definitions = func.definitions();
    let mut found = HashSet::new();
    func.body.walk(&mut |op| {
        let mask = op.kind.operation().place().and_then(|place| place.mask);
        let made = mask.map(|mask| backward_slice(mask, &definitions)).unwrap_or_default();
        found.extend(made.into_iter().filter_map(|value| func.scalar_parameter(value)));
    });
    found
}
