//! Tokens as a list, so that a tree can be changed as one.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A token, or the edge of a group, so that a tree can be changed as a list.
#[derive(Clone)]
pub(super) enum Flat {
    Token(TokenTree),
    Open(Delimiter),
    Close,
}

pub(super) fn flatten(tokens: TokenStream, flat: &mut Vec<Flat>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                flat.push(Flat::Open(group.delimiter()));
                flatten(group.stream(), flat);
                flat.push(Flat::Close);
            }
            token => flat.push(Flat::Token(token)),
        }
    }
}

/// The tree again; edges that have no partner are left out.
pub(super) fn unflatten(flat: &[Flat]) -> TokenStream {
    let mut open: Vec<(Delimiter, Vec<TokenTree>)> = vec![(Delimiter::None, vec![])];
    for token in flat {
        match token {
            Flat::Token(token) => open.last_mut().expect("the outermost").1.push(token.clone()),
            Flat::Open(delimiter) => open.push((*delimiter, vec![])),
            Flat::Close if open.len() > 1 => close(&mut open),
            Flat::Close => {}
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.remove(0).1.into_iter().collect()
}

fn close(open: &mut Vec<(Delimiter, Vec<TokenTree>)>) {
    if let Some((delimiter, tokens)) = open.pop()
        && let Some((_, outer)) = open.last_mut()
    {
        outer.push(Group::new(delimiter, tokens.into_iter().collect()).into());
    }
}
