//! Quotients by products as quotients of quotients: `x / (a * b)` after `x / a` becomes `x / a / b`, whose remainder `x / a % b` a kernel
//! often takes as well. Kernels that find coordinates of a flat index divide so: `i / n`, `i / (n * m)`, `i / (n * m * l)`.
//!
//! **Law**: for `x >= 0`, `a >= 1` and `a * b >= 1` that does not wrap, `floor(floor(x / a) / b) = floor(x / (a * b))`.

use std::collections::HashMap;

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::ir::{Block, Func, Op, Value};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Kind, Splat};

/// Rewrites the quotients, and adds lower bounds of their divisors to the assumptions.
pub fn chain_divisions(func: &mut Func, assumptions: &mut LaunchAssumptions) {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let mut chain =
        DivisionChain { func, axes: &axes, assumptions, products: HashMap::new(), splats: HashMap::new() };
    let mut body = std::mem::take(&mut chain.func.body);
    chain.block(&mut body, HashMap::new());
    func.body = body;
}

/// Quotients by their dividends and divisors.
type KnownQuotients = HashMap<[Value; 2], Value>;

struct DivisionChain<'a> {
    func: &'a mut Func,
    axes: &'a AxisInfoMap,
    assumptions: &'a mut LaunchAssumptions,
    /// The factors of scalars.
    products: HashMap<Value, [Value; 2]>,
    /// The scalars that tiles repeat.
    splats: HashMap<Value, Value>,
}

impl DivisionChain<'_> {
    fn block(&mut self, block: &mut Block, mut quotients: KnownQuotients) {
        for mut op in std::mem::take(&mut block.ops) {
            if let Kind::Splat(splat) = &op.kind {
                self.splats.insert(op.results[0], splat.value);
            }
            if let Kind::Scalar(scalar) = &op.kind
                && self.func.ty(op.results[0]).dtype.is_integer()
            {
                if scalar.op.arith == ArithKind::Mul {
                    self.products.insert(op.results[0], [scalar.args[0], scalar.args[1]]);
                }
                if scalar.op.arith == ArithKind::Div {
                    let key = [scalar.args[0], self.scalar(scalar.args[1])];
                    if let Some([quotient, divisor]) = self.shorter(key, &quotients) {
                        self.divide(block, &mut op, [quotient, divisor]);
                    }
                    quotients.insert(key, op.results[0]);
                }
            }
            for nested in op.kind.operation_mut().blocks_mut() {
                self.block(nested, quotients.clone());
            }
            block.ops.push(op);
        }
    }

    /// The scalar that a tile repeats, or the value itself.
    fn scalar(&self, value: Value) -> Value {
        self.splats.get(&value).copied().unwrap_or(value)
    }

    /// Returns a known quotient by one factor of a divisor, and the other factor.
    fn shorter(&self, [dividend, divisor]: [Value; 2], quotients: &KnownQuotients) -> Option<[Value; 2]> {
        let is_positive = |value: Value| self.axes.get(self.func, value).range.0 >= 1;
        let [a, b] = *self.products.get(&divisor)?;
        if self.axes.get(self.func, dividend).range.0 < 0 || !self.is_exact(divisor) {
            return None;
        }
        let by = |factor: Value| quotients.get(&[dividend, factor]).filter(|_| is_positive(factor));
        by(a).map(|&quotient| [quotient, b]).or_else(|| by(b).map(|&quotient| [quotient, a]))
    }

    /// Whether a divisor is known as positive and as a product that does not wrap.
    fn is_exact(&self, divisor: Value) -> bool {
        self.assumptions.least.get(&divisor).is_some_and(|&least| least >= 1)
    }

    /// Makes an operation the quotient of these.
    fn divide(&mut self, block: &mut Block, op: &mut Op, [quotient, divisor]: [Value; 2]) {
        let Kind::Scalar(scalar) = &op.kind else { return };
        // Both factors are positive, since one of them and the product are.
        self.assumptions.least.insert(divisor, 1);
        let ty = self.func.ty(op.results[0]).clone();
        let by = if ty.is_scalar() {
            divisor
        } else {
            let tile = self.func.value(ty);
            block.ops.push(Op { kind: Splat { value: divisor }.into(), results: vec![tile], loc: op.loc });
            tile
        };
        op.kind = Scalar { args: vec![quotient, by], ..scalar.clone() }.into();
    }
}
