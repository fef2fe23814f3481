//! The kernels of source files. What they import is searched in the sources of this repository.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use super::macro_rules::MacroRules;
use crate::frontend::syntax::{self, FuseModule, Import, Items, Kernel, ModuleItem, Wanted};
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
            let function = function.to_token_stream();
            let mut items = Items::default();
            while let Some(wanted) = syntax::wanted(TokenStream::new(), function.clone(), &items) {
                items.imports.push(import(&wanted));
            }
            if let Some(mut kernel) = syntax::parse(arguments, function, &mut self.errors) {
                kernel.set_items(items.into());
                self.kernels.push(kernel);
            }
        }
    }

    fn module(&mut self, mut module: syn::ItemMod) {
        if syntax::is_conditional(&module.to_token_stream()) {
            return;
        }
        if take_attribute(&mut module.attrs, "fuse_module").is_none() {
            return;
        }
        if let Some(module) = with_imports(module.to_token_stream(), &mut self.errors) {
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
            let Some(mut kernel) = syntax::parse(attribute, item, errors) else { continue };
            kernel.set_items(module.items.clone());
            kernels.push(kernel);
        }
    }
    kernels
}

/// A module, with what it uses of others.
fn with_imports(module: TokenStream, errors: &mut Errors) -> Option<FuseModule> {
    let mut imports = vec![];
    loop {
        let mut own = Errors::new();
        let parsed = syntax::parse_module(TokenStream::new(), module.clone(), imports.clone(), &mut own);
        match parsed.as_ref().and_then(FuseModule::wanted) {
            Some(wanted) => imports.push(import(&wanted)),
            None => {
                errors.extend(own);
                return parsed;
            }
        }
    }
}

/// An item of the module that its path names, or of a module in a file of that name.
fn import(wanted: &Wanted) -> Import {
    thread_local! {
        static SHARED: OnceCell<Vec<(PathBuf, syn::ItemMod)>> = const { OnceCell::new() };
    }
    let (owner, name) = (wanted.owner(), wanted.name());
    let module = SHARED.with(|shared| {
        let modules = shared.get_or_init(shared_modules).iter();
        let mut found = modules.filter(|(path, module)| {
            let is_of_file = path.file_stem().is_some_and(|stem| *owner == stem.to_string_lossy());
            (module.ident == *owner || is_of_file) && declares(module, name)
        });
        found.next().map(|(_, module)| module.to_token_stream())
    });
    let module = module.unwrap_or_else(|| panic!("no source has `{}`", wanted.path()));
    let module = with_imports(module, &mut Errors::new()).expect("a module");
    syntax::imported(wanted.path(), syntax::exported(name, &module.items)).expect("a text that comes back")
}

fn declares(module: &syn::ItemMod, name: &Ident) -> bool {
    let mut items = module.content.iter().flat_map(|(_, items)| items);
    items.any(|item| match item {
        syn::Item::Fn(item) => item.sig.ident == *name,
        syn::Item::Const(item) => item.ident == *name,
        syn::Item::Enum(item) => item.ident == *name,
        syn::Item::Struct(item) => item.ident == *name,
        _ => false,
    })
}

/// The modules of this repository whose functions other files may use, with their files.
fn shared_modules() -> Vec<(PathBuf, syn::ItemMod)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut modules = vec![];
    for folder in ["examples/src", "tests/kernels/src", "book/code/src"] {
        add_shared_modules(&root.join(folder), &mut modules);
    }
    modules
}

/// The files of Rust in a folder and those in it, sorted.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut files: Vec<PathBuf> =
        paths.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] }).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
}

fn add_shared_modules(folder: &Path, modules: &mut Vec<(PathBuf, syn::ItemMod)>) {
    for path in rust_files(folder) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if !text.contains("#[fuse_fn]") && !text.contains("#[fuse_struct]") {
            continue;
        }
        for item in syn::parse_file(&text).expect("a source file").items {
            if let syn::Item::Mod(mut module) = item
                && take_attribute(&mut module.attrs, "fuse_module").is_some()
            {
                modules.push((path.clone(), module));
            }
        }
    }
}
