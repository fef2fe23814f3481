//! The user's hints about contiguity, divisibility and constancy of offsets that the analysis cannot prove.
//!
//! A kernel with bounds checks believes no hint. What follows from the arguments is analyzed without it and guarded at launch. What
//! follows from a scalar that the kernel loads it checks itself (`transform::version_loops`): in loops with dots without a hint, and
//! anywhere once the user states a multiple. In an `unchecked` kernel, whose launcher is unsafe, the caller vouches for the hint,
//! and vectors become as wide as it allows.

use super::typing::{Call, Operand, TypingCx};
use super::{Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, required};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::polynomial::{Polynomial, PolynomialEnv};
use crate::ir::{Func, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// The value, with a hint about it: in `unchecked` kernels, and under a branch that has checked it.
#[derive(Clone, Copy, Debug)]
pub struct AxisHint {
    pub value: Value,
    /// Of a scalar, or of the first of each run of contiguous elements.
    pub multiple: u64,
    /// Elements of an aligned run along the last axis that rise by one.
    pub contiguous: u64,
    /// Elements of an aligned run along the last axis that are equal.
    pub constant: u64,
}

/// What a function of the language is a hint about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AxisHintKind {
    Multiple,
    Contiguous,
    Constant,
}

syntax!(AxisHint: "axis_hint" value [multiple] [contiguous] [constant]);

impl Operation for AxisHint {
    fn operands(&self) -> Vec<Value> {
        vec![self.value]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.value = change(self.value);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the result", func.ty(results[0]), func.ty(self.value))?;
        let hints = [self.multiple, self.contiguous, self.constant];
        if hints.into_iter().all(u64::is_power_of_two) { Ok(()) } else { Err("claims powers of two".into()) }
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        let mut info = env.info(self.value);
        if let Some(last) = info.axes.last_mut() {
            last.contiguity = last.contiguity.max(self.contiguous);
            last.divisibility = last.divisibility.max(self.multiple);
            last.constancy = last.constancy.max(self.constant);
        } else {
            info.divisor = info.divisor.max(self.multiple);
        }
        vec![info]
    }

    fn polynomial(&self, env: &dyn PolynomialEnv, _: &Func, _: Value) -> Option<Polynomial> {
        Some(env.polynomial(self.value))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: true }
    }
}

macro_rules! hint_doc {
    ($doc:literal) => {
        concat!($doc, " Only an `unchecked` kernel, whose launcher is unsafe, believes it, and makes accesses as wide as it allows; that it is so is the caller's promise. In any other kernel it may be wrong, and the result is the same: what follows from the arguments is found without it and checked at each launch; that a scalar which the kernel loads is a multiple is checked once by the kernel, which has a version with vectors and one without. Loops with dots have both without a hint.")
    };
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "multiple_of",
        returns: Returns::Tile,
        example: "let start = tl::multiple_of(n * 4, 4);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("multiple")],
        doc: hint_doc!(
            "`x`, an integer, and a claim: a scalar is a multiple of `multiple`, a power of two, and so is the first element of every aligned run of neighbors of a tile (`max_contiguous`)."
        ),
        check: |cx, call| hint(cx, call, AxisHintKind::Multiple),
    },
    Intrinsic {
        name: "max_contiguous",
        returns: Returns::Tile,
        example: "let offsets = tl::max_contiguous(tl::arange(0, BLOCK) % n, BLOCK);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("count")],
        doc: hint_doc!(
            "`x`, a tile of integers, and a claim: along its last axis, aligned runs of `count` elements, a power of two, rise by one."
        ),
        check: |cx, call| hint(cx, call, AxisHintKind::Contiguous),
    },
    Intrinsic {
        name: "max_constancy",
        returns: Returns::Tile,
        example: "let groups = tl::max_constancy(tl::arange(0, BLOCK) / n, 4);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("count")],
        doc: hint_doc!(
            "`x`, a tile of integers or a mask, and a claim: along its last axis, the elements of aligned runs of `count`, a power of two, are equal. A mask that is so lets vectors be moved whole."
        ),
        check: |cx, call| hint(cx, call, AxisHintKind::Constant),
    },
];

fn hint(cx: &mut dyn TypingCx, call: &Call, kind: AxisHintKind) -> Operand {
    let value = cx.value(&call.args[0]);
    let count = cx.constant(&call.args[1], "what is claimed");
    let (Some(value), Some(count)) = (value, count) else { return Operand::failed(call.loc) };
    let ty = cx.ty(value).clone();
    let takes_masks = kind == AxisHintKind::Constant;
    let fits = ty.dtype.is_integer() || takes_masks && ty.dtype == DType::Bool;
    if !fits {
        let taken = if takes_masks { "integers or a mask" } else { "integers" };
        return cx.error(call.args[0].loc, format!("{} takes {taken}, found {ty}", call.what));
    }
    let power = u64::try_from(count).ok().filter(|count| count.is_power_of_two());
    let Some(power) = power.filter(|&power| power <= 1 << 30) else {
        return cx.error(call.args[1].loc, format!("{} takes a power of two, found {count}", call.what));
    };
    if kind != AxisHintKind::Multiple && power > 1 && ty.is_scalar() {
        return cx.error(call.args[0].loc, format!("{} takes a tile, found a scalar", call.what));
    }
    if !cx.is_unchecked() {
        if kind == AxisHintKind::Multiple && ty.is_scalar() && power > 1 {
            cx.state_multiple(value, power as u32);
        }
        return Operand::value(value, call.loc);
    }
    let mut hint = AxisHint { value, multiple: 1, contiguous: 1, constant: 1 };
    match kind {
        AxisHintKind::Multiple => hint.multiple = power,
        AxisHintKind::Contiguous => hint.contiguous = power,
        AxisHintKind::Constant => hint.constant = power,
    }
    cx.emit(hint, ty, call.loc)
}
