//! The rows of the table of foreign names, and what to answer in each place.

use crate::ops::{self, IntrinsicGeneric, IntrinsicParam, scalar};
use crate::support::dtype::DType;

/// A row of the table: names of one idea, and the answer to all of them.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// In any spelling: `warp_sum` is `warpSum` too. A `*` at the end of a name stands for any more words.
    pub names: &'static [&'static str],
    pub kind: NameKind,
    pub answer: Answer,
}

/// What a name stands for where it comes from, which decides where it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameKind {
    /// A function, method or macro.
    Function,
    /// A variable or constant. It is also answered where it is called.
    Value,
    /// A module, with what to write instead of anything in it that has no answer of its own.
    Module,
    /// A function by the names of its module and its own, `atomic::add`, where its own says too little.
    Path,
    /// A type. It is answered everywhere but in the attribute's options.
    Type,
    /// An option of an attribute or decorator.
    Option,
    /// A named argument.
    Argument,
}

/// What to write.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The function of `tl::` of this name.
    Own(&'static str),
    /// This element type.
    Type(DType),
    /// A conversion to the element type that the arguments name, or to this one.
    Convert(DType),
    /// These words.
    Write(&'static str),
}

/// Where an unknown name stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Function,
    /// A function with the name of the module before it.
    Path,
    /// A module or type before the name of a function.
    Owner,
    /// A function or name behind `tl::`.
    Module,
    Method,
    Variable,
    Type,
    Macro,
    Option,
    Argument,
}

impl Foreign {
    /// Whether the names of this row are answered in a place.
    pub fn is_answered_in(&self, place: Place) -> bool {
        match self.kind {
            NameKind::Function => {
                matches!(place, Place::Function | Place::Module | Place::Method | Place::Macro)
            }
            NameKind::Value => {
                matches!(place, Place::Function | Place::Module | Place::Method | Place::Variable)
            }
            NameKind::Module => matches!(place, Place::Module | Place::Variable | Place::Owner),
            NameKind::Path => place == Place::Path,
            NameKind::Type => !matches!(place, Place::Path | Place::Macro | Place::Option | Place::Argument),
            NameKind::Option => place == Place::Option,
            NameKind::Argument => place == Place::Argument,
        }
    }

    /// The help for a name of this row; `target` is the element type that the arguments of a call name.
    pub fn help(&self, place: Place, target: Option<DType>) -> String {
        match self.answer {
            Answer::Own(name) => format!("it is `{}` here", call_form(name)),
            Answer::Write(text) => text.into(),
            Answer::Convert(dtype) => convert(target.unwrap_or(dtype)),
            Answer::Type(dtype) => match place {
                Place::Function | Place::Owner | Place::Method => convert(dtype),
                Place::Module => format!(
                    "an element type is written `{dtype}`: `.to::<{dtype}>()`, `tl::zeros::<{dtype}>([N])`"
                ),
                Place::Variable => {
                    format!("an element type stands between angle brackets: `.to::<{dtype}>()`")
                }
                Place::Type | Place::Path | Place::Macro | Place::Option | Place::Argument => {
                    format!("did you mean `{dtype}`?")
                }
            },
        }
    }
}

/// The parameters of a function of `tl::`.
pub(crate) fn parameters(name: &str) -> Vec<IntrinsicParam> {
    match scalar::functions::named(name) {
        Some(row) => row.params.iter().map(|param| ops::required(param)).collect(),
        None => {
            let function = ops::functions().find(|function| function.name == name);
            function.into_iter().flat_map(|function| function.params).copied().collect()
        }
    }
}

/// A function of `tl::` with the element type that it needs.
pub(crate) fn call_head(name: &str) -> String {
    let typed = ops::functions().any(|own| {
        own.name == name && matches!(own.generic, IntrinsicGeneric::RequiredType | IntrinsicGeneric::Results)
    });
    format!("tl::{name}{}", if typed { "::<f32>" } else { "" })
}

/// A call of a function of `tl::` with the names of the parameters that it needs.
pub(crate) fn call_form(name: &str) -> String {
    let params = parameters(name);
    let required: Vec<&str> = params.iter().filter(|param| !param.optional).map(|param| param.name).collect();
    format!("{}({})", call_head(name), required.join(", "))
}

fn convert(dtype: DType) -> String {
    format!("convert it: `.to::<{dtype}>()` or `as {dtype}`")
}

/// How to write a loop from the last value to the first.
pub(crate) const COUNT_DOWN: &str =
    "to count down, turn the variable: `for j in 0..n { let i = n - 1 - j; .. }`";

// ---- rows

pub(super) const fn row(names: &'static [&'static str], kind: NameKind, answer: Answer) -> Foreign {
    Foreign { names, kind, answer }
}

/// Functions that `tl::` has by another name.
pub(super) const fn own(names: &'static [&'static str], name: &'static str) -> Foreign {
    row(names, NameKind::Function, Answer::Own(name))
}

pub(super) const fn function(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Function, Answer::Write(text))
}

pub(super) const fn value(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Value, Answer::Write(text))
}

pub(super) const fn module(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Module, Answer::Write(text))
}

pub(super) const fn path(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Path, Answer::Write(text))
}

pub(super) const fn type_name(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Type, Answer::Write(text))
}

pub(super) const fn option(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Option, Answer::Write(text))
}

pub(super) const fn argument(names: &'static [&'static str], text: &'static str) -> Foreign {
    row(names, NameKind::Argument, Answer::Write(text))
}

/// Functions that convert to an element type.
pub(super) const fn conversion(names: &'static [&'static str], dtype: DType) -> Foreign {
    row(names, NameKind::Function, Answer::Convert(dtype))
}
