//! Operands of quotients and remainders that are not negative given guards, where their ranges alone do not say so: rows and
//! columns of blocks in a grouped program order.

use std::collections::HashMap;

use super::inequality::BoundSearch;
use super::polynomial::Polynomials;
use crate::ir::guard;
use crate::ir::guard::Guard;
use crate::ir::{Func, Value};
use crate::ops::Kind;
use crate::ops::scalar::ArithKind;
use crate::support::dtype::DType;

/// Lower bounds of values, and the guards that they rest on.
#[derive(Default, Debug)]
pub struct Signs {
    pub least: HashMap<Value, i128>,
    pub guards: Vec<Guard>,
}

impl Signs {
    /// Dividends of at least 0 and divisors of at least 1.
    pub fn analyze(func: &Func) -> Signs {
        let polynomials = Polynomials::analyze(func);
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
                    signs.least.insert(operand, least);
                    signs.guards.extend(bound.guards);
                }
            }
        });
        signs.guards = guard::strongest(signs.guards);
        signs
    }
}
