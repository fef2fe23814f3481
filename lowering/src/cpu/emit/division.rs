//! Quotients and remainders of vectors of integers by one scalar.

use tile_ir::ops::{Kind, Scalar, Splat};

use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, Host, Val};
use crate::mlir::division::{RangedValue, UniformDivisor};

impl Host<'_> {
    /// Returns the result of a division of a vector of integers by a scalar that is not known at build: CPUs have no instruction
    /// for it.
    pub(super) fn divided(&mut self, b: &mut Builder, scalar: &Scalar, point: &Point) -> Option<Val> {
        if point.lanes == 1 || !scalar.divides_integers(self.func) {
            return None;
        }
        let Kind::Splat(Splat { value }) = self.definitions.get(&scalar.args[1])?.kind else { return None };
        let [dividend_range, divisor_range] =
            [0, 1].map(|i| self.plan.axes.get(self.func, scalar.args[i]).range);
        if divisor_range.0 == divisor_range.1 {
            return None;
        }
        let dividend = RangedValue { value: self.at(b, scalar.args[0], point), range: dividend_range };
        let divisor = RangedValue { value: self.scalar(value), range: divisor_range };
        let divisor = UniformDivisor::new(b, divisor).splat(b, point.lanes);
        Some(divisor.divide(b, dividend).result(b, scalar.op.arith))
    }
}
