//! Dots of 8-bit floats in parts of K. The instructions keep fewer digits of a sum than `f32` has, so each part has an accumulator of its
//! own, which is added in `f32` then.

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::scalar::{Scalar, binary};
use tile_ir::ops::schedule::Wgmma;
use tile_ir::support::diagnostic::Loc;

use super::Schedule;

/// A dot in parts of at most so many products.
pub struct PromotedDot {
    pub wgmma: Wgmma,
    pub result: Value,
    pub loc: Loc,
    pub most: u32,
}

/// Appends a dot in parts. `behind_last` appends what stands directly behind the last one.
pub fn promoted(
    schedule: &mut Schedule,
    ops: &mut Vec<Op>,
    PromotedDot { wgmma, result, loc, most }: PromotedDot,
    behind_last: &mut dyn FnMut(&mut Schedule, &mut Vec<Op>),
) {
    let [start, end] = wgmma.k;
    let mut acc = wgmma.acc;
    for first in (start..end).step_by(most as usize) {
        let last = end.min(first + most);
        let part = Wgmma { acc: None, k: [first, last], ..wgmma.clone() };
        let is_last = last == end;
        let own = if is_last && acc.is_none() { result } else { schedule.copy_of(result) };
        ops.push(Op { kind: part.into(), results: vec![own], loc });
        if is_last {
            behind_last(schedule, ops);
        }
        acc = Some(match acc {
            None => own,
            Some(before) => {
                let sum = if is_last { result } else { schedule.copy_of(result) };
                let add = Scalar::new(binary(BinaryOp::Add), vec![before, own]);
                ops.push(Op { kind: add.into(), results: vec![sum], loc });
                sum
            }
        });
    }
}
