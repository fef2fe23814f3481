//! What keeps an access inside its slice where that is not known before the kernel runs.

use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};
use crate::ops::MemAccess;
use crate::support::dtype::DType;

/// What the offsets of an access are compared with.
pub(super) struct BoundsCheck {
    /// Elements of the slice, an `i64`.
    pub(super) length: Val,
    /// What the offsets count from, an `i64`; the start of the slice without it.
    pub(super) base: Option<Val>,
    pub(super) signed: bool,
    /// The offsets that are inside, where 32 bits are enough to compare them.
    pub(super) window: Option<OffsetRange>,
}

/// Offsets `low <= offset < high`, as 32-bit numbers.
pub(super) struct OffsetRange {
    /// `None` where no offset can be too low.
    low: Option<Val>,
    high: Val,
}

impl BoundsCheck {
    /// Whether an offset lies in the slice.
    pub(super) fn holds(&self, b: &mut Builder, offset: Val) -> Val {
        let Some(window) = &self.window else {
            let index = self.whole(b, offset);
            return b.icmp(IntPredicate::Ult, index, self.length);
        };
        let below = b.icmp(IntPredicate::Slt, offset, window.high);
        match window.low {
            Some(low) => {
                let above = b.icmp(IntPredicate::Sge, offset, low);
                b.and(above, below)
            }
            None => below,
        }
    }

    /// What offsets inside are less than, if that says it all.
    pub(super) fn end(&self) -> Option<Val> {
        self.window.as_ref().filter(|window| window.low.is_none()).map(|window| window.high)
    }

    /// The index of an offset, an `i64`.
    fn whole(&self, b: &mut Builder, offset: Val) -> Val {
        let wide = widen(b, offset, self.signed);
        self.base.map_or(wide, |base| b.add(base, wide))
    }

    /// How far an offset lies behind the first one that is inside, without sign: it is inside if that is less than
    /// [`BoundsCheck::span`]. What lies before the first is farther than any.
    pub(super) fn distance(&self, b: &mut Builder, offset: Val) -> Val {
        match &self.window {
            Some(window) => window.low.map_or(offset, |low| b.sub(offset, low)),
            None => self.whole(b, offset),
        }
    }

    /// How many offsets are inside.
    pub(super) fn span(&self, b: &mut Builder) -> Val {
        match &self.window {
            Some(OffsetRange { low: Some(low), high }) => b.sub(*high, *low),
            Some(OffsetRange { low: None, high }) => {
                let zero = b.int(high.ty, 0);
                b.op("llvm.intr.smax", &[*high, zero], high.ty)
            }
            None => self.length,
        }
    }

    /// The index of what lies at a distance.
    pub(super) fn index(&self, b: &mut Builder, distance: Val) -> Val {
        match &self.window {
            Some(window) => {
                let offset = window.low.map_or(distance, |low| b.add(distance, low));
                self.whole(b, offset)
            }
            None => distance,
        }
    }
}

/// The element of an access that lies farthest from the start of the slice: one comparison decides whether any of a
/// thread's elements is outside, so that a report costs few registers.
pub(super) struct Farthest {
    pub(super) distance: Val,
    /// Whether any element takes part; `None` if all do.
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

/// A number as one of 32 bits: the nearest one where it is none.
pub(super) fn clamped(b: &mut Builder, number: Val) -> Val {
    let (least, most) = (b.int(Ty::I64, i64::from(i32::MIN)), b.int(Ty::I64, i64::from(i32::MAX)));
    let number = b.op("llvm.intr.smin", &[number, most], Ty::I64);
    let number = b.op("llvm.intr.smax", &[number, least], Ty::I64);
    b.trunc(number, Elem::I32)
}

impl Gpu<'_> {
    /// The offsets that lie in the slice, `low <= offset < high`, as 32-bit numbers; `None` for wider offsets.
    pub(super) fn window(&self, b: &mut Builder, place: &MemAccess, length: Val) -> Option<OffsetRange> {
        let (least, most) = (i128::from(i32::MIN), i128::from(i32::MAX));
        let (low, high) = self.info(place.offset).range;
        if self.func.ty(place.offset).dtype != DType::I32 || low < least || high >= most {
            return None;
        }
        let zero = b.int(Ty::I64, 0);
        let base = place.base.map_or(zero, |base| self.scalar(base));
        // Offsets are below the largest 32-bit number, so that a limit past either end, clamped, decides alike.
        let room = b.sub(length, base);
        let above = clamped(b, room);
        let based = place.base.is_none_or(|base| self.info(base).range.0 >= 0);
        let below = if based && low >= 0 {
            None
        } else {
            let start = b.sub(zero, base);
            Some(clamped(b, start))
        };
        Some(OffsetRange { low: below, high: above })
    }
}
