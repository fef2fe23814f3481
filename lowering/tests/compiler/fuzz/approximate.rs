//! Floats with a bound on their error, for operations whose results the language states within a bound.
//!
//! An operation on values with errors is evaluated at the ends of their intervals, which is right for functions that
//! are monotone in each argument, and its own bound is added. Bounds are those of the table of operations.

use tile_ir::ops::scalar;
use tile_ir::support::dtype::DType;

use super::element::{Element, round};

/// The smallest normal `f32`: below it a GPU may give 0 for a result, or take 0 for an argument.
const MIN_NORMAL: f64 = 1.2e-38;

/// Functions of `tl::` that are made of others, with their bounds in ULP of `f32` and in ULP of `z`.
const LIBRARY: [(&str, f64); 4] = [("gelu", 16.0), ("gelu_tanh", 8.0), ("silu", 5.0), ("softplus", 8.0)];

/// Half a unit in the last place of 1.
pub fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F8E4M3 => 2f64.powi(-4),
        DType::F8E5M2 => 2f64.powi(-3),
        _ => 2f64.powi(-24),
    }
}

/// The largest number, beyond which a sum or product is infinite.
pub fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57344.0,
        _ => f64::from(f32::MAX),
    }
}

/// Half the distance of two neighbors at the bottom of a type's range.
fn smallest_step(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 2f64.powi(-25),
        DType::F8E4M3 => 2f64.powi(-10),
        DType::F8E5M2 => 2f64.powi(-17),
        _ => MIN_NORMAL,
    }
}

pub fn accepts(found: f64, value: f64, error: f64) -> bool {
    if error == f64::INFINITY {
        return true;
    }
    if value.is_nan() || found.is_nan() {
        return value.is_nan() && found.is_nan();
    }
    found == value || (found - value).abs() <= error
}

/// An approximate value in a type: an unknown one where it may overflow.
pub fn element(value: f64, error: f64, dtype: DType) -> Element {
    let overflows = value.is_finite() && value.abs() + error > largest(dtype) * (1.0 - unit_roundoff(dtype));
    let unknown = overflows || error.is_nan() || error == f64::INFINITY;
    let error = if unknown { f64::INFINITY } else { error };
    Element::Approximate { value, error: if value.is_finite() || unknown { error } else { 0.0 } }
}

/// A value with an error, rounded to a type.
pub fn rounded(value: f64, error: f64, dtype: DType) -> Element {
    if error == 0.0 && round(dtype, value).is_finite() {
        return Element::Float(round(dtype, value));
    }
    // The 8-bit floats end at their largest number.
    let value = if dtype.is_float() && dtype.bytes() == 1 {
        value.clamp(-largest(dtype), largest(dtype))
    } else {
        value
    };
    let error = error + unit_roundoff(dtype) * (value.abs() + error) + smallest_step(dtype);
    if dtype.bytes() == 1 { Element::Approximate { value, error } } else { element(value, error, dtype) }
}

/// Whether an operation has no exact result: by its bound, or because of its operands.
pub fn is_inexact(name: &str, args: &[Element]) -> bool {
    let bound = |name| scalar::functions::named(name).map_or(0.0, |row| row.ulp.f32);
    args.iter().any(|arg| matches!(arg, Element::Approximate { .. }))
        || matches!(args[0], Element::Float(_))
            && (matches!(name, "/" | "fma")
                || LIBRARY.iter().any(|(own, _)| *own == name)
                || bound(name) > 0.5)
}

/// The mathematical function of a name.
fn function(name: &str, a: &[f64]) -> f64 {
    match name {
        "+" => a[0] + a[1],
        "-" => a[0] - a[1],
        "*" => a[0] * a[1],
        "/" => a[0] / a[1],
        "neg" => -a[0],
        "relu" => a[0].max(0.0),
        "gelu" => a[0] * 0.5 * libm::erfc(-a[0] * std::f64::consts::FRAC_1_SQRT_2),
        "silu" => a[0] / (1.0 + (-a[0]).exp()),
        "softplus" => a[0].max(0.0) + (-a[0].abs()).exp().ln_1p(),
        "gelu_tanh" => a[0] / (1.0 + (-2.0 * gelu_argument(a[0])).exp()),
        _ => {
            let row = scalar::functions::named(name).unwrap_or_else(|| panic!("{name} of floats"));
            (row.float.as_ref().expect("an operation of floats").function)(a)
        }
    }
}

fn gelu_argument(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

/// The magnitude of a result that may be 0 instead, because the `sigmoid` that it is a product with is subnormal.
fn flushed(name: &str, x: f64) -> f64 {
    if !matches!(name, "silu" | "gelu_tanh") {
        return 0.0;
    }
    let value = function(name, &[x]).abs();
    if value < MIN_NORMAL * x.abs() { value } else { 0.0 }
}

/// The operation's own bound in ULP of the type it is computed in, for a result of this value.
fn ulps(name: &str, dtype: DType, x: f64) -> f64 {
    let library = LIBRARY.iter().find(|(own, _)| *own == name).map(|(_, ulps)| *ulps);
    let ulp =
        scalar::functions::named(name).map(|row| if dtype == DType::F64 { row.ulp.f64 } else { row.ulp.f32 });
    match (name, library) {
        ("gelu", Some(ulps)) if dtype == DType::F64 => ulps + x * x,
        ("gelu_tanh", Some(ulps)) => ulps + 5.0 * gelu_argument(x).abs(),
        (_, Some(ulps)) => ulps,
        ("/", None) if dtype != DType::F64 => 2.0,
        _ => ulp.unwrap_or(0.5),
    }
}

/// The value of an operation, and its error from the operands' errors and from the operation's bound.
pub fn lanewise(name: &str, dtype: DType, args: &[Element]) -> Element {
    let values: Vec<f64> = args.iter().map(|arg| arg.float()).collect();
    // Correct rounding keeps the order of the ends.
    let rounds = matches!(name, "+" | "-" | "*" | "sqrt");
    let function = |name: &str, args: &[f64]| {
        let result = function(name, args);
        if rounds { round(dtype, result) } else { result }
    };
    let value = function(name, &values);
    let mut error = 0f64;
    for corner in 0..1usize << args.len() {
        let ends = args.iter().enumerate().map(|(i, arg)| {
            if corner >> i & 1 == 0 { arg.float() - arg.error() } else { arg.float() + arg.error() }
        });
        let ends: Vec<f64> = ends.collect();
        // Neither end is a value where anything may be.
        let end = if ends.iter().zip(&values).any(|(end, value)| end.is_nan() && !value.is_nan()) {
            f64::NAN
        } else {
            function(name, &ends)
        };
        let apart = if end == value || (end.is_nan() && value.is_nan()) { 0.0 } else { (end - value).abs() };
        error = error.max(if apart.is_nan() { f64::INFINITY } else { apart });
    }
    let has_pole = name == "/" && values[1].abs() <= args[1].error() && args[1].error() > 0.0;
    if has_pole || args.iter().any(|arg| arg.error() == f64::INFINITY) {
        error = f64::INFINITY;
    }
    if matches!(name, "sin" | "cos") {
        error = args[0].error().min(2.0);
    }
    let computed_in = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let unit = 2.0 * unit_roundoff(computed_in);
    if rounds {
        return Element::Approximate { value, error };
    }
    let exact = matches!(name, "neg" | "abs" | "maximum" | "minimum" | "relu" | "clamp" | "select");
    if !exact && value.is_finite() {
        error += ulps(name, dtype, values[0]) * unit * (value.abs() + error) + smallest_step(computed_in);
        error += flushed(name, values[0]);
    }
    if exact || dtype == computed_in {
        return element(value, error, dtype);
    }
    // In 16 bits these are within three quarters of a unit, in place of half of one.
    let is_library = LIBRARY.iter().any(|(own, _)| *own == name);
    let more = if is_library { 0.5 * unit_roundoff(dtype) * value.abs() } else { 0.0 };
    rounded(value, error + more, dtype)
}

/// e to a power that is made together with a difference or product whose parts are up to `parts`.
pub fn exp(x: Element, parts: f64, dtype: DType) -> Element {
    let (x, x_error) = (x.float(), x.error());
    let ulps =
        if parts > 0.0 { 3.0 + 2.0 * parts.max(if x.is_finite() { x.abs() } else { 0.0 }) } else { 2.0 };
    let computed_in = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let value = x.exp();
    let bound = (x_error + ulps * 2.0 * unit_roundoff(computed_in)).exp_m1();
    let error = if value.is_finite() { value * bound } else { 0.0 };
    let error = if x_error == f64::INFINITY { x_error } else { error + smallest_step(computed_in) };
    if dtype == computed_in { element(value, error, dtype) } else { rounded(value, error, dtype) }
}

/// The sum in any order: exact where every partial sum is a whole number that the type holds.
pub fn sum(line: &[Element], dtype: DType) -> Element {
    let value: f64 = line.iter().map(|element| element.float()).sum();
    let magnitude: f64 = line.iter().map(|element| element.float().abs()).sum();
    let errors: f64 = line.iter().map(|element| element.error()).sum();
    total(value, [magnitude, errors], line.len() as f64 * unit_roundoff(dtype), dtype)
}

/// A sum of this magnitude and these errors of its terms, whose own error is `relative` to the magnitude.
pub fn total(value: f64, [magnitude, errors]: [f64; 2], relative: f64, dtype: DType) -> Element {
    let holds = magnitude < 1.0 / unit_roundoff(dtype);
    if errors == 0.0 && holds && value.fract() == 0.0 && magnitude.fract() == 0.0 {
        return Element::Float(value);
    }
    if !value.is_finite() {
        return Element::Approximate { value, error: if errors.is_finite() { 0.0 } else { f64::INFINITY } };
    }
    let error = errors + relative * (magnitude + errors) + smallest_step(dtype);
    // Partial sums may overflow where the sum does not.
    if magnitude + errors > largest(dtype) {
        element(value, f64::INFINITY, dtype)
    } else {
        element(value, error, dtype)
    }
}

/// The softmax of a line, or its logarithm.
pub fn softmax(line: &[Element], log: bool, parts: f64, dtype: DType) -> Vec<Element> {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let values = || line.iter().map(|element| element.float());
    let max = values().fold(f64::NEG_INFINITY, f64::max);
    if values().any(f64::is_nan) || max.is_infinite() {
        return vec![Element::Float(f64::NAN); line.len()];
    }
    let max_error = line.iter().map(|element| element.error()).fold(0.0, f64::max);
    let max = Element::Approximate { value: max, error: max_error };
    let shifted: Vec<Element> = line.iter().map(|&x| lanewise("-", wide, &[x, max])).collect();
    let powers: Vec<Element> = shifted.iter().map(|&x| exp(x, parts.max(1.0), wide)).collect();
    let sum = sum(&powers, wide);
    let result = |(&shifted, &power): (&Element, &Element)| {
        let result = if log {
            lanewise("-", wide, &[shifted, lanewise("log", wide, &[sum])])
        } else {
            lanewise("*", wide, &[power, lanewise("/", wide, &[Element::Float(1.0), sum])])
        };
        if dtype == wide { result } else { rounded(result.float(), result.error(), dtype) }
    };
    shifted.iter().zip(&powers).map(result).collect()
}
