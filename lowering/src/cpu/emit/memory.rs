//! Loads and stores.
//!
//! A vector of contiguous elements whose lanes are all active is one vector access; one that its mask or the end of the
//! slice cuts, or whose elements are not contiguous, goes element by element.

use std::collections::HashMap;

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::axis_info::AxisInfo;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Kind, Load, MemAccess, Store};

use crate::cpu::emit::nest::{Point, load_elements, store_elements};
use crate::cpu::emit::{Builder, CpuEmit, Elem, Host, Ty, Val, report};
use crate::mlir::builder::{BranchArm, IntPredicate};

/// The elements of an access at a point.
struct PointAccess {
    /// The index of the first element, an `i64`.
    first: Val,
    /// Every lane's index, unless the lanes are contiguous.
    indices: Option<Val>,
    /// For a single element, whether it takes part; `None` for always.
    mask: Option<Val>,
}

/// Which lane of a mask implies all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MaskEdge {
    /// All lanes are equal.
    Any,
    /// The mask holds from some lane on: all do if the first does.
    First,
    /// The mask holds up to some lane: all do if the last does.
    Last,
}

impl MaskEdge {
    fn and(self, other: MaskEdge) -> Option<MaskEdge> {
        match (self, other) {
            (MaskEdge::Any, edge) | (edge, MaskEdge::Any) => Some(edge),
            (a, b) => (a == b).then_some(a),
        }
    }
}

impl Host<'_> {
    pub(super) fn wide_offset(&mut self, b: &mut Builder, offset: Value, point: &Point) -> Val {
        let signed = self.dtype(offset).is_signed();
        let value = self.at(b, offset, point);
        if signed { b.sext(value, Elem::I64) } else { b.zext(value, Elem::I64) }
    }

    fn locate(&mut self, b: &mut Builder, access: &MemAccess, point: &Point) -> PointAccess {
        let first_point = Point { lanes: 1, ..point.clone() };
        let base = access.base.map(|base| self.scalar(base));
        let rebased = |b: &mut Builder, index: Val| match base {
            Some(base) => {
                let base = if index.ty.is_vector() { b.splat(base, index.ty.lanes) } else { base };
                b.add(base, index)
            }
            None => index,
        };
        let mask = access.mask.filter(|_| point.lanes == 1).map(|mask| self.at(b, mask, point));
        let contiguous = point.lanes == 1 || {
            let info = self.plan.axes.get(self.func, access.offset);
            info.axes.get(point.axis).is_some_and(|axis| axis.contiguity >= u64::from(point.lanes))
        };
        if contiguous {
            let first = self.wide_offset(b, access.offset, &first_point);
            return PointAccess { first: rebased(b, first), indices: None, mask };
        }
        let indices = self.wide_offset(b, access.offset, point);
        let indices = rebased(b, indices);
        PointAccess { first: b.extract(indices, 0), indices: Some(indices), mask }
    }

    /// The index of the element at a point, and whether its mask is set.
    pub(super) fn locate_element(
        &mut self,
        b: &mut Builder,
        access: &MemAccess,
        point: &Point,
    ) -> (Val, Option<Val>) {
        let found = self.locate(b, access, point);
        (found.first, found.mask)
    }

    /// Whether all of `lanes` elements from `first` on are in bounds.
    fn in_bounds(&self, b: &mut Builder, access: &MemAccess, first: Val, lanes: u16) -> Option<Val> {
        if !access.bounded {
            return None;
        }
        let length = self.slice(access.param).length;
        if lanes <= 1 {
            return Some(b.icmp(IntPredicate::Ult, first, length));
        }
        // first >= 0 and first + lanes <= length, without overflow: length is at least 0.
        let zero = b.int(Ty::I64, 0);
        let lanes = b.int(Ty::I64, i64::from(lanes));
        let room = b.sub(length, lanes);
        let low = b.icmp(IntPredicate::Sge, first, zero);
        let high = b.icmp(IntPredicate::Sle, first, room);
        Some(b.and(low, high))
    }
}

impl Host<'_> {
    /// Whether one element is accessed: its mask is set and it is in bounds, or `None` for always. One whose mask is set and
    /// that is out of bounds is reported.
    pub(super) fn predicate(&self, b: &mut Builder, op: &Op, mask: Option<Val>, index: Val) -> Option<Val> {
        let access = op.kind.operation().access()?;
        let inside = self.in_bounds(b, access, index, 1);
        if let (Some(record), Some(inside), true) = (self.record, inside, self.func.reports) {
            let beyond = b.not(inside);
            let outside = b.both(mask, Some(beyond)).unwrap_or(beyond);
            b.if_then(outside, |b| {
                let length = self.slice(access.param).length;
                let element = report::ReportedElement { index, length, program: self.program };
                element.write(b, record, self.func, op);
            });
        }
        b.both(mask, inside)
    }
}

/// The edges of masks along axes in vectors of so many lanes, memoized.
struct MaskEdges<'h, 'f> {
    host: &'h Host<'f>,
    lanes: u16,
    known: HashMap<(Value, usize), Option<MaskEdge>>,
}

impl MaskEdges<'_, '_> {
    fn edge(&mut self, mask: Value, axis: usize) -> Option<MaskEdge> {
        if let Some(&edge) = self.known.get(&(mask, axis)) {
            return edge;
        }
        let edge = self.of_definition(mask, axis);
        self.known.insert((mask, axis), edge);
        edge
    }

    fn of_definition(&mut self, mask: Value, axis: usize) -> Option<MaskEdge> {
        let kind = &self.host.definitions.get(&mask)?.kind;
        if let Kind::Scalar(scalar) = kind {
            return match scalar.op.arith {
                ArithKind::And => {
                    let [a, b] = [0, 1].map(|i| self.edge(scalar.args[i], axis));
                    a?.and(b?)
                }
                ArithKind::Compare(op) => self.of_comparison(op, &scalar.args, axis),
                _ => None,
            };
        }
        let (operation, func) = (kind.operation(), self.host.func);
        let axis_map = operation.axis_map(func)?;
        let &[inner] = operation.operands().as_slice() else { return None };
        let shape = &func.ty(inner).shape;
        match axis_map.iter().position(|to| *to == Some(axis)) {
            Some(from) if shape[from] > 1 => self.edge(inner, from),
            // Lanes along a merged axis may be any of the operand's.
            _ => axis_map
                .iter()
                .zip(&shape[..])
                .all(|(to, &extent)| to.is_some() || extent == 1)
                .then_some(MaskEdge::Any),
        }
    }

    /// The edge of a range compared with a constant.
    fn of_comparison(&self, op: BinaryOp, args: &[Value], axis: usize) -> Option<MaskEdge> {
        let lanes = u64::from(self.lanes);
        let [lhs, rhs] = [0, 1].map(|i| self.host.plan.axes.get(self.host.func, args[i]));
        let contiguous = |info: &AxisInfo| info.axes.get(axis).is_some_and(|axis| axis.contiguity >= lanes);
        let constant = |info: &AxisInfo| info.axes.get(axis).is_some_and(|axis| axis.constancy >= lanes);
        match op {
            _ if constant(&lhs) && constant(&rhs) => Some(MaskEdge::Any),
            BinaryOp::Lt | BinaryOp::Le if contiguous(&lhs) && constant(&rhs) => Some(MaskEdge::Last),
            BinaryOp::Lt | BinaryOp::Le if constant(&lhs) && contiguous(&rhs) => Some(MaskEdge::First),
            BinaryOp::Gt | BinaryOp::Ge if contiguous(&lhs) && constant(&rhs) => Some(MaskEdge::First),
            BinaryOp::Gt | BinaryOp::Ge if constant(&lhs) && contiguous(&rhs) => Some(MaskEdge::Last),
            _ => None,
        }
    }
}

impl Host<'_> {
    /// Which lane at a point implies all others of a mask; `None` when all have to be tested.
    fn edge(&self, mask: Value, point: &Point) -> Option<MaskEdge> {
        MaskEdges { host: self, lanes: point.lanes, known: HashMap::new() }.edge(mask, point.axis)
    }

    /// Whether every lane of a mask is set.
    fn all_active(&mut self, b: &mut Builder, mask: Value, point: &Point) -> Val {
        let Some(edge) = self.edge(mask, point) else {
            let lanes = self.at(b, mask, point);
            return b.op("llvm.intr.vector.reduce.and", &[lanes], Ty::I1);
        };
        let mut single = Point { lanes: 1, ..point.clone() };
        if edge == MaskEdge::Last {
            let last = b.int(Ty::I64, i64::from(point.lanes) - 1);
            single.coords[point.axis] = b.add(point.coords[point.axis], last);
        }
        self.at(b, mask, &single)
    }

    /// The end of the lanes that may be active and whether each is: the first inactive lane where the mask ends there, which
    /// leaves nothing to test of the others.
    fn active_lanes(&mut self, b: &mut Builder, mask: Option<Value>, point: &Point) -> (Val, Option<Val>) {
        let all = b.int(Ty::I32, i64::from(point.lanes));
        let Some(mask) = mask else { return (all, None) };
        let lanes = self.at(b, mask, point);
        if self.edge(mask, point) != Some(MaskEdge::Last) {
            return (all, Some(lanes));
        }
        let ones = b.zext(lanes, Elem::I32);
        (b.op("llvm.intr.vector.reduce.add", &[ones], Ty::I32), None)
    }
}

impl CpuEmit for Load {
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let dtype = host.dtype(op.results[0]);
        let ty = Ty { lanes: point.width(), ..host.elem_type(b, op.results[0]) };
        let other = match self.other {
            Some(other) => host.at(b, other, point),
            None => b.zero(ty),
        };
        let found = host.locate(b, &self.access, point);
        let slice = host.slice(self.access.param);
        let bytes = dtype.bytes();
        if point.lanes == 1 {
            let predicate = host.predicate(b, op, found.mask, found.first);
            let load = |b: &mut Builder| {
                host.note(b, op, found.first, 1);
                let pointer = b.offset(slice.pointer, found.first, bytes);
                vec![load_elements(b, pointer, dtype, 0)]
            };
            return match predicate {
                Some(predicate) => b.if_else(predicate, &[ty], load, |_| vec![other])[0],
                None => load(b)[0],
            };
        }
        if found.indices.is_some() {
            return element_by_element(self, host, b, op, point, &found, other);
        }
        let vector_access = |host: &Host, b: &mut Builder| {
            host.note(b, op, found.first, point.lanes);
            let pointer = b.offset(slice.pointer, found.first, bytes);
            vec![load_elements(b, pointer, dtype, point.lanes)]
        };
        let whole = self.access.mask.map(|mask| host.all_active(b, mask, point));
        let inside = host.in_bounds(b, &self.access, found.first, point.lanes);
        let Some(whole) = b.both(whole, inside) else { return vector_access(host, b)[0] };
        b.branch(whole, &[ty], |b, arm| match arm {
            BranchArm::Then => vector_access(host, b),
            BranchArm::Else => {
                vec![host.scope(|host| element_by_element(self, host, b, op, point, &found, other))]
            }
        })[0]
    }

    fn cost(&self) -> u32 {
        2
    }
}

/// Lane by lane; inactive ones are from `other`.
fn element_by_element(
    load: &Load,
    host: &mut Host,
    b: &mut Builder,
    op: &Op,
    point: &Point,
    found: &PointAccess,
    other: Val,
) -> Val {
    let dtype = host.dtype(op.results[0]);
    let slice = host.slice(load.access.param);
    let (end, mask) = host.active_lanes(b, load.access.mask, point);
    let (start, one) = (b.int(Ty::I32, 0), b.int(Ty::I32, 1));
    b.for_range([start, end, one], &[other], |b, lane, carried| {
        let index = found.index(b, lane);
        let mask = mask.map(|mask| b.extract_at(mask, lane));
        let predicate = host.predicate(b, op, mask, index);
        let load = |b: &mut Builder| {
            host.note(b, op, index, 1);
            let pointer = b.offset(slice.pointer, index, dtype.bytes());
            let element = load_elements(b, pointer, dtype, 0);
            vec![b.insert_at(carried[0], element, lane)]
        };
        match predicate {
            Some(predicate) => b.if_else(predicate, &[other.ty], load, |_| vec![carried[0]]),
            None => load(b),
        }
    })[0]
}

impl PointAccess {
    fn index(&self, b: &mut Builder, lane: Val) -> Val {
        match self.indices {
            Some(indices) => b.extract_at(indices, lane),
            None => {
                let lane = b.zext(lane, Elem::I64);
                b.add(self.first, lane)
            }
        }
    }
}

impl CpuEmit for Store {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let shape = host.func.ty(self.access.offset).shape.clone();
        if shape.rank() == 0 {
            return store_point(self, host, b, op, &Point::scalar());
        }
        host.each(b, &shape, &mut |host, b, point| store_point(self, host, b, op, point));
    }

    fn is_statement(&self) -> bool {
        true
    }
}

fn store_point(store: &Store, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) {
    let dtype = host.dtype(store.value);
    let bytes = dtype.bytes();
    let elements = host.at(b, store.value, point);
    let found = host.locate(b, &store.access, point);
    let slice = host.slice(store.access.param);
    let put = |host: &Host, b: &mut Builder, element: Val, index: Val| {
        host.note(b, op, index, element.ty.lanes.max(1));
        let pointer = b.offset(slice.pointer, index, bytes);
        store_elements(b, element, pointer, dtype);
    };
    if point.lanes == 1 {
        let predicate = host.predicate(b, op, found.mask, found.first);
        return b.guarded(predicate, |b| put(host, b, elements, found.first));
    }
    let element_by_element = |host: &mut Host, b: &mut Builder| {
        let (end, mask) = host.active_lanes(b, store.access.mask, point);
        let (start, one) = (b.int(Ty::I32, 0), b.int(Ty::I32, 1));
        b.for_range([start, end, one], &[], |b, lane, _| {
            let index = found.index(b, lane);
            let mask = mask.map(|mask| b.extract_at(mask, lane));
            let element = b.extract_at(elements, lane);
            let predicate = host.predicate(b, op, mask, index);
            b.guarded(predicate, |b| put(host, b, element, index));
            vec![]
        });
    };
    if found.indices.is_some() {
        return element_by_element(host, b);
    }
    let whole = store.access.mask.map(|mask| host.all_active(b, mask, point));
    let inside = host.in_bounds(b, &store.access, found.first, point.lanes);
    let Some(whole) = b.both(whole, inside) else { return put(host, b, elements, found.first) };
    b.branch(whole, &[], |b, arm| {
        match arm {
            BranchArm::Then => put(host, b, elements, found.first),
            BranchArm::Else => host.scope(|host| element_by_element(host, b)),
        }
        vec![]
    });
}
