//! What the user assumes of a launch's arguments with `tl::assume`, as far as specializations can use it.
//!
//! Takes conditions; returns what they say of single integer arguments and of the grid's extents. An assumption is a guard of the
//! specialization that relies on it, so that the launcher checks it whatever the kernel's own arithmetic makes of the condition.

use std::collections::{HashMap, HashSet};

use super::polynomial::Polynomials;
use crate::frontend::syntax::BinaryOp;
use crate::ir::assumption::Assumption;
use crate::ir::guard::Symbol;
use crate::ir::polynomial::{Atom, Polynomial};
use crate::ir::{Func, Op, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Constant, ConstantValue, Kind, Site};

/// What the `tl::assume` conditions of a function state.
#[derive(Default, Debug)]
pub struct Assumed {
    /// What guards check.
    pub of_arguments: Vec<Assumption>,
    /// The powers of two that divide scalars which no guard knows.
    pub of_loaded: Vec<u32>,
}

/// Returns what the `tl::assume` conditions of a function state.
pub fn assumptions(func: &Func) -> Assumed {
    let polynomials = Polynomials::analyze(func);
    let reader = AssumptionReader { definitions: func.definitions(), polynomials };
    let mut found = Assumed::default();
    func.body.walk(&mut |op| {
        if let Kind::Assert(op) = &op.kind
            && matches!(func.sites.get(op.site as usize), Some(Site::Assume { .. }))
        {
            reader.condition(op.holds, &mut found);
        }
    });
    let mut unique: Vec<Assumption> = vec![];
    for assumption in found.of_arguments {
        if !unique.contains(&assumption) {
            unique.push(assumption);
        }
    }
    Assumed { of_arguments: unique, ..found }
}

struct AssumptionReader<'f> {
    definitions: HashMap<Value, &'f Op>,
    polynomials: Polynomials,
}

impl<'f> AssumptionReader<'f> {
    fn defined(&self, value: Value) -> Option<&'f Kind> {
        self.definitions.get(&value).map(|op| &op.kind)
    }

    /// What a conjunction of comparisons says.
    fn condition(&self, value: Value, found: &mut Assumed) {
        let (mut visited, mut todo) = (HashSet::new(), vec![value]);
        while let Some(value) = todo.pop() {
            if !visited.insert(value) {
                continue;
            }
            let Some(Kind::Scalar(scalar)) = self.defined(value) else { continue };
            match scalar.op.arith {
                ArithKind::And => todo.extend(scalar.args.iter().rev()),
                ArithKind::Compare(op) => self.comparison(op, scalar.args[0], scalar.args[1], found),
                _ => {}
            }
        }
    }

    fn comparison(&self, op: BinaryOp, lhs: Value, rhs: Value, assumed: &mut Assumed) {
        let found = &mut assumed.of_arguments;
        let (small, big) = (self.polynomial(lhs), self.polynomial(rhs));
        let below = |small: &Polynomial, big: &Polynomial, gap: i128| {
            of_single_symbol(&big.sub(small).sub(&Polynomial::constant(gap)))
        };
        match op {
            BinaryOp::Lt => found.extend(below(&small, &big, 1)),
            BinaryOp::Le => found.extend(below(&small, &big, 0)),
            BinaryOp::Gt => found.extend(below(&big, &small, 1)),
            BinaryOp::Ge => found.extend(below(&big, &small, 0)),
            BinaryOp::Eq => {
                found.extend(below(&small, &big, 0));
                found.extend(below(&big, &small, 0));
                self.divisible(lhs, &big, assumed);
                self.divisible(rhs, &small, assumed);
            }
            _ => {}
        }
    }

    /// An integer of any width: a comparison computes nothing that could wrap.
    fn polynomial(&self, value: Value) -> Polynomial {
        match self.defined(value) {
            Some(Kind::Constant(Constant { value: ConstantValue::Int(constant) })) => {
                Polynomial::constant(*constant)
            }
            Some(_) | None => self.polynomials.get(value),
        }
    }

    /// `n % 16 == 0`
    fn divisible(&self, remainder: Value, other: &Polynomial, assumed: &mut Assumed) {
        let Some(Kind::Scalar(scalar)) = self.defined(remainder) else { return };
        if scalar.op.arith != ArithKind::Rem || other.as_constant() != Some(0) {
            return;
        }
        let divisor = self.polynomial(scalar.args[1]).as_constant().filter(|&divisor| divisor != 0);
        let by = divisor.map_or(1, |divisor| 1u32 << divisor.trailing_zeros().min(30));
        if by == 1 {
            return;
        }
        let dividend = self.polynomial(scalar.args[0]);
        if let Some(Atom::Known(Symbol::Scalar(scalar))) = dividend.as_atom() {
            assumed.of_arguments.push(Assumption::Multiple(scalar, by));
        } else if dividend.all_varying().iter().any(|atom| matches!(atom, Atom::Loop(..) | Atom::Opaque(..)))
        {
            assumed.of_loaded.push(by);
        }
    }
}

/// What `0 <= value` says of its only symbol.
fn of_single_symbol(value: &Polynomial) -> Option<Assumption> {
    let mut known = None;
    let mut constant = 0;
    for (atoms, coefficient) in value.terms() {
        match *atoms {
            [] => constant = coefficient,
            [Atom::Known(symbol)] if known.is_none() => known = Some((symbol, coefficient)),
            _ => return None,
        }
    }
    let (symbol, coefficient) = known?;
    // coefficient * symbol >= -constant
    let limit =
        if coefficient > 0 { -constant.div_euclid(coefficient) } else { constant.div_euclid(-coefficient) };
    let limit = i64::try_from(limit).ok()?;
    match symbol {
        Symbol::Scalar(scalar) if coefficient > 0 => Some(Assumption::AtLeast(scalar, limit)),
        Symbol::Scalar(scalar) => Some(Assumption::AtMost(scalar, limit)),
        Symbol::Grid(axis) if coefficient < 0 => Some(Assumption::Programs(axis, limit)),
        // What specializations need of these is found without an assumption.
        Symbol::Grid(_) | Symbol::Length(_) | Symbol::CeilDiv { .. } | Symbol::Div { .. } => None,
    }
}
