//! Items with attributes inside that depend on `cfg`. rustc evaluates these for whoever derives, down to the
//! expressions, and for no other macro.
//!
//! So the item is put into a struct that derives a macro of ours: the derive gets the item without what is configured
//! out, and expands to what the item itself would have. An attribute after the derive takes the struct away before
//! rustc looks at it. Tokens keep their spans. Editors get the item as it is: they evaluate `cfg` in the expansion.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;
use tile_ir::frontend::syntax;

use crate::driver::options::{BuildOptions, Effort};

/// The macro that an item is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkedItem {
    Kernel,
    Module,
}

impl MarkedItem {
    /// The word for it in tokens.
    pub(super) fn word(self) -> TokenStream {
        match self {
            MarkedItem::Kernel => quote! { kernel },
            MarkedItem::Module => quote! { module },
        }
    }

    pub(super) fn of_word(word: &str) -> Option<MarkedItem> {
        [MarkedItem::Kernel, MarkedItem::Module].into_iter().find(|kind| kind.word().to_string() == word)
    }
}

/// Whether rustc has to configure an item before it is expanded. It has reported what it cannot parse.
pub(super) fn is_needed(item: &TokenStream, options: &BuildOptions) -> bool {
    options.effort != Effort::Signature
        && syntax::is_conditional(item)
        && syntax::syntax_error(item).is_none()
}

/// The struct that rustc configures.
pub(super) fn defer(kind: MarkedItem, attribute: &TokenStream, item: &TokenStream) -> TokenStream {
    let kind = kind.word();
    quote! {
        #[derive(::dsl_runtime::Configured)]
        #[::dsl_runtime::configured(#kind #attribute)]
        struct Configured {
            item: [(); { #item 0 }],
        }
    }
}

/// What [`defer`] was given, configured; `None` of a struct that it did not make.
pub(super) fn configured(derived: TokenStream) -> Option<(MarkedItem, TokenStream, TokenStream)> {
    let attribute = last(Delimiter::Parenthesis, last(Delimiter::Bracket, derived.clone())?.stream())?;
    let mut attribute = attribute.stream().into_iter();
    let kind = MarkedItem::of_word(&attribute.next()?.to_string())?;
    let array = last(Delimiter::Bracket, last(Delimiter::Brace, derived)?.stream())?;
    let mut item: Vec<TokenTree> = last(Delimiter::Brace, array.stream())?.stream().into_iter().collect();
    item.pop()?;
    let item = syntax::without_empty_places(item.into_iter().collect());
    Some((kind, attribute.collect(), item))
}

/// The last group with this delimiter.
fn last(delimiter: Delimiter, tokens: TokenStream) -> Option<Group> {
    let group = |token| match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    };
    tokens.into_iter().filter_map(group).last()
}
