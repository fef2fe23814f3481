//! The arguments of a `macro_rules`, `$n:literal` or `$t:ty`, are groups without delimiters in the tokens of a kernel.
//!
//! Takes tokens; gives them without such groups, which parsers of types and attributes do not expect. A group
//! whose expression would parse differently without it becomes parentheses.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The tokens as if they had been written without a macro.
pub(super) fn without_fragments(tokens: TokenStream) -> TokenStream {
    if !contains_fragments(&tokens) {
        return tokens;
    }
    let mut result = TokenStream::new();
    for token in tokens {
        let TokenTree::Group(group) = token else {
            result.extend([token]);
            continue;
        };
        let inner = without_fragments(group.stream());
        let delimiter = match group.delimiter() {
            Delimiter::None if needs_parentheses(&inner) => Delimiter::Parenthesis,
            Delimiter::None => {
                result.extend(inner);
                continue;
            }
            written => written,
        };
        let mut written = Group::new(delimiter, inner);
        written.set_span(group.span());
        result.extend([TokenTree::from(written)]);
    }
    result
}

fn contains_fragments(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::None || contains_fragments(&group.stream())
        }
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether an operator beside these tokens would take only a part of them.
fn needs_parentheses(tokens: &TokenStream) -> bool {
    match syn::parse2::<syn::Expr>(tokens.clone()) {
        Ok(syn::Expr::Binary(binary)) => !super::assign::is_assignment(&binary.op),
        Ok(syn::Expr::Unary(unary)) => {
            // A negative number is one where a value is declared, and no method is called on it.
            !matches!((&unary.op, &*unary.expr), (syn::UnOp::Neg(_), syn::Expr::Lit(_)))
        }
        Ok(syn::Expr::Cast(_) | syn::Expr::Range(_) | syn::Expr::Closure(_)) => true,
        Ok(_) | Err(_) => false,
    }
}
