//! Offsets and comparisons of `u64`, in 128 bits.
//!
//! A `u64` may be larger than any `i64`, and a sum or product of two larger than any `u64`. A number that comes from one has two
//! words. An access takes an `i64`: the number where it fits, and else one that is outside of every slice and view.

use super::{Double, I32, IndexLegalizer, IndexParts, is_followed, is_index, is_narrow, within};
use crate::frontend::syntax::BinaryOp;
use crate::ir::{Func, FuncBuilder, Type, Value};
use crate::ops::scalar::{self, ArithKind, Scalar};
use crate::ops::{Cast, Constant, ConstantValue, Kind, Splat};
use crate::support::dtype::DType;

/// What stands for numbers that are outside: more elements than memory has bytes, and a multiple of every vector.
const OUTSIDE: i128 = 1 << 62;

impl IndexLegalizer {
    /// Whether a value is computed in 128 bits.
    pub(super) fn is_double(&self, value: Value) -> bool {
        self.doubles.get(&value).is_some_and(|double| double.high.is_some())
    }

    /// The parts as one, where the sum that an access takes of them is not outside when one of them is [`OUTSIDE`].
    pub(super) fn joined(&mut self, builder: &mut FuncBuilder, parts: IndexParts) -> IndexParts {
        let IndexParts { uniform: Some(uniform), varying: Some(varying) } = parts else { return parts };
        let [first, second] = [uniform, varying].map(|part| self.doubles.contains_key(&part));
        let is_small = !second && within(self.exact_range(builder.func, varying), I32);
        if !first && !second || is_small {
            return parts;
        }
        let shape = builder.func.ty(varying).shape.clone();
        let uniform = self.splat(builder, uniform, &shape);
        let varying = self.widened(builder, varying);
        let add = scalar::binary(BinaryOp::Add);
        IndexParts { uniform: None, varying: Some(self.exact(builder, add, vec![uniform, varying])) }
    }

    /// Whether a conversion to `ty` keeps the number that index legalization takes `from` for.
    pub(super) fn keeps_number(&self, func: &Func, from: Value, ty: &Type) -> bool {
        let own = func.ty(from);
        match ty.dtype {
            DType::I64 => is_index(own) || own.dtype == DType::U64,
            DType::U64 => is_narrow(own) && within(self.exact_range(func, from), (0, i32::MAX.into())),
            _ => false,
        }
    }

    /// A `u64` as an `i64`, at most [`OUTSIDE`].
    pub(super) fn widen_unsigned(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        let range = self.exact_range(builder.func, value);
        let low = if range.1 <= i128::from(u32::MAX) {
            value
        } else {
            let outside = self.filled(builder, OUTSIDE, value);
            self.unsigned(builder, "minimum", [value, outside])
        };
        let wide = self.make(builder, Cast::new(low), ty.with(DType::I64));
        self.narrow.borrow_mut().insert(wide, false);
        self.ranges.insert(wide, (range.0.max(0), range.1.min(OUTSIDE)));
        if low != value {
            self.doubles.insert(wide, Double { low: value, high: None });
        }
        wide
    }

    /// Arithmetic of `i64` operands of which one comes from a `u64`; `None` of others.
    pub(super) fn in_128_bits(
        &mut self,
        builder: &mut FuncBuilder,
        arith: ArithKind,
        args: &[Value],
    ) -> Option<Value> {
        if !args.iter().any(|arg| self.doubles.contains_key(arg)) {
            return None;
        }
        let double = match (arith, args) {
            (ArithKind::Add, &[a, b]) => self.add(builder, [a, b]),
            (ArithKind::Sub, &[a, b]) => self.subtract(builder, [a, b]),
            (ArithKind::Mul, &[a, b]) => self.multiply(builder, [a, b]),
            (ArithKind::Neg, &[a]) => {
                let zero = self.filled(builder, 0, a);
                self.subtract(builder, [zero, a])
            }
            _ => return None,
        };
        Some(self.fitted(builder, double))
    }

    /// Keeps the two words of an operand whose elements are moved.
    pub(super) fn move_double(&mut self, builder: &mut FuncBuilder, kind: &Kind, moved: Value) {
        let operation = kind.operation();
        if !matches!(kind, Kind::Splat(_)) && operation.axis_map(builder.func).is_none() {
            return;
        }
        let &[inner] = operation.operands().as_slice() else { return };
        let Some(&Double { low, high }) = self.doubles.get(&inner) else { return };
        let ty = builder.func.ty(moved).with(DType::U64);
        let mut word = |value: Value| {
            let mut kind = kind.clone();
            kind.operation_mut().map(&mut |_| value);
            self.make(builder, kind, ty.clone())
        };
        let double = Double { low: word(low), high: high.map(word) };
        self.doubles.insert(moved, double);
    }

    /// An exact form of a comparison of `u64` operands; `None` where the comparison of the words is exact.
    pub(super) fn comparison_of_unsigned(
        &mut self,
        builder: &mut FuncBuilder,
        op: BinaryOp,
        operands: [Value; 2],
    ) -> Option<Value> {
        let wraps = |&operand: &Value| {
            self.is_computed(builder.func, operand)
                && !within(self.exact_range(builder.func, operand), DType::U64.range())
        };
        if !operands.iter().any(wraps) {
            return None;
        }
        let ty = builder.func.ty(operands[0]).with(DType::Bool);
        let [a, b] = operands.map(|operand| {
            let wide =
                if ty.is_scalar() { self.wide(builder, operand) } else { self.widened(builder, operand) };
            self.double(builder, wide)
        });
        let highs = [a, b].map(|number| {
            let high = self.high(builder, number);
            self.make(builder, Cast::new(high), ty.with(DType::I64))
        });
        let lows = [a.low, b.low];
        let mut compare =
            |name, args: [Value; 2]| self.make(builder, Scalar::named(name, args.to_vec()), ty.clone());
        let (strict, own) = match op {
            BinaryOp::Lt => ("lt", "lt"),
            BinaryOp::Le => ("lt", "le"),
            BinaryOp::Gt => ("gt", "gt"),
            BinaryOp::Ge => ("gt", "ge"),
            BinaryOp::Eq => {
                let equal = [compare("eq", highs), compare("eq", lows)];
                return Some(compare("and", equal));
            }
            BinaryOp::Ne => {
                let differ = [compare("ne", highs), compare("ne", lows)];
                return Some(compare("or", differ));
            }
            _ => return None,
        };
        let by_low = [compare("eq", highs), compare(own, lows)];
        let either = [compare(strict, highs), compare("and", by_low)];
        Some(compare("or", either))
    }

    /// Whether a `u64` is computed by arithmetic that is exact in a comparison.
    fn is_computed(&self, func: &Func, value: Value) -> bool {
        let Some(kind) = self.definitions.get(&value) else { return false };
        if let Kind::Scalar(scalar) = kind {
            return is_followed(func.ty(value)) && self.follows(scalar);
        }
        let moves = matches!(kind, Kind::Splat(_)) || kind.operation().axis_map(func).is_some();
        moves && kind.operation().operands().iter().any(|&inner| self.is_computed(func, inner))
    }

    /// A constant, of `u64` too, which has no polynomial.
    pub(super) fn constant_of(&self, value: Value) -> Option<i128> {
        let known = self.polynomials.get(value).as_constant();
        known.or_else(|| {
            let kind = self.definitions.get(&value)?;
            if let Kind::Constant(Constant { value: ConstantValue::Int(constant) }) = kind {
                return Some(*constant);
            }
            let Kind::Splat(Splat { value }) = kind else { return None };
            self.constant_of(*value)
        })
    }

    // ---- two words

    /// The two words of an `i64`.
    fn double(&mut self, builder: &mut FuncBuilder, value: Value) -> Double {
        if let Some(&known) = self.doubles.get(&value) {
            return known;
        }
        debug_assert!(is_index(builder.func.ty(value)));
        let ty = builder.func.ty(value).with(DType::U64);
        let negative = self.exact_range(builder.func, value).0 < 0;
        let high = negative.then(|| self.sign(builder, value));
        Double { low: self.make(builder, Cast::new(value), ty), high }
    }

    /// The high word of an `i64`.
    fn sign(&mut self, builder: &mut FuncBuilder, value: Value) -> Value {
        let ty = builder.func.ty(value).clone();
        let amount = self.filled(builder, 63, value);
        let sign = self.make(builder, Scalar::named("shr", vec![value, amount]), ty.clone());
        self.make(builder, Cast::new(sign), ty.with(DType::U64))
    }

    fn high(&mut self, builder: &mut FuncBuilder, number: Double) -> Value {
        number.high.unwrap_or_else(|| self.filled(builder, 0, number.low))
    }

    /// A constant of the type of `like`.
    fn filled(&mut self, builder: &mut FuncBuilder, value: i128, like: Value) -> Value {
        let Type { dtype, shape, .. } = builder.func.ty(like).clone();
        let value = self.constant(builder, dtype, value);
        self.splat(builder, value, &shape)
    }

    /// A row of the table on two words.
    fn unsigned(&mut self, builder: &mut FuncBuilder, name: &str, args: [Value; 2]) -> Value {
        let ty = builder.func.ty(args[0]).clone();
        self.make(builder, Scalar::named(name, args.to_vec()), ty)
    }

    /// 1 where the first word is below the second.
    fn below(&mut self, builder: &mut FuncBuilder, args: [Value; 2]) -> Value {
        let ty = builder.func.ty(args[0]).clone();
        let below = self.make(builder, Scalar::named("lt", args.to_vec()), ty.with(DType::Bool));
        self.make(builder, Cast::new(below), ty)
    }

    fn add(&mut self, builder: &mut FuncBuilder, operands: [Value; 2]) -> Double {
        let [a, b] = operands.map(|operand| self.double(builder, operand));
        let low = self.unsigned(builder, "add", [a.low, b.low]);
        let carry = self.below(builder, [low, a.low]);
        let highs = [a.high, b.high].into_iter().flatten();
        let high = highs.fold(carry, |sum, high| self.unsigned(builder, "add", [sum, high]));
        Double { low, high: Some(high) }
    }

    fn subtract(&mut self, builder: &mut FuncBuilder, operands: [Value; 2]) -> Double {
        let [a, b] = operands.map(|operand| self.double(builder, operand));
        let low = self.unsigned(builder, "sub", [a.low, b.low]);
        let borrow = self.below(builder, [a.low, b.low]);
        let first = self.high(builder, a);
        let less = b.high.into_iter().chain([borrow]);
        let high = less.fold(first, |rest, high| self.unsigned(builder, "sub", [rest, high]));
        Double { low, high: Some(high) }
    }

    fn multiply(&mut self, builder: &mut FuncBuilder, operands: [Value; 2]) -> Double {
        let [a, b] = operands.map(|operand| self.double(builder, operand));
        let low = self.unsigned(builder, "mul", [a.low, b.low]);
        let mut high = self.unsigned(builder, "umulhi", [a.low, b.low]);
        for (low, other) in [(a.low, b.high), (b.low, a.high)] {
            let Some(other) = other else { continue };
            let cross = self.unsigned(builder, "mul", [low, other]);
            high = self.unsigned(builder, "add", [high, cross]);
        }
        Double { low, high: Some(high) }
    }

    /// A number as an `i64`: [`OUTSIDE`] for one that does not fit.
    fn fitted(&mut self, builder: &mut FuncBuilder, double: Double) -> Value {
        let ty = builder.func.ty(double.low).clone();
        let own = self.make(builder, Cast::new(double.low), ty.with(DType::I64));
        let sign = self.sign(builder, own);
        let high = self.high(builder, double);
        let fits = self.make(builder, Scalar::named("eq", vec![high, sign]), ty.with(DType::Bool));
        let outside = self.filled(builder, OUTSIDE, own);
        let value =
            self.make(builder, Scalar::named("select", vec![fits, own, outside]), ty.with(DType::I64));
        self.doubles.insert(value, double);
        value
    }
}
