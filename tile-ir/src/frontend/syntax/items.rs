//! All items of a text that is made of them: the language's own library, or the text of another module's item.

use std::rc::Rc;

use super::ast::Items;
use super::{function, structs, use_tree};
use crate::support::diagnostic::{Errors, Loc};

/// Functions and constants from source text.
pub(crate) fn parse_items(text: &str, errors: &mut Errors) -> Items {
    match syn::parse_str::<syn::File>(text) {
        Err(error) => {
            errors.extend(error);
            Items::default()
        }
        Ok(file) => parse_file(file, errors),
    }
}

/// The functions, constants, enums, structs and `use` declarations of a file.
pub(super) fn parse_file(mut file: syn::File, errors: &mut Errors) -> Items {
    let structs = structs::take(&mut file.items, |_| true, errors);
    let structs = structs.into_iter().map(|(item, _)| Rc::new(item)).collect();
    let mut items = Items { structs, ..Items::default() };
    for item in file.items {
        match item {
            syn::Item::Fn(item) => items.functions.push(function::parse(item, errors).into()),
            syn::Item::Const(item) => items.constants.push(function::constant(&item)),
            syn::Item::Enum(item) => items.constants.extend(function::variants(&item)),
            syn::Item::Use(item) => items.uses.extend(use_tree::uses(&item)),
            other => errors.push(Loc::of(other), "an item that kernels do not know"),
        }
    }
    items
}
