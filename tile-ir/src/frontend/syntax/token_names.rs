//! Names among tokens.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};

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
