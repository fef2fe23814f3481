//! The function a user calls.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use tile_ir::frontend::syntax::{
    ConstType, GenericParam, Kernel, KernelParam, ParamType, Tune, expects_outline_lint,
};
use tile_ir::frontend::typeck::{ConstValue, Variant};
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::Class;

use super::arguments::{LauncherArguments, MemoryParam, element, slice_type, view_type};

/// The expression by which the launcher chooses a generic from the arguments.
fn chooser<'k>(kernel: &'k Kernel, generic: &GenericParam) -> Option<&'k TokenStream> {
    kernel.options.lists.iter().find(|list| list.name == *generic.name())?.chosen_by.as_ref()
}

/// Whether the arguments of a call decide the generic.
fn is_decided(kernel: &Kernel, generic: &GenericParam) -> bool {
    chooser(kernel, generic).is_some() || kernel.is_of_argument(generic)
}

/// The generics a call may name, in order.
pub(super) fn named(kernel: &Kernel) -> impl Iterator<Item = &GenericParam> {
    kernel.generics.iter().filter(|generic| !is_decided(kernel, generic) && !kernel.is_open(generic))
}

pub(super) fn declaration(generic: &GenericParam) -> TokenStream {
    match generic {
        GenericParam::Type { name, bound, traits } => {
            let bound = bound_path(*bound);
            quote! { #name: #bound #(+ #traits)* }
        }
        // rustc's messages about a constant that a call leaves out are on its declaration.
        GenericParam::Const { name, ty: ConstType::Bool } => {
            quote_spanned! { name.span()=> const #name: bool }
        }
        GenericParam::Const { name, ty: ConstType::Integer(ty) } => {
            quote_spanned! { name.span()=> const #name: #ty }
        }
    }
}

fn bound_path(class: Class) -> TokenStream {
    match class {
        Class::Float => quote! { ::dsl_runtime::Float },
        Class::Integer => quote! { ::dsl_runtime::Integer },
        Class::Number => quote! { ::dsl_runtime::Number },
        _ => quote! { ::dsl_runtime::Element },
    }
}

/// The launcher: the kernel's own signature.
pub(super) fn function(kernel: &Kernel, variants: &[Variant]) -> TokenStream {
    let (name, visibility) = (&kernel.name, &kernel.visibility);
    let attributes = kernel.attributes.iter().filter(|attribute| !expects_outline_lint(attribute));
    let generics: Vec<TokenStream> = named(kernel).map(declaration).collect();
    let LauncherArguments { params, bindings, parts, args } = LauncherArguments::of(kernel);
    let count = Literal::usize_unsuffixed(args.len());
    let args = match parts.is_empty() {
        true => quote! { [#(#args),*] },
        false => quote! { { #(#parts)* [#(#args),*] } },
    };
    let (unsafety, safety_doc) = if kernel.options.unchecked {
        let doc = "\n\n# Safety\nThe kernel is `unchecked`: every element it reads or writes must lie in the slice it names.";
        // clippy does not see documentation that a macro wrote.
        (quote! { unsafe }, quote! { #[doc = #doc] #[allow(clippy::missing_safety_doc)] })
    } else {
        (TokenStream::new(), TokenStream::new())
    };
    let bound = if named(kernel).next().is_none()
        || kernel.options.lists.is_empty() && kernel.options.configs.is_empty()
    {
        TokenStream::new()
    } else {
        let choice = choice_arguments(kernel);
        quote! { where #name::Choice<#(#choice),*>: #name::Declared }
    };
    let launch = match (&kernel.options.tune, kernel.asked_device()) {
        (None, Some(device)) => {
            let variant = selection(kernel, variants);
            quote! {
                ::dsl_runtime::Launch::by_device(
                    &#name::KERNEL,
                    move |#device: ::dsl_runtime::Target<'_>| {
                        #[allow(unused_imports)]
                        use ::dsl_runtime::LaunchOn as _;
                        #variant
                    },
                    #args,
                )
            }
        }
        (None, None) => {
            let variant = selection(kernel, variants);
            quote! { ::dsl_runtime::Launch::new(&#name::KERNEL, #variant, #args) }
        }
        (Some(tune), _) => {
            let open = open(kernel, variants, tune);
            quote! {
                {
                    let open = #open;
                    ::dsl_runtime::Launch::tuned(&#name::KERNEL, open, #args)
                }
            }
        }
    };
    let fn_token = named_at(name, quote! { fn });
    let body = named_at(
        name,
        quote! {
            {
                #(#bindings)*
                // SAFETY: the code in `KERNEL` was compiled from this very signature.
                unsafe { #launch }
            }
        },
    );
    quote! {
        #(#attributes)*
        #safety_doc
        #[allow(clippy::too_many_arguments, non_snake_case)]
        #visibility #unsafety #fn_token #name<'fuse, #(#generics),*>(#(#params),*) -> ::dsl_runtime::Launch<'fuse, #count>
        #bound
        #body
    }
}

/// The tokens with which an item begins and ends, with the span of its name: rustc's messages about the item are then
/// on the name and not on the attribute, and do not count as those of a macro. What is inside keeps its spans.
fn named_at(name: &Ident, tokens: TokenStream) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(name.span());
            token
        })
        .collect()
}

/// The launcher of a kernel with mistakes: any call that has the right number of arguments compiles, so that nothing is
/// reported on top of the mistakes themselves.
pub(super) fn broken(kernel: &Kernel) -> TokenStream {
    without_launch(kernel, &quote! { ::core::unreachable!() })
}

/// The launcher of a kernel whose body cannot be read: one that is compiled fails the build, after all that rustc itself
/// has to say.
pub(super) fn unread(kernel: &Kernel, error: &str) -> TokenStream {
    let text = format!("the body of the kernel `{}` cannot be read: {error}", kernel.name);
    let fail = quote! {
        struct Unread<T>(T);
        impl<T> Unread<T> {
            const FAIL: ::core::primitive::usize = ::core::panic!(#text);
        }
        ::core::panic!("{}", Unread::<()>::FAIL)
    };
    without_launch(kernel, &fail)
}

fn without_launch(kernel: &Kernel, body: &TokenStream) -> TokenStream {
    let (name, visibility) = (&kernel.name, &kernel.visibility);
    let attributes = kernel.attributes.iter().filter(|attribute| !expects_outline_lint(attribute));
    let generics: Vec<TokenStream> = named(kernel).map(declaration).collect();
    let params = kernel.params.iter().enumerate().map(|(position, param)| {
        let (own, when) = (format_ident!("argument_{position}"), &param.conditions);
        let ty = accepted(kernel, param).unwrap_or_else(|| quote! { impl ::core::marker::Sized });
        quote! { #(#when)* #own: #ty }
    });
    let arguments = |ty: &ParamType| match ty {
        ParamType::View(view) => 1 + 2 * view.rank,
        ParamType::Slice { .. } | ParamType::Scalar(_) | ParamType::Failed => 1,
        ParamType::Enum(_) | ParamType::Host(_) => 0,
    };
    let count = kernel.params.iter().map(|param| arguments(&param.ty)).sum();
    let count = Literal::usize_unsuffixed(count);
    let unsafety = kernel.options.unchecked.then(|| quote! { unsafe });
    let receiver = kernel.receiver.as_ref().map(|receiver| quote! { #receiver, });
    let (fn_token, body) = (named_at(name, quote! { fn }), named_at(name, quote! { { #body } }));
    quote! {
        #(#attributes)*
        #[allow(unused, clippy::too_many_arguments, clippy::missing_safety_doc, non_snake_case)]
        #visibility #unsafety #fn_token #name<'fuse, #(#generics),*>(#receiver #(#params),*) -> ::dsl_runtime::Launch<'fuse, #count>
        #body
    }
}

/// The type of the argument that a call passes; `None` where it is not known.
fn accepted(kernel: &Kernel, param: &KernelParam) -> Option<TokenStream> {
    let memory = match &param.ty {
        ParamType::Slice { elem, mutable } => {
            MemoryParam::slice(*mutable, elem.loc.start, &element(kernel, elem)?)
        }
        ParamType::View(view) => MemoryParam::view(view, &element(kernel, &view.elem)?),
        ParamType::Scalar(ty) => return element(kernel, ty),
        ParamType::Enum(ty) => {
            let ty = ty.ident();
            return Some(quote! { #ty });
        }
        ParamType::Host(ty) => return Some(ty.clone()),
        ParamType::Failed => return None,
    };
    Some(memory.accepted(param))
}

fn choice_arguments(kernel: &Kernel) -> Vec<TokenStream> {
    named(kernel)
        .map(|generic| {
            let name = generic.name();
            match generic {
                GenericParam::Type { .. } => quote! { #name },
                GenericParam::Const { .. } => quote! { { #name } },
            }
        })
        .collect()
}

/// The variant of this call: a constant, unless arguments decide.
fn selection(kernel: &Kernel, variants: &[Variant]) -> TokenStream {
    let name = &kernel.name;
    let choice = choice_arguments(kernel);
    if kernel.options.has_conditions() {
        let (types, choices) = wanted(kernel);
        let of_config = |variant: &Variant| {
            let own = variant.config.and_then(|config| kernel.options.configs[config].when.as_ref());
            kernel.options.when.iter().chain(own).collect()
        };
        let allows = allows(kernel, variants, of_config);
        return quote! { #name::KERNEL.first(&[#(#types),*], &[#(#choices),*], #allows) };
    }
    if kernel.generics.is_empty() {
        return quote! { ::core::result::Result::Ok(&#name::KERNEL.variants[0]) };
    }
    if !kernel.generics.iter().any(|generic| is_decided(kernel, generic)) {
        return quote! { ::core::result::Result::Ok(<#name::Choice<#(#choice),*> as #name::Declared>::VARIANT) };
    }
    let (types, choices) = wanted(kernel);
    quote! { #name::KERNEL.smallest(&[#(#types),*], &[#(#choices),*]) }
}

/// What a call wants of each type and of each constant.
fn wanted(kernel: &Kernel) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let types = kernel.generics.iter().filter_map(|generic| match generic {
        GenericParam::Type { name, .. } => Some(quote! { <#name as ::dsl_runtime::Element>::DTYPE }),
        GenericParam::Const { .. } => None,
    });
    let choices = kernel.generics.iter().filter(|generic| matches!(generic, GenericParam::Const { .. })).map(
        |generic| {
            let own = generic.name();
            match chooser(kernel, generic) {
                Some(expr) => quote! { ::dsl_runtime::Choice::AtLeast((#expr) as i128) },
                None if kernel.is_open(generic) => quote! { ::dsl_runtime::Choice::Open },
                None => quote! { ::dsl_runtime::Choice::Exact(#own as i128) },
            }
        },
    );
    (types.collect(), choices.collect())
}

/// The variants that a call of a tuned kernel leaves open, and what the choice among them depends on.
fn open(kernel: &Kernel, variants: &[Variant], tune: &Tune) -> TokenStream {
    let name = &kernel.name;
    let (types, choices) = wanted(kernel);
    let key = tune.key.iter().map(|expr| quote! { (#expr) as i128 });
    let allows = allows(kernel, variants, |_| tune.when.iter().collect());
    quote! {
        ::dsl_runtime::tune::TuningSpace::new(
            &#name::KERNEL, &[#(#types),*], &[#(#choices),*], #allows, ::std::vec![#(#key),*],
        )
    }
}

/// The constants that the caller leaves open, with their types.
fn decided_constants(kernel: &Kernel) -> Vec<(&Ident, TokenStream)> {
    kernel
        .generics
        .iter()
        .filter(|generic| !named(kernel).any(|named| named.name() == generic.name()))
        .filter(|generic| !kernel.is_of_argument(generic))
        .filter_map(|generic| match generic {
            GenericParam::Const { name, ty: ConstType::Bool } => {
                Some((name, quote! { ::core::primitive::bool }))
            }
            GenericParam::Const { name, ty: ConstType::Integer(ty) } => {
                Some((name, quote! { ::core::primitive::#ty }))
            }
            GenericParam::Type { .. } => None,
        })
        .collect()
}

/// The values of what the caller leaves open, one of the variants that have them, and the places of all of these.
type VariantGroup<'v> = (Vec<ConstValue>, &'v Variant, Vec<Literal>);

/// Groups the variants of one config that differ in nothing but what calls name.
fn groups<'v>(decided: &[(&Ident, TokenStream)], variants: &'v [Variant]) -> Vec<VariantGroup<'v>> {
    let constants = |variant: &Variant| -> Vec<ConstValue> {
        let own =
            |name: &Ident| variant.consts.iter().find(|(other, _)| name == other).map(|(_, value)| *value);
        decided.iter().filter_map(|(name, _)| own(name)).collect()
    };
    let mut groups: Vec<VariantGroup> = vec![];
    for (index, variant) in variants.iter().enumerate() {
        let (own, index) = (constants(variant), Literal::usize_unsuffixed(index));
        let is_same = |(other, first, _): &&mut VariantGroup| *other == own && first.config == variant.config;
        match groups.iter_mut().find(is_same) {
            Some((.., members)) => members.push(index),
            None => groups.push((own, variant, vec![index])),
        }
    }
    groups
}

/// Whether a variant meets its condition: expanded for each set of constants, which are items there, so that other
/// items of their names do not matter.
fn allows<'k>(
    kernel: &Kernel,
    variants: &[Variant],
    conditions: impl Fn(&Variant) -> Vec<&'k TokenStream>,
) -> TokenStream {
    if variants.iter().all(|variant| conditions(variant).is_empty()) {
        return quote! { |_: usize| true };
    }
    let decided = decided_constants(kernel);
    let groups = groups(&decided, variants);
    let arms = groups.iter().map(|(values, variant, members)| {
        let conditions = conditions(variant);
        let items = decided.iter().zip(values).map(|((name, ty), value)| {
            let value = constant(*value);
            quote! { #[allow(dead_code)] const #name: #ty = #value; }
        });
        quote! {
            #(#members)|* => {
                #(#items)*
                #(
                    let allowed: ::core::primitive::bool = #conditions;
                    if !allowed {
                        return false;
                    }
                )*
                true
            }
        }
    });
    quote! { |variant: usize| match variant { #(#arms)* _ => false } }
}

/// The module: the kernel's data, and which choices of generics were declared.
pub(super) fn module(
    kernel: &Kernel,
    data: &[TokenStream],
    host_code: &TokenStream,
    declared: &TokenStream,
) -> TokenStream {
    let (name, visibility) = (&kernel.name, &kernel.visibility);
    let text = name.to_string();
    let line = Literal::u32_unsuffixed(Loc::of(name).line() as u32);
    let params = kernel.params.iter().flat_map(param_data);
    let consts = kernel.generics.iter().filter_map(|generic| match generic {
        GenericParam::Const { name, .. } => Some(name.to_string()),
        GenericParam::Type { .. } => None,
    });
    let tuned = match &kernel.options.tuned {
        None => quote! { "" },
        Some(path) => quote_spanned! { path.span() =>
            ::core::include_str!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", #path))
        },
    };
    let doc = format!("What the build left of the kernel [`{text}`](fn@{text}).");
    // The module is written inside a private one or at the crate's root alike: everything in it is reached by path.
    let inner_visibility = inner(visibility);
    let mod_token = named_at(name, quote! { mod });
    let content = quote! {
            use ::dsl_runtime::kernel::*;
            use ::dsl_runtime::DType;

            #host_code

            /// The kernel's static data: every variant's code.
            #inner_visibility static KERNEL: Kernel = Kernel {
                name: #text,
                module: ::core::module_path!(),
                file: ::core::file!(),
                line: #line,
                params: &[#(#params),*],
                consts: &[#(#consts),*],
                tuned: #tuned,
                variants: &[#(#data),*],
            };

            #declared
    };
    let content = named_at(name, quote! { { #content } });
    quote! {
        #[doc = #doc]
        #[allow(non_snake_case, dead_code, clippy::all)]
        #visibility #mod_token #name #content
    }
}

/// The `Param`s that a parameter is: of a view, its memory, extents and strides.
fn param_data(param: &KernelParam) -> Vec<TokenStream> {
    let data = |name: String, kind: TokenStream| quote! { Param { name: #name, kind: ParamKind::#kind } };
    let own = param.name.to_string();
    match &param.ty {
        ParamType::Slice { mutable, .. } => {
            let kind = slice_type(*mutable);
            vec![data(own, quote! { #kind })]
        }
        ParamType::View(view) => {
            let (kind, rank) = (view_type(view.mutable), Literal::usize_unsuffixed(view.rank));
            let number = |what: &str, axis: usize| data(format!("{own}.{what}({axis})"), quote! { Scalar });
            let shape = (0..view.rank).map(|axis| number("shape", axis));
            let strides = (0..view.rank).map(|axis| number("stride", axis));
            std::iter::once(data(own.clone(), quote! { #kind(#rank) })).chain(shape).chain(strides).collect()
        }
        ParamType::Scalar(_) | ParamType::Failed => vec![data(own, quote! { Scalar })],
        ParamType::Enum(_) | ParamType::Host(_) => vec![],
    }
}

/// The visibility of what a module of visibility `visibility` holds.
pub(super) fn inner(visibility: &syn::Visibility) -> TokenStream {
    match visibility {
        syn::Visibility::Public(_) => quote! { pub },
        _ => quote! { pub(super) },
    }
}

pub(super) fn constant(value: ConstValue) -> TokenStream {
    match value {
        ConstValue::Bool(value) => quote! { #value },
        ConstValue::Int(value) => {
            let literal = Literal::u128_unsuffixed(value.unsigned_abs());
            if value < 0 {
                quote! { -#literal }
            } else {
                quote! { #literal }
            }
        }
    }
}
