// What the oracles of the lanewise table are written with. The table's tests get this file as text, so it uses nothing
// but the language.

/// A bool as the integer oracles see it.
fn truth(value: bool) -> i128 {
    if value { 1 } else { 0 }
}

/// The bits of a type, as an integer oracle counts.
fn bit_count(dtype: DType) -> i128 {
    8 * dtype.bytes() as i128
}

/// A bit of a number of any sign, the lowest one first.
fn bit(x: i128, place: i128) -> i128 {
    (x >> place) & 1
}

/// The product shifted right. That of two unsigned 64-bit numbers takes all of 128 bits.
fn high_half(x: i128, y: i128, bits: i128) -> i128 {
    if x < 0 || y < 0 { (x * y) >> bits } else { ((x as u128 * y as u128) >> bits) as i128 }
}

/// The larger of two numbers, of which `-0.0` is the smaller zero; the other one where one is NaN.
fn larger(x: f64, y: f64) -> f64 {
    if y.is_nan() || x > y || (x == y && y.is_sign_negative()) { x } else { y }
}

/// The smaller of two numbers, of which `-0.0` is the smaller zero; the other one where one is NaN.
fn smaller(x: f64, y: f64) -> f64 {
    -larger(-x, -y)
}

/// The inverse of the error function: Newton's method on `erf`, or on `erfc` where `erf` is close to 1.
fn inverse_erf(x: f64) -> f64 {
    let a = x.abs();
    if a == 0.0 || a >= 1.0 || a.is_nan() {
        return if a == 1.0 { f64::INFINITY.copysign(x) } else { x * (1.0 - a).sqrt() };
    }
    let log = ((1.0 - a) * (1.0 + a)).ln();
    let center = 2.0 / (std::f64::consts::PI * 0.147) + 0.5 * log;
    let start = ((center * center - log / 0.147).sqrt() - center).max(0.0).sqrt();
    let start = if a < 1e-4 { 0.886226925452758 * a } else { start };
    let step = |y: f64, _| {
        let error = if a < 0.75 { libm::erf(y) - a } else { (1.0 - a) - libm::erfc(y) };
        let step = error * (y * y).exp() * 0.886226925452758;
        y - step / (1.0 + y * step)
    };
    (0..4).fold(start, step).copysign(x)
}
