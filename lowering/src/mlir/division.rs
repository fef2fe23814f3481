//! Division of integers, for a scalar or the lanes of a vector alike.
//!
//! The quotient truncates toward zero; `x / 0` is 0 and `x % 0` is `x`, `MIN / -1` is `MIN` and `MIN % -1` is 0. Nothing traps.
//!
//! # One divisor for many dividends
//! [`UniformDivisor`] divides once and multiplies for each dividend, as Granlund and Montgomery describe (*Division by invariant
//! integers using multiplication*, 1994), with a correction in place of their wider multiplier: that takes a division of twice
//! the width, which a GPU does not have. **Law**: the results are those of [`divide`] for every dividend and divisor of the type.
//!
//! **Proof** for magnitudes `n < 2^N` and `1 <= d < 2^N`. The multiplier is `m = floor((2^N - 1) / d)`, so that `2^N = m * d + e`
//! with `1 <= e <= d`. Then `n * m / 2^N = n / d - (n / 2^N) * (e / d)`, which is above `n / d - 1` and at most `n / d`. So the
//! estimate `floor(n * m / 2^N)`, the upper half of a product, is the quotient or one less. What it leaves of `n` is less than
//! `2 * d` and at most `n`, so that it does not wrap; where it exceeds `d - 1`, one more `d` is taken off. For `d = 0` the multiplier
//! is 0 and `d - 1` wraps to the largest number, which nothing exceeds: the quotient is 0 and the remainder `n`. Signs are
//! applied to the results of magnitudes, which `MIN` has as an unsigned number.

use tile_ir::ops::scalar::ArithKind;

use super::builder::{Builder, IntPredicate, Val};
use super::wide_product::high_half;

/// An integer and the least and greatest number it can be.
#[derive(Clone, Copy)]
pub struct RangedValue {
    pub value: Val,
    pub range: (i128, i128),
}

impl RangedValue {
    fn is_non_negative(&self) -> bool {
        self.range.0 >= 0
    }
}

/// A division with both of its results.
#[derive(Clone, Copy)]
pub struct Division {
    dividend: RangedValue,
    divisor: RangedValue,
    quotient: Val,
    remainder: Val,
}

impl Division {
    /// The result that a row of the operation table gives.
    pub fn result(&self, b: &mut Builder, arith: ArithKind) -> Val {
        match arith {
            ArithKind::Rem => self.remainder,
            ArithKind::CeilDiv => self.rounded_up(b),
            _ => self.quotient,
        }
    }

    fn rounded_up(&self, b: &mut Builder) -> Val {
        let [zero, one] = [0, 1].map(|number| b.int(self.quotient.ty, number));
        let divisor = self.divisor.value;
        let inexact = b.icmp(IntPredicate::Ne, self.remainder, zero);
        let nonzero = b.icmp(IntPredicate::Ne, divisor, zero);
        let mut up = b.and(inexact, nonzero);
        if !self.dividend.is_non_negative() || !self.divisor.is_non_negative() {
            // Truncation already rounded a negative quotient up.
            let signs = b.xor(self.dividend.value, divisor);
            let positive = b.icmp(IntPredicate::Sge, signs, zero);
            up = b.and(up, positive);
        }
        let above = b.add(self.quotient, one);
        b.select(up, above, self.quotient)
    }
}

/// Divides by an instruction of the machine.
pub fn divide(b: &mut Builder, dividend: RangedValue, divisor: RangedValue) -> Division {
    let quotient = quotient(b, dividend, divisor);
    // With a zero divisor the quotient is 0 and the remainder is the dividend.
    let product = b.mul(quotient, divisor.value);
    let remainder = b.sub(dividend.value, product);
    Division { dividend, divisor, quotient, remainder }
}

fn quotient(b: &mut Builder, dividend: RangedValue, divisor: RangedValue) -> Val {
    let is_unsigned = dividend.is_non_negative() && divisor.is_non_negative();
    let (dividend, divisor) = (dividend.value, divisor.value);
    let [minus_one, zero, one] = [-1, 0, 1].map(|number| b.int(divisor.ty, number));
    let by_zero = b.icmp(IntPredicate::Eq, divisor, zero);
    if is_unsigned {
        let safe = b.select(by_zero, one, divisor);
        let quotient = b.udiv(dividend, safe);
        return b.select(by_zero, zero, quotient);
    }
    let negates = b.icmp(IntPredicate::Eq, divisor, minus_one);
    let special = b.or(by_zero, negates);
    let safe = b.select(special, one, divisor);
    let quotient = b.sdiv(dividend, safe);
    let negative = b.sub(zero, dividend);
    let quotient = b.select(negates, negative, quotient);
    b.select(by_zero, zero, quotient)
}

/// A divisor of many dividends, with what is computed of it once.
pub struct UniformDivisor {
    divisor: RangedValue,
    magnitude: Val,
    /// The largest remainder.
    last: Val,
    /// `(2^bits - 1) / magnitude`, and 0 for a divisor of 0.
    multiplier: Val,
    /// All ones where the divisor is negative; `None` where it cannot be.
    sign: Option<Val>,
}

impl UniformDivisor {
    pub fn new(b: &mut Builder, divisor: RangedValue) -> UniformDivisor {
        let ty = divisor.value.ty;
        let [largest, zero, one] = [-1, 0, 1].map(|number| b.int(ty, number));
        let sign = sign(b, divisor);
        let magnitude = negated_where(b, sign, divisor.value);
        let last = b.sub(magnitude, one);
        let safe = b.op("llvm.intr.umax", &[magnitude, one], ty);
        let multiplier = b.udiv(largest, safe);
        let by_zero = b.icmp(IntPredicate::Eq, magnitude, zero);
        let multiplier = b.select(by_zero, zero, multiplier);
        UniformDivisor { divisor, magnitude, last, multiplier, sign }
    }

    /// The divisor in each lane of a vector.
    pub fn splat(self, b: &mut Builder, lanes: u16) -> UniformDivisor {
        let mut splat = |value| b.splat(value, lanes);
        UniformDivisor {
            divisor: RangedValue { value: splat(self.divisor.value), ..self.divisor },
            magnitude: splat(self.magnitude),
            last: splat(self.last),
            multiplier: splat(self.multiplier),
            sign: self.sign.map(splat),
        }
    }

    /// Divides by a multiplication.
    pub fn divide(&self, b: &mut Builder, dividend: RangedValue) -> Division {
        let one = b.int(dividend.value.ty, 1);
        let dividend_sign = sign(b, dividend);
        let magnitude = negated_where(b, dividend_sign, dividend.value);
        let estimate = high_half(b, &[magnitude, self.multiplier], false);
        let product = b.mul(estimate, self.magnitude);
        let rest = b.sub(magnitude, product);
        let is_short = b.icmp(IntPredicate::Ugt, rest, self.last);
        let (more, less) = (b.add(estimate, one), b.sub(rest, self.magnitude));
        let (quotient, remainder) = (b.select(is_short, more, estimate), b.select(is_short, less, rest));
        let quotient_sign = match (dividend_sign, self.sign) {
            (Some(one), Some(other)) => Some(b.xor(one, other)),
            (one, other) => one.or(other),
        };
        Division {
            dividend,
            divisor: self.divisor,
            quotient: negated_where(b, quotient_sign, quotient),
            remainder: negated_where(b, dividend_sign, remainder),
        }
    }
}

/// All ones where an operand is negative; `None` if it never is.
fn sign(b: &mut Builder, operand: RangedValue) -> Option<Val> {
    let ty = operand.value.ty;
    (!operand.is_non_negative()).then(|| {
        let top = b.int(ty, i64::from(ty.elem.bits() - 1));
        b.ashr(operand.value, top)
    })
}

fn negated_where(b: &mut Builder, sign: Option<Val>, value: Val) -> Val {
    let Some(sign) = sign else { return value };
    let turned = b.xor(value, sign);
    b.sub(turned, sign)
}
