//! The patterns of a `match` in the outline. They have the numbers and bools of the user's, on the user's tokens, so that
//! rustc finds arms that are never taken.

use std::collections::HashSet;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote};

use crate::frontend::syntax::token_names::collect_names;

/// The patterns of a `match`, which together match every value if those that are `None` do.
pub(super) struct Patterns {
    /// `None` for an arm that the outline takes or leaves by a guard; never for the last one.
    pub arms: Vec<Option<TokenStream>>,
    /// Whether the scrutinee is a bool; otherwise it is an `i128`.
    pub is_bool: bool,
}

/// The patterns of the arms of a `match` that the kernel's parser takes.
pub(super) fn patterns(own: &syn::ExprMatch) -> Patterns {
    let names_in = |tokens: TokenStream| {
        let mut names = HashSet::new();
        collect_names(tokens, &mut names);
        names
    };
    let written = names_in(own.arms.iter().map(|arm| arm.pat.to_token_stream()).collect());
    let is_bool = written.contains("true") || written.contains("false");
    let mut reader = PatternReader { is_bool, constants: vec![] };
    let mut arms: Vec<Option<TokenStream>> = own.arms.iter().map(|arm| reader.read(&arm.pat)).collect();
    let bools = names_in(arms.iter().flatten().cloned().collect());
    let is_total = bools.contains("true") && bools.contains("false");
    if let (Some(last), Some(arm)) = (arms.last_mut(), own.arms.last())
        && (last.is_none() || !is_total && !matches_all(&arm.pat))
    {
        *last = Some(quote! { _ });
    }
    Patterns { arms, is_bool }
}

fn matches_all(pat: &syn::Pat) -> bool {
    match pat {
        syn::Pat::Wild(_) => true,
        syn::Pat::Or(or) => or.cases.iter().any(matches_all),
        syn::Pat::Paren(inner) => matches_all(&inner.pat),
        _ => false,
    }
}

struct PatternReader {
    is_bool: bool,
    /// The named constants so far.
    constants: Vec<String>,
}

impl PatternReader {
    /// The pattern in the outline, if it can have one there.
    fn read(&mut self, pat: &syn::Pat) -> Option<TokenStream> {
        match pat {
            syn::Pat::Wild(_) => Some(pat.to_token_stream()),
            syn::Pat::Paren(inner) => self.read(&inner.pat),
            syn::Pat::Or(or) => {
                let mut tokens = TokenStream::new();
                for pair in or.cases.pairs() {
                    tokens.extend(self.read(pair.value())?);
                    pair.punct().to_tokens(&mut tokens);
                }
                Some(tokens)
            }
            syn::Pat::Lit(lit) => match &lit.lit {
                syn::Lit::Bool(own) if self.is_bool => Some(own.to_token_stream()),
                lit => self.number(lit),
            },
            syn::Pat::Range(syn::PatRange { start: Some(low), end: Some(high), limits, .. }) => {
                let (low, high) = (self.end(low)?, self.end(high)?);
                Some(quote! { #low #limits #high })
            }
            syn::Pat::Path(path) => self.constant(&path.path.segments.last()?.ident, path),
            syn::Pat::Ident(own) if own.subpat.is_none() => self.constant(&own.ident, own),
            _ => None,
        }
    }

    fn end(&self, end: &syn::Expr) -> Option<TokenStream> {
        match end {
            syn::Expr::Lit(lit) => self.number(&lit.lit),
            syn::Expr::Unary(syn::ExprUnary { op: op @ syn::UnOp::Neg(_), expr, .. }) => {
                let number = self.end(expr)?;
                Some(quote! { #op #number })
            }
            _ => None,
        }
    }

    /// A number without its suffix: the scrutinee is an `i128`.
    fn number(&self, lit: &syn::Lit) -> Option<TokenStream> {
        let syn::Lit::Int(int) = lit else { return None };
        let value = int.base10_parse::<i128>().ok().filter(|_| !self.is_bool)?;
        let magnitude = literal(value.unsigned_abs(), int.span());
        Some(if value < 0 {
            quote! { - #magnitude }
        } else {
            magnitude.into_token_stream()
        })
    }

    /// A named constant: a number of its own, above those that a kernel has.
    fn constant(&mut self, name: &Ident, path: impl ToTokens) -> Option<TokenStream> {
        if self.is_bool {
            return None;
        }
        let text = path.into_token_stream().to_string();
        let known = self.constants.iter().position(|own| *own == text);
        let position = known.unwrap_or(self.constants.len());
        if known.is_none() {
            self.constants.push(text);
        }
        Some(literal((1 << 64) + position as u128, name.span()).into_token_stream())
    }
}

fn literal(value: u128, span: Span) -> Literal {
    let mut literal = Literal::u128_unsuffixed(value);
    literal.set_span(span);
    literal
}
