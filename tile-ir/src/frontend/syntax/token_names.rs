//! Names among tokens.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream, TokenTree};

/// Collects every name among tokens, in groups too.
pub(super) fn collect_names(tokens: TokenStream, names: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Ident(name) => {
                names.insert(name.to_string());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The first place of a name among tokens.
pub(crate) fn find_name(tokens: TokenStream, name: &str) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => find_name(group.stream(), name),
        TokenTree::Ident(found) => (found == name).then_some(found),
        TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}
