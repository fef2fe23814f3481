//! A function that no kernel calls: what can be said of it without the types of a call.

use std::rc::Rc;

use proc_macro2::TokenStream;

use super::Check;
use super::function::Frame;
use super::items::Surroundings;
use crate::frontend::syntax::{
    BlockExpr, FnItem, FnSource, GenericParam, Items, Kernel, KernelOptions, Pattern, ValueType,
};
use crate::ir::{Func, FuncBuilder};
use crate::support::diagnostic::{Errors, Loc};

/// Checks the names in a function. Its parameters and generics are nothing that is known, and whatever is made of them is
/// silent.
pub fn check_function(function: &Rc<FnItem>, items: Rc<Items>) -> Errors {
    let kernel = stands_for(function, items.clone());
    let mut func = Func::new(function.name.to_string(), Loc::of(&function.name));
    let surroundings = Surroundings::of(items, None);
    let mut check = Check::new(&kernel, FuncBuilder::new(&mut func), Frame::alone(function), surroundings);
    for generic in &function.generics {
        if let GenericParam::Const { name, .. } = generic {
            let unknown = check.failed(Loc::of(name));
            check.scopes.bind(&name.to_string(), unknown, false);
        }
    }
    check.scopes.enter();
    for param in &function.params {
        check.named_types(&param.ty);
        check.bind_unknown(&param.pattern, param.loc);
    }
    if let Some(result) = &function.result {
        check.named_types(result);
    }
    check.block(&function.body);
    check.errors
}

/// A kernel in whose place the function is checked.
fn stands_for(function: &FnItem, items: Rc<Items>) -> Kernel {
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
            outline: empty(),
        },
        returns: false,
        items,
        receiver: None,
    }
}

impl Check<'_> {
    /// Whether what is checked is a function by itself.
    pub(super) fn is_alone(&self) -> bool {
        self.frames[0].is_function()
    }

    fn bind_unknown(&mut self, pattern: &Pattern, loc: Loc) {
        match pattern {
            Pattern::Ignore(_) => {}
            Pattern::Name { name, mutable } => {
                let unknown = self.failed(loc);
                self.scopes.bind(&name.to_string(), unknown, *mutable);
            }
            Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| self.bind_unknown(part, loc)),
        }
    }

    /// Reports element types that do not exist.
    fn named_types(&mut self, ty: &ValueType) {
        match ty {
            ValueType::Tile { elem: Some(name), .. }
            | ValueType::Scalar(name)
            | ValueType::Memory { elem: name, .. } => {
                self.resolve_type(name);
            }
            ValueType::View(view) => {
                self.resolve_type(&view.elem);
            }
            ValueType::Tuple { parts, .. } => parts.iter().for_each(|part| self.named_types(part)),
            ValueType::Tile { elem: None, .. }
            | ValueType::Constant(_)
            | ValueType::Function(_)
            | ValueType::Any => {}
        }
    }
}
