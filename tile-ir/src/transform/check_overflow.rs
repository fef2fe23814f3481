//! Integers that do not fit their type, reported by debug builds.
//!
//! The law of integers: an offset and both operands of a comparison are exact ([`crate::transform::legalize_index`]); anywhere else an integer has
//! the bits of its type, and what does not fit wraps. A release build wraps in silence, as Rust's does. In a debug build
//! this pass adds an assertion for each `+`, `-`, `*` and sum that may leave its type.
//!
//! An element counts when its value is used, not when it is computed: a tile's elements after the end of a row are masked
//! off later, and may have any value. So an overflow propagates with its element, through arithmetic, selects and moves, and is
//! asserted where the element is stored, reduced, carried by a loop, decides a branch or is part of an address.
//!
//! Takes tile IR before index legalization; returns it with assertions that only a debug build has.

use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::ir::axis_info::AxisInfo;
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, FuncBuilder, Op, ScopedMap, Shape, Type, Value, dce};
use crate::ops::scalar::{self, ArithKind, Scalar, TypeRule};
use crate::ops::{
    Arange, Assert, Bitcast, Broadcast, Cast, Combination, Constant, ConstantValue, Effect, ExpandDims, Kind,
    MemAccess, Reduce, Scan, Site, Splat, ViewTile,
};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

/// The most origins that an element's overflows distinguish; later ones count as the first.
const MAX_ORIGINS: usize = 4;

/// Adds the assertions.
pub fn check_overflow(func: &mut Func) {
    let axes = AxisInfoMap::analyze(func, &LaunchAssumptions::default());
    let values = (0..func.value_count()).map(|index| func.value_at(index));
    let mut pass = OverflowPass {
        ranges: values.map(|value| (value, axes.get(func, value).range)).collect(),
        origins: vec![],
        typed: ScopedMap::default(),
        exact: ScopedMap::default(),
    };
    let body = std::mem::take(&mut func.body);
    let mut builder = FuncBuilder::new(func);
    for op in body.ops {
        pass.op(&mut builder, op);
    }
    builder.finish();
    dce(func);
}

/// The operation that overflows.
#[derive(Clone, Copy)]
struct OverflowOrigin {
    verb: &'static str,
    dtype: DType,
    loc: Loc,
}

/// The elements of a value that depend on an overflow: a tile or scalar of `bool` for each operation that may be the cause.
#[derive(Clone, Copy, Default)]
struct Overflows {
    by_origin: [Option<(usize, Value)>; MAX_ORIGINS],
}

impl Overflows {
    fn iter(&self) -> impl Iterator<Item = (usize, Value)> + use<> {
        self.by_origin.into_iter().flatten()
    }

    fn is_empty(&self) -> bool {
        self.by_origin[0].is_none()
    }
}

struct OverflowPass {
    ranges: HashMap<Value, (i128, i128)>,
    origins: Vec<OverflowOrigin>,
    /// Of values that wrap in their types.
    typed: ScopedMap<Overflows>,
    /// Of values in offsets and comparisons, where arithmetic of `i32` is exact.
    exact: ScopedMap<Overflows>,
}

impl OverflowPass {
    fn op(&mut self, builder: &mut FuncBuilder, mut op: Op) {
        builder.loc = op.loc;
        self.used(builder, &op);
        // Combine regions run many times, in no order that a report could name.
        if !op.kind.operation().isolated() {
            for block in op.kind.operation_mut().blocks_mut() {
                let taken = std::mem::take(block);
                *block = self.block(builder, taken);
            }
        }
        builder.loc = op.loc;
        let (kind, results) = (op.kind.clone(), op.results.clone());
        builder.append(op);
        if let [result] = results[..] {
            self.define(builder, &kind, result);
        }
    }

    /// A block with what it yields asserted.
    fn block(&mut self, builder: &mut FuncBuilder, block: Block) -> Block {
        builder.begin_with(block.args);
        for op in block.ops {
            self.op(builder, op);
        }
        for &value in &block.yields {
            let overflows = self.typed(builder, value);
            self.assert(builder, overflows, None);
        }
        builder.end(block.yields)
    }

    // ---- elements that depend on an overflow

    fn typed(&self, builder: &FuncBuilder, value: Value) -> Overflows {
        self.typed.get(builder, value).unwrap_or_default()
    }

    fn exact(&self, builder: &FuncBuilder, value: Value) -> Overflows {
        self.exact.get(builder, value).unwrap_or_default()
    }

    fn define(&mut self, builder: &mut FuncBuilder, kind: &Kind, result: Value) {
        let typed = self.of_typed(builder, kind, result);
        let exact = match self.of_exact(builder, kind, result) {
            Some(exact) => exact,
            None => typed,
        };
        if !typed.is_empty() {
            self.typed.insert(builder, result, typed);
        }
        if !exact.is_empty() {
            self.exact.insert(builder, result, exact);
        }
    }

    fn of_typed(&mut self, builder: &mut FuncBuilder, kind: &Kind, result: Value) -> Overflows {
        let ty = builder.func.ty(result).clone();
        match kind {
            Kind::Scalar(scalar) => match (scalar.op.arith, &scalar.args[..]) {
                (ArithKind::Compare(_), &[a, b]) if is_index(builder.func.ty(a)) => {
                    let operands = [self.exact(builder, a), self.exact(builder, b)];
                    self.joined(builder, &operands)
                }
                (ArithKind::Select, &[condition, a, b]) => self.selected(builder, condition, [a, b]),
                (ArithKind::And, &[a, b]) if ty.dtype == DType::Bool => {
                    self.short_circuit(builder, [a, b], true)
                }
                (ArithKind::Or, &[a, b]) if ty.dtype == DType::Bool => {
                    self.short_circuit(builder, [a, b], false)
                }
                _ => {
                    let mut all = vec![];
                    if let Some(own) = self.of_arithmetic(builder, scalar, result) {
                        all.push(own);
                    }
                    all.extend(scalar.args.iter().map(|&arg| self.typed(builder, arg)));
                    self.joined(builder, &all)
                }
            },
            Kind::Reduce(reduce) => self.of_sum(builder, &reduce.combination, result, &mut |combination| {
                Reduce { combination, axes: reduce.axes.clone() }.into()
            }),
            Kind::Scan(scan) => self.of_sum(builder, &scan.combination, result, &mut |combination| {
                Scan { combination, ..scan.clone() }.into()
            }),
            Kind::Cast(Cast { value, exact: true }) => self.exact(builder, *value),
            kind => self.passed_on(builder, kind, result, OverflowPass::typed),
        }
    }

    /// Of arithmetic that is exact in an offset; `None` where it wraps there too.
    fn of_exact(&mut self, builder: &mut FuncBuilder, kind: &Kind, result: Value) -> Option<Overflows> {
        let ty = builder.func.ty(result).clone();
        if !is_index(&ty) {
            return None;
        }
        if let Kind::Scalar(scalar) = kind
            && scalar.is_exact_in_index(|value| self.constant(value))
        {
            let mut all = vec![];
            if ty.dtype == DType::I64
                && let Some(own) = self.of_arithmetic(builder, scalar, result)
            {
                all.push(own);
            }
            all.extend(scalar.args.iter().map(|&arg| self.exact(builder, arg)));
            return Some(self.joined(builder, &all));
        }
        if let Kind::Cast(Cast { value, exact }) = kind
            && (*exact || builder.func.ty(*value).dtype == DType::I32)
        {
            return Some(self.exact(builder, *value));
        }
        let moves = matches!(kind, Kind::Splat(_)) || kind.operation().axis_map(builder.func).is_some();
        moves.then(|| self.passed_on(builder, kind, result, OverflowPass::exact))
    }

    /// The constant of a range with one value.
    fn constant(&self, value: Value) -> Option<i128> {
        self.ranges.get(&value).filter(|(low, high)| low == high).map(|&(low, _)| low)
    }

    /// Of an operation that moves or converts elements.
    fn passed_on(
        &mut self,
        builder: &mut FuncBuilder,
        kind: &Kind,
        result: Value,
        of: fn(&OverflowPass, &FuncBuilder, Value) -> Overflows,
    ) -> Overflows {
        let operation = kind.operation();
        if operation.effect() != Effect::Pure || !operation.blocks().is_empty() {
            return Overflows::default();
        }
        let ty = builder.func.ty(result).with(DType::Bool);
        let operands = operation.operands();
        match operands[..] {
            [operand] if moves(builder.func, kind, result) => {
                let mut moved = of(self, builder, operand);
                for (_, tile) in moved.by_origin.iter_mut().flatten() {
                    let mut kind = kind.clone();
                    kind.operation_mut().map(&mut |_| *tile);
                    *tile = builder.one(kind, ty.clone());
                }
                moved
            }
            _ if operation.is_pointwise() => {
                let all: Vec<Overflows> =
                    operands.iter().map(|&operand| of(self, builder, operand)).collect();
                self.joined(builder, &all)
            }
            _ => Overflows::default(),
        }
    }

    fn joined(&mut self, builder: &mut FuncBuilder, all: &[Overflows]) -> Overflows {
        let mut joined = Overflows::default();
        for (origin, elements) in all.iter().flat_map(Overflows::iter) {
            let same =
                joined.by_origin.iter().position(|known| known.is_none_or(|(known, _)| known == origin));
            let slot = &mut joined.by_origin[same.unwrap_or(0)];
            *slot = Some(match *slot {
                Some((origin, known)) if known != elements => {
                    (origin, row(builder, "or", &[known, elements]))
                }
                Some(known) => known,
                None => (origin, elements),
            });
        }
        joined
    }

    /// Of a select: an element of the operand that the condition chooses.
    fn selected(&mut self, builder: &mut FuncBuilder, condition: Value, arms: [Value; 2]) -> Overflows {
        let [a, b] = arms.map(|arm| self.typed(builder, arm));
        let unless = (!b.is_empty()).then(|| row(builder, "not", &[condition]));
        let mut taken = |overflows: Overflows, when: Option<Value>| {
            let mut overflows = overflows;
            for (_, elements) in overflows.by_origin.iter_mut().flatten() {
                *elements = row(builder, "and", &[*elements, when.expect("there is one of this side")]);
            }
            overflows
        };
        let all = [taken(a, Some(condition)), taken(b, unless), self.typed(builder, condition)];
        self.joined(builder, &all)
    }

    /// Short circuit: a conjunction is false, and a disjunction true, whatever the other operand is.
    fn short_circuit(
        &mut self,
        builder: &mut FuncBuilder,
        operands: [Value; 2],
        conjunction: bool,
    ) -> Overflows {
        let mut all = vec![];
        for (operand, other) in [(operands[0], operands[1]), (operands[1], operands[0])] {
            let mut own = self.typed(builder, operand);
            // The other operand decides if it depends on no overflow itself.
            let decided = self.typed(builder, other).is_empty();
            for (_, elements) in own.by_origin.iter_mut().flatten().filter(|_| decided) {
                let undecided = if conjunction { other } else { row(builder, "not", &[other]) };
                *elements = row(builder, "and", &[*elements, undecided]);
            }
            all.push(own);
        }
        self.joined(builder, &all)
    }

    // ---- operations that overflow

    fn range(&self, func: &Func, value: Value) -> (i128, i128) {
        self.ranges.get(&value).copied().unwrap_or_else(|| func.ty(value).dtype.range())
    }

    fn origin(&mut self, verb: &'static str, dtype: DType, loc: Loc) -> usize {
        let same =
            |origin: &OverflowOrigin| origin.verb == verb && origin.dtype == dtype && origin.loc == loc;
        if let Some(known) = self.origins.iter().position(same) {
            return known;
        }
        self.origins.push(OverflowOrigin { verb, dtype, loc });
        self.origins.len() - 1
    }

    /// Of `+`, `-` and `*` alone, if their operands may leave the type.
    fn of_arithmetic(
        &mut self,
        builder: &mut FuncBuilder,
        scalar: &Scalar,
        result: Value,
    ) -> Option<Overflows> {
        let ty = builder.func.ty(result).clone();
        let verb = match scalar.op.arith {
            ArithKind::Add => "add",
            ArithKind::Sub => "subtract",
            ArithKind::Mul => "multiply",
            ArithKind::Neg => "negate",
            _ => return None,
        };
        if !ty.dtype.is_integer() {
            return None;
        }
        let unknown = |&arg: &Value| AxisInfo::unknown(&Type::scalar(builder.func.ty(arg).dtype));
        let info = |arg: &Value| AxisInfo { range: self.range(builder.func, *arg), ..unknown(arg) };
        let infos: Vec<AxisInfo> = scalar.args.iter().map(info).collect();
        let (low, high) = scalar.op.arith.axis_info(&infos, &Type::scalar(ty.dtype)).range;
        let (smallest, largest) = ty.dtype.range();
        if low >= smallest && high <= largest {
            return None;
        }
        let elements = match (scalar.op.arith, &scalar.args[..]) {
            (ArithKind::Neg, &[a]) => {
                let a = stored(builder, a);
                let least = constant(builder, smallest, builder.func.ty(a).clone());
                row(builder, "eq", &[a, least])
            }
            (arith, &[a, b]) if ty.dtype.bytes() == 8 => leaves_64_bits(builder, arith, [a, b, result]),
            (_, args) => {
                let args: Vec<Value> = args.iter().map(|&arg| stored(builder, arg)).collect();
                let args: Vec<Value> = args.into_iter().map(|arg| widened(builder, arg)).collect();
                let exact = row(builder, scalar.op.name, &args);
                differs(builder, exact, result)
            }
        };
        let origin = self.origin(verb, ty.dtype, builder.loc);
        let mut own = Overflows::default();
        own.by_origin[0] = Some((origin, elements));
        Some(own)
    }

    /// Of a reduction or scan by addition: its result in 64 bits differs.
    fn of_sum(
        &mut self,
        builder: &mut FuncBuilder,
        combination: &Combination,
        result: Value,
        remade: &mut dyn FnMut(Combination) -> Kind,
    ) -> Overflows {
        let ty = builder.func.ty(result).clone();
        let is_sum = combination.arith() == Some(ArithKind::Add);
        let [input] = combination.inputs[..] else { return Overflows::default() };
        let elements = builder.func.ty(input).shape.elements() as i128;
        let (low, high) = self.range(builder.func, input);
        let (smallest, largest) = ty.dtype.range();
        let fits = low.saturating_mul(elements) >= smallest && high.saturating_mul(elements) <= largest;
        if !is_sum || !ty.dtype.is_integer() || ty.dtype.bytes() == 8 || fits {
            return Overflows::default();
        }
        let wide = widened(builder, input);
        let args = builder.begin(vec![Type::scalar(DType::I64); 2]);
        let sum = row(builder, "add", &args);
        let block = builder.end(vec![sum]);
        let kind = remade(Combination { inputs: vec![wide], block });
        let exact = builder.one(kind, ty.with(DType::I64));
        let elements = differs(builder, exact, result);
        let origin = self.origin("sum", ty.dtype, builder.loc);
        let mut own = Overflows::default();
        own.by_origin[0] = Some((origin, elements));
        own
    }

    // ---- where elements are used

    fn used(&mut self, builder: &mut FuncBuilder, op: &Op) {
        let operation = op.kind.operation();
        if let Some(access) = operation.access() {
            return self.used_in_memory(builder, op, *access);
        }
        if let Some(tile) = operation.view_tile().cloned() {
            return self.used_in_view(builder, op, &tile);
        }
        let passes_on = |&result: &Value| {
            operation.effect() == Effect::Pure
                && operation.blocks().is_empty()
                && (operation.is_pointwise() || moves(builder.func, &op.kind, result))
        };
        if matches!(op.results[..], [result] if passes_on(&result)) {
            return;
        }
        for operand in operation.operands() {
            let overflows = self.typed(builder, operand);
            self.assert(builder, overflows, None);
        }
    }

    fn used_in_memory(&mut self, builder: &mut FuncBuilder, op: &Op, access: MemAccess) {
        let offset = self.exact(builder, access.offset);
        self.assert(builder, offset, access.mask);
        if let Some(mask) = access.mask {
            let overflows = self.typed(builder, mask);
            self.assert(builder, overflows, None);
        }
        for value in op.kind.operation().operands() {
            if value != access.offset && Some(value) != access.mask {
                let overflows = self.typed(builder, value);
                self.assert(builder, overflows, access.mask);
            }
        }
    }

    /// Elements outside of a view's shape are dropped.
    fn used_in_view(&mut self, builder: &mut FuncBuilder, op: &Op, tile: &ViewTile) {
        for &offset in &tile.offsets {
            let overflows = self.exact(builder, offset);
            self.assert(builder, overflows, None);
        }
        let values = op.kind.operation().operands().into_iter().filter(|value| !tile.offsets.contains(value));
        let overflows: Vec<Overflows> = values.map(|value| self.typed(builder, value)).collect();
        if overflows.iter().all(Overflows::is_empty) {
            return;
        }
        let inside = inside(builder, tile);
        for overflows in overflows {
            self.assert(builder, overflows, Some(inside));
        }
    }

    fn assert(&mut self, builder: &mut FuncBuilder, overflows: Overflows, mask: Option<Value>) {
        let loc = builder.loc;
        for (origin, elements) in overflows.iter() {
            let OverflowOrigin { verb, dtype, loc } = self.origins[origin];
            builder.loc = loc;
            let shape = builder.func.ty(elements).shape.clone();
            let mask = mask.filter(|&mask| builder.func.ty(mask).shape == shape);
            let counted = match mask {
                Some(mask) => row(builder, "and", &[elements, mask]),
                None => elements,
            };
            let holds = row(builder, "not", &[counted]);
            let site = builder.func.sites.len() as u32;
            builder.func.sites.push(Site::Overflow { verb, dtype, shape });
            builder.push(Assert { holds, site }, vec![]);
        }
        builder.loc = loc;
    }
}

/// The types of offsets.
fn is_index(ty: &Type) -> bool {
    matches!(ty.dtype, DType::I32 | DType::I64)
}

/// Whether an operation does nothing but move the elements of its one operand.
fn moves(func: &Func, kind: &Kind, result: Value) -> bool {
    let operation = kind.operation();
    operation.operands().len() == 1
        && (matches!(kind, Kind::Splat(_))
            || operation.axis_map(func).is_some()
            || matches!(operation.layout_relation(func, &[result]), LayoutRelation::View(_)))
}

/// A row of the lanewise table, applied.
fn row(builder: &mut FuncBuilder, name: &str, args: &[Value]) -> Value {
    let op = scalar::row(name).expect("a row of the table");
    let operand = builder.func.ty(args[0]).clone();
    let ty = if op.rule == TypeRule::Compare { operand.with(DType::Bool) } else { operand };
    builder.one(Scalar::new(op, args.to_vec()), ty)
}

/// An integer constant, as a tile of a type.
fn constant(builder: &mut FuncBuilder, value: i128, ty: Type) -> Value {
    let scalar = builder.one(Constant { value: ConstantValue::Int(value) }, Type::scalar(ty.dtype));
    if ty.is_scalar() { scalar } else { builder.one(Splat { value: scalar }, ty) }
}

/// In 64 bits: a sum, difference or product of two shorter integers modulo 2^64, which differs from the one that fits.
fn widened(builder: &mut FuncBuilder, value: Value) -> Value {
    let ty = builder.func.ty(value).clone();
    if ty.dtype == DType::I64 { value } else { builder.one(Cast::new(value), ty.with(DType::I64)) }
}

/// The wrapped value that a store would write: a comparison would use the exact one.
fn stored(builder: &mut FuncBuilder, value: Value) -> Value {
    let ty = builder.func.ty(value).clone();
    if is_index(&ty) { builder.one(Bitcast { value }, ty) } else { value }
}

fn differs(builder: &mut FuncBuilder, exact: Value, result: Value) -> Value {
    let wrapped = stored(builder, result);
    let wrapped = widened(builder, wrapped);
    row(builder, "ne", &[exact, wrapped])
}

/// Where a sum, difference or product of 64-bit integers leaves them.
fn leaves_64_bits(builder: &mut FuncBuilder, arith: ArithKind, [a, b, result]: [Value; 3]) -> Value {
    let ty = builder.func.ty(result).clone();
    let [a, b, result] = [a, b, result].map(|value| stored(builder, value));
    let zero = constant(builder, 0, ty.clone());
    let signs = |builder: &mut FuncBuilder, [x, y, z, w]: [Value; 4]| {
        let (first, second) = (row(builder, "xor", &[x, y]), row(builder, "xor", &[z, w]));
        let both = row(builder, "and", &[first, second]);
        row(builder, "lt", &[both, zero])
    };
    match (arith, ty.dtype.is_signed()) {
        (ArithKind::Add, true) => signs(builder, [a, result, b, result]),
        (ArithKind::Add, false) => row(builder, "lt", &[result, a]),
        (ArithKind::Sub, true) => signs(builder, [a, b, a, result]),
        (ArithKind::Sub, false) => row(builder, "lt", &[a, b]),
        (_, signed) => {
            // The product divided by `a` is `b` again, but for -1 times the smallest, which wraps both ways.
            let divides = row(builder, "ne", &[a, zero]);
            let quotient = row(builder, "div", &[result, a]);
            let other = row(builder, "ne", &[quotient, b]);
            let other = if signed {
                let (minus_one, least) =
                    (constant(builder, -1, ty.clone()), constant(builder, ty.dtype.range().0, ty));
                let negates = row(builder, "eq", &[a, minus_one]);
                let smallest = row(builder, "eq", &[b, least]);
                let wraps = row(builder, "and", &[negates, smallest]);
                row(builder, "or", &[other, wraps])
            } else {
                other
            };
            row(builder, "and", &[divides, other])
        }
    }
}

/// Which elements of a tile are inside its view.
fn inside(builder: &mut FuncBuilder, tile: &ViewTile) -> Value {
    let extents = tile.extents.clone();
    let shape = builder.func.view(tile.memory).expect("a view tile has a view").shape.clone();
    let mut inside = None;
    for (axis, (&offset, &length)) in tile.offsets.iter().zip(&shape).enumerate() {
        let extent = extents[axis];
        let row_type = Type::tile(DType::I64, Shape::new([extent]));
        let steps = builder.one(Arange { start: 0 }, row_type.with(DType::I32));
        let steps = widened(builder, steps);
        let first = widened(builder, offset);
        let [first, length] = [first, length].map(|value| builder.one(Splat { value }, row_type.clone()));
        let index = row(builder, "add", &[first, steps]);
        let zero = constant(builder, 0, row_type);
        let (above, below) = (row(builder, "ge", &[index, zero]), row(builder, "lt", &[index, length]));
        let along = row(builder, "and", &[above, below]);
        let along = over_axis(builder, along, axis, &extents);
        inside = Some(match inside {
            Some(known) => row(builder, "and", &[known, along]),
            None => along,
        });
    }
    inside.expect("a view has an axis")
}

/// A row broadcast to a tile along one axis.
fn over_axis(builder: &mut FuncBuilder, row: Value, axis: usize, extents: &Shape) -> Value {
    let (mut value, mut ty) = (row, builder.func.ty(row).clone());
    for other in (0..extents.rank()).filter(|&other| other != axis) {
        ty = Type::tile(ty.dtype, ty.shape.with(other, 1));
        value = builder.one(ExpandDims { value, axis: other }, ty.clone());
    }
    if ty.shape == *extents {
        return value;
    }
    builder.one(Broadcast { value }, Type::tile(ty.dtype, extents.clone()))
}
