//! The kernels of source files.

use proc_macro2::TokenStream;
use quote::ToTokens;

use super::macro_rules::MacroRules;
use crate::frontend::syntax::{self, FuseModule, Kernel, ModuleItem};
use crate::support::diagnostic::Errors;

/// A procedural macro: what a call of this name expands to, if it is known.
pub type Generator = fn(&str, TokenStream) -> Option<TokenStream>;

/// Returns the kernels of a source file, of its `#[fuse_module]` modules and of the macros that it defines and calls, as `#[fuse_kernel]`
/// gets them. Items with `cfg` inside are left out: rustc alone evaluates it.
pub fn kernels(source: &str) -> Vec<Kernel> {
    generated_kernels(source, |_, _| None)
}

/// The same, with those that procedural macros generate.
pub fn generated_kernels(source: &str, generator: Generator) -> Vec<Kernel> {
    let file = syn::parse_file(source).expect("a source file");
    let mut reader =
        Reader { generator, macros: MacroRules::default(), kernels: vec![], errors: Errors::new() };
    file.items.into_iter().for_each(|item| reader.item(item));
    assert!(reader.errors.is_empty(), "{:?}", reader.errors);
    reader.kernels
}

/// Reads items in their order, as macros are defined before they are called.
struct Reader {
    generator: Generator,
    macros: MacroRules,
    kernels: Vec<Kernel>,
    errors: Errors,
}

impl Reader {
    fn item(&mut self, item: syn::Item) {
        match item {
            syn::Item::Fn(function) => self.function(function),
            syn::Item::Mod(module) => self.module(module),
            syn::Item::Macro(syn::ItemMacro { ident: Some(name), mac, .. }) => {
                self.macros.define(&name, mac.tokens);
            }
            syn::Item::Macro(syn::ItemMacro { ident: None, mac, .. }) => self.call(mac),
            _ => {}
        }
    }

    fn function(&mut self, mut function: syn::ItemFn) {
        if syntax::is_conditional(&function.to_token_stream()) {
            return;
        }
        if let Some(attribute) = take_attribute(&mut function.attrs, "fuse_kernel") {
            let arguments = match attribute.meta {
                syn::Meta::List(list) => list.tokens,
                _ => Default::default(),
            };
            self.kernels.extend(syntax::parse(arguments, function.to_token_stream(), &mut self.errors));
        }
    }

    fn module(&mut self, mut module: syn::ItemMod) {
        if syntax::is_conditional(&module.to_token_stream()) {
            return;
        }
        let mark = take_attribute(&mut module.attrs, "fuse_module");
        let parse =
            |_| syntax::parse_module(Default::default(), module.to_token_stream(), vec![], &mut self.errors);
        if let Some(module) = mark.and_then(parse) {
            self.kernels.extend(of_module(module, &mut self.errors));
        }
    }

    /// Expands a call, if it is known what it expands to.
    fn call(&mut self, call: syn::Macro) {
        let Some(segment) = call.path.segments.last() else { return };
        let expanded = self.macros.expand(&segment.ident, &call.tokens);
        if let Some(tokens) = expanded.or_else(|| (self.generator)(&segment.ident.to_string(), call.tokens)) {
            let file: syn::File = syn::parse2(tokens).expect("a macro expands to items");
            file.items.into_iter().for_each(|item| self.item(item));
        }
    }
}

/// Removes the attribute of this name, which is not part of a macro's input.
fn take_attribute(attributes: &mut Vec<syn::Attribute>, name: &str) -> Option<syn::Attribute> {
    let position = attributes.iter().position(|attribute| attribute.path().is_ident(name))?;
    Some(attributes.remove(position))
}

fn of_module(module: FuseModule, errors: &mut Errors) -> Vec<Kernel> {
    let mut kernels = vec![];
    for part in module.parts {
        if let ModuleItem::Kernel { attribute, item, .. } = part {
            let kernel = syntax::parse(attribute, item, errors);
            kernels.extend(kernel.map(|kernel| Kernel { items: module.items.clone(), ..kernel }));
        }
    }
    kernels
}
