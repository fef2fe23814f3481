//! Operands of quotients and remainders that are not negative given guards, where their ranges alone do not say so: rows and
//! columns of blocks in a grouped program order.

use std::collections::HashMap;

use super::inequality::BoundSearch;
use super::polynomial::Polynomials;
use crate::ir::guard;
use crate::ir::guard::Guard;
use crate::ir::{Func, Value};
use crate::ops::scalar::ArithKind;
use crate::ops::{Kind, Splat};
use crate::support::dtype::DType;

/// Lower bounds of values, each with the guards that it rests on.
#[derive(Clone, Default, Debug)]
pub struct Signs {
    bounds: Vec<LowerBound>,
}

#[derive(Clone, Debug)]
struct LowerBound {
    value: Value,
    least: i128,
    /// Whether it is the divisor of a tile that is no constant.
    divides_tile: bool,
    guards: Vec<Guard>,
}

impl Signs {
    /// Dividends of at least 0 and divisors of at least 1.
    pub fn analyze(func: &Func) -> Signs {
        let (polynomials, definitions) = (Polynomials::analyze(func), func.definitions());
        let mut signs = Signs::default();
        func.body.walk(&mut |op| {
            let Kind::Scalar(scalar) = &op.kind else { return };
            let divides = matches!(scalar.op.arith, ArithKind::Div | ArithKind::Rem);
            if !divides || !matches!(scalar.dtype(func), DType::I32 | DType::I64) {
                return;
            }
            for (&operand, least) in scalar.args.iter().zip([0, 1]) {
                if !polynomials.has_own_width(operand) {
                    continue;
                }
                let (value, mut bound) =
                    (polynomials.get(operand), BoundSearch::unmasked(func, &polynomials));
                let proven = match least {
                    0 => bound.is_non_negative(operand, &value),
                    _ => bound.is_positive(operand, &value),
                };
                if proven.is_some() {
                    // A scalar keeps its bound where layouts make several tiles of it.
                    let value = match definitions.get(&operand).map(|op| &op.kind) {
                        Some(&Kind::Splat(Splat { value })) => value,
                        _ => operand,
                    };
                    let is_tile = !func.ty(op.results[0]).is_scalar();
                    let is_constant = polynomials.get(operand).as_constant().is_some();
                    let divides_tile = least == 1 && is_tile && !is_constant;
                    signs.bounds.push(LowerBound { value, least, divides_tile, guards: bound.guards });
                }
            }
        });
        signs
    }

    /// The bounds that follow from guards alone.
    pub fn given(&self, guards: &[Guard]) -> Signs {
        let holds = |bound: &&LowerBound| {
            bound.guards.iter().all(|guard| guards.iter().any(|given| guard.implied_by(given)))
        };
        Signs { bounds: self.bounds.iter().filter(holds).cloned().collect() }
    }

    /// The bounds of what tiles are divided by: without signs a division takes half the instructions.
    pub fn of_divisors(&self) -> Signs {
        let bounds = self.bounds.iter().filter(|bound| bound.divides_tile);
        Signs { bounds: bounds.cloned().collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// The largest lower bound of each value.
    pub fn least(&self) -> HashMap<Value, i128> {
        let mut least = HashMap::new();
        for bound in &self.bounds {
            let known = least.entry(bound.value).or_insert(bound.least);
            *known = bound.least.max(*known);
        }
        least
    }

    /// The guards of all bounds.
    pub fn guards(&self) -> Vec<Guard> {
        guard::strongest(self.bounds.iter().flat_map(|bound| bound.guards.iter().cloned()).collect())
    }
}
