//! Checks a parsed kernel and builds its tile IR, once for each declared variant: names, types, shapes. Every mistake
//! that a user can make is reported here or in `syntax`, on its own tokens; a later error is a bug of the compiler.
//!
//! The operations bring their own typing rules ([`crate::ops::Intrinsic::check`], [`crate::ops::scalar`]), which see the
//! checker as a [`crate::ops::typing::TypingCx`]; this module has what they share: literals that take the other operand's
//! type, broadcasting, pointers, constants, scopes.

mod branch;
mod call;
mod carried;
mod combine;
mod constant;
mod expr;
mod field;
mod function;
mod items;
mod library;
mod loops;
mod merged_errors;
mod names;
mod numbers;
mod operand;
mod operators;
mod option;
mod pointer;
mod scope;
mod settings;
mod stmt;
mod structs;
mod typing_cx;
mod uncalled;
mod unify;
mod unknown;
mod variant;
mod variants;
mod view;
mod warnings;

use std::collections::HashMap;
use std::rc::Rc;

use crate::analysis::assumption::assumptions;
use crate::analysis::mistakes::mistakes;
use crate::frontend::syntax::{
    ConstItem, GenericArg, Kernel, ParamType, Place, StructItem, TypeName, ViewType, foreign_help,
};
use crate::ir;
use crate::ir::{Func, FuncBuilder, Param, ParamId, ParamKind, Type};
use crate::ops::typing::{
    Call, CalleeId, ErrorLoc, InexactDivision, Item, Literal, LiteralValue, Operand, Pointer, Range,
    StructId, ViewPart,
};
use crate::support::diagnostic::{Errors, Loc};
use crate::support::dtype::DType;
use crate::support::warning::Warning;

use function::{Callee, Frame};
use scope::{ItemScope, Scopes};
use warnings::SignTest;

pub use merged_errors::MergedErrors;
pub use settings::maxnreg_loc;
pub use uncalled::check_function;
pub use variant::{ConstValue, Settings, Variant};
pub use variants::variants;

/// How many expressions may be around a call, those of its callers included: the checker recurses.
const MAX_DEPTH: u32 = 1000;

/// A call, and what stands between `::<` and `>`.
struct WrittenCall {
    call: Call,
    generics: Vec<GenericArg>,
}

/// The result of checking one variant.
pub struct Checked {
    pub func: Func,
    /// The output of `tl::static_print`.
    pub prints: Vec<String>,
    /// What is allowed and hardly meant.
    pub warnings: Vec<Warning>,
}

/// The state while one variant is checked.
pub struct Check<'a> {
    kernel: &'a Kernel,
    builder: FuncBuilder<'a>,
    scopes: Scopes,
    errors: Errors,
    prints: Vec<String>,
    warnings: Vec<Warning>,
    sign_tests: Vec<SignTest>,
    /// How many loops are around the current expression.
    loop_depth: u32,
    /// The call stack: the kernel, then each inlined call.
    frames: Vec<Frame>,
    /// Functions and constants in scope; variables shadow them.
    item_scope: Rc<ItemScope>,
    /// The functions that operands are, by [`CalleeId`].
    callees: Vec<Callee>,
    /// The structs that operands are of, by [`StructId`], and the items in their scopes.
    structs: Vec<(Rc<StructItem>, Rc<ItemScope>)>,
    /// What `self` has become in the method that was called last, if that changes it.
    changed_self: Option<Operand>,
    /// In a combine region: the index of its first value. Earlier values are the program's, which it may not capture.
    combine_region_start: Option<usize>,
    /// The functions of the compiler's library, once one was called.
    library: Option<Rc<ItemScope>>,
    /// Inside of one of those: the span of the call, to report errors on.
    site: Option<Loc>,
    /// How many expressions are around the current one, those of callers included.
    depth: u32,
    /// How many calls were inlined.
    inlined: u32,
    /// The constants that are being evaluated around the current expression, by where they are kept.
    constants: Vec<*const ConstItem>,
    /// For a name that is out of scope: the line on which its block ended.
    ended: HashMap<String, usize>,
    /// For a variable that may be used before it is assigned: the index of that error.
    unassigned: HashMap<scope::Slot, usize>,
}

/// Checks `kernel` for one variant.
pub fn check(kernel: &Kernel, variant: &Variant) -> Result<Checked, Errors> {
    let mut func = Func::new(kernel.name.to_string(), Loc::of(&kernel.name));
    let builder = FuncBuilder::new(&mut func);
    let item_scope = ItemScope::of(kernel.items.clone(), None);
    let mut check = Check::new(kernel, builder, Frame::kernel(kernel, variant), item_scope);
    check.signature(variant);
    check.body(&kernel.body);
    let Check { builder, errors, prints, mut warnings, sign_tests, .. } = check;
    builder.finish();
    if !errors.is_empty() {
        return Err(errors);
    }
    warnings.extend(warnings::decided(&sign_tests, &func));
    ir::cse_and_dce(&mut func);
    let assumed = assumptions(&func);
    func.assumptions = assumed.of_arguments;
    assumed.of_loaded.into_iter().for_each(|by| func.state_multiple(by));
    warnings.extend(mistakes(&func));
    Ok(Checked { func, prints, warnings })
}

impl<'a> Check<'a> {
    /// The state at the start of a body, with nothing in scope.
    fn new(
        kernel: &'a Kernel,
        builder: FuncBuilder<'a>,
        frame: Frame,
        item_scope: Rc<ItemScope>,
    ) -> Check<'a> {
        Check {
            kernel,
            builder,
            scopes: Scopes::new(),
            errors: Errors::new(),
            prints: vec![],
            warnings: vec![],
            sign_tests: vec![],
            loop_depth: 0,
            frames: vec![frame],
            item_scope,
            callees: vec![],
            structs: vec![],
            changed_self: None,
            combine_region_start: None,
            library: None,
            site: None,
            depth: 0,
            inlined: 0,
            constants: vec![],
            ended: HashMap::new(),
            unassigned: HashMap::new(),
        }
    }
}

impl Check<'_> {
    /// Binds generics and parameters.
    fn signature(&mut self, variant: &Variant) {
        for (name, value) in &variant.consts {
            let operand = Operand::new(Item::Literal(value.literal()), self.builder.loc);
            self.scopes.bind(name, operand, false);
        }
        // A generic whose values were not declared was reported: errors that follow from it are not.
        for generic in &self.kernel.generics {
            let name = generic.name().to_string();
            if !self.scopes.is_bound(&name) && !variant.types.iter().any(|(own, _)| *own == name) {
                let failed = Operand::failed(self.builder.loc);
                self.scopes.bind(&name, failed, false);
            }
        }
        for param in &self.kernel.params {
            let item = match &param.ty {
                ParamType::Failed => Item::Failed,
                // It is bound as a constant of the variant.
                ParamType::Enum(ty) => {
                    self.report_unknown_values(ty);
                    continue;
                }
                ParamType::Host(_) => continue,
                ParamType::Slice { elem, mutable } => {
                    let elem = self.resolve_type(elem);
                    let id = ParamId(self.builder.func.params.len() as u32);
                    let kind = ParamKind::Slice { elem: elem.unwrap_or(DType::F32), mutable: *mutable };
                    self.builder.func.params.push(Param { name: param.name.to_string(), kind });
                    if elem.is_some() { Item::Slice(id) } else { Item::Failed }
                }
                ParamType::View(ty) => self.view_param(ty, &param.name.to_string()),
                ParamType::Scalar(ty) => match self.resolve_scalar(ty) {
                    Some(dtype) => {
                        let value = self.builder.func.value(Type::scalar(dtype));
                        let kind = ParamKind::Scalar { value, dtype };
                        self.builder.func.params.push(Param { name: param.name.to_string(), kind });
                        Item::Value(value)
                    }
                    None => Item::Failed,
                },
            };
            let item = match param.presence().map(|name| name.to_string()) {
                Some(name) if !matches!(item, Item::Failed) => {
                    let is_some = variant
                        .consts
                        .iter()
                        .any(|(own, value)| *own == name && *value == ConstValue::Bool(true));
                    Item::Optional { held: Box::new(item), is_some }
                }
                _ => item,
            };
            let failed = matches!(param.ty, ParamType::Failed);
            if !failed && self.scopes.is_bound(&param.name.to_string()) {
                let text = format!("the name `{}` is used twice in the signature", param.name);
                self.errors.push(Loc::of(&param.name), text);
            }
            self.scopes.bind(&param.name.to_string(), Operand { item, loc: param.loc }, param.mutable);
        }
    }

    /// Reports an enum with a value that is computed.
    fn report_unknown_values(&mut self, ty: &TypeName) {
        let values = self.kernel.items.enum_values(&ty.ident());
        if values.contains(&None) {
            let text = format!("a value of `{}` is not known in a kernel", ty.name);
            self.errors.push_help(ty.loc, text, "write the discriminants as numbers");
        }
    }

    /// The element type of a scalar parameter.
    fn resolve_scalar(&mut self, ty: &TypeName) -> Option<DType> {
        let is_known = self.type_named(&ty.name).is_some()
            || self.frame().type_param(&ty.name).is_some()
            || foreign_help(&ty.name, Place::Type).is_some();
        if is_known || !ty.name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return self.resolve_type(ty);
        }
        let name = &ty.name;
        let mut help = String::new();
        if name.len() == 1 {
            help = format!("a type parameter is declared: `fn {}<{name}: Float>(..)`; ", self.kernel.name);
        }
        help += "a struct's fields are parameters of their own; an enum without fields is one of the same `#[fuse_module]`, or imported there";
        self.errors.push_help(ty.loc, format!("`{name}` is no type of a kernel's parameter"), help);
        None
    }

    /// An element type or type parameter by name.
    fn resolve_type(&mut self, ty: &TypeName) -> Option<DType> {
        if let Some(own) = self.frame().type_param(&ty.name) {
            // A type parameter without a type was reported where it should have got one.
            return own;
        }
        if let Some(dtype) = DType::parse(&ty.name) {
            return Some(dtype);
        }
        let help = foreign_help(&ty.name, Place::Type).unwrap_or_else(|| {
            match ty.name.len() == 1 && ty.name.starts_with(|c: char| c.is_ascii_uppercase()) {
                true => format!(
                    "a type parameter is declared: `fn {}<{}: Float>(..)`",
                    self.frame().name,
                    ty.name
                ),
                false => format!("element types are {}", crate::support::diagnostic::list(DType::ALL)),
            }
        });
        self.errors.push_help(ty.loc, format!("`{}` is not an element type", ty.name), help);
        None
    }

    /// The kernel, or the function of the innermost call.
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
            _ => String::new(),
        }
    }
}
