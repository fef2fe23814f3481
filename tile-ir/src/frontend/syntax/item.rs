//! A kernel's function: its signature here, its body in `expr`.

use std::cell::OnceCell;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};

use super::ast::{ConstType, FnSource, GenericParam, Kernel, KernelParam, ParamType, TypeName, ViewType};
use super::{
    Place, attribute, conditions, depth, early_exit, element_type, expr, foreign_help, fragments,
    inner_attributes, lints, optional, report_foreign_syntax, suffix,
};
use crate::ir::MAX_RANK;
use crate::support::diagnostic::{Errors, Loc, source_text};
use crate::support::dtype::{Class, DType};

/// Parses a kernel. `Err` only when there is no function to speak of; otherwise mistakes are in `errors` and the tree
/// has what could be parsed.
pub fn parse(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Kernel> {
    if depth::report(&attribute, errors) {
        return None;
    }
    let item = depth::without_deep_body(item, errors)?;
    parse_function(fragments::without_fragments(attribute), fragments::without_fragments(item), errors)
}

/// A kernel in an `impl` or `trait`, where the items that its launcher needs cannot be. Its own mistakes are not reported.
pub fn parse_method(item: TokenStream, errors: &mut Errors) -> Option<Kernel> {
    let kernel = parse(TokenStream::new(), item, &mut Errors::new())?;
    let loc = kernel.receiver.as_ref().map_or(Loc::of(&kernel.name), Loc::of);
    errors.push(loc, "a kernel is a free function: move it out of the `impl` or `trait`");
    Some(kernel)
}

/// Whether a kernel takes `self`.
pub fn has_receiver(item: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let inputs = tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    });
    let first = inputs.into_iter().flatten().take_while(|token| !is_comma(token));
    first.into_iter().any(|token| matches!(token, TokenTree::Ident(name) if name == "self"))
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

/// The error of tokens that are no item to this parser. rustc reports it too, and better, if it cannot parse them
/// either.
pub fn syntax_error(item: &TokenStream) -> Option<syn::Error> {
    if !depth::is_shallow(item) {
        return None;
    }
    syn::parse2::<syn::Item>(fragments::without_fragments(item.clone())).err()
}

/// The function without its body, which could not be parsed.
pub fn without_body(item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    if let Some(TokenTree::Group(body)) = tokens.last_mut()
        && body.delimiter() == Delimiter::Brace
    {
        *body = Group::new(Delimiter::Brace, TokenStream::new());
    }
    tokens.into_iter().collect()
}

fn parse_function(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Kernel> {
    let mut function: syn::ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            match syn::parse2::<syn::Item>(item.clone()) {
                Ok(_) => errors.push(Loc::of(item), "`fuse_kernel` goes on a function"),
                Err(_) if report_foreign_syntax(&item, errors) => {}
                Err(_) => errors.extend(error),
            }
            return None;
        }
    };
    if let syn::ReturnType::Type(..) = function.sig.output {
        // It was written for the type, which is reported.
        drop_tail_result(&mut function.block);
    }
    conditions::drop_empty_statements(&mut function.block);
    let is_host: Vec<bool> = function.sig.inputs.iter_mut().map(take_host_mark).collect();
    inner_attributes::check(&function, errors);
    suffix::check(&function, errors);
    inner_attributes::take_marks(&mut function.attrs, "fuse_kernel", errors);
    inner_attributes::take_decorators(&mut function.attrs, errors);
    function.attrs.retain(|attribute| matches!(attribute.style, syn::AttrStyle::Outer));
    let signature = &function.sig;
    let mut options = attribute::parse_options(attribute.clone(), &signature.generics, errors);
    report_qualifiers(signature, errors);
    // A default stands for values that are not declared.
    options.unreadable |= report_defaults(&signature.generics, errors);
    let mut generics = parse_generics(&signature.generics, errors);
    if let Some(clause) = &signature.generics.where_clause {
        errors.push(
            Loc::of(clause),
            "a kernel has no `where` clause; bounds are written on the type parameter",
        );
    }
    let receiver = signature.inputs.iter().find_map(|input| match input {
        syn::FnArg::Receiver(receiver) => Some(receiver.to_token_stream()),
        syn::FnArg::Typed(_) => None,
    });
    let params: Vec<KernelParam> = std::iter::zip(&signature.inputs, is_host)
        .filter_map(|(input, is_host)| parse_param(input, is_host, errors))
        .collect();
    optional::declare_presence(&params, &mut generics, &mut options);
    let body = expr::Parser { errors }.block(&function.block);
    let body = early_exit::lower(body, early_exit::BodyKind::Unit, errors);
    let source = fn_source(&function, &attribute);
    Some(Kernel {
        name: signature.ident.clone(),
        visibility: function.vis,
        attributes: function.attrs,
        generics,
        params,
        body,
        options,
        source,
        returns: !matches!(signature.output, syn::ReturnType::Default),
        items: Rc::default(),
        library: OnceCell::new(),
        receiver,
    })
}

/// Returns a function as it was written, with its outline.
pub(super) fn fn_source(function: &syn::ItemFn, attribute: &TokenStream) -> FnSource {
    let signature = &function.sig;
    let groups = [signature.paren_token.span.join(), function.block.brace_token.span.join()];
    FnSource {
        generics: signature.generics.to_token_stream(),
        inputs: signature.inputs.to_token_stream(),
        output: signature.output.to_token_stream(),
        body: function.block.to_token_stream(),
        // Between the braces of a group that a macro has made stands the macro's own text.
        is_generated: groups.iter().any(|group| group.source_text().is_some_and(|text| text.contains('$'))),
        outline: lints::outline(function, attribute),
    }
}

/// Removes the `Ok(..)` or `Some(..)` that a body ends with.
fn drop_tail_result(block: &mut syn::Block) {
    if let Some(syn::Stmt::Expr(syn::Expr::Call(call), None)) = block.stmts.last()
        && let syn::Expr::Path(function) = &*call.func
        && function.path.get_ident().is_some_and(|name| name == "Ok" || name == "Some")
    {
        block.stmts.pop();
    }
}

/// Whether const parameters have defaults, which is reported.
fn report_defaults(generics: &syn::Generics, errors: &mut Errors) -> bool {
    let before = errors.len();
    for param in generics.const_params() {
        if let Some(default) = &param.default {
            let value = source_text(default.to_token_stream());
            errors.push_help(
                Loc::of(default),
                "a kernel's const parameter has no default: its values are declared in the attribute",
                format!("`#[fuse_kernel({} = [{value}])]`", param.ident),
            );
        }
    }
    errors.len() > before
}

/// The generics. A bound in a `where` clause, which is reported, is not missing on the parameter as well.
pub(super) fn parse_generics(generics: &syn::Generics, errors: &mut Errors) -> Vec<GenericParam> {
    let clauses = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let bounded: Vec<(String, &syn::PredicateType)> = clauses
        .filter_map(|predicate| match predicate {
            syn::WherePredicate::Type(own) => Some((own.bounded_ty.to_token_stream().to_string(), own)),
            _ => None,
        })
        .collect();
    let with_clause = |param: &syn::GenericParam| match param {
        syn::GenericParam::Type(param) if param.bounds.is_empty() => {
            let (_, clause) = bounded.iter().find(|(name, _)| param.ident == name)?;
            Some(syn::GenericParam::Type(syn::TypeParam { bounds: clause.bounds.clone(), ..param.clone() }))
        }
        _ => None,
    };
    let params = generics.params.iter();
    params
        .filter_map(|param| match with_clause(param) {
            Some(bounded) => parse_generic(&bounded, &mut Errors::new()),
            None => parse_generic(param, errors),
        })
        .collect()
}

/// Reports `const`, `async`, `unsafe` and `extern`, which stand side by side.
pub(super) fn report_words_before_fn(signature: &syn::Signature, message: &str, errors: &mut Errors) {
    let syn::Signature { constness, asyncness, unsafety, abi, .. } = signature;
    let words = quote!(#constness #asyncness #unsafety #abi);
    if !words.is_empty() {
        let help = format!("leave out `{}`", source_text(words.clone()));
        errors.push_help(Loc::of(words), message, help);
    }
}

/// Reports a lifetime where it is declared and, if it is declared nowhere, where it is first used.
fn report_lifetime(lifetime: impl ToTokens, errors: &mut Errors) {
    const MESSAGE: &str = "a kernel has no lifetime parameters";
    if !errors.iter().any(|error| error.message == MESSAGE) {
        errors.push_help(Loc::of(lifetime), MESSAGE, "leave it out, also in the types: `x: &[T]`");
    }
}

fn report_qualifiers(signature: &syn::Signature, errors: &mut Errors) {
    report_words_before_fn(signature, "a kernel is a plain `fn`", errors);
    if let syn::ReturnType::Type(_, ty) = &signature.output {
        errors.push_help(
            Loc::of(ty),
            "a kernel returns nothing",
            "write results into a `&mut [T]` parameter with `tl::store`",
        );
    }
    if let Some(variadic) = &signature.variadic {
        errors.push(Loc::of(variadic), "a kernel takes a fixed list of parameters");
    }
}

/// A generic; one with a mistake stays, as a guess at what was meant, so that its uses are not reported.
fn parse_generic(param: &syn::GenericParam, errors: &mut Errors) -> Option<GenericParam> {
    match param {
        syn::GenericParam::Type(param) => {
            if let Some(default) = &param.default {
                errors.push(
                    Loc::of(default),
                    "a kernel's type parameter has no default: its types are declared in the attribute",
                );
            }
            let (bound, traits) = parse_bounds(param, errors);
            Some(GenericParam::Type { name: param.ident.clone(), bound, traits })
        }
        syn::GenericParam::Const(param) => {
            let name = match &param.ty {
                syn::Type::Path(path) => path.path.get_ident().cloned(),
                _ => None,
            };
            let ty = match name {
                Some(name) if name == "bool" => ConstType::Bool,
                Some(name) if const_range(&name.to_string()).is_some() => ConstType::Integer(name),
                _ => {
                    let help = "an enum of a `#[fuse_module]` is a parameter of its own, `mask: Mask`: each of its values has a variant";
                    errors.push_help(Loc::of(&param.ty), "a const parameter is an integer or a `bool`", help);
                    ConstType::Integer(Ident::new("i64", param.ident.span()))
                }
            };
            Some(GenericParam::Const { name: param.ident.clone(), ty })
        }
        syn::GenericParam::Lifetime(param) => {
            report_lifetime(param, errors);
            None
        }
    }
}

/// The values that the integer type of a const parameter holds.
pub(crate) fn const_range(name: &str) -> Option<(i128, i128)> {
    match name {
        "usize" => Some(DType::U64.range()),
        "isize" => Some(DType::I64.range()),
        _ => DType::parse(name).filter(|dtype| dtype.is_integer()).map(DType::range),
    }
}

/// The class of a type parameter's elements, and the other traits that it is bound by. Those may stand alone: its types are declared in the
/// attribute.
fn parse_bounds(param: &syn::TypeParam, errors: &mut Errors) -> (Class, Vec<TokenStream>) {
    const HELP: &str = "bounds are `Float`, `Integer`, `Number`, `Element` and traits of your own";
    let class = |bound: &syn::TypeParamBound| {
        let syn::TypeParamBound::Trait(bound) = bound else { return None };
        match bound.path.segments.last()?.ident.to_string().as_str() {
            "Float" => Some(Class::Float),
            "Integer" => Some(Class::Integer),
            "Number" => Some(Class::Number),
            "Element" => Some(Class::Any),
            _ => None,
        }
    };
    let classes: Vec<Class> = param.bounds.iter().filter_map(class).collect();
    if param.bounds.is_empty() {
        let message = format!("the type parameter `{}` has no bound", param.ident);
        errors.push_help(Loc::of(&param.ident), message, HELP);
    }
    if classes.len() > 1 {
        errors.push_help(Loc::of(&param.bounds), "a kernel's type parameter is of one class", HELP);
    }
    let others = param.bounds.iter().filter(|bound| class(bound).is_none());
    (classes.first().copied().unwrap_or(Class::Any), others.map(ToTokens::to_token_stream).collect())
}

fn is_host_mark(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("host")
}

/// Whether a parameter is `#[host]`: its type is Rust's alone.
pub(super) fn has_host_mark(param: &syn::PatType) -> bool {
    param.attrs.iter().any(is_host_mark)
}

/// Takes `#[host]` off a parameter; whether it was there.
fn take_host_mark(input: &mut syn::FnArg) -> bool {
    let syn::FnArg::Typed(typed) = input else { return false };
    let is_host = has_host_mark(typed);
    typed.attrs.retain(|attribute| !is_host_mark(attribute));
    is_host
}

fn parse_param(input: &syn::FnArg, is_host: bool, errors: &mut Errors) -> Option<KernelParam> {
    let typed = match input {
        syn::FnArg::Typed(typed) => typed,
        syn::FnArg::Receiver(receiver) => {
            errors
                .push(Loc::of(receiver), "a kernel is a free function: move it out of the `impl` or `trait`");
            return None;
        }
    };
    let mut mutable = false;
    let conditions = conditions::of(&typed.attrs);
    let name = match &*typed.pat {
        syn::Pat::Ident(pat) if pat.subpat.is_none() && pat.by_ref.is_none() => {
            if let Some(mutability) = &pat.mutability {
                mutable = true;
                errors.push_help(
                    Loc::of(mutability),
                    "a parameter cannot be reassigned",
                    format!("bind it first: `let mut {0} = {0};`", pat.ident),
                );
            }
            pat.ident.clone()
        }
        pat => {
            errors.push_help(Loc::of(pat), "a parameter is a plain name", "take one parameter for each part");
            // It stays, so that calls have the right number of arguments.
            let name = Ident::new("_", Loc::of(pat).start);
            return Some(KernelParam {
                name,
                ty: ParamType::Failed,
                optional: false,
                mutable: false,
                conditions,
                loc: Loc::of(typed),
            });
        }
    };
    let inner = optional::inner_type(&typed.ty).filter(|_| !is_host);
    let ty = match inner {
        None if is_host => ParamType::Host(typed.ty.to_token_stream()),
        Some(inner) if !optional::check_memory(inner, errors) => ParamType::Failed,
        Some(inner) => parse_param_type(inner, errors),
        None => parse_param_type(&typed.ty, errors),
    };
    let optional = inner.is_some() && !matches!(ty, ParamType::Failed);
    Some(KernelParam { name, ty, optional, mutable, conditions, loc: Loc::of(typed) })
}

fn parse_param_type(ty: &syn::Type, errors: &mut Errors) -> ParamType {
    let (parsed, problem) = match ty {
        syn::Type::Reference(reference) => {
            if let Some(lifetime) = &reference.lifetime {
                report_lifetime(lifetime, errors);
            }
            let mutable = reference.mutability.is_some();
            let memory = match &*reference.elem {
                syn::Type::Slice(slice) => {
                    type_name(&slice.elem).map(|elem| ParamType::Slice { elem, mutable })
                }
                other => match view_type(other, mutable, errors) {
                    Some(view) => return view.map_or(ParamType::Failed, ParamType::View),
                    None => None,
                },
            };
            (memory, "a reference parameter is a slice or a view")
        }
        _ if view_arguments(ty).is_some() => {
            errors.push_help(Loc::of(ty), "a view is borrowed", "write `&View<T, 2>` or `&mut View<T, 2>`");
            return ParamType::Failed;
        }
        _ => (type_name(ty).map(ParamType::Scalar), "this type cannot be a kernel parameter"),
    };
    parsed.unwrap_or_else(|| {
        errors.push_help(Loc::of(ty), problem, type_help(ty, PARAM_TYPES));
        ParamType::Failed
    })
}

const PARAM_TYPES: &str =
    "parameters are `&[T]`, `&mut [T]`, `&View<T, 2>`, `&mut View<T, 2>` and scalars such as `i32` or `f32`";

/// What to write instead of a type that no parameter has; `kinds` lists those that one may have.
pub(super) fn type_help(ty: &syn::Type, kinds: &str) -> String {
    let (inner, mutable) = match ty {
        syn::Type::Reference(reference) => (&*reference.elem, reference.mutability.is_some()),
        syn::Type::Ptr(pointer) => (&*pointer.elem, pointer.mutability.is_some()),
        syn::Type::Array(array) => (&*array.elem, false),
        _ => (ty, false),
    };
    let borrow = if mutable { "&mut " } else { "&" };
    let text = source_text(inner.to_token_stream());
    let dtype =
        type_name(inner).and_then(|name| DType::parse(&name.name).or_else(|| element_type(&name.name)));
    match (ty, dtype) {
        (syn::Type::Reference(_), Some(dtype)) if !mutable => {
            return format!("one number is passed by value, `{dtype}`; memory is a slice, `&[{dtype}]`");
        }
        (syn::Type::Reference(_) | syn::Type::Ptr(_), Some(dtype)) => {
            return format!("memory is a slice: `{borrow}[{dtype}]`");
        }
        (syn::Type::Array(_), Some(dtype)) => return format!("memory is a slice: `&[{dtype}]`"),
        (syn::Type::Tuple(_), _) => return format!("take one parameter for each part; {kinds}"),
        (syn::Type::ImplTrait(_) | syn::Type::BareFn(_), _) => {
            return "a kernel takes no function: a function is a `#[fuse_fn]` in the same `#[fuse_module]`, chosen by a const parameter"
                .into();
        }
        _ => {}
    }
    let elem = last_argument(inner).unwrap_or_else(|| "f32".into());
    match last_name(inner).as_deref() {
        Some("Tile") => {
            format!("a kernel loads tiles itself: take memory, `{borrow}[{elem}]`, or one number, `{elem}`")
        }
        Some("Buffer" | "Vec" | "Slice" | "CudaSlice" | "Box") => {
            format!("memory is a slice, `{borrow}[{elem}]`: calls pass a buffer for it")
        }
        Some("SliceMut") => format!("memory is a slice: `&mut [{elem}]`"),
        Some("ViewMut") => format!("write `&mut {}`", text.replacen("ViewMut", "View", 1)),
        Some("Option") => "an optional parameter is memory: `Option<&[f32]>`, `Option<&View<f32, 2>>`".into(),
        Some(name) => foreign_help(name, Place::Type)
            .or_else(|| memory_help(last_argument(inner)?, borrow))
            .unwrap_or_else(|| kinds.into()),
        None => innermost(inner).and_then(|elem| memory_help(elem, borrow)).unwrap_or_else(|| kinds.into()),
    }
}

/// What to write instead of a type that has elements of the type `elem`.
fn memory_help(elem: String, borrow: &str) -> Option<String> {
    DType::parse(&elem).or_else(|| element_type(&elem)).map(|elem| {
        format!("memory is a slice, `{borrow}[{elem}]`, or a view with a shape, `{borrow}View<{elem}, 2>`")
    })
}

/// The elements of slices and arrays of each other.
fn innermost(ty: &syn::Type) -> Option<String> {
    match ty {
        syn::Type::Slice(own) => innermost(&own.elem),
        syn::Type::Array(own) => innermost(&own.elem),
        syn::Type::Reference(own) => innermost(&own.elem),
        ty => type_name(ty).map(|name| name.name),
    }
}

/// The last name of a path.
fn last_name(ty: &syn::Type) -> Option<String> {
    match ty {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// The first type between the angle brackets of a path, as written.
fn last_argument(ty: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = ty else { return None };
    let syn::PathArguments::AngleBracketed(args) = &path.path.segments.last()?.arguments else { return None };
    args.args.iter().find_map(|arg| match arg {
        syn::GenericArgument::Type(ty) => Some(source_text(ty.to_token_stream())),
        _ => None,
    })
}

/// The generic arguments of `View<..>`, if the type is a view.
fn view_arguments(ty: &syn::Type) -> Option<&syn::PathArguments> {
    match ty {
        syn::Type::Path(path) if path.qself.is_none() => {
            let segment = path.path.segments.last()?;
            (segment.ident == "View").then_some(&segment.arguments)
        }
        syn::Type::Paren(inner) => view_arguments(&inner.elem),
        syn::Type::Group(inner) => view_arguments(&inner.elem),
        _ => None,
    }
}

/// `View<T, 2>` behind a reference; `None` for a type of another name, `Some(None)` for a view with a mistake.
pub(super) fn view_type(ty: &syn::Type, mutable: bool, errors: &mut Errors) -> Option<Option<ViewType>> {
    const HELP: &str = "write `View<f32, 2>` for rows and columns of `f32`";
    let arguments: Vec<&syn::GenericArgument> = match view_arguments(ty)? {
        syn::PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
        syn::PathArguments::None | syn::PathArguments::Parenthesized(_) => vec![],
    };
    if let Some(lifetime) = arguments.iter().find(|arg| matches!(arg, syn::GenericArgument::Lifetime(_))) {
        report_lifetime(lifetime, errors);
        return Some(None);
    }
    let [syn::GenericArgument::Type(elem), rank] = arguments.as_slice() else {
        errors.push_help(Loc::of(ty), "a view names its element type and how many axes it has", HELP);
        return Some(None);
    };
    let Some(elem) = type_name(elem) else {
        errors.push_help(Loc::of(elem), "a view's elements are of one element type", HELP);
        return Some(None);
    };
    Some(view_rank(rank, errors).map(|rank| ViewType { elem, rank, mutable }))
}

fn view_rank(rank: &syn::GenericArgument, errors: &mut Errors) -> Option<usize> {
    let literal = match rank {
        syn::GenericArgument::Const(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. })) => {
            literal.base10_parse::<usize>().ok().filter(|_| matches!(literal.suffix(), "" | "usize"))
        }
        _ => None,
    };
    match literal {
        Some(rank) if (1..=MAX_RANK).contains(&rank) => Some(rank),
        Some(found) => {
            errors.push(Loc::of(rank), format!("a view has 1 to {MAX_RANK} axes, found {found}"));
            None
        }
        None => {
            let text = format!("how many axes a view has is written as a number from 1 to {MAX_RANK}");
            errors.push(Loc::of(rank), text);
            None
        }
    }
}

/// A type that is one name.
pub(super) fn type_name(ty: &syn::Type) -> Option<TypeName> {
    match ty {
        syn::Type::Path(path) if path.qself.is_none() => {
            let segment = path.path.segments.last()?;
            let plain = segment.arguments.is_empty();
            plain.then(|| TypeName { name: segment.ident.to_string(), loc: Loc::of(ty) })
        }
        syn::Type::Paren(inner) => type_name(&inner.elem),
        syn::Type::Group(inner) => type_name(&inner.elem),
        _ => None,
    }
}
