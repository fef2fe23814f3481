//! Which loads `cp.async` can do.

use std::collections::HashSet;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::{Func, Value};
use tile_ir::ops::{Effect, Kind, Load, Operation, has_own_dot};
use tile_ir::support::limits::MIN_ASYNC_COPY_BYTES;

/// Bytes of one copy.
pub fn width(func: &Func, load: &Load) -> u32 {
    load.access.vector * func.slice(load.access.param).0.bytes()
}

/// Whether `cp.async` can do a load. It fills out-of-bounds elements with zeros and reports none; element by element
/// it would take more registers than it saves.
pub fn can_copy_async(func: &Func, load: &Load) -> bool {
    let by_vectors = load.access.vector > 1 && load.other.is_none() && !func.reports;
    load.effect() == Effect::Pure
        && (!load.access.bounded || by_vectors)
        && load.access.shift.is_none()
        && !func.ty(load.access.offset).is_scalar()
        && width(func, load) >= MIN_ASYNC_COPY_BYTES
}

/// Bytes that memory is read in.
const SECTOR_BYTES: u64 = 32;

/// The loads in loops with dots whose elements are all in a sector, as a scale of a block of columns is: the first-level cache keeps it
/// from one iteration to the next, and a copy for each thread takes more instructions than loads do.
pub fn sector_loads(func: &Func, assumptions: &LaunchAssumptions) -> HashSet<Value> {
    let mut loads = vec![];
    func.body.walk(&mut |op| {
        let Kind::For(body) = &op.kind else { return };
        if has_own_dot(&body.body) {
            let tiles = body.body.ops.iter().filter_map(|op| {
                let Kind::Load(load) = &op.kind else { return None };
                (!func.ty(load.access.offset).is_scalar()).then_some((op.results[0], load))
            });
            loads.extend(tiles);
        }
    });
    if loads.is_empty() {
        return HashSet::new();
    }
    let axes = AxisInfoMap::analyze(func, assumptions);
    let in_sector = |load: &Load| {
        let offset = axes.get(func, load.access.offset);
        let shape = &func.ty(load.access.offset).shape;
        let distinct =
            shape.iter().zip(&offset.axes).map(|(&extent, axis)| u64::from(extent).div_ceil(axis.constancy));
        distinct.product::<u64>() * u64::from(func.slice(load.access.param).0.bytes()) <= SECTOR_BYTES
    };
    loads.into_iter().filter(|(_, load)| in_sector(load)).map(|(result, _)| result).collect()
}
