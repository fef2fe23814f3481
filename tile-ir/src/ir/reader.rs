//! Reads what operations consist of: words, numbers, names of values and parameters, types.

use std::collections::HashMap;

use super::lexer::{ParseError, Token, TokenKind, tokens, unquoted};
use super::{Func, ParamId, ParamKind, Shape, Storage, Type, Value, shape_problem};
use crate::support::diagnostic::{Loc, list};
use crate::support::dtype::DType;

/// Reads a function from its tokens.
pub struct TextReader<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    /// What was read so far.
    pub func: Func,
    /// The values that are defined here, by name.
    pub(super) names: HashMap<&'t str, Value>,
    /// What could have stood in the place of the token.
    expected: Vec<String>,
}

impl<'t> TextReader<'t> {
    pub(super) fn new(text: &'t str, loc: Loc) -> Result<TextReader<'t>, ParseError> {
        let func = Func::new("", loc);
        Ok(TextReader { tokens: tokens(text)?, at: 0, func, names: HashMap::new(), expected: vec![] })
    }

    // ---- tokens

    /// The next token.
    pub(super) fn token(&self) -> Token<'t> {
        self.tokens[self.at]
    }

    fn advance(&mut self) -> Token<'t> {
        let token = self.token();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        self.expected.clear();
        token
    }

    /// Whether the next token is this word or punctuation.
    pub fn begins(&mut self, text: &str) -> bool {
        let found = self.token().text == text;
        if !found {
            self.expected.push(format!("`{text}`"));
        }
        found
    }

    /// Takes the next token if it is this word and a parenthesis follows it.
    pub(super) fn begins_call(&mut self, word: &str) -> bool {
        let next = self.tokens.get(self.at + 1);
        next.is_some_and(|next| next.text == "(") && self.take(word)
    }

    pub fn begins_value(&mut self) -> bool {
        let found = self.token().kind == TokenKind::Value;
        if !found {
            self.expected.push("a value".into());
        }
        found
    }

    /// Takes the next token if it is this word or punctuation.
    pub fn take(&mut self, text: &str) -> bool {
        let found = self.begins(text);
        if found {
            self.advance();
        }
        found
    }

    pub fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        if self.take(text) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn take_kind(&mut self, kind: TokenKind, expected: &str) -> Result<Token<'t>, ParseError> {
        if self.token().kind == kind { Ok(self.advance()) } else { Err(self.error(expected)) }
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        self.take_kind(TokenKind::End, "the end").map(drop)
    }

    /// The error that the next token is none of what could stand in its place.
    pub fn unexpected(&self) -> ParseError {
        let mut expected: Vec<&str> = vec![];
        for one in &self.expected {
            if !expected.contains(&one.as_str()) {
                expected.push(one);
            }
        }
        let expected = match &expected[..] {
            [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            all => all.concat(),
        };
        let token = self.token();
        let is_end = token.kind == TokenKind::End;
        let found = if is_end { "the end".into() } else { format!("`{}`", token.text) };
        token.error(format!("expected {expected}, found {found}"))
    }

    /// [`TextReader::unexpected`], with something else that could stand there.
    fn error(&mut self, expected: &str) -> ParseError {
        self.expected.push(expected.into());
        self.unexpected()
    }

    /// One of several words.
    pub fn one_of<T: Copy>(&mut self, named: &[(&str, T)]) -> Result<T, ParseError> {
        let found = named.iter().find(|(word, _)| self.take(word)).map(|&(_, choice)| choice);
        found.ok_or_else(|| self.unexpected())
    }

    pub fn integer<T: TryFrom<i128>>(&mut self) -> Result<T, ParseError> {
        let token = self.take_kind(TokenKind::Number, "an integer")?;
        let number = token.text.parse().ok().and_then(|number: i128| T::try_from(number).ok());
        number.ok_or_else(|| token.error(format!("`{}` is not an integer that fits here", token.text)))
    }

    /// A number of any kind as it is written; `read` takes it apart.
    pub fn number<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T, ParseError> {
        let token = self.token();
        let special = ["inf", "NaN"].contains(&token.text);
        if token.kind != TokenKind::Number && !special {
            return Err(self.error("a number"));
        }
        self.advance();
        read(token.text).ok_or_else(|| token.error(format!("`{}` is not a number", token.text)))
    }

    pub fn string(&mut self) -> Result<String, ParseError> {
        let token = self.take_kind(TokenKind::Quoted, "a string")?;
        unquoted(token.text).ok_or_else(|| token.error("this string has an unknown escape".into()))
    }

    /// Fields with commas between them, at least one.
    pub fn list<T>(
        &mut self,
        field: impl Fn(&mut TextReader<'t>) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut fields = vec![field(self)?];
        while self.take(",") {
            fields.push(field(self)?);
        }
        Ok(fields)
    }

    /// `[0, 1]`
    pub fn bracketed<T: TryFrom<i128>>(&mut self) -> Result<Vec<T>, ParseError> {
        self.expect("[")?;
        let numbers = if self.begins("]") { vec![] } else { self.list(TextReader::integer)? };
        self.expect("]")?;
        Ok(numbers)
    }

    // ---- values

    pub(super) fn value_name(&mut self) -> Result<Token<'t>, ParseError> {
        self.take_kind(TokenKind::Value, "a value")
    }

    /// The value that a name stands for here.
    pub(super) fn known(&self, token: Token) -> Result<Value, ParseError> {
        let known = self.names.get(token.text).copied();
        known.ok_or_else(|| token.error(format!("`{}` is not defined here", token.text)))
    }

    /// A value that is defined by now.
    pub fn value(&mut self) -> Result<Value, ParseError> {
        let token = self.value_name()?;
        self.known(token)
    }

    /// Names a value, which it returns.
    pub(super) fn define(&mut self, token: Token<'t>, value: Value) -> Result<Value, ParseError> {
        match self.names.insert(token.text, value) {
            None => Ok(value),
            Some(_) => Err(token.error(format!("`{}` is defined already", token.text))),
        }
    }

    // ---- types

    pub fn dtype(&mut self) -> Result<DType, ParseError> {
        let token = self.take_kind(TokenKind::Word, "an element type")?;
        DType::parse(token.text).ok_or_else(|| {
            let known = list(DType::ALL.iter().map(|dtype| format!("`{dtype}`")));
            token.error(format!("expected an element type ({known}), found `{}`", token.text))
        })
    }

    pub(super) fn ty(&mut self) -> Result<Type, ParseError> {
        let ty = if self.take("smem") {
            self.expect("<")?;
            let tile = self.tile_type()?;
            self.expect(",")?;
            tile.stored(Storage::Smem { stages: self.attribute("stages")? })
        } else if self.take("words") {
            self.expect("<")?;
            self.tile_type()?.stored(Storage::Words)
        } else if self.take("pipe") {
            self.expect("<")?;
            Type::pipe(self.integer()?)
        } else if self.take("slot") {
            self.expect("<")?;
            Type::slot(self.integer()?)
        } else if self.take("copies") {
            return Ok(Type::copies());
        } else if self.take("mbar") {
            self.expect("<")?;
            let stages = self.attribute("stages")?;
            self.expect(",")?;
            let (arrivals, cluster) = (self.attribute("arrivals")?, self.take("a_block"));
            Type::mbarriers(stages, arrivals, cluster)
        } else {
            return self.tile_type();
        };
        self.expect(">")?;
        Ok(ty)
    }

    fn tile_type(&mut self) -> Result<Type, ParseError> {
        let dtype = self.dtype()?;
        let shape = if self.begins("[") { self.shape()? } else { Shape::scalar() };
        Ok(Type::tile(dtype, shape))
    }

    /// The extents of a tile.
    pub fn shape(&mut self) -> Result<Shape, ParseError> {
        let token = self.token();
        let extents: Vec<u32> = self.bracketed()?;
        let shape: Vec<i128> = extents.iter().map(|&extent| i128::from(extent)).collect();
        shape_problem(&shape).map_or(Ok(Shape::new(extents)), |problem| Err(token.error(problem)))
    }

    // ---- parameters

    /// The name of a parameter: a word, or an extent or a stride of a view, as in `x.shape(0)`.
    pub(super) fn param_name(&mut self) -> Result<String, ParseError> {
        let mut name = self.take_kind(TokenKind::Word, "the name of a parameter")?.text.to_string();
        if self.take(".") {
            let method = self.one_of(&[("shape", "shape"), ("stride", "stride")])?;
            self.expect("(")?;
            let axis: u32 = self.integer()?;
            self.expect(")")?;
            name += &format!(".{method}({axis})");
        }
        Ok(name)
    }

    pub(super) fn param(&mut self) -> Result<ParamId, ParseError> {
        let token = self.token();
        let name = self.param_name()?;
        let position = self.func.params.iter().position(|param| param.name == name);
        let found = position.map(|position| ParamId(position as u32));
        found.ok_or_else(|| token.error(format!("there is no parameter `{name}`")))
    }

    /// The position of an integer argument.
    pub(super) fn scalar_param(&mut self) -> Result<u32, ParseError> {
        let token = self.token();
        let param = self.param()?;
        match self.func.params[param.index()].kind {
            ParamKind::Scalar { dtype, .. } if dtype.is_integer() => Ok(param.0),
            ParamKind::Scalar { .. } | ParamKind::Slice { .. } => {
                Err(token.error("expected an argument that is an integer".into()))
            }
        }
    }

    /// The name of a slice, or of a view, which stands for its memory.
    pub fn memory(&mut self) -> Result<ParamId, ParseError> {
        let token = self.token();
        let param = self.param()?;
        match self.func.params[param.index()].kind {
            ParamKind::Slice { .. } => Ok(param),
            ParamKind::Scalar { .. } => Err(token.error("expected a slice or a view, found a scalar".into())),
        }
    }

    /// The name of a view.
    pub fn view(&mut self) -> Result<ParamId, ParseError> {
        let token = self.token();
        let memory = self.memory()?;
        let is_view = self.func.view(memory).is_some();
        if is_view { Ok(memory) } else { Err(token.error(format!("`{}` is not a view", token.text))) }
    }
}
