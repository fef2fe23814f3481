//! The kernel's body for editors, and the user's imports for rustc.
//!
//! A language server gets the body as an ordinary function, tokens and spans as written, in which `tl::` is the module
//! of stubs that `dsl_runtime::tl` documents. What resolves: parameters, variables, constants, type parameters, every
//! `tl::` function and the methods of its result, so hover, completion and go-to-definition work, also in a kernel
//! that has mistakes. What does not: element types and shapes, since every stub returns a `Tile`; and a comparison of
//! tiles has the type `bool`. Not every body would type-check as Rust, so rustc never sees it; it gets [`imports`]
//! instead.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use tile_ir::frontend::syntax::{
    ConstItem, FnItem, FnSource, GenericParam, Kernel, LANGUAGE_TYPES, Pattern, SelfParam, StructItem,
    TypeName, ValueType,
};
use tile_ir::ops::{self, Intrinsic};
use tile_ir::support::dtype::DType;

/// The kernel's body as code that a language server can resolve.
pub fn function(kernel: &Kernel) -> TokenStream {
    let source = &kernel.source;
    let (generics, inputs) = (&source.generics, complete(source.inputs.clone()));
    let body = complete(source.body.clone());
    quote! {
        #[allow(warnings, clippy::all)]
        const _: () = {
            fn body #generics (#inputs) #body
        };
    }
}

/// A function that kernels call, for a language server: a stub by its name, which takes whatever tiles and scalars a call
/// has, and its body as written.
pub(super) fn module_function(function: &FnItem) -> TokenStream {
    let (visibility, source) = (&function.visibility, &function.source);
    let (generics, inputs, output) =
        (&source.generics, complete(source.inputs.clone()), complete(source.output.clone()));
    let body = complete(source.body.clone());
    let is_element = |name: &TypeName| {
        let is_generic = || function.generics.iter().any(|generic| *generic.name() == name.ident());
        DType::parse(&name.name).is_some() || is_generic()
    };
    let stub = stub(function, &|name| match is_element(name) {
        true => tile(),
        false => name.ident().into_token_stream(),
    });
    let documentation = documentation(function);
    quote! {
        #documentation
        #[allow(warnings, clippy::all)]
        #visibility #stub

        #[allow(warnings, clippy::all)]
        const _: () = {
            fn body #generics (#inputs) #output #body
        };
    }
}

/// A struct of values and its functions, for a language server: as written, with the stubs' tile.
pub(super) fn module_struct(item: &StructItem) -> TokenStream {
    let (visibility, text) = (&item.visibility, complete(item.text.clone()));
    let mut items = syn::parse2::<syn::File>(text).map(|file| file.items).unwrap_or_default();
    if let Some(syn::Item::Struct(own)) = items.first_mut() {
        own.vis = visibility.clone();
        own.attrs = item.documentation.clone();
    }
    quote! { #(#[allow(warnings, clippy::all)] #items)* }
}

/// The signature of a function that kernels call as it was written, and its documentation.
pub(super) fn documentation(function: &FnItem) -> TokenStream {
    let FnItem { name, documentation, source, .. } = function;
    let [generics, inputs, output] =
        [&source.generics, &source.inputs, &source.output].map(|tokens| spaced(tokens.clone()));
    let inputs = inputs.trim_end_matches(", ");
    // The parser has put the struct's name into the first parameter of a method.
    let receiver = function.self_param.map(|own| match own {
        SelfParam::Read => "&self",
        SelfParam::Changed => "&mut self",
    });
    let inputs = match (receiver, inputs.split_once(", ")) {
        (Some(receiver), Some((_, others))) => format!("{receiver}, {others}"),
        (Some(receiver), None) => receiver.to_string(),
        (None, _) => inputs.to_string(),
    };
    let text = format!("```text\nfn {name}{generics}({inputs}){output}\n```\n");
    quote! {
        #[doc = #text]
        #(#documentation)*
    }
}

/// Parameters and types with the spaces that rustfmt puts between tokens. A language server's tokens have no positions.
fn spaced(tokens: TokenStream) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let inner = spaced(group.stream());
                let inner = inner.trim_end();
                text += &match group.delimiter() {
                    Delimiter::Parenthesis => format!("({inner})"),
                    Delimiter::Brace => format!("{{{inner}}}"),
                    Delimiter::Bracket => format!("[{inner}]"),
                    Delimiter::None => inner.to_string(),
                };
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                ':' if punct.spacing() == Spacing::Joint || text.ends_with(':') => text.push(':'),
                '-' => text += " -",
                '>' if text.ends_with(" -") => text += "> ",
                '>' => text.replace_range(text.trim_end_matches(", ").len().., ">"),
                separator @ (',' | ':' | ';') => text.extend([separator, ' ']),
                operator @ ('+' | '=') => text.extend([' ', operator, ' ']),
                other => text.push(other),
            },
            word @ (TokenTree::Ident(_) | TokenTree::Literal(_)) => {
                if text.ends_with(|last: char| last == '_' || last.is_alphanumeric()) {
                    text.push(' ');
                }
                text += &word.to_string();
            }
        }
    }
    text
}

/// A function that takes whatever tiles and scalars a call has, under the name of one that kernels call. `named` gives the type of a result
/// that was written as a name.
pub(super) fn stub(function: &FnItem, named: &dyn Fn(&TypeName) -> TokenStream) -> TokenStream {
    let (name, generics) = (&function.name, &function.source.generics);
    let params = function.params.iter().enumerate().map(|(i, param)| {
        let name = match &param.pattern {
            Pattern::Name { name, .. } => name.clone(),
            Pattern::Ignore(_) | Pattern::Tuple { .. } => quote::format_ident!("argument_{i}"),
        };
        match &param.ty {
            ValueType::Function(_) | ValueType::Tuple { .. } | ValueType::Any => {
                quote! { #name: impl ::core::marker::Sized }
            }
            _ => quote! { #name: impl ::dsl_runtime::tl::Operand },
        }
    });
    let result = function.result.as_ref().map(|ty| {
        let ty = stub_type(ty, named);
        quote! { -> #ty }
    });
    quote! {
        fn #name #generics (#(#params),*) #result {
            ::core::unreachable!()
        }
    }
}

/// The type that a stub has in the place of one.
fn stub_type(ty: &ValueType, named: &dyn Fn(&TypeName) -> TokenStream) -> TokenStream {
    match ty {
        ValueType::Tuple { parts, .. } => {
            let parts = parts.iter().map(|part| stub_type(part, named));
            quote! { (#(#parts),*) }
        }
        ValueType::Constant(_) => quote! { usize },
        ValueType::Scalar(name) => named(name),
        _ => tile(),
    }
}

/// The stubs' type of tiles and scalars.
pub(super) fn tile() -> TokenStream {
    quote! { ::dsl_runtime::tl::Tile }
}

/// The function's outline, which nothing calls, for the lints of its variables. It is in a module of its own, where no
/// constant of the user's can shadow a variable; style lints are for what the user wrote.
pub(super) fn outline(source: &FnSource) -> TokenStream {
    let outline = &source.outline;
    quote! {
        #[allow(
            nonstandard_style, unused_braces, unused_parens, unused_qualifications, unused_results,
            clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction
        )]
        const _: () = {
            mod outline {
                #outline
            }
            let _ = outline::body;
        };
    }
}

/// As [`imports`], for a function that kernels call.
pub(super) fn function_imports(function: &FnItem) -> TokenStream {
    let source = &function.source;
    let texts = [&source.generics, &source.inputs, &source.output, &source.body];
    mentioned(texts, &function.generics)
}

/// A use of each of these names, and of the constants that kernels know: what only they use is not unused.
pub(super) fn mentions(names: &[Ident], constants: &[ConstItem]) -> TokenStream {
    let known = constants.iter().filter(|constant| constant.value.is_some()).map(|constant| {
        let path = &constant.path;
        quote! { let _ = #(#path)::*; }
    });
    let mut unique: Vec<&Ident> = vec![];
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    quote! {
        #[allow(unused_imports)]
        const _: () = {
            #(use #unique as _;)*
            let _ = || { #(#known)* };
        };
    }
}

/// A use of each name that the kernel uses and the expansion does not, so that rustc does not report its import as
/// unused, and does report one that is missing.
pub fn imports(kernel: &Kernel) -> TokenStream {
    let source = &kernel.source;
    mentioned([&source.generics, &source.inputs, &source.output, &source.body], &kernel.generics)
}

fn mentioned(texts: [&TokenStream; 4], generics: &[GenericParam]) -> TokenStream {
    let mut names: Vec<Ident> = vec![];
    for tokens in texts {
        collect(tokens.clone(), &mut names);
    }
    names.retain(|name| generics.iter().all(|generic| generic.name() != name));
    let uses = names.iter().map(|name| match OWN_TYPES.iter().any(|own| name == own) {
        // `f16` also names a type of rustc's own, which an import cannot be told from.
        true => quote_spanned! { name.span() => const _: ::core::marker::PhantomData<#name> = ::core::marker::PhantomData; },
        false => quote_spanned! { name.span() => use #name as _; },
    });
    quote! {
        #[allow(unused_imports)]
        const _: () = {
            #(#uses)*
        };
    }
}

/// Element types of `dsl_runtime`.
const OWN_TYPES: [&str; 4] = ["f16", "bf16", "f8e4m3", "f8e5m2"];

/// The first mention of each name that begins a path.
fn collect(tokens: TokenStream, names: &mut Vec<Ident>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), names),
            TokenTree::Ident(name) => {
                let inside = i > 0 && matches!(&tokens[i - 1], TokenTree::Punct(dot) if dot.as_char() == '.')
                    || i > 1 && is_path(&tokens, i - 2);
                let wanted = *name == "tl" && is_path(&tokens, i + 1)
                    || LANGUAGE_TYPES.iter().chain(&OWN_TYPES).any(|own| name == own);
                if wanted && !inside && !names.contains(name) {
                    names.push(name.clone());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Calls with every optional argument: Rust has none, and an editor would report a call that omits one. Also tiles
/// without their element types, which the stubs do not have, and views that have the methods of kernels.
fn complete(tokens: TokenStream) -> TokenStream {
    let mut tokens = with_kernel_views(tokens);
    let is = |token: &TokenTree, ch: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ch);
    let mut at = 0;
    while at < tokens.len() {
        if let [TokenTree::Ident(name), open, TokenTree::Ident(_), close, ..] = &tokens[at..]
            && name == "Tile"
            && is(open, '<')
            && is(close, '>')
        {
            tokens.drain(at + 1..at + 4);
        }
        at += 1;
    }
    for i in 0..tokens.len() {
        let TokenTree::Group(group) = &tokens[i] else { continue };
        let mut inner = complete(group.stream());
        if group.delimiter() == Delimiter::Parenthesis
            && let Some(function) = called(&tokens, i)
        {
            add_absent(&mut inner, function);
        }
        let mut completed = Group::new(group.delimiter(), inner);
        completed.set_span(group.span());
        tokens[i] = completed.into();
    }
    tokens.into_iter().collect()
}

/// `tl::View` for `View` by itself, which is also what calls of kernels take.
fn with_kernel_views(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut changed = vec![];
    for (i, token) in tokens.iter().enumerate() {
        let by_itself = i < 2 || !is_path(&tokens, i - 2);
        if by_itself && matches!(token, TokenTree::Ident(name) if name == "View") {
            changed.extend(quote! { ::dsl_runtime::tl:: });
        }
        changed.push(token.clone());
    }
    changed
}

/// The function of `tl::` that a group of arguments at `at` belongs to.
fn called(tokens: &[TokenTree], at: usize) -> Option<&'static Intrinsic> {
    let name_at = skip_generics(tokens, at)?;
    let TokenTree::Ident(name) = &tokens[name_at] else { return None };
    let module_at = name_at.checked_sub(3)?;
    let is_language = matches!(&tokens[module_at], TokenTree::Ident(module) if module == "tl");
    if !is_language || !is_path(tokens, module_at + 1) {
        return None;
    }
    ops::functions().find(|function| name == function.name)
}

/// The index of the name before `at`, behind `::<..>` if there is one.
fn skip_generics(tokens: &[TokenTree], at: usize) -> Option<usize> {
    let is =
        |index: usize, ch: char| matches!(&tokens[index], TokenTree::Punct(punct) if punct.as_char() == ch);
    let last = at.checked_sub(1)?;
    if !is(last, '>') {
        return Some(last);
    }
    let open = (0..last).rev().find(|&index| is(index, '<'))?;
    open.checked_sub(3)
}

/// Whether `::` begins at `at`.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |index: usize| matches!(tokens.get(index), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(at) && colon(at + 1)
}

fn add_absent(args: &mut TokenStream, function: &Intrinsic) {
    let tokens: Vec<TokenTree> = args.clone().into_iter().collect();
    let comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    let open = tokens.last().is_some_and(|token| !comma(token));
    let given = tokens.iter().filter(|token| comma(token)).count() + usize::from(open);
    let least = function.params.iter().filter(|param| !param.optional).count();
    if given < least {
        // A call that is still being written.
        return;
    }
    if open && given < function.params.len() {
        args.extend(quote_spanned! { Span::call_site() => , });
    }
    for _ in given..function.params.len() {
        args.extend(quote! { ::dsl_runtime::tl::Absent, });
    }
}
