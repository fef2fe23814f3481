//! Elements from other positions of a tile.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Exchange, Gather, Index, Join};

use crate::cpu::emit::nest::{Point, lane_points, load_elements};
use crate::cpu::emit::{Builder, CpuEmit, Elem, Host, Ty, Val};
use crate::mlir::IntPredicate;

impl CpuEmit for Join {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let other = point.without(self.axis);
        let [left, right] = [self.left, self.right].map(|operand| host.at(b, operand, &other));
        if point.lanes > 1 && point.axis == self.axis {
            return b.pack(&[left, right]);
        }
        let zero = b.int(Ty::I64, 0);
        let is_left = b.icmp(IntPredicate::Eq, point.coords[self.axis], zero);
        b.select(is_left, left, right)
    }
}

impl CpuEmit for Index {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let mut coords = point.coords.clone();
        coords.insert(self.axis, b.int(Ty::I64, i64::from(self.index)));
        // A single element runs along no axis; a scalar's point has none to speak of.
        let axis = if point.lanes == 1 { 0 } else { point.axis + usize::from(point.axis >= self.axis) };
        host.at(b, self.value, &Point { coords, axis, lanes: point.lanes })
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for Exchange {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let along = point.axis == self.axis && point.lanes > 1;
        let within = if along { self.mask & (u32::from(point.lanes) - 1) } else { 0 };
        let mask = b.int(Ty::I64, i64::from(self.mask & !within));
        let mut coords = point.coords.clone();
        coords[self.axis] = b.xor(coords[self.axis], mask);
        let value = host.at(b, self.value, &Point { coords, ..*point });
        if within == 0 {
            return value;
        }
        let lanes: Vec<i32> = (0..i32::from(point.lanes)).map(|lane| lane ^ within as i32).collect();
        b.shuffle(value, value, &lanes)
    }

    fn cost(&self) -> u32 {
        2
    }

    /// Emitted at two points, an operand that is itself an exchange would double its code at every step of a sort.
    fn random_access_operands(&self, _: &Func, _: &Op) -> Vec<Value> {
        vec![self.value]
    }
}

impl CpuEmit for Gather {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let signed = host.dtype(self.index).is_signed();
        let index = host.at(b, self.index, point);
        let index = if signed { b.sext(index, Elem::I64) } else { b.zext(index, Elem::I64) };
        if point.lanes == 1 {
            return look_up(self, host, b, index, point);
        }
        let elements: Vec<Val> = lane_points(b, point)
            .iter()
            .enumerate()
            .map(|(lane, point)| {
                let index = b.extract(index, lane as u16);
                look_up(self, host, b, index, point)
            })
            .collect();
        b.pack(&elements)
    }

    fn cost(&self) -> u32 {
        4
    }

    fn random_access_operands(&self, _: &Func, _: &Op) -> Vec<Value> {
        vec![self.value]
    }
}

fn look_up(gather: &Gather, host: &mut Host, b: &mut Builder, index: Val, point: &Point) -> Val {
    let ty = host.func.ty(gather.value).clone();
    let (zero, extent) = (b.int(Ty::I64, 0), b.int(Ty::I64, i64::from(ty.shape[gather.axis])));
    let inside = b.icmp(IntPredicate::Ult, index, extent);
    let mut coords = point.coords.clone();
    coords[gather.axis] = b.select(inside, index, zero);
    let pointer = host.buffer_pointer(b, gather.value, &coords);
    let value = load_elements(b, pointer, ty.dtype, 0);
    let nothing = if value.ty.elem.is_float() { b.float(value.ty, 0.0) } else { b.int(value.ty, 0) };
    b.select(inside, value, nothing)
}
