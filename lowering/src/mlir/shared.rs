//! Code that both emitters share: the trip count of a loop, the tree of a reduction.

use tile_ir::ir::Func;
use tile_ir::ops::{Combination, For};

use super::builder::{Builder, IntPredicate, Val};
use super::elementwise::inline;
use super::types::{Elem, Ty};

/// The range of a loop.
#[derive(Clone, Copy)]
pub struct LoopRange {
    pub low: Val,
    pub high: Val,
    pub step: Val,
    pub closed: bool,
    /// Whether it is known to have an iteration.
    pub runs: bool,
}

impl LoopRange {
    /// The range of a loop with these ends and step.
    pub fn of(body: &For, [low, high, step]: [Val; 3]) -> LoopRange {
        LoopRange { low, high, step, closed: body.closed, runs: false }
    }

    /// The trip count, in 64 bits, and the step in the variable's own type: `ceil((high - low) / step)`, or
    /// `floor((high - low) / step) + 1` of a closed range, without overflow.
    pub fn trip_count(self, b: &mut Builder) -> (Val, Val) {
        let LoopRange { low, high, step, closed, runs } = self;
        let one = b.int(step.ty, 1);
        let step = at_least_one(b, step);
        let distance = b.sub(high, low);
        let last = if closed { distance } else { b.sub(distance, one) };
        let whole = b.udiv(last, step);
        let whole = b.zext(whole, Elem::I64);
        let one = b.int(Ty::I64, 1);
        let count = b.add(whole, one);
        if runs {
            return (count, step);
        }
        let reaches = if closed { IntPredicate::Sle } else { IntPredicate::Slt };
        let runs = b.icmp(reaches, low, high);
        let zero = b.int(Ty::I64, 0);
        (b.select(runs, count, zero), step)
    }
}

/// The step of a loop: one below 1 counts as 1.
pub fn at_least_one(b: &mut Builder, step: Val) -> Val {
    let one = b.int(step.ty, 1);
    b.op("llvm.intr.smax", &[step, one], step.ty)
}

/// The loop variable of one iteration.
pub fn loop_variable(b: &mut Builder, index: Val, low: Val, step: Val) -> Val {
    let index = b.trunc(index, low.ty.elem);
    let offset = b.mul(index, step);
    b.add(low, offset)
}

/// One element, or one vector of elements, of every input of a combination.
pub type CombinedElement = Vec<Val>;

/// Emits a combination of elements.
pub trait EmitCombination {
    /// Combines two elements.
    fn apply(&self, func: &Func, b: &mut Builder, left: &[Val], right: &[Val]) -> CombinedElement;

    /// Combines pairs, then pairs of pairs: a tree with short chains and small errors.
    fn reduce_tree(&self, func: &Func, b: &mut Builder, elements: Vec<CombinedElement>) -> CombinedElement;
}

impl EmitCombination for Combination {
    fn apply(&self, func: &Func, b: &mut Builder, left: &[Val], right: &[Val]) -> CombinedElement {
        let args: Vec<Val> = left.iter().chain(right).copied().collect();
        inline(b, func, &self.block, &args)
    }

    fn reduce_tree(
        &self,
        func: &Func,
        b: &mut Builder,
        mut elements: Vec<CombinedElement>,
    ) -> CombinedElement {
        while elements.len() > 1 {
            elements = elements
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => self.apply(func, b, left, right),
                    _ => pair[0].clone(),
                })
                .collect();
        }
        elements.pop().expect("a tile has at least one element")
    }
}
