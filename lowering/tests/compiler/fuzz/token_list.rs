//! Token trees as a flat list, for mutation.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A token, or the delimiter of a group.
#[derive(Clone)]
pub(super) enum FlatToken {
    Token(TokenTree),
    Open(Delimiter),
    Close,
}

pub(super) fn flatten(tokens: TokenStream, token_list: &mut Vec<FlatToken>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                token_list.push(FlatToken::Open(group.delimiter()));
                flatten(group.stream(), token_list);
                token_list.push(FlatToken::Close);
            }
            token => token_list.push(FlatToken::Token(token)),
        }
    }
}

/// The tree of a list; unbalanced delimiters are dropped.
pub(super) fn unflatten(token_list: &[FlatToken]) -> TokenStream {
    let mut open: Vec<(Delimiter, Vec<TokenTree>)> = vec![(Delimiter::None, vec![])];
    for token in token_list {
        match token {
            FlatToken::Token(token) => open.last_mut().expect("the outermost").1.push(token.clone()),
            FlatToken::Open(delimiter) => open.push((*delimiter, vec![])),
            FlatToken::Close if open.len() > 1 => close(&mut open),
            FlatToken::Close => {}
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
