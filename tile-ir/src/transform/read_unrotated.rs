//! Tiles of misaligned rows, read in whole vectors without rotation.
//!
//! Each row of a tile of several rows has its own misalignment, and no rotation suits all of them
//! ([`crate::transform::rotate_rows`]). A thread then loads the two aligned vectors around its elements, and selects those that it
//! needs (`gpu/emit/memory/shifted`). A tile that is written keeps contiguous elements in adjacent threads: each element is
//! stored by itself, and threads far from each other would write to many cache lines at once.

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::repeated_access::repeated;
use crate::ir::{Func, Op, Rewriter};
use crate::ops::{CacheModifier, Effect, Kind, Load, MemAccess, Shift, VectorStart};
use crate::support::dtype::DType;
use crate::support::limits::{MAX_ACCESS_BYTES, MIN_ASYNC_COPY_BYTES};

/// Marks such loads, after index legalization, in a function that writes no tiles of several axes.
pub fn read_unrotated(func: &mut Func, assumptions: &LaunchAssumptions) {
    let mut applies = true;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let is_matrix = operation.access().is_some_and(|place| is_matrix(func, place));
        applies &= operation.effect() != Effect::Write || !is_matrix;
    });
    if !applies {
        return;
    }
    let axes = AxisInfoMap::analyze(func, assumptions);
    let mut found = vec![];
    // A loop hoists the masks and offsets of single elements, and loads each by one instruction: the misalignment of its rows
    // would have to be computed in each iteration.
    let repeated = repeated(func);
    func.body.walk(&mut |op| {
        found.extend(shift(func, &axes, op).filter(|(place, _)| !repeated.contains(place)));
    });
    Rewriter::default().run(func, &mut |_, builder, mut op| {
        if let Some(place) = op.kind.operation_mut().access_mut()
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

/// The shift of a load, if it is of such rows.
fn shift(func: &Func, axes: &AxisInfoMap, op: &Op) -> Option<(MemAccess, Shift)> {
    let Kind::Load(Load { access: place, cache, .. }) = &op.kind else { return None };
    if cache.modifier == CacheModifier::Volatile || place.shift.is_some() || !is_matrix(func, place) {
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
    let is_contiguous =
        offset.axes[axis].contiguity >= u64::from(elements) && shape[axis].is_multiple_of(elements);
    // Wider elements fill cache lines one by one as well, and loops prefetch them.
    if !is_contiguous || bytes >= MIN_ASYNC_COPY_BYTES {
        return None;
    }
    // The masks are evaluated where they are defined.
    let shift =
        Shift { elements, limit: elements, start: VectorStart::Unrotated, interval: false, one_sided: false };
    Some((*place, shift))
}
