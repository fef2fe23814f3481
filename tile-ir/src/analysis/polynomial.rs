//! The polynomial of every integer value of a function, and the bounds of the atoms that have any.

use std::collections::{HashMap, HashSet};

use crate::ir::guard::Symbol;
use crate::ir::polynomial::{Atom, Placement, Polynomial, PolynomialEnv};
use crate::ir::{Block, Func, ParamKind, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Cast, Constant, ConstantValue, Kind, MemAccess, Splat};
use crate::support::dtype::DType;

/// The interval of a variable: `low <= variable < high`.
#[derive(Clone, Debug)]
pub struct LoopBounds {
    pub low: Polynomial,
    pub high: Polynomial,
    /// They hold only if the interval is not empty: for a remainder, whose divisor may be 0, and for a clamped value. The body of
    /// a loop over an empty interval does not run.
    pub if_not_empty: bool,
    /// They hold only if this dividend of the remainder or the quotient, or this operand of the minimum, fits the variable's type
    /// and is not negative.
    pub dividend: Option<Polynomial>,
    /// They hold only if this divisor is at least 1: that of a quotient, or of a remainder where it is not known at launch.
    pub divisor: Option<Polynomial>,
    /// `high` follows from the dividend alone and may be far too large: it shows that a sum does not wrap, and bounds no access.
    pub loose: bool,
}

impl LoopBounds {
    fn of_loop(low: Polynomial, high: Polynomial) -> LoopBounds {
        LoopBounds { low, high, if_not_empty: false, dividend: None, divisor: None, loose: false }
    }

    /// The largest quotient of dividends below `end`: `x < p * d` shows that `x / d` is less than `p`, and `x < n` that it is less than
    /// `ceil(n / d)`.
    pub fn largest_quotient(&self, end: &Polynomial) -> Option<Polynomial> {
        // A divisor that is known at launch is that of a quotient.
        let divisor = self.divisor.as_ref().filter(|divisor| self.loose && divisor.varying().is_none())?;
        let Some((quotient, rest)) = end.divided_by(divisor) else {
            return Some(end.ceil_div(divisor)?.sub(&Polynomial::constant(1)));
        };
        // A positive rest adds less than itself, and nothing where the divisor is larger for sure.
        let more = match divisor.as_constant() {
            _ if rest <= 0 => -1,
            Some(_) => 0,
            None => rest - 1,
        };
        Some(quotient.add(&Polynomial::constant(more)))
    }
}

/// The polynomial of every integer value of a function.
#[derive(Default, Debug)]
pub struct Polynomials {
    known: HashMap<Value, Polynomial>,
    pub loops: HashMap<Value, LoopBounds>,
    /// Quotients of arguments, which a launch knows.
    quotients: HashMap<Value, Polynomial>,
    /// Lower bounds of maxima, and upper bounds of minima, with a value known at launch.
    floors: HashMap<Value, Polynomial>,
    ceilings: HashMap<Value, Polynomial>,
    /// The operands of minima.
    minima: HashMap<Value, [Polynomial; 2]>,
    /// Values that contain narrower arithmetic, which wraps where no offset or comparison uses it.
    widened: HashSet<Value>,
    /// Floats that are not negative, or NaN: as integers they are at least 0.
    non_negative_floats: HashSet<Value>,
}

impl Polynomials {
    pub fn analyze(func: &Func) -> Polynomials {
        let mut all = Polynomials::default();
        for (position, param) in func.params.iter().enumerate() {
            if let ParamKind::Scalar { value, dtype } = param.kind
                && dtype.is_integer()
            {
                all.known.insert(value, Polynomial::atom(Atom::Known(Symbol::Scalar(position as u32))));
            }
        }
        all.block(func, &func.body);
        all
    }

    /// The offset of an access from the start of its slice.
    pub fn of_access(&self, access: &MemAccess) -> Polynomial {
        let offset = self.get(access.offset);
        access.base.map_or(offset.clone(), |base| self.get(base).add(&offset))
    }

    pub fn get(&self, value: Value) -> Polynomial {
        self.known
            .get(&value)
            .cloned()
            .unwrap_or_else(|| Polynomial::atom(Atom::Opaque(value, Placement::OWN)))
    }

    fn block(&mut self, func: &Func, block: &Block) {
        for op in &block.ops {
            // A loop's variable is bounded by its ends before the body is visited.
            if let Kind::For(op) = &op.kind {
                let closed = Polynomial::constant(op.closed.into());
                let (low, high) = (self.get(op.low), self.get(op.high).add(&closed));
                let ends = LoopBounds::of_loop(low, high);
                self.loops.insert(op.body.args[0], ends);
                self.known
                    .insert(op.body.args[0], Polynomial::atom(Atom::Loop(op.body.args[0], Placement::OWN)));
            }
            for nested in op.kind.operation().blocks() {
                self.block(func, nested);
            }
            if let [result] = op.results.as_slice() {
                self.define(func, &op.kind, *result);
            }
        }
    }

    /// Adds the result of an operation. Arithmetic in widths other than an index's wraps and is no polynomial.
    pub fn define(&mut self, func: &Func, kind: &Kind, result: Value) {
        if func.ty(result).dtype.is_float() && self.is_non_negative_float(kind) {
            self.non_negative_floats.insert(result);
        }
        if !matches!(func.ty(result).dtype, DType::I32 | DType::I64) {
            return;
        }
        if self.widens(kind) {
            self.widened.insert(result);
        }
        if let Some(polynomial) = kind.operation().polynomial(self, func, result)
            && polynomial.is_small()
        {
            self.known.insert(result, polynomial);
        }
        if let Some(ends) = self.ends(func, kind) {
            self.loops.insert(result, ends);
            self.known.insert(result, Polynomial::atom(Atom::Loop(result, Placement::OWN)));
        }
        self.record_limit(func, kind, result);
    }

    /// Whether a result contains arithmetic of a narrower type than its own.
    fn widens(&self, kind: &Kind) -> bool {
        let computed = |value: &Value| {
            let known = self.known.get(value);
            known.is_some_and(|known| known.as_atom().is_none() && known.as_constant().is_none())
        };
        let casts = matches!(kind, Kind::Cast(_));
        let operands = kind.operation().operands();
        operands.iter().any(|operand| self.widened.contains(operand) || casts && computed(operand))
    }

    /// Whether a value is not negative because it is a maximum with a value that is not.
    pub fn has_floor(&self, value: Value) -> bool {
        self.floors.get(&value).and_then(Polynomial::as_constant).is_some_and(|floor| floor >= 0)
    }

    /// Whether a value that fits its type equals its polynomial: all of its arithmetic is of that type.
    pub fn has_own_width(&self, value: Value) -> bool {
        !self.widened.contains(&value)
    }

    /// The operands of the minimum that a value is.
    pub fn minimum_of(&self, value: Value) -> Option<&[Polynomial; 2]> {
        self.minima.get(&value)
    }

    /// The polynomial of a value known at launch.
    fn known_at_launch(&self, value: Value) -> Option<Polynomial> {
        let known = self.known.get(&value)?.clone();
        Some(self.at_launch(known)).filter(|known| known.varying().is_none())
    }

    /// Replaces quotients of arguments in a polynomial by the symbols that a launch computes.
    pub fn at_launch(&self, mut value: Polynomial) -> Polynomial {
        let quotient_in = |value: &Polynomial| {
            value.all_varying().into_iter().find_map(|atom| match atom {
                Atom::Loop(variable, _) => Some((atom, self.quotients.get(&variable)?)),
                _ => None,
            })
        };
        while !self.quotients.is_empty()
            && let Some((atom, symbol)) = quotient_in(&value)
        {
            let (factor, rest) = value.split(atom);
            value = factor.mul(symbol).add(&rest);
        }
        value
    }

    /// The interval of an operation's result, if it follows from the operation and not from its operands.
    fn ends(&self, func: &Func, kind: &Kind) -> Option<LoopBounds> {
        let Kind::Scalar(op) = kind else { return None };
        if !matches!(op.dtype(func), DType::I32 | DType::I64) {
            return None;
        }
        let one = Polynomial::constant(1);
        let between = |low: Polynomial, high: Polynomial| LoopBounds {
            if_not_empty: true,
            ..LoopBounds::of_loop(low, high.add(&one))
        };
        let of_either_operand = |limits: &HashMap<Value, Polynomial>| {
            let [a, b] = op.args[..] else { return None };
            [(a, b), (b, a)]
                .into_iter()
                .find_map(|(inner, other)| Some((limits.get(&inner)?.clone(), self.known_at_launch(other)?)))
        };
        match op.op.arith {
            ArithKind::Rem if self.has_own_width(op.args[0]) => Some(self.remainder(op.args[0], op.args[1])),
            ArithKind::Div if op.args.iter().all(|&arg| self.has_own_width(arg)) => {
                let divisor = Some(self.at_launch(self.get(op.args[1])));
                Some(LoopBounds { divisor, ..self.up_to(op.args[0]) })
            }
            ArithKind::Minimum => of_either_operand(&self.floors)
                .map(|(low, high)| between(low, high))
                .or_else(|| self.smaller_index(&op.args)),
            ArithKind::Maximum => of_either_operand(&self.ceilings).map(|(high, low)| between(low, high)),
            ArithKind::And => {
                let bits = op.args.iter().find_map(|&arg| self.known.get(&arg)?.as_constant())?;
                (bits >= 0).then(|| between(Polynomial::default(), Polynomial::constant(bits)))
            }
            _ => None,
        }
    }

    /// The interval of the smaller one of a sum of indices and a value known at launch: from 0, if the sum is not negative.
    fn smaller_index(&self, args: &[Value]) -> Option<LoopBounds> {
        let &[a, b] = args else { return None };
        let (sum, high) = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(sum, other)| Some((sum, self.known_at_launch(other)?)))?;
        let is_index = |&atom: &Atom| !matches!(atom, Atom::Opaque(..));
        let polynomial = self.get(sum);
        let is_sum = polynomial.varying().is_some()
            && polynomial.terms().all(|(atoms, c)| c > 0 && atoms.iter().all(is_index));
        (is_sum && self.has_own_width(sum)).then(|| LoopBounds {
            if_not_empty: true,
            dividend: Some(polynomial),
            ..LoopBounds::of_loop(Polynomial::default(), high.add(&Polynomial::constant(1)))
        })
    }

    /// Whether a float is not negative, or NaN, by how it is computed.
    fn is_non_negative_float(&self, kind: &Kind) -> bool {
        let is_known = |value: &Value| self.non_negative_floats.contains(value);
        if let Kind::Scalar(op) = kind {
            return match op.op.arith {
                ArithKind::Maximum => op.args.iter().any(is_known),
                ArithKind::Add | ArithKind::Mul | ArithKind::Minimum => op.args.iter().all(is_known),
                _ => false,
            };
        }
        if let Kind::Constant(Constant { value: ConstantValue::Float(value) }) = kind {
            return *value >= 0.0;
        }
        matches!(kind, Kind::Splat(Splat { value }) if is_known(value))
    }

    fn remainder(&self, dividend: Value, divisor: Value) -> LoopBounds {
        let below = self.up_to(dividend);
        match self.known_at_launch(divisor) {
            Some(high) => LoopBounds { high, if_not_empty: true, loose: false, ..below },
            None => LoopBounds { divisor: Some(self.get(divisor)), ..below },
        }
    }

    /// The interval from 0 up to a dividend that is not negative.
    fn up_to(&self, dividend: Value) -> LoopBounds {
        let dividend = self.get(dividend);
        let high = dividend.add(&Polynomial::constant(1));
        let is_index = |atom: Atom| matches!(atom, Atom::Program(_) | Atom::Range { .. });
        let is_single_index =
            dividend.varying().is_some_and(|atom| is_index(atom) && dividend == Polynomial::atom(atom));
        // Sums and products might wrap.
        let dividend = (!is_single_index).then_some(dividend);
        LoopBounds { dividend, loose: true, ..LoopBounds::of_loop(Polynomial::default(), high) }
    }

    /// Records the bound of a minimum or maximum, and a quotient of arguments.
    fn record_limit(&mut self, func: &Func, kind: &Kind, result: Value) {
        if let Kind::Cast(Cast { value, .. }) = kind
            && self.non_negative_floats.contains(value)
        {
            self.floors.insert(result, Polynomial::default());
        }
        let Kind::Scalar(op) = kind else { return };
        if !matches!(op.dtype(func), DType::I32 | DType::I64) {
            return;
        }
        let limit = || op.args.iter().find_map(|&arg| self.known_at_launch(arg));
        match op.op.arith {
            ArithKind::Minimum => {
                self.ceilings.extend(limit().map(|limit| (result, limit)));
                if let [a, b] = op.args[..]
                    && op.args.iter().all(|&arg| self.has_own_width(arg))
                {
                    self.minima.insert(result, [self.get(a), self.get(b)]);
                }
            }
            ArithKind::Maximum => self.floors.extend(limit().map(|limit| (result, limit))),
            ArithKind::Div if op.args.iter().all(|&arg| self.has_own_width(arg)) => {
                let quotient = self.get(op.args[0]).div_of_arguments(&self.get(op.args[1]));
                self.quotients.extend(quotient.map(|quotient| (result, quotient)));
            }
            _ => {}
        }
    }
}

impl PolynomialEnv for Polynomials {
    fn polynomial(&self, value: Value) -> Polynomial {
        self.get(value)
    }
}
