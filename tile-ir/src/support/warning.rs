//! Warnings on the user's tokens, at the level that the user's attributes ask for.
//!
//! A macro cannot warn by itself. What it expands to uses a deprecated macro with the warning as its note: rustc reports that
//! under its lint `deprecated`, on the tokens that the use stands on.

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};
use quote::quote;

use super::diagnostic::Loc;

/// A likely mistake.
#[derive(Clone, PartialEq, Debug)]
pub struct Warning {
    pub loc: Loc,
    /// What kind of mistake it is, a name that rustc prints.
    pub kind: &'static str,
    pub text: String,
}

/// Items that make rustc report each of the warnings once; `levels` are attributes that set levels of lints.
pub fn into_tokens(warnings: Vec<Warning>, levels: &TokenStream) -> TokenStream {
    let mut unique: Vec<Warning> = vec![];
    for warning in warnings {
        if !unique.contains(&warning) {
            unique.push(warning);
        }
    }
    let items = unique.into_iter().map(|Warning { loc, kind, text }| {
        let (name, used) = (Ident::new(kind, Span::call_site()), use_of(kind, loc));
        quote! {
            const _: () = {
                #[deprecated(note = #text)]
                #[allow(unused_macros)]
                macro_rules! declared { () => {}; }
                mod kernel {
                    #[allow(deprecated)]
                    pub(super) use declared as #name;
                }
                #levels
                #[allow(dead_code)]
                fn warning() { #used }
            };
        }
    });
    items.collect()
}

/// `kernel::kind! {}`; rustc underlines from the first token's span to the last one's.
fn use_of(kind: &str, Loc { start, end }: Loc) -> TokenStream {
    let punct = |ch, spacing, span| {
        let mut punct = Punct::new(ch, spacing);
        punct.set_span(span);
        TokenTree::from(punct)
    };
    let mut body = Group::new(Delimiter::Brace, TokenStream::new());
    body.set_span(end);
    TokenStream::from_iter([
        Ident::new("kernel", start).into(),
        punct(':', Spacing::Joint, start),
        punct(':', Spacing::Alone, start),
        Ident::new(kind, end).into(),
        punct('!', Spacing::Alone, end),
        body.into(),
    ])
}
