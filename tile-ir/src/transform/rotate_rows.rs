//! Misaligned rows, read and written in whole vectors.
//!
//! A row of odd length starts between two aligned vectors, and no vector of its elements is aligned. The order of a tile's
//! elements is free, though, where a function treats all of them alike: lanewise operations, reductions, accesses that compute
//! their own addresses. Such a tile is *rotated* (`ops/rotate`): a thread's vector starts at a multiple of its length. Where the
//! tile is the whole row, the two vectors at the row's ends are the last ones of the tile, and no mask cuts any other. Where a loop
//! reads a row in chunks, all chunks are rotated alike: the first vector of each is split, and the last one's mask may cut another.
//! Those are moved element by element; all others are moved whole (`gpu/emit/memory/shifted`).
//!
//! An access with another misalignment, such as one value per column, loads the two aligned vectors around its elements.

use std::collections::{HashMap, HashSet};

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::polynomial::Polynomials;
use crate::analysis::row_groups;
use crate::frontend::syntax::BinaryOp;
use crate::ir;
use crate::ir::guard::Symbol;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::layout_relation::Reindex;
use crate::ir::polynomial::{Atom, Placement, Polynomial};
use crate::ir::{Func, FuncBuilder, Op, ParamId, ParamKind, Rewriter, Shape, Type, Value, backward_slice};
use crate::ops::CacheModifier;
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{
    Arange, Broadcast, Cast, Constant, ConstantValue, Effect, ExpandDims, Kind, Length, Load, MemAccess,
    NumPrograms, ProgramId, RangeOrder, Rotate, RowCut, Shift, Store, VectorStart,
};
use crate::support::dtype::DType;
use crate::support::limits::MAX_ACCESS_BYTES;

/// Rotates a function's rows, after index legalization, if there are any and no use of them depends on the order.
pub fn rotate_rows(func: &mut Func, assumptions: &LaunchAssumptions) {
    let mut separated = func.clone();
    let plans = RotationPlan::all(&mut separated, assumptions);
    if plans.is_empty() {
        return;
    }
    *func = separated;
    plans.into_iter().for_each(|plan| plan.apply(func));
    // Not before: CSE would merge the equal ranges of two groups again.
    ir::cse_and_dce(func);
}

/// A sum of products.
type Terms = Vec<(i128, Vec<EntryScalar>)>;

/// Which range is rotated, and by how much.
struct RotationPlan {
    range: Value,
    /// The row's start; its remainder by the limit is the rotation.
    start: Terms,
    /// The accesses of rows; for those whose misalignment differs from the rotation, the difference, if it can be computed at the
    /// function's entry.
    shifts: Vec<(MemAccess, Shift, Option<Terms>)>,
    limit: u32,
    /// The length of a row, where a tile is a row.
    bound: Option<Value>,
}

/// A scalar that is available at the entry of a function.
#[derive(Clone, Copy)]
enum EntryScalar {
    Parameter(Value),
    /// Computed from program ids and arguments alone: it is rematerialized.
    Rematerialized(Value),
    Length(ParamId),
    Program(u8),
    Programs(u8),
}

/// An access to a row of contiguous elements.
struct RowAccess {
    access: MemAccess,
    start: Polynomial,
    extent: u32,
    bytes: u32,
    writes: bool,
}

impl RowAccess {
    /// Stores cannot access vectors around their elements: they determine the rotation, and of several the widest.
    fn rank(&self) -> (bool, u32) {
        (self.writes, self.bytes)
    }
}

/// Whether where any row starts depends on the iteration of a loop: these are pieces of rows.
fn starts_by_iteration(rows: &[&RowAccess], definitions: &HashMap<Value, &Op>) -> bool {
    let is_iteration = |atom: &Atom| matches!(atom, Atom::Loop(value, _) if !definitions.contains_key(value));
    rows.iter().any(|row| row.start.all_varying().iter().any(is_iteration))
}

/// The terms of a sum by scalars that are known where the function begins; `None` where one is not.
fn terms(func: &Func, definitions: &HashMap<Value, &Op>, sum: &Polynomial) -> Option<Terms> {
    let terms = sum.terms().map(|(atoms, coefficient)| {
        let sources: Option<Vec<EntryScalar>> =
            atoms.iter().map(|&atom| entry_scalar(func, definitions, atom)).collect();
        Some((coefficient, sources?))
    });
    terms.collect()
}

impl RotationPlan {
    /// The plans of the row groups of a function whose tiles have the extent of the leading row; groups get ranges of their own.
    fn all(func: &mut Func, assumptions: &LaunchAssumptions) -> Vec<RotationPlan> {
        let found = rows(func, &Polynomials::analyze(func));
        let Some(leader) = found.iter().max_by_key(|row| row.rank()) else { return vec![] };
        let extent = leader.extent;
        let ranges = ranges_of_extent(func, extent);
        if !is_order_independent(func, extent) {
            return vec![];
        }
        let ranges = row_groups::separate(func, &ranges, extent);
        let axes = AxisInfoMap::analyze(func, assumptions);
        let definitions = func.definitions();
        let rows = rows(func, &Polynomials::analyze(func));
        let plans = ranges.into_iter().filter_map(|range| {
            let is_indexed =
                |row: &&RowAccess| backward_slice(row.access.offset, &definitions).contains(&range);
            let own: Vec<&RowAccess> =
                rows.iter().filter(|row| row.extent == extent).filter(is_indexed).collect();
            RotationPlan::new(func, &axes, &definitions, range, &own)
        });
        plans.collect()
    }

    /// How the rows that a range indexes are rotated.
    fn new(
        func: &Func,
        axes: &AxisInfoMap,
        definitions: &HashMap<Value, &Op>,
        range: Value,
        rows: &[&RowAccess],
    ) -> Option<RotationPlan> {
        let extent = rows.first()?.extent;
        let narrowest = rows.iter().map(|row| row.bytes).min()?;
        let limit = MAX_ACCESS_BYTES / narrowest;
        if limit < 2 || 2 * limit > extent || !extent.is_multiple_of(limit) {
            return None;
        }
        let misaligned = |polynomial: &Polynomial| without_multiples(polynomial, limit, func, axes);
        // Of those with equal rank, one that is not aligned already.
        let is_aligned = |row: &RowAccess| misaligned(&row.start).as_constant() == Some(0);
        let leader = rows.iter().max_by_key(|row| (row.rank(), !is_aligned(row)))?;
        let start = misaligned(&leader.start);
        // An aligned row needs no rotation.
        if start.as_constant() == Some(0) {
            return None;
        }
        let terms = |sum: &Polynomial| terms(func, definitions, sum);
        let first_element = terms(&start)?;
        let shifts = rows.iter().filter_map(|row| {
            let difference = misaligned(&row.start.sub(&leader.start));
            let aligned = difference.as_constant() == Some(0);
            let bounded_ends = match row.access.mask {
                Some(mask) => bounded_ends(func, definitions, range, mask),
                None => Some([false; 2]),
            };
            let interval = bounded_ends.is_some();
            let one_sided = bounded_ends.is_some_and(|ends| ends != [true; 2]) && !row.access.bounded;
            let elements = limit.min(MAX_ACCESS_BYTES / row.bytes);
            let (start, difference) = if aligned {
                (VectorStart::Aligned, None)
            } else {
                (VectorStart::Misaligned(None), terms(&difference))
            };
            let shift = Shift { elements, limit, start, interval, one_sided };
            ((aligned || !row.writes) && shift.elements > 1).then_some((row.access, shift, difference))
        });
        let shifts: Vec<(MemAccess, Shift, Option<Terms>)> = shifts.collect();
        let is_chunked = starts_by_iteration(rows, definitions);
        let bound = leader.access.mask.filter(|_| !is_chunked);
        let bound = bound.and_then(|mask| upper_bound(func, definitions, range, mask));
        Some(RotationPlan { range, start: first_element, shifts, limit, bound })
    }

    fn apply(self, func: &mut Func) {
        let RotationPlan { range, start, mut shifts, limit, bound } = self;
        let definitions: HashMap<Value, Kind> =
            func.definitions().into_iter().map(|(value, op)| (value, op.kind.clone())).collect();
        let mut by = None;
        Rewriter::default().run(func, &mut |_, builder, op| {
            let is_range = op.results.first() == Some(&range);
            builder.append(op);
            if is_range {
                by = Some(remainder(builder, &definitions, &start, limit));
                for (_, shift, difference) in &mut shifts {
                    if let Some(terms) = difference {
                        shift.start =
                            VectorStart::Misaligned(Some(remainder(builder, &definitions, terms, limit)));
                    }
                }
            }
        });
        let by = by.expect("the range is in the function");
        // Before the range is replaced in them.
        Rewriter::default().run(func, &mut |_, builder, mut op| {
            let shift = moved(&op).and_then(|(place, writes)| {
                let (_, shift, _) = *shifts.iter().find(|(known, ..)| known == place)?;
                // A load and a store may be of the same elements, but no vector is stored in parts.
                (shift.start == VectorStart::Aligned || !writes).then_some(shift)
            });
            if let Some(place) = op.kind.operation_mut().access_mut().filter(|_| shift.is_some()) {
                place.shift = shift;
            }
            builder.append(op);
        });
        Rewriter::default().run(func, &mut |rewriter, builder, op| {
            let comes_last = op.results.first() == Some(&by);
            builder.append(op);
            if comes_last {
                let ty = builder.func.ty(range).clone();
                let order = match bound {
                    Some(bound) => {
                        RangeOrder::Cut(row_cut(builder, &definitions, (by, bound), (limit, ty.shape[0])))
                    }
                    None => RangeOrder::Wrapped { by },
                };
                let value = builder.one(Rotate { range, limit, order }, ty);
                rewriter.replace(range, value);
            }
        });
    }
}

fn rows(func: &Func, polynomials: &Polynomials) -> Vec<RowAccess> {
    let mut rows = vec![];
    func.body.walk(&mut |op| {
        let Some((place, writes)) = moved(op) else { return };
        let offset = func.ty(place.offset);
        let Some((axis, extent)) = row_of(&offset.shape).filter(|_| offset.dtype == DType::I32) else {
            return;
        };
        let (coefficient, start) = polynomials.of_access(place).split(Atom::Range { axis, extent });
        let start = without_units(&start);
        let scalars = start.all_varying().into_iter().all(|atom| match atom {
            Atom::Loop(value, _) | Atom::Opaque(value, _) => func.ty(value).is_scalar(),
            Atom::Known(_) | Atom::Program(_) => true,
            Atom::Range { .. } => false,
        });
        if coefficient.as_constant() == Some(1) && scalars {
            let bytes = func.slice(place.param).0.bytes();
            rows.push(RowAccess { access: *place, start, extent, bytes, writes });
        }
    });
    rows
}

/// What a load or a store accesses, if it may be by whole vectors of a row, and whether it stores.
fn moved(op: &Op) -> Option<(&MemAccess, bool)> {
    let (Kind::Load(Load { access, cache, .. }) | Kind::Store(Store { access, cache, .. })) = &op.kind else {
        return None;
    };
    (cache.modifier != CacheModifier::Volatile).then_some((access, matches!(op.kind, Kind::Store(_))))
}

/// The axis of a tile of one row, and its extent.
fn row_of(shape: &Shape) -> Option<(usize, u32)> {
    let mut axes = shape.iter().enumerate().filter(|(_, extent)| **extent > 1);
    let (axis, &extent) = axes.next()?;
    axes.next().is_none().then_some((axis, extent))
}

/// A polynomial without the ranges of extent 1, which are 0.
fn without_units(polynomial: &Polynomial) -> Polynomial {
    let units: Vec<Atom> = polynomial
        .all_varying()
        .into_iter()
        .filter(|atom| matches!(atom, Atom::Range { extent: 1, .. }))
        .collect();
    units.into_iter().fold(polynomial.clone(), |rest, unit| rest.split(unit).1)
}

/// The ranges of an extent, which index all tiles of that extent.
fn ranges_of_extent(func: &Func, extent: u32) -> Vec<Value> {
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
        found.into_iter().map(|(range, _)| range).collect()
    } else {
        vec![]
    }
}

/// Whether no operation depends on the order of the elements of tiles of an extent.
fn is_order_independent(func: &Func, extent: u32) -> bool {
    let mut independent = true;
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
        independent &= involved.iter().all(|&value| row_of(&func.ty(value).shape).is_some());
        independent &= match operation.layout_relation(func, &op.results) {
            LayoutRelation::Lanewise { .. } => operation.is_pointwise() || operation.access().is_some(),
            LayoutRelation::Tied(groups) => {
                involved.iter().all(|value| groups.iter().flatten().any(|own| own == value))
            }
            LayoutRelation::Source => true,
            LayoutRelation::View(Reindex::Broadcast { .. } | Reindex::Expand { .. }) => true,
            LayoutRelation::Reduce { .. } => matches!(op.kind, Kind::Reduce(_)),
            _ => false,
        };
        independent &= operation.effect() != Effect::Write
            || operation.access().is_some()
            || !operation.blocks().is_empty();
    });
    independent
}

/// The terms of a polynomial that are not known to be multiples of a power of two.
fn without_multiples(polynomial: &Polynomial, of: u32, func: &Func, axes: &AxisInfoMap) -> Polynomial {
    let mut rest = Polynomial::default();
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
            rest = rest.add(&term);
        }
    }
    rest
}

/// The scalar that an atom is at the function's entry, if it is available there.
fn entry_scalar(func: &Func, definitions: &HashMap<Value, &Op>, atom: Atom) -> Option<EntryScalar> {
    match atom {
        Atom::Program(axis) => Some(EntryScalar::Program(axis)),
        Atom::Known(Symbol::Grid(axis)) => Some(EntryScalar::Programs(axis)),
        Atom::Known(Symbol::Length(param)) => Some(EntryScalar::Length(ParamId(param))),
        Atom::Known(Symbol::Scalar(position)) => match func.params[position as usize].kind {
            ParamKind::Scalar { value, .. } => Some(EntryScalar::Parameter(value)),
            ParamKind::Slice { .. } => None,
        },
        Atom::Loop(value, Placement::OWN) | Atom::Opaque(value, Placement::OWN) => {
            is_rematerializable(func, definitions, value, MAX_DEPTH)
                .then_some(EntryScalar::Rematerialized(value))
        }
        Atom::Known(Symbol::CeilDiv { .. } | Symbol::Div { .. })
        | Atom::Loop(..)
        | Atom::Opaque(..)
        | Atom::Range { .. } => None,
    }
}

/// The longest chain of operations that is followed.
const MAX_DEPTH: u32 = 8;

fn is_rematerializable(func: &Func, definitions: &HashMap<Value, &Op>, value: Value, depth: u32) -> bool {
    if func.scalar_parameter(value).is_some() {
        return true;
    }
    let Some(op) = definitions.get(&value).filter(|_| depth > 0) else { return false };
    let operation = op.kind.operation();
    // A load may be in bounds only where it is.
    operation.is_speculatable()
        && func.ty(value).is_scalar()
        && operation
            .operands()
            .into_iter()
            .all(|operand| is_rematerializable(func, definitions, operand, depth - 1))
}

/// Which ends, lower and upper, a mask bounds of the one interval of the range that it is true on: comparisons of the range,
/// offset by scalars, with scalars, and uniform conditions. `None` for any other mask.
fn bounded_ends(
    func: &Func,
    definitions: &HashMap<Value, &Op>,
    range: Value,
    mask: Value,
) -> Option<[bool; 2]> {
    let (mut ends, mut seen, mut todo) = ([false; 2], HashSet::new(), vec![mask]);
    while let Some(part) = todo.pop() {
        let part = broadcast_source(definitions, part);
        if !seen.insert(part) || !backward_slice(part, definitions).contains(&range) {
            continue;
        }
        let Kind::Scalar(scalar) = &definitions.get(&part)?.kind else { return None };
        if scalar.op.arith == ArithKind::And {
            todo.extend(&scalar.args);
        } else {
            let own = bounded_end(func, definitions, range, scalar)?;
            ends = [ends[0] || own[0], ends[1] || own[1]];
        }
    }
    Some(ends)
}

/// Which end a comparison bounds of the interval of the range that it is true on.
fn bounded_end(
    func: &Func,
    definitions: &HashMap<Value, &Op>,
    range: Value,
    Scalar { op, args, .. }: &Scalar,
) -> Option<[bool; 2]> {
    let uniform = |value: Value| !backward_slice(value, definitions).contains(&range);
    let kind = |value: Value| definitions.get(&value).map(|op| &op.kind);
    let less = match op.arith {
        ArithKind::Compare(BinaryOp::Lt | BinaryOp::Le) => true,
        ArithKind::Compare(BinaryOp::Gt | BinaryOp::Ge) => false,
        _ => return None,
    };
    let is_range = |value| broadcast_source(definitions, value) == range;
    let is_offset_range = |value: Value| {
        if is_range(value) {
            return true;
        }
        let Some(Kind::Scalar(Scalar { op, args, .. })) = kind(broadcast_source(definitions, value)) else {
            return false;
        };
        op.arith == ArithKind::Add
            && (is_range(args[0]) && uniform(args[1]) || is_range(args[1]) && uniform(args[0]))
    };
    let &[one, other] = &args[..] else { return None };
    let below = match (is_offset_range(one) && uniform(other), is_offset_range(other) && uniform(one)) {
        (true, false) => less,
        (false, true) => !less,
        _ => return None,
    };
    func.ty(one).dtype.is_signed().then_some([!below, below])
}

/// The value that is broadcast or expanded to this one.
fn broadcast_source(definitions: &HashMap<Value, &Op>, mut value: Value) -> Value {
    while let Some(
        Kind::Broadcast(Broadcast { value: source }) | Kind::ExpandDims(ExpandDims { value: source, .. }),
    ) = definitions.get(&value).map(|op| &op.kind)
    {
        value = *source;
    }
    value
}

/// The scalar that a mask bounds the range by, if it can be computed at the function's entry.
fn upper_bound(func: &Func, definitions: &HashMap<Value, &Op>, range: Value, mask: Value) -> Option<Value> {
    let mask = broadcast_source(definitions, mask);
    let Kind::Scalar(Scalar { op, args, .. }) = &definitions.get(&mask)?.kind else { return None };
    if op.arith == ArithKind::And {
        return args.iter().find_map(|&part| upper_bound(func, definitions, range, part));
    }
    let Kind::Splat(bound) = &definitions.get(&broadcast_source(definitions, *args.get(1)?))?.kind else {
        return None;
    };
    let below =
        op.arith == ArithKind::Compare(BinaryOp::Lt) && broadcast_source(definitions, args[0]) == range;
    let bound = bound.value;
    (below && func.ty(bound).dtype == DType::I32 && is_rematerializable(func, definitions, bound, MAX_DEPTH))
        .then_some(bound)
}

/// The cut of a row that starts `by` elements after a multiple of `limit`, and has `bound` elements.
fn row_cut(
    builder: &mut FuncBuilder,
    definitions: &HashMap<Value, Kind>,
    (by, bound): (Value, Value),
    (limit, extent): (u32, u32),
) -> RowCut {
    let bound = rematerialize(builder, definitions, bound);
    let limit = i128::from(limit);
    let [zero, low, most, whole] =
        [0, limit - 1, i128::from(extent) - 2 * limit, -limit].map(|value| constant(builder, value));
    let head = arithmetic(builder, "wrapping_sub", [zero, by]);
    let head = arithmetic(builder, "and", [head, low]);
    let elements = arithmetic(builder, "maximum", [bound, zero]);
    let tail = arithmetic(builder, "wrapping_sub", [elements, head]);
    let tail = arithmetic(builder, "maximum", [tail, zero]);
    let tail = arithmetic(builder, "minimum", [tail, most]);
    RowCut { head, whole: arithmetic(builder, "and", [tail, whole]), bound }
}

/// A row of the table on `i32` scalars.
fn arithmetic(builder: &mut FuncBuilder, name: &str, args: [Value; 2]) -> Value {
    let scalar = Scalar::named(name, args.to_vec());
    builder.one(scalar, Type::scalar(DType::I32))
}

fn constant(builder: &mut FuncBuilder, value: i128) -> Value {
    builder.one(Constant { value: ConstantValue::Int(value) }, Type::scalar(DType::I32))
}

/// The remainder of a polynomial by a power of two. Only the low bits matter, so that it may wrap.
fn remainder(
    builder: &mut FuncBuilder,
    definitions: &HashMap<Value, Kind>,
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
                EntryScalar::Rematerialized(value) => {
                    let value = rematerialize(builder, definitions, value);
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
    if *builder.func.ty(value) == ty { value } else { builder.one(Cast::new(value), ty) }
}

/// A scalar, rematerialized at the function's entry.
fn rematerialize(builder: &mut FuncBuilder, definitions: &HashMap<Value, Kind>, value: Value) -> Value {
    let Some(mut kind) = definitions.get(&value).cloned() else { return value };
    let operands = kind.operation().operands();
    let copies: HashMap<Value, Value> =
        operands.into_iter().map(|operand| (operand, rematerialize(builder, definitions, operand))).collect();
    kind.operation_mut().map(&mut |operand| copies.get(&operand).copied().unwrap_or(operand));
    let ty = builder.func.ty(value).clone();
    builder.one(kind, ty)
}
