//! Functions, structs, constants and enums of kernels that come from other modules and crates, by Rust's own `use`.
//!
//! A macro sees only the tokens that it stands on. So a `#[fuse_module]` leaves the text of each of its items behind a `macro_rules` of
//! the item's name, which a `use` brings along ([`exported`]). Whoever mentions such a name ([`wanted`]) calls that macro
//! with its own tokens, and gets them back together with the text ([`imported`]).

use std::collections::HashSet;
use std::rc::Rc;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::visit::{self, Visit};

use super::ast::*;
use super::module::{FuseModule, ModuleItem, listed_paths};
use super::token_names::collect_names;
use super::{fragments, items, use_tree};
use crate::support::diagnostic::Errors;

/// An item that a kernel mentions and whose text another module has.
pub struct Wanted {
    /// The whole path, from the `use` declaration.
    path: Vec<Ident>,
    leading_colon: bool,
    /// The path from the kernel's module; `None` where only the kernel's body has the name.
    pub in_module: Option<TokenStream>,
}

impl Wanted {
    /// The path, for [`imported`].
    pub fn path(&self) -> TokenStream {
        let path = &self.path;
        quote! { #(#path)::* }
    }

    /// Its `use` declaration under another name.
    pub fn use_as(&self, name: Ident) -> TokenStream {
        Use { name, path: self.path.clone(), leading_colon: self.leading_colon }.tokens()
    }

    pub fn name(&self) -> &Ident {
        &self.path[self.path.len() - 1]
    }

    /// The name of its module.
    pub fn owner(&self) -> &Ident {
        &self.path[self.path.len() - 2]
    }
}

impl Items {
    /// What `use` declarations bring under a path: the items of the other module, and the path among them.
    pub fn import(&self, path: &[Ident], imports: &[Import]) -> Option<(Rc<Items>, Vec<Ident>)> {
        self.uses.iter().find_map(|own| {
            let whole = own.resolve(path)?;
            let import = imports.iter().find(|import| import.path == whole)?;
            let rest = &path[1 + whole.len() - own.path.len()..];
            Some((import.items.clone(), [std::slice::from_ref(&import.name), rest].concat()))
        })
    }
}

impl FuseModule {
    /// The first item that its kernels and functions mention and that it lacks.
    pub fn wanted(&self) -> Option<Wanted> {
        self.marked().find_map(|(attribute, function)| wanted(attribute, function, &self.items))
    }

    /// The names of its `use` declarations that its kernels and functions mention.
    pub fn mentioned_uses(&self) -> Vec<&Ident> {
        if self.items.uses.is_empty() {
            return vec![];
        }
        let mentions = self.marked().filter_map(|(attribute, function)| Mentions::of(attribute, function));
        let names: HashSet<Ident> = mentions.flat_map(|mentions| mentions.free_names()).collect();
        self.items.uses.iter().map(|own| &own.name).filter(|name| names.contains(name)).collect()
    }

    /// The attributes and texts of its kernels and functions.
    fn marked(&self) -> impl Iterator<Item = (TokenStream, TokenStream)> {
        self.parts.iter().flat_map(|part| match part {
            ModuleItem::Kernel { written, item, .. } => vec![(written.clone(), item.clone())],
            ModuleItem::Function { function, .. } => vec![(TokenStream::new(), function.tokens())],
            ModuleItem::Struct { item, .. } => {
                item.functions.iter().map(|function| (TokenStream::new(), function.tokens())).collect()
            }
            ModuleItem::Other(_) => vec![],
        })
    }
}

/// The first item that a function or its attribute mentions and that the items around it lack.
pub fn wanted(attribute: TokenStream, function: TokenStream, items: &Items) -> Option<Wanted> {
    let mentions = Mentions::of(attribute, function)?;
    let mut all = mentions.free().filter_map(|path| {
        if let Some(own) = mentions.uses.iter().find(|own| own.name == path[0]) {
            let path = own.resolve(path)?;
            return Some(Wanted { path, leading_colon: own.leading_colon, in_module: None });
        }
        let (own, whole) = items.uses.iter().find_map(|own| Some((own, own.resolve(path)?)))?;
        let written = &path[..1 + whole.len() - own.path.len()];
        let in_module = Some(quote! { #(#written)::* });
        Some(Wanted { path: whole, leading_colon: own.leading_colon, in_module })
    });
    all.find(|wanted| items.imports.iter().all(|import| import.path != wanted.path))
}

/// The paths of a function's expressions, the names it binds, and its own `use` declarations.
#[derive(Default)]
struct Mentions {
    paths: Vec<Vec<Ident>>,
    bound: HashSet<String>,
    uses: Vec<Use>,
}

impl Mentions {
    /// Those of a function and its attribute; `None` where it does not parse, which is reported elsewhere.
    fn of(attribute: TokenStream, function: TokenStream) -> Option<Mentions> {
        let function: syn::ItemFn = syn::parse2(fragments::without_fragments(function)).ok()?;
        let mut mentions = Mentions::default();
        listed_paths(attribute, false, &mut mentions.paths);
        mentions.visit_item_fn(&function);
        Some(mentions)
    }

    /// The paths that begin with no name of the function's own.
    fn free(&self) -> impl Iterator<Item = &Vec<Ident>> {
        self.paths.iter().filter(|path| !self.bound.contains(&path[0].to_string()))
    }

    /// The first names of these paths.
    fn free_names(&self) -> Vec<Ident> {
        self.free().map(|path| path[0].clone()).collect()
    }

    fn path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.clone()).collect());
        }
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_expr_path(&mut self, expr: &'ast syn::ExprPath) {
        if expr.qself.is_none() {
            self.path(&expr.path);
        }
        visit::visit_expr_path(self, expr);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        self.path(&expr.path);
        visit::visit_expr_struct(self, expr);
    }

    fn visit_type_path(&mut self, ty: &'ast syn::TypePath) {
        // The name of a struct, or of a constant between angle brackets.
        if ty.qself.is_none() && ty.path.segments.iter().all(|segment| segment.arguments.is_none()) {
            self.path(&ty.path);
        }
        visit::visit_type_path(self, ty);
    }

    fn visit_pat_type(&mut self, param: &'ast syn::PatType) {
        if super::item::has_host_mark(param) {
            self.visit_pat(&param.pat);
        } else {
            visit::visit_pat_type(self, param);
        }
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.bound.insert(pat.ident.to_string());
        visit::visit_pat_ident(self, pat);
    }

    fn visit_generic_param(&mut self, param: &'ast syn::GenericParam) {
        match param {
            syn::GenericParam::Type(param) => self.bound.insert(param.ident.to_string()),
            syn::GenericParam::Const(param) => self.bound.insert(param.ident.to_string()),
            syn::GenericParam::Lifetime(_) => false,
        };
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.bound.insert(item.sig.ident.to_string());
        visit::visit_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.bound.insert(item.ident.to_string());
        visit::visit_item_const(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.uses.extend(use_tree::uses(item));
    }
}

/// The text of an item with all that it is made of: `name { items } [ (path) text, .. ]`, where the brackets have what its module took
/// from others.
pub fn exported(name: &Ident, items: &Items) -> TokenStream {
    let mut names = HashSet::from([name.to_string()]);
    let mut texts: Vec<TokenStream> = vec![];
    let mut worklist = vec![name.to_string()];
    while let Some(name) = worklist.pop() {
        for text in items.texts(&name) {
            let mut mentioned = HashSet::new();
            collect_names(text.clone(), &mut mentioned);
            worklist.extend(mentioned.difference(&names).cloned());
            names.extend(mentioned);
            texts.push(text);
        }
    }
    let is_mentioned = |import: &&Import| import.path.iter().any(|name| names.contains(&name.to_string()));
    let imports = items.imports.iter().filter(is_mentioned);
    quote! { #name { #(#texts)* } [ #(#imports,)* ] }
}

impl Items {
    /// The items and `use` declarations of this name, as text.
    fn texts(&self, name: &str) -> Vec<TokenStream> {
        let functions = self.functions.iter().filter(|own| own.name == name).map(|own| own.tokens());
        let structs = self.structs.iter().filter(|own| own.name == name).map(|own| own.text.clone());
        // An enum has its text once for each variant.
        let constant = self.constants.iter().find(|own| own.path[0] == name).map(|own| own.text.clone());
        let uses = self.uses.iter().filter(|own| own.name == name).map(Use::tokens);
        functions.chain(structs).chain(constant).chain(uses).collect()
    }
}

/// What the macro of an item gave for its path; `None` of tokens that no such macro makes.
pub fn imported(path: TokenStream, text: TokenStream) -> Option<Import> {
    let path = path.into_iter().filter_map(|token| match token {
        TokenTree::Ident(name) => Some(name),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    });
    let mut tokens = text.clone().into_iter();
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(own)), Some(TokenTree::Group(others))) =
        (tokens.next(), tokens.next(), tokens.next())
    else {
        return None;
    };
    // The module that declares them has reported their mistakes.
    let mut parsed = items::parse_file(syn::parse2(own.stream()).ok()?, &mut Errors::new());
    parsed.imports = imports(others.stream());
    parsed.is_imported = true;
    Some(Import { path: path.collect(), name, items: parsed.into(), text })
}

/// Imports as a list, each with a comma behind it.
pub fn imports(list: TokenStream) -> Vec<Import> {
    let tokens: Vec<TokenTree> = list.into_iter().collect();
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    let import = |tokens: &[TokenTree]| match tokens {
        [TokenTree::Group(path), text @ ..] if path.delimiter() == Delimiter::Parenthesis => {
            imported(path.stream(), text.iter().cloned().collect())
        }
        _ => None,
    };
    tokens.split(is_comma).filter_map(import).collect()
}

impl ToTokens for Import {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Import { path, text, .. } = self;
        tokens.extend(quote! { (#(#path)::*) #text });
    }
}

impl FnItem {
    /// The function without its attributes and visibility.
    pub fn tokens(&self) -> TokenStream {
        let FnItem { name, source: FnSource { generics, inputs, output, body, .. }, .. } = self;
        quote! { fn #name #generics (#inputs) #output #body }
    }
}
