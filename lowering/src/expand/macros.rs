//! The expansion of each macro: every mistake of a kernel, or its launcher and data.

use std::rc::Rc;

use proc_macro2::TokenStream;
use tile_ir::frontend::syntax::{self, Items};
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::{Errors, Loc};

use crate::driver::compile::lower_variants;
use crate::driver::options::{BuildOptions, Effort};
use crate::expand;
use crate::expand::configure::{self, MarkedItem};
use crate::expand::data::{Expansion, place_of};
use crate::expand::import::{self, Waiting};
use crate::expand::stack::with_stack;

/// Expands `#[fuse_kernel(attribute)] item` as the environment says.
pub fn compile(attribute: TokenStream, item: TokenStream) -> TokenStream {
    with_options(|options| compile_with(attribute, item, options))
}

/// Runs `expand` with the options of the environment, or reports what is wrong with them.
fn with_options(expand: impl FnOnce(&BuildOptions) -> TokenStream) -> TokenStream {
    match BuildOptions::from_environment() {
        Ok(options) => expand(&options),
        Err(message) => {
            let mut errors = Errors::new();
            errors.push(Loc::from(proc_macro2::Span::call_site()), message);
            errors.into_tokens()
        }
    }
}

/// Expands `#[fuse_kernel(attribute)] item`.
pub fn compile_with(attribute: TokenStream, item: TokenStream, options: &BuildOptions) -> TokenStream {
    with_stack(|| kernel(attribute, item, options))
}

fn kernel(attribute: TokenStream, item: TokenStream, options: &BuildOptions) -> TokenStream {
    if syntax::has_receiver(&item) && options.effort != Effort::Signature {
        return compile_method(item);
    }
    if configure::is_needed(&item, options) {
        return configure::defer(MarkedItem::Kernel, &attribute, &item);
    }
    configured_kernel(Waiting { kind: MarkedItem::Kernel, attribute, item, imports: vec![] }, options)
}

fn configured_kernel(waiting: Waiting, options: &BuildOptions) -> TokenStream {
    let items = Items { imports: waiting.imports, ..Items::default() };
    if options.effort != Effort::Signature
        && let Some(wanted) = syntax::wanted(TokenStream::new(), waiting.item.clone(), &items)
    {
        return import::wait_for(&wanted, &Waiting { imports: items.imports, ..waiting }, options);
    }
    let mut errors = Errors::new();
    let tokens = kernel_tokens(waiting.attribute, waiting.item, items.into(), options, &mut errors);
    reported(errors, tokens, options)
}

/// Goes on with an item for which the macro of another module's item was called, as the environment says.
pub fn compile_imported(tokens: TokenStream) -> TokenStream {
    with_options(|options| compile_imported_with(tokens, options))
}

/// Goes on with an item for which the macro of another module's item was called.
pub fn compile_imported_with(tokens: TokenStream, options: &BuildOptions) -> TokenStream {
    with_stack(|| match import::resume(tokens) {
        Some(waiting @ Waiting { kind: MarkedItem::Kernel, .. }) => configured_kernel(waiting, options),
        Some(waiting @ Waiting { kind: MarkedItem::Module, .. }) => configured_module(waiting, true, options),
        None => {
            let mut errors = Errors::new();
            let loc = Loc::from(proc_macro2::Span::call_site());
            let help = "build both crates with one version of `dsl_runtime`";
            errors.push_help(loc, "the text of this item is not one that this compiler reads", help);
            errors.into_tokens()
        }
    })
}

/// Expands an item that rustc has configured, from the struct that carried it there, as the environment says.
pub fn compile_configured(derived: TokenStream) -> TokenStream {
    with_options(|options| compile_configured_with(derived, options))
}

/// Expands an item that rustc has configured, from the struct that carried it there.
pub fn compile_configured_with(derived: TokenStream, options: &BuildOptions) -> TokenStream {
    let Some((kind, attribute, item)) = configure::configured(derived) else { return TokenStream::new() };
    let waiting = Waiting { kind, attribute, item, imports: vec![] };
    with_stack(|| match kind {
        MarkedItem::Kernel => configured_kernel(waiting, options),
        MarkedItem::Module => configured_module(waiting, false, options),
    })
}

/// Expands `#[fuse_kernel(attribute)] item` in an `impl` or `trait`: reports that it is misplaced, and nothing else.
pub fn compile_method(item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let method = syntax::parse_method(item, &mut errors).map(|kernel| expand::method(&kernel));
    let errors = errors.into_tokens();
    quote::quote! { #errors #method }
}

/// Expands `#[fuse_module(attribute)] item` as the environment says.
pub fn compile_module(attribute: TokenStream, item: TokenStream) -> TokenStream {
    with_options(|options| compile_module_with(attribute, item, options))
}

/// Expands `#[fuse_module(attribute)] item`: each kernel as it would be outside, everything else as it was.
pub fn compile_module_with(attribute: TokenStream, item: TokenStream, options: &BuildOptions) -> TokenStream {
    with_stack(|| module(attribute, item, options))
}

fn module(attribute: TokenStream, item: TokenStream, options: &BuildOptions) -> TokenStream {
    if configure::is_needed(&item, options) {
        return configure::defer(MarkedItem::Module, &attribute, &item);
    }
    configured_module(Waiting { kind: MarkedItem::Module, attribute, item, imports: vec![] }, false, options)
}

/// A module, or where `is_begun` what it has besides the items that stand there as they were written.
fn configured_module(waiting: Waiting, is_begun: bool, options: &BuildOptions) -> TokenStream {
    let Waiting { attribute, item, imports, .. } = waiting;
    if options.effort != Effort::Signature && syntax::syntax_error(&item).is_some() {
        // rustc has parsed the module before, and reported what is wrong with it.
        let mut errors = Errors::new();
        syntax::report_foreign_syntax(&item, &mut errors);
        return errors.into_tokens();
    }
    let mut errors = Errors::new();
    let Some(module) = syntax::parse_module(attribute.clone(), item.clone(), imports, &mut errors) else {
        return reported(errors, item, options);
    };
    if options.effort != Effort::Signature
        && let Some(wanted) = module.wanted()
    {
        let imports = module.items.imports.clone();
        let waiting = Waiting { kind: MarkedItem::Module, attribute, item, imports };
        let call = import::wait_for(&wanted, &waiting, options);
        return if is_begun { call } else { module.with_others(call) };
    }
    check_uncalled(&module, &mut errors);
    let mut content = TokenStream::new();
    let mut marks = vec![];
    let place = place_of(&module.name, options);
    if options.effort != Effort::Signature {
        content.extend(import::text_macros(&module.items, &place));
    }
    let head = module.head.clone();
    marks.extend(module.mentioned_uses().into_iter().cloned());
    for part in module.parts {
        match part {
            syntax::ModuleItem::Kernel { attribute, item, mark, .. } => {
                let mut own = Errors::new();
                let tokens = kernel_tokens(attribute, item, module.items.clone(), options, &mut own);
                // A function's mistake is one of every kernel that calls it, and reported once.
                errors.extend(own);
                content.extend(expand::under(&mark.conditions, tokens));
                marks.extend(mark.name);
            }
            syntax::ModuleItem::Function { function, mark } => {
                let tokens = expand::module_function(&function, options.effort == Effort::Signature);
                content.extend(expand::under(&mark.conditions, tokens));
                marks.extend(mark.name);
            }
            syntax::ModuleItem::Struct { item, mark } => {
                let tokens = expand::module_struct(&item, options.effort == Effort::Signature);
                content.extend(expand::under(&mark.conditions, tokens));
                marks.extend(mark.name);
            }
            syntax::ModuleItem::Other(tokens) if !is_begun => content.extend(tokens),
            syntax::ModuleItem::Other(_) => {}
        }
    }
    let mentions = expand::mentions(&marks, &module.items);
    let module = match is_begun {
        true => quote::quote! { #content #mentions },
        false => quote::quote! { #head { #content #mentions } },
    };
    reported(errors, module, options)
}

/// Checks each function that no kernel calls once by itself.
fn check_uncalled(module: &syntax::FuseModule, errors: &mut Errors) {
    for function in module.uncalled() {
        errors.extend(typeck::check_function(function, module.items.clone()));
    }
}

/// `#[fuse_fn]` outside of a `#[fuse_module]`, where no kernel can see it.
pub fn misplaced_function(item: TokenStream) -> TokenStream {
    let help = "put it into a module marked `#[fuse_module]`; kernels of others bring it with `use`";
    misplaced("fuse_fn", item, help)
}

/// `#[fuse_struct]` outside of a `#[fuse_module]`.
pub fn misplaced_struct(item: TokenStream) -> TokenStream {
    let help =
        "put it and its `impl` into a module marked `#[fuse_module]`; kernels of others bring it with `use`";
    misplaced("fuse_struct", item, help)
}

fn misplaced(mark: &str, item: TokenStream, help: &str) -> TokenStream {
    let loc = match syn::parse2::<syn::Item>(item.clone()) {
        Ok(syn::Item::Fn(item)) => Loc::of(&item.sig.ident),
        Ok(syn::Item::Struct(item)) => Loc::of(&item.ident),
        Ok(_) | Err(_) => Loc::of(item),
    };
    let mut errors = Errors::new();
    let text = format!("no kernel can see this `{mark}`: a macro sees no further than what it stands on");
    errors.push_help(loc, text, help);
    errors.into_tokens()
}

/// An expansion and the mistakes found on the way. An editor is shown none: rustc reports them.
fn reported(errors: Errors, tokens: TokenStream, options: &BuildOptions) -> TokenStream {
    if options.effort == Effort::Signature {
        return tokens;
    }
    let errors = errors.into_tokens();
    quote::quote! { #errors #tokens }
}

/// A kernel's expansion; its mistakes go to `errors`, which is empty.
fn kernel_tokens(
    attribute: TokenStream,
    item: TokenStream,
    items: Rc<Items>,
    options: &BuildOptions,
    errors: &mut Errors,
) -> TokenStream {
    let written = item.clone();
    if options.effort != Effort::Signature
        && let Some(error) = syntax::syntax_error(&item)
    {
        // rustc has parsed the function before, and reported what is wrong with it. Calls mean something if the
        // signature does.
        syntax::report_foreign_syntax(&item, errors);
        let kernel = syntax::parse(attribute, syntax::without_body(item), &mut Errors::new());
        return kernel.map(|kernel| expand::unread(&kernel, &error.to_string())).unwrap_or_default();
    }
    let Some(mut kernel) = syntax::parse(attribute, item, errors) else {
        // An editor still resolves what it can of something that is not a kernel yet.
        return if options.effort == Effort::Signature { written } else { TokenStream::new() };
    };
    kernel.set_items(items);
    let variants = typeck::variants(&kernel, errors);
    if options.effort == Effort::Signature {
        let variants = errors.is_empty().then_some(variants.as_slice());
        return expand::for_editors(&kernel, variants);
    }
    match lower_variants(&kernel, &variants, options, errors) {
        Some(lowered) if errors.is_empty() => {
            let (place, lowered) = (place_of(&kernel.name, options), &lowered);
            let expansion = Expansion { kernel: &kernel, variants: &variants, lowered, options, place };
            expand::expand(&expansion)
        }
        // The signature stays, so that a call is not reported as unknown on top of the mistake.
        _ => expand::broken(&kernel),
    }
}
