//! Loop nests over the elements of a tile, and the elements of any value at a point of one.

use tile_ir::ir::{Shape, Value};
use tile_ir::support::dtype::DType;

use crate::cpu::emit::emitter;
use crate::cpu::emit::{AccessFlags, Builder, Elem, Host, Ty, Val};
use crate::mlir::IntPredicate;

/// Lanes of a vector of elements, of whatever size: the same on every CPU, so that a reduction adds in the same order.
pub(super) const LANES: u32 = 16;

/// Elements of a tile: those at `coords`, and for `lanes > 1` the ones after it along `axis`.
#[derive(Clone, Debug)]
pub struct Point {
    /// An `i64` for each axis.
    pub coords: Vec<Val>,
    pub axis: usize,
    /// 1 for a single element.
    pub lanes: u16,
}

impl Point {
    /// The one element of a scalar.
    pub fn scalar() -> Point {
        Point { coords: vec![], axis: 0, lanes: 1 }
    }

    /// The point without the coordinate along `axis`; a single element, if the lanes ran along it.
    pub fn without(&self, axis: usize) -> Point {
        let mut coords = self.coords.clone();
        coords.remove(axis);
        let lanes = if self.axis == axis { 1 } else { self.lanes };
        let along = if lanes == 1 { 0 } else { self.axis - usize::from(self.axis > axis) };
        Point { coords, axis: along, lanes }
    }

    /// Machine lanes: 0 for a scalar.
    pub fn width(&self) -> u16 {
        if self.lanes == 1 { 0 } else { self.lanes }
    }
}

/// A value at a point.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PointKey {
    value: Value,
    coords: Vec<usize>,
    axis: usize,
    lanes: u16,
}

impl PointKey {
    fn new(value: Value, point: &Point) -> PointKey {
        let coords = point.coords.iter().map(|coord| coord.id()).collect();
        PointKey { value, coords, axis: if point.lanes == 1 { 0 } else { point.axis }, lanes: point.lanes }
    }
}

/// The axis along which nests are vectorized, and the lanes of a vector.
pub(super) fn vectors(shape: &Shape) -> (usize, u16) {
    let lanes = |axis: usize| (1u32 << shape[axis].trailing_zeros()).min(LANES);
    let last = shape.rank() - 1;
    // The last axis is the contiguous one; if it is short, the longest is taken.
    let axis = if lanes(last) >= 8 {
        last
    } else {
        (0..shape.rank()).rev().max_by_key(|&axis| lanes(axis)).unwrap_or(last)
    };
    (axis, lanes(axis) as u16)
}

impl<'a> Host<'a> {
    /// Runs `body` for every vector of elements of a tile of `shape`.
    pub(super) fn each(
        &mut self,
        b: &mut Builder,
        shape: &Shape,
        body: &mut dyn FnMut(&mut Self, &mut Builder, &Point),
    ) {
        let (axis, lanes) = vectors(shape);
        self.loops(b, shape, axis, lanes, &mut vec![], body);
    }

    /// Runs `body` for every vector along an axis, or along a better one where that is short.
    pub(super) fn each_along(
        &mut self,
        b: &mut Builder,
        shape: &Shape,
        axis: usize,
        body: &mut dyn FnMut(&mut Self, &mut Builder, &Point),
    ) {
        let lanes = (1u32 << shape[axis].trailing_zeros()).min(LANES);
        let (axis, lanes) = if lanes >= 8 { (axis, lanes as u16) } else { vectors(shape) };
        self.loops(b, shape, axis, lanes, &mut vec![], body);
    }

    /// Runs `body` for every single element.
    pub(super) fn each_element(
        &mut self,
        b: &mut Builder,
        shape: &Shape,
        body: &mut dyn FnMut(&mut Self, &mut Builder, &Point),
    ) {
        self.loops(b, shape, 0, 1, &mut vec![], body);
    }

    /// Runs `body` for vectors along the last axis, in row-major order.
    pub(super) fn each_in_order(
        &mut self,
        b: &mut Builder,
        shape: &Shape,
        body: &mut dyn FnMut(&mut Self, &mut Builder, &Point),
    ) {
        let last = shape.rank() - 1;
        let lanes = (1u32 << shape[last].trailing_zeros()).min(LANES) as u16;
        self.loops(b, shape, last, lanes, &mut vec![], body);
    }

    fn loops(
        &mut self,
        b: &mut Builder,
        shape: &Shape,
        axis: usize,
        lanes: u16,
        coords: &mut Vec<Val>,
        body: &mut dyn FnMut(&mut Self, &mut Builder, &Point),
    ) {
        if coords.len() == shape.rank() {
            let point = Point { coords: coords.clone(), axis, lanes };
            body(self, b, &point);
            return;
        }
        let current = coords.len();
        let step = if current == axis { i64::from(lanes) } else { 1 };
        let zero = b.int(Ty::I64, 0);
        if i64::from(shape[current]) == step {
            coords.push(zero);
            self.loops(b, shape, axis, lanes, coords, body);
            coords.pop();
            return;
        }
        let (end, step) = (b.int(Ty::I64, i64::from(shape[current])), b.int(Ty::I64, step));
        b.for_range([zero, end, step], &[], |b, index, _| {
            self.scope(|host| {
                coords.push(index);
                host.loops(b, shape, axis, lanes, coords, body);
                coords.pop();
            });
            vec![]
        });
    }

    /// The elements of a value at a point, a scalar value in every lane.
    pub(super) fn at(&mut self, b: &mut Builder, value: Value, point: &Point) -> Val {
        if self.func.ty(value).is_scalar() {
            let scalar = self.scalar(value);
            return splat(b, scalar, point);
        }
        let key = PointKey::new(value, point);
        if let Some(&known) = self.known.iter().rev().find_map(|table| table.get(&key)) {
            return known;
        }
        let elements = if self.plan.scratch.buffer(value).is_some() {
            self.read_buffer(b, value, point)
        } else {
            let op = self.definitions.get(&value).unwrap_or_else(|| panic!("{value:?} has no definition"));
            emitter(&op.kind).at(self, b, op, point)
        };
        self.known.last_mut().expect("the outermost table stays").insert(key, elements);
        elements
    }

    // ---- scratch memory

    /// Stores a value to its buffer.
    pub(super) fn materialize(&mut self, b: &mut Builder, value: Value) {
        let op = self.definitions[&value];
        let shape = self.func.ty(value).shape.clone();
        self.each(b, &shape, &mut |host, b, point| {
            let elements = emitter(&op.kind).at(host, b, op, point);
            host.write_buffer(b, value, point, elements);
        });
    }

    /// The address of an element of a materialized tile.
    pub(super) fn buffer_pointer(&mut self, b: &mut Builder, value: Value, coords: &[Val]) -> Val {
        let buffer = self.plan.scratch.buffer(value).unwrap_or_else(|| panic!("{value:?} has no buffer"));
        let ty = self.func.ty(value);
        let start = b.int(Ty::I64, buffer.offset as i64);
        let start = b.offset(self.scratch, start, 1);
        let index = flat_index(b, &ty.shape, coords);
        b.offset(start, index, ty.dtype.bytes())
    }

    /// The workspace, which operations use one after the other.
    pub(super) fn workspace(&self, b: &mut Builder) -> Val {
        let start = b.int(Ty::I64, self.plan.scratch.workspace() as i64);
        b.offset(self.scratch, start, 1)
    }

    fn read_buffer(&mut self, b: &mut Builder, value: Value, point: &Point) -> Val {
        let ty = self.func.ty(value).clone();
        if point.lanes > 1
            && point.axis + 1 != ty.shape.rank()
            && ty.shape[point.axis + 1..].iter().any(|&e| e > 1)
        {
            // Lanes along another axis than the contiguous one are strided in memory.
            let elements: Vec<Val> = lane_points(b, point)
                .iter()
                .map(|point| {
                    let pointer = self.buffer_pointer(b, value, &point.coords);
                    load_elements(b, pointer, ty.dtype, 0)
                })
                .collect();
            return b.pack(&elements);
        }
        let pointer = self.buffer_pointer(b, value, &point.coords);
        load_elements(b, pointer, ty.dtype, point.width())
    }

    pub(super) fn write_buffer(&mut self, b: &mut Builder, value: Value, point: &Point, elements: Val) {
        let ty = self.func.ty(value).clone();
        if point.lanes > 1
            && point.axis + 1 != ty.shape.rank()
            && ty.shape[point.axis + 1..].iter().any(|&e| e > 1)
        {
            for (lane, point) in lane_points(b, point).iter().enumerate() {
                let element = b.extract(elements, lane as u16);
                let pointer = self.buffer_pointer(b, value, &point.coords);
                store_elements(b, element, pointer, ty.dtype);
            }
            return;
        }
        let pointer = self.buffer_pointer(b, value, &point.coords);
        store_elements(b, elements, pointer, ty.dtype);
    }
}

/// The points of the lanes of a point.
pub(super) fn lane_points(b: &mut Builder, point: &Point) -> Vec<Point> {
    (0..point.lanes)
        .map(|lane| {
            let mut coords = point.coords.clone();
            let lane = b.int(Ty::I64, i64::from(lane));
            coords[point.axis] = b.add(coords[point.axis], lane);
            Point { coords, axis: point.axis, lanes: 1 }
        })
        .collect()
}

/// A scalar in every lane of a point.
pub(super) fn splat(b: &mut Builder, scalar: Val, point: &Point) -> Val {
    if point.lanes == 1 { scalar } else { b.splat(scalar, point.lanes) }
}

/// The position of an element in row-major order.
pub(super) fn flat_index(b: &mut Builder, shape: &Shape, coords: &[Val]) -> Val {
    let mut index = b.int(Ty::I64, 0);
    for (axis, &coord) in coords.iter().enumerate() {
        let extent = b.int(Ty::I64, i64::from(shape[axis]));
        let row = b.mul(index, extent);
        index = b.add(row, coord);
    }
    index
}

/// `lanes` contiguous elements (0 for one scalar); a `bool` is a byte in memory.
pub(super) fn load_elements(b: &mut Builder, pointer: Val, dtype: DType, lanes: u16) -> Val {
    let elem = if dtype == DType::Bool { Elem::I8 } else { crate::mlir::machine::elem(dtype, b.machine) };
    let loaded = b.load(pointer, Ty { elem, lanes }, AccessFlags::aligned(dtype.bytes()));
    if dtype == DType::Bool {
        let zero = b.int(loaded.ty, 0);
        return b.icmp(IntPredicate::Ne, loaded, zero);
    }
    loaded
}

pub(super) fn store_elements(b: &mut Builder, elements: Val, pointer: Val, dtype: DType) {
    let elements = if dtype == DType::Bool { b.zext(elements, Elem::I8) } else { elements };
    b.store(elements, pointer, AccessFlags::aligned(dtype.bytes()));
}
