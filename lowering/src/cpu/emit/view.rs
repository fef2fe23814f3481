//! The same elements at other coordinates.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Broadcast, ExpandDims, Permute, Reshape};

use crate::cpu::emit::nest::{Point, flat_index, lane_points, load_elements, splat};
use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};

impl CpuEmit for Broadcast {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let from = &host.func.ty(self.value).shape;
        let zero = b.int(Ty::I64, 0);
        let coords: Vec<Val> = point
            .coords
            .iter()
            .enumerate()
            .map(|(axis, &coord)| if from[axis] == 1 { zero } else { coord })
            .collect();
        if from[point.axis] == 1 {
            // All lanes are one element.
            let single = host.at(b, self.value, &Point { coords, axis: point.axis, lanes: 1 });
            return splat(b, single, point);
        }
        host.at(b, self.value, &Point { coords, ..*point })
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for ExpandDims {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        host.at(b, self.value, &point.without(self.axis))
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for Permute {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let mut coords = point.coords.clone();
        for (to, &from) in self.order.iter().enumerate() {
            coords[from] = point.coords[to];
        }
        host.at(b, self.value, &Point { coords, axis: self.order[point.axis], lanes: point.lanes })
    }

    fn cost(&self) -> u32 {
        0
    }
}

impl CpuEmit for Reshape {
    /// Where other axes than those of extent 1 change, the operand is in its buffer, in the row-major order that the result
    /// has too.
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        if let Some(kept) = self.kept_axes(host.func, op.results[0]) {
            return at_kept_axes(self, host, b, &kept, point);
        }
        let shape = host.func.ty(op.results[0]).shape.clone();
        let dtype = host.dtype(self.value);
        let rank = host.func.ty(self.value).shape.rank();
        let origin = vec![b.int(Ty::I64, 0); rank];
        let start = host.buffer_pointer(b, self.value, &origin);
        let contiguous = shape[point.axis + 1..].iter().all(|&extent| extent == 1);
        if point.lanes == 1 || contiguous {
            let index = flat_index(b, &shape, &point.coords);
            let pointer = b.offset(start, index, dtype.bytes());
            return load_elements(b, pointer, dtype, point.width());
        }
        let elements: Vec<Val> = lane_points(b, point)
            .iter()
            .map(|point| {
                let index = flat_index(b, &shape, &point.coords);
                let pointer = b.offset(start, index, dtype.bytes());
                load_elements(b, pointer, dtype, 0)
            })
            .collect();
        b.pack(&elements)
    }

    fn cost(&self) -> u32 {
        0
    }

    fn random_access_operands(&self, func: &Func, op: &Op) -> Vec<Value> {
        if self.kept_axes(func, op.results[0]).is_some() { vec![] } else { vec![self.value] }
    }
}

/// The operand's elements at the result's coordinates along the axes that stay.
fn at_kept_axes(
    reshape: &Reshape,
    host: &mut Host,
    b: &mut Builder,
    kept: &[Option<usize>],
    point: &Point,
) -> Val {
    let zero = b.int(Ty::I64, 0);
    let coords = kept.iter().map(|new| new.map_or(zero, |new| point.coords[new])).collect();
    let axis = kept.iter().position(|new| *new == Some(point.axis)).filter(|_| point.lanes > 1);
    let lanes = if axis.is_some() { point.lanes } else { 1 };
    let elements = host.at(b, reshape.value, &Point { coords, axis: axis.unwrap_or(0), lanes });
    if lanes == point.lanes { elements } else { splat(b, elements, point) }
}
