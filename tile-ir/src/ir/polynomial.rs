//! Index arithmetic as polynomials with exact integer coefficients.
//!
//! An element of an integer tile is a polynomial over atoms: symbols known at launch (arguments, lengths, the grid), what
//! varies over programs and elements (program ids, ranges), and opaque values. Arithmetic is that of the integers: the tile
//! IR's offsets do not wrap (see [`crate::transform::legalize_index`]).

use std::collections::BTreeMap;

use crate::ir::guard::{Symbol, SymbolProduct, SymbolicSum};
use crate::ir::{Func, MAX_RANK, Shape, Value};

/// A variable of polynomials.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// Known at launch.
    Known(Symbol),
    /// The program's index along a grid axis: 0 up to the grid's extent.
    Program(u8),
    /// A range (`arange`) of the given extent from 0 along an axis of the tile.
    Range { axis: usize, extent: u32 },
    /// A loop variable, or a clamped value, a remainder or a quotient, scalar or tile: it has ends, which the analysis knows.
    Loop(Value, Placement),
    /// An integer that nothing is known of, uniform or not.
    Opaque(Value, Placement),
}

/// The axes of the tile that the axes of a value are: moves of elements permute them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Placement([u8; MAX_RANK]);

impl Placement {
    /// Those of the value itself, and of any scalar.
    pub const OWN: Placement = Placement([0, 1, 2, 3, 4]);

    /// The axis of the tile that an axis of the value is.
    pub fn axis(self, own: usize) -> usize {
        self.0[own].into()
    }

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

    /// Divides by a polynomial with a constant rest: `self = divisor * quotient + rest`. The rest is that of the Euclidean division
    /// where the divisor is a constant.
    pub fn divided_by(&self, divisor: &Polynomial) -> Option<(Polynomial, i128)> {
        let (lead, by) = divisor.leading()?;
        let (mut quotient, mut rest) = (Polynomial::default(), self.clone());
        // Each turn the leading monomial of the rest gets smaller.
        while rest.as_constant().is_none() {
            let (atoms, coefficient) = rest.leading()?;
            let term = Polynomial::term(without(atoms, lead)?, coefficient / by);
            if coefficient % by != 0 || !rest.is_small() {
                return None;
            }
            rest = rest.sub(&term.mul(divisor));
            quotient = quotient.add(&term);
        }
        let rest = rest.as_constant()?;
        match divisor.as_constant() {
            Some(by) if by > 0 => {
                Some((quotient.add(&Polynomial::constant(rest.div_euclid(by))), rest.rem_euclid(by)))
            }
            Some(_) => None,
            None => Some((quotient, rest)),
        }
    }

    /// `ceil(self / divisor)` of products of a positive constant, arguments and extents of the grid.
    pub fn ceil_div(&self, divisor: &Polynomial) -> Option<Polynomial> {
        let (of, by) = (self.as_product()?, divisor.as_product()?);
        Some(Polynomial::atom(Atom::Known(Symbol::CeilDiv { of, by })))
    }

    /// `ceil(self / divisor)` of an argument by another one or by a positive constant.
    pub fn ceil_div_of_arguments(&self, divisor: &Polynomial) -> Option<Polynomial> {
        self.are_arguments(divisor).then(|| self.ceil_div(divisor))?
    }

    /// `self / divisor`, rounded down, of an argument by another one or by a positive constant.
    pub fn div_of_arguments(&self, divisor: &Polynomial) -> Option<Polynomial> {
        let (of, by) = (self.as_product()?, divisor.as_product()?);
        self.are_arguments(divisor).then(|| Polynomial::atom(Atom::Known(Symbol::Div { of, by })))
    }

    /// Whether this is an argument, and the divisor another one or a constant: what is computed might wrap.
    fn are_arguments(&self, divisor: &Polynomial) -> bool {
        let is_argument =
            |value: &Polynomial| matches!(value.as_atom(), Some(Atom::Known(Symbol::Scalar(_))));
        is_argument(self) && (is_argument(divisor) || divisor.as_constant().is_some())
    }

    fn as_product(&self) -> Option<SymbolProduct> {
        let mut terms = self.terms();
        let ((factors, constant), None) = (terms.next()?, terms.next()) else { return None };
        let known =
            factors.iter().map(|atom| if let Atom::Known(symbol) = atom { Some(*symbol) } else { None });
        let constant = u32::try_from(constant).ok().filter(|&constant| constant > 0)?;
        SymbolProduct::new(constant, &known.collect::<Option<Vec<_>>>()?)
    }

    /// The term of the largest monomial, by degree first: an order that products keep.
    fn leading(&self) -> Option<(&[Atom], i128)> {
        self.terms().max_by_key(|&(atoms, _)| (atoms.len(), atoms))
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

/// A product of atoms divided by another product, if that is a part of it.
fn without(atoms: &[Atom], part: &[Atom]) -> Option<Vec<Atom>> {
    let mut rest = atoms.to_vec();
    for atom in part {
        rest.remove(rest.iter().position(|other| other == atom)?);
    }
    Some(rest)
}

/// What the rule of an operation asks of the analysis that applies it.
pub trait PolynomialEnv {
    fn polynomial(&self, value: Value) -> Polynomial;
}
