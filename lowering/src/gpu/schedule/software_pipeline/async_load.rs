//! Which loads `cp.async` can do.

use tile_ir::ir::Func;
use tile_ir::ops::{Effect, Load, Operation};
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
