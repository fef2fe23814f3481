//! The tile order of programs of different length: longest-processing-time-first.
//!
//! Hardware launches blocks along the first axis of the grid, and a counter assigns indices in the same order. Where
//! programs differ in length along that axis, as tiles of a head do in causal attention, each head would end with its
//! short programs, and the last head's long ones would begin when nothing is left to run beside them. So programs
//! along the other axes are grouped: first all with the longest coordinate, then those of the next. A group is
//! limited, for its programs read memory of their own, which the L2 cache has to hold while contiguous programs read
//! it too.

use tile_ir::analysis::program_length::LongestAxis;

use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::{BranchArm, Val};
use crate::mlir::types::{Elem, Ty};

/// The most programs of one coordinate that begin together: of 132 multiprocessors four or more work on what one of
/// them reads. More do where a group is so few programs that the L2 cache holds what they read: 512 of 128 rows of
/// 128 16-bit elements, keys and values, read 32 MiB.
const MIN_GROUP: i64 = 32;
const MAX_GROUP_PROGRAMS: i64 = 512;

impl Gpu<'_> {
    /// Assigns a program to each block in this order. Persistent blocks use the order themselves.
    pub(super) fn reorder_programs(&mut self, b: &mut Builder) {
        let has_one = !self.plan.persistent() && self.plan.programs == 1 && self.plan.blocks() == 1;
        if self.plan.longest_axis.is_some_and(LongestAxis::changes_order) && has_one {
            let ([x, y, z], own) = (self.entry.grid, self.program.coord);
            let rows = b.mul(y, z);
            let [wide_x, wide_rows] = [x, rows].map(|extent| b.zext(extent, Elem::I64));
            let all = b.mul(wide_x, wide_rows);
            let most = b.int(Ty::I64, i64::from(u32::MAX));
            let fits_u32 = b.icmp(IntPredicate::Ule, all, most);
            let program = b.branch(fits_u32, &[Ty::I32; 3], |b, arm| match arm {
                BranchArm::Then => {
                    let planes = b.mul(own[2], y);
                    let rows = b.add(planes, own[1]);
                    let preceding = b.mul(rows, x);
                    let index = b.add(preceding, own[0]);
                    self.longest_first(b, index).to_vec()
                }
                BranchArm::Else => own.to_vec(),
            });
            self.program.coord = [program[0], program[1], program[2]];
        }
    }

    /// The coordinates of a program by its index, the longest first; in hardware order where none is known to be
    /// longer.
    pub(super) fn longest_first(&self, b: &mut Builder, index: Val) -> [Val; 3] {
        let Some(longest) = self.plan.longest_axis else { return self.row_major(b, index) };
        let mut coord =
            if longest.axis == 0 { self.grouped_by_axis(b, index) } else { self.row_major(b, index) };
        if longest.last {
            let axis = usize::from(longest.axis);
            let one = b.int(Ty::I32, 1);
            let last = b.sub(self.entry.grid[axis], one);
            coord[axis] = b.sub(last, coord[axis]);
        }
        coord
    }

    /// In hardware order.
    pub(super) fn row_major(&self, b: &mut Builder, index: Val) -> [Val; 3] {
        let [x, y, _] = self.entry.grid;
        let rows = b.udiv(index, x);
        [b.urem(index, x), b.urem(rows, y), b.udiv(rows, y)]
    }

    /// Along the other axes first, in groups of equal size but for the last.
    fn grouped_by_axis(&self, b: &mut Builder, index: Val) -> [Val; 3] {
        let [x, y, z] = self.entry.grid;
        let others = b.mul(y, z);
        let [least, max_group] = [MIN_GROUP, MAX_GROUP_PROGRAMS].map(|constant| b.int(Ty::I32, constant));
        let max_group = b.udiv(max_group, x);
        let are_few = b.icmp(IntPredicate::Ugt, max_group, least);
        let most = b.select(are_few, max_group, least);
        let fit = b.icmp(IntPredicate::Ule, others, most);
        let width = b.branch(fit, &[Ty::I32], |b, arm| match arm {
            BranchArm::Then => vec![others],
            BranchArm::Else => {
                let groups = ceil_div(b, others, most);
                vec![ceil_div(b, others, groups)]
            }
        })[0];
        let all = b.mul(x, width);
        let group = quotient(b, index, all);
        let first = b.mul(group, width);
        let preceding = b.mul(group, all);
        let rest = b.sub(index, preceding);
        let remaining = b.sub(others, first);
        let is_whole = b.icmp(IntPredicate::Ult, width, remaining);
        let width = b.select(is_whole, width, remaining);
        let own = quotient(b, rest, width);
        let preceding = b.mul(own, width);
        let within = b.sub(rest, preceding);
        let other = b.add(first, within);
        let plane = quotient(b, other, y);
        let preceding = b.mul(plane, y);
        let row = b.sub(other, preceding);
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

fn ceil_div(b: &mut Builder, dividend: Val, divisor: Val) -> Val {
    let one = b.int(Ty::I32, 1);
    let less = b.sub(divisor, one);
    let rounded = b.add(dividend, less);
    b.udiv(rounded, divisor)
}
