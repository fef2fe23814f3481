//! Elementary functions in double-double arithmetic: a hundred bits, by series and arguments reduced far, with no
//! method in common with what they are the oracle of. Good for finite arguments.

/// An unevaluated sum.
#[derive(Clone, Copy, Debug)]
pub struct Double {
    pub high: f64,
    pub low: f64,
}

/// `value * 2^exponent`.
pub type Scaled = (Double, i32);

const LN_2: Double = Double { high: std::f64::consts::LN_2, low: 2.3190468138462996e-17 };
/// `pi/2` in three parts.
const HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
/// `2 / sqrt(pi)`.
const TWO_OVER_ROOT_PI: Double =
    Double { high: std::f64::consts::FRAC_2_SQRT_PI, low: 1.533545961316588e-17 };

fn two_sum(a: f64, b: f64) -> Double {
    let high = a + b;
    let part = high - a;
    Double { high, low: (a - (high - part)) + (b - part) }
}

fn two_product(a: f64, b: f64) -> Double {
    let high = a * b;
    Double { high, low: a.mul_add(b, -high) }
}

impl From<f64> for Double {
    fn from(high: f64) -> Double {
        Double { high, low: 0.0 }
    }
}

impl std::ops::Add for Double {
    type Output = Double;

    fn add(self, other: Double) -> Double {
        let high = two_sum(self.high, other.high);
        let low = two_sum(self.low, other.low);
        let sum = two_sum(high.high, high.low + low.high);
        two_sum(sum.high, sum.low + low.low)
    }
}

impl std::ops::Neg for Double {
    type Output = Double;

    fn neg(self) -> Double {
        Double { high: -self.high, low: -self.low }
    }
}

impl std::ops::Sub for Double {
    type Output = Double;

    fn sub(self, other: Double) -> Double {
        self + -other
    }
}

impl std::ops::Mul for Double {
    type Output = Double;

    fn mul(self, other: Double) -> Double {
        let product = two_product(self.high, other.high);
        two_sum(product.high, product.low + (self.high * other.low + self.low * other.high))
    }
}

impl std::ops::Div for Double {
    type Output = Double;

    fn div(self, other: Double) -> Double {
        let mut quotient = Double::from(0.0);
        let mut rest = self;
        for _ in 0..3 {
            let digit = Double::from(rest.high / other.high);
            rest = rest - digit * other;
            quotient = quotient + digit;
        }
        quotient
    }
}

/// `1 + a x (1 + b x (1 + ..))` from the ratios of neighboring terms, the first ratio first.
fn series(x: Double, ratios: impl DoubleEndedIterator<Item = f64>) -> Double {
    ratios.rev().fold(Double::from(1.0), |sum, divisor| Double::from(1.0) + x * sum / Double::from(divisor))
}

fn exp_scaled(x: Double) -> Scaled {
    let n = (x.high / LN_2.high).round();
    let r = x - LN_2 * Double::from(n);
    let mut power = series(r * Double::from(1.0 / 256.0), (1..14).map(f64::from));
    for _ in 0..8 {
        power = power * power;
    }
    (power, n as i32)
}

pub fn exp(x: f64) -> Scaled {
    exp_scaled(x.into())
}

pub fn exp2(x: f64) -> Scaled {
    let n = x.round();
    let (value, more) = exp_scaled(LN_2 * Double::from(x - n));
    (value, n as i32 + more)
}

/// The mantissa in `[1, 2)` or of a subnormal as large, and the exponent.
fn taken_apart(x: f64) -> (f64, i32) {
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * 2.0f64.powi(54), -54) } else { (x, 0) };
    let exponent = (x.to_bits() >> 52) as i32 - 1023;
    (x * 2.0f64.powi(-exponent / 2) * 2.0f64.powi(-exponent + exponent / 2), exponent + shift)
}

fn natural(x: f64) -> Double {
    let (mut mantissa, mut exponent) = taken_apart(x);
    if mantissa > 1.5 {
        (mantissa, exponent) = (mantissa / 2.0, exponent + 1);
    }
    let s = (Double::from(mantissa) - Double::from(1.0)) / (Double::from(mantissa) + Double::from(1.0));
    let square = s * s;
    // 2 (s + s^3/3 + s^5/5 + ..), from the smallest term up.
    let sum = (0..40).rev().fold(Double::from(0.0), |sum, k| {
        sum * square + Double::from(1.0) / Double::from(f64::from(2 * k + 1))
    });
    LN_2 * Double::from(f64::from(exponent)) + s * sum * Double::from(2.0)
}

pub fn log(x: f64) -> Scaled {
    (natural(x), 0)
}

pub fn log2(x: f64) -> Scaled {
    let (mantissa, exponent) = taken_apart(x);
    if mantissa == 1.0 {
        return (f64::from(exponent).into(), 0);
    }
    (natural(x) / LN_2, 0)
}

/// The remainder by `pi/2` and the multiple, for `|x|` up to 2^20.
fn reduced(x: f64) -> (Double, i64) {
    let n = (x / HALF_PI[0]).round();
    let r = Double::from(x)
        - two_product(n, HALF_PI[0])
        - two_product(n, HALF_PI[1])
        - two_product(n, HALF_PI[2]);
    (r, n as i64)
}

fn sine(x: f64, quadrants: i64) -> Scaled {
    let (r, n) = reduced(x);
    let square = -(r * r);
    let value = match (n + quadrants).rem_euclid(2) {
        0 => r * series(square, (1..16).map(|k| f64::from(2 * k * (2 * k + 1)))),
        _ => series(square, (1..16).map(|k| f64::from(2 * k * (2 * k - 1)))),
    };
    (if (n + quadrants).rem_euclid(4) < 2 { value } else { -value }, 0)
}

pub fn sin(x: f64) -> Scaled {
    sine(x, 0)
}

pub fn cos(x: f64) -> Scaled {
    sine(x, 1)
}

/// A number as it is; only for exponents of moderate size.
fn plain((value, exponent): Scaled) -> Double {
    let scale = 2.0f64.powi(exponent);
    Double { high: value.high * scale, low: value.low * scale }
}

pub fn sigmoid(x: f64) -> Scaled {
    let one = Double::from(1.0);
    if x < -80.0 {
        return exp(x);
    }
    let z = plain(exp(-x.abs().min(200.0)));
    (if x < 0.0 { z } else { one } / (one + z), 0)
}

pub fn tanh(x: f64) -> Scaled {
    let one = Double::from(1.0);
    if x.abs() < 1e-5 {
        let square = Double::from(x) * Double::from(x);
        let rest = square * (Double::from(2.0) * square / Double::from(15.0) - one / Double::from(3.0));
        return (Double::from(x) + Double::from(x) * rest, 0);
    }
    let power = plain(exp((2.0 * x.abs()).min(100.0)));
    let value = (power - one) / (power + one);
    (if x < 0.0 { -value } else { value }, 0)
}

/// `2/sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..)`, whose terms have one sign.
pub fn erf(x: f64) -> Scaled {
    if x.abs() > 6.5 {
        return (x.signum().into(), 0);
    }
    let square = two_product(x, x);
    let sum = series(square * Double::from(2.0), (1..180).map(|k| f64::from(2 * k + 1)));
    (TWO_OVER_ROOT_PI * Double::from(x) * sum * plain(exp_scaled(-square)), 0)
}

/// A Newton step from the root in `f64`.
pub fn rsqrt(x: f64) -> Scaled {
    let (mut mantissa, mut exponent) = taken_apart(x);
    if exponent % 2 != 0 {
        (mantissa, exponent) = (mantissa * 2.0, exponent - 1);
    }
    let guess = Double::from(1.0 / mantissa.sqrt());
    let residual = Double::from(1.0) - Double::from(mantissa) * guess * guess;
    (guess + guess * residual * Double::from(0.5), -exponent / 2)
}
