//! One element and its arithmetic, in plain Rust, from the language's documentation and without the compiler's tables.
//!
//! The law of indices: `+ - *`, negation and shifts by constants that end in an offset or a comparison are exact, of `i32`
//! in 64 bits and of `u64` in 128; everywhere else a value wraps to its type. So an integer element has two values, and [`Element::leaf`]
//! forgets the exact one.

use tile_ir::support::dtype::{DType, Float8Format};

use super::approximate;

/// An element of a tile.
#[derive(Clone, Copy, Debug)]
pub enum Element {
    /// The wrapped value, and the exact result of its chain of `+ - *`, if that fits in 64 bits, or 128 of `u64`.
    Integer {
        value: i128,
        exact: Option<i128>,
    },
    Float(f64),
    /// A float whose computed value may be `error` away from `value`, which is not rounded; anything at all if `error` is
    /// infinite.
    Approximate {
        value: f64,
        error: f64,
    },
}

/// A bool as an element.
pub fn bool_element(is_true: bool) -> Element {
    Element::whole(i128::from(is_true))
}

impl Element {
    /// An integer whose exact value is its wrapped one.
    pub fn whole(value: i128) -> Element {
        Element::Integer { value, exact: Some(value) }
    }

    pub fn wrapped(dtype: DType, value: i128) -> Element {
        Element::whole(wrap(dtype, value))
    }

    pub fn zero(dtype: DType) -> Element {
        if dtype.is_float() { Element::Float(0.0) } else { Element::whole(0) }
    }

    /// The integer, wrapped to its type.
    pub fn value(self) -> i128 {
        match self {
            Element::Integer { value, .. } => value,
            Element::Float(value) | Element::Approximate { value, .. } => value as i128,
        }
    }

    pub fn float(self) -> f64 {
        match self {
            Element::Integer { value, .. } => value as f64,
            Element::Float(value) | Element::Approximate { value, .. } => value,
        }
    }

    /// How far from [`Element::float`] the computed value may be.
    pub fn error(self) -> f64 {
        match self {
            Element::Approximate { error, .. } => error,
            Element::Float(_) | Element::Integer { .. } => 0.0,
        }
    }

    /// The exact integer for offsets and comparisons; `None` if it does not fit.
    pub fn exact(self) -> Option<i128> {
        match self {
            Element::Integer { exact, .. } => exact,
            Element::Float(_) | Element::Approximate { .. } => None,
        }
    }

    pub fn is_true(self) -> bool {
        self.value() != 0
    }

    /// The element without its exact integer, as the result of a load, a select or a loop.
    pub fn leaf(self) -> Element {
        match self {
            Element::Integer { value, .. } => Element::whole(value),
            float => float,
        }
    }

    /// Its bytes in memory.
    pub fn bytes(self, dtype: DType) -> Vec<u8> {
        if let Element::Integer { value, .. } = self {
            return value.to_le_bytes()[..dtype.bytes() as usize].to_vec();
        }
        let float = self.float();
        match dtype {
            DType::F64 => float.to_le_bytes().to_vec(),
            DType::F32 => (float as f32).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(round(dtype, float)).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(round(dtype, float)).to_le_bytes().to_vec(),
            dtype => vec![Float8Format::of(dtype).bits(float)],
        }
    }

    pub fn of_bytes(bytes: &[u8], dtype: DType) -> Element {
        let mut low = [0u8; 16];
        low[..bytes.len()].copy_from_slice(bytes);
        let bits = i128::from_le_bytes(low);
        match dtype {
            DType::F64 => Element::Float(f64::from_bits(bits as u64)),
            DType::F32 => Element::Float(f32::from_bits(bits as u32).into()),
            DType::F16 => Element::Float(half::f16::from_bits(bits as u16).into()),
            DType::BF16 => Element::Float(half::bf16::from_bits(bits as u16).into()),
            DType::F8E4M3 | DType::F8E5M2 => Element::Float(float8(dtype, bits as u8)),
            _ => Element::wrapped(dtype, bits),
        }
    }

    /// Bitwise equality, or within the error that `wanted` has; any two NaNs are equal.
    pub fn same(self, wanted: Element) -> bool {
        match (self, wanted) {
            (found, Element::Approximate { value, error }) => {
                approximate::accepts(found.float(), value, error)
            }
            (Element::Float(a), Element::Float(b)) => {
                (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits()
            }
            (a, b) => a.value() == b.value(),
        }
    }
}

/// Two's complement.
pub fn wrap(dtype: DType, value: i128) -> i128 {
    match dtype {
        DType::Bool => value & 1,
        DType::I8 => i128::from(value as i8),
        DType::I16 => i128::from(value as i16),
        DType::I32 => i128::from(value as i32),
        DType::I64 => i128::from(value as i64),
        DType::U8 => i128::from(value as u8),
        DType::U16 => i128::from(value as u16),
        DType::U32 => i128::from(value as u32),
        _ => i128::from(value as u64),
    }
}

/// The nearest number of a float type, halves to the even one.
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => rounded_to_bits(value, 11, -14, 15),
        DType::BF16 => rounded_to_bits(value, 8, -126, 127),
        DType::F8E4M3 | DType::F8E5M2 => float8(dtype, Float8Format::of(dtype).bits(value)),
        _ => value,
    }
}

/// The number of an 8-bit float.
fn float8(dtype: DType, bits: u8) -> f64 {
    let Float8Format { fraction, bias, max } = Float8Format::of(dtype);
    let (exponent, digits) = (i32::from(bits & 0x7f) >> fraction, f64::from(bits & ((1 << fraction) - 1)));
    let unit = 2f64.powi(exponent.max(1) - bias - fraction as i32);
    let magnitude = if exponent == 0 { digits * unit } else { (digits + f64::from(1 << fraction)) * unit };
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    match (dtype, magnitude > max) {
        (_, false) => sign * magnitude,
        (DType::F8E5M2, true) if digits == 0.0 => sign * f64::INFINITY,
        _ => f64::NAN,
    }
}

/// The nearest number of so many bits, with exponents between these.
fn rounded_to_bits(value: f64, bits: i32, min_exponent: i32, max_exponent: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi(exponent.max(min_exponent) - (bits - 1));
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() >= 2f64.powi(max_exponent) * 2.0 { f64::INFINITY.copysign(value) } else { rounded }
}

/// `as`, and `.to::<..>()`.
pub fn cast(element: Element, from: DType, to: DType) -> Element {
    match (element, to) {
        (Element::Float(float), DType::Bool) => bool_element(float != 0.0),
        (Element::Integer { value, .. }, DType::Bool) => bool_element(value != 0),
        (Element::Approximate { value, error }, to) if to.is_float() => {
            approximate::rounded(value, error, to)
        }
        (Element::Float(float), to) if to.is_float() => Element::Float(round(to, float)),
        (Element::Float(float) | Element::Approximate { value: float, .. }, to) => {
            let (min, max) = (min_value(to), max_value(to));
            // `as` saturates and takes NaN to 0, in 128 bits here.
            Element::whole((float as i128).clamp(min, max))
        }
        (Element::Integer { value, .. }, DType::F64) => Element::Float(value as f64),
        (Element::Integer { value, .. }, DType::F32) => Element::Float(f64::from(value as f32)),
        (Element::Integer { value, .. }, to) if to.is_float() => {
            Element::Float(round(to, f64::from(value as f32)))
        }
        // Widening keeps the exact integer.
        (Element::Integer { value, exact }, DType::I64) if from == DType::I32 => {
            Element::Integer { value, exact }
        }
        (Element::Integer { value, .. }, to) => Element::wrapped(to, value),
    }
}

pub fn min_value(dtype: DType) -> i128 {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => -(1i128 << (8 * dtype.bytes() - 1)),
        _ => 0,
    }
}

pub fn max_value(dtype: DType) -> i128 {
    match dtype {
        DType::Bool => 1,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (1i128 << (8 * dtype.bytes() - 1)) - 1,
        _ => (1i128 << (8 * dtype.bytes())) - 1,
    }
}

/// A left shift by a constant below 31, which multiplies by a positive `i32`.
pub const CONSTANT_SHIFT: &str = "<< by a constant";

/// An operator or a function of `tl::` on one element of each operand; comparisons are [`compare`].
pub fn lanewise(name: &str, dtype: DType, args: &[Element]) -> Element {
    match args[0] {
        _ if dtype.is_float() && approximate::is_inexact(name, args) => {
            approximate::lanewise(name, dtype, args)
        }
        Element::Float(_) | Element::Approximate { .. } => {
            let args: Vec<f64> = args.iter().map(|arg| arg.float()).collect();
            let (exact, rounded) = (float(name, &args), round(dtype, float(name, &args)));
            if name == "*" && exact != rounded && exact.is_finite() {
                // A sum may take it before it is rounded, or overflows.
                return Element::Approximate { value: rounded, error: (exact - rounded).abs() };
            }
            Element::Float(rounded)
        }
        Element::Integer { .. } => {
            let values: Vec<i128> = args.iter().map(|arg| arg.value()).collect();
            let value = wrap(dtype, integer(name, dtype, &values));
            let is_exact_chain = matches!(dtype, DType::I32 | DType::I64 | DType::U64)
                && matches!(name, "+" | "-" | "*" | "neg" | CONSTANT_SHIFT);
            let exact = if is_exact_chain {
                let exacts: Option<Vec<i128>> = args.iter().map(|arg| arg.exact()).collect();
                let fits = |exacts: &[i128]| match name {
                    "*" => exacts.iter().try_fold(1i128, |all, &exact| all.checked_mul(exact)).is_some(),
                    CONSTANT_SHIFT => exacts[0].unsigned_abs() <= 1 << 64,
                    _ => true,
                };
                let small = exacts.filter(|exacts| fits(exacts));
                small.map(|exacts| integer(name, dtype, &exacts)).and_then(|exact| match dtype {
                    DType::I64 => Some(wrap(dtype, exact)),
                    DType::U64 => (exact.unsigned_abs() < 1 << 126).then_some(exact),
                    _ => i64::try_from(exact).is_ok().then_some(exact),
                })
            } else {
                Some(value)
            };
            Element::Integer { value, exact }
        }
    }
}

fn float(name: &str, a: &[f64]) -> f64 {
    match name {
        "+" => a[0] + a[1],
        "-" => a[0] - a[1],
        "*" => a[0] * a[1],
        "/" => a[0] / a[1],
        "neg" => -a[0],
        "maximum" => largest(a[0], a[1]),
        "minimum" => -largest(-a[0], -a[1]),
        "clamp" => -largest(-largest(a[0], a[1]), -a[2]),
        "abs" => a[0].abs(),
        "floor" => a[0].floor(),
        "ceil" => a[0].ceil(),
        "trunc" => a[0].trunc(),
        "round" => a[0].round(),
        "round_ties_even" => a[0].round_ties_even(),
        "sqrt" => a[0].sqrt(),
        "relu" => largest(a[0], 0.0),
        other => panic!("{other} of floats"),
    }
}

/// NaN if either is; `-0.0` is below `0.0`.
fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        if a.is_sign_positive() { a } else { b }
    } else {
        a.max(b)
    }
}

fn integer(name: &str, dtype: DType, a: &[i128]) -> i128 {
    let bits = 8 * dtype.bytes();
    let amount = |amount: i128| (amount & i128::from(bits - 1)) as u32;
    match name {
        "+" => a[0] + a[1],
        "-" => a[0] - a[1],
        "*" => a[0].wrapping_mul(a[1]),
        "/" => {
            if a[1] == 0 {
                0
            } else {
                a[0] / a[1]
            }
        }
        "%" => {
            if a[1] == 0 {
                a[0]
            } else {
                a[0] % a[1]
            }
        }
        "&" => a[0] & a[1],
        "|" => a[0] | a[1],
        "^" => a[0] ^ a[1],
        "<<" | CONSTANT_SHIFT => a[0] << amount(a[1]),
        ">>" => a[0] >> amount(a[1]),
        "neg" => -a[0],
        "not" => {
            if dtype == DType::Bool {
                1 - a[0]
            } else {
                !a[0]
            }
        }
        "maximum" => a[0].max(a[1]),
        "minimum" => a[0].min(a[1]),
        "clamp" => a[0].max(a[1]).min(a[2]),
        "abs" => a[0].abs(),
        "cdiv" => match a[1] {
            0 => 0,
            by => a[0] / by + i128::from(a[0] % by != 0 && (a[0] < 0) == (by < 0)),
        },
        "popc" => (0..bits).map(|i| (a[0] >> i) & 1).sum(),
        "clz" => (0..bits).rev().take_while(|i| (a[0] >> i) & 1 == 0).count() as i128,
        "ffs" => (0..bits).find(|i| (a[0] >> i) & 1 == 1).map_or(0, |i| i128::from(i) + 1),
        "brev" => (0..bits).map(|i| ((a[0] >> i) & 1) << (bits - 1 - i)).sum(),
        "mulhi" => upper(a[0], a[1], bits),
        "umulhi" => {
            let whole = (1i128 << bits) - 1;
            upper(a[0] & whole, a[1] & whole, bits)
        }
        other => panic!("{other} of integers"),
    }
}

/// The upper half of a product; that of two unsigned numbers of 64 bits fills all of 128.
fn upper(a: i128, b: i128, bits: u32) -> i128 {
    if a >= 0 && b >= 0 { ((a as u128 * b as u128) >> bits) as i128 } else { (a * b) >> bits }
}

/// A comparison, and whether the law of indices defines its result.
pub fn compare(name: &str, a: Element, b: Element) -> (Element, bool) {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, well_defined) = match (a, b) {
        (Element::Float(_) | Element::Approximate { .. }, b) => {
            let apart = (a.float() - b.float()).abs() > a.error() + b.error();
            (a.float().partial_cmp(&b.float()), apart || a.error() + b.error() == 0.0)
        }
        (a, b) => match (a.exact(), b.exact()) {
            (Some(a), Some(b)) => (Some(a.cmp(&b)), true),
            _ => (Some(a.value().cmp(&b.value())), false),
        },
    };
    let is_true = match name {
        "==" => order == Some(Equal),
        "!=" => order != Some(Equal),
        "<" => order == Some(Less),
        "<=" => matches!(order, Some(Less | Equal)),
        ">" => order == Some(Greater),
        _ => matches!(order, Some(Greater | Equal)),
    };
    (bool_element(is_true), well_defined)
}
