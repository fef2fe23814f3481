//! `#[fuse_module] mod m { .. }`: the kernels of a module, and the functions and constants that they may use.
//!
//! Takes the module's tokens; gives its kernels unparsed, its functions marked `#[fuse_fn]`, its constants,
//! and every other item untouched. Constants stay in place as well: Rust code and kernels both use them.

use std::collections::HashSet;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, Literal, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};

use super::ast::*;
use super::inner_attributes::{has_name, take_marks};
use super::token_names::collect_names;
use super::{conditions, depth, fragments, function, structs, use_tree};
use crate::support::diagnostic::{Errors, Loc};

/// A module marked `#[fuse_module]`.
pub struct FuseModule {
    /// Attributes, visibility, `mod` and the name.
    pub head: TokenStream,
    pub name: Ident,
    pub parts: Vec<ModuleItem>,
    pub items: Rc<Items>,
}

impl FuseModule {
    /// The module with what is neither kernel nor function of kernels, and `content` behind it.
    pub fn with_others(&self, content: TokenStream) -> TokenStream {
        let head = &self.head;
        let others = self.parts.iter().filter_map(|part| match part {
            ModuleItem::Other(tokens) => Some(tokens),
            ModuleItem::Kernel { .. } | ModuleItem::Function { .. } | ModuleItem::Struct { .. } => None,
        });
        quote! { #head { #(#others)* #content } }
    }

    /// The functions that no kernel reaches by name.
    pub fn uncalled(&self) -> Vec<&Rc<FnItem>> {
        let mut worklist: Vec<TokenStream> = vec![];
        let mut uncalled = vec![];
        for module_item in &self.parts {
            match module_item {
                ModuleItem::Kernel { item, .. } => worklist.push(item.clone()),
                ModuleItem::Function { function, .. } => uncalled.push(function),
                ModuleItem::Struct { item, .. } => uncalled.extend(&item.functions),
                ModuleItem::Other(_) => {}
            }
        }
        while let Some(text) = worklist.pop() {
            let mut names = HashSet::new();
            collect_names(text, &mut names);
            uncalled.retain(|function| {
                let called = names.contains(&function.name.to_string());
                if called {
                    worklist.push(function.source.body.clone());
                }
                !called
            });
        }
        uncalled
    }
}

/// An item of a module.
pub enum ModuleItem {
    /// The attribute's arguments with constants in the place of their names and as they were written, and the function without it.
    Kernel { attribute: TokenStream, written: TokenStream, item: TokenStream, mark: Mark },
    /// A function that kernels call.
    Function { function: Rc<FnItem>, mark: Mark },
    /// A struct of values, with its functions.
    Struct { item: Rc<StructItem>, mark: Mark },
    /// Anything else, as written.
    Other(TokenStream),
}

/// The mark of a function.
pub struct Mark {
    /// Its name, if that is not a path.
    pub name: Option<Ident>,
    /// The `cfg` attributes beside it. In a build rustc has found them to hold; for an editor they are open.
    pub conditions: Vec<syn::Attribute>,
}

/// Parses a module; `None` when there is none to speak of.
/// `imports` is what the macros of other modules' items gave.
pub fn parse(
    attribute: TokenStream,
    tokens: TokenStream,
    imports: Vec<Import>,
    errors: &mut Errors,
) -> Option<FuseModule> {
    if !attribute.is_empty() {
        errors.push(Loc::of(attribute), "`fuse_module` takes no arguments");
    }
    if depth::report(&tokens, errors) {
        return None;
    }
    let tokens = fragments::without_fragments(tokens);
    let mut module: syn::ItemMod = match syn::parse2(tokens.clone()) {
        Ok(module) => module,
        Err(error) => {
            match syn::parse2::<syn::Item>(tokens.clone()) {
                Ok(_) => errors.push(Loc::of(tokens), "`fuse_module` goes on a module"),
                Err(_) => errors.extend(error),
            }
            return None;
        }
    };
    let Some((_, mut content)) = module.content else {
        errors.push_help(
            Loc::of(&module.ident),
            "`fuse_module` needs the module's text",
            "write the module here: `mod name { .. }`",
        );
        return None;
    };
    take_marks(&mut module.attrs, "fuse_module", errors);
    let (attributes, visibility, unsafety) = (&module.attrs, &module.vis, &module.unsafety);
    let (mod_token, name) = (&module.mod_token, &module.ident);
    let head = quote! { #(#attributes)* #visibility #unsafety #mod_token #name };
    let is_marked =
        |item: &syn::ItemStruct| item.attrs.iter().any(|attribute| has_name(attribute, "fuse_struct"));
    let structs = structs::take(&mut content, is_marked, errors);
    let (constants, unmarked) = (constants(&content), unmarked(&content));
    let uses = content.iter().filter_map(|item| match item {
        syn::Item::Use(item) => Some(use_tree::uses(item)),
        _ => None,
    });
    let uses = uses.flatten().collect();
    let mut items = Items { constants, unmarked, uses, imports, ..Items::default() };
    let mut parts = vec![];
    for (item, attributes) in structs {
        let item = Rc::new(item);
        items.structs.push(item.clone());
        parts.push(ModuleItem::Struct { item, mark: struct_mark(&attributes) });
    }
    for item in content {
        match module_item(item, &items, errors) {
            ModuleItem::Function { function, mark } => {
                items.functions.push(function.clone());
                parts.push(ModuleItem::Function { function, mark });
            }
            other => parts.push(other),
        }
    }
    report_twice(items.functions.iter().map(|function| &function.name), errors);
    report_twice(items.structs.iter().map(|own| &own.name), errors);
    for own in &items.structs {
        report_twice(own.fields.iter().map(|field| &field.name), errors);
        report_twice(own.functions.iter().map(|function| &function.name), errors);
    }
    Some(FuseModule { head, name: module.ident, parts, items: items.into() })
}

/// The mark of a struct, from its attributes.
fn struct_mark(attributes: &[syn::Attribute]) -> Mark {
    let mark = attributes.iter().find(|attribute| has_name(attribute, "fuse_struct"));
    let name = mark.and_then(|attribute| attribute.path().get_ident().cloned());
    Mark { name, conditions: conditions::of(attributes) }
}

/// The names of plain functions, which kernels cannot call.
fn unmarked(content: &[syn::Item]) -> Vec<Ident> {
    let marked =
        |attribute: &syn::Attribute| has_name(attribute, "fuse_fn") || has_name(attribute, "fuse_kernel");
    let functions = content.iter().filter_map(|item| match item {
        syn::Item::Fn(item) if !item.attrs.iter().any(marked) => Some(item.sig.ident.clone()),
        _ => None,
    });
    functions.collect()
}

fn constants(content: &[syn::Item]) -> Vec<ConstItem> {
    let mut constants = vec![];
    for item in content {
        match item {
            syn::Item::Const(item) => constants.push(function::constant(item)),
            syn::Item::Enum(item) => constants.extend(function::variants(item)),
            _ => {}
        }
    }
    constants
}

/// Reports names that are declared twice: rustc sees neither.
fn report_twice<'n>(names: impl IntoIterator<Item = &'n Ident>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            errors.push(Loc::of(name), format!("`{name}` is defined twice"));
        }
    }
}

fn module_item(item: syn::Item, items: &Items, errors: &mut Errors) -> ModuleItem {
    let syn::Item::Fn(mut item) = item else { return ModuleItem::Other(item.into_token_stream()) };
    let marked = |mark: &str| item.attrs.iter().position(|attribute| has_name(attribute, mark));
    let (at, is_kernel) = match (marked("fuse_kernel"), marked("fuse_fn")) {
        (Some(at), _) => (at, true),
        (None, Some(at)) => (at, false),
        (None, None) => return ModuleItem::Other(item.into_token_stream()),
    };
    let attribute = item.attrs.remove(at);
    let name = attribute.path().get_ident().cloned();
    let conditions = conditions::of(&item.attrs);
    item.attrs.retain(|attribute| !conditions.contains(attribute));
    let mark = Mark { name, conditions };
    let arguments = match attribute.meta {
        syn::Meta::List(list) => list.tokens,
        _ => TokenStream::new(),
    };
    if is_kernel {
        let attribute = named_values(arguments.clone(), items, false);
        return ModuleItem::Kernel { attribute, written: arguments, item: item.into_token_stream(), mark };
    }
    if !arguments.is_empty() {
        errors.push(Loc::of(arguments), "`fuse_fn` takes no arguments");
    }
    take_marks(&mut item.attrs, "fuse_fn", errors);
    ModuleItem::Function { function: function::parse(item, errors).into(), mark }
}

/// An attribute's declared values with the names of constants replaced by their values. Names are values inside of
/// brackets, in lists.
fn named_values(tokens: TokenStream, items: &Items, in_list: bool) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut changed: Vec<TokenTree> = vec![];
    let mut i = 0;
    while i < tokens.len() {
        let condition = condition_length(&tokens[i..]);
        if condition > 0 {
            changed.extend_from_slice(&tokens[i..i + condition]);
            i += condition;
            continue;
        }
        if let Some(path) = listed_path(&tokens[i..], in_list)
            && let Some(value) = named_value(&path, items)
        {
            changed.extend(value);
            i += path_length(&path);
            continue;
        }
        changed.push(match &tokens[i] {
            TokenTree::Group(group) => {
                let in_list = in_list || group.delimiter() == Delimiter::Bracket;
                let mut copy = Group::new(group.delimiter(), named_values(group.stream(), items, in_list));
                copy.set_span(group.span());
                copy.into()
            }
            token => token.clone(),
        });
        i += 1;
    }
    changed.into_iter().collect()
}

/// The paths in the lists of an attribute.
pub(super) fn listed_paths(tokens: TokenStream, in_list: bool, paths: &mut Vec<Vec<Ident>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        i += condition_length(&tokens[i..]);
        let Some(token) = tokens.get(i) else { return };
        if let TokenTree::Group(group) = token {
            listed_paths(group.stream(), in_list || group.delimiter() == Delimiter::Bracket, paths);
        }
        let path = listed_path(&tokens[i..], in_list);
        i += path.as_ref().map_or(1, |path| path_length(path));
        paths.extend(path);
    }
}

/// How many tokens belong to a condition that begins here, `when: n <= 64`. It is evaluated by Rust, which knows constants by their names.
fn condition_length(tokens: &[TokenTree]) -> usize {
    let is_mark = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), ':' | '=') && punct.spacing() == Spacing::Alone);
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    match tokens {
        [TokenTree::Ident(name), mark, ..] if name == "when" && is_mark(mark) => {
            tokens.iter().position(is_comma).unwrap_or(tokens.len())
        }
        _ => 0,
    }
}

/// The path that tokens of a list begin with: `GELU`, `Activation::Gelu`. A name before `:` is a field of a config.
fn listed_path(tokens: &[TokenTree], in_list: bool) -> Option<Vec<Ident>> {
    let name = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(name)) => Some(name.clone()),
        _ => None,
    };
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let mut path = vec![name(0).filter(|_| in_list)?];
    let mut at = 1;
    while colon(at) && colon(at + 1) {
        path.push(name(at + 2)?);
        at += 3;
    }
    (!colon(at)).then_some(path)
}

/// How many tokens a path has.
fn path_length(path: &[Ident]) -> usize {
    3 * path.len() - 2
}

/// The value of the constant that a path names.
pub(super) fn named_value(path: &[Ident], items: &Items) -> Option<TokenStream> {
    if let Some((items, path)) = items.import(path, &items.imports) {
        return named_value(&path, &items);
    }
    let constant = items.constants.iter().find(|constant| constant.path == path)?;
    let ExprKind::Int { value, .. } = constant.value.as_ref()?.kind else { return None };
    let mut literal = Literal::u128_unsuffixed(value.unsigned_abs());
    literal.set_span(path[0].span());
    Some(if value < 0 {
        quote! { -#literal }
    } else {
        quote! { #literal }
    })
}
