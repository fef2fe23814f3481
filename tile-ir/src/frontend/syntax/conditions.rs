//! Attributes that depend on `cfg`: whether an item has any inside, and what rustc leaves where it took something out.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};

/// The `cfg` attributes among these.
pub(super) fn of(attributes: &[syn::Attribute]) -> Vec<syn::Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect()
}

/// Whether rustc has to evaluate `cfg` and `cfg_attr` within the item. It has done so for the attributes before the item.
pub fn is_conditional(item: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let mut start = 0;
    while attribute_at(&tokens, start).is_some() {
        start += 2;
    }
    contains_condition(&tokens[start..])
}

fn contains_condition(tokens: &[TokenTree]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Group(group) => contains_condition(&group.stream().into_iter().collect::<Vec<_>>()),
        TokenTree::Punct(_) => attribute_at(tokens, at).is_some_and(is_condition),
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    })
}

/// The brackets of the attribute that begins at `at`.
fn attribute_at(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    match (tokens.get(at), tokens.get(at + 1)) {
        (Some(TokenTree::Punct(hash)), Some(TokenTree::Group(group)))
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}

fn is_condition(attribute: &Group) -> bool {
    let first = attribute.stream().into_iter().next();
    matches!(first, Some(TokenTree::Ident(name)) if name == "cfg" || name == "cfg_attr")
}

/// The tokens without the commas of parameters that rustc took out of a list: it leaves `(, n: i32)` of
/// `(#[cfg(any())] x: f32, n: i32)`.
pub fn without_empty_places(tokens: TokenStream) -> TokenStream {
    closed_up(&tokens).unwrap_or(tokens)
}

/// The tokens with fewer commas; `None` if they all stay.
fn closed_up(tokens: &TokenStream) -> Option<TokenStream> {
    let mut changed = false;
    let tokens = tokens.clone().into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let inner = closed_up(&group.stream());
            let written = inner.clone().unwrap_or_else(|| group.stream());
            let places = without_empty(group.delimiter(), &written).or(inner);
            let Some(places) = places else { return group.into() };
            changed = true;
            let mut closed = Group::new(group.delimiter(), places);
            closed.set_span(group.span());
            closed.into()
        }
        token => token,
    });
    let tokens = tokens.collect();
    changed.then_some(tokens)
}

/// The parenthesized tokens without a comma that is first or follows another one.
fn without_empty(delimiter: Delimiter, tokens: &TokenStream) -> Option<TokenStream> {
    if delimiter != Delimiter::Parenthesis {
        return None;
    }
    let (mut after_place, mut removed) = (false, false);
    let kept = tokens.clone().into_iter().filter(|token| {
        let comma = matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        let stays = after_place || !comma;
        after_place = !comma;
        removed |= !stays;
        stays
    });
    let kept = kept.collect();
    removed.then_some(kept)
}

/// Takes the empty statements out of a function's blocks: rustc leaves the semicolon of a statement that it took out.
pub(super) fn drop_empty_statements(block: &mut syn::Block) {
    EmptyStatements.visit_block_mut(block);
}

struct EmptyStatements;

impl VisitMut for EmptyStatements {
    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        let is_empty = |statement: &syn::Stmt| matches!(statement, syn::Stmt::Expr(syn::Expr::Verbatim(tokens), Some(_)) if tokens.is_empty());
        block.stmts.retain(|statement| !is_empty(statement));
        visit_mut::visit_block_mut(self, block);
    }
}
