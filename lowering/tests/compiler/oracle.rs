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

// ---- by a Newton step from the value in `f64`, or a series where that is small

fn double(x: f64) -> Double {
    Double::from(x)
}

fn log_of_twice(x: f64) -> Double {
    natural(x) + LN_2
}

/// `sinh(x)` and `cosh(x) - 1` of a moderate number.
fn hyperbolic(x: f64) -> (Double, Double) {
    if x.abs() > 0.5 {
        let power = plain(exp(x));
        let inverse = double(1.0) / power;
        let half = double(0.5);
        return ((power - inverse) * half, (power + inverse) * half - double(1.0));
    }
    let square = double(x) * double(x);
    let sinh = double(x) * series(square, (1..14).map(|k| f64::from(2 * k * (2 * k + 1))));
    let cosh = square * double(0.5) * series(square, (2..14).map(|k| f64::from(2 * k * (2 * k - 1))));
    (sinh, cosh)
}

pub fn sinh(x: f64) -> Scaled {
    if x.abs() < 40.0 {
        return (hyperbolic(x).0, 0);
    }
    let (power, exponent) = exp(x.abs());
    (if x < 0.0 { -power } else { power }, exponent - 1)
}

pub fn cosh(x: f64) -> Scaled {
    if x.abs() < 40.0 {
        return (hyperbolic(x).1 + double(1.0), 0);
    }
    let (power, exponent) = exp(x.abs());
    (power, exponent - 1)
}

pub fn expm1(x: f64) -> Scaled {
    match x {
        _ if x.abs() < 0.5 => (double(x) * series(double(x), (2..26).map(f64::from)), 0),
        _ if x > 50.0 => exp(x),
        _ => (plain(exp(x.max(-200.0))) - double(1.0), 0),
    }
}

pub fn log1p(x: f64) -> Scaled {
    if x.abs() < 1e-4 {
        let term = |k: i32| double(1.0) / double(f64::from(k + 1));
        let sum = (0..9).rev().fold(double(0.0), |sum, k| term(k) - double(x) * sum);
        return (double(x) * sum, 0);
    }
    if x > 1e30 {
        return (natural(x), 0);
    }
    let guess = x.ln_1p();
    let step = two_sum(1.0, x) * plain(exp(-guess)) - double(1.0);
    (double(guess) + step, 0)
}

pub fn tan(x: f64) -> Scaled {
    (sin(x).0 / cos(x).0, 0)
}

/// The angle of a point in a circle of moderate size, near `guess`.
fn angle(y: f64, x: f64, guess: f64) -> Double {
    let (sine, cosine) = (sin(guess).0, cos(guess).0);
    let [y, x] = [y, x].map(double);
    double(guess) + (y * cosine - x * sine) / (x * cosine + y * sine)
}

pub fn atan(x: f64) -> Scaled {
    (angle(x, 1.0, x.atan()), 0)
}

pub fn atan2(y: f64, x: f64) -> Scaled {
    let guess = y.atan2(x);
    let [(rise, up), (run, over)] = [y, x].map(|number| taken_apart(number.abs()));
    if guess.abs() < 1e-10 {
        let slope = double(rise) / double(run);
        return (if y < 0.0 { -slope } else { slope }, up - over);
    }
    let near = |mantissa: f64, exponent: i32| scaled_by(mantissa, exponent - up.max(over));
    (angle(near(rise, up).copysign(y), near(run, over).copysign(x), guess), 0)
}

/// `x * 2^exponent`, 0 where that is small.
fn scaled_by(x: f64, exponent: i32) -> f64 {
    if exponent < -900 { 0.0 } else { x * 2.0f64.powi(exponent) }
}

pub fn asin(x: f64) -> Scaled {
    let quarter = Double { high: HALF_PI[0], low: HALF_PI[1] };
    match x {
        1.0 => (quarter, 0),
        -1.0 => (-quarter, 0),
        _ => {
            let guess = x.asin();
            (double(guess) + (double(x) - sin(guess).0) / cos(guess).0, 0)
        }
    }
}

pub fn acos(x: f64) -> Scaled {
    let guess = x.acos();
    if x == -1.0 {
        return (Double { high: 2.0 * HALF_PI[0], low: 2.0 * HALF_PI[1] }, 0);
    }
    // 1 - cos(guess) has the digits that the cosine of a small angle lacks.
    let half = sin(0.5 * guess).0;
    let over = two_sum(1.0, -x) - double(2.0) * half * half;
    (double(guess) + over / sin(guess).0, 0)
}

pub fn asinh(x: f64) -> Scaled {
    let magnitude = x.abs();
    let value = if magnitude > 1e8 {
        log_of_twice(magnitude) + double(0.25) / double(magnitude) / double(magnitude)
    } else {
        let guess = libm::asinh(magnitude);
        let (sinh, cosh) = hyperbolic(guess);
        double(guess) + (double(magnitude) - sinh) / (cosh + double(1.0))
    };
    (if x < 0.0 { -value } else { value }, 0)
}

pub fn acosh(x: f64) -> Scaled {
    if x > 1e8 {
        return (log_of_twice(x) - double(0.25) / double(x) / double(x), 0);
    }
    let guess = libm::acosh(x);
    let (sinh, cosh) = hyperbolic(guess);
    (double(guess) + (two_sum(x, -1.0) - cosh) / sinh, 0)
}

pub fn atanh(x: f64) -> Scaled {
    let guess = libm::atanh(x);
    let (sinh, cosh) = hyperbolic(guess);
    let cosh = cosh + double(1.0);
    (double(guess) + (double(x) * cosh - sinh) / (cosh - double(x) * sinh), 0)
}

/// `1 - erf`, or `e^(-x^2) / (x sqrt(pi))` by a continued fraction: `1 / (1 + a / (1 + 2 a / (1 + 3 a / ..)))` with `a =
/// 1 / (2 x^2)`.
pub fn erfc(x: f64) -> Scaled {
    if x < 2.0 {
        return (double(1.0) - erf(x).0, 0);
    }
    if x > 30.0 {
        return (double(0.0), 0);
    }
    let square = two_product(x, x);
    let first = double(0.5) / square;
    let fraction =
        (1..160).rev().fold(double(1.0), |rest, k| double(1.0) + first * double(f64::from(k)) / rest);
    let (power, exponent) = exp_scaled(-square);
    (TWO_OVER_ROOT_PI * double(0.5) / double(x) / fraction * power, exponent)
}

pub fn cbrt(x: f64) -> Scaled {
    let (mantissa, exponent) = taken_apart(x.abs());
    let more = exponent.rem_euclid(3);
    let mantissa = mantissa * f64::from(1 << more);
    let guess = double(mantissa.cbrt());
    let square = guess * guess;
    let root = guess + (double(mantissa) - square * guess) / (square * double(3.0));
    (if x < 0.0 { -root } else { root }, (exponent - more) / 3)
}

pub fn hypot(x: f64, y: f64) -> Scaled {
    let [(a, first), (b, second)] = [x, y].map(|number| taken_apart(number.abs()));
    let exponent = if x == 0.0 {
        second
    } else if y == 0.0 {
        first
    } else {
        first.max(second)
    };
    let [a, b] = [(a, first), (b, second)].map(|(number, own)| scaled_by(number, own - exponent));
    let square = two_product(a, a) + two_product(b, b);
    let guess = double(square.high.sqrt());
    (guess + (square - guess * guess) / (guess * double(2.0)), exponent)
}

pub fn pow(x: f64, y: f64) -> Scaled {
    let (power, exponent) = exp_scaled(natural(x.abs()) * double(y));
    (if x < 0.0 && y % 2.0 != 0.0 { -power } else { power }, exponent)
}

pub fn rem(x: f64, y: f64) -> Scaled {
    (double(x % y), 0)
}

/// A Newton step from the value in `f64`, by the relative error of `erfc` where that is small.
pub fn erfinv(x: f64) -> Scaled {
    let row =
        tile_ir::ops::scalar::functions::named("erfinv").and_then(|row| row.float).expect("a float function");
    let guess = (row.function)(&[x.abs()]);
    let (power, exponent) = exp_scaled(two_product(guess, guess));
    let error = if x.abs() < 0.75 {
        erf(guess).0 - double(x.abs())
    } else {
        two_sum(1.0, -x.abs()) - plain(erfc(guess))
    };
    let value = double(guess) - error * plain((power, exponent)) / TWO_OVER_ROOT_PI;
    (if x < 0.0 { -value } else { value }, 0)
}

// ---- the gamma function

const PI: Double = Double { high: 2.0 * HALF_PI[0], low: 2.0 * HALF_PI[1] };
const EULER: Double = Double { high: 0.5772156649015329, low: -4.942915152430645e-18 };
/// Half of `log(2 pi)`.
const HALF_LOG_TWO_PI: Double = Double { high: 0.9189385332046728, low: -3.8782941580672414e-17 };
/// The zeta function from 2 on.
const ZETA: [Double; 7] = [
    Double { high: 1.6449340668482264, low: 3.040672350398476e-17 },
    Double { high: 1.2020569031595942, low: 4.875891010379532e-17 },
    Double { high: 1.0823232337111381, low: 4.748512042855365e-17 },
    Double { high: 1.03692775514337, low: -6.276789020377768e-17 },
    Double { high: 1.0173430619844492, low: -9.758599166441531e-17 },
    Double { high: 1.008349277381923, low: -9.91714730971456e-17 },
    Double { high: 1.0040773561979444, low: -2.0171748307737844e-17 },
];
/// The coefficients of Stirling's series as fractions.
const STIRLING: [[f64; 2]; 12] = [
    [1.0, 12.0],
    [-1.0, 360.0],
    [1.0, 1260.0],
    [-1.0, 1680.0],
    [1.0, 1188.0],
    [-691.0, 360360.0],
    [1.0, 156.0],
    [-3617.0, 122400.0],
    [43867.0, 244188.0],
    [-174611.0, 125400.0],
    [77683.0, 5796.0],
    [-236364091.0, 1506960.0],
];

fn natural_of(x: Double) -> Double {
    natural(x.high) + double(x.low / x.high)
}

/// Next to its zero at `zero`, 1 or 2, the power series; elsewhere Stirling's, of a number that is 40 larger; below zero by reflection.
pub fn lgamma(x: f64) -> Scaled {
    for zero in [1.0, 2.0] {
        let e = x - zero;
        if e.abs() < 1e-3 {
            let term = |k: usize| (ZETA[k] - double(zero - 1.0)) / double(k as f64 + 2.0);
            let sum = (0..ZETA.len()).rev().fold(double(0.0), |sum, k| term(k) - double(e) * sum);
            return (double(e) * (double(zero - 1.0) - EULER + double(e) * sum), 0);
        }
    }
    if x < 0.0 {
        let r = (x - x.round()).abs();
        let radians = PI * double(r);
        let sine = double(r) * series(-(radians * radians), (1..16).map(|k| f64::from(2 * k * (2 * k + 1))));
        return (-natural(-x) - natural_of(sine) - plain(lgamma(-x)), 0);
    }
    if x > 1e20 {
        return (double(x * 2.0f64.powi(-60)) * (natural(x) - double(1.0)), 60);
    }
    let shift = if x < 40.0 { 40 } else { 0 };
    let product = (0..shift).fold(double(1.0), |product, k| product * two_sum(x, f64::from(k)));
    let y = two_sum(x, f64::from(shift));
    let inverse = double(1.0) / y;
    let square = inverse * inverse;
    let rest = STIRLING
        .iter()
        .rev()
        .fold(double(0.0), |sum, &[above, below]| sum * square + double(above) / double(below));
    let main = (y - double(0.5)) * natural_of(y) - y;
    (main + HALF_LOG_TWO_PI + rest * inverse - natural_of(product), 0)
}
