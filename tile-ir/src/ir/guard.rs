//! Guards: conditions on a launch's arguments that a specialization relies on; the launcher checks them on the real
//! values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value known at launch; parameters by position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Symbol {
    Scalar(u32),
    Length(u32),
    Grid(u8),
    /// `ceil(of / by)`: how many blocks of `by` elements cover an extent.
    CeilDiv {
        of: SymbolProduct,
        by: SymbolProduct,
    },
    /// `of / by`, rounded down, of an `of` that is not negative and a `by` that is positive: half of a width.
    Div {
        of: SymbolProduct,
        by: SymbolProduct,
    },
}

/// A positive constant times arguments and extents of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SymbolProduct {
    pub constant: u32,
    factors: [Option<Factor>; 4],
}

/// A factor of a product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
enum Factor {
    Scalar(u8),
    Grid(u8),
    /// `ceil(scalar / by)`
    CeilDiv {
        scalar: u8,
        by: Extent,
    },
    /// `scalar / by`
    Div {
        scalar: u8,
        by: Extent,
    },
}

/// What an argument is divided by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
enum Extent {
    Constant(u32),
    Scalar(u8),
}

impl Factor {
    fn new(symbol: Symbol) -> Option<Factor> {
        match symbol {
            Symbol::Scalar(param) => Some(Factor::Scalar(u8::try_from(param).ok()?)),
            Symbol::Grid(axis) => Some(Factor::Grid(axis)),
            Symbol::CeilDiv { of, by } => {
                Some(Factor::CeilDiv { scalar: of.as_scalar()?, by: Extent::new(by)? })
            }
            Symbol::Div { of, by } => Some(Factor::Div { scalar: of.as_scalar()?, by: Extent::new(by)? }),
            Symbol::Length(_) => None,
        }
    }

    fn symbol(self) -> Symbol {
        match self {
            Factor::Scalar(param) => Symbol::Scalar(param.into()),
            Factor::Grid(axis) => Symbol::Grid(axis),
            Factor::CeilDiv { scalar, by } => {
                Symbol::CeilDiv { of: SymbolProduct::scalar(scalar), by: by.product() }
            }
            Factor::Div { scalar, by } => Symbol::Div { of: SymbolProduct::scalar(scalar), by: by.product() },
        }
    }
}

impl Extent {
    fn new(product: SymbolProduct) -> Option<Extent> {
        match product {
            SymbolProduct { constant, factors: [None, ..] } => Some(Extent::Constant(constant)),
            _ => product.as_scalar().map(Extent::Scalar),
        }
    }

    fn product(self) -> SymbolProduct {
        match self {
            Extent::Constant(constant) => SymbolProduct::constant(constant),
            Extent::Scalar(scalar) => SymbolProduct::scalar(scalar),
        }
    }
}

impl SymbolProduct {
    pub fn constant(constant: u32) -> SymbolProduct {
        SymbolProduct { constant, factors: [None; 4] }
    }

    fn scalar(scalar: u8) -> SymbolProduct {
        SymbolProduct { constant: 1, factors: [Some(Factor::Scalar(scalar)), None, None, None] }
    }

    fn as_scalar(self) -> Option<u8> {
        let SymbolProduct { constant: 1, factors: [Some(Factor::Scalar(scalar)), None, ..] } = self else {
            return None;
        };
        Some(scalar)
    }

    /// `constant * symbols[0] * ..`; `None` where there are too many symbols, or one that is a length or a quotient of more than arguments.
    pub fn new(constant: u32, symbols: &[Symbol]) -> Option<SymbolProduct> {
        let mut product = SymbolProduct::constant(constant);
        for (position, &symbol) in symbols.iter().enumerate() {
            *product.factors.get_mut(position)? = Some(Factor::new(symbol)?);
        }
        Some(product)
    }

    pub fn symbols(self) -> impl Iterator<Item = Symbol> {
        self.factors.into_iter().flatten().map(Factor::symbol)
    }
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
    /// The value is a multiple of `by`.
    Divisible { value: Symbol, by: u32 },
    /// The scalar is this constant.
    Equal { scalar: u32, value: i64 },
    /// The `f32` lies between these powers of two.
    Magnitude { scalar: u32, least: i8, most: i8 },
    /// `low <= high`
    AtMost { low: SymbolicSum, high: SymbolicSum },
}

impl SymbolicSum {
    /// A symbol by itself.
    pub fn of(symbol: Symbol) -> SymbolicSum {
        SymbolicSum { terms: vec![(1, vec![symbol])] }
    }

    /// The value, if it is a constant.
    pub fn as_constant(&self) -> Option<i64> {
        let (constant, rest) = self.split_constant();
        rest.is_empty().then_some(constant)
    }

    /// `constant + coefficient * symbol`, if the sum is one.
    pub fn single_symbol(&self) -> Option<(i64, i64, Symbol)> {
        let (constant, rest) = self.split_constant();
        let [(coefficient, factors)] = rest[..] else { return None };
        let [symbol] = factors[..] else { return None };
        Some((constant, *coefficient, symbol))
    }

    /// `constant + coefficient * scalar + ..`, if the sum is one.
    pub fn linear_in_scalars(&self) -> Option<(i64, Vec<(u32, i64)>)> {
        let (constant, rest) = self.split_constant();
        let terms = rest.into_iter().map(|(coefficient, factors)| match factors[..] {
            [Symbol::Scalar(scalar)] => Some((scalar, *coefficient)),
            _ => None,
        });
        Some((constant, terms.collect::<Option<_>>()?))
    }

    /// The constant term, and the other terms.
    fn split_constant(&self) -> (i64, Vec<&(i64, Vec<Symbol>)>) {
        let (constants, rest): (Vec<_>, Vec<_>) =
            self.terms.iter().partition(|(_, factors)| factors.is_empty());
        (constants.iter().map(|(constant, _)| constant).sum(), rest)
    }
}

impl Guard {
    /// Whether another guard implies this one: it is equal, or stronger by a constant alone.
    pub fn implied_by(&self, other: &Guard) -> bool {
        match (self, other) {
            (Guard::AtMost { low, high }, Guard::AtMost { low: more, high: same }) if high == same => {
                let ((a, low), (b, more)) = (low.split_constant(), more.split_constant());
                low == more && a <= b
            }
            _ => self == other,
        }
    }
}

/// The guards without those that another one implies.
pub fn strongest(guards: Vec<Guard>) -> Vec<Guard> {
    irredundant(guards, Guard::implied_by)
}

/// The items that no other one implies; of two equivalent ones the first.
pub fn irredundant<T>(all: Vec<T>, implied_by: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept: Vec<T> = vec![];
    for one in all {
        if !kept.iter().any(|other| implied_by(&one, other)) {
            kept.retain(|other| !implied_by(other, &one));
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
            Symbol::CeilDiv { of, by } => {
                write!(f, "cdiv({}, {})", WithNames(&of, self.1), WithNames(&by, self.1))
            }
            Symbol::Div { of, by } => {
                write!(f, "({} / {})", WithNames(&of, self.1), WithNames(&by, self.1))
            }
        }
    }
}

impl fmt::Display for WithNames<'_, SymbolProduct> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constant =
            (self.0.constant != 1 || self.0.factors[0].is_none()).then(|| self.0.constant.to_string());
        let symbols = self.0.symbols().map(|symbol| WithNames(&symbol, self.1).to_string());
        f.write_str(&constant.into_iter().chain(symbols).collect::<Vec<_>>().join(" * "))
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
