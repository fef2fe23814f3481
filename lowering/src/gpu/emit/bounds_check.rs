//! Bounds checks: the comparison of an access's offsets with its slice, where bounds are not proven before launch.

use tile_ir::ops::MemAccess;
use tile_ir::support::dtype::DType;

use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

/// The bounds that the offsets of an access are compared with.
pub(super) struct BoundsCheck {
    /// Elements of the slice, an `i64`.
    pub(super) length: Val,
    /// The base of the offsets, an `i64`; without it the start of the slice.
    pub(super) base: Option<Val>,
    pub(super) signed: bool,
    /// The offsets that are inside, where 32 bits are enough to compare them.
    pub(super) range: Option<OffsetRange>,
}

/// Offsets `low <= offset < high`, as `i32`.
pub(super) struct OffsetRange {
    /// `None` where no offset can be too low.
    low: Option<Val>,
    high: Val,
}

impl BoundsCheck {
    /// Whether an offset is inside the slice.
    pub(super) fn holds(&self, b: &mut Builder, offset: Val) -> Val {
        let Some(range) = &self.range else {
            let index = self.index_of(b, offset);
            return b.icmp(IntPredicate::Ult, index, self.length);
        };
        let below = b.icmp(IntPredicate::Slt, offset, range.high);
        match range.low {
            Some(low) => {
                let above = b.icmp(IntPredicate::Sge, offset, low);
                b.and(above, below)
            }
            None => below,
        }
    }

    /// The upper bound of offsets inside, if it is the only bound.
    pub(super) fn end(&self) -> Option<Val> {
        self.range.as_ref().filter(|range| range.low.is_none()).map(|range| range.high)
    }

    /// The index of an offset, an `i64`.
    fn index_of(&self, b: &mut Builder, offset: Val) -> Val {
        let wide = widen(b, offset, self.signed);
        self.base.map_or(wide, |base| b.add(base, wide))
    }

    /// The unsigned distance of an offset from the first one that is inside: it is inside if that is less than
    /// [`BoundsCheck::span`]. An offset before the first wraps to a distance above any inside.
    pub(super) fn distance(&self, b: &mut Builder, offset: Val) -> Val {
        match &self.range {
            Some(range) => range.low.map_or(offset, |low| b.sub(offset, low)),
            None => self.index_of(b, offset),
        }
    }

    /// How many offsets are inside.
    pub(super) fn span(&self, b: &mut Builder) -> Val {
        match &self.range {
            Some(OffsetRange { low: Some(low), high }) => b.sub(*high, *low),
            Some(OffsetRange { low: None, high }) => {
                let zero = b.int(high.ty, 0);
                b.op("llvm.intr.smax", &[*high, zero], high.ty)
            }
            None => self.length,
        }
    }

    /// The index of the element at a distance.
    pub(super) fn index(&self, b: &mut Builder, distance: Val) -> Val {
        match &self.range {
            Some(range) => {
                let offset = range.low.map_or(distance, |low| b.add(distance, low));
                self.index_of(b, offset)
            }
            None => distance,
        }
    }
}

/// The element of an access with the largest distance: one comparison decides whether any of a thread's elements is
/// outside, so that a report costs few registers.
pub(super) struct Farthest {
    pub(super) distance: Val,
    /// Whether any element is active; `None` if all are.
    pub(super) any: Option<Val>,
}

impl Farthest {
    pub(super) fn of(b: &mut Builder, distance: Val, mask: Option<Val>) -> Farthest {
        let nearest = b.int(distance.ty, 0);
        let distance = mask.map_or(distance, |mask| b.select(mask, distance, nearest));
        Farthest { distance, any: mask }
    }

    pub(super) fn join(self, b: &mut Builder, other: Farthest) -> Farthest {
        let distance = b.op("llvm.intr.umax", &[self.distance, other.distance], self.distance.ty);
        let any = self.any.zip(other.any).map(|(one, other)| b.or(one, other));
        Farthest { distance, any }
    }
}

pub(super) fn widen(b: &mut Builder, value: Val, signed: bool) -> Val {
    if signed { b.sext(value, Elem::I64) } else { b.zext(value, Elem::I64) }
}

/// An `i64` clamped to the range of `i32`.
pub(super) fn clamped(b: &mut Builder, value: Val) -> Val {
    let (least, most) = (b.int(Ty::I64, i64::from(i32::MIN)), b.int(Ty::I64, i64::from(i32::MAX)));
    let value = b.op("llvm.intr.smin", &[value, most], Ty::I64);
    let value = b.op("llvm.intr.smax", &[value, least], Ty::I64);
    b.trunc(value, Elem::I32)
}

impl Gpu<'_> {
    /// The offsets inside the slice, `low <= offset < high`, as `i32`; `None` for wider offsets.
    pub(super) fn offset_range(
        &self,
        b: &mut Builder,
        access: &MemAccess,
        length: Val,
    ) -> Option<OffsetRange> {
        let (least, most) = (i128::from(i32::MIN), i128::from(i32::MAX));
        let (low, high) = self.info(access.offset).range;
        if self.func.ty(access.offset).dtype != DType::I32 || low < least || high >= most {
            return None;
        }
        let zero = b.int(Ty::I64, 0);
        let base = access.base.map_or(zero, |base| self.scalar(base));
        // Offsets are below the largest `i32`, so that a bound past either end decides the same once clamped.
        let room = b.sub(length, base);
        let high_bound = clamped(b, room);
        let non_negative_base = access.base.is_none_or(|base| self.info(base).range.0 >= 0);
        let low_bound = if non_negative_base && low >= 0 {
            None
        } else {
            let start = b.sub(zero, base);
            Some(clamped(b, start))
        };
        Some(OffsetRange { low: low_bound, high: high_bound })
    }
}
