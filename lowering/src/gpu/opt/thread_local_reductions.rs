//! Loop-carried row sums stay partial sums of each lane until the loop has ended.
//!
//! `l = l * alpha + sum(tile, 1)`, or without `alpha`, adds over lanes in each iteration of a loop with wgmma, and each
//! iteration waits for that. All of it is linear, so every lane may add up what it holds itself: the loop then carries
//! as many partial sums of a row as there are lanes along it, and they are reduced behind the loop.

use tile_ir::ir::{Func, Op, Shape, Type, Value, definition};
use tile_ir::ops::scalar::{ArithKind, row};
use tile_ir::ops::{Broadcast, ExpandDims, For, Kind, Reduce, Reshape, Scalar, ScalarOp, is_zero};
use tile_ir::support::dtype::DType;

use crate::gpu::layout::Distributed;
use crate::gpu::layout::Layout;
use crate::gpu::layout::dot::is_warpgroup_dot;

/// A loop-carried row sum.
struct CarriedReduction {
    /// Its index among the loop-carried values.
    index: usize,
    /// The operations of the body that make the next iteration's value: the reduction first, the one that gives it
    /// last.
    operations: Vec<usize>,
    /// The tile that is reduced, and the rescaling of each iteration.
    tile: Value,
    scale: Option<Value>,
}

/// The layouts of the partial sums.
struct LanePartials {
    /// The tile in four axes: rows; elements of a lane, lanes, and elements of a lane again.
    split: (Shape, Layout),
    /// Rows and lanes.
    partials: (Shape, Layout),
}

/// Rewrites the loops of a function that have wgmma.
pub fn thread_local_reductions(distributed: &mut Distributed) {
    let body = std::mem::take(&mut distributed.func.body.ops);
    let mut ops = Vec::with_capacity(body.len());
    for mut op in body {
        let has_wgmma = |body: &For| body.body.ops.iter().any(is_warpgroup_dot);
        let mut after_loop = vec![];
        if let Kind::For(body) = &mut op.kind
            && has_wgmma(body)
        {
            for index in 0..body.inits.len() {
                let Some(sum) = CarriedReduction::find(&distributed.func, &ops, body, index) else {
                    continue;
                };
                let Some(lanes) = LanePartials::new(distributed, body, &sum) else { continue };
                let partials = PartialSums::new(distributed, &lanes, distributed.func.ty(sum.tile).dtype);
                let zero = definition(&ops, body.inits[index]).expect("the sum starts at 0").clone();
                ops.push(Op { kind: zero, results: vec![partials.init], loc: op.loc });
                let over_lanes = partials.carry(body, &sum);
                let of_all = std::mem::replace(&mut op.results[index], partials.all);
                after_loop.push(Op { kind: over_lanes.into(), results: vec![of_all], loc: op.loc });
            }
        }
        ops.push(op);
        ops.append(&mut after_loop);
    }
    distributed.func.body.ops = ops;
}

/// A lanewise operation that computes this.
fn computing(op: &Op, arith: ArithKind) -> Option<&Scalar> {
    let Kind::Scalar(scalar) = &op.kind else { return None };
    (scalar.op.arith == arith).then_some(scalar)
}

/// Whether a reduction sums one tile along its second axis.
fn reduces_rows(func: &Func, reduce: &Reduce) -> bool {
    let block = &reduce.combination.block;
    let [op] = &block.ops[..] else { return false };
    computing(op, ArithKind::Add).is_some()
        && block.yields == op.results
        && reduce.axes == [1]
        && reduce.combination.inputs.len() == 1
        && func.ty(reduce.combination.inputs[0]).shape.rank() == 2
}

impl CarriedReduction {
    fn find(func: &Func, before: &[Op], body: &For, index: usize) -> Option<CarriedReduction> {
        let For { inits, body, .. } = body;
        let (sum, next) = (body.args[1 + index], body.yields[index]);
        let defined = |value: Value| {
            let position = body.ops.iter().position(|op| op.results.contains(&value))?;
            Some((position, &body.ops[position]))
        };
        let row_sum = |value: Value| {
            let (position, op) = defined(value)?;
            let Kind::Reduce(reduce) = &op.kind else { return None };
            let alone = body.uses(value) == 1 && reduces_rows(func, reduce);
            alone.then(|| (position, reduce.combination.inputs[0]))
        };
        let (last, op) = defined(next)?;
        let plain = body.uses(sum) == 1
            && body.uses(next) == 1
            && is_zero(|value| definition(before, value), inits[index]);
        if !plain {
            return None;
        }
        if let Some(Scalar { args, .. }) = computing(op, ArithKind::MulAdd) {
            let (position, tile) = row_sum(args[2])?;
            let scale = other(args[0], args[1], sum)?;
            return Some(CarriedReduction {
                index,
                operations: vec![position, last],
                tile,
                scale: Some(scale),
            });
        }
        let Scalar { args, .. } = computing(op, ArithKind::Add)?;
        let (old, (position, tile)) = [(args[0], args[1]), (args[1], args[0])]
            .into_iter()
            .find_map(|(old, new)| Some((old, row_sum(new)?)))?;
        if old == sum {
            return Some(CarriedReduction { index, operations: vec![position, last], tile, scale: None });
        }
        let (scaled, op) = defined(old)?;
        let Scalar { args, .. } = computing(op, ArithKind::Mul).filter(|_| body.uses(old) == 1)?;
        let scale = other(args[0], args[1], sum)?;
        Some(CarriedReduction { index, operations: vec![position, scaled, last], tile, scale: Some(scale) })
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
    /// `None` where the lanes of a row are not contiguous, or warps share rows.
    fn new(distributed: &Distributed, body: &For, sum: &CarriedReduction) -> Option<LanePartials> {
        let layout = &distributed.layouts[&sum.tile];
        let shape = layout.shape();
        let along: Vec<u32> =
            layout.lane_bases().iter().map(|basis| basis.get(1)).filter(|&column| column != 0).collect();
        let mask = along.iter().fold(0, |mask, column| mask | column);
        let across_sets = layout.set_axis().is_some_and(|(axis, _)| axis == 1);
        let across_warps = across_sets || layout.warp_bases().iter().any(|basis| basis.get(1) != 0);
        let low = 1 << mask.trailing_zeros().min(31);
        let lanes = mask / low + 1;
        if along.is_empty()
            || across_warps
            || !lanes.is_power_of_two()
            || lanes.trailing_zeros() as usize != along.len()
        {
            return None;
        }
        let split = Shape::new([shape[0], shape[1] / (lanes * low), lanes, low]);
        let in_four = layout.reshape(&split)?;
        let own = in_four.without(&[1, 3]);
        let scale_layout = sum.scale.map(|scale| distributed.layouts[&scale].expand(1));
        let fits = own.without(&[1]) == distributed.layouts[&body.body.args[1 + sum.index]]
            && scale_layout.is_none_or(|layout| own.before_broadcast(&Shape::new([shape[0], 1])) == layout);
        let partials = (Shape::new([shape[0], lanes]), own);
        fits.then_some(LanePartials { split: (split, in_four), partials })
    }
}

fn scalar_op(name: &str) -> &'static ScalarOp {
    row(name).expect("a row of the table")
}

/// The values by which a loop computes and carries partial sums.
struct PartialSums {
    /// At the beginning, in an iteration, behind it, and behind the loop.
    init: Value,
    carried: Value,
    next: Value,
    all: Value,
    /// The sums of an iteration, and the tile in four axes that they are of.
    row_sums: Value,
    split: Value,
    /// The scale of each row: as a column, and for each lane; and the carried sums times it.
    scale_column: Value,
    scales: Value,
    scaled: Value,
}

impl PartialSums {
    fn new(distributed: &mut Distributed, lanes: &LanePartials, dtype: DType) -> PartialSums {
        let mut value = |(shape, layout): &(Shape, Layout)| {
            let value = distributed.func.value(Type::tile(dtype, shape.clone()));
            distributed.layouts.insert(value, layout.clone());
            value
        };
        let [init, carried, next, row_sums, all] = [(); 5].map(|()| value(&lanes.partials));
        let split = value(&lanes.split);
        let (shape, layout) = &lanes.partials;
        let column = Shape::new([shape[0], 1]);
        let column_layout = layout.before_broadcast(&column);
        let scale_column = value(&(column, column_layout));
        let [scales, scaled] = [(); 2].map(|()| value(&lanes.partials));
        PartialSums { init, carried, next, all, row_sums, split, scale_column, scales, scaled }
    }

    /// Lets the loop carry them, and gives the reduction over lanes for behind it.
    fn carry(&self, body: &mut For, sum: &CarriedReduction) -> Reduce {
        body.inits[sum.index] = self.init;
        let block = &mut body.body;
        block.args[1 + sum.index] = self.carried;
        block.yields[sum.index] = self.next;
        let last = *sum.operations.last().expect("something gives the sum");
        let Kind::Reduce(reduce) = &block.ops[sum.operations[0]].kind else {
            unreachable!("the first part is a reduction")
        };
        let mut over_lanes = reduce.clone();
        over_lanes.combination.inputs = vec![self.all];
        over_lanes.axes = vec![1];
        let operations = self.iteration(sum, reduce.clone());
        let loc = block.ops[last].loc;
        let operations = operations.into_iter().map(|(kind, result)| Op { kind, results: vec![result], loc });
        let mut ops = vec![];
        for (position, op) in std::mem::take(&mut block.ops).into_iter().enumerate() {
            if position == last {
                ops.extend(operations.clone());
            } else if !sum.operations.contains(&position) {
                ops.push(op);
            }
        }
        block.ops = ops;
        over_lanes
    }

    /// What an iteration computes instead of the row sums by `own`, with its results.
    fn iteration(&self, sum: &CarriedReduction, mut own: Reduce) -> Vec<(Kind, Value)> {
        own.combination.inputs = vec![self.split];
        own.axes = vec![1, 3];
        let mut operations: Vec<(Kind, Value)> =
            vec![(Reshape { value: sum.tile }.into(), self.split), (own.into(), self.row_sums)];
        let rescaled = match sum.scale {
            Some(scale) => {
                operations.push((ExpandDims { value: scale, axis: 1 }.into(), self.scale_column));
                operations.push((Broadcast { value: self.scale_column }.into(), self.scales));
                let product = Scalar::new(scalar_op("mul"), vec![self.carried, self.scales]);
                operations.push((product.into(), self.scaled));
                self.scaled
            }
            None => self.carried,
        };
        let next = Scalar::new(scalar_op("add"), vec![rescaled, self.row_sums]);
        operations.push((next.into(), self.next));
        operations
    }
}
