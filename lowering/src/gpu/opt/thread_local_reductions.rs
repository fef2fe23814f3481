//! Loop-carried sums stay partial sums of each thread until the loop has ended.
//!
//! `l = l * alpha + sum(tile, 1)`, or without `alpha`, adds over lanes and warps in each iteration of a loop, which waits for shuffles and
//! barriers. All of it is linear, so every thread may add up what it holds itself: the loop then carries as many partial sums as there are
//! threads along the axis, in as many registers as a sum has, and they are reduced after the loop.

use tile_ir::ir::{Func, MAX_RANK, Op, Shape, Type, Value, definition};
use tile_ir::ops::scalar::{ArithKind, row};
use tile_ir::ops::{Broadcast, ExpandDims, For, Kind, Reduce, Reshape, Scalar, ScalarOp, is_zero};
use tile_ir::support::dtype::DType;

use crate::gpu::layout::{Distributed, Layout, Segment};

/// A loop-carried sum along an axis.
struct CarriedReduction {
    /// Its index among the loop-carried values.
    index: usize,
    /// The operations of the body that make the next iteration's value: the reduction first, the one that gives it
    /// last.
    operations: Vec<usize>,
    /// The tile that is reduced, along which axis, and the rescaling of each iteration.
    tile: Value,
    axis: usize,
    scale: Option<Value>,
}

/// The layouts of the partial sums.
struct ThreadPartials {
    /// The tile with an axis for each run of coordinate bits that registers hold, and for each that threads hold.
    split: (Shape, Layout),
    /// The axes of registers, without which the tile is the partial sums.
    own: Vec<usize>,
    partials: (Shape, Layout),
    /// The axes of threads in the partial sums.
    threads: Vec<usize>,
}

/// Rewrites the outermost loops of a function.
pub fn thread_local_reductions(distributed: &mut Distributed) {
    let body = std::mem::take(&mut distributed.func.body.ops);
    let mut ops = Vec::with_capacity(body.len());
    for mut op in body {
        let mut after_loop = vec![];
        if let Kind::For(body) = &mut op.kind {
            for index in 0..body.inits.len() {
                let Some(sum) = CarriedReduction::find(&distributed.func, &ops, body, index) else {
                    continue;
                };
                let Some(threads) = ThreadPartials::new(distributed, body, &sum) else { continue };
                let partials = PartialSums::new(distributed, threads, distributed.func.ty(sum.tile).dtype);
                let zero = definition(&ops, body.inits[index]).expect("the sum starts at 0").clone();
                ops.push(Op { kind: zero, results: vec![partials.init], loc: op.loc });
                let over_threads = partials.carry(body, &sum);
                let of_all = std::mem::replace(&mut op.results[index], partials.all);
                after_loop.push(Op { kind: over_threads.into(), results: vec![of_all], loc: op.loc });
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

/// Returns the tile that a reduction sums and its axis, if the sum is a tile.
fn summed(func: &Func, reduce: &Reduce) -> Option<(Value, usize)> {
    let block = &reduce.combination.block;
    let ([op], [axis], [tile]) = (&block.ops[..], &reduce.axes[..], &reduce.combination.inputs[..]) else {
        return None;
    };
    let adds = computing(op, ArithKind::Add).is_some() && block.yields == op.results;
    (adds && func.ty(*tile).shape.rank() > 1).then_some((*tile, *axis))
}

impl CarriedReduction {
    fn find(func: &Func, before: &[Op], body: &For, index: usize) -> Option<CarriedReduction> {
        let For { inits, body, .. } = body;
        let (sum, next) = (body.args[1 + index], body.yields[index]);
        let defined = |value: Value| {
            let position = body.ops.iter().position(|op| op.results.contains(&value))?;
            Some((position, &body.ops[position]))
        };
        let sum_of_tile = |value: Value| {
            let (position, op) = defined(value).filter(|_| body.uses(value) == 1)?;
            let Kind::Reduce(reduce) = &op.kind else { return None };
            Some((position, summed(func, reduce)?))
        };
        let (last, op) = defined(next)?;
        let plain = body.uses(sum) == 1
            && body.uses(next) == 1
            && is_zero(|value| definition(before, value), inits[index]);
        if !plain {
            return None;
        }
        if let Some(Scalar { args, .. }) = computing(op, ArithKind::MulAdd) {
            let (position, (tile, axis)) = sum_of_tile(args[2])?;
            let scale = Some(other(args[0], args[1], sum)?);
            return Some(CarriedReduction { index, operations: vec![position, last], tile, axis, scale });
        }
        let Scalar { args, .. } = computing(op, ArithKind::Add)?;
        let (old, (position, (tile, axis))) = [(args[0], args[1]), (args[1], args[0])]
            .into_iter()
            .find_map(|(old, new)| Some((old, sum_of_tile(new)?)))?;
        if old == sum {
            return Some(CarriedReduction {
                index,
                operations: vec![position, last],
                tile,
                axis,
                scale: None,
            });
        }
        let (scaled, op) = defined(old)?;
        let Scalar { args, .. } = computing(op, ArithKind::Mul).filter(|_| body.uses(old) == 1)?;
        let scale = Some(other(args[0], args[1], sum)?);
        Some(CarriedReduction { index, operations: vec![position, scaled, last], tile, axis, scale })
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

impl ThreadPartials {
    /// `None` where no threads share a sum, or the loop carries it in another layout.
    fn new(distributed: &Distributed, body: &For, sum: &CarriedReduction) -> Option<ThreadPartials> {
        let layout = &distributed.layouts[&sum.tile];
        // Runs of coordinate bits, the highest first: whether threads hold them, and their extent.
        let mut runs: Vec<(bool, u32)> = vec![];
        for segment in layout.segments(sum.axis).into_iter().rev() {
            let (in_threads, extent) = match segment {
                Segment::Registers { bits, .. } => (false, 1 << bits),
                Segment::Blocks { first } => (false, layout.shape()[sum.axis] >> first),
                Segment::Lanes { bits, .. } => (true, 1 << bits),
                Segment::Warps { warps, .. } => (true, 1 << warps.len()),
            };
            match runs.last_mut() {
                Some((kind, run)) if *kind == in_threads => *run *= extent,
                _ => runs.push((in_threads, extent)),
            }
        }
        let (before, after) = layout.shape().split_at(sum.axis);
        let extents = before.iter().copied().chain(runs.iter().map(|(_, extent)| *extent));
        let extents: Vec<u32> = extents.chain(after[1..].iter().copied()).collect();
        if extents.len() > MAX_RANK || layout.set_axis().is_some_and(|(axis, _)| axis == sum.axis) {
            return None;
        }
        let split = Shape::new(extents);
        let split_layout = layout.reshape(&split)?;
        let axes_of = |in_threads: bool| -> Vec<usize> {
            let is = |run: &usize| runs[*run].0 == in_threads;
            (0..runs.len()).filter(is).map(|run| sum.axis + run).collect()
        };
        let own = axes_of(false);
        let kept = split_layout.without(&own);
        let threads: Vec<usize> = (0..axes_of(true).len()).map(|run| sum.axis + run).collect();
        let is_scale = |scale: Value| match threads[..] {
            [axis] => {
                let column = kept.shape().without(axis).with(axis, 1);
                kept.before_broadcast(&column) == distributed.layouts[&scale].expand(axis)
            }
            _ => false,
        };
        let fits = !threads.is_empty()
            && kept.without(&threads) == distributed.layouts[&body.body.args[1 + sum.index]]
            && sum.scale.is_none_or(is_scale);
        let partials = (kept.shape().clone(), kept);
        fits.then_some(ThreadPartials { split: (split, split_layout), own, partials, threads })
    }
}

fn scalar_op(name: &str) -> &'static ScalarOp {
    row(name).expect("a row of the table")
}

/// The values by which a loop computes and carries partial sums.
struct PartialSums {
    threads: ThreadPartials,
    /// At the beginning, in an iteration, behind it, and behind the loop.
    init: Value,
    carried: Value,
    next: Value,
    all: Value,
    /// The sums of an iteration, and the split tile that they are of.
    sums: Value,
    split: Value,
    /// The scale of each sum: with an axis of extent 1 for the threads, and for each of them; and the carried sums times it.
    scale_column: Value,
    scales: Value,
    scaled: Value,
}

impl PartialSums {
    fn new(distributed: &mut Distributed, threads: ThreadPartials, dtype: DType) -> PartialSums {
        let mut value = |(shape, layout): &(Shape, Layout)| {
            let value = distributed.func.value(Type::tile(dtype, shape.clone()));
            distributed.layouts.insert(value, layout.clone());
            value
        };
        let [init, carried, next, sums, all] = [(); 5].map(|()| value(&threads.partials));
        let split = value(&threads.split);
        let (shape, layout) = &threads.partials;
        let axis = threads.threads[0];
        let column = shape.without(axis).with(axis, 1);
        let column_layout = layout.before_broadcast(&column);
        let scale_column = value(&(column, column_layout));
        let [scales, scaled] = [(); 2].map(|()| value(&threads.partials));
        PartialSums { threads, init, carried, next, all, sums, split, scale_column, scales, scaled }
    }

    /// Lets the loop carry them, and returns the reduction over threads for after it.
    fn carry(&self, body: &mut For, sum: &CarriedReduction) -> Reduce {
        body.inits[sum.index] = self.init;
        let block = &mut body.body;
        block.args[1 + sum.index] = self.carried;
        block.yields[sum.index] = self.next;
        let last = *sum.operations.last().expect("something gives the sum");
        let Kind::Reduce(reduce) = &block.ops[sum.operations[0]].kind else {
            unreachable!("the first part is a reduction")
        };
        let mut over_threads = reduce.clone();
        over_threads.combination.inputs = vec![self.all];
        over_threads.axes = self.threads.threads.clone();
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
        over_threads
    }

    /// What an iteration computes instead of the sums by `own`, with its results.
    fn iteration(&self, sum: &CarriedReduction, mut own: Reduce) -> Vec<(Kind, Value)> {
        let mut operations: Vec<(Kind, Value)> = vec![];
        let sums = if self.threads.own.is_empty() {
            sum.tile
        } else {
            own.combination.inputs = vec![self.split];
            own.axes = self.threads.own.clone();
            operations.push((Reshape { value: sum.tile }.into(), self.split));
            operations.push((own.into(), self.sums));
            self.sums
        };
        let rescaled = match sum.scale {
            Some(scale) => {
                operations.push((
                    ExpandDims { value: scale, axis: self.threads.threads[0] }.into(),
                    self.scale_column,
                ));
                operations.push((Broadcast { value: self.scale_column }.into(), self.scales));
                let product = Scalar::new(scalar_op("mul"), vec![self.carried, self.scales]);
                operations.push((product.into(), self.scaled));
                self.scaled
            }
            None => self.carried,
        };
        let next = Scalar::new(scalar_op("add"), vec![rescaled, sums]);
        operations.push((next.into(), self.next));
        operations
    }
}
