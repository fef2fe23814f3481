//! Loads of runs: where neighbors along an axis read one element, it is loaded once and repeated.
//!
//! A word of packed weights has several of a column, so that offsets are quotients: `(start + arange(0, 64)) / 8` names each word eight
//! times. The load takes the first position of each run alone, and the result is joined with itself until it has all of them: a
//! thread holds an element and its copies. What was a load of elements far from each other may then be one of vectors.
//!
//! Laws:
//! 1. Offsets and masks are constant over aligned runs, and what stands for elements that are masked off is a splat: the same elements
//!    are read under the same conditions. A mask `inner < k` is constant over a run if `k`, and where `inner` begins, are multiples of
//!    its length; so it is where guards say that of `k`.
//! 2. Lanewise formulas of the first positions are the formulas at these positions. Anything else that varies along the axis, such as
//!    a loaded index or a tile that a loop carries, leaves the load alone.
//! 3. Contiguous numbers from a multiple of the run's length, divided by it, are contiguous: `(start + arange(0, 64)) / 8` becomes
//!    `start / 8 + arange(0, 8)`. A comparison of multiples is one of their quotients, so that it masks whole vectors.
//! 4. At least an element remains for each thread, and a tile that is the same along all of an axis is not one of runs.
//!
//! A volatile load is left alone.

use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::frontend::syntax::BinaryOp;
use crate::ir::{Func, FuncBuilder, MAX_RANK, Op, Rewriter, Shape, Type, Value, cse_and_dce};
use crate::ops::scalar::{ArithKind, Scalar, binary};
use crate::ops::{
    Arange, Broadcast, CacheModifier, Cast, Constant, ConstantValue, ExpandDims, Join, Kind, Load, MemAccess,
    Reshape, Splat,
};
use crate::support::dtype::DType;

/// Narrows loads of runs in a function whose indices are legal and whose programs have this many threads.
pub fn load_runs_once(func: &mut Func, assumptions: &LaunchAssumptions, threads: u32) {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let mut found: HashMap<Value, Runs> = HashMap::new();
    func.body.walk(&mut |op| {
        found.extend(Runs::of_load(func, &axes, op, threads).map(|runs| (op.results[0], runs)));
    });
    if found.is_empty() {
        return;
    }
    let definitions = func.cloned_definitions();
    Rewriter::default().run(func, &mut |_, builder, op| {
        let runs = op.results.first().and_then(|result| found.get(result));
        let (Kind::Load(load), Some(&runs)) = (&op.kind, runs) else { return builder.append(op) };
        let sampler = Sampler { builder, definitions: &definitions, axes: &axes, known: HashMap::new() };
        let Some(narrow) = sampler.narrowed(load, runs) else { return builder.append(op) };
        let repeated = repeated(builder, narrow, runs);
        builder.append(Op { kind: repeated.into(), ..op });
    });
    cse_and_dce(func);
}

/// Aligned runs of positions at which a load reads one element.
#[derive(Clone, Copy)]
struct Runs {
    axis: usize,
    length: u32,
}

impl Runs {
    /// The longest runs of a load, if there are any.
    fn of_load(func: &Func, axes: &AxisInfoMap, op: &Op, threads: u32) -> Option<Runs> {
        let Kind::Load(Load { access: place, cache, .. }) = &op.kind else { return None };
        let shape = &func.ty(place.offset).shape;
        // A layout does not follow a reshape of other extents.
        let keeps_layout = shape.iter().skip(1).all(|extent| extent.is_power_of_two());
        let is_movable = cache.modifier != CacheModifier::Volatile && place.shift.is_none();
        if !(keeps_layout && is_movable && (1..MAX_RANK).contains(&shape.rank())) {
            return None;
        }
        let offset = axes.get(func, place.offset);
        let mask = place.mask.map(|mask| axes.get(func, mask));
        let spared = shape.elements() / u64::from(threads);
        let runs = (0..shape.rank()).filter(|&axis| offset.axes[axis].constancy < shape[axis].into());
        let runs = runs.map(|axis| {
            let masked = mask.as_ref().map_or(u64::MAX, |mask| mask.axes[axis].constancy);
            let equal = offset.axes[axis].constancy.min(masked);
            let whole = 1 << shape[axis].trailing_zeros();
            Runs { axis, length: 1 << equal.min(spared).clamp(1, whole).ilog2() }
        });
        runs.max_by_key(|runs| runs.length).filter(|runs| runs.length > 1)
    }
}

/// Repeats each element of a tile along an axis; the reshape that has the last copies is not appended yet.
fn repeated(builder: &mut FuncBuilder, mut value: Value, Runs { axis, length }: Runs) -> Reshape {
    for bit in (0..length.ilog2()).rev() {
        let Type { dtype, shape, .. } = builder.func.ty(value).clone();
        let pairs = Join { left: value, right: value, axis: axis + 1 };
        value = builder.one(pairs, Type::tile(dtype, shape.with(axis + 1, 2)));
        if bit > 0 {
            let doubled = Type::tile(dtype, with_extent(&shape, axis, 2 * shape[axis]));
            value = builder.one(Reshape { value }, doubled);
        }
    }
    Reshape { value }
}

fn with_extent(shape: &Shape, axis: usize, extent: u32) -> Shape {
    shape.without(axis).with(axis, extent)
}

/// Builds formulas at every so many positions of the tiles of a function.
struct Sampler<'b, 'f> {
    builder: &'b mut FuncBuilder<'f>,
    definitions: &'b HashMap<Value, Op>,
    axes: &'b AxisInfoMap,
    known: HashMap<(Value, usize, u32), Option<Value>>,
}

impl Sampler<'_, '_> {
    /// The elements of a load at the first position of each run.
    fn narrowed(mut self, load: &Load, Runs { axis, length }: Runs) -> Option<Value> {
        let Load { access: place, other, .. } = *load;
        let is_splat =
            |other| matches!(self.definitions.get(&other).map(|op| &op.kind), Some(Kind::Splat(_)));
        if other.is_some_and(|other| !is_splat(other)) {
            return None;
        }
        let mut first_of = |value: Option<Value>| match value {
            Some(value) => self.every(value, axis, length).map(Some),
            None => Some(None),
        };
        let (offset, mask, other) = (first_of(Some(place.offset))??, first_of(place.mask)?, first_of(other)?);
        let shape = self.builder.func.ty(offset).shape.clone();
        let elem = self.builder.func.slice(place.param).0;
        let access = MemAccess { offset, mask, ..place };
        Some(self.builder.one(Load { access, other, ..*load }, Type::tile(elem, shape)))
    }

    /// The elements of a tile at positions that are multiples of `step` along an axis.
    fn every(&mut self, value: Value, axis: usize, step: u32) -> Option<Value> {
        if self.builder.func.ty(value).shape[axis] == 1 {
            return Some(value);
        }
        if let Some(&known) = self.known.get(&(value, axis, step)) {
            return known;
        }
        let built = self.sampled(value, axis, step);
        self.known.insert((value, axis, step), built);
        built
    }

    fn sampled(&mut self, value: Value, axis: usize, step: u32) -> Option<Value> {
        let ty = self.sampled_type(value, axis, step);
        let kind = self.definitions.get(&value)?.kind.clone();
        let kind: Kind = if let Kind::Splat(splat) = kind {
            splat.into()
        } else if let Kind::Arange(range) = kind {
            if ty.shape[axis] > 1 {
                let positions = self.builder.one(Arange { start: 0 }, ty.clone());
                let (start, step) = (self.constant(range.start.into(), &ty), self.constant(step.into(), &ty));
                let distance = self.exact(BinaryOp::Mul, [positions, step]);
                return Some(self.exact(BinaryOp::Add, [start, distance]));
            }
            range.into()
        } else if let Kind::Broadcast(Broadcast { value }) = kind {
            Broadcast { value: self.every(value, axis, step)? }.into()
        } else if let Kind::ExpandDims(ExpandDims { value, axis: new }) = kind {
            let value = self.every(value, axis - usize::from(axis > new), step)?;
            ExpandDims { value, axis: new }.into()
        } else if let Kind::Cast(cast) = kind {
            Cast { value: self.every(cast.value, axis, step)?, ..cast }.into()
        } else if let Kind::Scalar(scalar) = kind {
            match self.quotients(&scalar, axis, step) {
                Some(Quotients::Of(quotient)) => return Some(quotient),
                Some(Quotients::Compared(args)) => Scalar { args, ..scalar }.into(),
                None => {
                    let args = scalar.args.iter().map(|&arg| self.every(arg, axis, step));
                    Scalar { args: args.collect::<Option<_>>()?, ..scalar }.into()
                }
            }
        } else {
            return None;
        };
        Some(self.builder.one(kind, ty))
    }

    fn sampled_type(&self, value: Value, axis: usize, step: u32) -> Type {
        let Type { dtype, shape, .. } = self.builder.func.ty(value);
        Type::tile(*dtype, with_extent(shape, axis, shape[axis] / step))
    }

    /// What law 3 makes of a quotient by `step` and of a comparison.
    fn quotients(&mut self, scalar: &Scalar, axis: usize, step: u32) -> Option<Quotients> {
        let &[one, other] = &scalar.args[..] else { return None };
        let is = |value: u32| (i128::from(value), i128::from(value));
        let by = self.axes.get(self.builder.func, other).range;
        match scalar.op.arith {
            ArithKind::Div if by == is(step) => self.quotient(one, axis, step).map(Quotients::Of),
            ArithKind::Shr if by == is(step.ilog2()) => self.quotient(one, axis, step).map(Quotients::Of),
            ArithKind::Compare(_) if [one, other].iter().any(|&value| self.is_range(value, axis)) => {
                let args = [one, other].map(|value| self.quotient(value, axis, step));
                args.into_iter().collect::<Option<_>>().map(Quotients::Compared)
            }
            _ => None,
        }
    }

    /// The elements at multiples of `step`, divided by it without a remainder: a contiguous range, or one number along the axis.
    fn quotient(&mut self, value: Value, axis: usize, step: u32) -> Option<Value> {
        let ty = self.sampled_type(value, axis, step);
        let extent = self.builder.func.ty(value).shape[axis];
        let info = self.axes.get(self.builder.func, value);
        let is_same = info.axes[axis].constancy >= extent.into();
        let is_exact = info.divisor_at(axis, extent.into()) >= step.into();
        let fits = ty.dtype.is_integer() && i128::from(step) <= ty.dtype.range().1;
        if !(fits && is_exact && (is_same || self.is_range(value, axis))) {
            return None;
        }
        let first = self.every(value, axis, extent)?;
        let first_ty = self.builder.func.ty(first).clone();
        let args = vec![first, self.constant(step.into(), &first_ty)];
        let value = self.builder.one(Scalar::new(binary(BinaryOp::Div), args), first_ty);
        let quotient = self.builder.one(Broadcast { value }, ty.clone());
        if is_same {
            return Some(quotient);
        }
        let positions = self.positions(axis, &ty);
        Some(self.exact(BinaryOp::Add, [quotient, positions]))
    }

    /// Whether elements are contiguous numbers along all of an axis.
    fn is_range(&self, value: Value, axis: usize) -> bool {
        let func = &self.builder.func;
        self.axes.get(func, value).axes[axis].contiguity >= func.ty(value).shape[axis].into()
    }

    /// The position along an axis of each element of a tile.
    fn positions(&mut self, axis: usize, ty: &Type) -> Value {
        let mut line = Type::tile(DType::I32, Shape::new([ty.shape[axis]]));
        let mut value = self.builder.one(Arange { start: 0 }, line.clone());
        if ty.dtype != line.dtype {
            line = line.with(ty.dtype);
            value = self.builder.one(Cast::new(value), line.clone());
        }
        for other in (0..ty.shape.rank()).filter(|&other| other != axis) {
            line.shape = line.shape.with(other, 1);
            value = self.builder.one(ExpandDims { value, axis: other }, line.clone());
        }
        self.builder.one(Broadcast { value }, ty.clone())
    }

    fn constant(&mut self, value: i128, ty: &Type) -> Value {
        let scalar = Type::scalar(ty.dtype);
        let value = self.builder.one(Constant { value: ConstantValue::Int(value) }, scalar);
        self.builder.one(Splat { value }, ty.clone())
    }

    /// Arithmetic that stays between elements of a tile that the function has.
    fn exact(&mut self, op: BinaryOp, args: [Value; 2]) -> Value {
        let ty = self.builder.func.ty(args[0]).clone();
        let args = args.to_vec();
        self.builder.one(Scalar { exact: true, ..Scalar::new(binary(op), args) }, ty)
    }
}

/// What divides without a remainder.
enum Quotients {
    Of(Value),
    Compared(Vec<Value>),
}
