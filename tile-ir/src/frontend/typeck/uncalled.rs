//! Checks a function that no kernel calls, as far as that goes without the types of a call.

use std::cell::OnceCell;
use std::rc::Rc;

use proc_macro2::TokenStream;

use super::function::Frame;
use super::scope::ItemScope;
use super::{Check, Item, Operand};
use crate::frontend::syntax::{
    BlockExpr, FnItem, FnSource, GenericParam, Items, Kernel, KernelOptions, Pattern, ValueType,
};
use crate::ir::{Func, FuncBuilder};
use crate::support::diagnostic::{Errors, Loc};

/// How deep structs in structs are looked into.
const MAX_NESTED: u32 = 4;

/// Checks the names in a function. Its parameters and generics are unknown, and errors that follow from them are not
/// reported.
pub fn check_function(function: &Rc<FnItem>, items: Rc<Items>) -> Errors {
    let kernel = placeholder_kernel(function, items.clone());
    let mut func = Func::new(function.name.to_string(), Loc::of(&function.name));
    let item_scope = ItemScope::of(items, None);
    let mut check = Check::new(&kernel, FuncBuilder::new(&mut func), Frame::uncalled(function), item_scope);
    for generic in &function.generics {
        if let GenericParam::Const { name, .. } = generic {
            let unknown = Operand::failed(Loc::of(name));
            check.scopes.bind(&name.to_string(), unknown, false);
        }
    }
    check.scopes.enter();
    for param in &function.params {
        check.report_unknown_types(&param.ty);
        let unknown = check.unknown_of(&param.ty, param.loc, MAX_NESTED);
        check.bind_unknown(&param.pattern, unknown);
    }
    if let Some(result) = &function.result {
        check.report_unknown_types(result);
    }
    check.block(&function.body);
    check.errors
}

/// An empty kernel, for the state of the checker.
fn placeholder_kernel(function: &FnItem, items: Rc<Items>) -> Kernel {
    let empty = TokenStream::new;
    let loc = Loc::of(&function.name);
    Kernel {
        name: function.name.clone(),
        visibility: syn::Visibility::Inherited,
        attributes: vec![],
        generics: vec![],
        params: vec![],
        body: BlockExpr { items: Rc::default(), statements: vec![], value: None, loc },
        options: KernelOptions::default(),
        source: FnSource {
            generics: empty(),
            inputs: empty(),
            output: empty(),
            body: empty(),
            is_generated: false,
            outline: empty(),
        },
        returns: false,
        items,
        library: OnceCell::new(),
        receiver: None,
    }
}

impl Check<'_> {
    /// Whether a function is checked that no kernel calls.
    pub(super) fn is_uncalled_function(&self) -> bool {
        self.frames[0].is_function()
    }

    /// A value of a type of which nothing is known but the struct that it is, and those in it so deep.
    fn unknown_of(&mut self, ty: &ValueType, loc: Loc, depth: u32) -> Operand {
        let ValueType::Scalar(name) = ty else { return Operand::failed(loc) };
        match self.struct_named(&[name.ident()]) {
            Some(id) if depth > 0 => {
                let item = self.struct_item(id).clone();
                let fields = item.fields.iter().map(|field| self.unknown_of(&field.ty, loc, depth - 1));
                Operand::new(Item::Struct(id, fields.collect()), loc)
            }
            _ => Operand::failed(loc),
        }
    }

    fn bind_unknown(&mut self, pattern: &Pattern, unknown: Operand) {
        match pattern {
            Pattern::Ignore(_) => {}
            Pattern::Name { name, mutable } => self.scopes.bind(&name.to_string(), unknown, *mutable),
            Pattern::Tuple { parts, .. } => {
                parts.iter().for_each(|part| self.bind_unknown(part, Operand::failed(unknown.loc)));
            }
        }
    }

    /// Reports element types that do not exist.
    fn report_unknown_types(&mut self, ty: &ValueType) {
        match ty {
            ValueType::Scalar(name)
                if self.struct_named(&[name.ident()]).is_some() || self.is_enum(&name.ident()) => {}
            ValueType::Tile { elem: Some(name), .. }
            | ValueType::Scalar(name)
            | ValueType::Memory { elem: name, .. } => {
                self.resolve_type(name);
            }
            ValueType::View(view) => {
                self.resolve_type(&view.elem);
            }
            ValueType::Optional(inner) => self.report_unknown_types(inner),
            ValueType::Tuple { parts, .. } => parts.iter().for_each(|part| self.report_unknown_types(part)),
            ValueType::Tile { elem: None, .. }
            | ValueType::Constant(_)
            | ValueType::Function(_)
            | ValueType::Any => {}
        }
    }
}
