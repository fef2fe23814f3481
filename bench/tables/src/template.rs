//! A cell as text with values in braces: `{name}` as it is, `{name:.1}` with so many digits, `{a/b:.2}` a ratio, where `b` may be a number.
//! `{a|b:.2}` is the first that is known: a ratio that a file has is of more digits than the times beside it.

use crate::results::Row;

/// What is printed in place of a value.
enum Piece<'a> {
    Text(&'a str),
    Value { name: &'a str, digits: Option<usize> },
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut found = vec![];
    for (number, part) in template.split(['{', '}']).enumerate() {
        if number % 2 == 0 {
            found.push(Piece::Text(part));
        } else {
            let (name, digits) = part.split_once(":.").unwrap_or((part, ""));
            found.push(Piece::Value { name, digits: digits.parse().ok() });
        }
    }
    found
}

/// Whether a cell is a figure, which stands on the right.
pub fn is_figure(template: &str) -> bool {
    let mut values = pieces(template).into_iter().filter_map(|piece| match piece {
        Piece::Value { digits, .. } => Some(digits.is_some()),
        Piece::Text(_) => None,
    });
    values.next().unwrap_or(false)
}

/// The cell of a row; empty where a value is not known.
pub fn fill(template: &str, row: &Row) -> String {
    let filled = pieces(template).into_iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.to_string()),
        Piece::Value { name, digits: None } => row.text(name),
        // What a figure's place has beside figures stands as it is.
        Piece::Value { name, digits: Some(digits) } => {
            figure(name, row).map(|value| format!("{value:.digits$}")).or_else(|| row.text(name))
        }
    });
    filled.collect::<Option<String>>().unwrap_or_default()
}

fn figure(name: &str, row: &Row) -> Option<f64> {
    name.split('|').find_map(|name| match name.split_once('/') {
        Some((a, b)) => Some(row.number(a)? / b.parse().ok().or_else(|| row.number(b))?),
        None => row.number(name),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fill, is_figure};
    use crate::results::cases;

    #[test]
    fn cells_hold_values_ratios_and_nothing() {
        let row = &cases(&[json!({"a": 3.0, "b": 2.0, "bytes": 5_000_000, "text": "4 to 5"})])[0];
        assert_eq!(fill("{a:.1} us, {b:.0}", row), "3.0 us, 2");
        assert_eq!(fill("{a/b:.2}", row), "1.50");
        assert_eq!(fill("{none|a/b:.1} {a|b:.0}", row), "1.5 3");
        assert_eq!(fill("{bytes/1e6:.0} MB", row), "5 MB");
        assert_eq!(fill("{text:.1}", row), "4 to 5");
        assert_eq!(fill("{a:.1}, {c:.1}", row), "");
    }

    #[test]
    fn figures_have_digits() {
        assert!(is_figure("{a:.0}, {b}"));
        assert!(!is_figure("{kernel}"));
    }
}
