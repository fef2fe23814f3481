//! Rows that begin anywhere, read and written in whole vectors.
//!
//! A row of odd length begins between two aligned vectors, and no vector of its elements is aligned. Which thread has which
//! element matters to nobody, though, where a function treats all elements of a tile alike: lanewise operations, reductions,
//! accesses that compute their own addresses. Such a tile is *rotated* (`ops/rotate`): a thread's vector begins at a multiple of its
//! length. Where the tile is the whole row, the two vectors at the row's ends are the last ones of the tile, and no mask cuts any
//! other. Where rows are read in pieces, pieces take turns and are all rotated alike: of each the first vector is split, and the last
//! one's mask may cut another. Those are moved element by element; all others are moved whole (`mlir/gpu/memory/shifted`).
//!
//! What is read at another distance from alignment, one number a column, say, is read as the two aligned vectors around it.

use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::polynomial::{Atom, Placement, Polynomial, Polynomials};
use crate::analysis::row_groups;
use crate::frontend::syntax::BinaryOp;
use crate::ir;
use crate::ir::guard::Symbol;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::layout_relation::Reindex;
use crate::ir::{Func, FuncBuilder, Op, ParamId, ParamKind, Rewriter, Shape, Type, Value, backward_slice};
use crate::ops::CacheModifier;
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{
    Arange, Broadcast, Cast, Constant, ConstantValue, Effect, ExpandDims, Kind, Length, Load, MemAccess,
    NumPrograms, ProgramId, RangeOrder, Rotate, RowCut, Shift, Store, VectorStart,
};
use crate::support::dtype::DType;
use crate::support::limits::MAX_ACCESS_BYTES;

/// Rotates a function's rows, after `split`, if there are any and what is made of them does not depend on the order.
pub fn rotate_rows(func: &mut Func, assumptions: &LaunchAssumptions) {
    let mut separated = func.clone();
    let plans = RotationPlan::all(&mut separated, assumptions);
    if plans.is_empty() {
        return;
    }
    *func = separated;
    plans.into_iter().for_each(|plan| plan.apply(func));
    // Not before: equal ramps of two parts would be one again.
    ir::cse_and_dce(func);
}

/// A sum of products.
type Terms = Vec<(i128, Vec<EntryScalar>)>;

/// What is rotated, and by how much.
struct RotationPlan {
    ramp: Value,
    /// The row's start: what it leaves when it is divided by the limit is `s`.
    number: Terms,
    /// The accesses of rows; for those that are not rotated by what they are behind alignment, how far they are, if the function can
    /// begin with it.
    shifts: Vec<(MemAccess, Shift, Option<Terms>)>,
    limit: u32,
    /// What all numbers of a row are below, where a tile is a row.
    bound: Option<Value>,
}

/// A scalar that stands at the beginning of a function.
#[derive(Clone, Copy)]
enum EntryScalar {
    Parameter(Value),
    /// Made of the program's place and arguments alone: it is made again.
    Made(Value),
    Length(ParamId),
    Program(u8),
    Programs(u8),
}

/// An access to a row: each element one behind the one before it.
struct RowAccess {
    place: MemAccess,
    start: Polynomial,
    extent: u32,
    bytes: u32,
    writes: bool,
}

impl RowAccess {
    /// What is written cannot be read around: it says how far to rotate, and of several what is most.
    fn rank(&self) -> (bool, u32) {
        (self.writes, self.bytes)
    }
}

impl RotationPlan {
    /// The plans of the parts of a function whose tiles are as long as the rows that come first; parts get ramps of their own.
    fn all(func: &mut Func, assumptions: &LaunchAssumptions) -> Vec<RotationPlan> {
        let found = rows(func, &Polynomials::analyze(func));
        let Some(leader) = found.iter().max_by_key(|row| row.rank()) else { return vec![] };
        let extent = leader.extent;
        let ramps = ramps(func, extent);
        if !any_order(func, extent) {
            return vec![];
        }
        let ramps = row_groups::separate(func, &ramps, extent);
        let axes = AxisInfoMap::analyze(func, assumptions);
        let definitions = func.definitions();
        let rows = rows(func, &Polynomials::analyze(func));
        let plans = ramps.into_iter().filter_map(|ramp| {
            let counted = |row: &&RowAccess| backward_slice(row.place.offset, &definitions).contains(&ramp);
            let own: Vec<&RowAccess> =
                rows.iter().filter(|row| row.extent == extent).filter(counted).collect();
            RotationPlan::new(func, &axes, &definitions, ramp, &own)
        });
        plans.collect()
    }

    /// How the rows that a ramp counts are rotated.
    fn new(
        func: &Func,
        axes: &AxisInfoMap,
        definitions: &HashMap<Value, &Op>,
        ramp: Value,
        rows: &[&RowAccess],
    ) -> Option<RotationPlan> {
        let extent = rows.first()?.extent;
        let narrowest = rows.iter().map(|row| row.bytes).min()?;
        let limit = MAX_ACCESS_BYTES / narrowest;
        if limit < 2 || 2 * limit > extent || !extent.is_multiple_of(limit) {
            return None;
        }
        let uneven = |polynomial: &Polynomial| without_multiples(polynomial, limit, func, axes);
        // Of those that are alike, one that is not aligned as it is.
        let is_even = |row: &RowAccess| uneven(&row.start).as_constant() == Some(0);
        let leader = rows.iter().max_by_key(|row| (row.rank(), !is_even(row)))?;
        let number = uneven(&leader.start);
        // A row that begins at a multiple as it is needs no rotation.
        if number.as_constant() == Some(0) {
            return None;
        }
        let terms = |sum: &Polynomial| -> Option<Terms> {
            let terms = sum.terms().map(|(atoms, coefficient)| {
                let sources: Option<Vec<EntryScalar>> =
                    atoms.iter().map(|&atom| source(func, definitions, atom)).collect();
                Some((coefficient, sources?))
            });
            terms.collect()
        };
        let number = terms(&number)?;
        let shifts = rows.iter().filter_map(|row| {
            let behind = uneven(&row.start.sub(&leader.start));
            let aligned = behind.as_constant() == Some(0);
            let mut sides = [false; 2];
            let interval =
                row.place.mask.is_none_or(|mask| is_interval(func, definitions, (ramp, &mut sides), mask));
            let one_sided = interval && sides != [true; 2] && !row.place.bounded;
            let elements = limit.min(MAX_ACCESS_BYTES / row.bytes);
            let (start, behind) = if aligned {
                (VectorStart::Aligned, None)
            } else {
                (VectorStart::Misaligned(None), terms(&behind))
            };
            let shift = Shift { elements, limit, start, interval, one_sided };
            ((aligned || !row.writes) && shift.elements > 1).then_some((row.place, shift, behind))
        });
        let shifts: Vec<(MemAccess, Shift, Option<Terms>)> = shifts.collect();
        let turns = |atom: &Atom| matches!(atom, Atom::Loop(value, _) if !definitions.contains_key(value));
        let in_pieces = rows.iter().any(|row| row.start.all_varying().iter().any(turns));
        let bound = leader.place.mask.filter(|_| !in_pieces);
        let bound = bound.and_then(|mask| bound_of(func, definitions, ramp, mask));
        Some(RotationPlan { ramp, number, shifts, limit, bound })
    }

    fn apply(self, func: &mut Func) {
        let RotationPlan { ramp, number, mut shifts, limit, bound } = self;
        let made: HashMap<Value, Kind> =
            func.definitions().into_iter().map(|(value, op)| (value, op.kind.clone())).collect();
        let mut by = None;
        Rewriter::default().run(func, &mut |_, builder, op| {
            let is_ramp = op.results.first() == Some(&ramp);
            builder.append(op);
            if is_ramp {
                by = Some(remainder(builder, &made, &number, limit));
                for (_, shift, behind) in &mut shifts {
                    if let Some(terms) = behind {
                        shift.start = VectorStart::Misaligned(Some(remainder(builder, &made, terms, limit)));
                    }
                }
            }
        });
        let by = by.expect("the ramp is in the function");
        // Before the ramp is another value in them.
        Rewriter::default().run(func, &mut |_, builder, mut op| {
            if let Some(place) = op.kind.operation_mut().place_mut()
                && let Some(&(_, shift, _)) = shifts.iter().find(|(known, ..)| known == place)
            {
                place.shift = Some(shift);
            }
            builder.append(op);
        });
        Rewriter::default().run(func, &mut |rewriter, builder, op| {
            let comes_last = op.results.first() == Some(&by);
            builder.append(op);
            if comes_last {
                let ty = builder.func.ty(ramp).clone();
                let dealt = match bound {
                    Some(bound) => RangeOrder::Cut(cut(builder, &made, (by, bound), (limit, ty.shape[0]))),
                    None => RangeOrder::Wrapped { by },
                };
                let value = builder.one(Rotate { ramp, limit, dealt }, ty);
                rewriter.replace(ramp, value);
            }
        });
    }
}

fn rows(func: &Func, polynomials: &Polynomials) -> Vec<RowAccess> {
    let mut rows = vec![];
    func.body.walk(&mut |op| {
        let (Kind::Load(Load { place, cache, .. }) | Kind::Store(Store { place, cache, .. })) = &op.kind
        else {
            return;
        };
        if cache.level == CacheModifier::Volatile {
            return;
        }
        let writes = matches!(op.kind, Kind::Store(_));
        let offset = func.ty(place.offset);
        let Some((axis, extent)) = row_of(&offset.shape).filter(|_| offset.dtype == DType::I32) else {
            return;
        };
        let (factor, start) = polynomials.of_access(place).split(Atom::Range { axis, extent });
        let start = without_units(&start);
        let scalars = start.all_varying().into_iter().all(|atom| match atom {
            Atom::Loop(value, _) | Atom::Opaque(value, _) => func.ty(value).is_scalar(),
            Atom::Known(_) | Atom::Program(_) => true,
            Atom::Range { .. } => false,
        });
        if factor.as_constant() == Some(1) && scalars {
            let bytes = func.slice(place.param).0.bytes();
            rows.push(RowAccess { place: *place, start, extent, bytes, writes });
        }
    });
    rows
}

/// The axis of a tile of one row, and its extent.
fn row_of(shape: &Shape) -> Option<(usize, u32)> {
    let mut axes = shape.iter().enumerate().filter(|(_, extent)| **extent > 1);
    let (axis, &extent) = axes.next()?;
    axes.next().is_none().then_some((axis, extent))
}

/// A polynomial without the ramps that have one number, which is 0.
fn without_units(polynomial: &Polynomial) -> Polynomial {
    let units: Vec<Atom> = polynomial
        .all_varying()
        .into_iter()
        .filter(|atom| matches!(atom, Atom::Range { extent: 1, .. }))
        .collect();
    units.into_iter().fold(polynomial.clone(), |rest, unit| rest.split(unit).1)
}

/// The ramps of an extent, which all elements of such tiles are counted by.
fn ramps(func: &Func, extent: u32) -> Vec<Value> {
    let mut found = vec![];
    func.body.walk(&mut |op| {
        if let Kind::Arange(Arange { start }) = op.kind
            && func.ty(op.results[0]).shape[0] == extent
        {
            found.push((op.results[0], start));
        }
    });
    // One that starts elsewhere would have to be rotated as well.
    if found.iter().all(|(_, start)| *start == 0) {
        found.into_iter().map(|(ramp, _)| ramp).collect()
    } else {
        vec![]
    }
}

/// Whether the order of the elements of tiles of an extent does not matter to anything that takes or gives one.
fn any_order(func: &Func, extent: u32) -> bool {
    let mut any = true;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let is_row = |value: &Value| {
            let shape = &func.ty(*value).shape;
            !func.ty(*value).is_scalar() && shape.contains(&extent)
        };
        let involved: Vec<Value> =
            operation.operands().into_iter().chain(op.results.iter().copied()).filter(is_row).collect();
        if involved.is_empty() {
            return;
        }
        any &= involved.iter().all(|&value| row_of(&func.ty(value).shape).is_some());
        any &= match operation.spread(func, &op.results) {
            LayoutRelation::Lanewise { .. } => operation.is_pointwise() || operation.place().is_some(),
            LayoutRelation::Tied(groups) => {
                involved.iter().all(|value| groups.iter().flatten().any(|own| own == value))
            }
            LayoutRelation::Source => true,
            LayoutRelation::View(Reindex::Broadcast { .. } | Reindex::Expand { .. }) => true,
            LayoutRelation::Reduce { .. } => matches!(op.kind, Kind::Reduce(_)),
            _ => false,
        };
        any &= operation.effect() != Effect::Write
            || operation.place().is_some()
            || !operation.blocks().is_empty();
    });
    any
}

/// The terms of a polynomial that need not be multiples of a number.
fn without_multiples(polynomial: &Polynomial, of: u32, func: &Func, axes: &AxisInfoMap) -> Polynomial {
    let mut left = Polynomial::default();
    for (atoms, coefficient) in polynomial.terms() {
        let divisor = |atom: &Atom| match *atom {
            Atom::Loop(value, _) | Atom::Opaque(value, _) => axes.get(func, value).divisor,
            Atom::Known(Symbol::Scalar(position)) => match func.params[position as usize].kind {
                ParamKind::Scalar { value, .. } => axes.get(func, value).divisor,
                ParamKind::Slice { .. } => 1,
            },
            Atom::Known(_) | Atom::Program(_) | Atom::Range { .. } => 1,
        };
        let powers: u32 = atoms.iter().map(|atom| divisor(atom).trailing_zeros()).sum();
        if powers + coefficient.trailing_zeros() < of.trailing_zeros() {
            let term = atoms.iter().fold(Polynomial::constant(coefficient), |product, &atom| {
                product.mul(&Polynomial::atom(atom))
            });
            left = left.add(&term);
        }
    }
    left
}

/// What an atom is at the beginning of the function, if it is there.
fn source(func: &Func, definitions: &HashMap<Value, &Op>, atom: Atom) -> Option<EntryScalar> {
    match atom {
        Atom::Program(axis) => Some(EntryScalar::Program(axis)),
        Atom::Known(Symbol::Grid(axis)) => Some(EntryScalar::Programs(axis)),
        Atom::Known(Symbol::Length(param)) => Some(EntryScalar::Length(ParamId(param))),
        Atom::Known(Symbol::Scalar(position)) => match func.params[position as usize].kind {
            ParamKind::Scalar { value, .. } => Some(EntryScalar::Parameter(value)),
            ParamKind::Slice { .. } => None,
        },
        Atom::Loop(value, Placement::OWN) | Atom::Opaque(value, Placement::OWN) => {
            repeatable(func, definitions, value, MAX_DEPTH).then_some(EntryScalar::Made(value))
        }
        Atom::Known(Symbol::CeilDiv { .. }) | Atom::Loop(..) | Atom::Opaque(..) | Atom::Range { .. } => None,
    }
}

/// The longest chain of operations that is followed.
const MAX_DEPTH: u32 = 8;

fn repeatable(func: &Func, definitions: &HashMap<Value, &Op>, value: Value, depth: u32) -> bool {
    if func.scalar_parameter(value).is_some() {
        return true;
    }
    let Some(op) = definitions.get(&value).filter(|_| depth > 0) else { return false };
    let operation = op.kind.operation();
    // A load may be inside its slice only where it stands.
    operation.effect() == Effect::Pure
        && operation.place().is_none()
        && operation.blocks().is_empty()
        && func.ty(value).is_scalar()
        && operation.operands().into_iter().all(|operand| repeatable(func, definitions, operand, depth - 1))
}

/// Whether a mask lets one run of numbers through: comparisons of the ramp, moved by scalars, with scalars, and what is the same for all
/// numbers. Notes whether it says what they are above, and what below.
fn is_interval(
    func: &Func,
    definitions: &HashMap<Value, &Op>,
    (ramp, sides): (Value, &mut [bool; 2]),
    mask: Value,
) -> bool {
    let mask = source_of(definitions, mask);
    let uniform = |value: Value| !backward_slice(value, definitions).contains(&ramp);
    if uniform(mask) {
        return true;
    }
    let kind = |value: Value| definitions.get(&value).map(|op| &op.kind);
    let Some(Kind::Scalar(Scalar { op, args, .. })) = kind(mask) else { return false };
    let less = match op.algebra {
        ArithKind::And => {
            return args.iter().all(|&part| is_interval(func, definitions, (ramp, &mut *sides), part));
        }
        ArithKind::Compare(BinaryOp::Lt | BinaryOp::Le) => true,
        ArithKind::Compare(BinaryOp::Gt | BinaryOp::Ge) => false,
        _ => return false,
    };
    let is_ramp = |value| source_of(definitions, value) == ramp;
    let moved = |value: Value| {
        if is_ramp(value) {
            return true;
        }
        let Some(Kind::Scalar(Scalar { op, args, .. })) = kind(source_of(definitions, value)) else {
            return false;
        };
        op.algebra == ArithKind::Add
            && (is_ramp(args[0]) && uniform(args[1]) || is_ramp(args[1]) && uniform(args[0]))
    };
    let &[one, other] = &args[..] else { return false };
    let below = match (moved(one) && uniform(other), moved(other) && uniform(one)) {
        (true, false) => less,
        (false, true) => !less,
        _ => return false,
    };
    sides[usize::from(below)] = true;
    func.ty(one).dtype.is_signed()
}

/// What a value has the elements of, at other places.
fn source_of(definitions: &HashMap<Value, &Op>, mut value: Value) -> Value {
    while let Some(
        Kind::Broadcast(Broadcast { value: source }) | Kind::ExpandDims(ExpandDims { value: source, .. }),
    ) = definitions.get(&value).map(|op| &op.kind)
    {
        value = *source;
    }
    value
}

/// A scalar that a mask has the ramp's numbers below, if the function can begin with it.
fn bound_of(func: &Func, definitions: &HashMap<Value, &Op>, ramp: Value, mask: Value) -> Option<Value> {
    let mask = source_of(definitions, mask);
    let Kind::Scalar(Scalar { op, args, .. }) = &definitions.get(&mask)?.kind else { return None };
    if op.algebra == ArithKind::And {
        return args.iter().find_map(|&part| bound_of(func, definitions, ramp, part));
    }
    let Kind::Splat(bound) = &definitions.get(&source_of(definitions, *args.get(1)?))?.kind else {
        return None;
    };
    let below = op.algebra == ArithKind::Compare(BinaryOp::Lt) && source_of(definitions, args[0]) == ramp;
    let bound = bound.value;
    (below && func.ty(bound).dtype == DType::I32 && repeatable(func, definitions, bound, MAX_DEPTH))
        .then_some(bound)
}

/// Where a row is cut that begins `by` elements behind a multiple of `limit`, and whose numbers are below the bound.
fn cut(
    builder: &mut FuncBuilder,
    made: &HashMap<Value, Kind>,
    (by, bound): (Value, Value),
    (limit, extent): (u32, u32),
) -> RowCut {
    let bound = again(builder, made, bound);
    let limit = i128::from(limit);
    let [zero, low, most, whole] =
        [0, limit - 1, i128::from(extent) - 2 * limit, -limit].map(|value| constant(builder, value));
    let head = arithmetic(builder, "wrapping_sub", [zero, by]);
    let head = arithmetic(builder, "and", [head, low]);
    let elements = arithmetic(builder, "maximum", [bound, zero]);
    let behind = arithmetic(builder, "wrapping_sub", [elements, head]);
    let behind = arithmetic(builder, "maximum", [behind, zero]);
    let behind = arithmetic(builder, "minimum", [behind, most]);
    RowCut { head, whole: arithmetic(builder, "and", [behind, whole]), bound }
}

/// A row of the table on `i32` scalars.
fn arithmetic(builder: &mut FuncBuilder, name: &str, args: [Value; 2]) -> Value {
    let scalar = Scalar::named(name, args.to_vec());
    builder.one(scalar, Type::scalar(DType::I32))
}

fn constant(builder: &mut FuncBuilder, value: i128) -> Value {
    builder.one(Constant { value: ConstantValue::Int(value) }, Type::scalar(DType::I32))
}

/// What a sum of products leaves when it is divided by a power of two. Only the low bits matter, so that it may wrap.
fn remainder(
    builder: &mut FuncBuilder,
    made: &HashMap<Value, Kind>,
    terms: &[(i128, Vec<EntryScalar>)],
    by: u32,
) -> Value {
    let ty = Type::scalar(DType::I32);
    let mut sum = constant(builder, 0);
    for (coefficient, sources) in terms {
        let mut product = constant(builder, coefficient.rem_euclid(i128::from(by)));
        for source in sources {
            let value = match *source {
                EntryScalar::Parameter(value) => as_i32(builder, value),
                EntryScalar::Made(value) => {
                    let value = again(builder, made, value);
                    as_i32(builder, value)
                }
                EntryScalar::Program(axis) => builder.one(ProgramId { axis }, ty.clone()),
                EntryScalar::Programs(axis) => builder.one(NumPrograms { axis }, ty.clone()),
                EntryScalar::Length(param) => {
                    let length = builder.one(Length { param }, Type::scalar(DType::I64));
                    as_i32(builder, length)
                }
            };
            product = arithmetic(builder, "wrapping_mul", [product, value]);
        }
        sum = arithmetic(builder, "wrapping_add", [sum, product]);
    }
    let low = constant(builder, i128::from(by - 1));
    arithmetic(builder, "and", [sum, low])
}

fn as_i32(builder: &mut FuncBuilder, value: Value) -> Value {
    let ty = Type::scalar(DType::I32);
    if *builder.func.ty(value) == ty { value } else { builder.one(Cast { value }, ty) }
}

/// A scalar, computed again where the function begins.
fn again(builder: &mut FuncBuilder, made: &HashMap<Value, Kind>, value: Value) -> Value {
    let Some(mut kind) = made.get(&value).cloned() else { return value };
    let operands = kind.operation().operands();
    let copies: HashMap<Value, Value> =
        operands.into_iter().map(|operand| (operand, again(builder, made, operand))).collect();
    kind.operation_mut().map(&mut |operand| copies.get(&operand).copied().unwrap_or(operand));
    let ty = builder.func.ty(value).clone();
    builder.one(kind, ty)
}
