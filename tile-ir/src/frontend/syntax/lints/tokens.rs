//! Queries of single tokens and expressions for the outline, and the calls that it is made of.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

use crate::frontend::syntax::token_names::collect_names;
use crate::ops;
use crate::support::diagnostic::Loc;

/// A call of one of the outline's functions, with the span of `written`.
pub(super) fn call(written: impl ToTokens, function: &str, argument: &TokenStream) -> TokenStream {
    let Loc { start, end } = Loc::of(written);
    let name = Ident::new(function, start);
    let path = quote_spanned! { start => ::dsl_runtime::lint::#name };
    let arguments = grouped(argument, end);
    quote! { #path #arguments }
}

pub(super) fn grouped(argument: &TokenStream, span: Span) -> TokenStream {
    let mut group = Group::new(Delimiter::Parenthesis, argument.clone());
    group.set_span(span);
    TokenTree::from(group).into()
}

pub(super) fn call_statement(written: impl ToTokens, value: &TokenStream) -> TokenStream {
    let call = call(written, "used", value);
    quote! { #call; }
}

pub(super) fn item_name(item: &syn::Item) -> Option<&Ident> {
    match item {
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Const(item) => Some(&item.ident),
        _ => None,
    }
}

/// Whether a block ends with a value, or with an exit.
pub(super) fn has_value(block: &syn::Block) -> bool {
    match block.stmts.last() {
        Some(syn::Stmt::Expr(_, None)) => true,
        Some(syn::Stmt::Expr(expr, Some(_))) => {
            matches!(expr, syn::Expr::Return(_) | syn::Expr::Break(_) | syn::Expr::Continue(_))
        }
        Some(syn::Stmt::Local(_) | syn::Stmt::Item(_) | syn::Stmt::Macro(_)) | None => false,
    }
}

/// A plain name.
pub(super) fn variable(expr: &syn::Expr) -> Option<&Ident> {
    match expr {
        syn::Expr::Path(path) => path.path.get_ident(),
        syn::Expr::Paren(inner) => variable(&inner.expr),
        syn::Expr::Group(inner) => variable(&inner.expr),
        _ => None,
    }
}

/// The variables that a destructuring assignment assigns.
pub(super) fn targets<'e>(expr: &'e syn::Expr, names: &mut Vec<&'e Ident>) {
    match expr {
        syn::Expr::Tuple(tuple) => tuple.elems.iter().for_each(|part| targets(part, names)),
        other => names.extend(variable(other)),
    }
}

/// Collects the variables that have a field or a method which is none of tiles and views: structs, which a method may change.
pub(super) fn collect_structs(tokens: TokenStream, names: &mut HashSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        match (token, tokens.get(i + 1), tokens.get(i + 2)) {
            (TokenTree::Group(group), ..) => collect_structs(group.stream(), names),
            (TokenTree::Ident(name), Some(TokenTree::Punct(dot)), Some(TokenTree::Ident(member)))
                if dot.as_char() == '.' && !is_language_method(member) =>
            {
                names.insert(name.to_string());
            }
            _ => {}
        }
    }
}

/// The names before `=`, `+=` and their like.
pub(super) fn collect_assigned(tokens: TokenStream, names: &mut HashSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punct = |at: usize| match tokens.get(at) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                collect_assigned(group.stream(), names);
                if punct(i + 1) == Some('=') {
                    // `(a, b) = ..`
                    collect_names(group.stream(), names);
                }
            }
            TokenTree::Ident(name) => {
                let bound = i > 0 && matches!(&tokens[i - 1], TokenTree::Ident(word) if word == "let");
                let assigns = match (punct(i + 1), punct(i + 2)) {
                    (Some('='), second) => second != Some('='),
                    (Some('<' | '>'), second) => second == punct(i + 1) && punct(i + 3) == Some('='),
                    (Some('+' | '-' | '*' | '/' | '%' | '&' | '|' | '^'), second) => second == Some('='),
                    _ => false,
                };
                if assigns && !bound {
                    names.insert(name.to_string());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Whether tiles or views have a method of this name.
fn is_language_method(name: &Ident) -> bool {
    ops::methods().chain(ops::view_methods()).any(|method| name == method.name)
}

/// Whether a call as a statement only computes a value, which is dropped.
pub(super) fn discards(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Paren(inner) => discards(&inner.expr),
        syn::Expr::Call(own) => match &*own.func {
            syn::Expr::Path(path) => {
                let mut segments = path.path.segments.iter();
                let language = segments.next().is_some_and(|segment| segment.ident == "tl");
                language && segments.next_back().is_some_and(|name| !ops::has_effect(&name.ident.to_string()))
            }
            _ => false,
        },
        syn::Expr::MethodCall(own) => {
            // A method of a struct may change it.
            is_language_method(&own.method)
                && !ops::has_effect(&own.method.to_string())
                && match &*own.receiver {
                    receiver @ (syn::Expr::Call(_) | syn::Expr::MethodCall(_)) => discards(receiver),
                    syn::Expr::Paren(inner) => !matches!(&*inner.expr, syn::Expr::Call(_)),
                    _ => true,
                }
        }
        _ => false,
    }
}
