//! Bounds of polynomials by inequalities: what varies is eliminated, ramps and variables by what bounds them, program ids by the
//! grid, until the bound is over what is known at launch. What that takes of arguments is collected as facts.

use super::polynomial::{Atom, LoopBounds, Polynomial, Polynomials};
use crate::ir::guard::{Guard, Symbol, irredundant};
use crate::ir::{Func, ParamKind, Value};
use crate::support::dtype::DType;

/// `small <= big` wherever the access happens.
#[derive(Clone, PartialEq, Debug)]
pub struct Inequality {
    pub small: Polynomial,
    pub big: Polynomial,
}

impl Inequality {
    /// Whether it follows from another one, by a number alone.
    fn follows_from(&self, other: &Inequality) -> bool {
        let room = |one: &Inequality| one.big.sub(&one.small);
        room(self).sub(&room(other)).as_constant().is_some_and(|more| more >= 0)
    }
}

/// The inequalities without those that follow from another one: what is bounded is bounded by the first that does it.
pub fn tightest(all: Vec<Inequality>) -> Vec<Inequality> {
    irredundant(all, Inequality::follows_from)
}

/// Eliminations that are tried for one bound before it counts as unknown.
const MAX_STEPS: usize = 256;

/// Finds bounds that hold given `facts`, which it collects as it needs them.
pub struct BoundSearch<'a> {
    pub known: &'a [Inequality],
    func: &'a Func,
    polynomials: &'a Polynomials,
    pub facts: Vec<Guard>,
    /// How many more eliminations may be tried: the ends of loops refer to those of the loops around them.
    steps: usize,
    /// Whether ends that may be far off serve: they show that a sum does not wrap.
    loose: bool,
}

impl<'a> BoundSearch<'a> {
    /// Bounds that use no mask.
    pub fn unmasked(func: &'a Func, polynomials: &'a Polynomials) -> BoundSearch<'a> {
        BoundSearch { known: &[], func, polynomials, facts: vec![], steps: MAX_STEPS, loose: false }
    }

    /// One elimination more, of a polynomial that is small enough to go on with.
    fn step(&mut self, value: &Polynomial) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        value.is_small().then_some(())
    }

    /// Shows, with facts where needed, that computing `value` in 64 bits does not wrap.
    pub fn fits(&mut self, value: &Polynomial) -> Option<()> {
        let alone = value.terms().all(|(atoms, c)| atoms.len() <= 1 && c == 1) && value.terms().count() <= 1;
        let magnitudes = value.magnitudes();
        let limit = i128::from(i64::MAX);
        if alone || self.most(&magnitudes).is_some_and(|most| most <= limit) {
            return Some(());
        }
        self.not_negative(&magnitudes)?;
        let top = self.upper(magnitudes)?;
        self.at_most(&top, &Polynomial::constant(limit))
    }

    /// What the types of its atoms bound a polynomial by, of which no coefficient is negative.
    fn most(&self, magnitudes: &Polynomial) -> Option<i128> {
        magnitudes.terms().try_fold(0i128, |sum, (atoms, c)| {
            let product = atoms.iter().try_fold(c, |product, &atom| product.checked_mul(self.largest(atom)));
            sum.checked_add(product?)
        })
    }

    /// The largest magnitude of an atom, by its type.
    fn largest(&self, atom: Atom) -> i128 {
        let of = |dtype: DType| {
            let (low, high) = dtype.range();
            high.max(-low)
        };
        match atom {
            // A quotient is no larger than what it is of.
            Atom::Known(Symbol::Scalar(param) | Symbol::CeilDiv { scalar: param, .. }) => {
                match self.func.params[param as usize].kind {
                    ParamKind::Scalar { dtype, .. } => of(dtype),
                    ParamKind::Slice { .. } => i128::MAX,
                }
            }
            Atom::Known(Symbol::Length(_)) => of(DType::I64),
            Atom::Known(Symbol::Grid(_)) | Atom::Program(_) => of(DType::I32),
            Atom::Range { extent, .. } => i128::from(extent),
            Atom::Loop(value, _) | Atom::Opaque(value, _) => of(self.func.ty(value).dtype),
        }
    }

    /// A polynomial over what is known at launch that `value` never exceeds.
    pub fn upper(&mut self, value: Polynomial) -> Option<Polynomial> {
        let mut value = value;
        self.step(&value)?;
        for inequality in self.known {
            if let Some(lower) = self.apply(&value, inequality) {
                value = lower;
            }
        }
        while let Some(atom) = value.varying() {
            self.step(&value)?;
            let (quotient, rest) = value.split(atom);
            if quotient.varying().is_some() {
                return None;
            }
            let (low, high) = self.range(atom)?;
            let extreme = match quotient.as_constant() {
                Some(factor) if factor < 0 => low?,
                Some(_) => high?,
                None if quotient.terms().all(|(_, c)| c < 0) => {
                    self.not_negative(&quotient.scale(-1))?;
                    low?
                }
                None => {
                    self.not_negative(&quotient)?;
                    high?
                }
            };
            value = quotient.mul(&extreme).add(&rest);
        }
        Some(value)
    }

    /// Shows that `value` is at least 0, be it that what varies is taken off. Where arguments alone would have to make up
    /// for what is taken off (`0 <= n - 3`), a mask may say it of each element, and of every launch.
    pub fn least_not_negative(&mut self, value: &Polynomial) -> Option<()> {
        let checkpoint = self.facts.len();
        let direct = self.not_negative(value).map(|()| self.facts.split_off(checkpoint));
        self.facts.truncate(checkpoint);
        let takes_off = |value: &Polynomial| value.terms().any(|(_, coefficient)| coefficient < 0);
        let least = if direct.is_some() && !takes_off(value) {
            None
        } else {
            let least = self.upper(value.scale(-1)).map(|most| most.scale(-1));
            least.filter(|least| direct.is_none() || !takes_off(least))
        };
        let through = least.and_then(|least| self.not_negative(&least));
        if through.is_none() {
            self.facts.truncate(checkpoint);
            self.facts.extend(direct?);
        }
        Some(())
    }

    /// `value` at the last of its elements that a mask lets through: over what is the same for every element.
    pub fn last(&mut self, value: Polynomial, masks: &[Inequality]) -> Option<Polynomial> {
        let mut value = value;
        for inequality in masks {
            let atoms = || inequality.small.all_varying().into_iter().chain(inequality.big.all_varying());
            let known = |atom| matches!(atom, Atom::Range { .. } | Atom::Program(_));
            let ramps =
                inequality.small.all_varying().into_iter().any(|atom| matches!(atom, Atom::Range { .. }));
            if ramps && atoms().all(known) {
                value = self.apply(&value, inequality).unwrap_or(value);
            }
        }
        value.without_ramps(|extent| Polynomial::constant(i128::from(extent) - 1))
    }

    /// `value` with what `inequality` bounds replaced by its bound, where that removes something that varies.
    fn apply(&mut self, value: &Polynomial, inequality: &Inequality) -> Option<Polynomial> {
        let bounded = inequality.small.sub(&inequality.big);
        for atom in inequality.small.all_varying().into_iter().chain(inequality.big.all_varying()) {
            // small - big = unit * atom + .. <= 0, so value <= value - times * (small - big) for times of at least 0.
            let unit = bounded.split(atom).0.as_constant();
            let Some(times) = unit.and_then(|unit| value.split(atom).0.divided(unit)) else { continue };
            // A number that is taken off everywhere could be no less than 0 only by being 0.
            if times.terms().all(|(_, c)| c < 0) || times.varying().is_some() {
                continue;
            }
            let checkpoint = self.facts.len();
            if self.not_negative(&times).is_none() {
                self.facts.truncate(checkpoint);
                continue;
            }
            return Some(value.sub(&times.mul(&bounded))).filter(Polynomial::is_small);
        }
        None
    }

    /// The least and greatest value of what varies, as polynomials over what is known at launch; each only where it is one.
    fn range(&mut self, atom: Atom) -> Option<(Option<Polynomial>, Option<Polynomial>)> {
        let below = |high: Polynomial| high.sub(&Polynomial::constant(1));
        match atom {
            Atom::Range { extent, .. } => {
                Some((Some(Polynomial::default()), Some(Polynomial::constant(i128::from(extent) - 1))))
            }
            Atom::Program(axis) => {
                let extent = Polynomial::atom(Atom::Known(Symbol::Grid(axis)));
                Some((Some(Polynomial::default()), Some(below(extent))))
            }
            Atom::Loop(variable, _) => {
                let ends = self.polynomials.loops.get(&variable)?.clone();
                if ends.if_any {
                    self.at_most(&ends.low.add(&Polynomial::constant(1)), &ends.high)?;
                }
                self.ends_fit(variable, &ends)?;
                let low = ends.low.varying().is_none().then(|| ends.low.clone());
                let known = !ends.loose || self.loose;
                let high = if known { Some(self.upper(below(ends.high))?) } else { None };
                Some((low, high))
            }
            Atom::Opaque(..) => None,
            Atom::Known(_) => Some((Some(Polynomial::atom(atom)), Some(Polynomial::atom(atom)))),
        }
    }

    /// Shows, with facts where needed, that the ends of a loop are what their polynomials say: a kernel computes them in the
    /// variable's type, where they wrap. One that is a number or an argument does not; a start that does not pass the
    /// type's largest value is no less than it says, an end that does not pass the smallest one no more.
    fn ends_fit(&mut self, variable: Value, ends: &LoopBounds) -> Option<()> {
        self.step(&ends.low)?;
        if let Some(dividend) = &ends.dividend {
            self.is_natural(variable, dividend)?;
        }
        if let Some(divisor) = &ends.divisor {
            self.is_positive(variable, divisor)?;
        }
        if ends.loose {
            return Some(());
        }
        let (smallest, largest) = self.func.ty(variable).dtype.range();
        let fits = |end: &Polynomial| match end.as_constant() {
            Some(number) => (smallest..=largest).contains(&number),
            None => end.terms().count() == 1 && end.terms().all(|(atoms, c)| atoms.len() == 1 && c == 1),
        };
        if !fits(&ends.low) {
            let top = self.upper(ends.low.clone())?;
            self.at_most(&top, &Polynomial::constant(largest))?;
        }
        let smallest = Polynomial::constant(smallest);
        match ends.high.varying() {
            _ if fits(&ends.high) => {}
            None => self.at_most(&smallest, &ends.high)?,
            Some(_) => self.least_not_negative(&ends.high.sub(&smallest))?,
        }
        Some(())
    }

    /// Shows that `dividend`, computed in the type of `variable`, is what it says and not negative, of each element: a mask of
    /// others, on other axes perhaps, tells nothing of it.
    pub fn is_natural(&mut self, variable: Value, dividend: &Polynomial) -> Option<()> {
        self.of_each(|bound| {
            bound.least_not_negative(dividend)?;
            bound.fits_in(variable, dividend)
        })
    }

    /// The same of a number that is at least 1.
    pub fn is_positive(&mut self, variable: Value, value: &Polynomial) -> Option<()> {
        self.of_each(|bound| bound.positive(variable, value))
    }

    /// Shows something of every element, whatever masks say.
    fn of_each(&mut self, shown: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (known, loose) = (std::mem::take(&mut self.known), std::mem::replace(&mut self.loose, true));
        let result = shown(self);
        (self.known, self.loose) = (known, loose);
        result
    }

    fn fits_in(&mut self, variable: Value, value: &Polynomial) -> Option<()> {
        let (_, largest) = self.func.ty(variable).dtype.range();
        let top = self.upper(value.clone())?;
        self.at_most(&top, &Polynomial::constant(largest))
    }

    fn positive(&mut self, variable: Value, value: &Polynomial) -> Option<()> {
        self.step(value)?;
        if let Some(Atom::Opaque(smaller, _)) = value.as_atom()
            && let Some(both) = self.polynomials.least_of(smaller)
        {
            return both.iter().try_for_each(|one| self.positive(variable, one));
        }
        let one = Polynomial::constant(1);
        if value.varying().is_none() {
            self.at_most(&one, value)?;
        } else {
            let checkpoint = self.facts.len();
            if self.leaves_some(value).is_none() {
                self.facts.truncate(checkpoint);
                self.least_not_negative(&value.sub(&one))?;
            }
        }
        self.fits_in(variable, value)
    }

    /// Shows that a multiple of a quotient is less than what it is taken from: `rest - by * (x / (by * d))` is at least 1 where
    /// `x < d * rest`. So it is of the blocks that are left for the last one of groups.
    fn leaves_some(&mut self, value: &Polynomial) -> Option<()> {
        let atom = value.varying()?;
        let Atom::Loop(quotient, _) = atom else { return None };
        let ends = self.polynomials.loops.get(&quotient)?.clone();
        let (factor, rest) = value.split(atom);
        let by = factor.as_constant().filter(|&factor| factor < 0)?.checked_neg()?;
        let each = ends.divisor.as_ref()?.divided(by)?;
        if [&rest, &each].into_iter().any(|number| number.varying().is_some()) {
            return None;
        }
        self.ends_fit(quotient, &ends)?;
        let beyond = self.upper(ends.high)?;
        self.at_most(&beyond, &each.mul(&rest))
    }

    /// Shows, with facts about arguments where needed, that `value` is at least 0: every term is a product of things
    /// that are, or what is known at launch makes up for the terms that are taken off.
    pub fn not_negative(&mut self, value: &Polynomial) -> Option<()> {
        let terms: Vec<(Vec<Atom>, i128)> = value.terms().map(|(atoms, c)| (atoms.to_vec(), c)).collect();
        let is_known = |atoms: &[Atom]| atoms.iter().all(|atom| matches!(atom, Atom::Known(_)));
        let takes_off = terms.iter().any(|(_, coefficient)| *coefficient < 0);
        let (mut least, mut most) = (Polynomial::default(), Polynomial::default());
        for (atoms, coefficient) in terms {
            if takes_off && is_known(&atoms) {
                let factor = Polynomial::constant(coefficient.abs());
                let term = atoms.iter().fold(factor, |term, &atom| term.mul(&Polynomial::atom(atom)));
                let side = if coefficient < 0 { &mut least } else { &mut most };
                *side = side.add(&term);
                continue;
            }
            if coefficient < 0 {
                return None;
            }
            for atom in atoms {
                self.atom_not_negative(atom)?;
            }
        }
        if takes_off { self.at_most(&least, &most) } else { Some(()) }
    }

    fn atom_not_negative(&mut self, atom: Atom) -> Option<()> {
        match atom {
            Atom::Known(Symbol::Grid(_) | Symbol::Length(_)) | Atom::Program(_) | Atom::Range { .. } => {
                Some(())
            }
            Atom::Known(Symbol::Scalar(_) | Symbol::CeilDiv { .. }) => {
                self.at_most(&Polynomial::default(), &Polynomial::atom(atom))
            }
            Atom::Loop(variable, _) => {
                let ends = self.polynomials.loops.get(&variable)?.clone();
                if ends.if_any {
                    self.at_most(&ends.low.add(&Polynomial::constant(1)), &ends.high)?;
                }
                self.ends_fit(variable, &ends)?;
                self.not_negative(&ends.low)
            }
            Atom::Opaque(value, _) => {
                (self.func.ty(value).dtype.range().0 >= 0 || self.polynomials.has_floor(value)).then_some(())
            }
        }
    }

    /// Adds the fact `low <= high`, unless it is plain, by the types if not by the numbers.
    pub fn at_most(&mut self, low: &Polynomial, high: &Polynomial) -> Option<()> {
        if let (Some(low), Some(high)) = (low.as_constant(), high.as_constant()) {
            return (low <= high).then_some(());
        }
        if let Some(limit) = high.as_constant()
            && self.most(&low.magnitudes()).is_some_and(|most| most <= limit)
        {
            return Some(());
        }
        let fact = Guard::AtMost { low: low.to_sum()?, high: high.to_sum()? };
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
        Some(())
    }
}
