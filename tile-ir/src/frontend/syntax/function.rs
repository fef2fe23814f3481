//! Functions and closures that kernels call, and named constants.

use proc_macro2::TokenStream;
use quote::ToTokens;

use super::ast::*;
use super::item::{fn_source, parse_generics, report_words_before_fn, type_help, type_name, view_type};
use super::{conditions, early_exit, expr, inner_attributes, optional, suffix, values};
use crate::support::diagnostic::{Errors, Loc};

/// What a constant that a kernel uses may be made of.
pub(crate) const CONSTANTS: &str = "a kernel knows constants made of literals, operators and other constants";

const TYPES: &str = "types here are `Tile<T>`, scalars such as `f32`, `usize` for a constant, `&[T]`, `&View<T, 2>`, `impl Fn(..)`, and tuples of them";

/// Parses a function: its mistakes go to `errors`, and the tree has the rest.
pub(super) fn parse(mut item: syn::ItemFn, errors: &mut Errors) -> FnItem {
    conditions::drop_empty_statements(&mut item.block);
    inner_attributes::check_called(&item, errors);
    suffix::check(&item, errors);
    let signature = &item.sig;
    report_qualifiers(signature, errors);
    let generics = parse_generics(&signature.generics, errors);
    for param in signature.generics.const_params() {
        if let Some(default) = &param.default {
            errors.push(Loc::of(default), "a function that kernels call has no defaults");
        }
    }
    if let Some(clause) = &signature.generics.where_clause {
        errors.push(Loc::of(clause), "bounds are written on the type parameter here");
    }
    let mut params = vec![];
    for input in &signature.inputs {
        match input {
            syn::FnArg::Receiver(receiver) => {
                errors.push(Loc::of(receiver), "a function that kernels call has no `self`");
            }
            syn::FnArg::Typed(typed) => {
                let pattern = expr::Parser { errors }.pattern(&typed.pat);
                let ty = value_type(&typed.ty, errors);
                let pattern = pattern.unwrap_or(Pattern::Ignore(Loc::of(&typed.pat)));
                params.push(FunctionParam { pattern, ty, loc: Loc::of(typed) });
            }
        }
    }
    let result = result_type(&signature.output, errors);
    let body = expr::Parser { errors }.block(&item.block);
    let kind = if result.is_some() { early_exit::BodyKind::Value } else { early_exit::BodyKind::Unit };
    let body = early_exit::lower(body, kind, errors);
    let source = fn_source(&item, &TokenStream::new());
    item.attrs.retain(|attribute| attribute.path().is_ident("doc"));
    let (name, visibility, documentation) = (item.sig.ident, item.vis, item.attrs);
    FnItem { name, visibility, documentation, generics, self_param: None, params, result, body, source }
}

fn report_qualifiers(signature: &syn::Signature, errors: &mut Errors) {
    report_words_before_fn(signature, "a function that kernels call is a plain `fn`", errors);
    if let Some(variadic) = &signature.variadic {
        errors.push(Loc::of(variadic), "a function that kernels call takes a fixed list of parameters");
    }
}

fn result_type(output: &syn::ReturnType, errors: &mut Errors) -> Option<ValueType> {
    match output {
        syn::ReturnType::Default => None,
        syn::ReturnType::Type(_, ty) => match &**ty {
            syn::Type::Tuple(tuple) if tuple.elems.is_empty() => None,
            ty => Some(value_type(ty, errors)),
        },
    }
}

/// A closure; `None` when its parameters could not be understood, which was reported.
pub(super) fn closure(closure: &syn::ExprClosure, parser: &mut expr::Parser) -> Option<Closure> {
    let mut params = vec![];
    for input in &closure.inputs {
        let (pat, ty) = match input {
            syn::Pat::Type(typed) => (&*typed.pat, value_type(&typed.ty, parser.errors)),
            pat => (pat, ValueType::Any),
        };
        params.push(FunctionParam { pattern: parser.pattern(pat)?, ty, loc: Loc::of(input) });
    }
    let result = result_type(&closure.output, parser.errors);
    let body = match &*closure.body {
        syn::Expr::Block(block) if block.label.is_none() => parser.block(&block.block),
        other => {
            let value = parser.arm(other);
            let loc = value.loc;
            BlockExpr { items: Default::default(), statements: vec![], value: Some(Box::new(value)), loc }
        }
    };
    let body = early_exit::lower(body, early_exit::BodyKind::Value, parser.errors);
    Some(Closure { params, result, body, loc: Loc::of(closure) })
}

/// A `const` item. A value that only rustc can evaluate is reported where a kernel uses it.
pub(super) fn constant(item: &syn::ItemConst) -> ConstItem {
    let mut unread = Errors::new();
    let value = expr::Parser { errors: &mut unread }.expr(&item.expr);
    let name = type_name(&item.ty);
    let wide = name.as_ref().is_some_and(|name| matches!(name.name.as_str(), "usize" | "isize"));
    let value = (unread.is_empty() && name.is_some()).then_some(value);
    let ty = if wide { None } else { name };
    let text = syn::ItemConst { attrs: vec![], vis: syn::Visibility::Inherited, ..item.clone() };
    ConstItem {
        path: vec![item.ident.clone()],
        ty,
        value,
        visibility: item.vis.clone(),
        text: text.into_token_stream(),
    }
}

/// The variants of an enum without fields, by their discriminants.
pub(super) fn variants(item: &syn::ItemEnum) -> Vec<ConstItem> {
    if item.variants.iter().any(|variant| !matches!(variant.fields, syn::Fields::Unit)) {
        return vec![];
    }
    let mut next: Option<i128> = Some(0);
    let mut constants = vec![];
    let text = syn::ItemEnum { attrs: vec![], vis: syn::Visibility::Inherited, ..item.clone() };
    for variant in &item.variants {
        if let Some((_, discriminant)) = &variant.discriminant {
            next = values::integer(discriminant);
        }
        let loc = Loc::of(variant);
        let value = next.map(|value| Expr { kind: ExprKind::Int { value, suffix: None }, loc });
        constants.push(ConstItem {
            path: vec![item.ident.clone(), variant.ident.clone()],
            ty: None,
            value,
            visibility: item.vis.clone(),
            text: text.to_token_stream(),
        });
        next = next.map(|value| value + 1);
    }
    constants
}

/// The type of a parameter, result or field.
pub(super) fn value_type(ty: &syn::Type, errors: &mut Errors) -> ValueType {
    let loc = Loc::of(ty);
    let parsed = match ty {
        syn::Type::Paren(inner) => return value_type(&inner.elem, errors),
        syn::Type::Group(inner) => return value_type(&inner.elem, errors),
        syn::Type::Infer(_) => Some(ValueType::Any),
        syn::Type::Tuple(tuple) => {
            let parts = tuple.elems.iter().map(|part| value_type(part, errors)).collect();
            Some(ValueType::Tuple { parts, loc })
        }
        syn::Type::Reference(reference) => match &*reference.elem {
            syn::Type::Slice(slice) => type_name(&slice.elem)
                .map(|elem| ValueType::Memory { elem, mutable: reference.mutability.is_some() }),
            other => match view_type(other, reference.mutability.is_some(), errors) {
                Some(view) => return view.map_or(ValueType::Any, ValueType::View),
                None => None,
            },
        },
        syn::Type::ImplTrait(bounds) => {
            let function = bounds.bounds.iter().any(|bound| match bound {
                syn::TypeParamBound::Trait(bound) => {
                    let name = bound.path.segments.last().map(|segment| segment.ident.to_string());
                    matches!(name.as_deref(), Some("Fn" | "FnMut" | "FnOnce"))
                }
                _ => false,
            });
            function.then_some(ValueType::Function(loc))
        }
        syn::Type::Path(path) if path.qself.is_none() => match path.path.segments.last() {
            Some(segment) if segment.ident == "Tile" => tile(segment, loc),
            Some(segment) if segment.ident == "Option" => optional::inner_type(ty)
                .filter(|inner| optional::check_memory(inner, errors))
                .map(|inner| ValueType::Optional(Box::new(value_type(inner, errors)))),
            Some(segment) if segment.ident == "usize" || segment.ident == "isize" => {
                Some(ValueType::Constant(loc))
            }
            _ => type_name(ty).map(ValueType::Scalar),
        },
        _ => None,
    };
    parsed.unwrap_or_else(|| {
        errors.push_help(loc, "this type has no meaning in a kernel", type_help(ty, TYPES));
        ValueType::Any
    })
}

/// `Tile` or `Tile<T>`.
fn tile(segment: &syn::PathSegment, loc: Loc) -> Option<ValueType> {
    let elem = match &segment.arguments {
        syn::PathArguments::None => None,
        syn::PathArguments::AngleBracketed(args) => match args.args.iter().collect::<Vec<_>>().as_slice() {
            [syn::GenericArgument::Type(syn::Type::Infer(_))] => None,
            [syn::GenericArgument::Type(ty)] => Some(type_name(ty)?),
            _ => return None,
        },
        syn::PathArguments::Parenthesized(_) => return None,
    };
    Some(ValueType::Tile { elem, loc })
}
