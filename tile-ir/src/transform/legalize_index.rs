//! Index legalization: index arithmetic that cannot overflow.
//!
//! The language guarantees that an offset and both operands of a comparison are exact: `program_id(0) * BLOCK + arange(..)`
//! addresses and compares right past 2^31, wherever its values come from. This pass implements that at little cost. It splits
//! an index into a uniform part, which is computed in 64 bits, and a part that varies by element. The varying part stays in
//! 32 bits where it fits, by its range or by a guard, and is widened where it may not. The pass follows `+`, `-`, `*` and left
//! shifts by constants of `i32`, through conversions to `i64` and moves of elements, and those of `u64`, in 128 bits
//! ([`unsigned`]). Any other operation is a leaf, which wraps ([`crate::transform::check_overflow`]). Offsets that loops carry and
//! branches give come from exact conversions to `i64`, which are recomputed in 64 bits. Accesses of view tiles become accesses
//! of elements ([`lower_view_access`]).

mod compare;
mod lower_view_access;
mod unsigned;
mod widths;

use std::cell::RefCell;
use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::bounds::{BoundsDecision, BoundsDecisions};
use crate::analysis::polynomial::Polynomials;
use crate::frontend::syntax::{BinaryOp, UnaryOp};
use crate::ir;
use crate::ir::guard;
use crate::ir::guard::Guard;
use crate::ir::{Func, FuncBuilder, Op, Rewriter, ScopedMap, Shape, Type, Value};
use crate::ops::scalar::{self, ArithKind, Scalar};
use crate::ops::{Cast, Constant, ConstantValue, Kind, MemAccess, Splat};
use crate::support::dtype::DType;

/// What the accesses of a specialization rely on to stay inside their slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundsPolicy {
    /// Guards that the launcher checks.
    Guarded,
    /// Nothing: every access is masked by a comparison with the length.
    Masked,
    /// The caller's word that every access is inside (`unchecked`).
    Unchecked,
}

/// Legalizes every offset and index comparison of `func`; returns the guards that the result relies on.
pub fn legalize_index(func: &mut Func, policy: BoundsPolicy) -> Vec<Guard> {
    let polynomials = Polynomials::analyze(func);
    let decisions = BoundsDecisions::analyze(func, &polynomials);
    let assumptions = if policy == BoundsPolicy::Guarded {
        LaunchAssumptions::of(func)
    } else {
        LaunchAssumptions::default()
    };
    let ranges = AxisInfoMap::analyze(func, &assumptions);
    let definitions = func.definitions();
    let view_scalars = func.views.iter().flat_map(|view| view.shape.iter().chain(&view.strides));
    let ranges: HashMap<Value, (i128, i128)> =
        definitions.keys().chain(view_scalars).map(|&value| (value, ranges.get(func, value).range)).collect();
    let mut legalizer = IndexLegalizer {
        definitions: definitions.into_iter().map(|(value, op)| (value, op.kind.clone())).collect(),
        polynomials,
        decisions,
        ranges,
        policy,
        guards: vec![],
        replaced: HashMap::new(),
        doubles: HashMap::new(),
        parts: ScopedMap::default(),
        wide: ScopedMap::default(),
        widened: ScopedMap::default(),
        exact_ranges: RefCell::default(),
        narrow: RefCell::default(),
    };
    Rewriter::default().run(func, &mut |rewriter, builder, op| legalizer.op(rewriter, builder, op));
    ir::cse_and_dce(func);
    guard::strongest(legalizer.guards)
}

struct IndexLegalizer {
    definitions: HashMap<Value, Kind>,
    polynomials: Polynomials,
    decisions: BoundsDecisions,
    ranges: HashMap<Value, (i128, i128)>,
    policy: BoundsPolicy,
    guards: Vec<Guard>,
    /// The original of each exact comparison; decisions are keyed by originals.
    replaced: HashMap<Value, Value>,
    /// The numbers that `i64` values stand for, of those that come from a `u64`.
    doubles: HashMap<Value, Double>,
    // Memo tables: what was built for a value, and what is known of it.
    parts: ScopedMap<IndexParts>,
    wide: ScopedMap<Value>,
    widened: ScopedMap<Value>,
    exact_ranges: RefCell<HashMap<Value, (i128, i128)>>,
    narrow: RefCell<HashMap<Value, bool>>,
}

/// An index as `uniform + varying`; a missing part is 0.
#[derive(Clone, Copy)]
struct IndexParts {
    /// An `i64` scalar.
    uniform: Option<Value>,
    /// A tile of `i32` or `i64`.
    varying: Option<Value>,
}

/// A number in two's complement, as two `u64` of one shape.
#[derive(Clone, Copy)]
struct Double {
    low: Value,
    /// `None` for 0.
    high: Option<Value>,
}

const I32: (i128, i128) = (i32::MIN as i128, i32::MAX as i128);

fn within(range: (i128, i128), limit: (i128, i128)) -> bool {
    range.0 >= limit.0 && range.1 <= limit.1
}

impl IndexLegalizer {
    fn op(&mut self, rewriter: &mut Rewriter, builder: &mut FuncBuilder, mut op: Op) {
        if let Some(tile) = op.kind.operation().view_tile().cloned() {
            let access = self.lower_view_tile(builder, &tile);
            op.kind = op.kind.operation().lower_to_access(access).unwrap_or(op.kind);
        } else if let Some(access) = op.kind.operation_mut().access_mut() {
            *access = self.access(builder, *access);
        }
        for tile in op.kind.operation_mut().view_tiles_mut() {
            for offset in &mut tile.offsets {
                *offset = self.tile_offset(builder, *offset);
            }
        }
        if let Kind::Cast(Cast { value, exact: true }) = op.kind {
            let is_scalar = builder.func.ty(value).is_scalar();
            let wide = if is_scalar { self.wide(builder, value) } else { self.widened(builder, value) };
            rewriter.replace(op.results[0], wide);
            return;
        }
        if let Kind::Scalar(scalar) = &op.kind
            && let ArithKind::Compare(compare) = scalar.op.arith
            && let Some(result) = self.comparison(builder, compare, scalar)
        {
            rewriter.replace(op.results[0], result);
            self.replaced.insert(result, op.results[0]);
            return;
        }
        builder.append(op);
    }

    /// The access with its offset legalized and its bounds decided.
    fn access(&mut self, builder: &mut FuncBuilder, access: MemAccess) -> MemAccess {
        let mask = access.mask.map(|mask| self.replaced.get(&mask).copied().unwrap_or(mask));
        let decision = self.decisions.get(&MemAccess { mask, ..access });
        let (bounded, known) = match (self.policy, decision) {
            (BoundsPolicy::Unchecked, _) => (false, vec![]),
            (BoundsPolicy::Masked, BoundsDecision::Guarded(bounds)) => (!bounds.guards.is_empty(), vec![]),
            (BoundsPolicy::Guarded, BoundsDecision::Guarded(bounds)) => {
                self.rely_on(bounds.guards);
                (false, bounds.known)
            }
            (_, BoundsDecision::Masked) => (true, vec![]),
        };
        let shape = builder.func.ty(access.offset).shape.clone();
        let parts = self.parts(builder, access.offset);
        let parts = self.joined(builder, parts);
        // What is known of arithmetic of `u64` is known of its bits.
        let is_computed =
            [parts.uniform, parts.varying].into_iter().flatten().any(|part| self.is_double(part));
        let bounded = bounded || is_computed && self.policy != BoundsPolicy::Unchecked;
        // What holds of accessed elements says nothing of those that a comparison with the length has to find.
        let known = if bounded { vec![] } else { known };
        let offset = match parts.varying {
            Some(varying) => self.fit(builder, varying, &known),
            None => {
                let zero = self.constant(builder, DType::I32, 0);
                self.splat(builder, zero, &shape)
            }
        };
        MemAccess { base: parts.uniform, offset, bounded, ..access }
    }

    fn rely_on(&mut self, guards: Vec<Guard>) {
        for guard in guards {
            if !self.guards.contains(&guard) {
                self.guards.push(guard);
            }
        }
    }

    // ---- splitting

    fn parts(&mut self, builder: &mut FuncBuilder, value: Value) -> IndexParts {
        if let Some(known) = self.parts.get(builder, value) {
            return known;
        }
        let parts = self.split(builder, value);
        self.parts.insert(builder, value, parts);
        parts
    }

    fn split(&mut self, builder: &mut FuncBuilder, value: Value) -> IndexParts {
        let ty = builder.func.ty(value).clone();
        if ty.is_scalar() {
            return IndexParts { uniform: Some(self.wide(builder, value)), varying: None };
        }
        let leaf = IndexParts { uniform: None, varying: Some(value) };
        if !is_followed(&ty) {
            // An index of another width is a leaf, widened to 64 bits.
            let wide = self.widen(builder, value);
            return IndexParts { varying: Some(wide), ..leaf };
        }
        let parts = self.split_tile(builder, value, &ty);
        parts.unwrap_or_else(|| {
            let own = if is_index(&ty) { value } else { self.widen(builder, value) };
            IndexParts { varying: Some(own), ..leaf }
        })
    }

    /// The parts of a tile; `None` for a leaf.
    fn split_tile(&mut self, builder: &mut FuncBuilder, value: Value, ty: &Type) -> Option<IndexParts> {
        match self.definitions.get(&value).cloned() {
            Some(Kind::Splat(Splat { value })) => {
                Some(IndexParts { uniform: Some(self.wide(builder, value)), varying: None })
            }
            Some(Kind::Scalar(scalar)) => self.arithmetic(builder, &scalar, ty),
            // Widening: the parts of the narrower index are exact already.
            Some(Kind::Cast(Cast { value: inner, .. })) if self.keeps_number(builder.func, inner, ty) => {
                Some(self.parts(builder, inner))
            }
            Some(mut kind) if kind.operation().axis_map(builder.func).is_some() => {
                let [inner] = kind.operation().operands()[..] else { return None };
                let parts = self.parts(builder, inner);
                let varying = parts.varying.map(|inner| {
                    let dtype = builder.func.ty(inner).dtype;
                    kind.operation_mut().map(&mut |_| inner);
                    self.make(builder, kind.clone(), ty.with(dtype))
                });
                Some(IndexParts { varying, ..parts })
            }
            _ => None,
        }
    }

    fn arithmetic(&mut self, builder: &mut FuncBuilder, scalar: &Scalar, ty: &Type) -> Option<IndexParts> {
        match scalar.op.arith {
            ArithKind::Add | ArithKind::Sub => {
                let (a, b) = (self.parts(builder, scalar.args[0]), self.parts(builder, scalar.args[1]));
                let uniform = self.combine(builder, scalar, a.uniform, b.uniform);
                let varying = self.combine(builder, scalar, a.varying, b.varying);
                Some(IndexParts { uniform, varying })
            }
            ArithKind::Mul => {
                let (a, b) = (self.parts(builder, scalar.args[0]), self.parts(builder, scalar.args[1]));
                // (u + v) * s = u * s + v * s for a uniform s; a product of two varying parts is a leaf.
                let (tile, multiplier, original) = match (a.varying, b.varying) {
                    (_, None) => (a, b.uniform?, scalar.args[1]),
                    (None, _) => (b, a.uniform?, scalar.args[0]),
                    (Some(_), Some(_)) => return None,
                };
                let mul = scalar::binary(BinaryOp::Mul);
                let uniform = tile.uniform.map(|u| self.exact(builder, mul, vec![u, multiplier]));
                let varying = tile.varying.map(|v| {
                    let dtype = builder.func.ty(v).dtype;
                    // The multiplier in the tile's own width: it has that width, or the tile is 64 bits wide.
                    let own = builder.func.ty(original).dtype == dtype;
                    let multiplier = if own { original } else { self.splat(builder, multiplier, &ty.shape) };
                    let (v, multiplier) = self.same_width(builder, v, multiplier);
                    self.exact(builder, mul, vec![v, multiplier])
                });
                Some(IndexParts { uniform, varying })
            }
            ArithKind::Shl => {
                let power = self.power(scalar)?;
                let multiplier = self.constant(builder, ty.dtype, power);
                let multiplier = self.splat(builder, multiplier, &ty.shape);
                let args = vec![scalar.args[0], multiplier];
                self.arithmetic(builder, &Scalar::new(scalar::binary(BinaryOp::Mul), args), ty)
            }
            ArithKind::Neg => {
                let parts = self.parts(builder, scalar.args[0]);
                let uniform = parts.uniform.map(|u| self.exact(builder, scalar.op, vec![u]));
                let varying = parts.varying.map(|v| self.exact(builder, scalar.op, vec![v]));
                Some(IndexParts { uniform, varying })
            }
            _ => None,
        }
    }

    /// `a op b`; a missing operand is 0.
    fn combine(
        &mut self,
        builder: &mut FuncBuilder,
        scalar: &Scalar,
        a: Option<Value>,
        b: Option<Value>,
    ) -> Option<Value> {
        let (a, b) = match (a, b) {
            (None, None) => return None,
            (Some(a), None) => return Some(a),
            (None, Some(b)) if scalar.op.arith == ArithKind::Add => return Some(b),
            (None, Some(b)) => {
                return Some(self.exact(builder, scalar::unary(UnaryOp::Neg), vec![b]));
            }
            (Some(a), Some(b)) => (a, b),
        };
        let (a, b) = self.same_width(builder, a, b);
        Some(self.exact(builder, scalar.op, vec![a, b]))
    }

    /// Builds an operation and records its definition and polynomial, for what is built on it.
    fn make(&mut self, builder: &mut FuncBuilder, kind: impl Into<Kind>, ty: Type) -> Value {
        let kind = kind.into();
        let value = builder.one(kind.clone(), ty);
        self.polynomials.define(builder.func, &kind, value);
        self.move_double(builder, &kind, value);
        self.definitions.insert(value, kind);
        value
    }

    fn constant(&mut self, builder: &mut FuncBuilder, dtype: DType, value: i128) -> Value {
        self.make(builder, Constant { value: ConstantValue::Int(value) }, Type::scalar(dtype))
    }

    fn splat(&mut self, builder: &mut FuncBuilder, value: Value, shape: &Shape) -> Value {
        if shape.rank() == 0 {
            return value;
        }
        let dtype = builder.func.ty(value).dtype;
        self.make(builder, Splat { value }, Type::tile(dtype, shape.clone()))
    }

    fn widen(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        match ty.dtype {
            DType::I64 => value,
            DType::U64 => self.widen_unsigned(builder, value),
            _ => self.make(builder, Cast::new(value), ty.with(DType::I64)),
        }
    }

    /// Arithmetic that does not wrap; the flag helps only in 32 bits.
    fn exact(&mut self, builder: &mut FuncBuilder, op: &'static scalar::ScalarOp, args: Vec<Value>) -> Value {
        if let Some(value) = self.in_128_bits(builder, op.arith, &args) {
            return value;
        }
        let ty = builder.func.ty(args[0]).clone();
        let exact = ty.dtype == DType::I32;
        self.make(builder, Scalar { exact, ..Scalar::new(op, args) }, ty)
    }

    fn same_width(&mut self, builder: &mut FuncBuilder, a: Value, b: Value) -> (Value, Value) {
        if builder.func.ty(a).dtype == builder.func.ty(b).dtype {
            (a, b)
        } else {
            (self.widen(builder, a), self.widen(builder, b))
        }
    }

    /// A scalar index in 64 bits, with its arithmetic recomputed there.
    fn wide(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        if let Some(known) = self.wide.get(builder, value) {
            return known;
        }
        let wide = self.build_wide(builder, value);
        self.wide.insert(builder, value, wide);
        wide
    }

    fn build_wide(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        if ty.dtype == DType::I64 && !self.contains_narrow(builder.func, value) {
            return value;
        }
        match self.definitions.get(&value).cloned() {
            Some(Kind::Constant(Constant { value: ConstantValue::Int(constant) }))
                if within((constant, constant), DType::I64.range()) =>
            {
                self.constant(builder, DType::I64, constant)
            }
            Some(Kind::Cast(Cast { value: inner, .. })) if self.keeps_number(builder.func, inner, &ty) => {
                self.wide(builder, inner)
            }
            Some(Kind::Scalar(scalar)) if is_followed(&ty) && self.follows(&scalar) => {
                self.recompute(builder, &scalar, IndexLegalizer::wide)
            }
            _ => self.widen(builder, value),
        }
    }

    /// Index arithmetic recomputed on operands in 64 bits.
    fn recompute(
        &mut self,
        builder: &mut FuncBuilder,
        scalar: &Scalar,
        wide: fn(&mut IndexLegalizer, &mut FuncBuilder, Value) -> Value,
    ) -> Value {
        let Some(power) = self.power(scalar) else {
            let args = scalar.args.iter().map(|&arg| wide(self, builder, arg)).collect();
            return self.exact(builder, scalar.op, args);
        };
        let shifted = wide(self, builder, scalar.args[0]);
        let shape = builder.func.ty(shifted).shape.clone();
        let multiplier = self.constant(builder, DType::I64, power);
        let multiplier = self.splat(builder, multiplier, &shape);
        self.exact(builder, scalar::binary(BinaryOp::Mul), vec![shifted, multiplier])
    }

    /// The multiplier that a left shift by a constant is.
    fn power(&self, scalar: &Scalar) -> Option<i128> {
        scalar.power(|amount| self.constant_of(amount))
    }

    /// Whether arithmetic is exact in an index.
    fn follows(&self, scalar: &Scalar) -> bool {
        scalar.is_exact_in_index(|amount| self.constant_of(amount))
    }

    /// Whether an index contains a `u64`, arithmetic in 32 bits or an exact conversion, so that it has to be recomputed.
    fn contains_narrow(&self, func: &Func, value: Value) -> bool {
        if let Some(&known) = self.narrow.borrow().get(&value) {
            return known;
        }
        let ty = func.ty(value);
        let contains = is_index(ty)
            && self.definitions.get(&value).is_some_and(|kind| match kind {
                Kind::Scalar(scalar) if self.follows(scalar) => {
                    ty.dtype == DType::I32 || scalar.args.iter().any(|&arg| self.contains_narrow(func, arg))
                }
                Kind::Cast(Cast { value: inner, exact }) => {
                    let from = func.ty(*inner);
                    *exact
                        || from.dtype == DType::U64
                        || is_narrow(from) && self.contains_narrow(func, *inner)
                }
                Kind::Splat(Splat { value: inner }) => self.contains_narrow(func, *inner),
                kind if kind.operation().axis_map(func).is_some() => {
                    kind.operation().operands().iter().any(|&inner| self.contains_narrow(func, inner))
                }
                _ => false,
            });
        self.narrow.borrow_mut().insert(value, contains);
        contains
    }
}

/// The types of offsets.
fn is_index(ty: &Type) -> bool {
    matches!(ty.dtype, DType::I32 | DType::I64)
}

/// The types whose arithmetic is exact in an offset or a comparison.
fn is_followed(ty: &Type) -> bool {
    is_index(ty) || ty.dtype == DType::U64
}

/// The type whose arithmetic is recomputed in 64 bits.
fn is_narrow(ty: &Type) -> bool {
    ty.dtype == DType::I32
}

/// Bounds just outside a range that are multiples of 64, so that a clamped multiple stays one; `None` past 32 bits.
fn clamps(range: (i128, i128)) -> Option<(i128, i128)> {
    let low = (range.0.checked_sub(1)?).div_euclid(64) * 64;
    let high = (range.1.checked_add(1)? + 63).div_euclid(64) * 64;
    within((low, high), I32).then_some((low, high))
}
