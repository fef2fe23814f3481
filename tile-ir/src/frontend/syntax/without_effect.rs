//! Warnings about a kernel that writes nothing, and about generics that nothing in it mentions.
//!
//! They follow from the names in it and so hold for all variants. A name counts wherever it stands: some cases are not found.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::ToTokens;

use super::ast::{GenericParam, Kernel};
use super::token_names::collect_names;
use crate::ops;
use crate::support::diagnostic::Loc;
use crate::support::warning::Warning;

/// Returns the warnings of a kernel.
pub fn without_effect(kernel: &Kernel) -> Vec<Warning> {
    let mut found = vec![];
    // An empty body is a placeholder, or measures what a launch costs.
    let is_empty = kernel.body.statements.is_empty() && kernel.body.value.is_none();
    if !is_empty && !writes(kernel) {
        let text = "the kernel writes nothing, so that a launch of it has no effect: store what it computes, \
                    `tl::store(pointer, value, mask)`";
        found.push(Warning { loc: Loc::of(&kernel.name), kind: "nothing_written", text: text.into() });
    }
    if kernel.source.is_generated {
        return found;
    }
    let names = mentioned(kernel);
    let written = kernel.generics.iter().filter(|generic| !kernel.is_of_argument(generic));
    for name in written.map(GenericParam::name) {
        if !names.contains(&name.to_string()) {
            let text =
                format!("`{name}` is never used, so that all its values give the same code: leave it out");
            found.push(Warning { loc: Loc::of(name), kind: "unused_generic", text });
        }
    }
    found
}

/// Whether the body, or a function that it mentions, does more than compute values.
fn writes(kernel: &Kernel) -> bool {
    let mut unread: Vec<_> = kernel.items.all_functions();
    let mut worklist = vec![&kernel.source.body];
    // Only what is mentioned was imported, whatever its name is here.
    for import in &kernel.items.imports {
        worklist.extend(import.items.all_functions().iter().map(|function| &function.source.body));
    }
    while let Some(body) = worklist.pop() {
        let mut names = HashSet::new();
        collect_names(body.clone(), &mut names);
        if names.iter().any(|name| ops::has_effect(name)) {
            return true;
        }
        let (called, rest) = unread.into_iter().partition(|own| names.contains(&own.name.to_string()));
        unread = rest;
        worklist.extend(Vec::into_iter(called).map(|function| &function.source.body));
    }
    false
}

/// The names in the parameters, the body and the attribute, but for those that it lists values of. One in a config tells configs
/// with other settings apart.
fn mentioned(kernel: &Kernel) -> HashSet<String> {
    let (source, options) = (&kernel.source, &kernel.options);
    let settings: TokenStream = options.settings.iter().map(|(_, value)| value.to_token_stream()).collect();
    let tune = options.tune.iter().flat_map(|tune| tune.key.iter().chain(&tune.when));
    let chosen = options.lists.iter().filter_map(|list| list.chosen_by.as_ref()).chain(options.conditions());
    let in_configs = options.configs.iter().flat_map(|config| &config.entries);
    let mut names: HashSet<String> = in_configs.map(|(name, _)| name.to_string()).collect();
    for tokens in [&source.inputs, &source.body, &settings].into_iter().chain(tune).chain(chosen) {
        collect_names(tokens.clone(), &mut names);
    }
    names
}
