//! Fields of operations as text: what is written is read again.

use super::lexer::ParseError;
use super::reader::TextReader;
use super::{Func, ParamId, Value};

/// An operation as text: `name operands attributes`. `ops::syntax` makes both ways of one declaration.
pub trait OperationText {
    /// The name it is written under.
    fn name(&self) -> &'static str;

    /// Writes what stands between its name and its types.
    fn write(&self, out: &mut TextWriter);

    /// Whether operations of this type are written under a name.
    fn is_named(name: &str) -> bool
    where
        Self: Sized;

    /// Reads what was written behind a name; blocks are empty, and [`crate::ops::Operation::infer`] fills in what follows
    /// from types.
    fn read(name: &str, input: &mut TextReader) -> Result<Self, ParseError>
    where
        Self: Sized;

    /// Whether its blocks stand below each other in braces, each behind a header.
    fn has_block_headers(&self) -> bool {
        false
    }

    /// Writes what stands in front of one of its blocks.
    fn write_block_header(&self, _index: usize, _out: &mut TextWriter) {}

    /// Reads the same.
    fn read_block_header(&mut self, _index: usize, _input: &mut TextReader) -> Result<(), ParseError> {
        Ok(())
    }

    /// The header of a block; no value is named there.
    fn block_header(&self, func: &Func, index: usize) -> String {
        let mut out = TextWriter { func, name: &mut |value| format!("{value:?}"), text: String::new() };
        self.write_block_header(index, &mut out);
        out.text
    }

    /// The operation, with names for its operands.
    fn text(&self, func: &Func, name: &mut dyn FnMut(Value) -> String) -> String {
        let mut out = TextWriter { func, name, text: self.name().into() };
        self.write(&mut out);
        out.text
    }
}

/// Where operations are written to.
pub struct TextWriter<'a> {
    pub func: &'a Func,
    name: &'a mut dyn FnMut(Value) -> String,
    text: String,
}

impl TextWriter<'_> {
    pub fn push(&mut self, text: &str) {
        self.text += text;
    }

    /// Behind a space.
    pub fn word(&mut self, word: &str) {
        self.text.push(' ');
        self.text += word;
    }

    /// The name of a value.
    pub fn name(&mut self, value: Value) {
        self.text += &(self.name)(value);
    }

    /// The names of values, with commas between them.
    pub fn names(&mut self, values: &[Value]) {
        for (i, &value) in values.iter().enumerate() {
            self.text += if i > 0 { ", " } else { "" };
            self.name(value);
        }
    }

    /// An attribute: a word, and the field behind it.
    pub fn attribute(&mut self, word: &str, field: &impl FieldText) {
        if !field.is_absent() {
            self.word(word);
            field.write(self);
        }
    }
}

impl TextReader<'_> {
    /// An attribute: a word with a field behind it.
    pub fn attribute<T: FieldText>(&mut self, word: &str) -> Result<T, ParseError> {
        if self.take(word) { T::read(self) } else { T::absent().ok_or_else(|| self.unexpected()) }
    }
}

/// A field of an operation as text.
pub trait FieldText: Sized {
    /// Writes it, behind a space.
    fn write(&self, out: &mut TextWriter);

    fn read(input: &mut TextReader) -> Result<Self, ParseError>;

    /// The field of an operation whose text does not have the field's word, if the word may be left out.
    fn absent() -> Option<Self> {
        None
    }

    /// Whether it is [`FieldText::absent`].
    fn is_absent(&self) -> bool {
        false
    }
}

impl FieldText for Value {
    fn write(&self, out: &mut TextWriter) {
        out.push(" ");
        out.name(*self);
    }

    fn read(input: &mut TextReader) -> Result<Value, ParseError> {
        input.value()
    }
}

/// A list that may be empty.
impl FieldText for Vec<Value> {
    fn write(&self, out: &mut TextWriter) {
        if !self.is_empty() {
            out.push(" ");
            out.names(self);
        }
    }

    fn read(input: &mut TextReader) -> Result<Vec<Value>, ParseError> {
        if input.begins_value() { input.list(TextReader::value) } else { Ok(vec![]) }
    }

    fn absent() -> Option<Vec<Value>> {
        Some(vec![])
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FieldText> FieldText for Option<T> {
    fn write(&self, out: &mut TextWriter) {
        if let Some(field) = self {
            field.write(out);
        }
    }

    fn read(input: &mut TextReader) -> Result<Option<T>, ParseError> {
        T::read(input).map(Some)
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

/// Whether its word is there.
impl FieldText for bool {
    fn write(&self, _: &mut TextWriter) {}

    fn read(_: &mut TextReader) -> Result<bool, ParseError> {
        Ok(true)
    }

    fn absent() -> Option<bool> {
        Some(false)
    }

    fn is_absent(&self) -> bool {
        !self
    }
}

macro_rules! integers {
    ($($ty:ident)*) => {
        $(impl FieldText for $ty {
            fn write(&self, out: &mut TextWriter) {
                out.word(&self.to_string());
            }

            fn read(input: &mut TextReader) -> Result<$ty, ParseError> {
                input.integer()
            }
        })*
    };
}

integers!(u8 u32 u64 i32 usize);

macro_rules! lists {
    ($($ty:ident)*) => {
        $(impl FieldText for Vec<$ty> {
            fn write(&self, out: &mut TextWriter) {
                out.word(&format!("{self:?}"));
            }

            fn read(input: &mut TextReader) -> Result<Vec<$ty>, ParseError> {
                input.bracketed()
            }
        })*
    };
}

lists!(u32 usize);

impl FieldText for String {
    fn write(&self, out: &mut TextWriter) {
        out.word(&format!("{self:?}"));
    }

    fn read(input: &mut TextReader) -> Result<String, ParseError> {
        input.string()
    }
}

/// The memory of a slice or a view, by its name.
impl FieldText for ParamId {
    fn write(&self, out: &mut TextWriter) {
        out.word(&out.func.params[self.index()].name);
    }

    fn read(input: &mut TextReader) -> Result<ParamId, ParseError> {
        input.memory()
    }
}
