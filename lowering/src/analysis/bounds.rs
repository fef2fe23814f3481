//! Which accesses stay inside their slice, and what the launcher must check so that they do.
//!
//! An access reads `offset` where its mask and the branches around it hold. Each gives inequalities between
//! polynomials. Eliminating what varies, ramps and loop variables by the inequality that bounds them, program ids by the
//! grid, leaves the largest offset as a polynomial over what is known at launch: one comparison with the length there
//! replaces one per element in the kernel.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::inequality::{BoundSearch, Inequality, tightest};
use super::polynomial::{Atom, Placement, Polynomial, Polynomials};
use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::{Guard, Symbol, SymbolicSum};
use crate::ir::{Block, Func, Op, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{For, Kind, MemAccess};

/// The most inequalities of one mask that are used: leaving one out loses knowledge, and nothing else.
const MAX_INEQUALITIES: usize = 32;

/// How an access stays inside its slice.
#[derive(Clone, PartialEq, Debug)]
pub enum BoundsDecision {
    /// It does if these hold.
    Guarded(Vec<Guard>),
    /// Nothing is known: the kernel compares, and masks.
    Masked,
}

/// The decision for every access of a function. Two accesses of one place share the weaker decision.
#[derive(Default, Debug)]
pub struct BoundsDecisions {
    decided: HashMap<MemAccess, BoundsDecision>,
}

impl BoundsDecisions {
    pub fn analyze(func: &Func, polynomials: &Polynomials) -> BoundsDecisions {
        let mut walker = BoundsWalker::new(func, polynomials);
        walker.block(&func.body);
        BoundsDecisions { decided: walker.decided }
    }

    pub fn get(&self, place: &MemAccess) -> BoundsDecision {
        self.decided.get(place).cloned().unwrap_or(BoundsDecision::Masked)
    }
}

/// Which accesses of one slice never meet, given `facts`, whichever elements of theirs are taken.
pub struct DisjointAccesses<'f> {
    walker: BoundsWalker<'f>,
    facts: &'f [Guard],
}

impl<'f> DisjointAccesses<'f> {
    pub fn new(func: &'f Func, polynomials: &'f Polynomials, facts: &'f [Guard]) -> DisjointAccesses<'f> {
        DisjointAccesses { walker: BoundsWalker::new(func, polynomials), facts }
    }

    /// Whether two accesses never meet in the same turn of the loops around them: the first element of one comes after the last
    /// of the other.
    pub fn disjoint(&self, [a, b]: [&MemAccess; 2]) -> bool {
        let BoundsWalker { func, polynomials, .. } = self.walker;
        let follows = |first: &MemAccess, second: &MemAccess| {
            let mut bound = BoundSearch::unmasked(func, polynomials);
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
    pub fn disjoint_across_iterations(&self, op: &For, [a, b]: [&MemAccess; 2]) -> bool {
        let BoundsWalker { func, polynomials, .. } = self.walker;
        let body = &op.body;
        let mut inner: HashSet<Value> = body.args.iter().copied().collect();
        body.walk(&mut |op| inner.extend(&op.results));
        let fixed = |value: Value| func.ty(value).is_scalar() && !inner.contains(&value);
        let split = |place| polynomials.of_place(place).split(Atom::Loop(body.args[0], Placement::OWN));
        let ((stride, rest_a), (stride_b, rest_b)) = (split(a), split(b));
        let same_stride =
            stride == stride_b && made_of(&stride, fixed, |atom| !matches!(atom, Atom::Range { .. }));
        if !same_stride || ![&rest_a, &rest_b].into_iter().all(|rest| made_of(rest, fixed, |_| true)) {
            return false;
        }
        // A step of the loop is at least one, and what spans something is at least one too.
        let step = polynomials.get(op.step).as_constant().unwrap_or(1).max(1);
        let stride = stride.scale(step);
        let moves_on = |far: &MemAccess, far_rest: &Polynomial, near_rest: &Polynomial| {
            let mut bound = BoundSearch::unmasked(func, polynomials);
            bound.fits(&polynomials.of_place(far))?;
            let last = self.last(&mut bound, far, far_rest.clone())?;
            let first = near_rest.without_ramps(|_| Polynomial::default())?;
            bound.not_negative(&stride.sub(&last.sub(&first)).sub(&Polynomial::constant(1)))?;
            self.known(&bound)
        };
        moves_on(a, &rest_a, &rest_b).is_some() && moves_on(b, &rest_b, &rest_a).is_some()
    }

    /// `offset` at the last element that the mask of `place` lets through.
    fn last(&self, bound: &mut BoundSearch, place: &MemAccess, offset: Polynomial) -> Option<Polynomial> {
        let masks = place.mask.map(|mask| self.walker.inequalities(mask));
        bound.last(offset, masks.as_deref().unwrap_or_default())
    }

    /// Whether all that was relied on is among the facts.
    fn known(&self, bound: &BoundSearch) -> Option<()> {
        bound.facts.iter().all(|fact| self.facts.contains(fact)).then_some(())
    }
}

/// Whether all that varies in a polynomial is of one kind or the other: values, and the rest.
fn made_of(value: &Polynomial, values: impl Fn(Value) -> bool, others: impl Fn(Atom) -> bool) -> bool {
    value.all_varying().into_iter().all(|atom| match atom {
        Atom::Loop(value, _) | Atom::Opaque(value, _) => values(value),
        Atom::Known(_) | Atom::Program(_) | Atom::Range { .. } => others(atom),
    })
}

struct BoundsWalker<'f> {
    func: &'f Func,
    polynomials: &'f Polynomials,
    definitions: HashMap<Value, &'f Op>,
    /// What the branches around the current block say.
    path: Vec<Inequality>,
    decided: HashMap<MemAccess, BoundsDecision>,
    /// What each mask says.
    masks: RefCell<HashMap<Value, Rc<[Inequality]>>>,
}

impl<'f> BoundsWalker<'f> {
    fn new(func: &'f Func, polynomials: &'f Polynomials) -> BoundsWalker<'f> {
        BoundsWalker {
            func,
            polynomials,
            definitions: func.definitions(),
            path: vec![],
            decided: HashMap::new(),
            masks: RefCell::default(),
        }
    }
}

impl BoundsWalker<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            if let Some(place) = op.kind.operation().place() {
                let decision = self.decide(place);
                let known = self.decided.entry(*place).or_insert_with(|| decision.clone());
                if decision == BoundsDecision::Masked {
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

    fn decide(&self, place: &MemAccess) -> BoundsDecision {
        let mut known = self.path.clone();
        known.extend(place.mask.iter().flat_map(|&mask| self.inequalities(mask).to_vec()));
        let known = tightest(known);
        // Polynomials do not wrap and 64-bit arithmetic does: a comparison that is relied on must fit, by its range or by
        // a fact. An offset need not: one that lies in the slice is the same modulo 2^64.
        let offset = self.polynomials.get(place.offset);
        let fits = |inequality: &Inequality| {
            let mut bound = BoundSearch::unmasked(self.func, self.polynomials);
            let sides = [&inequality.small, &inequality.big];
            sides.into_iter().try_for_each(|side| bound.fits(side)).is_some() && bound.facts.is_empty()
        };
        let (plain, checked): (Vec<Inequality>, Vec<Inequality>) = known.into_iter().partition(fits);
        let by_range = self.inside(place, &offset, &plain, &[]);
        let with_facts = || {
            let all: Vec<Inequality> = plain.iter().chain(&checked).cloned().collect();
            if checked.is_empty() { None } else { self.inside(place, &offset, &all, &checked) }
        };
        // The grid covers whole tiles, beyond what a mask lets through.
        let facts = match by_range {
            Some(facts) if facts.iter().any(bounds_a_length_by_the_grid) => with_facts().or(Some(facts)),
            Some(facts) => Some(facts),
            None => with_facts(),
        };
        facts.map_or(BoundsDecision::Masked, BoundsDecision::Guarded)
    }

    /// Facts under which an access whose offsets obey `known` stays inside; `checked` are those that might wrap.
    fn inside(
        &self,
        place: &MemAccess,
        offset: &Polynomial,
        known: &[Inequality],
        checked: &[Inequality],
    ) -> Option<Vec<Guard>> {
        let mut bound = BoundSearch::unmasked(self.func, self.polynomials);
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
                ArithKind::And => {
                    scalar.args.iter().flat_map(|&arg| self.inequalities(arg).to_vec()).collect()
                }
                ArithKind::Compare(op) if self.func.ty(scalar.args[0]).dtype.is_integer() => {
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

fn bounds_a_length_by_the_grid(fact: &Guard) -> bool {
    let within = |sum: &SymbolicSum, symbol: fn(&Symbol) -> bool| {
        sum.terms.iter().any(|(_, factors)| factors.iter().any(symbol))
    };
    let Guard::AtMost { low, high } = fact else { return false };
    within(low, |symbol| matches!(symbol, Symbol::Grid(_)))
        && within(high, |symbol| matches!(symbol, Symbol::Length(_)))
}
