//! `Choice` and `Declared`: the traits that make an undeclared variant a compile error at the call.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use tile_ir::frontend::syntax::{ConstType, GenericParam, Kernel};
use tile_ir::frontend::typeck::{ConstValue, Variant};
use tile_ir::support::diagnostic::list;
use tile_ir::support::dtype::{Class, DType};

use super::arguments::element_path;
use super::launcher::{constant, declaration, inner, named};

/// `Choice` and `Declared`, items of the kernel's module: a call whose generics were not declared does not compile, and says what was.
pub(super) fn declared(kernel: &Kernel, variants: &[Variant]) -> TokenStream {
    let generics: Vec<&GenericParam> = named(kernel).collect();
    let declarations: Vec<TokenStream> = generics
        .iter()
        .map(|generic| match generic {
            GenericParam::Type { name, .. } => quote! { #name },
            GenericParam::Const { .. } => declaration(generic),
        })
        .collect();
    let types: Vec<&Ident> = generics
        .iter()
        .filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some(name),
            GenericParam::Const { .. } => None,
        })
        .collect();
    let label = format!("not a declared variant of `{}`", kernel.name);
    let message = format!("`{}` has no variant for these generics", kernel.name);
    let note = format!("declared are {}", declared_text(kernel, variants));
    let inner_visibility = inner(&kernel.visibility);
    quote! {
        /// A choice of the kernel's generics.
        #[derive(Clone, Copy, Debug)]
        #inner_visibility struct Choice<#(#declarations),*>(::core::marker::PhantomData<(#(#types,)*)>);

        /// The choices that were declared.
        #[diagnostic::on_unimplemented(message = #message, label = #label, note = #note)]
        #inner_visibility trait Declared {
            /// The variant, or the first one where arguments decide.
            const VARIANT: &'static Variant;
        }
    }
}

fn declared_text(kernel: &Kernel, variants: &[Variant]) -> String {
    if kernel.options.configs.is_empty() {
        let lists = kernel.options.lists.iter().map(|declared| {
            let values =
                declared.values.iter().map(|value| tile_ir::frontend::syntax::describe_value(&value.kind));
            format!("{} = {}", declared.name, list(values))
        });
        return lists.collect::<Vec<_>>().join("; ");
    }
    variants.iter().map(|variant| format!("[{variant}]")).collect::<Vec<_>>().join(", ")
}

/// One implementation for each declared choice, beside the kernel, where its traits are in scope. A generic all of whose values are
/// declared is a generic of the implementation, so that generic code can call the kernel. So is a type with a trait of the user's: a call
/// with a type that has the trait and no variant does not build.
pub(super) fn implementations(kernel: &Kernel, variants: &[Variant]) -> TokenStream {
    let name = &kernel.name;
    let generics: Vec<&GenericParam> = named(kernel).collect();
    let implementation = |is_open: &[bool], choice: &DeclaredChoice, index: TokenStream| {
        let open = generics.iter().zip(is_open).filter(|(_, is_open)| **is_open);
        let declarations = open.map(|(generic, _)| declaration(generic));
        let arguments = choice.0.iter().zip(&generics).map(|(value, generic)| value.tokens(generic));
        quote! {
            impl<#(#declarations),*> #name::Declared for #name::Choice<#(#arguments),*> {
                const VARIANT: &'static ::dsl_runtime::kernel::Variant = &#name::KERNEL.variants[#index];
            }
        }
    };
    if variants.is_empty() {
        // A kernel with mistakes: no bound on its choice is a mistake on top of them.
        let any = DeclaredChoice(vec![GenericValue::Any; generics.len()]);
        return implementation(&vec![true; generics.len()], &any, quote! { 0 });
    }
    let choices: Vec<DeclaredChoice> =
        variants.iter().map(|variant| DeclaredChoice::of(kernel, variant)).collect();
    let is_open: Vec<bool> =
        generics.iter().enumerate().map(|(at, generic)| is_open(generic, at, &choices)).collect();
    let mut groups: Vec<DeclaredChoice> = vec![];
    for group in choices.iter().map(|choice| choice.without(&is_open)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let open = || generics.iter().zip(&is_open).filter(|(_, is_open)| **is_open).map(|(generic, _)| *generic);
    let no_variant = format!("`{name}` has no variant for these generics");
    let of_group = |group: &DeclaredChoice| {
        let all = group.completed(&generics);
        let indices = all.iter().map(|wanted| choices.iter().position(|choice| choice == wanted));
        let indices: Vec<Option<usize>> = indices.collect();
        if let [Some(index)] = indices[..] {
            let index = Literal::usize_unsuffixed(index);
            return implementation(&is_open, group, quote! { #index });
        }
        let position = position(open());
        let undeclared = indices.contains(&None).then(|| {
            quote! { ::core::assert!(index < #name::KERNEL.variants.len(), #no_variant); }
        });
        let indices = indices.iter().map(|index| Literal::usize_unsuffixed(index.unwrap_or(choices.len())));
        let index = quote! {{
            const INDEX: &[usize] = &[#(#indices),*];
            let index = INDEX[#position];
            #undeclared
            index
        }};
        implementation(&is_open, group, index)
    };
    groups.iter().map(of_group).collect()
}

/// The values of a variant's named generics, in order.
#[derive(Clone, PartialEq)]
struct DeclaredChoice(Vec<GenericValue>);

#[derive(Clone, Copy, PartialEq)]
enum GenericValue {
    Type(DType),
    Const(ConstValue),
    Any,
}

impl DeclaredChoice {
    fn of(kernel: &Kernel, variant: &Variant) -> DeclaredChoice {
        let of_type = |name: &Ident| variant.types.iter().find(|(own, _)| name == own);
        let of_const = |name: &Ident| variant.consts.iter().find(|(own, _)| name == own);
        let value = |generic: &GenericParam| match generic {
            GenericParam::Type { name, .. } => of_type(name).map(|(_, dtype)| GenericValue::Type(*dtype)),
            GenericParam::Const { name, .. } => of_const(name).map(|(_, value)| GenericValue::Const(*value)),
        };
        DeclaredChoice(named(kernel).filter_map(value).collect())
    }

    fn without(&self, is_open: &[bool]) -> DeclaredChoice {
        let value = |(&value, &is_open)| if is_open { GenericValue::Any } else { value };
        DeclaredChoice(self.0.iter().zip(is_open).map(value).collect())
    }

    /// This choice with each value in place of `Any`; those of the last one differ first.
    fn completed(&self, generics: &[&GenericParam]) -> Vec<DeclaredChoice> {
        let mut all = vec![self.clone()];
        for (at, generic) in generics.iter().enumerate() {
            if self.0[at] == GenericValue::Any {
                let values = domain(generic).unwrap_or_default();
                let with = |choice: &DeclaredChoice, value| {
                    let mut choice = choice.clone();
                    choice.0[at] = value;
                    choice
                };
                all = all.iter().flat_map(|choice| values.iter().map(|&value| with(choice, value))).collect();
            }
        }
        all
    }
}

impl GenericValue {
    /// An argument of the kernel's choice.
    fn tokens(self, generic: &GenericParam) -> TokenStream {
        let name = generic.name();
        match self {
            GenericValue::Type(dtype) => element_path(dtype),
            GenericValue::Const(value) => {
                let value = constant(value);
                quote! { { #value } }
            }
            GenericValue::Any => quote! { #name },
        }
    }
}

/// The values that a generic can have, if an implementation can be generic over it.
fn domain(generic: &GenericParam) -> Option<Vec<GenericValue>> {
    match generic {
        GenericParam::Type { .. } => Some(DType::ALL.into_iter().map(GenericValue::Type).collect()),
        GenericParam::Const { ty: ConstType::Bool, .. } => {
            Some([false, true].map(|value| GenericValue::Const(ConstValue::Bool(value))).to_vec())
        }
        GenericParam::Const { .. } => None,
    }
}

/// Whether the generic at a position may have any value, whatever the others are.
fn is_open(generic: &GenericParam, at: usize, choices: &[DeclaredChoice]) -> bool {
    let Some(domain) = domain(generic) else { return false };
    let class = match generic {
        GenericParam::Type { traits, .. } if !traits.is_empty() => return true,
        GenericParam::Type { bound, .. } => *bound,
        GenericParam::Const { .. } => Class::Any,
    };
    let mut allowed = domain
        .into_iter()
        .filter(|value| !matches!(value, GenericValue::Type(dtype) if !class.contains(*dtype)));
    allowed.all(|value| {
        choices.iter().all(|choice| {
            let mut wanted = choice.clone();
            wanted.0[at] = value;
            choices.contains(&wanted)
        })
    })
}

/// The position of a choice among those that complete its group.
fn position<'k>(generics: impl Iterator<Item = &'k GenericParam>) -> TokenStream {
    generics.fold(TokenStream::new(), |position, generic| {
        let name = generic.name();
        let (own, count) = match generic {
            GenericParam::Type { .. } => {
                (quote! { <#name as ::dsl_runtime::Element>::DTYPE as usize }, DType::ALL.len())
            }
            GenericParam::Const { .. } => (quote! { #name as usize }, 2),
        };
        let count = Literal::usize_unsuffixed(count);
        if position.is_empty() {
            own
        } else {
            quote! { (#position) * #count + (#own) }
        }
    })
}
