//! The parameters of a kernel's launcher, and their conversion to launch arguments.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use tile_ir::frontend::syntax::{GenericParam, Kernel, KernelParam, ParamType, TypeName, ViewType};
use tile_ir::support::dtype::DType;

/// The parameters of a launcher and what it does with them.
#[derive(Default)]
pub(super) struct LauncherArguments {
    pub params: Vec<TokenStream>,
    /// Statements that convert each argument to what expressions over it see.
    pub bindings: Vec<TokenStream>,
    /// Statements that decompose views.
    pub parts: Vec<TokenStream>,
    /// The launch arguments; of a view, its memory, extents and strides.
    pub args: Vec<TokenStream>,
}

impl LauncherArguments {
    pub fn of(kernel: &Kernel) -> LauncherArguments {
        let mut all = LauncherArguments::default();
        for param in &kernel.params {
            let own = &param.name;
            let when = &param.conditions;
            match &param.ty {
                ParamType::Slice { elem, mutable } => {
                    let at = elem.loc.start;
                    let elem = element(kernel, elem);
                    all.converted(param, MemoryParam::slice(*mutable, at, &elem));
                    let make = if *mutable { format_ident!("slice_mut") } else { format_ident!("slice") };
                    all.args.push(quote! { #(#when)* ::dsl_runtime::Arg::#make::<#elem>(#own) });
                }
                ParamType::View(view) => {
                    all.converted(param, MemoryParam::view(view, &element(kernel, &view.elem)));
                    all.parts.push(quote! { #(#when)* let #own = ::dsl_runtime::ViewArgs::from(#own); });
                    all.args.push(quote! { #(#when)* #own.memory });
                    for list in [quote! { shape }, quote! { strides }] {
                        let axes = (0..view.rank).map(Literal::usize_unsuffixed);
                        all.args.extend(axes.map(
                            |axis| quote! { #(#when)* ::dsl_runtime::Arg::scalar::<::core::primitive::i64>(#own.#list[#axis]) },
                        ));
                    }
                }
                ParamType::Scalar(ty) => {
                    let ty = element(kernel, ty);
                    all.params.push(quote! { #(#when)* #own: #ty });
                    all.args.push(quote! { #(#when)* ::dsl_runtime::Arg::scalar::<#ty>(#own) });
                }
                ParamType::Enum(ty) => {
                    let ty = ty.ident();
                    all.params.push(quote! { #(#when)* #own: #ty });
                }
                ParamType::Host(ty) => all.params.push(quote! { #(#when)* #own: #ty }),
                ParamType::Failed => {}
            }
        }
        all
    }

    fn converted(&mut self, param: &KernelParam, memory: MemoryParam) {
        let (own, when, accepted) = (&param.name, &param.conditions, memory.accepted(param));
        self.params.push(quote! { #(#when)* #own: #accepted });
        let MemoryParam { ty, convert, .. } = memory;
        self.bindings.push(match param.presence() {
            None => quote! { #(#when)* let #own: #ty = #convert(#own); },
            Some(presence) => quote! {
                #(#when)* let #presence = #own.is_some();
                #(#when)* let #own: #ty = #own.unwrap_or_default();
            },
        });
    }
}

pub(super) fn slice_type(mutable: bool) -> Ident {
    if mutable { format_ident!("SliceMut") } else { format_ident!("Slice") }
}

pub(super) fn view_type(mutable: bool) -> Ident {
    if mutable { format_ident!("ViewMut") } else { format_ident!("View") }
}

/// The type of a parameter for memory: anything that the runtime converts to a slice or view.
pub(super) struct MemoryParam {
    /// On the user's element type, so that rustc points there.
    pub bound: TokenStream,
    pub ty: TokenStream,
    pub convert: TokenStream,
}

impl MemoryParam {
    pub fn slice(mutable: bool, at: Span, elem: &impl ToTokens) -> MemoryParam {
        MemoryParam::of(slice_type(mutable), at, quote! { #elem })
    }

    pub fn view(view: &ViewType, elem: &impl ToTokens) -> MemoryParam {
        let rank = Literal::usize_unsuffixed(view.rank);
        MemoryParam::of(view_type(view.mutable), view.elem.loc.start, quote! { #elem, #rank })
    }

    /// The type of the argument. An optional one has a type by name, so that a bare `None` has it too.
    pub fn accepted(&self, param: &KernelParam) -> TokenStream {
        let MemoryParam { bound, ty, .. } = self;
        if param.optional {
            quote! { ::core::option::Option<#ty> }
        } else {
            bound.clone()
        }
    }

    fn of(ty: Ident, at: Span, generics: TokenStream) -> MemoryParam {
        let into = format_ident!("Into{ty}");
        MemoryParam {
            bound: quote_spanned! { at => impl ::dsl_runtime::#into<'fuse, #generics> },
            ty: quote! { ::dsl_runtime::#ty<'fuse, #generics> },
            convert: quote! { ::dsl_runtime::#into::convert },
        }
    }
}

/// The element type, or type parameter, that the user wrote; `None` for a name that is neither.
pub(super) fn element(kernel: &Kernel, ty: &TypeName) -> Option<TokenStream> {
    let own =
        |generic: &&GenericParam| matches!(generic, GenericParam::Type { name, .. } if *name == ty.name);
    match kernel.generics.iter().find(own) {
        Some(generic) => {
            let mut name = generic.name().clone();
            name.set_span(ty.loc.start);
            Some(quote! { #name })
        }
        None => DType::parse(&ty.name).map(|dtype| spanned_path(dtype, ty.loc.start)),
    }
}

/// The path of an element type, for code that cannot rely on what the user imported.
pub(super) fn element_path(dtype: DType) -> TokenStream {
    spanned_path(dtype, Span::call_site())
}

fn spanned_path(dtype: DType, span: Span) -> TokenStream {
    let name = Ident::new(dtype.name(), span);
    if dtype.is_half() || dtype.is_f8() {
        quote! { ::dsl_runtime::#name }
    } else {
        quote! { ::core::primitive::#name }
    }
}
