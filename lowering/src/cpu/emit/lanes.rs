//! Pointwise operations: elements are computed from the operands' elements at the same point.

use tile_ir::ir::Op;
use tile_ir::ops::{
    Arange, AxisHint, Bitcast, Cast, Constant, Convert, InlinePtx, Length, NumPrograms, ProgramId,
    RangeOrder, RematBarrier, Rotate, Scalar, Splat,
};

use crate::cpu::emit::nest::{Point, splat};
use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};
use crate::mlir::builder::IntPredicate;
use crate::mlir::{cast, constant, elementwise};

impl CpuEmit for Constant {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let ty = host.elem_type(b, op.results[0]);
        let value = constant(b, self.value, host.dtype(op.results[0]), ty);
        host.define(op.results[0], value);
    }
}

impl CpuEmit for ProgramId {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let id = host.program[usize::from(self.axis)];
        host.define(op.results[0], id);
    }
}

impl CpuEmit for NumPrograms {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let extent = host.grid[usize::from(self.axis)];
        host.define(op.results[0], extent);
    }
}

impl CpuEmit for Length {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let length = host.slice(self.param).length;
        host.define(op.results[0], length);
    }
}

impl CpuEmit for Arange {
    fn at(&self, _: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let coord = b.trunc(point.coords[0], crate::cpu::emit::Elem::I32);
        let start = b.int(Ty::I32, i64::from(self.start));
        let first = b.add(coord, start);
        if point.lanes == 1 {
            return first;
        }
        let first = splat(b, first, point);
        let iota = b.iota(first.ty);
        b.add(first, iota)
    }
}

impl CpuEmit for Splat {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let scalar = host.scalar(self.value);
        splat(b, scalar, point)
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for Scalar {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        if let Some(result) = host.divided(b, self, point) {
            return result;
        }
        let args: Vec<Val> = self.args.iter().map(|&arg| host.at(b, arg, point)).collect();
        elementwise::applied(b, self, &args, self.dtype(host.func))
    }

    fn cost(&self) -> u32 {
        if self.op.cheap { 1 } else { 16 }
    }
}

impl CpuEmit for Cast {
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let value = host.at(b, self.value, point);
        cast::cast(b, value, host.dtype(self.value), host.dtype(op.results[0]))
    }
}

impl CpuEmit for Bitcast {
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let value = host.at(b, self.value, point);
        cast::bitcast(b, value, host.dtype(op.results[0]))
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for Convert {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }
}

impl CpuEmit for Rotate {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let (first, extent) = (host.at(b, self.range, point), host.func.ty(self.range).shape[0]);
        let constant = |b: &mut Builder, value: u32| b.int(first.ty, i64::from(value));
        let scalar = |host: &mut Host, b: &mut Builder, value| {
            let value = host.scalar(value);
            splat(b, value, point)
        };
        let cut = match self.order {
            RangeOrder::Cut(cut) => cut,
            RangeOrder::Wrapped { by } => {
                let (by, zero, extent) = (scalar(host, b, by), constant(b, 0), constant(b, extent));
                let rotated = b.sub(first, by);
                let (last, negative) = (b.add(rotated, extent), b.icmp(IntPredicate::Slt, rotated, zero));
                return b.select(negative, last, rotated);
            }
        };
        let (head, whole) = (scalar(host, b, cut.head), scalar(host, b, cut.whole));
        let (ends, tail) = (constant(b, extent - 2 * self.limit), constant(b, extent - self.limit));
        // Whole vectors, and what they leave.
        let (skipped, moved) = (constant(b, self.limit), b.add(first, head));
        let (behind, before) = (b.add(moved, skipped), b.icmp(IntPredicate::Slt, first, whole));
        let found = b.select(before, moved, behind);
        // The row's head, and what is left at the end.
        let own = b.sub(first, ends);
        let (last, is_own) = (b.add(own, tail), b.icmp(IntPredicate::Slt, own, head));
        let own = b.select(is_own, own, last);
        let is_end = b.icmp(IntPredicate::Sge, first, ends);
        let found = b.select(is_end, own, found);
        // The vector behind the whole ones.
        let (within, is_tail) = (b.sub(first, tail), b.icmp(IntPredicate::Sge, first, tail));
        let behind = b.add(head, whole);
        let behind = b.add(behind, within);
        b.select(is_tail, behind, found)
    }
}

impl CpuEmit for RematBarrier {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }
}

impl CpuEmit for AxisHint {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for InlinePtx {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let args: Vec<Val> = self.args.iter().map(|&arg| host.at(b, arg, point)).collect();
        elementwise::inline(b, host.func, &self.cpu, &args)[0]
    }

    fn cost(&self) -> u32 {
        16
    }
}
