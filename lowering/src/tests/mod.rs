//! Tests of every stage on text: a small kernel in, the whole output out. `UPDATE_EXPECT=1 cargo test` blesses.

mod axis;
mod check;
mod layout;
mod odd;
mod ptx;
mod run;
mod split;

use proc_macro2::TokenStream;

use crate::check::{self as checker, Variant};
use crate::diagnostic::Errors;
use crate::syntax;
use crate::tile::{self, Func};

/// Splits `#[fuse_kernel(..)] fn ..` into the attribute's and the function's tokens.
fn tokens(source: &str) -> (TokenStream, TokenStream) {
    let item: syn::ItemFn = syn::parse_str(source).expect("a function");
    let attribute = match &item.attrs[0].meta {
        syn::Meta::List(list) => list.tokens.clone(),
        _ => TokenStream::new(),
    };
    let function = syn::ItemFn { attrs: vec![], ..item };
    // Spans come from the text itself, so the function is cut out of it rather than printed.
    let start = source.find("fn ").expect("a function");
    let start = source[..start].rfind("pub ").unwrap_or(start);
    let _ = function;
    let body: TokenStream = source[start..].parse().expect("tokens");
    (attribute, body)
}

/// The first variant of a kernel, if it checks.
fn try_func(source: &str) -> Option<Func> {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors)?;
    let variants: Vec<Variant> = checker::variants(&kernel, &mut errors);
    Some(checker::check(&kernel, variants.first()?).ok()?.func)
}

/// The first variant of a kernel, checked.
fn func(source: &str) -> Func {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors).expect("a kernel");
    let variants: Vec<Variant> = checker::variants(&kernel, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let checked = checker::check(&kernel, &variants[0]).unwrap_or_else(|errors| panic!("{}", render(&errors, source)));
    tile::verify(&checked.func).expect("valid tile IR");
    checked.func
}

/// Mistakes as `line:column..column` and their text.
fn render(errors: &Errors, source: &str) -> String {
    let start = source.find("fn ").unwrap_or(0);
    let start = source[..start].rfind("pub ").unwrap_or(start);
    let skipped = source[..start].matches('\n').count();
    errors
        .iter()
        .map(|error| {
            let (from, to) = (error.loc.start.start(), error.loc.end.end());
            let line = source.lines().nth(from.line - 1 + skipped).unwrap_or_default();
            let cut = if from.line == to.line { &line[from.column..to.column] } else { &line[from.column..] };
            format!("{}: `{cut}`: {}\n", from.line, error.text().replace('\n', "\n    "))
        })
        .collect()
}
