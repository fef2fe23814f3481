//! Named extents of a model, and expressions of them: `tokens`, `2 * ffn`, `(heads + 2 * kv_heads) * head_dim`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Longer expressions are refused, so that nesting has an end.
const LONGEST: usize = 200;

/// An extent as a model file has it: an integer, or an expression of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// An integer.
    Number(u64),
    /// `+`, `-`, `*`, `/` and brackets over numbers and names. A division leaves no remainder.
    Expression(String),
}

impl From<u64> for Extent {
    fn from(number: u64) -> Extent {
        Extent::Number(number)
    }
}

impl From<&str> for Extent {
    fn from(text: &str) -> Extent {
        Extent::Expression(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Extent, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Extent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an extent: a number, or an expression such as \"2 * heads\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Extent, E> {
                let number = u64::try_from(number);
                number.map(Extent::Number).map_err(|_| E::custom("an extent is 0 or more"))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Extent, E> {
                Ok(Extent::Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Extent, E> {
                Ok(Extent::from(text))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// The named extents of a model with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dims(BTreeMap<String, u64>);

impl Dims {
    /// The values of declared extents, which may be expressions of each other; `set` overrides.
    ///
    /// # Errors
    /// If an expression is none, names what is not declared, or leads back to itself; if `set` names an extent that is not
    /// declared.
    pub fn resolve(declared: &BTreeMap<String, Extent>, set: &[(String, u64)]) -> Result<Dims, String> {
        let mut given = declared.clone();
        for (name, value) in set {
            if given.insert(name.clone(), Extent::Number(*value)).is_none() {
                let known = declared.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(format!("no extent `{name}` to set: the model has {known}"));
            }
        }
        let mut dims = Dims::default();
        for name in given.keys() {
            dims.visit(name, &given, &mut Vec::new()).map_err(|reason| format!("[dims]: {reason}"))?;
        }
        Ok(dims)
    }

    fn visit(
        &mut self,
        name: &str,
        given: &BTreeMap<String, Extent>,
        open: &mut Vec<String>,
    ) -> Result<u64, String> {
        if let Some(&value) = self.0.get(name) {
            return Ok(value);
        }
        let Some(extent) = given.get(name) else {
            return Err(format!("no extent `{name}` in [dims]"));
        };
        if open.iter().any(|open| open == name) {
            return Err(format!("extent `{name}` leads back to itself: {}", open.join(" -> ")));
        }
        open.push(name.to_owned());
        let value = match extent {
            Extent::Number(number) => *number,
            Extent::Expression(text) => evaluate(text, &mut |name| self.visit(name, given, open))?,
        };
        open.pop();
        self.0.insert(name.to_owned(), value);
        Ok(value)
    }

    /// The value of an extent.
    ///
    /// # Errors
    /// If it is an expression that is none, or that names what is not declared.
    pub fn value(&self, extent: &Extent) -> Result<u64, String> {
        match extent {
            Extent::Number(number) => Ok(*number),
            Extent::Expression(text) => evaluate(text, &mut |name| {
                self.0.get(name).copied().ok_or_else(|| format!("no extent `{name}` in [dims]"))
            }),
        }
    }

    /// The names with their values, in the order of the alphabet.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

type Lookup<'a> = &'a mut dyn FnMut(&str) -> Result<u64, String>;

fn evaluate(text: &str, lookup: Lookup<'_>) -> Result<u64, String> {
    if text.len() > LONGEST {
        return Err(format!("an expression of {} characters, and {LONGEST} are the most", text.len()));
    }
    let mut reader = Expression { text, rest: text };
    let value = reader.sum(lookup)?;
    if reader.rest.trim_start().is_empty() { Ok(value) } else { Err(reader.unexpected("an operator")) }
}

struct Expression<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Expression<'_> {
    fn sum(&mut self, lookup: Lookup<'_>) -> Result<u64, String> {
        let mut value = self.product(lookup)?;
        loop {
            let result = if self.takes('+') {
                value.checked_add(self.product(lookup)?)
            } else if self.takes('-') {
                value.checked_sub(self.product(lookup)?)
            } else {
                return Ok(value);
            };
            value = result.ok_or_else(|| format!("`{}` is below 0 or beyond 64 bits", self.text))?;
        }
    }

    fn product(&mut self, lookup: Lookup<'_>) -> Result<u64, String> {
        let mut value = self.atom(lookup)?;
        loop {
            if self.takes('*') {
                let factor = self.atom(lookup)?;
                let product = value.checked_mul(factor);
                value = product.ok_or_else(|| format!("`{}` is beyond 64 bits", self.text))?;
            } else if self.takes('/') {
                let divisor = self.atom(lookup)?;
                if divisor == 0 || !value.is_multiple_of(divisor) {
                    return Err(format!("`{}` divides {value} by {divisor}", self.text));
                }
                value /= divisor;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self, lookup: Lookup<'_>) -> Result<u64, String> {
        if self.takes('(') {
            let value = self.sum(lookup)?;
            return if self.takes(')') { Ok(value) } else { Err(self.unexpected("`)`")) };
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return Err(self.unexpected("a number or a name"));
        }
        self.rest = after;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().map_err(|_| format!("`{word}` is no number of 64 bits"));
        }
        lookup(word)
    }

    fn takes(&mut self, c: char) -> bool {
        let Some(after) = self.rest.trim_start().strip_prefix(c) else { return false };
        self.rest = after;
        true
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.rest.trim_start().chars().next() {
            Some(c) => format!("`{}` has `{c}` where {wanted} should be", self.text),
            None => format!("`{}` ends where {wanted} should be", self.text),
        }
    }
}
