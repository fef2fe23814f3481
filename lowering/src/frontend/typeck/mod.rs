//! A parsed kernel to tile IR, once for each declared variant: names, types, shapes. Every mistake a user can make is
//! found here, on its own tokens; after this stage an error is ours.
//!
//! The operations bring their own typing rules ([`crate::ops::Intrinsic::check`], [`crate::ops::scalar`]); this module
//! gives them the vocabulary: literals that take the other operand's type, broadcasting, pointers, constants, scopes.

mod alone;
mod branch;
mod call;
mod carried;
mod combine;
mod constant;
mod expr;
mod field;
mod foreign;
mod function;
mod items;
mod library;
mod loops;
mod names;
mod operand;
mod operators;
mod pointer;
mod scope;
mod settings;
mod stmt;
mod unify;
mod variants;
mod view;

use std::collections::HashMap;
use std::rc::Rc;

use crate::analysis::assumption::assumptions;
use crate::frontend::syntax::{GenericArg, Kernel, ParamType, TypeName, ViewType};
use crate::ir;
use crate::ir::{Func, FuncBuilder, Param, ParamId, ParamKind, Shape, Type, Value};
use crate::ops::{ConstantValue, LoopHints};
use crate::support::diagnostic::{Errors, Loc};
use crate::support::dtype::DType;

use function::Frame;
use items::Surroundings;
pub use operand::Spot;
use scope::Scopes;

pub use alone::check_function;
pub use foreign::element_type;
pub use function::Callee;
pub use settings::{Settings, maxnreg_place};
pub use variants::{ConstValue, Variant, variants};
pub use view::axes;

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
    /// A view parameter, by its memory.
    View(ParamId),
    /// A slice and offsets into it.
    Pointer(Pointer),
    Tuple(Vec<Operand>),
    /// `[M, N]`, as shapes are written.
    List(Vec<Operand>),
    Text(String),
    Range(Range),
    /// What can be called: a function, a closure, a function of `tl::`.
    Function(Callee),
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
    /// Made with `!`: a negative one stands for the same bits of an unsigned integer.
    pub complement: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LiteralValue {
    Number(ConstantValue),
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
    /// Whether `high` is one of the values.
    pub closed: bool,
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
    /// The first argument as written, for a function that says it.
    pub text: String,
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
    builder: FuncBuilder<'a>,
    scopes: Scopes,
    errors: Errors,
    prints: Vec<String>,
    /// How many loops stand around what is checked.
    loops: u32,
    /// The kernel, and the calls that lead from it to what is checked.
    frames: Vec<Frame>,
    /// Functions and constants that names mean where no variable has them.
    surroundings: Rc<Surroundings>,
    /// In a combination: the first value that is its own. Earlier ones are the program's, out of its reach.
    own_from: Option<usize>,
    /// The functions that come with the compiler, once they were asked for.
    library: Option<Rc<Surroundings>>,
    /// Within one of those: the call that led there, which stands for its text.
    site: Option<Loc>,
    /// How many expressions stand around what is checked, those of callers included.
    depth: u32,
    /// How many calls were put in the place of functions.
    inlined: u32,
    /// How many values of constants stand around what is checked.
    constants: u32,
    /// The lines on which blocks ended that declared a name, while nothing else has it.
    ended: HashMap<String, usize>,
    /// Where among the mistakes it stands that a variable may be used before it is assigned.
    unassigned: HashMap<scope::Slot, usize>,
}

/// Checks `kernel` for one variant.
pub fn check(kernel: &Kernel, variant: &Variant) -> Result<Checked, Errors> {
    let mut func = Func::new(kernel.name.to_string(), Loc::of(&kernel.name));
    let builder = FuncBuilder::new(&mut func);
    let surroundings = Surroundings::of(kernel.items.clone(), None);
    let mut check = Check::new(kernel, builder, Frame::kernel(kernel, variant), surroundings);
    check.signature(variant);
    check.body(&kernel.body);
    let Check { builder, errors, prints, .. } = check;
    builder.finish();
    if !errors.is_empty() {
        return Err(errors);
    }
    ir::cse_and_dce(&mut func);
    func.assumptions = assumptions(&func);
    Ok(Checked { func, prints })
}

impl<'a> Check<'a> {
    /// At the start of a body, with nothing in scope.
    fn new(
        kernel: &'a Kernel,
        builder: FuncBuilder<'a>,
        frame: Frame,
        surroundings: Rc<Surroundings>,
    ) -> Check<'a> {
        Check {
            kernel,
            builder,
            scopes: Scopes::new(),
            errors: Errors::new(),
            prints: vec![],
            loops: 0,
            frames: vec![frame],
            surroundings,
            own_from: None,
            library: None,
            site: None,
            depth: 0,
            inlined: 0,
            constants: 0,
            ended: HashMap::new(),
            unassigned: HashMap::new(),
        }
    }
}

impl Check<'_> {
    /// Binds generics and parameters.
    fn signature(&mut self, variant: &Variant) {
        for (name, value) in &variant.consts {
            let operand = self.wrap(Item::Literal(value.literal()), self.builder.loc);
            self.scopes.bind(name, operand, false);
        }
        // A generic whose values were not declared was reported: whatever depends on it is silent.
        for generic in &self.kernel.generics {
            let name = generic.name().to_string();
            if !self.scopes.is_bound(&name) && !variant.types.iter().any(|(own, _)| *own == name) {
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
                ParamType::View(ty) => self.view_param(ty, &param.name.to_string()),
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
        if let Some(own) = self.frame().type_param(&ty.name) {
            // One without a type was reported where it should have got it.
            return own;
        }
        if let Some(dtype) = DType::parse(&ty.name) {
            return Some(dtype);
        }
        let help = match ty.name.as_str() {
            "usize" => "memory and scalars have a fixed width: use `i64` or `i32`".to_string(),
            "isize" => "memory and scalars have a fixed width: use `i64`".to_string(),
            name => match element_type(name) {
                Some(dtype) => format!("did you mean `{dtype}`?"),
                None => format!("element types are {}", crate::support::diagnostic::list(DType::ALL)),
            },
        };
        self.errors.push_help(ty.loc, format!("`{}` is not an element type", ty.name), help);
        None
    }

    /// What is being checked: the kernel, or the function that the innermost call leads to.
    fn frame(&self) -> &Frame {
        self.frames.last().expect("the kernel's own frame stays")
    }

    /// How the user wrote the element type of a slice or view.
    pub fn written_elem(&self, param: ParamId) -> String {
        if self.frames.len() > 1 {
            return self.func().slice(param).0.to_string();
        }
        let name = &self.builder.func.params[param.index()].name;
        let found = self.kernel.params.iter().find(|param| param.name == name);
        match found.map(|param| &param.ty) {
            Some(ParamType::Slice { elem, .. } | ParamType::View(ViewType { elem, .. })) => elem.name.clone(),
            Some(ParamType::Scalar(_) | ParamType::Failed) | None => String::new(),
        }
    }
}

impl Literal {
    pub fn digits(value: ConstantValue, dtype: Option<DType>) -> Literal {
        Literal { value: LiteralValue::Number(value), dtype, digits: true, complement: false }
    }

    pub fn named(value: LiteralValue) -> Literal {
        Literal { value, dtype: None, digits: false, complement: false }
    }
}
