//! Whether a kernel is declared in an `impl` or `trait`. Its tokens do not say so; the text of its file does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use proc_macro::{TokenStream, TokenTree};

thread_local! {
    /// The files that were read, with their text.
    static FILES: RefCell<HashMap<PathBuf, Option<String>>> = RefCell::default();
}

/// Whether the function is a method. A file that cannot be read, as an editor's may be, has none.
pub(crate) fn is_method(item: &TokenStream) -> bool {
    let keyword = item.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(word) if word.to_string() == "fn" => Some(word.span()),
        _ => None,
    });
    let Some(span) = keyword else { return false };
    // A function at column 1 is at the top level, as most kernels are.
    let (line, column) = (span.line(), span.column());
    let Some(path) = span.local_file().filter(|_| column > 1) else { return false };
    FILES.with_borrow_mut(|files| {
        let text = files.entry(path).or_insert_with_key(|path| std::fs::read_to_string(path).ok());
        text.as_ref()
            .is_some_and(|text| tile_ir::frontend::syntax::is_in_impl_or_trait(text, line, column - 1))
    })
}
