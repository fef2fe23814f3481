//! Which accesses stay inside their slice, and what the launcher must check so that they do.
//!
//! An access reads `offset` where its mask and the branches around it hold. Each gives inequalities between
//! polynomials. Eliminating what varies, ramps and loop variables by the inequality that bounds them, program ids by the
//! grid, leaves the largest offset as a polynomial over what is known at launch: one comparison with the length there
//! replaces one per element in the kernel.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::fact::{Fact, Symbol};
use super::polynomial::{Atom, LoopEnds, Placement, Polynomial, Polynomials};
use crate::dtype::DType;
use crate::ops::scalar::Algebra;
use crate::ops::{For, Kind, Place};
use crate::syntax::BinaryOp;
use crate::tile::{Block, Func, Op, ParamKind, Value};

/// `small <= big` wherever the access happens.
#[derive(Clone, PartialEq, Debug)]
struct Inequality {
    small: Polynomial,
    big: Polynomial,
}

impl Inequality {
    /// Whether it follows from another one, by a number alone.
    fn follows_from(&self, other: &Inequality) -> bool {
        let room = |one: &Inequality| one.big.sub(&one.small);
        room(self).sub(&room(other)).as_constant().is_some_and(|more| more >= 0)
    }
}

/// The inequalities without those that follow from another one: what is bounded is bounded by the first that does it.
fn tightest(all: Vec<Inequality>) -> Vec<Inequality> {
    let mut kept: Vec<Inequality> = vec![];
    for one in all {
        if !kept.iter().any(|other| one.follows_from(other)) {
            kept.retain(|other| !other.follows_from(&one));
            kept.push(one);
        }
    }
    kept
}

/// The most inequalities of one mask that are used: leaving one out loses knowledge, and nothing else.
const MAX_INEQUALITIES: usize = 32;

/// How an access stays inside its slice.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// It does if these hold.
    Launch(Vec<Fact>),
    /// Nothing is known: the kernel compares.
    Kernel,
}

/// The decision for every access of a function. Two accesses of one place share the weaker decision.
#[derive(Default, Debug)]
pub struct Decisions {
    decided: HashMap<Place, Decision>,
}

impl Decisions {
    pub fn analyse(func: &Func, polynomials: &Polynomials) -> Decisions {
        let mut walker = Walker::new(func, polynomials);
        walker.block(&func.body);
        Decisions { decided: walker.decided }
    }

    pub fn get(&self, place: &Place) -> Decision {
        self.decided.get(place).cloned().unwrap_or(Decision::Kernel)
    }
}

/// Which accesses of one slice never meet, given `facts`, whichever elements of theirs are taken.
pub struct Meetings<'f> {
    walker: Walker<'f>,
    facts: &'f [Fact],
}

impl<'f> Meetings<'f> {
    pub fn new(func: &'f Func, polynomials: &'f Polynomials, facts: &'f [Fact]) -> Meetings<'f> {
        Meetings { walker: Walker::new(func, polynomials), facts }
    }

    /// Whether two accesses never meet in the same turn of the loops around them: the first element of one comes after the last
    /// of the other.
    pub fn apart(&self, [a, b]: [&Place; 2]) -> bool {
        let Walker { func, polynomials, .. } = self.walker;
        let follows = |first: &Place, second: &Place| {
            let mut bound = Bound::unmasked(func, polynomials);
            let last = self.last(&mut bound, first, polynomials.of_place(first))?;
            let next = polynomials.of_place(second).without_ramps(|_| Polynomial::default())?;
            bound.not_negative(&next.sub(&last).sub(&Polynomial::constant(1)))?;
            self.known(&bound)
        };
        let uniform =
            |place| made_of(&polynomials.of_place(place), |value| func.ty(value).is_scalar(), |_| true);
        uniform(a) && uniform(b) && (follows(a, b).is_some() || follows(b, a).is_some())
    }

    /// Whether two accesses in the body of a `for` loop, or one with itself, never meet in different turns: from turn to turn
    /// both move on by more than their elements span.
    pub fn apart_in_turns(&self, op: &For, [a, b]: [&Place; 2]) -> bool {
        let Walker { func, polynomials, .. } = self.walker;
        let body = &op.body;
        let mut inner: HashSet<Value> = body.args.iter().copied().collect();
        body.walk(&mut |op| inner.extend(&op.results));
        let fixed = |value: Value| func.ty(value).is_scalar() && !inner.contains(&value);
        let split = |place| polynomials.of_place(place).split(Atom::Loop(body.args[0], Placement::OWN));
        let ((stride, rest_a), (stride_b, rest_b)) = (split(a), split(b));
        let same_stride =
            stride == stride_b && made_of(&stride, fixed, |atom| !matches!(atom, Atom::Ramp { .. }));
        if !same_stride || ![&rest_a, &rest_b].into_iter().all(|rest| made_of(rest, fixed, |_| true)) {
            return false;
        }
        // A step of the loop is at least one, and what spans something is at least one too.
        let step = polynomials.get(op.step).as_constant().unwrap_or(1).max(1);
        let stride = stride.scale(step);
        let moves_on = |far: &Place, far_rest: &Polynomial, near_rest: &Polynomial| {
            let mut bound = Bound::unmasked(func, polynomials);
            bound.fits(&polynomials.of_place(far))?;
            let last = self.last(&mut bound, far, far_rest.clone())?;
            let first = near_rest.without_ramps(|_| Polynomial::default())?;
            bound.not_negative(&stride.sub(&last.sub(&first)).sub(&Polynomial::constant(1)))?;
            self.known(&bound)
        };
        moves_on(a, &rest_a, &rest_b).is_some() && moves_on(b, &rest_b, &rest_a).is_some()
    }

    /// `offset` at the last element that the mask of `place` lets through.
    fn last(&self, bound: &mut Bound, place: &Place, offset: Polynomial) -> Option<Polynomial> {
        let masks = place.mask.map(|mask| self.walker.inequalities(mask));
        bound.last(offset, masks.as_deref().unwrap_or_default())
    }

    /// Whether all that was relied on is among the facts.
    fn known(&self, bound: &Bound) -> Option<()> {
        bound.facts.iter().all(|fact| self.facts.contains(fact)).then_some(())
    }
}

/// Whether all that varies in a polynomial is of one kind or the other: values, and the rest.
fn made_of(value: &Polynomial, values: impl Fn(Value) -> bool, others: impl Fn(Atom) -> bool) -> bool {
    value.all_varying().into_iter().all(|atom| match atom {
        Atom::Loop(value, _) | Atom::Opaque(value, _) => values(value),
        Atom::Known(_) | Atom::Program(_) | Atom::Ramp { .. } => others(atom),
    })
}

struct Walker<'f> {
    func: &'f Func,
    polynomials: &'f Polynomials,
    definitions: HashMap<Value, &'f Op>,
    /// What the branches around the current block say.
    path: Vec<Inequality>,
    decided: HashMap<Place, Decision>,
    /// What each mask says.
    masks: RefCell<HashMap<Value, Rc<[Inequality]>>>,
}

impl<'f> Walker<'f> {
    fn new(func: &'f Func, polynomials: &'f Polynomials) -> Walker<'f> {
        Walker {
            func,
            polynomials,
            definitions: func.definitions(),
            path: vec![],
            decided: HashMap::new(),
            masks: RefCell::default(),
        }
    }
}

impl Walker<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            if let Some(place) = op.kind.operation().place() {
                let decision = self.decide(place);
                let known = self.decided.entry(*place).or_insert_with(|| decision.clone());
                if decision == Decision::Kernel {
                    *known = decision;
                }
            }
            if let Kind::If(branch) = &op.kind {
                let depth = self.path.len();
                self.path.extend(self.inequalities(branch.condition).iter().cloned());
                self.block(&branch.then);
                self.path.truncate(depth);
                self.block(&branch.otherwise);
                continue;
            }
            for nested in op.kind.operation().blocks() {
                self.block(nested);
            }
        }
    }

    fn decide(&self, place: &Place) -> Decision {
        let mut known = self.path.clone();
        known.extend(place.mask.iter().flat_map(|&mask| self.inequalities(mask).to_vec()));
        let known = tightest(known);
        // Polynomials do not wrap and 64-bit arithmetic does: a comparison that is relied on must fit, by its range or by
        // a fact. An offset need not: one that lies in the slice is the same modulo 2^64.
        let offset = self.polynomials.get(place.offset);
        let fits = |inequality: &Inequality| {
            let mut bound = Bound::unmasked(self.func, self.polynomials);
            let sides = [&inequality.small, &inequality.big];
            sides.into_iter().try_for_each(|side| bound.fits(side)).is_some() && bound.facts.is_empty()
        };
        let (plain, checked): (Vec<Inequality>, Vec<Inequality>) = known.into_iter().partition(fits);
        self.inside(place, &offset, &plain, &[])
            .or_else(|| {
                let all: Vec<Inequality> = plain.iter().chain(&checked).cloned().collect();
                if checked.is_empty() { None } else { self.inside(place, &offset, &all, &checked) }
            })
            .map_or(Decision::Kernel, Decision::Launch)
    }

    /// Facts under which an access whose offsets obey `known` stays inside; `checked` are those that might wrap.
    fn inside(
        &self,
        place: &Place,
        offset: &Polynomial,
        known: &[Inequality],
        checked: &[Inequality],
    ) -> Option<Vec<Fact>> {
        let mut bound = Bound::unmasked(self.func, self.polynomials);
        for inequality in checked {
            bound.fits(&inequality.small)?;
            bound.fits(&inequality.big)?;
        }
        bound.known = known;
        let length = Polynomial::atom(Atom::Known(Symbol::Length(place.param.0)));
        bound.least_not_negative(offset)?;
        let top = bound.upper(offset.clone())?;
        bound.at_most(&top.add(&Polynomial::constant(1)), &length)?;
        Some(bound.facts)
    }

    /// What a mask says, as inequalities that hold where it is true.
    fn inequalities(&self, mask: Value) -> Rc<[Inequality]> {
        if let Some(known) = self.masks.borrow().get(&mask) {
            return known.clone();
        }
        let mut said: Vec<Inequality> = vec![];
        for inequality in self.said_by(mask) {
            if said.len() < MAX_INEQUALITIES && !said.contains(&inequality) {
                said.push(inequality);
            }
        }
        let said: Rc<[Inequality]> = said.into();
        self.masks.borrow_mut().insert(mask, said.clone());
        said
    }

    fn said_by(&self, mask: Value) -> Vec<Inequality> {
        let Some(Op { kind: definition, .. }) = self.definitions.get(&mask) else { return vec![] };
        match definition {
            Kind::Scalar(scalar) => match scalar.op.algebra {
                Algebra::And => scalar.args.iter().flat_map(|&arg| self.inequalities(arg).to_vec()).collect(),
                Algebra::Compare(op) if self.func.ty(scalar.args[0]).dtype.is_integer() => {
                    self.comparison(op, scalar.args[0], scalar.args[1])
                }
                _ => vec![],
            },
            other => {
                // A mask that was moved to other axes says the same about ramps on the new ones.
                let operation = other.operation();
                let (&[inner], Some(_)) = (operation.operands().as_slice(), operation.moves(self.func))
                else {
                    return vec![];
                };
                let inner = self.inequalities(inner);
                inner.iter().filter_map(|inequality| self.moved(inequality, other)).collect()
            }
        }
    }

    fn moved(&self, inequality: &Inequality, by: &Kind) -> Option<Inequality> {
        let axes = by.operation().moves(self.func)?;
        let axis = |old: usize| axes.get(old).copied().flatten();
        Some(Inequality {
            small: inequality.small.moved(self.func, axis)?,
            big: inequality.big.moved(self.func, axis)?,
        })
    }

    fn comparison(&self, op: BinaryOp, lhs: Value, rhs: Value) -> Vec<Inequality> {
        let (lhs, rhs) = (self.polynomials.get(lhs), self.polynomials.get(rhs));
        let one = Polynomial::constant(1);
        let at_most =
            |small: &Polynomial, big: &Polynomial| Inequality { small: small.clone(), big: big.clone() };
        match op {
            BinaryOp::Lt => vec![at_most(&lhs, &rhs.sub(&one))],
            BinaryOp::Le => vec![at_most(&lhs, &rhs)],
            BinaryOp::Gt => vec![at_most(&rhs, &lhs.sub(&one))],
            BinaryOp::Ge => vec![at_most(&rhs, &lhs)],
            BinaryOp::Eq => vec![at_most(&lhs, &rhs), at_most(&rhs, &lhs)],
            _ => vec![],
        }
    }
}

/// Eliminations that are tried for one bound before it counts as unknown.
const MAX_STEPS: usize = 256;

/// Finds bounds that hold given `facts`, which it collects as it needs them.
pub struct Bound<'a> {
    known: &'a [Inequality],
    func: &'a Func,
    polynomials: &'a Polynomials,
    pub facts: Vec<Fact>,
    /// How many more eliminations may be tried: the ends of loops refer to those of the loops around them.
    steps: usize,
}

impl<'a> Bound<'a> {
    /// Bounds that use no mask.
    pub fn unmasked(func: &'a Func, polynomials: &'a Polynomials) -> Bound<'a> {
        Bound { known: &[], func, polynomials, facts: vec![], steps: MAX_STEPS }
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
        let most: Option<i128> = magnitudes.terms().try_fold(0i128, |sum, (atoms, c)| {
            let product = atoms.iter().try_fold(c, |product, &atom| product.checked_mul(self.largest(atom)));
            sum.checked_add(product?)
        });
        let limit = i128::from(i64::MAX);
        if alone || most.is_some_and(|most| most <= limit) {
            return Some(());
        }
        self.not_negative(&magnitudes)?;
        let top = self.upper(magnitudes)?;
        self.at_most(&top, &Polynomial::constant(limit))
    }

    /// The largest magnitude of an atom, by its type.
    fn largest(&self, atom: Atom) -> i128 {
        let of = |dtype: DType| {
            let (low, high) = dtype.range();
            high.max(-low)
        };
        match atom {
            Atom::Known(Symbol::Scalar(param)) => match self.func.params[param as usize].kind {
                ParamKind::Scalar { dtype, .. } => of(dtype),
                ParamKind::Slice { .. } => i128::MAX,
            },
            Atom::Known(Symbol::Length(_)) => of(DType::I64),
            Atom::Known(Symbol::Grid(_)) | Atom::Program(_) => of(DType::I32),
            Atom::Ramp { extent, .. } => i128::from(extent),
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
                Some(_) => high,
                None if quotient.terms().all(|(_, c)| c < 0) => {
                    self.not_negative(&quotient.scale(-1))?;
                    low?
                }
                None => {
                    self.not_negative(&quotient)?;
                    high
                }
            };
            value = quotient.mul(&extreme).add(&rest);
        }
        Some(value)
    }

    /// Shows that `value` is at least 0, be it that what varies is taken off. Where arguments alone would have to make up
    /// for what is taken off (`0 <= n - 3`), a mask may say it of each element, and of every launch.
    fn least_not_negative(&mut self, value: &Polynomial) -> Option<()> {
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
    fn last(&mut self, value: Polynomial, masks: &[Inequality]) -> Option<Polynomial> {
        let mut value = value;
        for inequality in masks {
            let atoms = || inequality.small.all_varying().into_iter().chain(inequality.big.all_varying());
            let known = |atom| matches!(atom, Atom::Ramp { .. } | Atom::Program(_));
            let ramps =
                inequality.small.all_varying().into_iter().any(|atom| matches!(atom, Atom::Ramp { .. }));
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
            let unit = bounded.split(atom).0.as_constant().filter(|unit| matches!(unit, 1 | -1));
            let Some(unit) = unit else { continue };
            // small - big = unit * atom + .. <= 0, so value <= value - times * (small - big) for times of at least 0.
            let times = value.split(atom).0.scale(unit);
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

    /// The least and greatest value of what varies, as polynomials over what is known at launch; the least one only where
    /// it is one.
    fn range(&mut self, atom: Atom) -> Option<(Option<Polynomial>, Polynomial)> {
        let below = |high: Polynomial| high.sub(&Polynomial::constant(1));
        match atom {
            Atom::Ramp { extent, .. } => {
                Some((Some(Polynomial::default()), Polynomial::constant(i128::from(extent) - 1)))
            }
            Atom::Program(axis) => {
                Some((Some(Polynomial::default()), below(Polynomial::atom(Atom::Known(Symbol::Grid(axis))))))
            }
            Atom::Loop(variable, _) => {
                let ends = self.polynomials.loops.get(&variable)?.clone();
                if ends.if_any {
                    self.at_most(&ends.low.add(&Polynomial::constant(1)), &ends.high)?;
                }
                self.ends_fit(variable, &ends)?;
                let low = ends.low.varying().is_none().then(|| ends.low.clone());
                let high = self.upper(below(ends.high))?;
                Some((low, high))
            }
            Atom::Opaque(..) => None,
            Atom::Known(_) => Some((Some(Polynomial::atom(atom)), Polynomial::atom(atom))),
        }
    }

    /// Shows, with facts where needed, that the ends of a loop are what their polynomials say: a kernel computes them in the
    /// variable's type, where they wrap. One that is a number or an argument does not; a start that does not pass the
    /// type's largest value is no less than it says, an end that does not pass the smallest one no more.
    fn ends_fit(&mut self, variable: Value, ends: &LoopEnds) -> Option<()> {
        self.step(&ends.low)?;
        if let Some(dividend) = &ends.dividend {
            self.is_natural(variable, dividend)?;
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
    fn is_natural(&mut self, variable: Value, dividend: &Polynomial) -> Option<()> {
        let known = std::mem::take(&mut self.known);
        let (_, largest) = self.func.ty(variable).dtype.range();
        let shown = self.least_not_negative(dividend).and_then(|()| {
            let top = self.upper(dividend.clone())?;
            self.at_most(&top, &Polynomial::constant(largest))
        });
        self.known = known;
        shown
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
            Atom::Known(Symbol::Grid(_) | Symbol::Length(_)) | Atom::Program(_) | Atom::Ramp { .. } => {
                Some(())
            }
            Atom::Known(Symbol::Scalar(_)) => self.at_most(&Polynomial::default(), &Polynomial::atom(atom)),
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

    /// Adds the fact `low <= high`, unless it is plain.
    pub fn at_most(&mut self, low: &Polynomial, high: &Polynomial) -> Option<()> {
        if let (Some(low), Some(high)) = (low.as_constant(), high.as_constant()) {
            return (low <= high).then_some(());
        }
        let fact = Fact::AtMost { low: low.to_sum()?, high: high.to_sum()? };
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
        Some(())
    }
}
