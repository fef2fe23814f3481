//! Bounds of polynomials by inequalities: a search eliminates what varies, ranges and variables by what bounds them, program ids
//! by the grid, until the bound is over symbols known at launch. What it needs of arguments it collects as guards.

use std::collections::HashMap;

use super::polynomial::{LoopBounds, Polynomials};
use crate::ir::guard::{Guard, Symbol, irredundant};
use crate::ir::polynomial::{Atom, Polynomial};
use crate::ir::{Func, ParamKind, Value};
use crate::support::dtype::DType;

/// `small <= big` wherever the access happens.
#[derive(Clone, PartialEq, Debug)]
pub struct Inequality {
    pub small: Polynomial,
    pub big: Polynomial,
}

impl Inequality {
    /// Whether another one implies it, by a constant alone.
    fn implied_by(&self, other: &Inequality) -> bool {
        let slack = |one: &Inequality| one.big.sub(&one.small);
        slack(self).sub(&slack(other)).as_constant().is_some_and(|more| more >= 0)
    }
}

/// The inequalities without those that another one implies: each atom is bounded by the first that bounds it.
pub fn tightest(all: Vec<Inequality>) -> Vec<Inequality> {
    irredundant(all, Inequality::implied_by)
}

/// Eliminations that are tried for one bound before it counts as unknown.
const MAX_STEPS: usize = 256;

/// Finds bounds that hold given `guards`, which it collects as it needs them.
pub struct BoundSearch<'a> {
    pub known: &'a [Inequality],
    func: &'a Func,
    polynomials: &'a Polynomials,
    pub guards: Vec<Guard>,
    /// How many more eliminations may be tried: the ends of loops refer to those of the loops around them.
    steps: usize,
    /// Whether loose ends count: they show that a sum does not wrap.
    loose: bool,
    /// The guards under which the operands of quotients and remainders are as their ends need them; `None` where that is unknown.
    operands: HashMap<Value, Option<Vec<Guard>>>,
}

impl<'a> BoundSearch<'a> {
    /// Bounds that use no mask.
    pub fn unmasked(func: &'a Func, polynomials: &'a Polynomials) -> BoundSearch<'a> {
        let operands = HashMap::new();
        BoundSearch {
            known: &[],
            func,
            polynomials,
            guards: vec![],
            steps: MAX_STEPS,
            loose: false,
            operands,
        }
    }

    /// One elimination more, of a polynomial that is small enough to go on with.
    fn step(&mut self, value: &Polynomial) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        value.is_small().then_some(())
    }

    /// Proves, with guards where needed, that computing `value` in 64 bits does not wrap.
    pub fn fits(&mut self, value: &Polynomial) -> Option<()> {
        let single_atom =
            value.terms().all(|(atoms, c)| atoms.len() <= 1 && c == 1) && value.terms().count() <= 1;
        let magnitudes = value.magnitudes();
        let limit = i128::from(i64::MAX);
        if single_atom || self.most(&magnitudes).is_some_and(|most| most <= limit) {
            return Some(());
        }
        self.not_negative(&magnitudes)?;
        let top = self.upper(magnitudes)?;
        self.at_most(&top, &Polynomial::constant(limit))
    }

    /// The bound that the types of its atoms imply for a polynomial without negative coefficients.
    fn most(&self, magnitudes: &Polynomial) -> Option<i128> {
        magnitudes.terms().try_fold(0i128, |sum, (atoms, c)| {
            let product = atoms.iter().try_fold(c, |product, &atom| product.checked_mul(self.largest(atom)));
            sum.checked_add(product?)
        })
    }

    /// The largest magnitude of an atom, by its type.
    fn largest(&self, atom: Atom) -> i128 {
        let magnitude_of = |dtype: DType| {
            let (low, high) = dtype.range();
            high.max(-low)
        };
        match atom {
            Atom::Known(Symbol::Scalar(param)) => match self.func.params[param as usize].kind {
                ParamKind::Scalar { dtype, .. } => magnitude_of(dtype),
                ParamKind::Slice { .. } => i128::MAX,
            },
            // A quotient is no larger than its dividend.
            Atom::Known(Symbol::CeilDiv { of, .. } | Symbol::Div { of, .. }) => of
                .symbols()
                .map(|symbol| self.largest(Atom::Known(symbol)))
                .fold(of.constant.into(), i128::saturating_mul),
            Atom::Known(Symbol::Length(_)) => magnitude_of(DType::I64),
            Atom::Known(Symbol::Grid(_)) | Atom::Program(_) => magnitude_of(DType::I32),
            Atom::Range { extent, .. } => i128::from(extent),
            Atom::Loop(value, _) | Atom::Opaque(value, _) => magnitude_of(self.func.ty(value).dtype),
        }
    }

    /// A polynomial over what is known at launch that `value` never exceeds.
    pub fn upper(&mut self, value: Polynomial) -> Option<Polynomial> {
        let mut value = value;
        self.step(&value)?;
        // What bounds one atom by another may come behind what bounds the other.
        for _ in self.known {
            let mut is_lower = false;
            for inequality in self.known {
                if let Some(lower) = self.apply(&value, inequality) {
                    (value, is_lower) = (lower, true);
                }
            }
            if !is_lower || value.varying().is_none() {
                break;
            }
        }
        loop {
            value = self.polynomials.at_launch(value);
            let Some(atom) = value.varying() else { break };
            self.step(&value)?;
            let (quotient, rest) = value.split(atom);
            if quotient.varying().is_some() {
                return None;
            }
            let (low, high) = self.range(atom)?;
            let extreme = match quotient.as_constant() {
                Some(coefficient) if coefficient < 0 => low?,
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

    /// Proves that `value` is at least 0, also where what varies is subtracted. Where arguments alone would have to outweigh
    /// the subtracted terms (`0 <= n - 3`), a mask may prove it of each element, and of every launch.
    pub fn lower_bound_not_negative(&mut self, value: &Polynomial) -> Option<()> {
        let checkpoint = self.guards.len();
        let direct = self.not_negative(value).map(|()| self.guards.split_off(checkpoint));
        self.guards.truncate(checkpoint);
        let subtracts = |value: &Polynomial| value.terms().any(|(_, coefficient)| coefficient < 0);
        let least = if direct.is_some() && !subtracts(value) {
            None
        } else {
            let least = self.upper(value.scale(-1)).map(|most| most.scale(-1));
            least.filter(|least| direct.is_none() || !subtracts(least))
        };
        let through = least.and_then(|least| self.not_negative(&least));
        if through.is_none() {
            self.guards.truncate(checkpoint);
            self.guards.extend(direct?);
        }
        Some(())
    }

    /// `value` at the last element that a mask lets through: over what is uniform.
    pub fn last(&mut self, value: Polynomial, masks: &[Inequality]) -> Option<Polynomial> {
        let mut value = value;
        for inequality in masks {
            let atoms = || inequality.small.all_varying().into_iter().chain(inequality.big.all_varying());
            let known = |atom| matches!(atom, Atom::Range { .. } | Atom::Program(_));
            let has_range =
                inequality.small.all_varying().into_iter().any(|atom| matches!(atom, Atom::Range { .. }));
            if has_range && atoms().all(known) {
                value = self.apply(&value, inequality).unwrap_or(value);
            }
        }
        value.without_ranges(|extent| Polynomial::constant(i128::from(extent) - 1))
    }

    /// `value` with an atom of `inequality` replaced by its bound, where that eliminates something that varies.
    fn apply(&mut self, value: &Polynomial, inequality: &Inequality) -> Option<Polynomial> {
        let bounded = inequality.small.sub(&inequality.big);
        for atom in inequality.small.all_varying().into_iter().chain(inequality.big.all_varying()) {
            // small - big = unit * atom + .. <= 0, so value <= value - times * (small - big) for times of at least 0.
            let unit = bounded.split(atom).0.as_constant();
            let Some(times) = unit.and_then(|unit| value.split(atom).0.divided(unit)) else { continue };
            // A multiplier whose terms are all negative could be at least 0 only by being 0.
            if times.terms().all(|(_, c)| c < 0) || times.varying().is_some() {
                continue;
            }
            let checkpoint = self.guards.len();
            if self.not_negative(&times).is_none() {
                self.guards.truncate(checkpoint);
                continue;
            }
            return Some(value.sub(&times.mul(&bounded))).filter(Polynomial::is_small);
        }
        None
    }

    /// The least and greatest value of an atom, as polynomials over symbols known at launch, where they are.
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
            Atom::Loop(variable, placement) => {
                let ends = self.polynomials.loops.get(&variable)?.clone();
                if ends.if_not_empty {
                    self.at_most(&ends.low.add(&Polynomial::constant(1)), &ends.high)?;
                }
                self.ends_fit(variable, &ends)?;
                let low = ends.low.varying().is_none().then(|| ends.low.clone());
                let (checkpoint, known) = (self.guards.len(), !ends.loose || self.loose);
                // Masks are on the axes where the variable is now.
                let high = ends.high.moved(self.func, |axis| Some(placement.axis(axis)));
                let end = high.and_then(|high| self.upper(high));
                let high = end.and_then(|end| ends.largest_quotient(&end).or(known.then(|| below(end))));
                if high.is_none() {
                    self.guards.truncate(checkpoint);
                }
                if high.is_none() && known { None } else { Some((low, high)) }
            }
            Atom::Opaque(..) => None,
            Atom::Known(_) => Some((Some(Polynomial::atom(atom)), Some(Polynomial::atom(atom)))),
        }
    }

    /// Proves, with guards where needed, that the ends of a loop equal their polynomials: a kernel computes them in the
    /// variable's type, where they wrap. A constant or an argument does not; a start that does not exceed the type's largest
    /// value is no less than its polynomial, an end that does not fall below the smallest one no more.
    fn ends_fit(&mut self, variable: Value, ends: &LoopBounds) -> Option<()> {
        self.step(&ends.low)?;
        self.operands_fit(variable, ends)?;
        if ends.loose {
            return Some(());
        }
        let (smallest, largest) = self.func.ty(variable).dtype.range();
        let fits = |end: &Polynomial| match end.as_constant() {
            Some(constant) => (smallest..=largest).contains(&constant),
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
            Some(_) => self.lower_bound_not_negative(&ends.high.sub(&smallest))?,
        }
        Some(())
    }

    /// Proves what the ends of a quotient, a remainder or a minimum need of its operands. No mask counts, so that it is proven once.
    fn operands_fit(&mut self, variable: Value, ends: &LoopBounds) -> Option<()> {
        if !self.operands.contains_key(&variable) {
            let guards = std::mem::take(&mut self.guards);
            let dividend = ends.dividend.as_ref().map_or(Some(()), |it| self.is_non_negative(variable, it));
            let divisor = |bound: &mut Self| {
                ends.divisor.as_ref().map_or(Some(()), |it| bound.is_positive(variable, it))
            };
            let fit = dividend.and_then(|()| divisor(self));
            let needed = std::mem::replace(&mut self.guards, guards);
            self.operands.insert(variable, fit.map(|()| needed));
        }
        for guard in self.operands[&variable].clone()? {
            if !self.guards.contains(&guard) {
                self.guards.push(guard);
            }
        }
        Some(())
    }

    /// Proves that `dividend`, computed in the type of `variable`, does not wrap and is not negative, for each element: masks of
    /// other values, on other axes perhaps, do not count.
    pub fn is_non_negative(&mut self, variable: Value, dividend: &Polynomial) -> Option<()> {
        self.unmasked_and_loose(|bound| {
            bound.lower_bound_not_negative(dividend)?;
            bound.fits_in(variable, dividend)
        })
    }

    /// The same of a value that is at least 1.
    pub fn is_positive(&mut self, variable: Value, value: &Polynomial) -> Option<()> {
        self.unmasked_and_loose(|bound| bound.positive(variable, value))
    }

    /// Proves something of every element, whatever masks say.
    fn unmasked_and_loose(&mut self, proof: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (known, loose) = (std::mem::take(&mut self.known), std::mem::replace(&mut self.loose, true));
        let result = proof(self);
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
        if let Some(Atom::Opaque(smaller, _) | Atom::Loop(smaller, _)) = value.as_atom()
            && let Some(both) = self.polynomials.minimum_of(smaller)
        {
            return both.iter().try_for_each(|one| self.positive(variable, one));
        }
        let one = Polynomial::constant(1);
        if value.varying().is_none() {
            self.at_most(&one, value)?;
        } else {
            let checkpoint = self.guards.len();
            if self.remainder_is_positive(value).is_none() {
                self.guards.truncate(checkpoint);
                self.lower_bound_not_negative(&value.sub(&one))?;
            }
        }
        self.fits_in(variable, value)
    }

    /// Proves that a multiple of a quotient is less than what it is subtracted from: `rest - by * (x / (by * d))` is at least 1
    /// where `x < d * rest`. The number of blocks in the last group of a grouped program order has this form.
    fn remainder_is_positive(&mut self, value: &Polynomial) -> Option<()> {
        let atom = value.varying()?;
        let Atom::Loop(quotient, _) = atom else { return None };
        let ends = self.polynomials.loops.get(&quotient)?.clone();
        let (coefficient, rest) = value.split(atom);
        let by = coefficient.as_constant().filter(|&coefficient| coefficient < 0)?.checked_neg()?;
        let each = ends.divisor.as_ref()?.divided(by)?;
        if [&rest, &each].into_iter().any(|value| value.varying().is_some()) {
            return None;
        }
        self.ends_fit(quotient, &ends)?;
        let end = self.upper(ends.high)?;
        self.at_most(&end, &each.mul(&rest))
    }

    /// Proves, with guards of arguments where needed, that `value` is at least 0: every term is a product of atoms that are, or
    /// the terms known at launch outweigh the subtracted ones.
    pub fn not_negative(&mut self, value: &Polynomial) -> Option<()> {
        let terms: Vec<(Vec<Atom>, i128)> = value.terms().map(|(atoms, c)| (atoms.to_vec(), c)).collect();
        let is_known = |atoms: &[Atom]| atoms.iter().all(|atom| matches!(atom, Atom::Known(_)));
        let subtracts = terms.iter().any(|(_, coefficient)| *coefficient < 0);
        let (mut least, mut most) = (Polynomial::default(), Polynomial::default());
        for (atoms, coefficient) in terms {
            if subtracts && is_known(&atoms) {
                let magnitude = Polynomial::constant(coefficient.abs());
                let term = atoms.iter().fold(magnitude, |term, &atom| term.mul(&Polynomial::atom(atom)));
                let sum = if coefficient < 0 { &mut least } else { &mut most };
                *sum = sum.add(&term);
                continue;
            }
            if coefficient < 0 {
                return None;
            }
            for atom in atoms {
                self.atom_not_negative(atom)?;
            }
        }
        if subtracts { self.at_most(&least, &most) } else { Some(()) }
    }

    fn atom_not_negative(&mut self, atom: Atom) -> Option<()> {
        match atom {
            Atom::Known(Symbol::Grid(_) | Symbol::Length(_)) | Atom::Program(_) | Atom::Range { .. } => {
                Some(())
            }
            Atom::Known(Symbol::Scalar(_) | Symbol::CeilDiv { .. } | Symbol::Div { .. }) => {
                self.at_most(&Polynomial::default(), &Polynomial::atom(atom))
            }
            Atom::Loop(variable, _) => {
                let ends = self.polynomials.loops.get(&variable)?.clone();
                if ends.if_not_empty {
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

    /// Adds the guard `low <= high`, unless constants or types imply it. A guard that arguments meet by being 0 alone, as `pad <= 0`,
    /// is none: accesses that are compared serve any.
    pub fn at_most(&mut self, low: &Polynomial, high: &Polynomial) -> Option<()> {
        if let (Some(low), Some(high)) = (low.as_constant(), high.as_constant()) {
            return (low <= high).then_some(());
        }
        if let Some(limit) = high.as_constant()
            && self.most(&low.magnitudes()).is_some_and(|most| most <= limit)
        {
            return Some(());
        }
        if let (Some(Atom::Known(Symbol::Scalar(param))), Some(limit)) = (low.as_atom(), high.as_constant())
            && let ParamKind::Scalar { dtype, .. } = self.func.params[param as usize].kind
            && dtype.range().1 <= limit
        {
            return Some(());
        }
        if let Some(least) = low.as_constant()
            && self.most(&high.magnitudes()).is_some_and(|most| least <= -most)
        {
            return Some(());
        }
        // A grid has a program at least.
        let is_grid = |&atom: &Atom| matches!(atom, Atom::Known(Symbol::Grid(_)));
        let least = high.terms().map(|(atoms, c)| (c > 0 && atoms.iter().all(is_grid)).then_some(c));
        if let (Some(low), Some(least)) = (low.as_constant(), least.sum::<Option<i128>>())
            && low <= least
        {
            return Some(());
        }
        let is_sum = low.as_constant().is_none() && low.terms().all(|(_, coefficient)| coefficient > 0);
        if is_sum && high.as_constant().is_some_and(|limit| limit <= 0) {
            return None;
        }
        let guard = Guard::AtMost { low: low.to_sum()?, high: high.to_sum()? };
        if !self.guards.contains(&guard) {
            self.guards.push(guard);
        }
        Some(())
    }
}
