//! Reductions: vectors of partial results along the last axis where it is reduced, else along the result's own.

use tile_ir::ir::{Op, Shape};
use tile_ir::ops::Reduce;

use crate::cpu::emit::nest::{Point, vectors};
use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};
use crate::mlir::constant;
use crate::mlir::shared::{CombinedElement, EmitCombination};

/// Partial results in flight: enough to hide the latency of one addition.
const CHAINS: u32 = 4;

impl CpuEmit for Reduce {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let shape = self.combination.shape(host.func).clone();
        let result = self.result_shape(&shape);
        if result.rank() == 0 {
            let element = reduce_element(self, host, b, &shape, &[], None);
            for (&value, &element) in op.results.iter().zip(&element) {
                host.define(value, element);
            }
            return;
        }
        let (axis, lanes) = vectors(&shape);
        // Lanes along a reduced axis are combined at the end; otherwise they are the result's lanes.
        if self.axes.contains(&axis) || lanes == 1 {
            host.each_element(b, &result, &mut |host, b, point| {
                let element = reduce_element(self, host, b, &shape, &point.coords, None);
                write_element(host, b, op, point, &element);
            });
            return;
        }
        host.each(b, &result, &mut |host, b, point| {
            let element = reduce_element(self, host, b, &shape, &point.coords, Some(point));
            write_element(host, b, op, point, &element);
        });
    }

    fn is_statement(&self) -> bool {
        true
    }
}

fn write_element(host: &mut Host, b: &mut Builder, op: &Op, point: &Point, element: &[Val]) {
    for (&value, &element) in op.results.iter().zip(element) {
        host.write_buffer(b, value, point, element);
    }
}

/// Reduces everything that belongs to the result element at `kept`, or to the vector of elements at `vector`.
fn reduce_element(
    reduce: &Reduce,
    host: &mut Host,
    b: &mut Builder,
    shape: &Shape,
    kept: &[Val],
    vector: Option<&Point>,
) -> CombinedElement {
    // A user's combination is not reassociated.
    b.accumulating = reduce.combination.commutes();
    let reduced = reduce_points(reduce, host, b, shape, kept, vector);
    b.accumulating = false;
    reduced
}

fn reduce_points(
    reduce: &Reduce,
    host: &mut Host,
    b: &mut Builder,
    shape: &Shape,
    kept: &[Val],
    vector: Option<&Point>,
) -> CombinedElement {
    let last = *reduce.axes.last().expect("a reduction has an axis");
    // Lanes along the last reduced axis, unless the result has lanes of its own.
    let lanes = match vector {
        Some(_) => 1,
        None => (1u32 << shape[last].trailing_zeros()).min(crate::cpu::emit::nest::LANES),
    };
    let steps: Vec<u32> = reduce
        .axes
        .iter()
        .map(|&axis| if axis == last { shape[axis] / lanes } else { shape[axis] })
        .collect();
    let total: u32 = steps.iter().product();
    let chains = (1..=CHAINS).rev().find(|chains| total.is_multiple_of(*chains)).unwrap_or(1);

    let read = |host: &mut Host, b: &mut Builder, index: Val| -> CombinedElement {
        let point = reduced_point(reduce, b, shape, kept, vector, &steps, lanes, index);
        reduce.combination.inputs.iter().map(|&input| host.at(b, input, &point)).collect()
    };
    let width = reduce.combination.inputs.len();
    let first = match vector {
        Some(point) => point.lanes,
        None => lanes as u16,
    };
    // From the identity the loop covers all elements; otherwise the first ones are peeled off.
    let identity = if total > chains { identities(reduce, host, b, first) } else { None };
    let begin = if identity.is_some() { 0 } else { chains };
    let mut partial: Vec<CombinedElement> = match identity {
        Some(identity) => vec![identity; chains as usize],
        None => (0..chains)
            .map(|chain| {
                let index = b.int(Ty::I64, i64::from(chain));
                read(host, b, index)
            })
            .collect(),
    };
    if total > chains {
        let inits: Vec<Val> = partial.iter().flatten().copied().collect();
        let bounds = [begin, total, chains].map(|bound| b.int(Ty::I64, i64::from(bound)));
        let results = b.for_range(bounds, &inits, |b, index, carried| {
            host.scope(|host| {
                let mut next = vec![];
                for (chain, carried) in carried.chunks(width).enumerate() {
                    let chain = b.int(Ty::I64, chain as i64);
                    let index = b.add(index, chain);
                    let element = read(host, b, index);
                    next.extend(reduce.combination.apply(host.func, b, carried, &element));
                }
                next
            })
        });
        partial = results.chunks(width).map(<[Val]>::to_vec).collect();
    }
    let mut element = reduce.combination.reduce_tree(host.func, b, partial);
    if lanes > 1 {
        element = reduce_lanes(reduce, host, b, element);
    }
    element
}

/// A vector of `lanes` identity elements for every input, if there are such.
fn identities(reduce: &Reduce, host: &Host, b: &mut Builder, lanes: u16) -> Option<CombinedElement> {
    let lanes = if lanes == 1 { 0 } else { lanes };
    reduce
        .combination
        .inputs
        .iter()
        .map(|&input| {
            let dtype = host.dtype(input);
            let ty = Ty { lanes, ..host.elem_type(b, input) };
            Some(constant(b, reduce.combination.identity(dtype)?, dtype, ty))
        })
        .collect()
}

/// Combines the upper half of the lanes with the lower one, until one is left.
fn reduce_lanes(
    reduce: &Reduce,
    host: &Host,
    b: &mut Builder,
    mut element: CombinedElement,
) -> CombinedElement {
    while element[0].ty.lanes > 1 {
        let half = i32::from(element[0].ty.lanes) / 2;
        let low: Vec<i32> = (0..half).collect();
        let high: Vec<i32> = (half..2 * half).collect();
        let lower: CombinedElement = element.iter().map(|&v| b.shuffle(v, v, &low)).collect();
        let upper: CombinedElement = element.iter().map(|&v| b.shuffle(v, v, &high)).collect();
        element = reduce.combination.apply(host.func, b, &lower, &upper);
    }
    element.into_iter().map(|v| if v.ty.is_vector() { b.extract(v, 0) } else { v }).collect()
}

/// The point of the operand that step `index` of a reduction reads.
#[expect(clippy::too_many_arguments, reason = "the loop's own state, used in one place")]
fn reduced_point(
    reduce: &Reduce,
    b: &mut Builder,
    shape: &Shape,
    kept: &[Val],
    vector: Option<&Point>,
    steps: &[u32],
    lanes: u32,
    index: Val,
) -> Point {
    let mut rest = index;
    let mut folded = vec![index; reduce.axes.len()];
    for (i, &count) in steps.iter().enumerate().rev() {
        let count_val = b.int(Ty::I64, i64::from(count));
        folded[i] = if i == 0 { rest } else { b.urem(rest, count_val) };
        rest = if i == 0 { rest } else { b.udiv(rest, count_val) };
        if i + 1 == steps.len() && lanes > 1 {
            let lanes = b.int(Ty::I64, i64::from(lanes));
            folded[i] = b.mul(folded[i], lanes);
        }
    }
    let (mut kept, mut folded) = (kept.iter().copied(), folded.into_iter());
    let coords = (0..shape.rank())
        .map(|axis| if reduce.axes.contains(&axis) { folded.next() } else { kept.next() })
        .map(|coord| coord.expect("a coordinate for every axis"))
        .collect();
    let last = *reduce.axes.last().expect("a reduction has an axis");
    match vector {
        None => Point { coords, axis: last, lanes: lanes as u16 },
        Some(point) => {
            // The result's axis among those that stay.
            let mut staying = (0..shape.rank()).filter(|axis| !reduce.axes.contains(axis));
            let axis = staying.nth(point.axis).expect("the result's axes stay");
            Point { coords, axis, lanes: point.lanes }
        }
    }
}
