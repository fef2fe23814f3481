//! Tiles of rows that begin anywhere, read in whole vectors though their elements keep their order.
//!
//! Of a tile of several rows each begins at another distance from alignment, and no order of its numbers suits all of them
//! (`analysis/rotate`). What a thread reads are then the two aligned vectors around its elements, of which it takes those that it
//! needs (`mlir/gpu/memory/shifted`). A tile that is written keeps neighbours with neighbouring threads: each element is
//! stored by itself, and threads far from each other would write to many lines at once.

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::repeated_access::repeated;
use crate::ir::{Func, Op, Rewriter};
use crate::ops::{CacheModifier, Effect, Kind, Load, MemAccess, Shift, VectorStart};
use crate::support::dtype::DType;
use crate::support::limits::{MAX_ACCESS_BYTES, MIN_ASYNC_COPY_BYTES};

/// Marks such loads, after `split`, in a function that writes no tiles of several axes.
pub fn read_unrotated(func: &mut Func, assumptions: &LaunchAssumptions) {
    let mut suits = true;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let is_matrix = operation.place().is_some_and(|place| is_matrix(func, place));
        suits &= operation.effect() != Effect::Write || !is_matrix;
    });
    if !suits {
        return;
    }
    let axes = AxisInfoMap::analyze(func, assumptions);
    let mut found = vec![];
    // A loop makes the masks and distances of single elements once, and then loads each by one instruction: where its rows lie would
    // have to be asked in each iteration.
    let repeated = repeated(func);
    func.body.walk(&mut |op| {
        found.extend(shift(func, &axes, op).filter(|(place, _)| !repeated.contains(place)));
    });
    Rewriter::default().run(func, &mut |_, builder, mut op| {
        if let Some(place) = op.kind.operation_mut().place_mut()
            && let Some(&(_, shift)) = found.iter().find(|(known, _)| known == place)
        {
            place.shift = Some(shift);
        }
        builder.append(op);
    });
}

/// Whether an access is of a tile with several elements along several axes.
fn is_matrix(func: &Func, place: &MemAccess) -> bool {
    func.ty(place.offset).shape.iter().filter(|extent| **extent > 1).count() > 1
}

/// How a load is read around its elements, if it is of such rows.
fn shift(func: &Func, axes: &AxisInfoMap, op: &Op) -> Option<(MemAccess, Shift)> {
    let Kind::Load(Load { place, cache, .. }) = &op.kind else { return None };
    if cache.level == CacheModifier::Volatile || place.shift.is_some() || !is_matrix(func, place) {
        return None;
    }
    if func.ty(place.offset).dtype != DType::I32 {
        return None;
    }
    let offset = axes.get(func, place.offset);
    let shape = &func.ty(place.offset).shape;
    let axis = (0..shape.rank()).max_by_key(|&axis| offset.axes[axis].contiguity)?;
    let bytes = func.slice(place.param).0.bytes();
    let elements = MAX_ACCESS_BYTES / bytes;
    let neighbours =
        offset.axes[axis].contiguity >= u64::from(elements) && shape[axis].is_multiple_of(elements);
    // Wider elements fill lines one by one as well, and loops copy them ahead.
    if !neighbours || bytes >= MIN_ASYNC_COPY_BYTES {
        return None;
    }
    // Which elements take part is asked where the masks are made.
    let shift =
        Shift { elements, limit: elements, start: VectorStart::Unrotated, interval: false, one_sided: false };
    Some((*place, shift))
}
