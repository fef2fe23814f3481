//! Bounds analysis: which accesses stay inside their slice, and the guards under which they do.
//!
//! An access reads `offset` where its mask and the branches around it hold. Each of these is a set of inequalities between
//! polynomials. The analysis eliminates what varies: ranges and loop variables by the inequality that bounds them, program ids
//! by the grid. What remains is the largest offset as a polynomial over symbols known at launch: one comparison with the length
//! there replaces one per element in the kernel.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::inequality::{BoundSearch, Inequality, tightest};
use super::polynomial::Polynomials;
use crate::frontend::syntax::BinaryOp;
use crate::ir::guard::{self, Guard, Symbol, SymbolicSum};
use crate::ir::polynomial::{Atom, Placement, Polynomial};
use crate::ir::{Block, Func, Op, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{For, Kind, MemAccess};

/// The most inequalities of one mask that are used: leaving one out loses precision, and nothing else.
const MAX_INEQUALITIES: usize = 32;

/// How an access stays inside its slice.
#[derive(Clone, PartialEq, Debug)]
pub enum BoundsDecision {
    /// It does if these hold.
    Guarded(GuardedBounds),
    /// Nothing is known: the kernel compares, and masks.
    Masked,
}

/// Guards under which an access stays inside its slice.
#[derive(Clone, PartialEq, Debug)]
pub struct GuardedBounds {
    pub guards: Vec<Guard>,
    /// What holds for every element that is accessed, given the guards.
    pub known: Vec<Inequality>,
}

impl GuardedBounds {
    /// What holds for this access and for an equal one elsewhere.
    fn merge(&mut self, other: GuardedBounds) {
        self.guards.extend(other.guards);
        self.guards = guard::strongest(std::mem::take(&mut self.guards));
        self.known.retain(|inequality| other.known.contains(inequality));
    }
}

/// The decision for every access of a function. Equal accesses share the weaker decision.
#[derive(Default, Debug)]
pub struct BoundsDecisions {
    decisions: HashMap<MemAccess, BoundsDecision>,
}

impl BoundsDecisions {
    pub fn analyze(func: &Func, polynomials: &Polynomials) -> BoundsDecisions {
        let mut walker = BoundsWalker::new(func, polynomials);
        walker.block(&func.body);
        BoundsDecisions { decisions: walker.decisions }
    }

    pub fn get(&self, access: &MemAccess) -> BoundsDecision {
        self.decisions.get(access).cloned().unwrap_or(BoundsDecision::Masked)
    }
}

/// Alias analysis: which accesses of one slice are disjoint, given guards and whatever their masks are.
pub struct DisjointAccesses<'f> {
    walker: BoundsWalker<'f>,
    guards: &'f [Guard],
}

impl<'f> DisjointAccesses<'f> {
    pub fn new(func: &'f Func, polynomials: &'f Polynomials, guards: &'f [Guard]) -> DisjointAccesses<'f> {
        DisjointAccesses { walker: BoundsWalker::new(func, polynomials), guards }
    }

    /// Whether two accesses are disjoint in the same iteration of the loops around them: the first element of one comes after the
    /// last of the other.
    pub fn disjoint(&self, [a, b]: [&MemAccess; 2]) -> bool {
        let BoundsWalker { func, polynomials, .. } = self.walker;
        let comes_after = |first: &MemAccess, second: &MemAccess| {
            let mut bound = BoundSearch::unmasked(func, polynomials);
            let last = self.last(&mut bound, first, polynomials.of_access(first))?;
            let next = polynomials.of_access(second).without_ranges(|_| Polynomial::default())?;
            bound.not_negative(&next.sub(&last).sub(&Polynomial::constant(1)))?;
            self.is_given(&bound)
        };
        let uniform = |access| {
            varies_only_by(&polynomials.of_access(access), |value| func.ty(value).is_scalar(), |_| true)
        };
        uniform(a) && uniform(b) && (comes_after(a, b).is_some() || comes_after(b, a).is_some())
    }

    /// Whether two accesses in the body of a `for` loop, or one with itself, are disjoint in different iterations: each
    /// iteration advances both by more than their elements span.
    pub fn disjoint_across_iterations(&self, op: &For, [a, b]: [&MemAccess; 2]) -> bool {
        let BoundsWalker { func, polynomials, .. } = self.walker;
        let body = &op.body;
        let mut inner: HashSet<Value> = body.args.iter().copied().collect();
        body.walk(&mut |op| inner.extend(&op.results));
        let is_invariant = |value: Value| func.ty(value).is_scalar() && !inner.contains(&value);
        let split = |access| polynomials.of_access(access).split(Atom::Loop(body.args[0], Placement::OWN));
        let ((stride, rest_a), (stride_b, rest_b)) = (split(a), split(b));
        let same_stride = stride == stride_b
            && varies_only_by(&stride, is_invariant, |atom| !matches!(atom, Atom::Range { .. }));
        if !same_stride
            || ![&rest_a, &rest_b].into_iter().all(|rest| varies_only_by(rest, is_invariant, |_| true))
        {
            return false;
        }
        // The step of the loop is at least 1.
        let step = polynomials.get(op.step).as_constant().unwrap_or(1).max(1);
        let stride = stride.scale(step);
        let advances_past = |far: &MemAccess, far_rest: &Polynomial, near_rest: &Polynomial| {
            let mut bound = BoundSearch::unmasked(func, polynomials);
            bound.fits(&polynomials.of_access(far))?;
            let last = self.last(&mut bound, far, far_rest.clone())?;
            let first = near_rest.without_ranges(|_| Polynomial::default())?;
            bound.not_negative(&stride.sub(&last.sub(&first)).sub(&Polynomial::constant(1)))?;
            self.is_given(&bound)
        };
        advances_past(a, &rest_a, &rest_b).is_some() && advances_past(b, &rest_b, &rest_a).is_some()
    }

    /// `offset` at the last element that the mask of `access` lets through.
    fn last(&self, bound: &mut BoundSearch, access: &MemAccess, offset: Polynomial) -> Option<Polynomial> {
        let masks = access.mask.map(|mask| self.walker.inequalities(mask));
        bound.last(offset, masks.as_deref().unwrap_or_default())
    }

    /// Whether all guards that the bound relies on are given.
    fn is_given(&self, bound: &BoundSearch) -> Option<()> {
        bound.guards.iter().all(|guard| self.guards.contains(guard)).then_some(())
    }
}

/// Whether a polynomial varies by nothing but these values and other atoms.
fn varies_only_by(value: &Polynomial, values: impl Fn(Value) -> bool, others: impl Fn(Atom) -> bool) -> bool {
    value.all_varying().into_iter().all(|atom| match atom {
        Atom::Loop(value, _) | Atom::Opaque(value, _) => values(value),
        Atom::Known(_) | Atom::Program(_) | Atom::Range { .. } => others(atom),
    })
}

/// The inequalities that together say where a mask is true; `None` where it says something else besides.
pub fn conditions(func: &Func, polynomials: &Polynomials, mask: Value) -> Option<Vec<Inequality>> {
    BoundsWalker::new(func, polynomials).conditions(mask)
}

struct BoundsWalker<'f> {
    func: &'f Func,
    polynomials: &'f Polynomials,
    definitions: HashMap<Value, &'f Op>,
    /// The inequalities of the branches around the current block.
    path: Vec<Inequality>,
    decisions: HashMap<MemAccess, BoundsDecision>,
    /// The inequalities of each mask.
    masks: RefCell<HashMap<Value, Rc<[Inequality]>>>,
}

impl<'f> BoundsWalker<'f> {
    fn new(func: &'f Func, polynomials: &'f Polynomials) -> BoundsWalker<'f> {
        BoundsWalker {
            func,
            polynomials,
            definitions: func.definitions(),
            path: vec![],
            decisions: HashMap::new(),
            masks: RefCell::default(),
        }
    }
}

impl BoundsWalker<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            if let Some(access) = op.kind.operation().access() {
                let decision = self.decide(access);
                match (self.decisions.get_mut(access), decision) {
                    (Some(BoundsDecision::Guarded(known)), BoundsDecision::Guarded(other)) => {
                        known.merge(other)
                    }
                    (Some(BoundsDecision::Masked), _) => {}
                    (_, decision) => {
                        self.decisions.insert(*access, decision);
                    }
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

    fn decide(&self, access: &MemAccess) -> BoundsDecision {
        let mut known = self.path.clone();
        known.extend(access.mask.iter().flat_map(|&mask| self.inequalities(mask).to_vec()));
        let known = tightest(known);
        // Polynomials do not wrap and 64-bit arithmetic does: a comparison that is relied on must fit, by its range or by
        // a guard. An offset need not: one inside the slice is the same modulo 2^64.
        let offset = self.polynomials.get(access.offset);
        let fits = |inequality: &Inequality| {
            let mut bound = BoundSearch::unmasked(self.func, self.polynomials);
            let operands = [&inequality.small, &inequality.big];
            operands.into_iter().try_for_each(|operand| bound.fits(operand)).is_some()
                && bound.guards.is_empty()
        };
        let (plain, checked): (Vec<Inequality>, Vec<Inequality>) = known.into_iter().partition(fits);
        let by_range = self.inside(access, &offset, &plain, &[]);
        let with_guards = || {
            let all: Vec<Inequality> = plain.iter().chain(&checked).cloned().collect();
            if checked.is_empty() { None } else { self.inside(access, &offset, &all, &checked) }
        };
        // The grid covers whole tiles, beyond what a mask lets through.
        let bounds = match by_range {
            Some(bounds) if bounds.guards.iter().any(bounds_a_length_by_the_grid) => {
                with_guards().or(Some(bounds))
            }
            Some(bounds) => Some(bounds),
            None => with_guards(),
        };
        bounds.map_or(BoundsDecision::Masked, BoundsDecision::Guarded)
    }

    /// Guards under which an access whose offsets obey `known` stays inside; `checked` are those that might wrap.
    fn inside(
        &self,
        access: &MemAccess,
        offset: &Polynomial,
        known: &[Inequality],
        checked: &[Inequality],
    ) -> Option<GuardedBounds> {
        let mut bound = BoundSearch::unmasked(self.func, self.polynomials);
        for inequality in checked {
            bound.fits(&inequality.small)?;
            bound.fits(&inequality.big)?;
        }
        bound.known = known;
        let length = Polynomial::atom(Atom::Known(Symbol::Length(access.param.0)));
        bound.lower_bound_not_negative(offset)?;
        let top = bound.upper(offset.clone())?;
        bound.at_most(&top.add(&Polynomial::constant(1)), &length)?;
        Some(GuardedBounds { guards: bound.guards, known: known.to_vec() })
    }

    /// The inequalities that hold where a mask is true.
    fn inequalities(&self, mask: Value) -> Rc<[Inequality]> {
        if let Some(known) = self.masks.borrow().get(&mask) {
            return known.clone();
        }
        let mut found: Vec<Inequality> = vec![];
        for inequality in self.inequalities_of(mask) {
            if found.len() < MAX_INEQUALITIES && !found.contains(&inequality) {
                found.push(inequality);
            }
        }
        let found: Rc<[Inequality]> = found.into();
        self.masks.borrow_mut().insert(mask, found.clone());
        found
    }

    fn inequalities_of(&self, mask: Value) -> Vec<Inequality> {
        let Some(Op { kind: definition, .. }) = self.definitions.get(&mask) else { return vec![] };
        match definition {
            Kind::Scalar(scalar) => match scalar.op.arith {
                ArithKind::And => {
                    scalar.args.iter().flat_map(|&arg| self.inequalities(arg).to_vec()).collect()
                }
                ArithKind::Compare(op) if self.func.ty(scalar.args[0]).dtype.is_integer() => {
                    self.comparison(op, scalar.args[0], scalar.args[1])
                }
                _ => vec![],
            },
            other => {
                // A mask that was moved to other axes says the same about ranges on the new ones.
                let operation = other.operation();
                let (&[inner], Some(_)) = (operation.operands().as_slice(), operation.axis_map(self.func))
                else {
                    return vec![];
                };
                let inner = self.inequalities(inner);
                inner.iter().filter_map(|inequality| self.moved(inequality, other)).collect()
            }
        }
    }

    fn conditions(&self, mask: Value) -> Option<Vec<Inequality>> {
        let kind = &self.definitions.get(&mask)?.kind;
        if let Kind::Scalar(scalar) = kind {
            return match scalar.op.arith {
                ArithKind::And => {
                    let each = scalar.args.iter().map(|&arg| self.conditions(arg));
                    Some(each.collect::<Option<Vec<_>>>()?.concat())
                }
                ArithKind::Compare(op) if self.func.ty(scalar.args[0]).dtype.is_integer() => {
                    Some(self.comparison(op, scalar.args[0], scalar.args[1]))
                        .filter(|found| !found.is_empty())
                }
                _ => None,
            };
        }
        let operation = kind.operation();
        let &[inner] = operation.operands().as_slice() else { return None };
        operation.axis_map(self.func)?;
        self.conditions(inner)?.iter().map(|inequality| self.moved(inequality, kind)).collect()
    }

    fn moved(&self, inequality: &Inequality, by: &Kind) -> Option<Inequality> {
        let axes = by.operation().axis_map(self.func)?;
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

fn bounds_a_length_by_the_grid(guard: &Guard) -> bool {
    let within = |sum: &SymbolicSum, symbol: fn(&Symbol) -> bool| {
        sum.terms.iter().any(|(_, factors)| factors.iter().any(symbol))
    };
    let Guard::AtMost { low, high } = guard else { return false };
    within(low, |symbol| matches!(symbol, Symbol::Grid(_)))
        && within(high, |symbol| matches!(symbol, Symbol::Length(_)))
}
