//! Sums that a loop with products carries stay apart for each lane until the loop has ended.
//!
//! `total = total * factor + sum(tile, 1)`, or without the factor, adds over lanes in each turn, and each turn waits
//! for that. All of it is linear, so every lane may add up what it holds itself: the loop then carries as many sums of
//! a row as there are lanes along it, and they are added behind the loop.

use crate::gpu::layout::Layout;
use crate::gpu::layout::assign::Distributed;
use crate::ir::{Func, Op, Shape, Type, Value, definition};
use crate::ops::scalar::{ArithKind, row};
use crate::ops::{Broadcast, ExpandDims, For, Kind, Reduce, Reshape, Scalar, ScalarOp, is_zero};
use crate::support::diagnostic::Loc;

/// A sum that a loop carries.
struct CarriedReduction {
    /// Its place among the carried values.
    place: usize,
    /// The operations of the body that make the next turn's of it: the reduction first, the one that gives it last.
    parts: Vec<usize>,
    /// What is summed up, and what each turn multiplies by.
    tile: Value,
    factor: Option<Value>,
}

/// How the sums of single lanes lie.
struct LanePartials {
    /// The tile in four axes: rows; what a lane holds, lanes, and again what a lane holds.
    split: (Shape, Layout),
    /// Rows and lanes.
    sums: (Shape, Layout),
}

/// Rewrites the loops of a function that multiply blocks.
pub fn keep_thread_local(distributed: &mut Distributed) {
    let body = std::mem::take(&mut distributed.func.body.ops);
    let mut ops = Vec::with_capacity(body.len());
    for mut op in body {
        let multiplies = |body: &For| body.body.ops.iter().any(|op| matches!(op.kind, Kind::WarpGroupDot(_)));
        let mut behind = vec![];
        if let Kind::For(body) = &mut op.kind
            && multiplies(body)
        {
            for place in 0..body.inits.len() {
                let Some(sum) = CarriedReduction::find(&distributed.func, &ops, body, place) else {
                    continue;
                };
                let Some(lanes) = LanePartials::new(distributed, body, &sum) else { continue };
                let result = &mut op.results[place];
                rewrite(distributed, (&mut ops, body, &mut behind), (sum, lanes), (result, op.loc));
            }
        }
        ops.push(op);
        ops.append(&mut behind);
    }
    distributed.func.body.ops = ops;
}

/// A lanewise operation that computes this.
fn computing(op: &Op, algebra: ArithKind) -> Option<&Scalar> {
    let Kind::Scalar(scalar) = &op.kind else { return None };
    (scalar.op.algebra == algebra).then_some(scalar)
}

/// Whether a reduction adds up one tile along its second axis.
fn sums_rows(func: &Func, reduce: &Reduce) -> bool {
    let block = &reduce.combination.block;
    let [op] = &block.ops[..] else { return false };
    computing(op, ArithKind::Add).is_some()
        && block.yields == op.results
        && reduce.axes == [1]
        && reduce.combination.inputs.len() == 1
        && func.ty(reduce.combination.inputs[0]).shape.rank() == 2
}

impl CarriedReduction {
    fn find(func: &Func, before: &[Op], body: &For, place: usize) -> Option<CarriedReduction> {
        let For { inits, body, .. } = body;
        let (sum, next) = (body.args[1 + place], body.yields[place]);
        let defined = |value: Value| {
            let number = body.ops.iter().position(|op| op.results.contains(&value))?;
            Some((number, &body.ops[number]))
        };
        let row_sum = |value: Value| {
            let (number, op) = defined(value)?;
            let Kind::Reduce(reduce) = &op.kind else { return None };
            let alone = body.uses(value) == 1 && sums_rows(func, reduce);
            alone.then(|| (number, reduce.combination.inputs[0]))
        };
        let (last, op) = defined(next)?;
        let plain = body.uses(sum) == 1
            && body.uses(next) == 1
            && is_zero(|value| definition(before, value), inits[place]);
        if !plain {
            return None;
        }
        if let Some(Scalar { args, .. }) = computing(op, ArithKind::MulAdd) {
            let (number, tile) = row_sum(args[2])?;
            let factor = other(args[0], args[1], sum)?;
            return Some(CarriedReduction { place, parts: vec![number, last], tile, factor: Some(factor) });
        }
        let Scalar { args, .. } = computing(op, ArithKind::Add)?;
        let (old, (number, tile)) = [(args[0], args[1]), (args[1], args[0])]
            .into_iter()
            .find_map(|(old, new)| Some((old, row_sum(new)?)))?;
        if old == sum {
            return Some(CarriedReduction { place, parts: vec![number, last], tile, factor: None });
        }
        let (product, op) = defined(old)?;
        let Scalar { args, .. } = computing(op, ArithKind::Mul).filter(|_| body.uses(old) == 1)?;
        let factor = other(args[0], args[1], sum)?;
        Some(CarriedReduction { place, parts: vec![number, product, last], tile, factor: Some(factor) })
    }
}

/// Of two values the one that is not `known`, if the other one is.
fn other(a: Value, b: Value, known: Value) -> Option<Value> {
    match (a == known, b == known) {
        (true, false) => Some(b),
        (false, true) => Some(a),
        _ => None,
    }
}

impl LanePartials {
    /// `None` where a row's lanes are not side by side, or warps share rows.
    fn new(distributed: &Distributed, body: &For, sum: &CarriedReduction) -> Option<LanePartials> {
        let layout = &distributed.layouts[&sum.tile];
        let shape = layout.shape();
        let along: Vec<u32> =
            layout.lane_bases().iter().map(|basis| basis.get(1)).filter(|&column| column != 0).collect();
        let mask = along.iter().fold(0, |mask, column| mask | column);
        let dealt = layout.set_axis().is_some_and(|(axis, _)| axis == 1);
        let crossed = dealt || layout.warp_bases().iter().any(|basis| basis.get(1) != 0);
        let low = 1 << mask.trailing_zeros().min(31);
        let lanes = mask / low + 1;
        if along.is_empty()
            || crossed
            || !lanes.is_power_of_two()
            || lanes.trailing_zeros() as usize != along.len()
        {
            return None;
        }
        let split = Shape::new([shape[0], shape[1] / (lanes * low), lanes, low]);
        let in_four = layout.reshape(&split)?;
        let own = in_four.without(&[1, 3]);
        let of_factor = sum.factor.map(|factor| distributed.layouts[&factor].expand(1));
        let fits = own.without(&[1]) == distributed.layouts[&body.body.args[1 + sum.place]]
            && of_factor.is_none_or(|layout| own.before_broadcast(&Shape::new([shape[0], 1])) == layout);
        let sums = (Shape::new([shape[0], lanes]), own);
        fits.then_some(LanePartials { split: (split, in_four), sums })
    }
}

fn operation(name: &str) -> &'static ScalarOp {
    row(name).expect("a row of the table")
}

/// Lets the loop carry the sums of lanes. The one of all lanes is made behind it.
fn rewrite(
    distributed: &mut Distributed,
    (before, body, behind): (&mut Vec<Op>, &mut For, &mut Vec<Op>),
    (sum, lanes): (CarriedReduction, LanePartials),
    (result, loc): (&mut Value, Loc),
) {
    let dtype = distributed.func.ty(sum.tile).dtype;
    let mut value = |(shape, layout): &(Shape, Layout)| {
        let value = distributed.func.value(Type::tile(dtype, shape.clone()));
        distributed.layouts.insert(value, layout.clone());
        value
    };
    let [init, carried, next, row_sums, all] = [(); 5].map(|()| value(&lanes.sums));
    let in_four = value(&lanes.split);
    let column =
        (Shape::new([lanes.sums.0[0], 1]), lanes.sums.1.before_broadcast(&Shape::new([lanes.sums.0[0], 1])));
    let [factor_column, factors, product] = [value(&column), value(&lanes.sums), value(&lanes.sums)];

    let zero = before.iter().find(|op| op.results.contains(&body.inits[sum.place])).map(|op| op.kind.clone());
    before.push(Op { kind: zero.expect("the sum starts at 0"), results: vec![init], loc });
    body.inits[sum.place] = init;

    let block = &mut body.body;
    block.args[1 + sum.place] = carried;
    block.yields[sum.place] = next;
    let last = *sum.parts.last().expect("something gives the sum");
    let Kind::Reduce(reduce) = &block.ops[sum.parts[0]].kind else {
        unreachable!("the first part is a reduction")
    };
    let mut over_lanes = reduce.clone();
    let mut own = reduce.clone();
    own.combination.inputs = vec![in_four];
    own.axes = vec![1, 3];
    let place = block.ops[last].loc;
    let mut parts: Vec<(Kind, Value)> =
        vec![(Reshape { value: sum.tile }.into(), in_four), (own.into(), row_sums)];
    let kept = match sum.factor {
        Some(factor) => {
            parts.push((ExpandDims { value: factor, axis: 1 }.into(), factor_column));
            parts.push((Broadcast { value: factor_column }.into(), factors));
            parts.push((Scalar::new(operation("mul"), vec![carried, factors]).into(), product));
            product
        }
        None => carried,
    };
    parts.push((Scalar::new(operation("add"), vec![kept, row_sums]).into(), next));
    let parts = parts.into_iter().map(|(kind, result)| Op { kind, results: vec![result], loc: place });
    let mut ops = vec![];
    for (number, op) in std::mem::take(&mut block.ops).into_iter().enumerate() {
        if number == last {
            ops.extend(parts.clone());
        } else if !sum.parts.contains(&number) {
            ops.push(op);
        }
    }
    block.ops = ops;

    over_lanes.combination.inputs = vec![all];
    over_lanes.axes = vec![1];
    let of_all = std::mem::replace(result, all);
    behind.push(Op { kind: over_lanes.into(), results: vec![of_all], loc });
}
