//! Dots of 8-bit floats in parts of K. The instructions keep fewer digits of a sum than `f32` has, so each part has an accumulator of its
//! own, which is added in `f32` then.

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::scalar::{Scalar, binary};
use tile_ir::ops::schedule::Wgmma;
use tile_ir::support::diagnostic::Loc;

use super::Schedule;

/// A dot whose instructions may sum at most so many products.
pub struct ImpreciseDot {
    pub wgmma: Wgmma,
    pub result: Value,
    pub loc: Loc,
    pub most: u32,
}

/// A dot in parts.
pub struct PromotedDot {
    /// The dots of the parts, each but the last with the sum so far behind it.
    pub parts: Vec<Op>,
    /// The last sum; without one the last part is the result.
    pub sum: Option<Op>,
}

/// Splits a dot along K.
pub fn promoted(
    schedule: &mut Schedule,
    ImpreciseDot { wgmma, result, loc, most }: ImpreciseDot,
) -> PromotedDot {
    let [start, end] = wgmma.k;
    let mut acc = wgmma.acc;
    let mut promoted = PromotedDot { parts: vec![], sum: None };
    for first in (start..end).step_by(most as usize) {
        let last = end.min(first + most);
        let part = Wgmma { acc: None, k: [first, last], ..wgmma.clone() };
        let is_last = last == end;
        let own = if is_last && acc.is_none() { result } else { schedule.copy_of(result) };
        promoted.parts.extend(promoted.sum.take());
        promoted.parts.push(Op { kind: part.into(), results: vec![own], loc });
        acc = Some(match acc {
            None => own,
            Some(before) => {
                let sum = if is_last { result } else { schedule.copy_of(result) };
                let add = Scalar::new(binary(BinaryOp::Add), vec![before, own]);
                promoted.sum = Some(Op { kind: add.into(), results: vec![sum], loc });
                sum
            }
        });
    }
    promoted
}
