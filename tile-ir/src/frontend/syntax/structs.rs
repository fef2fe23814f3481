//! Structs of values, and the functions of their `impl` blocks.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;

use super::ast::*;
use super::function;
use crate::support::diagnostic::{Errors, Loc};

/// Takes the structs that `is_marked` and their `impl` blocks from a module's items; gives each with the attributes that it had.
pub(super) fn take(
    items: &mut Vec<syn::Item>,
    is_marked: impl Fn(&syn::ItemStruct) -> bool,
    errors: &mut Errors,
) -> Vec<(StructItem, Vec<syn::Attribute>)> {
    let (mut structs, mut others) = (vec![], vec![]);
    for item in items.drain(..) {
        match item {
            syn::Item::Struct(item) if is_marked(&item) => structs.push((item, vec![])),
            other => others.push(other),
        }
    }
    for item in others {
        let owner = match &item {
            syn::Item::Impl(own) => structs.iter_mut().find(|(item, _)| is_of(own, &item.ident)),
            _ => None,
        };
        match (owner, item) {
            (Some((_, blocks)), syn::Item::Impl(own)) => blocks.push(own),
            (_, item) => items.push(item),
        }
    }
    structs.into_iter().map(|(item, blocks)| (parse(&item, blocks, errors), item.attrs)).collect()
}

/// Whether a block is an `impl` of the struct of this name.
fn is_of(block: &syn::ItemImpl, name: &Ident) -> bool {
    matches!(&*block.self_ty, syn::Type::Path(ty) if ty.path.is_ident(name))
}

fn parse(item: &syn::ItemStruct, blocks: Vec<syn::ItemImpl>, errors: &mut Errors) -> StructItem {
    if !item.generics.params.is_empty() {
        let help = "fields of `Tile` take tiles of any shape and element type";
        errors.push_help(Loc::of(&item.generics), "a struct of kernels has no generics", help);
    }
    let fields = match &item.fields {
        syn::Fields::Named(fields) => {
            let field = |field: &syn::Field| {
                Some(FieldItem { name: field.ident.clone()?, ty: function::value_type(&field.ty, errors) })
            };
            fields.named.iter().filter_map(field).collect()
        }
        syn::Fields::Unnamed(_) | syn::Fields::Unit => {
            errors.push(Loc::of(&item.ident), "the fields of a struct of kernels have names");
            vec![]
        }
    };
    let plain = syn::ItemStruct { attrs: vec![], vis: syn::Visibility::Inherited, ..item.clone() };
    let mut text = plain.to_token_stream();
    let mut functions = vec![];
    for block in blocks {
        if let Some((_, path, _)) = &block.trait_ {
            errors.push(Loc::of(path), "a struct of kernels has functions of its own, and no traits");
        }
        text.extend(quote! { #block });
        for member in block.items {
            match member {
                syn::ImplItem::Fn(member) => functions.push(method(member, &item.ident, errors).into()),
                other => errors.push(Loc::of(other), "an item that kernels do not know"),
            }
        }
    }
    let documentation =
        item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
    StructItem {
        name: item.ident.clone(),
        visibility: item.vis.clone(),
        documentation,
        fields,
        functions,
        text,
    }
}

/// A function of the struct `owner`, whose `self` becomes a parameter like the others.
fn method(member: syn::ImplItemFn, owner: &Ident, errors: &mut Errors) -> FnItem {
    let tokens = with_owner(member.to_token_stream(), owner);
    let Ok(member) = syn::parse2::<syn::ImplItemFn>(tokens) else {
        unreachable!("a function with another name of a type")
    };
    let syn::ImplItemFn { attrs, vis, mut sig, block, .. } = member;
    let mut self_param = None;
    if let Some(syn::FnArg::Receiver(receiver)) = sig.inputs.first().cloned() {
        let is_changed = receiver.reference.is_some() && receiver.mutability.is_some();
        self_param = Some(if is_changed { SelfParam::Changed } else { SelfParam::Read });
        let own = Ident::new("self", receiver.self_token.span);
        let mutability = receiver.mutability;
        sig.inputs[0] = syn::FnArg::Typed(syn::PatType {
            attrs: vec![],
            pat: Box::new(syn::Pat::Ident(syn::PatIdent {
                attrs: vec![],
                by_ref: None,
                mutability,
                ident: own,
                subpat: None,
            })),
            colon_token: syn::Token![:](Span::call_site()),
            ty: Box::new(syn::Type::Path(syn::TypePath {
                qself: None,
                path: spanned(owner, receiver.span()).into(),
            })),
        });
    }
    let item = syn::ItemFn { attrs, vis, sig, block: Box::new(block) };
    FnItem { self_param, ..function::parse(item, errors) }
}

fn spanned(name: &Ident, span: Span) -> Ident {
    let mut name = name.clone();
    name.set_span(span);
    name
}

/// Tokens with `Self` replaced by the name that it stands for.
fn with_owner(tokens: TokenStream, owner: &Ident) -> TokenStream {
    let replaced = |token| match token {
        TokenTree::Ident(name) if name == "Self" => spanned(owner, name.span()).into(),
        TokenTree::Group(group) => {
            let mut copy = Group::new(group.delimiter(), with_owner(group.stream(), owner));
            copy.set_span(group.span());
            copy.into()
        }
        token => token,
    };
    tokens.into_iter().map(replaced).collect()
}
