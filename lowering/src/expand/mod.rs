//! The expansion of a kernel: a function with the kernel's own signature, whose call is a launch, and a module of the
//! same name with the kernel's static data.
//!
//! Names the user wrote keep their spans, so that rustc's own messages about a call are on the user's tokens.
//! Everything else is reached through `::dsl_runtime`.

mod arguments;
mod configure;
mod data;
mod declared;
pub mod ide_stub;
mod import;
mod launcher;
pub mod macros;
mod stack;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use tile_ir::frontend::syntax::{FnItem, Items, Kernel, StructItem, sets_lint_level, without_effect};
use tile_ir::frontend::typeck::Variant;
use tile_ir::support::warning;

use self::data::Expansion;
use self::declared::Declared;
use crate::driver::options::VARIABLES;

/// The whole expansion.
pub fn expand(expansion: &Expansion) -> TokenStream {
    let function = launcher::function(expansion.kernel, expansion.variants);
    let variants: Vec<TokenStream> =
        (0..expansion.variants.len()).map(|index| data::variant(expansion, index)).collect();
    let hosts: Vec<TokenStream> =
        (0..expansion.variants.len()).map(|index| data::host_code(expansion, index)).collect();
    let Declared { inside, beside } = declared::declared(expansion.kernel, expansion.variants);
    let module = launcher::module(expansion.kernel, &variants, &quote! { #(#hosts)* }, &inside);
    let imports = ide_stub::imports(expansion.kernel);
    let outline = ide_stub::outline(&expansion.kernel.source);
    let warnings = warnings(expansion);
    // Mentioning a variable makes cargo expand again when it changes. The search path differs between a terminal and an editor, so it
    // counts only where it decides something.
    let search_path = expansion.options.uses_path.then_some("PATH");
    let tracked = VARIABLES
        .iter()
        .copied()
        .chain(search_path)
        .map(|name| quote! { const _: ::core::option::Option<&str> = ::core::option_env!(#name); });
    quote! {
        #function
        #module
        #beside
        #imports
        #outline
        #warnings
        #(#tracked)*
    }
}

/// The likely mistakes of the kernel and of all variants, as warnings at the levels that the kernel's attributes set.
fn warnings(expansion: &Expansion) -> TokenStream {
    let of_variants = expansion.lowered.iter().flat_map(|lowered| lowered.warnings.iter().cloned());
    let found = without_effect(expansion.kernel).into_iter().chain(of_variants).collect();
    let levels = expansion.kernel.attributes.iter().filter(|attribute| sets_lint_level(attribute));
    warning::into_tokens(found, &quote! { #(#levels)* })
}

/// The expansion of a kernel with mistakes: enough that its calls and its name resolve.
pub fn broken(kernel: &Kernel) -> TokenStream {
    let function = launcher::broken(kernel);
    let Declared { inside, beside } = declared::declared(kernel, &[]);
    let module = launcher::module(kernel, &[], &TokenStream::new(), &inside);
    let imports = ide_stub::imports(kernel);
    quote! {
        #function
        #module
        #beside
        #imports
    }
}

/// The expansion of a misplaced kernel in an `impl` or `trait`: a method, for its calls.
pub fn method(kernel: &Kernel) -> TokenStream {
    launcher::broken(kernel)
}

/// The expansion of a kernel whose body cannot be parsed: its signature. Should rustc parse what this compiler cannot,
/// the program does not build, and says so.
pub fn unread(kernel: &Kernel, error: &str) -> TokenStream {
    let function = launcher::unread(kernel, error);
    let Declared { inside, beside } = declared::declared(kernel, &[]);
    let module = launcher::module(kernel, &[], &TokenStream::new(), &inside);
    let imports = ide_stub::imports(kernel);
    quote! {
        #function
        #module
        #beside
        #imports
    }
}

/// Items, each with the `cfg` conditions of the attribute's item.
pub fn under(conditions: &[syn::Attribute], items: TokenStream) -> TokenStream {
    if conditions.is_empty() {
        return items;
    }
    match syn::parse2::<syn::File>(items.clone()) {
        Ok(file) => file.items.into_iter().map(|item| quote! { #(#conditions)* #item }).collect(),
        Err(_) => items,
    }
}

/// The expansion of a function that kernels call: nothing to run, only what an editor and rustc's imports need.
pub fn module_function(function: &FnItem, editor: bool) -> TokenStream {
    if editor {
        return ide_stub::module_function(function);
    }
    let (imports, outline) = (ide_stub::function_imports(function), ide_stub::outline(&function.source));
    let documented = import::documented(function);
    quote! { #imports #outline #documented }
}

/// The expansion of a struct of values: what rustdoc shows, and what an editor and rustc's imports need.
pub fn module_struct(item: &StructItem, editor: bool) -> TokenStream {
    if editor {
        return ide_stub::module_struct(item);
    }
    let imports = item.functions.iter().map(|function| ide_stub::function_imports(function));
    let documented = import::documented_struct(item);
    quote! { #(#imports)* #documented }
}

/// A use of each of these names, whose attributes were removed, and of what only kernels use.
pub fn mentions(names: &[Ident], items: &Items) -> TokenStream {
    ide_stub::mentions(names, &items.constants)
}

/// The signature with no code behind it, and the body to resolve names in. Without variants, which a kernel with
/// mistakes may not have, any call of it is taken.
pub fn for_editors(kernel: &Kernel, variants: Option<&[Variant]>) -> TokenStream {
    let shadow = ide_stub::function(kernel);
    let Some(variants) = variants else {
        let launcher = broken(kernel);
        return quote! { #launcher #shadow };
    };
    let function = launcher::function(kernel, variants);
    let empty: Vec<TokenStream> =
        variants.iter().map(|variant| data::empty_variant(kernel, variant)).collect();
    let Declared { inside, beside } = declared::declared(kernel, variants);
    let module = launcher::module(kernel, &empty, &TokenStream::new(), &inside);
    quote! {
        #function
        #module
        #beside
        #shadow
    }
}
