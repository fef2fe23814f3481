//! `use` declarations, name by name.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::ast::Use;
use crate::support::dtype::DType;

/// Crates whose items are no kernel's.
const OTHER_CRATES: [&str; 4] = ["std", "core", "alloc", "dsl_runtime"];

/// Types and bounds of the language, wherever a `use` declaration finds them.
pub const LANGUAGE_TYPES: [&str; 6] = ["Float", "Integer", "Number", "Element", "Tile", "View"];

/// The names that a `use` declaration brings; a glob brings none that could be told from others.
pub(super) fn uses(item: &syn::ItemUse) -> Vec<Use> {
    let mut uses = vec![];
    collect_uses(&item.tree, &mut vec![], &mut uses);
    for one in &mut uses {
        one.leading_colon = item.leading_colon.is_some();
    }
    uses.retain(|one| {
        let name = one.name.to_string();
        let is_foreign = OTHER_CRATES.iter().any(|other| one.path[0] == other);
        let is_language =
            name == "tl" || LANGUAGE_TYPES.contains(&name.as_str()) || DType::parse(&name).is_some();
        one.path.len() > 1 && !is_foreign && !is_language
    });
    uses
}

fn collect_uses(tree: &syn::UseTree, prefix: &mut Vec<Ident>, uses: &mut Vec<Use>) {
    let mut leaf = |own: &Ident, name: &Ident| {
        let mut path = prefix.clone();
        if own != "self" {
            path.push(own.clone());
        }
        let name = if name == "self" { path.last() } else { Some(name) };
        if let Some(name) = name.cloned() {
            uses.push(Use { name, path, leading_colon: false });
        }
    };
    match tree {
        syn::UseTree::Name(tree) => leaf(&tree.ident, &tree.ident),
        syn::UseTree::Rename(tree) => leaf(&tree.ident, &tree.rename),
        syn::UseTree::Path(tree) => {
            prefix.push(tree.ident.clone());
            collect_uses(&tree.tree, prefix, uses);
            prefix.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| collect_uses(tree, prefix, uses)),
        syn::UseTree::Glob(_) => {}
    }
}

impl Use {
    /// What a path that begins with this name names: up to the first name of a type, whose variants its text has.
    pub(super) fn resolve(&self, path: &[Ident]) -> Option<Vec<Ident>> {
        let (first, rest) = path.split_first()?;
        if *first != self.name {
            return None;
        }
        let mut whole = self.path.clone();
        whole.extend(rest.iter().cloned());
        let is_type = |name: &Ident| name.to_string().starts_with(char::is_uppercase);
        let end = (self.path.len() - 1..whole.len()).find(|&at| is_type(&whole[at]));
        whole.truncate(end.map_or(whole.len(), |at| at + 1));
        Some(whole)
    }
}

impl Use {
    /// The declaration of this name alone.
    pub(super) fn tokens(&self) -> TokenStream {
        let Use { name, path, leading_colon } = self;
        let colon = leading_colon.then(|| quote! { :: });
        quote! { use #colon #(#path)::* as #name; }
    }
}
