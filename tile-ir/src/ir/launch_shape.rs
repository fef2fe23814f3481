//! The shape of a view as sums over what is known at launch, with its text.

use super::guard::{Symbol, SymbolProduct, SymbolicSum};
use super::lexer::ParseError;
use super::reader::TextReader;
use super::{Func, View};

/// The extents and the strides of a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaunchShape {
    pub extents: Vec<SymbolicSum>,
    pub strides: Vec<SymbolicSum>,
}

impl View {
    /// The shape that a launch computes, as in `x[1 n, 64 by 1 stride, 1]`; `None` where parameters have it.
    pub fn text(&self, func: &Func) -> Option<String> {
        let LaunchShape { extents, strides } = self.computed.as_ref()?;
        let name = &func.params[self.memory.index()].name;
        Some(format!("{name}[{} by {}]", sums(func, extents), sums(func, strides)))
    }
}

fn sums(func: &Func, sums: &[SymbolicSum]) -> String {
    sums.iter().map(|one| sum(func, one)).collect::<Vec<_>>().join(", ")
}

/// Each term with its coefficient in front, as in `64 n cdiv(m, 32) + -1`.
fn sum(func: &Func, sum: &SymbolicSum) -> String {
    let name = |param: u32| func.params[param as usize].name.clone();
    let symbol = |symbol: &Symbol| match *symbol {
        Symbol::Scalar(param) => name(param),
        Symbol::Length(param) => format!("len({})", name(param)),
        Symbol::Grid(axis) => format!("num_programs({axis})"),
        Symbol::CeilDiv { of, by } => format!("cdiv({}, {})", product(func, of), product(func, by)),
        Symbol::Div { of, by } => format!("div({}, {})", product(func, of), product(func, by)),
    };
    let term = |(coefficient, factors): &(i64, Vec<Symbol>)| {
        std::iter::once(coefficient.to_string())
            .chain(factors.iter().map(symbol))
            .collect::<Vec<_>>()
            .join(" ")
    };
    if sum.terms.is_empty() { "0".into() } else { sum.terms.iter().map(term).collect::<Vec<_>>().join(" + ") }
}

fn product(func: &Func, product: SymbolProduct) -> String {
    sum(func, &SymbolicSum { terms: vec![(product.constant.into(), product.symbols().collect())] })
}

impl TextReader<'_> {
    /// The shape of a view of a slice; it becomes a view of the function.
    pub(super) fn slice_view(&mut self) -> Result<(), ParseError> {
        let token = self.token();
        let memory = self.memory()?;
        self.expect("[")?;
        let extents = self.list(TextReader::sum)?;
        self.expect("by")?;
        let strides = self.list(TextReader::sum)?;
        self.expect("]")?;
        if extents.len() != strides.len() {
            return Err(token.error("expected as many strides as extents".into()));
        }
        let view = View::of_slice(&mut self.func, memory, LaunchShape { extents, strides });
        self.func.views.push(view);
        Ok(())
    }

    fn sum(&mut self) -> Result<SymbolicSum, ParseError> {
        let mut terms = vec![];
        loop {
            let coefficient = self.integer()?;
            let mut factors = vec![];
            while !["+", ",", "by", "]"].iter().any(|end| self.begins(end)) {
                factors.push(self.symbol()?);
            }
            if coefficient != 0 {
                terms.push((coefficient, factors));
            }
            if !self.take("+") {
                return Ok(SymbolicSum { terms });
            }
        }
    }

    fn product(&mut self) -> Result<SymbolProduct, ParseError> {
        let (token, constant) = (self.token(), self.integer()?);
        let mut symbols = vec![];
        while ![",", ")"].iter().any(|end| self.begins(end)) {
            symbols.push(self.symbol()?);
        }
        SymbolProduct::new(constant, &symbols).ok_or_else(|| token.error("this is no product".into()))
    }

    fn quotient(&mut self) -> Result<[SymbolProduct; 2], ParseError> {
        let of = self.product()?;
        self.expect(",")?;
        Ok([of, self.product()?])
    }

    fn symbol(&mut self) -> Result<Symbol, ParseError> {
        if self.begins_call("len") {
            self.call(|reader| Ok(Symbol::Length(reader.memory()?.0)))
        } else if self.begins_call("num_programs") {
            self.call(|reader| Ok(Symbol::Grid(reader.integer()?)))
        } else if self.begins_call("cdiv") {
            let [of, by] = self.call(TextReader::quotient)?;
            Ok(Symbol::CeilDiv { of, by })
        } else if self.begins_call("div") {
            let [of, by] = self.call(TextReader::quotient)?;
            Ok(Symbol::Div { of, by })
        } else {
            self.scalar_param().map(Symbol::Scalar)
        }
    }

    /// What stands in the parentheses behind the word that was taken.
    fn call<T>(&mut self, inside: impl Fn(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        self.expect("(")?;
        let found = inside(self)?;
        self.expect(")")?;
        Ok(found)
    }
}
