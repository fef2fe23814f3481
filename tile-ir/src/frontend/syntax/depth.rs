//! How deep a kernel may nest: the parser and the type checker recurse on rustc's stack.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::support::diagnostic::{Errors, Loc};

/// The greatest depth of a token: each token before it in its statement counts 1 and each group around it
/// [`GROUP_COST`]. No kernel that a person writes comes near.
const LIMIT: usize = 2000;
const GROUP_COST: usize = 16;

/// Reports tokens that nest too deep.
pub(super) fn report(tokens: &TokenStream, errors: &mut Errors) -> bool {
    let found = too_deep(tokens.clone(), 0);
    if let Some(loc) = found {
        errors.push_help(
            loc,
            "this is nested too deeply, or part of too long a statement",
            "name parts of it with `let`",
        );
    }
    found.is_some()
}

/// Whether the tokens nest no deeper than the parser may recurse.
pub(super) fn is_shallow(tokens: &TokenStream) -> bool {
    too_deep(tokens.clone(), 0).is_none()
}

/// The function, without its body where that nests too deep; `None` if the signature does.
pub(super) fn without_deep_body(item: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    if !report(&item, errors) {
        return Some(item);
    }
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    if let Some(TokenTree::Group(body)) = tokens.last_mut()
        && body.delimiter() == Delimiter::Brace
    {
        *body = Group::new(Delimiter::Brace, TokenStream::new());
    }
    let signature: TokenStream = tokens.into_iter().collect();
    too_deep(signature.clone(), 0).is_none().then_some(signature)
}

/// The first token that is deeper than [`LIMIT`]. This function recurses no deeper than that itself.
fn too_deep(tokens: TokenStream, outside: usize) -> Option<Loc> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut depth = outside;
    for (i, token) in tokens.iter().enumerate() {
        depth += 1;
        if depth > LIMIT {
            return Some(Loc::from(token.span()));
        }
        match token {
            TokenTree::Punct(punct) if matches!(punct.as_char(), ';' | ',') => depth = outside,
            TokenTree::Group(group) => {
                if let Some(found) = too_deep(group.stream(), depth + GROUP_COST) {
                    return Some(found);
                }
                if group.delimiter() == Delimiter::Brace && ends_statement(tokens.get(i + 1)) {
                    depth = outside;
                }
            }
            TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
    }
    None
}

/// Whether a statement that ends in a block is over, by the token after the block.
fn ends_statement(next: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Ident(name)) => name != "else" && name != "as",
        Some(TokenTree::Punct(_)) => false,
        Some(TokenTree::Group(_) | TokenTree::Literal(_)) | None => true,
    }
}
