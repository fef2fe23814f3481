//! A parsed kernel to tile IR, once for each declared variant: names, types, shapes. Every mistake a user can make is
//! found here, on its own tokens; after this stage an error is ours.
//!
//! The operations bring their own typing rules ([`crate::ops::Function::check`], [`crate::ops::scalar`]); this module
//! gives them the vocabulary: literals that take the other operand's type, broadcasting, pointers, constants, scopes.

mod branch;
mod call;
mod carried;
mod constant;
mod expr;
mod loops;
mod names;
mod operand;
mod operators;
mod pointer;
mod scope;
mod settings;
mod stmt;
mod variants;

use crate::diagnostic::{Errors, Loc};
use crate::dtype::DType;
use crate::ops::{LoopHints, Number};
use crate::syntax::{Generic, GenericArg, Kernel, ParamType, TypeName};
use crate::tile::{self, Builder, Func, Param, ParamId, ParamKind, Shape, Type, Value};

use scope::Scopes;
pub use settings::Settings;
pub use variants::{ConstValue, Variant, variants};

/// What an expression is, and where it stands.
#[derive(Clone, Debug)]
pub struct Operand {
    pub item: Item,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub enum Item {
    /// A number or bool known at build.
    Literal(Literal),
    /// A tile or scalar.
    Value(Value),
    /// A slice parameter.
    Slice(ParamId),
    /// A slice and offsets into it.
    Pointer(Pointer),
    Tuple(Vec<Operand>),
    /// `[M, N]`, as shapes are written.
    List(Vec<Operand>),
    Text(String),
    Range(Range),
    Unit,
    /// Something that was already reported; whatever is made of it is silent.
    Failed,
}

/// A constant. Without an element type it takes the one it meets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Literal {
    pub value: LiteralValue,
    pub dtype: Option<DType>,
    /// Written as digits: an integer may then stand for a float.
    pub digits: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LiteralValue {
    Number(Number),
    Bool(bool),
}

/// Addresses: a slice and element offsets, one for each element of `shape`.
#[derive(Clone, Debug)]
pub struct Pointer {
    pub param: ParamId,
    pub offset: Value,
    pub shape: Shape,
}

/// What a `for` runs over.
#[derive(Clone, Debug)]
pub struct Range {
    pub low: Box<Operand>,
    pub high: Box<Operand>,
    pub step: Option<Box<Operand>>,
    /// The loop variable is a constant and the body is repeated for each of its values.
    pub unrolled: bool,
    pub hints: LoopHints,
}

/// A call of a function or method of the language, its arguments counted and evaluated.
pub struct Call {
    pub name: String,
    /// How messages name it: `` `tl::sum` `` or `` `.row` ``.
    pub what: String,
    pub name_loc: Loc,
    pub loc: Loc,
    pub generics: Vec<GenericArg>,
    pub args: Vec<Operand>,
}

/// What one variant checked to.
pub struct Checked {
    pub func: Func,
    /// What `tl::static_print` said.
    pub prints: Vec<String>,
}

/// The state while one variant is checked.
pub struct Check<'a> {
    kernel: &'a Kernel,
    variant: &'a Variant,
    builder: Builder<'a>,
    scopes: Scopes,
    errors: Errors,
    prints: Vec<String>,
    /// How many loops stand around what is checked.
    loops: u32,
}

/// Checks `kernel` for one variant.
pub fn check(kernel: &Kernel, variant: &Variant) -> Result<Checked, Errors> {
    let mut func = Func::new(kernel.name.to_string(), Loc::of(&kernel.name));
    let builder = Builder::new(&mut func);
    let mut check = Check {
        kernel,
        variant,
        builder,
        scopes: Scopes::new(),
        errors: Errors::new(),
        prints: vec![],
        loops: 0,
    };
    check.signature();
    check.body(&kernel.body);
    let Check { builder, errors, prints, .. } = check;
    builder.finish();
    if !errors.is_empty() {
        return Err(errors);
    }
    tile::eliminate(&mut func);
    Ok(Checked { func, prints })
}

impl Check<'_> {
    /// Binds generics and parameters.
    fn signature(&mut self) {
        for (name, value) in &self.variant.consts {
            let literal = match value {
                ConstValue::Int(value) => Literal::named(LiteralValue::Number(Number::Int(*value))),
                ConstValue::Bool(value) => Literal::named(LiteralValue::Bool(*value)),
            };
            self.scopes.bind(name, Operand { item: Item::Literal(literal), loc: self.builder.loc }, false);
        }
        // A generic whose values were not declared was reported: whatever depends on it is silent.
        for generic in &self.kernel.generics {
            let name = generic.name().to_string();
            if !self.scopes.is_bound(&name) && !self.variant.types.iter().any(|(own, _)| *own == name) {
                let failed = self.failed(self.builder.loc);
                self.scopes.bind(&name, failed, false);
            }
        }
        for param in &self.kernel.params {
            let item = match &param.ty {
                ParamType::Failed => Item::Failed,
                ParamType::Slice { elem, mutable } => {
                    let elem = self.resolve_type(elem);
                    let id = ParamId(self.builder.func.params.len() as u32);
                    let kind = ParamKind::Slice { elem: elem.unwrap_or(DType::F32), mutable: *mutable };
                    self.builder.func.params.push(Param { name: param.name.to_string(), kind });
                    if elem.is_some() { Item::Slice(id) } else { Item::Failed }
                }
                ParamType::Scalar(ty) => match self.resolve_type(ty) {
                    Some(dtype) => {
                        let value = self.builder.func.value(Type::scalar(dtype));
                        let kind = ParamKind::Scalar { value, dtype };
                        self.builder.func.params.push(Param { name: param.name.to_string(), kind });
                        Item::Value(value)
                    }
                    None => Item::Failed,
                },
            };
            let failed = matches!(param.ty, ParamType::Failed);
            if !failed && self.scopes.is_bound(&param.name.to_string()) {
                let text = format!("the name `{}` is used twice in the signature", param.name);
                self.errors.push(Loc::of(&param.name), text);
            }
            self.scopes.bind(&param.name.to_string(), Operand { item, loc: param.loc }, false);
        }
    }

    /// An element type or type parameter by name.
    fn resolve_type(&mut self, ty: &TypeName) -> Option<DType> {
        if let Some((_, dtype)) = self.variant.types.iter().find(|(name, _)| *name == ty.name) {
            return Some(*dtype);
        }
        if let Some(dtype) = DType::parse(&ty.name) {
            return Some(dtype);
        }
        let undeclared =
            |generic: &Generic| matches!(generic, Generic::Type { name, .. } if *name == ty.name);
        if self.kernel.generics.iter().any(undeclared) {
            return None;
        }
        let help = match ty.name.as_str() {
            "usize" => "memory and scalars have a fixed width: use `i64` or `i32`".to_string(),
            "isize" => "memory and scalars have a fixed width: use `i64`".to_string(),
            _ => format!("element types are {}", crate::diagnostic::list(DType::ALL)),
        };
        self.errors.push_help(ty.loc, format!("`{}` is not an element type", ty.name), help);
        None
    }

    /// How the user wrote a slice's element type.
    pub fn written_elem(&self, param: ParamId) -> String {
        let name = &self.builder.func.params[param.index()].name;
        let found = self.kernel.params.iter().find(|param| param.name == name);
        match found.map(|param| &param.ty) {
            Some(ParamType::Slice { elem, .. }) => elem.name.clone(),
            Some(ParamType::Scalar(_) | ParamType::Failed) | None => String::new(),
        }
    }
}

impl Literal {
    pub fn digits(value: Number, dtype: Option<DType>) -> Literal {
        Literal { value: LiteralValue::Number(value), dtype, digits: true }
    }

    pub fn named(value: LiteralValue) -> Literal {
        Literal { value, dtype: None, digits: false }
    }
}
