//! Items of kernels that cross modules and crates: the macros that have their texts, and a kernel's way through them.

use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use tile_ir::frontend::syntax::{self, FnItem, Import, Items, StructItem, Wanted};
use tile_ir::support::diagnostic::source_text;
use xxhash_rust::xxh3::xxh3_64;

use super::configure::MarkedItem;
use super::data::place_of;
use super::ide_stub;
use crate::driver::options::BuildOptions;

/// An attribute's item whose expansion waits for texts of other modules.
pub struct Waiting {
    pub kind: MarkedItem,
    pub attribute: TokenStream,
    pub item: TokenStream,
    pub imports: Vec<Import>,
}

/// The call of the macro that has a text, with all that [`resume`] needs.
pub(super) fn wait_for(wanted: &Wanted, waiting: &Waiting, options: &BuildOptions) -> TokenStream {
    let Waiting { kind, attribute, item, imports } = waiting;
    let (kind, path) = (kind.word(), wanted.path());
    let state = quote! { #kind (#path) (#attribute) { #item } [ #(#imports,)* ] };
    if let Some(in_module) = &wanted.in_module {
        return quote! { #in_module! { #state } };
    }
    // Beside the kernel the body's declaration has a name that nothing else has.
    let name = wanted.name();
    let unique = unique_name(name, &place_of(name, options));
    let declaration = wanted.use_as(unique.clone());
    quote! {
        #[allow(unused_imports)]
        #declaration
        #unique! { #state }
    }
}

/// What [`wait_for`] was given, with the text: `{ text } kind (path) (attribute) { item } [ imports ]`.
pub(super) fn resume(tokens: TokenStream) -> Option<Waiting> {
    let mut tokens = tokens.into_iter();
    let mut group = |delimiter: Delimiter| match tokens.next()? {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.stream()),
        TokenTree::Ident(name) if delimiter == Delimiter::None => Some(TokenTree::from(name).into()),
        _ => None,
    };
    let text = group(Delimiter::Brace)?;
    let kind = MarkedItem::of_word(&group(Delimiter::None)?.to_string())?;
    let path = group(Delimiter::Parenthesis)?;
    let attribute = group(Delimiter::Parenthesis)?;
    let item = group(Delimiter::Brace)?;
    let mut imports = syntax::imports(group(Delimiter::Bracket)?);
    imports.push(syntax::imported(path, text)?);
    Some(Waiting { kind, attribute, item, imports })
}

/// The macros of a module's functions, structs, constants and enums; `place` tells this module from any other.
pub(super) fn text_macros(items: &Items, place: &str) -> TokenStream {
    let functions = items.functions.iter().map(|function| (&function.name, &function.visibility));
    let structs = items.structs.iter().map(|own| (&own.name, &own.visibility));
    let mut seen: Vec<&Ident> = vec![];
    let constants = items.constants.iter().filter(|constant| constant.value.is_some());
    let constants = constants.map(|constant| (&constant.path[0], &constant.visibility));
    let mut macros = TokenStream::new();
    for (name, visibility) in functions.chain(structs).chain(constants) {
        if !seen.contains(&name) {
            seen.push(name);
            macros.extend(text_macro(name, visibility, items, place));
        }
    }
    macros
}

fn text_macro(name: &Ident, visibility: &syn::Visibility, items: &Items, place: &str) -> TokenStream {
    let unique = unique_name(name, place);
    let export = matches!(visibility, syn::Visibility::Public(_)).then(|| quote! { #[macro_export] });
    let text = Group::new(Delimiter::Brace, syntax::exported(name, items));
    quote! {
        #[doc(hidden)]
        #[allow(unused_macros, non_local_definitions, clippy::crate_in_macro_def)]
        #export
        macro_rules! #unique {
            ($($waiting:tt)*) => { ::dsl_runtime::imported! { #text $($waiting)* } };
        }
        #[doc(hidden)]
        #[allow(unused_imports)]
        #visibility use #unique as #name;
    }
}

/// A name that nothing else at this place has, on the tokens of this one.
fn unique_name(name: &Ident, place: &str) -> Ident {
    let hash = xxh3_64(format!("{place}|{name}").as_bytes());
    quote::format_ident!("fuse_{name}_{hash:016x}", span = name.span())
}

/// A function for rustdoc, which shows it as it was written.
pub(super) fn documented(function: &FnItem) -> TokenStream {
    let visibility = &function.visibility;
    if matches!(visibility, syn::Visibility::Inherited) {
        return TokenStream::new();
    }
    // A struct of another crate has no name here: rustdoc's `cfg(doc)` holds for the crate that it documents alone.
    let (documentation, stub) =
        (ide_stub::documentation(function), ide_stub::stub(function, &|_| ide_stub::tile()));
    quote! {
        #[cfg(doc)]
        #documentation
        #visibility #stub
    }
}

/// A struct for rustdoc, which shows its fields as they were written, and behind its documentation that of its functions.
pub(super) fn documented_struct(item: &StructItem) -> TokenStream {
    let StructItem { name, visibility, documentation, functions, text, .. } = item;
    if matches!(visibility, syn::Visibility::Inherited) {
        return TokenStream::new();
    }
    let items = syn::parse2::<syn::File>(text.clone()).map(|file| file.items).unwrap_or_default();
    let fields: String = items.iter().map(public_fields).collect();
    let text = format!("```text\nstruct {name} {{\n{fields}}}\n```\n");
    let is_public = |function: &&Rc<FnItem>| !matches!(function.visibility, syn::Visibility::Inherited);
    let functions = functions.iter().filter(is_public).map(|function| ide_stub::documentation(function));
    quote! {
        #[cfg(doc)]
        #[doc = #text]
        #(#documentation)*
        #(#functions)*
        #visibility struct #name {
            _values: (),
        }
    }
}

/// The public fields of a struct with their documentation, a line each, as rustdoc shows them.
fn public_fields(item: &syn::Item) -> String {
    let syn::Item::Struct(own) = item else { return String::new() };
    let mut lines = String::new();
    for syn::Field { attrs, vis, ident, ty, .. } in &own.fields {
        if matches!(vis, syn::Visibility::Inherited) {
            continue;
        }
        for attribute in attrs {
            if let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(doc), .. }) =
                &attribute.meta
                && let syn::Lit::Str(text) = &doc.lit
            {
                lines += &format!("    ///{}\n", text.value());
            }
        }
        lines += &format!("    {}: {},\n", ident.to_token_stream(), source_text(quote! { #ty }));
    }
    let is_private = |field: &syn::Field| matches!(field.vis, syn::Visibility::Inherited);
    if own.fields.iter().any(is_private) {
        lines += "    /* private fields */\n";
    }
    lines
}
