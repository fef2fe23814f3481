//! Numbers as people read them: bytes, seconds, operations and rates with the prefix that leaves one to three digits in front.

const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// A number with a decimal prefix and a unit: `scaled(4.1e12, "B/s")` is `4.10 TB/s`.
pub fn scaled(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return format!("{value} {unit}");
    }
    let (mut value, mut prefix) = (value, 0);
    // 999.5 would be printed as 1000.
    while value.abs() >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    if prefix == 0 && value.fract() == 0.0 {
        return format!("{value:.0} {unit}");
    }
    format!("{} {}{unit}", three_digits(value), PREFIXES[prefix])
}

/// Bytes, with decimal prefixes: `268 MB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

/// Seconds as microseconds, milliseconds or seconds: `33.1 us`.
pub fn seconds(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros.abs() < 999.5 {
        format!("{} us", three_digits(micros))
    } else if micros.abs() < 999.5e3 {
        format!("{} ms", three_digits(micros / 1e3))
    } else {
        format!("{} s", three_digits(seconds))
    }
}

/// A share as a whole percentage: `50 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// At least three digits: `4.10`, `33.1`, `268`.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        small if small < 0.001 && small > 0.0 => format!("{value:.1e}"),
        small if small < 9.995 => format!("{value:.2}"),
        medium if medium < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `numerator / denominator`, and `otherwise` where nothing is divided by: an empty tensor has no intensity.
pub fn ratio(numerator: f64, denominator: f64, otherwise: f64) -> f64 {
    if denominator == 0.0 { otherwise } else { numerator / denominator }
}

/// `&`, `<`, `>` and quotes as HTML and SVG want them.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}
