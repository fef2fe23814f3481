//! The order in which programs begin where some take longer than others: the longest first.
//!
//! Hardware hands out blocks along the first axis of the grid, and a counter gives numbers in the same order. Where programs differ along
//! that axis, as tiles of a head do in causal attention, each head would end with its short programs, and the last head's long ones
//! begin when nothing is left that could run beside them. So programs along the other axes are taken together: first those of the
//! longest place, then those of the next. Only so many at once, for all of them read memory of their own, which the second-level cache
//! has to hold while neighbours read it too.

use crate::analysis::program_length::LongestAxis;
use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::types::{Elem, Ty};

/// The most programs of one place that begin together: of a GPU's 132 multiprocessors four or more work on what one of them reads. More do
/// where a group is so few programs that the second-level cache holds what they read: 512 of 128 rows of 128 16-bit elements, keys and values,
/// read 32 MiB.
const TOGETHER: i64 = 32;
const HELD: i64 = 512;

impl Gpu<'_> {
    /// Gives each block the program of its turn. Blocks that run one program after the other take them in that order themselves.
    pub(super) fn begin_longest_first(&mut self, b: &mut Builder) {
        let has_one = self.plan.pipeline.is_none() && self.plan.programs == 1 && self.plan.blocks() == 1;
        if self.longest_axis.is_some_and(LongestAxis::changes_order) && has_one {
            let ([x, y, z], own) = (self.grid, self.program);
            let rows = b.mul(y, z);
            let [wide_x, wide_rows] = [x, rows].map(|extent| b.zext(extent, Elem::I64));
            let all = b.mul(wide_x, wide_rows);
            let most = b.int(Ty::I64, i64::from(u32::MAX));
            let are_counted = b.icmp(IntPredicate::Ule, all, most);
            let program = b.branch(are_counted, &[Ty::I32; 3], |b, arm| match arm {
                BranchArm::Then => {
                    let planes = b.mul(own[2], y);
                    let rows = b.add(planes, own[1]);
                    let before = b.mul(rows, x);
                    let number = b.add(before, own[0]);
                    self.longest_first(b, number).to_vec()
                }
                BranchArm::Else => own.to_vec(),
            });
            self.program = [program[0], program[1], program[2]];
        }
    }

    /// The place of a program by its number, the longest first; the place that the hardware would give it where none is known to be longer.
    pub(super) fn longest_first(&self, b: &mut Builder, number: Val) -> [Val; 3] {
        let Some(longest) = self.longest_axis else { return self.row_by_row(b, number) };
        let mut place = if longest.axis == 0 { self.by_place(b, number) } else { self.row_by_row(b, number) };
        if longest.last {
            let axis = usize::from(longest.axis);
            let one = b.int(Ty::I32, 1);
            let last = b.sub(self.grid[axis], one);
            place[axis] = b.sub(last, place[axis]);
        }
        place
    }

    /// As the hardware counts.
    pub(super) fn row_by_row(&self, b: &mut Builder, number: Val) -> [Val; 3] {
        let [x, y, _] = self.grid;
        let rows = b.udiv(number, x);
        [b.urem(number, x), b.urem(rows, y), b.udiv(rows, y)]
    }

    /// Along the other axes first, in groups of equal size but for the last.
    fn by_place(&self, b: &mut Builder, number: Val) -> [Val; 3] {
        let [x, y, z] = self.grid;
        let others = b.mul(y, z);
        let [least, held] = [TOGETHER, HELD].map(|number| b.int(Ty::I32, number));
        let held = b.udiv(held, x);
        let are_few = b.icmp(IntPredicate::Ugt, held, least);
        let most = b.select(are_few, held, least);
        let fit = b.icmp(IntPredicate::Ule, others, most);
        let width = b.branch(fit, &[Ty::I32], |b, arm| match arm {
            BranchArm::Then => vec![others],
            BranchArm::Else => {
                let groups = divided_up(b, others, most);
                vec![divided_up(b, others, groups)]
            }
        })[0];
        let all = b.mul(x, width);
        let group = quotient(b, number, all);
        let first = b.mul(group, width);
        let before = b.mul(group, all);
        let rest = b.sub(number, before);
        let left = b.sub(others, first);
        let is_whole = b.icmp(IntPredicate::Ult, width, left);
        let width = b.select(is_whole, width, left);
        let own = quotient(b, rest, width);
        let before = b.mul(own, width);
        let within = b.sub(rest, before);
        let other = b.add(first, within);
        let plane = quotient(b, other, y);
        let before = b.mul(plane, y);
        let row = b.sub(other, before);
        [own, row, plane]
    }
}

/// A quotient of natural numbers, without a division where the dividend is the smaller.
fn quotient(b: &mut Builder, dividend: Val, divisor: Val) -> Val {
    let is_less = b.icmp(IntPredicate::Ult, dividend, divisor);
    b.branch(is_less, &[Ty::I32], |b, arm| match arm {
        BranchArm::Then => vec![b.int(Ty::I32, 0)],
        BranchArm::Else => vec![b.udiv(dividend, divisor)],
    })[0]
}

fn divided_up(b: &mut Builder, dividend: Val, divisor: Val) -> Val {
    let one = b.int(Ty::I32, 1);
    let less = b.sub(divisor, one);
    let sum = b.add(dividend, less);
    b.udiv(sum, divisor)
}
