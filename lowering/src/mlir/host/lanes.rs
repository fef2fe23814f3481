//! Operations whose elements follow from the operands' elements at the same point.

use super::nest::{Point, spread};
use super::{Builder, Emit, Host, Ty, Val};
use crate::mlir::{cast, constant, elementwise};
use crate::ops::{
    Arange, Bitcast, Cast, Claim, Constant, Convert, Hold, InlinePtx, Length, NumPrograms, ProgramId, Scalar,
    Splat,
};
use crate::tile::Op;

impl Emit for Constant {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let ty = host.elem_type(b, op.results[0]);
        let value = constant(b, self.value, host.dtype(op.results[0]), ty);
        host.define(op.results[0], value);
    }
}

impl Emit for ProgramId {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let id = host.program[usize::from(self.axis)];
        host.define(op.results[0], id);
    }
}

impl Emit for NumPrograms {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let extent = host.grid[usize::from(self.axis)];
        host.define(op.results[0], extent);
    }
}

impl Emit for Length {
    fn run(&self, host: &mut Host, _: &mut Builder, op: &Op) {
        let length = host.slice(self.param).length;
        host.define(op.results[0], length);
    }
}

impl Emit for Arange {
    fn at(&self, _: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let coord = b.trunc(point.coords[0], super::Elem::I32);
        let start = b.int(Ty::I32, i64::from(self.start));
        let first = b.add(coord, start);
        if point.lanes == 1 {
            return first;
        }
        let first = spread(b, first, point);
        let iota = b.iota(first.ty);
        b.add(first, iota)
    }
}

impl Emit for Splat {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let scalar = host.scalar(self.value);
        spread(b, scalar, point)
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl Emit for Scalar {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let args: Vec<Val> = self.args.iter().map(|&arg| host.at(b, arg, point)).collect();
        elementwise::applied(b, self, &args, self.dtype(host.func))
    }

    fn cost(&self) -> u32 {
        if self.op.cheap { 1 } else { 16 }
    }
}

impl Emit for Cast {
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let value = host.at(b, self.value, point);
        cast::cast(b, value, host.dtype(self.value), host.dtype(op.results[0]))
    }
}

impl Emit for Bitcast {
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let value = host.at(b, self.value, point);
        cast::bitcast(b, value, host.dtype(op.results[0]))
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl Emit for Convert {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }
}

impl Emit for Hold {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }
}

impl Emit for Claim {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, point)
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl Emit for InlinePtx {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let args: Vec<Val> = self.args.iter().map(|&arg| host.at(b, arg, point)).collect();
        elementwise::inline(b, host.func, &self.cpu, &args)[0]
    }

    fn cost(&self) -> u32 {
        16
    }
}
