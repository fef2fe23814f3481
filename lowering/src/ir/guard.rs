//! Conditions on a launch's arguments: what a body may rely on because the launcher checks it on the real values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something known at launch; parameters by position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Symbol {
    Scalar(u32),
    Length(u32),
    Grid(u8),
    /// `ceil(scalar / by)`: how many blocks of `by` elements cover an extent.
    CeilDiv {
        scalar: u32,
        by: u32,
    },
}

/// `coefficient * factors[0] * ..`, summed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct SymbolicSum {
    pub terms: Vec<(i64, Vec<Symbol>)>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Guard {
    /// The slice's address is a multiple of `bytes`.
    Aligned { param: u32, bytes: u32 },
    /// The number is a multiple of `by`.
    Divisible { value: Symbol, by: u32 },
    /// The scalar is this number.
    Equal { scalar: u32, value: i64 },
    /// The `f32` lies between these powers of two.
    Magnitude { scalar: u32, least: i8, most: i8 },
    /// `low <= high`
    AtMost { low: SymbolicSum, high: SymbolicSum },
}

impl SymbolicSum {
    /// The value, if it is a number.
    pub fn as_constant(&self) -> Option<i64> {
        let (number, rest) = self.parts();
        rest.is_empty().then_some(number)
    }

    /// A number, and how often something is added to it that is known at launch.
    pub fn single(&self) -> Option<(i64, i64, Symbol)> {
        let (number, rest) = self.parts();
        let [(factor, factors)] = rest[..] else { return None };
        let [symbol] = factors[..] else { return None };
        Some((number, *factor, symbol))
    }

    /// A number and multiples of scalars, if it is the sum of these.
    pub fn linear(&self) -> Option<(i64, Vec<(u32, i64)>)> {
        let (number, rest) = self.parts();
        let parts = rest.into_iter().map(|(coefficient, factors)| match factors[..] {
            [Symbol::Scalar(scalar)] => Some((scalar, *coefficient)),
            _ => None,
        });
        Some((number, parts.collect::<Option<_>>()?))
    }

    /// The part that is a number, and the rest.
    fn parts(&self) -> (i64, Vec<&(i64, Vec<Symbol>)>) {
        let (numbers, rest): (Vec<_>, Vec<_>) =
            self.terms.iter().partition(|(_, factors)| factors.is_empty());
        (numbers.iter().map(|(number, _)| number).sum(), rest)
    }
}

impl Guard {
    /// Whether another fact says as much, or more by a number alone.
    fn follows_from(&self, other: &Guard) -> bool {
        match (self, other) {
            (Guard::AtMost { low, high }, Guard::AtMost { low: more, high: same }) if high == same => {
                let ((a, low), (b, more)) = (low.parts(), more.parts());
                low == more && a <= b
            }
            _ => self == other,
        }
    }
}

/// The facts without those that follow from another one.
pub fn strongest(facts: Vec<Guard>) -> Vec<Guard> {
    irredundant(facts, Guard::follows_from)
}

/// What is left without that which follows from another one; of two that say the same the first.
pub fn irredundant<T>(all: Vec<T>, follows: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept: Vec<T> = vec![];
    for one in all {
        if !kept.iter().any(|other| follows(&one, other)) {
            kept.retain(|other| !follows(other, &one));
            kept.push(one);
        }
    }
    kept
}

/// Prints with parameter names.
pub struct WithNames<'a, T>(pub &'a T, pub &'a [String]);

impl fmt::Display for WithNames<'_, Symbol> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |param: u32| &self.1[param as usize];
        match *self.0 {
            Symbol::Scalar(param) => write!(f, "{}", name(param)),
            Symbol::Length(param) => write!(f, "{}.len()", name(param)),
            Symbol::Grid(axis) => write!(f, "num_programs({axis})"),
            Symbol::CeilDiv { scalar, by } => write!(f, "cdiv({}, {by})", name(scalar)),
        }
    }
}

impl fmt::Display for WithNames<'_, SymbolicSum> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.terms.is_empty() {
            return write!(f, "0");
        }
        for (i, (coefficient, factors)) in self.0.terms.iter().enumerate() {
            let sign = match (i, *coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            let mut parts: Vec<String> =
                factors.iter().map(|factor| WithNames(factor, self.1).to_string()).collect();
            let size = coefficient.unsigned_abs();
            if size != 1 || parts.is_empty() {
                parts.insert(0, size.to_string());
            }
            write!(f, "{sign}{}", parts.join(" * "))?;
        }
        Ok(())
    }
}

impl fmt::Display for WithNames<'_, Guard> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |param: u32| &self.1[param as usize];
        match self.0 {
            Guard::Aligned { param, bytes } => write!(f, "{} is {bytes}-byte aligned", name(*param)),
            Guard::Divisible { value, by } => write!(f, "{by} divides {}", WithNames(value, self.1)),
            Guard::Equal { scalar, value } => write!(f, "{} is {value}", name(*scalar)),
            Guard::Magnitude { scalar, least, most } => {
                write!(f, "2^{least} <= {} <= 2^{most}", name(*scalar))
            }
            Guard::AtMost { low, high } => {
                write!(f, "{} <= {}", WithNames(low, self.1), WithNames(high, self.1))
            }
        }
    }
}
