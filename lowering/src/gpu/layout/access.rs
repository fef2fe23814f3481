//! How many contiguous elements one memory instruction may move, and along which axis.

use tile_ir::analysis::axis_info::AxisInfoMap;
use tile_ir::ir::Func;
use tile_ir::ops::{MemAccess, VectorStart};
use tile_ir::support::limits::MAX_ACCESS_BYTES;

/// The fewest bytes that are read as parts of two aligned vectors. Fewer bytes cost no less than single elements.
pub const MIN_SHIFTED_BYTES: u32 = 8;

/// What is known about the addresses of slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alignment {
    /// Multiples of [`MAX_ACCESS_BYTES`]; lengths are multiples of the vectors that are compared with them. The
    /// launcher checks both.
    Checked,
    /// Multiples of the element's size.
    Element,
}

/// How wide an access may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessWidth {
    /// The axis along which adjacent elements of the tile are contiguous in memory.
    pub axis: usize,
    /// How many of them are aligned and masked together: the vector width.
    pub elements: u32,
    /// How many are contiguous in memory, aligned or not.
    pub contiguous: u32,
}

/// The width of an access of rank 1 or more.
pub fn width(func: &Func, axes: &AxisInfoMap, place: &MemAccess, alignment: Alignment) -> AccessWidth {
    let (elem, _) = func.slice(place.param);
    let offset = axes.get(func, place.offset);
    let base = place.base.map_or(1 << 62, |base| axes.get(func, base).divisor);
    let mask = place.mask.map(|mask| axes.get(func, mask));
    let shape = &func.ty(place.offset).shape;
    // The last axis wins among equals: it is the fast one in row-major memory.
    let axis = (0..shape.rank()).max_by_key(|&axis| offset.axes[axis].contiguity).unwrap_or(0);
    let contiguous = offset.axes[axis].contiguity;
    let max_vector = u64::from(MAX_ACCESS_BYTES / elem.bytes());
    if let Some(shift) = place.shift {
        return AccessWidth { axis, elements: shift.elements, contiguous: shift.elements };
    }
    let elements = match alignment {
        Alignment::Element => 1,
        Alignment::Checked => {
            let start = offset.divisor_at(axis, contiguous.min(max_vector)).min(base);
            let masked = mask.map_or(u64::MAX, |mask| mask.axes[axis].constancy);
            // A vector that starts at a multiple of its length is in the slice as a whole or not at all: the launcher
            // checks that the slice's length is a multiple too.
            contiguous.min(max_vector).min(start).min(masked)
        }
    };
    AccessWidth { axis, elements: elements as u32, contiguous: contiguous.min(1 << 20) as u32 }
}

/// The elements that one access moves, of `vector` contiguous ones that a thread holds.
pub(super) fn legal_vector(func: &Func, place: &MemAccess, vector: u32) -> u32 {
    let shifted = place.shift.is_some_and(|shift| shift.start != VectorStart::Aligned);
    let bytes = vector * func.slice(place.param).0.bytes();
    if shifted && bytes < MIN_SHIFTED_BYTES { 1 } else { vector }
}
