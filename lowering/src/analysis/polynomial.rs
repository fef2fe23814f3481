//! Index arithmetic as polynomials with exact integer coefficients.
//!
//! An element of an integer tile is a polynomial over atoms: symbols known at launch (arguments, lengths, the grid), what
//! varies over programs and elements (program ids, ranges), and opaque values. Arithmetic is that of the integers: the tile
//! IR's offsets do not wrap (see [`crate::transform::legalize_index`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ir::guard::{Symbol, SymbolicSum};
use crate::ir::{Block, Func, ParamKind, Shape, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Kind, MemAccess};
use crate::support::dtype::DType;

/// A variable of polynomials.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// Known at launch.
    Known(Symbol),
    /// The program's index along a grid axis: 0 up to the grid's extent.
    Program(u8),
    /// A range (`arange`) of the given extent from 0 along an axis of the tile.
    Range { axis: usize, extent: u32 },
    /// A loop variable, or a clamped value, a remainder or a quotient, scalar or tile: it has ends in [`Polynomials::loops`].
    Loop(Value, Placement),
    /// An integer that nothing is known of, uniform or not.
    Opaque(Value, Placement),
}

/// The most axes of a tile.
const MAX_RANK: usize = 5;

/// The axes of the tile that the axes of a value are: moves of elements permute them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Placement([u8; MAX_RANK]);

impl Placement {
    /// Those of the value itself, and of any scalar.
    pub const OWN: Placement = Placement([0, 1, 2, 3, 4]);

    /// The placement of a value of `shape` after the axes of its tile are moved; `None` where an axis is lost.
    fn moved(self, shape: &Shape, axis: impl Fn(usize) -> Option<usize>) -> Option<Placement> {
        let mut axes = self.0;
        for (own, &extent) in axes.iter_mut().zip(shape.iter()) {
            if extent > 1 {
                *own = u8::try_from(axis(usize::from(*own))?).ok()?;
            }
        }
        Some(Placement(axes))
    }
}

/// A sum of products of atoms; no coefficient is zero.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Polynomial {
    terms: BTreeMap<Vec<Atom>, i128>,
}

/// The most terms of a polynomial that an analysis goes on with.
const MAX_TERMS: usize = 32;
/// The most atoms of one of its terms.
const MAX_DEGREE: usize = 8;
/// No coefficient is larger: a product of two polynomials within the limits is exact in 128 bits.
const MAX_COEFFICIENT: i128 = 1 << 58;

impl Polynomial {
    /// Whether it is small enough to compute with. Polynomials beyond the limits count as unknown, so that the work for one
    /// operation is bounded.
    pub fn is_small(&self) -> bool {
        self.terms.len() <= MAX_TERMS
            && self.terms.iter().all(|(atoms, coefficient)| {
                atoms.len() <= MAX_DEGREE && coefficient.saturating_abs() <= MAX_COEFFICIENT
            })
    }

    pub fn constant(value: i128) -> Polynomial {
        Polynomial::term(vec![], value)
    }

    pub fn atom(atom: Atom) -> Polynomial {
        Polynomial::term(vec![atom], 1)
    }

    fn term(atoms: Vec<Atom>, coefficient: i128) -> Polynomial {
        let mut terms = BTreeMap::new();
        if coefficient != 0 {
            terms.insert(atoms, coefficient);
        }
        Polynomial { terms }
    }

    pub fn terms(&self) -> impl Iterator<Item = (&[Atom], i128)> {
        self.terms.iter().map(|(atoms, &coefficient)| (atoms.as_slice(), coefficient))
    }

    pub fn add(&self, other: &Polynomial) -> Polynomial {
        let mut terms = self.terms.clone();
        for (atoms, coefficient) in &other.terms {
            let sum = terms.entry(atoms.clone()).or_default();
            *sum = sum.saturating_add(*coefficient);
        }
        terms.retain(|_, coefficient| *coefficient != 0);
        Polynomial { terms }
    }

    pub fn sub(&self, other: &Polynomial) -> Polynomial {
        self.add(&other.scale(-1))
    }

    pub fn scale(&self, by: i128) -> Polynomial {
        self.mul(&Polynomial::constant(by))
    }

    pub fn mul(&self, other: &Polynomial) -> Polynomial {
        let mut terms: BTreeMap<Vec<Atom>, i128> = BTreeMap::new();
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut atoms: Vec<Atom> = a.iter().chain(b).copied().collect();
                atoms.sort();
                let sum = terms.entry(atoms).or_default();
                *sum = sum.saturating_add(x.saturating_mul(*y));
            }
        }
        terms.retain(|_, coefficient| *coefficient != 0);
        Polynomial { terms }
    }

    /// `self = atom * quotient + rest`, with no `atom` in the rest.
    pub fn split(&self, atom: Atom) -> (Polynomial, Polynomial) {
        let mut quotient = Polynomial::default();
        let mut rest = Polynomial::default();
        for (atoms, &coefficient) in &self.terms {
            match atoms.iter().position(|a| *a == atom) {
                Some(position) => {
                    let mut atoms = atoms.clone();
                    atoms.remove(position);
                    quotient = quotient.add(&Polynomial::term(atoms, coefficient));
                }
                None => rest = rest.add(&Polynomial::term(atoms.clone(), coefficient)),
            }
        }
        (quotient, rest)
    }

    /// Whether `part` is never larger where no atom is negative: both have positive coefficients, `part` none larger.
    pub fn contains(&self, part: &Polynomial) -> bool {
        let rest = self.sub(part);
        [self, part, &rest].into_iter().all(|value| value.terms.values().all(|&coefficient| coefficient >= 0))
    }

    /// The value, if it is a constant.
    pub fn as_constant(&self) -> Option<i128> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get([].as_slice()).copied(),
            _ => None,
        }
    }

    /// The atom, if the polynomial is a single one.
    pub fn as_atom(&self) -> Option<Atom> {
        let mut terms = self.terms();
        match (terms.next()?, terms.next()) {
            ((&[atom], 1), None) => Some(atom),
            _ => None,
        }
    }

    /// `self / by`, where `by` divides every coefficient.
    pub fn divided(&self, by: i128) -> Option<Polynomial> {
        let divides = by != 0 && self.terms.values().all(|coefficient| coefficient % by == 0);
        let quotient = || self.terms.iter().map(|(atoms, coefficient)| (atoms.clone(), coefficient / by));
        divides.then(|| Polynomial { terms: quotient().collect() })
    }

    /// The first atom that varies after launch.
    pub fn varying(&self) -> Option<Atom> {
        self.terms.keys().flatten().find(|atom| !matches!(atom, Atom::Known(_))).copied()
    }

    /// Every atom that varies after launch.
    pub fn all_varying(&self) -> Vec<Atom> {
        let mut atoms: Vec<Atom> =
            self.terms.keys().flatten().filter(|atom| !matches!(atom, Atom::Known(_))).copied().collect();
        atoms.sort();
        atoms.dedup();
        atoms
    }

    /// The polynomial with every range, of a non-negative coefficient, replaced by what `at` returns for its extent.
    pub fn without_ranges(&self, at: impl Fn(u32) -> Polynomial) -> Option<Polynomial> {
        let mut value = self.clone();
        for atom in self.all_varying() {
            let Atom::Range { extent, .. } = atom else { continue };
            let (coefficient, rest) = value.split(atom);
            if coefficient.as_constant()? < 0 {
                return None;
            }
            value = coefficient.mul(&at(extent)).add(&rest);
        }
        Some(value)
    }

    /// The same with every coefficient positive.
    pub fn magnitudes(&self) -> Polynomial {
        let terms = self.terms.iter().map(|(atoms, c)| (atoms.clone(), c.saturating_abs())).collect();
        Polynomial { terms }
    }

    /// As a launch-time sum; `None` when something varies or a coefficient does not fit.
    pub fn to_sum(&self) -> Option<SymbolicSum> {
        let terms = self
            .terms
            .iter()
            .map(|(atoms, &coefficient)| {
                let factors: Option<Vec<Symbol>> = atoms
                    .iter()
                    .map(|atom| match atom {
                        Atom::Known(symbol) => Some(*symbol),
                        Atom::Program(_) | Atom::Range { .. } | Atom::Loop(..) | Atom::Opaque(..) => None,
                    })
                    .collect();
                Some((i64::try_from(coefficient).ok()?, factors?))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(SymbolicSum { terms })
    }

    /// The polynomial after the axes of its tile are moved; `None` where it varies along an axis that is lost.
    pub fn moved(&self, func: &Func, axis: impl Fn(usize) -> Option<usize>) -> Option<Polynomial> {
        let mut result = Polynomial::default();
        for (atoms, &coefficient) in &self.terms {
            let move_atom = |atom: &Atom| match *atom {
                Atom::Range { axis: old, extent } => axis(old).map(|axis| Atom::Range { axis, extent }),
                Atom::Loop(value, at) => {
                    at.moved(&func.ty(value).shape, &axis).map(|at| Atom::Loop(value, at))
                }
                Atom::Opaque(value, at) => {
                    at.moved(&func.ty(value).shape, &axis).map(|at| Atom::Opaque(value, at))
                }
                other => Some(other),
            };
            let mut atoms: Vec<Atom> = atoms.iter().map(move_atom).collect::<Option<_>>()?;
            atoms.sort();
            result = result.add(&Polynomial::term(atoms, coefficient));
        }
        Some(result)
    }
}

/// The interval of a variable: `low <= variable < high`.
#[derive(Clone, Debug)]
pub struct LoopBounds {
    pub low: Polynomial,
    pub high: Polynomial,
    /// They hold only if the interval is not empty: for a remainder, whose divisor may be 0, and for a clamped value. The body of
    /// a loop over an empty interval does not run.
    pub if_not_empty: bool,
    /// They hold only if this dividend, of the remainder or the quotient, fits the variable's type and is not negative.
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
}

/// The polynomial of every integer value of a function.
#[derive(Default, Debug)]
pub struct Polynomials {
    known: HashMap<Value, Polynomial>,
    pub loops: HashMap<Value, LoopBounds>,
    /// Lower bounds of maxima, and upper bounds of minima, with a value known at launch.
    floors: HashMap<Value, Polynomial>,
    ceilings: HashMap<Value, Polynomial>,
    /// The operands of minima.
    minima: HashMap<Value, [Polynomial; 2]>,
    /// Values that contain narrower arithmetic, which wraps where no offset or comparison uses it.
    widened: HashSet<Value>,
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
        self.known.get(&value).filter(|known| known.varying().is_none()).cloned()
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
                Some(LoopBounds { divisor: Some(self.get(op.args[1])), ..self.up_to(op.args[0]) })
            }
            ArithKind::Minimum => of_either_operand(&self.floors).map(|(low, high)| between(low, high)),
            ArithKind::Maximum => of_either_operand(&self.ceilings).map(|(high, low)| between(low, high)),
            ArithKind::And => {
                let bits = op.args.iter().find_map(|&arg| self.known.get(&arg)?.as_constant())?;
                (bits >= 0).then(|| between(Polynomial::default(), Polynomial::constant(bits)))
            }
            _ => None,
        }
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

    /// Records the bound of a minimum or maximum.
    fn record_limit(&mut self, func: &Func, kind: &Kind, result: Value) {
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
            _ => {}
        }
    }
}

/// The polynomial of a lanewise operation.
pub fn scalar(all: &Polynomials, arith: ArithKind, args: &[Value]) -> Option<Polynomial> {
    let arg = |i: usize| all.get(args[i]);
    match arith {
        ArithKind::Add => Some(arg(0).add(&arg(1))),
        ArithKind::Sub => Some(arg(0).sub(&arg(1))),
        ArithKind::Mul => Some(arg(0).mul(&arg(1))),
        ArithKind::Neg => Some(arg(0).scale(-1)),
        ArithKind::Shl => {
            let amount = arg(1).as_constant().filter(|amount| (0..31).contains(amount))?;
            Some(arg(0).scale(1 << amount))
        }
        ArithKind::CeilDiv => {
            let by = u32::try_from(arg(1).as_constant()?).ok().filter(|&by| by > 0)?;
            let Some(Atom::Known(Symbol::Scalar(scalar))) = arg(0).as_atom() else { return None };
            Some(Polynomial::atom(Atom::Known(Symbol::CeilDiv { scalar, by })))
        }
        ArithKind::MulAdd
        | ArithKind::Div
        | ArithKind::Rem
        | ArithKind::Minimum
        | ArithKind::Maximum
        | ArithKind::And
        | ArithKind::Or
        | ArithKind::Shr
        | ArithKind::Select
        | ArithKind::Exp
        | ArithKind::Compare(_)
        | ArithKind::Other => None,
    }
}

/// Widening keeps the value; narrowing might not.
pub fn cast(all: &Polynomials, func: &Func, value: Value, to: DType) -> Option<Polynomial> {
    let from = func.ty(value).dtype;
    let ((low, high), (to_low, to_high)) = (from.range(), to.range());
    let is_widening = from.is_integer() && to_low <= low && to_high >= high;
    is_widening.then(|| all.get(value))
}
